"""One site's messages as one member holds them: a range without gaps, and single batches beyond it."""

from bisect import bisect_right

from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.time import NEVER_NS, Nanoseconds
from antiphon.protocols.fifo.pdus import MOST_SPANS

MOST_AHEAD = 4096
"""Batches held beyond a gap, of any size. Raising it costs memory."""
MOST_KEPT = 1 << 16
"""Batches kept until they are stable, of any size. Raising it costs memory."""


class Stream:
    """The messages of one incarnation of a site. Only a stream that has begun is followed."""

    __slots__ = (
        "acknowledged",
        "acknowledged_ns",
        "ahead",
        "ahead_bytes",
        "announced",
        "ask_ns",
        "asked_to",
        "attempts",
        "begun",
        "end",
        "excused",
        "expected",
        "first",
        "incarnation",
        "kept",
        "kept_bytes",
        "limit",
        "looked",
        "repaired",
        "since",
        "site",
        "stable",
        "unacknowledged_bytes",
        "unconfirmed",
    )  # fmt: skip

    def __init__(self, site: Site, incarnation: int) -> None:
        self.site = site
        self.incarnation = incarnation
        self.begun = False
        self.first = 0
        self.expected = 0
        """The position: the next number in order. Everything below it is held."""
        self.end = 0
        """The end of the stream as far as any member reports."""
        self.announced = 0
        """The end of the stream as far as its sender has reported, or shown by its messages."""
        self.unconfirmed: int | None = None
        """The position at which we went on, if only members other than the sender reported it."""
        self.stable = 0
        """Everyone in the view holds everything below this number, as far as we know."""
        self.since = 0
        """Where we began to follow, or went on after a gap: below this number we declare nothing."""
        self.excused = 0
        """Below this number a gap has ended a spell of ours already."""
        self.limit: int | None = None
        """Set once the site has a later incarnation: nothing is taken from this number on."""
        self.kept: dict[int, Packed] = {}
        self.kept_bytes = 0
        self.ahead: dict[int, Packed] = {}
        self.ahead_bytes = 0
        self.repaired: dict[int, tuple[Nanoseconds, Site]] = {}
        """When a kept batch was last repeated, and to which member; the sender's name means to all."""
        self.acknowledged = 0
        """The position that the sender knows of us."""
        self.acknowledged_ns: Nanoseconds = -NEVER_NS
        self.looked = 0
        """In a large group: the position when we last looked which messages are still not stable."""
        self.unacknowledged_bytes = 0
        # When to ask for what is missing, what was asked for, and how often without an answer.
        self.ask_ns: Nanoseconds | None = None
        self.asked_to = 0
        self.attempts = 0

    @property
    def kept_from(self) -> int:
        """Everything held from this number on is kept for others."""
        return next(iter(self.kept), self.expected)

    @property
    def missing_to(self) -> int:
        """The end of what can still be had: a stream that has ended goes no further than its limit."""
        return self.end if self.limit is None else self.limit

    @property
    def seen(self) -> int:
        """The end of the stream for certain, whatever other members report."""
        return max(self.announced, self.expected)

    def begin(self, first: int, position: int, stable: int) -> None:
        self.begun = True
        self.first = first
        self.end = max(self.end, position)
        self.expected = self.since = self.excused = self.acknowledged = position
        self.stable = min(stable, position)

    def take(self, number: int, bodies: Packed, *, keep: bool) -> None:
        """Take the batch that was expected."""
        assert number == self.expected, "a batch would be taken out of its order"
        self.expected = number + len(bodies)
        if self.expected > self.end:
            self.end = self.expected
        self.unacknowledged_bytes += bodies.weight
        if keep:
            self.kept[number] = bodies
            self.kept_bytes += bodies.weight

    def put_ahead(self, number: int, bodies: Packed, most_bytes: int) -> bool:
        """Hold a batch if there is room, which the expected one always has; whether it is new."""
        full = len(self.ahead) >= MOST_AHEAD or self.ahead_bytes + bodies.weight > most_bytes
        if number in self.ahead or (full and number != self.expected):
            return False
        self.ahead[number] = bodies
        self.ahead_bytes += bodies.weight
        self.end = max(self.end, number + len(bodies))
        return True

    def on_end(self, end: int) -> None:
        """The sender reports the end of its stream, which corrects what others reported beyond it.

        Batches that have come from it already may have overtaken the report.
        """
        ahead = max((number + len(bodies) for number, bodies in self.ahead.items()), default=0)
        self.end = self.announced = max(self.expected, end, ahead)
        self.excused = min(self.excused, self.end)

    def next_ahead(self) -> Packed | None:
        """Take out the batch that follows on what is held, if it is there."""
        bodies = self.ahead.pop(self.expected, None)
        if bodies is not None:
            self.ahead_bytes -= bodies.weight
        return bodies

    def drop_ahead(self, below: int, beyond: int) -> None:
        """Drop batches held beyond a gap that can follow on nothing any more."""
        for number in [number for number in self.ahead if number < below or number >= beyond]:
            self.ahead_bytes -= self.ahead.pop(number).weight

    def note_acknowledged(self, now: Nanoseconds) -> None:
        """Our position goes out to the sender."""
        self.acknowledged = self.expected
        self.acknowledged_ns = now
        self.unacknowledged_bytes = 0

    def jump(self, position: int) -> None:
        """Give up everything below a position, and go on there."""
        self.expected = self.since = position
        self.end = max(self.end, position)
        self.excused = max(self.excused, position)
        self.kept.clear()
        self.repaired.clear()
        self.kept_bytes = 0
        self.attempts = 0

    def fall_back(self, position: int) -> None:
        """Go on at a lower position: the sender has never reached ours."""
        self.drop_ahead(0, 0)
        self.jump(position)
        self.stable = min(self.stable, position)

    def release(self, position: int) -> tuple[int, int]:
        """Discard everything below a position: the first number discarded, and how many."""
        begin = end = self.kept_from
        kept = self.kept
        for number in list(kept):
            if number + len(kept[number]) > position:
                break
            bodies = kept.pop(number)
            self.repaired.pop(number, None)
            self.kept_bytes -= bodies.weight
            end = number + len(bodies)
        return begin, end - begin

    def copies(self, start: int, stop: int, most: int) -> list[int]:
        """The numbers of the first batches kept from `start` to `stop`; none if the first is not kept."""
        found: list[int] = []
        if start < stop and start not in self.kept:
            start = self._batch_around(start)
        while start < stop and len(found) < most:
            bodies = self.kept.get(start)
            if bodies is None:
                break
            found.append(start)
            start += len(bodies)
        return found

    def _batch_around(self, number: int) -> int:
        """The first number of the kept batch that contains a message; its own number if there is none."""
        begins = list(self.kept)
        place = bisect_right(begins, number) - 1
        if place >= 0 and number < begins[place] + len(self.kept[begins[place]]):
            return begins[place]
        return number

    def spans(self) -> tuple[int, ...]:
        """The gaps: from, to, from, to, …"""
        spans: list[int] = []
        position, limit = self.expected, self.missing_to
        for number in sorted(self.ahead):
            if len(spans) >= 2 * MOST_SPANS or number >= limit:
                break
            if number > position:
                spans += (position, number)
            position = max(position, number + len(self.ahead[number]))
        if position < limit and len(spans) < 2 * MOST_SPANS:
            spans += (position, limit)
        return tuple(spans)


