"""Small stand-ins that the simulator's tests share."""

from collections.abc import Callable, Iterable
from typing import ClassVar

from antiphon.core.effects import Effect
from antiphon.core.ids import Group, Site
from antiphon.core.inputs import Input
from antiphon.core.recording import Kind
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.sim.network import Arrival, Network


class Note(Pdu, frozen=True, gc=False):
    """A PDU that says which one it is."""

    code: ClassVar[int] = 200
    label: str


class Scripted:
    """A protocol that answers from a function and remembers what happened to it."""

    def __init__(self, answer: Callable[[Input], list[Effect]] = lambda _: []) -> None:
        self.seen: list[tuple[Nanoseconds, Input]] = []
        self._answer = answer

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        self.seen.append((now, event))
        return self._answer(event)


class Rows:
    """A recorder that keeps its rows as tuples."""

    def __init__(self) -> None:
        self.rows: list[tuple[object, ...]] = []

    def record(
        self,
        site: Site,
        kind: Kind,
        time_ns: Nanoseconds,
        sender: Site | None = None,
        number: int | None = None,
        count: int = 1,
        group: Group | None = None,
        destinations: Iterable[Site] | None = None,
        size: int | None = None,
    ) -> None:
        listed = None if destinations is None else tuple(destinations)
        self.rows.append((site, kind, time_ns, sender, number, count, group, listed, size))


def arrivals_of(network: Network, until_ns: Nanoseconds = 10**15) -> list[Arrival]:
    """Everything that arrives up to a moment."""
    found: list[Arrival] = []
    while batch := network.advance(until_ns):
        found.extend(batch)
    return found
