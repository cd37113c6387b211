"""Where an application waits: for a message to be delivered or stable, for who is there, to be in a group."""

import asyncio
import contextlib
import heapq
import weakref
from bisect import insort
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import count
from typing import Any, Final

from antiphon.core.errors import AntiphonError, UsageError
from antiphon.core.ids import Group, Site
from antiphon.live.messages import Presence

NEWS_KEPT: Final = 1024
"""News that wait for an application that does not read them; the oldest go first."""
NOTES_KEPT: Final = 8
"""Refusals and the like that are told to an application that begins to listen."""
SENDERS_KEPT: Final = 4096
"""Senders of whom it is known how far their messages are stable. Raising it costs memory: 500 bytes each."""
SPANS_KEPT: Final = 1024
"""Stretches of a sender's messages of which it is known apart whether they are stable."""
PLACES_KEPT: Final = 4096
"""Own batches whose places in the order are known. Raising it costs memory: 100 bytes each."""


class LeftError(AntiphonError):
    """The member is no longer in its group."""


class NameTakenError(AntiphonError):
    """Another process has this member's name in the group."""


class MissedError(AntiphonError):
    """What was waited for can no longer be known here, or cannot be: the sentence says why."""


UNKNOWN: Final = "Whether the message is stable is unknown: it was not told, though it was of later ones."
FORGOTTEN: Final = "Whether the message is stable is no longer known: too much has been since."
PASSED: Final = "The message was not delivered here, though later ones of this member were."
PLACE_FORGOTTEN: Final = "Where the message stands is no longer known: too many were delivered since."
BEGAN_ANEW: Final = "Whether the message is stable is unknown: its sender began anew."


class Known:
    """What is known of one sender's messages."""

    __slots__ = ("delivered", "floor", "limit", "lost", "spans", "waiting")

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []
        """Those that are stable: stretches, in ascending order, each from a number to below another."""
        self.lost: deque[tuple[int, int, BaseException]] = deque(maxlen=SPANS_KEPT)
        """Those that will not be."""
        self.limit = 0
        """What is below this, and not stable, will not be."""
        self.floor = 0
        """Nothing need be known of what is below this."""
        self.delivered = 0
        """The number behind the last that was delivered here."""
        self.waiting: list[tuple[int, int, int, asyncio.Future[None]]] = []
        """A heap of who waits: for the last number, in what order, from the first number, and how."""

    def is_stable(self, first: int, last: int) -> bool:
        return any(begin <= first and last < end for begin, end in reversed(self.spans))

    def why_not(self, first: int, last: int) -> BaseException | None:
        """Why these will not all be stable, if that is so."""
        for begin, end, error in self.lost:
            if begin <= last and first < end:
                return error
        if last >= self.limit:
            return None
        return MissedError(FORGOTTEN if self.spans and last < self.spans[0][0] else UNKNOWN)

    def add(self, begin: int, end: int) -> None:
        """A stretch of messages is stable."""
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
        """Let those know who wait for what lies below the limit."""
        while self.waiting and self.waiting[0][0] < self.limit:
            last, _, first, future = heapq.heappop(self.waiting)
            if not future.done() and not self._tell(first, last, future):
                fail(future, self.why_not(first, last) or MissedError(UNKNOWN))

    def decide_beyond(self) -> None:
        """The same for what is stable beyond it."""
        self.waiting = [
            entry
            for entry in self.waiting
            if not (entry[3].done() or self._tell(entry[2], entry[0], entry[3]))
        ]
        heapq.heapify(self.waiting)

    def _tell(self, first: int, last: int, future: "asyncio.Future[None]") -> bool:
        is_stable = self.is_stable(first, last)
        if is_stable:
            future.set_result(None)
        return is_stable


def fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    """A wait for this message fails."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # nobody may be listening any more; that is no mistake


class StabilityBoard:
    """Which messages are stable, and who waits for more, in one presence spell of this member.

    Most are told in their sender's order: then what was left out will not be told any more. One's own, where
    they go to different members, may become stable in any.

    Where senders come and go without end, the one that came first is forgotten, until it is heard of again;
    whoever waits for a message of a forgotten sender waits for that, or for the end.
    """

    def __init__(self) -> None:
        self._senders: dict[Site, Known] = {}
        self._own: Site | None = None
        self._tickets = count()
        self._closed: BaseException | None = None

    def limit(self, sender: Site) -> int:
        """All of a sender's messages below this number are stable, or will not be, or do not count."""
        known = self._senders.get(sender)
        return 0 if known is None else max(known.limit, known.floor)

    def begin(self, sender: Site, number: int) -> None:
        """Nothing need be known of one's own messages below a number; those are never forgotten."""
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
        """Make room for one more sender, if there is one for which nobody waits."""
        idle = (site for site, known in self._senders.items() if site != self._own and not known.waiting)
        oldest = next(idle, None)
        if oldest is not None:
            del self._senders[oldest]

    async def wait(self, sender: Site, first: int, last: int) -> None:
        """Until these, which may be the pieces of one message, are all stable; raises if they will not be."""
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
        """Messages were delivered here; if they count from anew, so does their sender's new life."""
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
        """Some of one's own messages are stable, whatever those before them are."""
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
        """Nothing more will be known; whoever waits now waits in vain."""
        self._closed = error
        for known in self._senders.values():
            for *_, future in known.waiting:
                fail(future, error)
            known.waiting.clear()


