"""Where an application waits: for a message to be stable, for who is there, and to be in a group."""

import asyncio
import contextlib
import heapq
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import count
from typing import Final

from antiphon.core.errors import AntiphonError, UsageError
from antiphon.core.ids import Group, Site
from antiphon.live.messages import Presence

NEWS_KEPT: Final = 1024
"""News that wait for an application that does not read them; the oldest go first."""
NOTES_KEPT: Final = 8
"""Refusals and the like that are told to an application that begins to listen."""
SENDERS_KEPT: Final = 4096
"""Senders of whom it is known how far their messages are stable. Raising it costs memory: 200 bytes each."""


class LeftError(AntiphonError):
    """The member is no longer in its group."""


class NameTakenError(AntiphonError):
    """Another process has this member's name in the group."""


class MissedError(AntiphonError):
    """What was waited for can no longer be known here, since this member was absent meanwhile."""


class StabilityBoard:
    """How far each sender's messages are stable, and who waits for more.

    Others' messages are told in their order. One's own, where they go to different members, may become stable
    in any: then it is kept which ones beyond a gap are.

    Where senders come and go without end, the one that came first is forgotten, until it is heard of again;
    whoever waits for a message of a forgotten sender waits for that, or for the end.
    """

    def __init__(self) -> None:
        self._limits: dict[Site, int] = {}
        self._own: Site | None = None
        self._beyond: dict[Site, dict[int, int]] = {}
        """Messages that are stable beyond one that is not: where a stretch begins, and where it ends."""
        self._waiting: dict[Site, list[tuple[int, int, asyncio.Future[None]]]] = {}
        self._tickets = count()
        self._closed: BaseException | None = None

    def limit(self, sender: Site) -> int:
        """All of a sender's messages below this number are stable."""
        return self._limits.get(sender, 0)

    def begin(self, sender: Site, number: int) -> None:
        """Nothing need be known of one's own messages below a number; those are never forgotten."""
        self._own = sender
        self._limits[sender] = max(number, self.limit(sender))
        self._beyond.pop(sender, None)

    async def wait(self, sender: Site, number: int) -> None:
        if self.limit(sender) > number:
            return
        if any(begin <= number < end for begin, end in self._beyond.get(sender, {}).items()):
            return
        if self._closed is not None:
            raise self._closed
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting.setdefault(sender, []), (number, next(self._tickets), future))
        await future

    def advance(self, sender: Site, limit: int) -> None:
        if sender not in self._limits and len(self._limits) >= SENDERS_KEPT:
            self._forget()
        self._limits[sender] = limit
        waiting = self._waiting.get(sender)
        if waiting is None:
            return
        while waiting and waiting[0][0] < limit:
            future = heapq.heappop(waiting)[2]
            if not future.done():
                future.set_result(None)
        if not waiting:
            del self._waiting[sender]

    def _forget(self) -> None:
        """Make room for one more sender."""
        oldest = next(sender for sender in self._limits if sender != self._own)
        del self._limits[oldest]

    def settle(self, sender: Site, begin: int, end: int) -> None:
        """Some of one's own messages are stable, whatever those before them are."""
        waiting = self._waiting.pop(sender, [])
        for number, ticket, future in waiting:
            if not begin <= number < end:
                heapq.heappush(self._waiting.setdefault(sender, []), (number, ticket, future))
            elif not future.done():
                future.set_result(None)
        beyond, limit = self._beyond.setdefault(sender, {}), self.limit(sender)
        beyond[begin] = end
        while limit in beyond:
            limit = beyond.pop(limit)
        self._limits[sender] = limit

    def fail(self, error: BaseException) -> None:
        """Whoever waits now waits in vain."""
        for waiting in self._waiting.values():
            for _, _, future in waiting:
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # nobody may be listening any more; that is no mistake
        self._waiting.clear()

    def close(self, error: BaseException) -> None:
        self._closed = error
        self.fail(error)


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
