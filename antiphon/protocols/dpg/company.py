"""Who was heard of lately, and how far they have come: for pacing and for telling what has reached everyone.

No decision about order depends on it: a member that is not heard of any more is simply not waited for.
"""

from typing import Final

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds

MOST_SITES: Final = 4096
"""Members remembered. Raising it costs memory."""


class Company:
    """The other members, as far as they have told something."""

    def __init__(self, lately_ns: Nanoseconds, gone_ns: Nanoseconds) -> None:
        self._lately_ns = lately_ns
        self._gone_ns = max(lately_ns, gone_ns)
        self._sites: dict[Site, tuple[int, Nanoseconds]] = {}
        """Each one's index in the order, and when it was heard of last."""

    def note(self, now: Nanoseconds, site: Site, index: int) -> bool:
        """Someone was heard; whether it is new."""
        is_new = site not in self._sites
        if is_new and len(self._sites) >= MOST_SITES:
            return False
        self._sites[site] = (index, now)
        return is_new

    def leave(self, site: Site) -> bool:
        return self._sites.pop(site, None) is not None

    def look(self, now: Nanoseconds) -> list[Site]:
        """Forget those who have been silent for long, and name them."""
        gone = [site for site, (_, heard_ns) in self._sites.items() if now - heard_ns > self._gone_ns]
        for site in gone:
            del self._sites[site]
        return gone

    def known(self) -> bool:
        return bool(self._sites)

    def lately(self, now: Nanoseconds) -> frozenset[Site]:
        since_ns = now - self._lately_ns
        return frozenset(site for site, (_, heard_ns) in self._sites.items() if heard_ns >= since_ns)

    def slowest(self, now: Nanoseconds, own: int) -> int:
        """The least index of those heard of a moment ago; our own if there are none."""
        since_ns = now - self._lately_ns
        least = own
        for index, heard_ns in self._sites.values():
            if index < least and heard_ns >= since_ns:
                least = index
        return least

    def everywhere(self, now: Nanoseconds, own: int) -> int:
        """The least index of all who are not gone, and ours."""
        since_ns = now - self._gone_ns
        least = own
        for index, heard_ns in self._sites.values():
            if index < least and heard_ns >= since_ns:
                least = index
        return least
