"""What the numbers of delivered messages tell: gaps, and senders that have begun anew."""

from typing import Final

from antiphon.core.ids import Site

MOST_SENDERS: Final = 4096
"""Senders whose latest number or boot is remembered; beyond that the first one known is forgotten."""


class Gaps:
    """Where each sender's messages have come to, in an order in which everyone delivers all of them."""

    def __init__(self) -> None:
        self._next: dict[Site, tuple[int, int]] = {}
        """Of each sender its incarnation, and the number that comes next."""

    def before(self, sender: Site, incarnation: int, number: int, count: int) -> tuple[int, int] | None:
        """What is missing before these messages: the first number, and how many; None if nothing is.

        Where a sender has begun anew nobody can tell by numbers what is missing.
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
    """Who has begun anew: a new process of its name is met, or a message of a later incarnation comes.

    Mostly the process is met first. Where the message comes first, by way of other members, the process that
    is met afterwards is no news.
    """

    def __init__(self) -> None:
        self._boots: dict[Site, int] = {}
        self._incarnations: dict[Site, int] = {}
        self._met: set[Site] = set()
        """Those that were told as soon as they were met."""
        self._foretold: set[Site] = set()
        """Those that were told by a message, before they were met."""

    def met(self, site: Site, boot: int) -> bool:
        """A process was let in; whether it is another one than the last of its name, which is news."""
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
        """A message comes; whether its sender has begun anew, which is news."""
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
    """Forget the sender that was known first if there are too many; which that was."""
    if len(known) < MOST_SENDERS:
        return None
    oldest = next(iter(known))
    del known[oldest]
    return oldest
