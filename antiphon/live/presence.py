"""Presence: the other members, readers of changes, and the groups that a node is in."""

import asyncio
import contextlib
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.live.errors import LeftError
from antiphon.live.messages import Presence

NEWS_KEPT: Final = 1024
"""Unread changes per reader; beyond that the oldest are dropped. Raising it costs memory."""
NOTES_KEPT: Final = 8
"""Refusals and similar notes that a new reader still gets."""


class PresenceNews:
    """The other members that count, and the readers of changes."""

    def __init__(self) -> None:
        self.others: set[Site] = set()
        self._readers: weakref.WeakSet[PresenceReader] = weakref.WeakSet()
        self._changed = asyncio.Event()
        self._closed: BaseException | None = None
        self._notes: deque[Presence] = deque(maxlen=NOTES_KEPT)

    def note(self, event: Presence) -> None:
        """Notes from the time of joining, before the application could read: each new reader gets them."""
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
        """Yields the latest notes, the members present, then every change, until the member has left."""
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
    """The unread changes of one reader, kept from its call on, not from its first read."""

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


class JoinedGroups:
    """Which of several groups a member is in, and the waits for changes of that."""

    def __init__(self) -> None:
        self.joined: set[Group] = set()
        self._waiting: dict[Group, asyncio.Future[None]] = {}

    @contextlib.contextmanager
    def expect(self, group: Group) -> Iterator["asyncio.Future[None]"]:
        """A future for the end of a join or leave of this group; one change at a time."""
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
