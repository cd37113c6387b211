"""A live group for threads: the same member, with calls that block.

    with antiphon.sync.join("orders", name="alice") as group:
        group.wait_for_members(2, timeout=10)
        group.send(b"hello")
        for message in group:
            print(message.sender, message.body)

Each membership has an event loop in a thread of its own. Any thread may call. If several read, each
message goes to one of them. Errors are raised where the caller waits. With a `timeout`, in seconds, a
call raises `TimeoutError` and has done nothing; without one it waits.

What is delivered waits in the member's queue, so a slow reader has the same consequences as in asyncio
(docs/live.md).
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Collection, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Final, TypeVar, cast

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group as GroupName
from antiphon.core.ids import Site
from antiphon.core.packing import Destinations
from antiphon.live.errors import LeftError
from antiphon.live.group import Group as LiveGroup
from antiphon.live.joining import join as live_join
from antiphon.live.levels import Level
from antiphon.live.messages import Batch, Body, UniqueId
from antiphon.live.messages import Message as LiveMessage

__all__ = ["Group", "Message", "join"]

T = TypeVar("T")


def join(group: GroupName, *, name: Site | None = None, **options: Any) -> "Group":
    """Join a group; returns when the member has joined. The options are those of `antiphon.join`."""
    return Group(live_join(group, name=name, **options))


class Group:
    """One member's view of its group, for threads; made by `join`."""

    def __init__(self, live: LiveGroup) -> None:
        self.group: Final = live.group
        self.name: Final = live.name
        self.order: Final = live.order
        self._live = live
        self._loop = asyncio.new_event_loop()
        self._running = True
        self._ending = threading.Lock()
        self._stopping = threading.Lock()
        self._reading = threading.Lock()
        self._batch: Iterator[LiveMessage] = iter(())
        self._rest: deque[Batch] = deque()
        """Deliveries from before the end that were not read by then."""
        self._failure: Exception | None = None
        # A daemon: a program that ends without leaving counts as a member that died; it does not hang.
        self._thread = threading.Thread(target=self._loop.run_forever, name="antiphon", daemon=True)
        self._thread.start()
        try:
            self._wait(live.__aenter__())
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> "Group":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave(linger=kind is None)

    def leave(self, *, linger: bool = True) -> None:
        """Leave the group; earlier deliveries can still be read. See `antiphon.Group.leave`."""
        with self._ending:
            if self._running:
                try:
                    self._wait(self._live.leave(linger=linger))
                except BaseException:  # an interrupt while it lingers
                    self._wait(self._live.leave(linger=False))
                    raise
                finally:
                    # The end wakes a reader, which then releases the lock.
                    with self._reading:
                        self._wait(self._drain())
                        self._stop()

    # Members

    @property
    def members(self) -> frozenset[Site]:
        """The members that count, this one included."""
        return self._live.members

    def wait_for_members(self, count: int, *, timeout: float | None = None) -> None:
        """Wait until `count` members count, this one included."""
        self._wait(self._live.wait_for_members(count), timeout)

    # Sending

    def send(
        self,
        body: Body,
        *,
        to: Collection[Site] | None = None,
        group: GroupName | None = None,
        timeout: float | None = None,
    ) -> "Message":
        """Multicast a message, to all members or to those in `to`. Waits while the group cannot take more."""
        return Message(self, self._wait(self._live.send(body, to=to, group=group), timeout))

    def send_many(
        self,
        bodies: Iterable[Body],
        *,
        to: Collection[Site] | None = None,
        group: GroupName | None = None,
        timeout: float | None = None,
    ) -> None:
        """Multicast several messages: less work each than `send`. After a timeout some may have been sent."""
        self._wait(self._live.send_many(list(bodies), to=to, group=group), timeout)

    # Receiving

    def __iter__(self) -> Iterator["Message"]:
        """The messages delivered here, until the membership is over."""
        with contextlib.suppress(LeftError):
            while True:
                yield self.receive()

    def receive(self, *, timeout: float | None = None) -> "Message":
        """The next message; `LeftError` when the membership is over and everything has been read."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._reading.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            raise self._too_late()
        try:
            while True:
                for message in self._batch:
                    return Message(self, message)
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                self._batch = iter(self._next_batch(left))
        finally:
            self._reading.release()

    def _next_batch(self, timeout: float | None) -> Batch:
        if self._rest:
            return self._rest.popleft()
        batch = self._wait(self._read(), timeout)
        if batch is None:
            raise self._left()
        return batch

    async def _read(self) -> Batch | None:
        # A new reader each time: a reader whose wait was cut short is finished.
        batches = cast(AsyncGenerator[Batch, None], self._live.batches())
        async with contextlib.aclosing(batches):
            return await anext(batches, None)

    async def _drain(self) -> None:
        """Keep what can still be read after the end, and the reason for the end."""
        try:
            self._rest.extend([batch async for batch in self._live.batches()])
        except Exception as error:
            self._failure = error

    # The event loop

    def _wait(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine in the group's event loop, and wait for it here."""
        future = self._hand_over(work, timeout)
        try:
            return future.result()
        except TimeoutError:
            raise self._too_late() from None
        except CancelledError:
            raise self._left() from None
        except BaseException:  # an interrupt, for example: no thread waits for the result now
            future.cancel()
            raise

    def _hand_over(self, work: Coroutine[Any, Any, T], timeout: float | None) -> "Future[T]":
        with self._stopping:
            if self._running and threading.current_thread() is not self._thread:
                return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, timeout), self._loop)
        work.close()
        if not self._running:
            raise self._left()
        raise UsageError(
            f"The event loop of '{self.name}' cannot wait for itself.", hint="Call from another thread."
        )

    def _too_late(self) -> TimeoutError:
        return TimeoutError(f"A call to '{self.name}' took longer than the timeout.")

    def _left(self) -> Exception:
        return self._failure or LeftError(
            f"'{self.name}' has left '{self.group}'.", "Join again with antiphon.sync.join."
        )

    def _stop(self) -> None:
        """Stop accepting calls; threads that still wait get an error."""
        with self._stopping:
            self._running = False
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Message:
    """One message: its sender, its number among that sender's messages, its body and its destinations."""

    __slots__ = ("_group", "_live")

    def __init__(self, group: Group, live: LiveMessage) -> None:
        self._group = group
        self._live = live

    @property
    def sender(self) -> Site:
        return self._live.sender

    @property
    def number(self) -> int:
        return self._live.number

    @property
    def body(self) -> bytes:
        return self._live.body

    @property
    def to(self) -> Destinations:
        return self._live.to

    @property
    def group(self) -> GroupName | None:
        return self._live.group

    @property
    def id(self) -> UniqueId:
        return self._live.id

    def stable(self, *, timeout: float | None = None) -> None:
        """Wait until every destination that counts is known to hold this message."""
        self._group._wait(self._live.stable(), timeout)

    def level(self) -> Level:
        """The levels of acceptance that it has reached here, in causal order with `levels=True`."""
        return self._live.level()

    def reached(self, level: Level | str, *, timeout: float | None = None) -> None:
        """Wait until it has reached a level of acceptance here, such as 'atomic' or 'full'."""
        self._group._wait(self._live.reached(level), timeout)

    def delivered(self, *, timeout: float | None = None) -> int | None:
        """Wait until it is delivered at its sender. Returns its position in a total order, None in others."""
        return self._group._wait(self._live.delivered(), timeout)

    def __repr__(self) -> str:
        return repr(self._live)
