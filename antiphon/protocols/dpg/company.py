"""Who was heard of lately, and how far their orders have come: for pacing, and to know who counts.

No decision about order depends on it: a member that is not heard of any more is simply not waited for. How
long one may be silent before that is taken to mean something depends on how long it was silent at times while
there was something to tell: on a busy machine processes stand still for a while without being gone.

Before that it is left behind step by step, the further the longer it is silent, and not beyond what is kept
for it: whoever is gone does not bring the others to a halt, and whoever was only late finds all of it.
"""

from collections.abc import Callable, Set
from math import inf
from typing import Final

from antiphon.core.effects import Appeared, Effect, Vanished
from antiphon.core.ids import Site
from antiphon.core.time import SECOND_NS, Nanoseconds

MOST_SITES: Final = 4096
"""Members remembered. Raising it costs memory."""
PATIENCE: Final = 2
"""How many times its longest silence of late one may be silent."""
MOST_PATIENCE_NS: Final[Nanoseconds] = SECOND_NS // 2
"""No silence is waited out for longer. Raising it costs a longer halt on a busy machine when one is gone."""
LEASH: Final = 3.0
"""By how many times the usual lag more a silent member is left behind until nobody waits for it any more.

Raising it takes that more bodies are kept.
"""
LEASH_SILENCES: Final = 3
"""So many of the shortest silences that mean something pass until then, beyond those that are usual for it.

Raising it costs throughput for a moment when one is gone, and then halts; lowering it makes members that were
only late miss messages.
"""
LONGEST_LEAP: Final = 1 << 35
"""How far an incarnation that is only told of may exceed all that were heard: in milliseconds, a year."""
FORGETTING: Final = 16
"""A silence counts less with each word that follows it, by one part in so many."""


class Incarnations(dict[Site, int]):
    """The latest incarnation of each site that it has told itself; those heard first are forgotten first.

    Nobody else is believed to know of a later one than a site itself, which could then never be heard again.
    """

    def hear(self, site: Site, incarnation: int) -> bool:
        """Whether this is the site's latest incarnation, as far as it is known."""
        known = self.get(site)
        if known is None and len(self) >= MOST_SITES:
            del self[next(iter(self))]
        if known is None or incarnation > known:
            self[site] = incarnation
        return known is None or incarnation >= known

    def is_plausible(self, site: Site, incarnation: int, present: Set[Site]) -> bool:
        """Whether another may be right in saying that a site has had this incarnation.

        Of one that is present we have heard ourselves which is its latest.
        """
        if site in present and site in self:
            return incarnation <= self[site]
        return incarnation <= max(self.values(), default=0) + LONGEST_LEAP


class Companion:
    """Another member."""

    __slots__ = ("advanced_ns", "ahead", "furthest", "heard_ns", "index", "silence_ns")

    def __init__(self, index: int, now: Nanoseconds) -> None:
        self.index = self.furthest = index
        self.ahead = 0
        """How much further we count at a message that both have: more than 0 if it has passed some over."""
        self.heard_ns = self.advanced_ns = now
        self.silence_ns: Nanoseconds = 0


class Company:
    """The other members, as far as they have told something; says who appears and vanishes."""

    def __init__(
        self, lately_ns: Nanoseconds, gone_ns: Nanoseconds, busy: int, emit: Callable[[Effect], None]
    ) -> None:
        """`busy` is by how much the order has grown when a member has had something to tell."""
        self._lately_ns = lately_ns
        self._gone_ns = max(lately_ns, gone_ns)
        self._busy = max(1, busy)
        self._emit = emit
        self._sites: dict[Site, Companion] = {}

    def note(self, now: Nanoseconds, site: Site, index: int, own: int) -> None:
        """Someone was heard, and tells how far it has come in its own order."""
        companion = self._sites.get(site)
        if companion is None:
            if len(self._sites) < MOST_SITES:
                self._sites[site] = Companion(index, now)
                self._emit(Appeared(site))
            return
        index += companion.ahead
        companion.silence_ns -= companion.silence_ns // FORGETTING
        if own - companion.index >= self._busy:
            companion.silence_ns = max(companion.silence_ns, now - companion.heard_ns)
        companion.index = index
        companion.heard_ns = now
        if index > companion.furthest:
            companion.furthest = index
            companion.advanced_ns = now

    def align(self, site: Site, ahead: int | None) -> None:
        """How much further we count than one whose order may have gone apart from ours; None if unknown."""
        companion = self._sites.get(site)
        if companion is not None and ahead is not None and ahead != companion.ahead:
            companion.index += ahead - companion.ahead
            companion.furthest = companion.index
            companion.ahead = ahead

    def leave(self, site: Site, reason: str = "It left.") -> None:
        """Someone says that it goes."""
        if self._sites.pop(site, None) is not None:
            self._emit(Vanished(site, reason))

    def look(self, now: Nanoseconds) -> list[Site]:
        """Forget those who have been silent for long; returns them."""
        gone = [site for site, one in self._sites.items() if now - one.heard_ns > self._gone_ns]
        for site in gone:
            del self._sites[site]
            self._emit(Vanished(site, "It has been silent for too long."))
        return gone

    def known(self) -> bool:
        return bool(self._sites)

    def sites(self) -> Set[Site]:
        return self._sites.keys()

    def lately(self, now: Nanoseconds) -> frozenset[Site]:
        """Those who are not silent for longer than they are at times."""
        return frozenset(site for site, one in self._sites.items() if self._is_there(now, one))

    def _is_there(self, now: Nanoseconds, one: Companion) -> bool:
        return now - one.heard_ns <= self._patience_ns(one)

    def _patience_ns(self, one: Companion) -> Nanoseconds:
        return max(self._lately_ns, min(PATIENCE * one.silence_ns, MOST_PATIENCE_NS))

    def slowest(self, now: Nanoseconds, own: int) -> int:
        """The least index of those who are there, and ours."""
        least = own
        for one in self._sites.values():
            if one.index < least and self._is_there(now, one):
                least = one.index
        return least

    def has_one_behind(self, now: Nanoseconds, index: int, lag: int) -> bool:
        """Whether whoever has come this far has to wait for one who is behind by that much.

        One that does not get on is not waited for: it will have to begin again, or lies.
        """
        least, since_ns = index - lag, now - self._gone_ns
        return any(
            index - one.index >= lag + self._leash(now, one, lag)
            for one in self._sites.values()
            if one.index <= least and one.advanced_ns >= since_ns
        )

    def reports(self, now: Nanoseconds, index: int, lag: int) -> dict[Site, tuple[int, Nanoseconds, bool]]:
        """How far each has come, when it was heard, and whether who has come this far waits for it."""
        since_ns = now - self._gone_ns
        return {
            site: (
                one.index,
                one.heard_ns,
                index - one.index >= lag + self._leash(now, one, lag) and one.advanced_ns >= since_ns,
            )
            for site, one in list(self._sites.items())
        }

    def _leash(self, now: Nanoseconds, one: Companion, lag: int) -> float:
        """By how much more than usual one may be left behind."""
        share = (now - one.heard_ns) / (self._patience_ns(one) + LEASH_SILENCES * self._lately_ns)
        return LEASH * lag * share if share < 1 else inf
