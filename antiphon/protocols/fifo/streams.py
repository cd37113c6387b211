"""One site's messages as one member holds them: a stretch without gaps, and single batches beyond."""

from bisect import bisect_right

from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.time import NEVER_NS, Nanoseconds
from antiphon.protocols.fifo.pdus import MOST_SPANS

MOST_AHEAD = 4096
"""Batches held beyond a gap at most, whatever their size."""
MOST_KEPT = 1 << 16
"""Batches kept at most, likewise."""


class Stream:
    """The messages of one incarnation of a site. Only a stream that has begun is followed."""

    __slots__ = (
        "ahead",
        "ahead_bytes",
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
        "repaired",
        "since",
        "site",
        "spoken",
        "stable",
        "told",
        "told_ns",
        "unsure",
        "untold_bytes",
    )  # fmt: skip

    def __init__(self, site: Site, incarnation: int) -> None:
        self.site = site
        self.incarnation = incarnation
        self.begun = False
        self.first = 0
        self.expected = 0
        """Everything from the beginning up to here is held; also called the position."""
        self.end = 0
        """How far the stream is known to go, or is said to go by others."""
        self.spoken = 0
        """How far its sender itself has said, or shown by its messages, that it goes."""
        self.unsure: int | None = None
        """Where we went on, if only others have named that place."""
        self.stable = 0
        """Everyone who counts holds everything below, as far as we know."""
        self.since = 0
        """Here we began to follow, or went on after a gap: of what lies below we say nothing."""
        self.excused = 0
        """Up to here it has been said that something may be missing."""
        self.limit: int | None = None
        """Set once the site has a later incarnation: whatever lies from here on is not taken any more."""
        self.kept: dict[int, Packed] = {}
        self.kept_bytes = 0
        self.ahead: dict[int, Packed] = {}
        self.ahead_bytes = 0
        self.repaired: dict[int, tuple[Nanoseconds, Site]] = {}
        """When a kept batch was last repeated, and for whom."""
        # What the sender knows of our position.
        self.told = 0
        self.told_ns: Nanoseconds = -NEVER_NS
        self.untold_bytes = 0
        # When to ask for what is missing, what was asked for, and how often in vain.
        self.ask_ns: Nanoseconds | None = None
        self.asked_to = 0
        self.attempts = 0

    @property
    def kept_from(self) -> int:
        """From here on everything held is kept for others."""
        return next(iter(self.kept), self.expected)

    @property
    def missing_to(self) -> int:
        """How far the stream goes that is to be had: a sealed one no further than its limit."""
        return self.end if self.limit is None else self.limit

    @property
    def seen(self) -> int:
        """How far the stream goes for certain: no claim of others counts."""
        return max(self.spoken, self.expected)

    def begin(self, first: int, position: int, stable: int) -> None:
        self.begun = True
        self.first = first
        self.end = max(self.end, position)
        self.expected = self.since = self.excused = self.told = position
        self.stable = min(stable, position)

    def take(self, number: int, bodies: Packed, *, keep: bool) -> None:
        """The batch that was expected."""
        assert number == self.expected, "a batch would be taken out of its order"
        self.expected = number + len(bodies)
        if self.expected > self.end:
            self.end = self.expected
        self.untold_bytes += bodies.weight
        if keep:
            self.kept[number] = bodies
            self.kept_bytes += bodies.weight

    def put_ahead(self, number: int, bodies: Packed, most_bytes: int) -> bool:
        """Hold a batch if there is room, as there always is for the one expected; whether it is new."""
        full = len(self.ahead) >= MOST_AHEAD or self.ahead_bytes + bodies.weight > most_bytes
        if number in self.ahead or (full and number != self.expected):
            return False
        self.ahead[number] = bodies
        self.ahead_bytes += bodies.weight
        self.end = max(self.end, number + len(bodies))
        return True

    def hear_end(self, end: int) -> None:
        """The sender itself says how far it has gone: what others have claimed beyond that is refuted.

        Batches that have come from it already may have overtaken its word.
        """
        ahead = max((number + len(bodies) for number, bodies in self.ahead.items()), default=0)
        self.end = self.spoken = max(self.expected, end, ahead)
        self.excused = min(self.excused, self.end)

    def next_ahead(self) -> Packed | None:
        """Take out the batch that follows on what is held, if it is there."""
        bodies = self.ahead.pop(self.expected, None)
        if bodies is not None:
            self.ahead_bytes -= bodies.weight
        return bodies

    def drop_ahead(self, below: int, beyond: int) -> None:
        """Forget batches held beyond a gap that can follow on nothing any more."""
        for number in [number for number in self.ahead if number < below or number >= beyond]:
            self.ahead_bytes -= self.ahead.pop(number).weight

    def jump(self, position: int) -> None:
        """Give up what lies below a position, and go on there."""
        self.expected = self.since = position
        self.end = max(self.end, position)
        self.excused = max(self.excused, position)
        self.kept.clear()
        self.repaired.clear()
        self.kept_bytes = 0
        self.attempts = 0

    def fall_back(self, position: int) -> None:
        """Go on at a lower position: where we are, the sender has never been."""
        self.drop_ahead(0, 0)
        self.jump(position)
        self.stable = min(self.stable, position)

    def release(self, position: int) -> tuple[int, int]:
        """Keep nothing below a position any more: the first message let go, and how many."""
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
        """Where the kept batch begins that has a message; the message's own number if there is none."""
        begins = list(self.kept)
        place = bisect_right(begins, number) - 1
        if place >= 0 and number < begins[place] + len(self.kept[begins[place]]):
            return begins[place]
        return number

    def spans(self) -> tuple[int, ...]:
        """What is missing: from, to, from, to, …"""
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
    """One's own messages: kept until they are stable, and measured."""

    __slots__ = ("_before", "delivered", "sent_bytes", "sent_ns")

    def __init__(self, site: Site) -> None:
        super().__init__(site, 0)
        self.delivered = 0
        self.sent_bytes = 0
        self.sent_ns: Nanoseconds = -NEVER_NS
        """When something was last multicast for the first time."""
        self._before: dict[int, int] = {}

    def start(self, incarnation: int, number: int) -> None:
        self.incarnation = incarnation
        self.begin(number, number, number)
        self.delivered = number

    def add(self, bodies: Packed) -> int:
        """Number a batch and keep it."""
        number = self.expected
        self._before[number] = self.sent_bytes
        self.sent_bytes += bodies.weight
        self.take(number, bodies, keep=True)
        return number

    def begins_at(self, number: int) -> bool:
        """Whether a batch that is kept begins here, or the next one will."""
        return number == self.expected or number in self.kept

    def bytes_beyond(self, position: int) -> int:
        """What was sent from a position on; what is stable does not count."""
        if position >= self.expected:
            return 0
        before = self._before.get(position)
        return self.kept_bytes if before is None else self.sent_bytes - before

    def release(self, position: int) -> tuple[int, int]:
        for number in list(self._before):
            if number >= position:
                break
            del self._before[number]
        return super().release(position)
