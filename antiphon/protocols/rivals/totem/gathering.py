"""How members agree on the members of the next ring.

Source: the membership part of the paper, its Gather state. Each member multicasts the members that it knows
and those of them that it holds to have failed. Both sets only grow, so members that hear one another end with
the same two sets. They agree when each has heard these sets from all members that it does not hold to have
failed. Members that have not agreed in time are held to have failed. Two members that hold one another to
have failed form different rings, and meet again later.
"""

from collections.abc import Iterable
from enum import Enum

from antiphon.core.ids import Site
from antiphon.protocols.rivals.totem.pdus import Join


class Heard(Enum):
    """What a join message has changed."""

    NOTHING = "nothing"
    AGREED = "its sender agrees"
    GREW = "our sets grew, so that everyone has to be asked again"


class Gathering:
    """The two sets, and the members that agree with them."""

    __slots__ = ("_agreed", "_everyone", "_site", "failed", "known")

    def __init__(self, site: Site, everyone: tuple[Site, ...]) -> None:
        self._site = site
        self._everyone = everyone
        self.known = {site}
        self.failed: set[Site] = set()
        self._agreed = {site}

    def settle(self, members: Iterable[Site]) -> None:
        """A ring is operational: its members are known, and none is held to have failed."""
        self.known = {*members, self._site}
        self.failed = set()
        self.ask()

    def ask(self) -> None:
        """Forget which members have agreed."""
        self._agreed = {self._site}

    def meet(self, site: Site) -> bool:
        """Add a known member; False if it was known."""
        new = site not in self.known
        self.known.add(site)
        return new

    def miss(self, site: Site) -> bool:
        """Add a failed member; False if it was held to have failed before."""
        new = site not in self.failed
        self.known.add(site)
        self.failed.add(site)
        return new

    def hear(self, sender: Site, pdu: Join) -> Heard:
        known, failed = set(pdu.known), set(pdu.failed)
        if known == self.known and failed == self.failed:
            self._agreed.add(sender)
            return Heard.AGREED
        if (known <= self.known and failed <= self.failed) or sender in self.failed:
            return Heard.NOTHING
        self.known |= known
        if self._site in failed:
            self.failed.add(sender)
        else:
            self.failed |= failed
        return Heard.GREW

    def candidates(self) -> tuple[Site, ...]:
        """The members of the ring if all agree, in the order that all give them."""
        return tuple(site for site in self._everyone if site in self.known and site not in self.failed)

    def complete(self) -> bool:
        return self._agreed.issuperset(self.candidates())

    def give_up(self) -> None:
        """Hold the members that have not agreed to have failed."""
        self.failed |= self.known - self._agreed