class OwnStream(Stream):
    """This member's own messages: kept until they are stable, and measured."""

    __slots__ = ("_before", "_sent_ns", "delivered", "sent_bytes", "sent_ns")

    def __init__(self, site: Site) -> None:
        super().__init__(site, 0)
        self.delivered = 0
        self.sent_bytes = 0
        self.sent_ns: Nanoseconds = -NEVER_NS
        """When a batch was last multicast for the first time."""
        self._before: dict[int, int] = {}
        """Bytes sent before each kept batch."""
        self._sent_ns: dict[int, Nanoseconds] = {}
        """When each kept batch was multicast."""

    def start(self, incarnation: int, number: int) -> None:
        self.incarnation = incarnation
        self.begin(number, number, number)
        self.delivered = number

    def add(self, now: Nanoseconds, bodies: Packed) -> int:
        """Number a batch and keep it."""
        number = self.expected
        self._before[number] = self.sent_bytes
        self._sent_ns[number] = self.sent_ns = now
        self.sent_bytes += bodies.weight
        self.take(number, bodies, keep=True)
        return number

    def begins_at(self, number: int) -> bool:
        """Whether a kept batch begins at this number, or the next one will."""
        return number == self.expected or number in self.kept

    def sent_at_ns(self, position: int) -> Nanoseconds:
        """When the kept batch that begins at a position was multicast; long ago if none does."""
        return self._sent_ns.get(position, -NEVER_NS)

    def bytes_beyond(self, position: int) -> int:
        """Bytes sent from a position on that are not stable."""
        if position >= self.expected:
            return 0
        before = self._before.get(position)
        return self.kept_bytes if before is None else self.sent_bytes - before

    def release(self, position: int) -> tuple[int, int]:
        for number in list(self._before):
            if number >= position:
                break
            del self._before[number], self._sent_ns[number]
        return super().release(position)
