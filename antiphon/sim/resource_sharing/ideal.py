"""Ideal total order: messages get their places from an oracle, and take no longer than the network does.

A yardstick, not a protocol that could run: all members of a simulation share one counter, and a message has
its place the moment it is admitted. Everyone, its sender included, delivers it as soon as all before it have
come. Assumes a network that loses nothing. A member that returns after an absence goes on with what is
admitted from then on.
"""

from collections.abc import Sequence
from typing import ClassVar

from antiphon.core.effects import Absent, Admitted, Deliver, Effect, Multicast, Present
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit, Departed, Input, Received, Returned
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu


class Placed(Pdu, frozen=True, gc=False):
    """Bodies that are messages number, number+1, … of their sender, at a place of the order."""

    code: ClassVar[int] = 1
    place: int
    number: int
    bodies: Sequence[bytes]


class Oracle:
    """Knows how many places are taken."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self) -> int:
        self.taken += 1
        return self.taken - 1


class Ideal:
    """One member; implements `antiphon.core.protocol.Protocol`."""

    def __init__(self, site: Site, oracle: Oracle) -> None:
        self._site = site
        self._oracle = oracle
        self._next_number = 0
        self._expected = 0
        self._held: dict[int, Deliver] = {}

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:  # noqa: ARG002
        match event:
            case Admit():
                return self._admit(event.bodies)
            case Received(sender=sender, pdu=Placed() as pdu):
                return self._take(pdu.place, Deliver(sender, pdu.number, pdu.bodies))
            case Departed():
                self._held.clear()
                return [Absent()]
            case Returned():
                self._expected = self._oracle.taken
                return [Present()]
            case _:
                return []

    def _admit(self, bodies: Sequence[bytes]) -> list[Effect]:
        place, number = self._oracle.take(), self._next_number
        self._next_number += len(bodies)
        return [
            Admitted(number, len(bodies), sum(map(len, bodies))),
            Multicast(Placed(place, number, bodies)),
            *self._take(place, Deliver(self._site, number, bodies)),
        ]

    def _take(self, place: int, delivery: Deliver) -> list[Effect]:
        """Deliver what follows without a gap on what has been delivered."""
        if place >= self._expected:
            self._held[place] = delivery
        ready: list[Effect] = []
        while self._expected in self._held:
            ready.append(self._held.pop(self._expected))
            self._expected += 1
        return ready