class DeliveryBoard:
    """Which of one's own messages were delivered here, where they stand in the order, and who waits for it.

    Of one presence spell, as the board of stability is.
    """

    def __init__(self) -> None:
        self._limit = 0
        """What is below this was delivered, or will not be."""
        self._delivered: deque[tuple[int, int, int | None]] = deque(maxlen=PLACES_KEPT)
        """Stretches of messages, each from a number to below another, and the first one's position."""
        self._waiting: list[tuple[int, int, asyncio.Future[int | None]]] = []
        self._tickets = count()
        self._closed: BaseException | None = None

    async def wait(self, number: int) -> int | None:
        """A message's position in the order, if there is one order; raises if it will not be delivered."""
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
        """The next of one's own messages were delivered; `position` is the first one's."""
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
        """What is not delivered below a number will not be."""
        self._limit = max(self._limit, end)
        while self._waiting and self._waiting[0][0] < end:
            fail(heapq.heappop(self._waiting)[2], error)

    def close(self, error: BaseException) -> None:
        """Nothing more will be known; whoever waits now waits in vain."""
        self._closed = error
        for *_, future in self._waiting:
            fail(future, error)
        self._waiting.clear()


class PresenceBoard:
    """Who else counts, and who wants to hear of changes."""

    def __init__(self) -> None:
        self.others: set[Site] = set()
        self._readers: weakref.WeakSet[PresenceReader] = weakref.WeakSet()
        self._changed = asyncio.Event()
        self._closed: BaseException | None = None
        self._notes: deque[Presence] = deque(maxlen=NOTES_KEPT)

    def note(self, event: Presence) -> None:
        """What is often found while joining, before anyone could read: each new reader is told it."""
        self._notes.append(event)

    def post(self, event: Presence) -> None:
        if event.kind == "appeared":
            self.others.add(event.site)
        elif event.kind == "vanished":
            self.others.discard(event.site)
        elif event.kind == "refused":
            self.note(event)
        for reader in self._readers:
            reader.post(event)
        self._changed.set()

    async def wait_for(self, others: int) -> None:
        while len(self.others) < others:
            if self._closed is not None:
                raise self._closed
            self._changed.clear()
            await self._changed.wait()

    def read(self) -> "PresenceReader":
        """The latest notes, those who are there, then every change, until the member has left."""
        there = [Presence("appeared", site) for site in sorted(self.others)]
        reader = PresenceReader([*self._notes, *there], self._closed)
        self._readers.add(reader)
        return reader

    def close(self, error: BaseException) -> None:
        self._closed = error
        self._changed.set()
        for reader in self._readers:
            reader.close(error)


class PresenceReader(AsyncIterator[Presence]):
    """What one reader has not read yet, kept from the moment that it asked, not that it first reads."""

    def __init__(self, before: Iterable[Presence], closed: BaseException | None) -> None:
        self._events = deque(before, NEWS_KEPT)
        self._news = asyncio.Event()
        self._closed = closed

    def post(self, event: Presence) -> None:
        self._events.append(event)
        self._news.set()

    def close(self, error: BaseException) -> None:
        self._closed = error
        self._news.set()

    async def __anext__(self) -> Presence:
        while not self._events:
            if isinstance(self._closed, LeftError):
                raise StopAsyncIteration
            if self._closed is not None:
                raise self._closed
            self._news.clear()
            await self._news.wait()
        return self._events.popleft()


class GroupsBoard:
    """Which of several groups a member is in, and who waits for that to change."""

    def __init__(self) -> None:
        self.joined: set[Group] = set()
        self._waiting: dict[Group, asyncio.Future[None]] = {}

    @contextlib.contextmanager
    def expect(self, group: Group) -> Iterator["asyncio.Future[None]"]:
        """What is done when the member is in the group, or in it no more; one change at a time."""
        if group in self._waiting:
            raise UsageError(f"The group '{group}' is being joined or left already.", hint="Await that.")
        self._waiting[group] = asyncio.get_running_loop().create_future()
        try:
            yield self._waiting[group]
        finally:
            del self._waiting[group]

    def note(self, group: Group, *, joined: bool) -> None:
        if joined:
            self.joined.add(group)
        else:
            self.joined.discard(group)
        waiting = self._waiting.get(group)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def close(self, error: BaseException) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
                waiting.exception()
