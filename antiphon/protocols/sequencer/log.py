"""What a member holds of the agreed order, and its own messages that have no place in it yet."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from antiphon.core.effects import Deliver, Discard, Effect, Stable
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds


class Entry(NamedTuple):
    """What stands at one position: messages number, number+1, … of a sender."""

    sender: Site
    number: int
    bodies: tuple[bytes, ...]


class Log:
    """A stretch of the order: from `kept_from` to `position` without gaps, and single entries beyond."""

    def __init__(self, members: Sequence[Site]) -> None:
        self.entries: dict[int, Entry] = {}
        self.kept_from = 0
        self.delivered = 0
        self.position = 0
        self.stable = 0
        self.streams = dict.fromkeys(members, 0)
        """For each sender the number of its first message that has no place below `position`."""

    def advance(self) -> None:
        """Move `position` to the first gap."""
        while self.position in self.entries:
            entry = self.entries[self.position]
            self.streams[entry.sender] = entry.number + len(entry.bodies)
            self.position += 1

    def deliver(self, limit: int) -> list[Effect]:
        """Deliver what lies below `limit` and has not been delivered."""
        effects: list[Effect] = []
        for place in range(self.delivered, min(limit, self.position)):
            entry = self.entries[place]
            effects.append(Deliver(entry.sender, entry.number, entry.bodies))
        self.delivered += len(effects)
        return effects

    def release(self, stable: int) -> list[Effect]:
        """Everything below `stable` is held by all who count: say so, and keep it no longer."""
        assert stable <= self.delivered, "a member would call stable what it has not delivered"
        effects: list[Effect] = []
        for place in range(self.kept_from, stable):
            sender, number, bodies = self.entries.pop(place)
            effects += (Stable(sender, number, len(bodies)), Discard(sender, number, len(bodies)))
        self.kept_from = max(self.kept_from, stable)
        self.stable = max(self.stable, stable)
        return effects

    def missing(self, limit: int, most: int) -> tuple[int, ...]:
        """The first positions below `limit` that are not held."""
        found: list[int] = []
        for place in range(self.position, limit):
            if place not in self.entries:
                found.append(place)
                if len(found) == most:
                    break
        return tuple(found)

    def drop_ahead(self) -> None:
        """Forget what lies beyond a gap."""
        for place in [place for place in self.entries if place >= self.position]:
            del self.entries[place]

    def jump(self, position: int, stable: int, streams: Mapping[Site, int]) -> None:
        """Forget everything and go on at a position of the sequencer's choice."""
        self.entries.clear()
        self.kept_from = self.delivered = self.position = position
        self.stable = min(stable, position)
        self.streams.update((sender, streams[sender]) for sender in self.streams if sender in streams)


class Outstanding:
    """A request of one's own that has no place in the order yet."""

    __slots__ = ("bodies", "number", "pause_ns", "sent_ns")

    def __init__(self, number: int, bodies: tuple[bytes, ...], pause_ns: Nanoseconds) -> None:
        self.number = number
        self.bodies = bodies
        self.sent_ns: Nanoseconds = 0
        self.pause_ns = pause_ns


class Outbox:
    """A member's own messages, numbered, until it sees them in the order."""

    def __init__(self, window: int) -> None:
        self.first = 0
        self.waiting: dict[int, Outstanding] = {}
        self._window = window
        self._next_number = 0

    def begin(self, next_number: int) -> None:
        self.first = self._next_number = next_number

    def full(self) -> bool:
        return len(self.waiting) >= self._window

    def take(self, bodies: tuple[bytes, ...], pause_ns: Nanoseconds) -> Outstanding:
        request = Outstanding(self._next_number, bodies, pause_ns)
        self.waiting[request.number] = request
        self._next_number += len(bodies)
        return request

    def settle(self, number: int) -> None:
        """Everything below `number` has its place."""
        while self.waiting:
            oldest = next(iter(self.waiting))
            if oldest >= number:
                return
            del self.waiting[oldest]
