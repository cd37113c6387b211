"""Waits of the application for its messages: until they are stable, or delivered here."""

import asyncio
import heapq
from bisect import insort
from collections import deque
from itertools import count
from typing import Any, Final

from antiphon.core.ids import Site
from antiphon.live.errors import MissedError
from antiphon.live.levels import LevelWaits

SENDERS_KEPT: Final = 4096
"""Senders whose stable messages are tracked. Raising it costs memory: 500 bytes each."""
SPANS_KEPT: Final = 1024
"""Runs of stable messages that are tracked per sender. Raising it costs memory."""
PLACES_KEPT: Final = 4096
"""Own batches whose positions in the order are kept. Raising it costs memory: 100 bytes each."""

UNKNOWN: Final = "Whether the message is stable is unknown: only later messages were reported stable."
FORGOTTEN: Final = "Whether the message is stable is no longer known: too many messages came since."
PASSED: Final = "The message was not delivered here, but later messages of this member were."
PLACE_FORGOTTEN: Final = "The position of the message is no longer known: too many were delivered since."
BEGAN_ANEW: Final = "Whether the message is stable is unknown: its sender began anew."


class Known:
    """The stability of one sender's messages."""

    __slots__ = ("delivered", "floor", "limit", "lost", "spans", "waiting")

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []
        """Stable messages: runs in ascending order, each from a number to below another."""
        self.lost: deque[tuple[int, int, BaseException]] = deque(maxlen=SPANS_KEPT)
        """Messages that will not become stable."""
        self.limit = 0
        """Messages below this that are not stable will not become so."""
        self.floor = 0
        """Messages below this are not tracked."""
        self.delivered = 0
        """The number after the last message delivered here."""
        self.waiting: list[tuple[int, int, int, asyncio.Future[None]]] = []
        """A heap of waits: the last number, a serial, the first number, the future."""

    def is_stable(self, first: int, last: int) -> bool:
        return any(begin <= first and last < end for begin, end in reversed(self.spans))

    def why_not(self, first: int, last: int) -> BaseException | None:
        """The reason why not all of these messages will become stable; None if they may."""
        for begin, end, error in self.lost:
            if begin <= last and first < end:
                return error
        if last >= self.limit:
            return None
        return MissedError(FORGOTTEN if self.spans and last < self.spans[0][0] else UNKNOWN)

    def add(self, begin: int, end: int) -> None:
        """A run of messages is stable."""
        spans = self.spans
        if spans and spans[-1][1] == begin:
            spans[-1] = (spans[-1][0], end)
            return
        insort(spans, (begin, end))
        place = spans.index((begin, end))
        for first in (place, place - 1):
            if 0 <= first < len(spans) - 1 and spans[first][1] >= spans[first + 1][0]:
                spans[first : first + 2] = [(spans[first][0], max(spans[first][1], spans[first + 1][1]))]
        if len(spans) > SPANS_KEPT:
            del spans[0]

    def decide(self) -> None:
        """Complete the waits for messages below the limit."""
        while self.waiting and self.waiting[0][0] < self.limit:
            last, _, first, future = heapq.heappop(self.waiting)
            if not future.done() and not self._complete(first, last, future):
                fail(future, self.why_not(first, last) or MissedError(UNKNOWN))

    def decide_beyond(self) -> None:
        """Complete the waits for stable messages beyond the limit."""
        self.waiting = [
            entry
            for entry in self.waiting
            if not (entry[3].done() or self._complete(entry[2], entry[0], entry[3]))
        ]
        heapq.heapify(self.waiting)

    def _complete(self, first: int, last: int, future: "asyncio.Future[None]") -> bool:
        is_stable = self.is_stable(first, last)
        if is_stable:
            future.set_result(None)
        return is_stable


def fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    """Fail a wait."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # the waiting task may be gone; asyncio must not log that


class StabilityWaits:
    """Which messages are stable, and the waits for more, in one presence spell of this member.

    Most senders' messages become stable in their order: a message that was skipped will not become stable.
    Own messages that go to different members may become stable in any order.

    If too many senders come and go, the one known for longest is forgotten. A wait for a message of a
    forgotten sender lasts until that sender is known again, or until the end.
    """

    def __init__(self, *, watches_levels: bool = False) -> None:
        self.levels: Final = LevelWaits(watched=watches_levels)
        self._senders: dict[Site, Known] = {}
        self._own: Site | None = None
        self._tickets = count()
        self._closed: BaseException | None = None

    def limit(self, sender: Site) -> int:
        """All of a sender's messages below this number are stable, or never will be, or do not count."""
        known = self._senders.get(sender)
        return 0 if known is None else max(known.limit, known.floor)

    def begin(self, sender: Site, number: int) -> None:
        """Do not track own messages below a number. This member's own entry is never forgotten."""
        self._own = sender
        self._known(sender).floor = number

    def _known(self, sender: Site) -> Known:
        known = self._senders.get(sender)
        if known is None:
            if len(self._senders) >= SENDERS_KEPT:
                self._forget()
            known = self._senders[sender] = Known()
        return known

    def _forget(self) -> None:
        """Make room for one more sender, if there is one without waits."""
        idle = (site for site, known in self._senders.items() if site != self._own and not known.waiting)
        oldest = next(idle, None)
        if oldest is not None:
            del self._senders[oldest]

    async def wait(self, sender: Site, first: int, last: int) -> None:
        """Wait until these messages (perhaps the pieces of one) are all stable; raise if they will not be."""
        known = self._known(sender)
        if known.is_stable(first, last):
            return
        error = known.why_not(first, last) or self._closed
        if error is not None:
            raise error
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(known.waiting, (last, next(self._tickets), first, future))
        await future

    def delivered(self, sender: Site, begin: int, end: int) -> None:
        """Messages were delivered here. If the numbers start again, so does the sender's entry."""
        known = self._known(sender)
        if begin < known.delivered and sender != self._own:
            for *_, future in known.waiting:
                fail(future, MissedError(BEGAN_ANEW))
            known = self._senders[sender] = Known()
        known.delivered = end

    def advance(self, sender: Site, begin: int, end: int) -> None:
        """The next messages of a sender are stable."""
        known = self._known(sender)
        known.add(begin, end)
        known.limit = max(known.limit, end)
        known.decide()

    def settle(self, sender: Site, begin: int, end: int) -> None:
        """Some of our own messages are stable, whether or not those before them are."""
        known = self._known(sender)
        known.add(begin, end)
        known.limit = limit = max(known.limit, known.floor)
        for first, behind in known.spans:
            if first <= limit < behind:
                known.limit = limit = behind
        known.decide_beyond()

    def lose(self, sender: Site, begin: int, end: int, error: BaseException) -> None:
        """The next messages of a sender will not be stable."""
        known = self._known(sender)
        known.lost.append((begin, end, error))
        known.limit = max(known.limit, end)
        known.decide()

    def close(self, error: BaseException) -> None:
        """Fail every wait: later stability will not be known."""
        self._closed = error
        self.levels.close(error)
        for known in self._senders.values():
            for *_, future in known.waiting:
                fail(future, error)
            known.waiting.clear()


class DeliveryWaits:
    """Which of our own messages were delivered here, their positions, and the waits for that.

    For one presence spell, as `StabilityWaits`.
    """

    def __init__(self) -> None:
        self._limit = 0
        """Own messages below this were delivered, or never will be."""
        self._delivered: deque[tuple[int, int, int | None]] = deque(maxlen=PLACES_KEPT)
        """Runs of messages, each from a number to below another, with the position of the first."""
        self._waiting: list[tuple[int, int, asyncio.Future[int | None]]] = []
        self._tickets = count()
        self._closed: BaseException | None = None

    async def wait(self, number: int) -> int | None:
        """Wait for a message's position; None without one order. Raises if it will not be delivered."""
        for begin, end, position in reversed(self._delivered):
            if begin <= number < end:
                return None if position is None else position + number - begin
        if number < self._limit:
            is_old = bool(self._delivered) and number < self._delivered[0][0]
            raise MissedError(PLACE_FORGOTTEN if is_old else PASSED)
        if self._closed is not None:
            raise self._closed
        future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (number, next(self._tickets), future))
        return await future

    def note(self, begin: int, end: int, position: int | None) -> None:
        """The next of our own messages were delivered; `position` is that of the first."""
        delivered = self._delivered
        if position is None and delivered and delivered[-1][1:] == (begin, None):
            delivered[-1] = (delivered[-1][0], end, None)
        else:
            delivered.append((begin, end, position))
        self._limit = end
        while self._waiting and self._waiting[0][0] < end:
            number, _, future = heapq.heappop(self._waiting)
            if number < begin:
                fail(future, MissedError(PASSED))
            elif not future.done():
                future.set_result(None if position is None else position + number - begin)

    def lose(self, end: int, error: BaseException) -> None:
        """Messages below a number that are not delivered will never be."""
        self._limit = max(self._limit, end)
        while self._waiting and self._waiting[0][0] < end:
            fail(heapq.heappop(self._waiting)[2], error)

    def close(self, error: BaseException) -> None:
        """Fail every wait: later deliveries will not be known."""
        self._closed = error
        for *_, future in self._waiting:
            fail(future, error)
        self._waiting.clear()
