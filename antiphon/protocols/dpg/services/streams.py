"""What is missing of each sender's messages, and up to which stamp nothing can be missing.

A sender's messages have consecutive numbers and rising stamps. A skipped number means that a message with a
stamp between those of its neighbours is on its way or lost: a gap. A sender vouches for its next message: its
number, and a stamp that it will exceed. That shows gaps among its latest messages, and that no other message
of it can have a lower stamp.
"""

from collections import deque
from typing import Final

from antiphon.core.ids import Site
from antiphon.core.time import NEVER_NS, Nanoseconds
from antiphon.protocols.dpg.pdus import ORIGIN, Tag

MOST_STREAMS: Final = 256
MOST_HOLES: Final = 16
"""Separate holes of a gap; more are merged. Raising it costs memory."""
UNKNOWN: Final = (-1, 0)
"""A hole of unknown numbers, which no message fills."""
UNNUMBERED: Final = -1
"""The number of a next message before there was one."""


class Gap:
    """Numbers that are missing, all of them with stamps above one and below another."""

    __slots__ = ("above", "below", "holes")

    def __init__(self, above: int) -> None:
        self.above: Final = above
        self.below = above
        self.holes: list[tuple[int, int]] = []

    def widen(self, number: int, end: int, below: int) -> None:
        self.below = max(self.below, below)
        self.holes.append((number, end))
        if len(self.holes) > MOST_HOLES:
            self.holes = [(self.holes[0][0], end)]

    def fill(self, number: int, end: int) -> bool:
        """Messages have arrived after all. Returns whether the gap is filled."""
        left: list[tuple[int, int]] = []
        for begin, stop in self.holes:
            left += [
                hole for hole in ((begin, min(stop, number)), (max(begin, end), stop)) if hole[0] < hole[1]
            ]
        self.holes = left
        return not left


class Stream:
    """One sender's messages."""

    __slots__ = ("expected", "heard_ns", "incarnation", "reached", "repeated", "silent")

    def __init__(self, incarnation: int) -> None:
        self.incarnation: Final = incarnation
        self.expected = UNNUMBERED
        self.reached = 0
        """Later messages have greater stamps, except those in the gap."""
        self.heard_ns: Nanoseconds = 0
        self.silent = False
        """Whether the group no longer waits for it."""
        self.repeated: Final[deque[tuple[int, int]]] = deque(maxlen=MOST_HOLES)
        """Its latest messages that only others sent: they fill gaps that its own vouches open."""


