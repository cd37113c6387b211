"""What a member holds of the agreed order, and its own messages that have no place in it yet."""

from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from antiphon.core.effects import Deliver, Discard, Effect, Stable
from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sequencer.pdus import MOST_STREAM_BYTES, name_bytes


class Entry(NamedTuple):
    """What stands at one position: messages number, number+1, … of a sender."""

    sender: Site
    number: int
    bodies: Packed
    incarnation: int

    @property
    def end(self) -> int:
        return self.number + len(self.bodies)


class Streams(dict[Site, int]):
    """For each sender the number of its first message without a place; the least recent are forgotten."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def note(self, sender: Site, number: int) -> None:
        if self.pop(sender, None) is None:
            self._bytes += name_bytes(sender)
            while self._bytes > MOST_STREAM_BYTES and self:
                oldest = next(iter(self))
                del self[oldest]
                self._bytes -= name_bytes(oldest)
        self[sender] = number

    def replace(self, others: Mapping[Site, int]) -> None:
        """Take over what another member knows."""
        self.clear()
        self._bytes = 0
        for sender, number in others.items():
            self.note(sender, number)


class Log:
    """A range of the order: from `kept_from` to `position` without gaps, and single entries beyond."""

    __slots__ = ("delivered", "entries", "kept_from", "position", "stable", "streams")

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.kept_from = 0
        self.delivered = 0
        self.position = 0
        self.stable = 0
        self.streams = Streams()

    def append(self, entry: Entry) -> None:
        """Put this at `position`."""
        self.entries[self.position] = entry
        self.position += 1
        self.streams.note(entry.sender, entry.number + len(entry.bodies))

    def advance(self) -> None:
        """Move `position` to the first gap."""
        entries = self.entries
        while (entry := entries.get(self.position)) is not None:
            self.append(entry)

    def deliver(self, limit: int, effects: list[Effect]) -> None:
        """Deliver what lies below `limit` and has not been delivered."""
        for place in range(self.delivered, min(limit, self.position)):
            sender, number, bodies, incarnation = self.entries[place]
            effects.append(Deliver(sender, number, bodies, None, incarnation, place=place))
            self.delivered = place + 1

    def release(self, stable: int, effects: list[Effect]) -> None:
        """Everyone in the view holds everything below `stable`: declare and discard it."""
        assert stable <= self.delivered, "a member would call stable what it has not delivered"
        for place in range(self.kept_from, stable):
            sender, number, bodies, _ = self.entries.pop(place)
            count = len(bodies)
            effects += (Stable(sender, number, count), Discard(sender, number, count))
        self.kept_from = max(self.kept_from, stable)
        self.stable = max(self.stable, stable)

    def figures(self) -> dict[str, int]:
        """What is kept for others, or beyond a gap."""
        kept = [entry.bodies for entry in self.entries.values()]
        return {"kept_messages": sum(map(len, kept)), "kept_bytes": sum(bodies.size for bodies in kept)}

    def missing(self, limit: int, most: int) -> tuple[int, ...]:
        """The first positions below `limit` that are not held."""
        found: list[int] = []
        for place in range(self.position, limit):
            if place not in self.entries:
                found.append(place)
                if len(found) == most:
                    break
        return tuple(found)

    def next_of(self, sender: Site, position: int, first: int) -> int:
        """The number of a sender's first message without a place, if at `position` that was `first`."""
        for place in range(position, self.position):
            entry = self.entries[place]
            if entry.sender == sender:
                first = max(first, entry.number + len(entry.bodies))
        return first

    def drop_ahead(self) -> None:
        """Forget what lies beyond a gap."""
        for place in [place for place in self.entries if place >= self.position]:
            del self.entries[place]

    def forget(self) -> None:
        """Discard everything, also what lies beyond a gap."""
        self.entries.clear()
        self.kept_from = self.position

    def jump(self, position: int, stable: int, streams: Mapping[Site, int]) -> None:
        """Discard everything and go on at the position that the sequencer names."""
        self.entries.clear()
        self.kept_from = self.delivered = self.position = position
        self.stable = min(stable, position)
        self.streams.replace(streams)


class Outstanding:
    """A request of this member that has no place in the order yet."""

    __slots__ = ("asked", "bodies", "due_ns", "number", "sent_ns")

    def __init__(self, number: int, bodies: Packed) -> None:
        self.number = number
        self.bodies = bodies
        self.sent_ns: Nanoseconds = 0
        self.due_ns: Nanoseconds = 0
        """When it is to be repeated, or asked after."""
        self.asked = 0
        """How often either was done."""


class Outbox:
    """A member's own messages, numbered, until it sees them in the order."""

    __slots__ = ("_repeat_ns", "_window", "latency_ns", "next_number", "waiting")

    def __init__(self, window: int, repeat_ns: Nanoseconds) -> None:
        self.waiting: dict[int, Outstanding] = {}
        self._window = window
        self._repeat_ns = repeat_ns
        self.latency_ns: Nanoseconds = 0
        self.next_number = 0

    def begin(self, next_number: int) -> None:
        self.next_number = next_number

    @property
    def first(self) -> int:
        """The number of the oldest message without a place."""
        return next(iter(self.waiting), self.next_number)

    @property
    def crowded(self) -> bool:
        """Whether places come so late that a request without a place is more likely waiting than lost."""
        return 2 * self.latency_ns > self._repeat_ns

    def full(self) -> bool:
        return len(self.waiting) >= self._window

    def take(self, bodies: Packed) -> Outstanding:
        request = Outstanding(self.next_number, bodies)
        self.waiting[request.number] = request
        self.next_number += len(bodies)
        return request

    def settle(self, now: Nanoseconds, number: int) -> None:
        """Everything below `number` has its place."""
        while self.waiting:
            oldest = next(iter(self.waiting))
            if oldest >= number:
                return
            request = self.waiting.pop(oldest)
            if request.sent_ns:
                # Measured from its last repetition: a request that was lost at first does not count as slow.
                self.latency_ns += (now - request.sent_ns - self.latency_ns) // 8

    def overdue(self, now: Nanoseconds, most: int) -> list[Outstanding]:
        """The oldest requests whose time has come."""
        return list(islice((request for request in self.waiting.values() if request.due_ns <= now), most))
