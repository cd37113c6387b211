"""What the numbers of delivered messages show: gaps, and restarts of senders."""

from typing import Final

from antiphon.core.ids import Site

MOST_SENDERS: Final = 4096
"""Senders whose latest number or boot is kept; beyond that the first known is forgotten."""


class Gaps:
    """The next number of each sender, in an order in which every member delivers all messages."""

    def __init__(self) -> None:
        self._next: dict[Site, tuple[int, int]] = {}
        """Each sender's incarnation and next number."""

    def before(self, sender: Site, incarnation: int, number: int, count: int) -> tuple[int, int] | None:
        """The gap before these messages: its first number and its length; None if there is none.

        After a restart of the sender, numbers cannot show a gap.
        """
        known = self._next.get(sender)
        if known is None:
            make_room(self._next)
        elif (incarnation, number) < known:
            return None
        self._next[sender] = (incarnation, number + count)
        if known is None or known[0] != incarnation or number == known[1]:
            return None
        return known[1], number - known[1]


class Restarts:
    """Detects restarts: a new process with a known name, or a message of a later incarnation.

    Usually the process is met first. If the message comes first, through other members, meeting the process
    afterwards is not reported again.
    """

    def __init__(self) -> None:
        self._boots: dict[Site, int] = {}
        self._incarnations: dict[Site, int] = {}
        self._met: set[Site] = set()
        """Restarts reported when the process was met."""
        self._foretold: set[Site] = set()
        """Restarts reported by a message, before the process was met."""

    def met(self, site: Site, boot: int) -> bool:
        """A process was let in. Returns whether that is a restart that was not reported yet."""
        known = self._boots.get(site)
        if known is None:
            self._forget(make_room(self._boots))
        self._boots[site] = boot
        if known in (None, boot):
            return False
        if site in self._foretold:
            self._foretold.discard(site)
            return False
        self._met.add(site)
        return True

    def delivered(self, sender: Site, incarnation: int) -> bool:
        """A message is delivered. Returns whether it shows a restart that was not reported yet."""
        known = self._incarnations.get(sender)
        if known == incarnation:
            return False
        if known is None:
            self._forget(make_room(self._incarnations))
        elif incarnation < known:
            return False
        self._incarnations[sender] = incarnation
        if sender in self._met:
            self._met.discard(sender)
            return False
        if known is None:
            return False
        self._foretold.add(sender)
        return True

    def _forget(self, site: Site | None) -> None:
        if site is not None:
            self._met.discard(site)
            self._foretold.discard(site)


def make_room(known: dict[Site, int] | dict[Site, tuple[int, int]]) -> Site | None:
    """If there are too many senders, forget and return the one known for longest."""
    if len(known) < MOST_SENDERS:
        return None
    oldest = next(iter(known))
    del known[oldest]
    return oldest