class Streams:
    """All senders' messages, as far as they are heard."""

    def __init__(self, pause_ns: Nanoseconds) -> None:
        """Pauses longer than this do not count as time in which peers are heard."""
        self.opened = 0
        """Gaps seen so far."""
        self.heard_for_ns: Nanoseconds = 0
        """How long peers were heard so far, without long pauses."""
        self._pause_ns: Final = pause_ns
        self._heard_ns: Nanoseconds = 0
        self._whole = False
        self._streams: dict[Site, Stream] = {}
        self._gaps: dict[Site, Gap] = {}

    def begin(self, *, whole: bool = False) -> None:
        """Nothing is known; `whole` if nothing was sent yet, so that all senders begin with number 0."""
        self._whole = whole
        self._streams.clear()
        self._gaps.clear()

    def take(
        self,
        now: Nanoseconds,
        sender: Site,
        incarnation: int,
        number: int,
        count: int,
        stamp: int,
        previous: Tag,
    ) -> None:
        """Messages number, number+1, … have come under one stamp, after the sender's message `previous`."""
        stream = self._streams.get(sender)
        if stream is None or incarnation > stream.incarnation:
            stream = self._open_stream(sender, incarnation)
        elif incarnation < stream.incarnation:
            return
        self._hear(now, stream)
        if stream.expected == UNNUMBERED:
            stream.expected = number
            if previous != ORIGIN:
                self._open_gap(sender, stream.reached, *UNKNOWN, stamp)
        end = number + count
        gap = self._gaps.get(sender)
        if gap is not None and gap.fill(number, end):
            del self._gaps[sender]
        if end > stream.expected:
            if number > stream.expected:
                self._open_gap(sender, stream.reached, stream.expected, number, stamp)
            stream.expected = end
            stream.reached = max(stream.reached, stamp)

    def take_again(self, sender: Site, incarnation: int, number: int, count: int) -> None:
        """A peer has retransmitted messages of this sender, which alone tells how far it has come."""
        stream = self._streams.get(sender)
        if stream is None or incarnation != stream.incarnation:
            return
        stream.repeated.append((number, number + count))
        gap = self._gaps.get(sender)
        if gap is not None and gap.fill(number, number + count):
            del self._gaps[sender]

    def tell(self, now: Nanoseconds, sender: Site, incarnation: int, number: int, floor: int) -> None:
        """A sender vouches that its next message has this number and a greater stamp than `floor`."""
        stream = self._streams.get(sender)
        if stream is None or incarnation > stream.incarnation:
            stream = self._open_stream(sender, incarnation)
        elif incarnation < stream.incarnation:
            return
        self._hear(now, stream)
        if number > stream.expected:
            begin, end = UNKNOWN if stream.expected == UNNUMBERED else (stream.expected, number)
            self._open_gap(sender, stream.reached, begin, end, floor)
            stream.expected = number
        if number == stream.expected or max(number, stream.expected) <= 0:
            stream.reached = max(stream.reached, floor)

    def _hear(self, now: Nanoseconds, stream: Stream) -> None:
        stream.heard_ns = now
        stream.silent = False
        self.heard_for_ns += min(now - self._heard_ns, self._pause_ns)
        self._heard_ns = now

    def is_whole(self, after: int, upto: int) -> bool:
        """Whether no gap is known in which something between these stamps may be missing.

        Called with rising stamps: gaps that lie before are forgotten.
        """
        if not self._gaps:
            return True
        for site in [site for site, gap in self._gaps.items() if gap.below <= after]:
            del self._gaps[site]
        return all(gap.above >= upto for gap in self._gaps.values())

    def reached(self) -> int:
        """The stamp up to which no awaited sender can send any more, except in gaps."""
        least: int = NEVER_NS
        for stream in self._streams.values():
            if stream.reached < least and not stream.silent:
                least = stream.reached
        return least

    def silence(self, before_ns: Nanoseconds) -> None:
        """Stop waiting for senders that were not heard since then."""
        for stream in self._streams.values():
            if stream.heard_ns < before_ns:
                stream.silent = True

    def leave(self, sender: Site) -> None:
        """A sender leaves: nothing more will come."""
        stream = self._streams.get(sender)
        if stream is not None:
            stream.silent = True

    def close(self, sender: Site, stamp: int) -> None:
        """Stop waiting for this sender; it has given no stamp beyond this one."""
        self.leave(sender)
        gap = self._gaps.get(sender)
        if gap is not None:
            gap.below = min(gap.below, stamp)

    def expire(self, before_ns: Nanoseconds, stamp: int) -> None:
        """Close senders that were not heard since then, as if they had left."""
        gone = [site for site in self._gaps if self._streams[site].heard_ns < before_ns]
        for site in gone:
            self.close(site, stamp)

    def _open_stream(self, sender: Site, incarnation: int) -> Stream:
        self._gaps.pop(sender, None)
        self._streams.pop(sender, None)
        if len(self._streams) >= MOST_STREAMS:
            forgotten = next(iter(self._streams))
            del self._streams[forgotten]
            self._gaps.pop(forgotten, None)
        stream = self._streams[sender] = Stream(incarnation)
        if self._whole and incarnation == 0:
            stream.expected = 0
        return stream

    def _open_gap(self, sender: Site, above: int, number: int, end: int, below: int) -> None:
        self.opened += 1
        if sender not in self._gaps:
            self._gaps[sender] = Gap(above)
        gap = self._gaps[sender]
        gap.widen(number, end, below)
        if any(gap.fill(*span) for span in self._streams[sender].repeated):
            del self._gaps[sender]
