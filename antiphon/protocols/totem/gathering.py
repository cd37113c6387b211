"""How members agree on who will be on the next ring.

Source: the membership part of the paper, its Gather state. Everyone multicasts whom it knows of and whom of
them it holds to be gone. Sets only grow, so that all who hear one another end with the same two sets; they
agree when each has heard them from everybody who is not held to be gone. Whoever has not agreed when time is
over is held to be gone. Two that hold one another to be gone go different ways, and meet again later.
"""

from collections.abc import Iterable
from enum import Enum

from antiphon.core.ids import Site
from antiphon.protocols.totem.pdus import Join


class Heard(Enum):
    """What a join message has changed."""

    NOTHING = "nothing"
    AGREED = "its sender agrees"
    GREW = "our sets grew, so that everyone has to be asked again"


class Gathering:
    """The two sets, and who agrees with them."""

    __slots__ = ("_agreed", "_everyone", "_site", "failed", "known")

    def __init__(self, site: Site, everyone: tuple[Site, ...]) -> None:
        self._site = site
        self._everyone = everyone
        self.known = {site}
        self.failed: set[Site] = set()
        self._agreed = {site}

    def settle(self, members: Iterable[Site]) -> None:
        """A ring stands: its members are known, and nobody is held to be gone."""
        self.known = {*members, self._site}
        self.failed = set()
        self.ask()

    def ask(self) -> None:
        """Forget who has agreed."""
        self._agreed = {self._site}

    def meet(self, site: Site) -> bool:
        """Know of one more; False if that is nothing new."""
        new = site not in self.known
        self.known.add(site)
        return new

    def miss(self, site: Site) -> bool:
        """Hold one more to be gone; False if that is nothing new."""
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
        """Who will be on the ring if all agree, in the order that everyone gives them."""
        return tuple(site for site in self._everyone if site in self.known and site not in self.failed)

    def complete(self) -> bool:
        return self._agreed.issuperset(self.candidates())

    def give_up(self) -> None:
        """Hold those to be gone who have not agreed."""
        self.failed |= self.known - self._agreed
