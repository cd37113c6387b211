"""The sequencer's announcements: it multicasts new numbers, at once or gathered, and repeats the last."""

from collections.abc import Callable, Iterable
from typing import Final

from antiphon.core.effects import Effect, Multicast, Send, SetTimer
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.pdus import MOST_TAGS, Tag
from antiphon.protocols.dpg.services.base import PREFIX
from antiphon.protocols.dpg.services.tag_sequencer.lease import Lease
from antiphon.protocols.dpg.services.tag_sequencer.numbering import TagSequencer
from antiphon.protocols.dpg.services.tag_sequencer.numbers import Numbers
from antiphon.protocols.dpg.services.tag_sequencer.pdus import Numbered, SequencerOptions
from antiphon.protocols.dpg.tag_lists import pack_tags

GATHER: Final = PREFIX + "gather"
TICK: Final = PREFIX + "tick"
LEFT: Final = PREFIX + "left:"
"""Begins the name of the timer that fires once an announcement has left; its last number follows."""
IDLE_REPEATS: Final = 5
"""Repetitions of the last numbers when nothing follows, after growing pauses. Raising it costs PDUs."""
MOST_ANSWERS: Final = 8
"""PDUs that answer one request at most. Raising it lets a request cost more."""
NEARBY: Final = 16
"""Numbers this close together are told in one PDU, with those between. Raising it costs bytes."""


class Announcer:
    """The announcements of an epoch's sequencer. Its owner places the numbers that it returns."""

    def __init__(
        self,
        emit: Callable[[Effect], None],
        options: SequencerOptions,
        sequencer: TagSequencer,
        numbers: Numbers,
    ) -> None:
        self.announced = 0
        self.lease = Lease(options.takeover_ns)
        self._emit = emit
        self._options = options
        self._sequencer = sequencer
        self._numbers = numbers
        self._counter = 0
        self._base = 0
        self._tail: list[Tag] = []
        self._sent_ns: Nanoseconds = 0
        self._gathering = False
        self._awake_ns: Nanoseconds = 0
        self._stalled = False
        self._repeat_due_ns: Nanoseconds = 0
        self._repeats_left = 0

    def begin(self, now: Nanoseconds, counter: int, base: int, known_by_all: int) -> None:
        """Be the sequencer of an epoch; tell the numbers beyond `known_by_all` again."""
        self._awake_ns = now
        self._stalled = False
        self._counter = counter
        self._base = base
        self._gathering = False
        newest = self._numbers.newest
        tail = self._numbers.runs(self._sequencer.next_number - self._options.repeats, newest)
        last, self._tail = max(tail, default=(0, []))
        if last + len(self._tail) != self._sequencer.next_number:
            self._tail = []
        for first, tags in self._numbers.runs(max(known_by_all, newest - MOST_TAGS) + 1, newest):
            self._emit(Multicast(self._numbered(first, tags)))
        self._say(now, [])
        self._tick()

    def is_stalled(self, now: Nanoseconds) -> bool:
        """Whether this process was stopped for long enough that another may have taken over."""
        self.look(now)
        return self._stalled

    def look(self, now: Nanoseconds) -> None:
        """Measure how long this process stood still, and lengthen the lease accordingly."""
        still_ns = now - self._awake_ns - self._options.tick_ns
        self._awake_ns = now
        self._stalled |= still_ns > self.lease.stall_ns
        self.lease.stood_still(now, max(0, still_ns))

    def took(self, now: Nanoseconds, waited_ns: Nanoseconds) -> None:
        """An announcement waited this long before it left. To the others, that was silence."""
        self._stalled |= waited_ns > self.lease.stall_ns
        self.lease.stood_still(now, waited_ns)

    def may_speak(self, now: Nanoseconds) -> bool:
        """Whether to announce what is ready now; if not, a timer is set."""
        wait_ns = self._sent_ns + self._options.gather_ns - now
        if wait_ns > 0 and not self._gathering:
            self._gathering = True
            self._emit(SetTimer(GATHER, wait_ns))
        return wait_ns <= 0

    def announce(self, now: Nanoseconds) -> tuple[int, list[Tag]]:
        """Number and multicast what is ready and fits a PDU. Returns the first number and the tags."""
        first, tags = self._sequencer.number()
        self._say(now, tags)
        self.announced += len(tags)
        self._gathering = False
        return first, tags

    def fire_tick(self, now: Nanoseconds) -> None:
        """Repeat the last numbers if nothing has followed them, so that a lost tail is found."""
        if self._repeats_left and now >= self._repeat_due_ns:
            self._repeats_left -= 1
            self._repeat_due_ns = now + (self._options.tick_ns << (IDLE_REPEATS - self._repeats_left))
            self.say_again()
        self._tick()

    def say_again(self) -> None:
        """Multicast the last numbers once more."""
        self._emit(Multicast(self._numbered(self._sequencer.next_number - len(self._tail), self._tail)))

    def tell(self, to: Site, first: int, last: int) -> None:
        """Tell one member what is remembered of these numbers."""
        for begin, tags in list(self._numbers.runs(first, last))[:MOST_ANSWERS]:
            self._emit(Send(to, self._numbered(begin, tags)))

    def tell_places(self, to: Site, places: Iterable[int]) -> None:
        """Tell one member these numbers, which it did not hear."""
        ranges: list[list[int]] = []
        for number in sorted(places):
            if ranges and number - ranges[-1][1] <= NEARBY:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
        for first, last in ranges[:MOST_ANSWERS]:
            self.tell(to, first, last)

    def _say(self, now: Nanoseconds, tags: list[Tag]) -> None:
        """Multicast the latest numbers and those before them; the next one goes on behind the last."""
        told = self._tail + tags
        following = self._sequencer.next_number
        left = f"{LEFT}{following - 1}"
        self._emit(Multicast(self._numbered(following - len(told), told), left=left))
        self._tail = told[len(told) - min(len(told), self._options.repeats) :]
        self._sent_ns = now
        self._repeats_left = IDLE_REPEATS
        self._repeat_due_ns = now + 3 * self._options.tick_ns // 2

    def _numbered(self, first: int, tags: list[Tag]) -> Numbered:
        return Numbered(self._counter, self._base, self.lease.ns, first, pack_tags(tags))

    def _tick(self) -> None:
        self._emit(SetTimer(TICK, self._options.tick_ns))
