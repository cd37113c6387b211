"""What was delivered and waits for the application, which may read it slowly.

It reads batches as an iterator, in a task of its own, or gives a function that is called as soon as something
is delivered: that saves the switch to the task.

A full queue first slows the group down: bodies are not taken in until it has drained. If it has not after
`patience_s`, the member goes absent until then.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from inspect import iscoroutinefunction
from typing import Final

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.live.figures import Figures, Watch
from antiphon.live.limits import Limits
from antiphon.live.member import Member
from antiphon.live.messages import Batch, StableWaiter
from antiphon.live.pieces import Incoming
from antiphon.live.standing import Standing

HUNGRY: Final = 0.25
"""History waits while more than this share of the queue's limit waits for the application."""
MESSAGE_BYTES: Final = 8
"""What a message that waits counts for beside its body: empty ones take memory, too."""
BATCH_BYTES: Final = 512
"""What a batch counts for beside its messages."""
DRAINED: Final = 0.5
"""A full queue counts as drained when it is down to this share of its limit."""


class Inbox:
    """Batches on their way to the application; its member tells it what is delivered."""

    def __init__(
        self,
        name: Site,
        *,
        standing: Standing,
        limits: Limits,
        figures: Figures,
        watch: Watch,
        stable: StableWaiter,
    ) -> None:
        self.pressed = False
        """Whether the application reads so slowly that bodies are not taken in."""
        self.is_aside = False
        """Whether the member is absent since the application has not caught up."""
        self.queued_bytes = 0
        self.pieces: Final = Incoming()
        self._name: Final = name
        self._standing: Final = standing
        self._limits: Final = limits
        self._figures: Final = figures
        self._watch: Final = watch
        self._stable: Final = stable
        self._member: Member | None = None
        self._queue: deque[Batch] = deque()
        self._news = asyncio.Event()
        self._function: Callable[[Batch], None] | None = None
        """What is called with each batch at once, if the application wants that."""
        self._raised: Exception | None = None
        self._stepping_aside: asyncio.TimerHandle | None = None

    def open(self, member: Member) -> None:
        """From now on this member can be held up."""
        self._member = member

    def close(self) -> None:
        """The membership is over; what was delivered before can still be read."""
        if self._stepping_aside is not None:
            self._stepping_aside.cancel()
        self._news.set()

    # How the application reads

    async def batches(self) -> AsyncIterator[Batch]:
        if self._function is not None:
            raise UsageError("A function is called with what is delivered.", hint="Read in one way only.")
        while True:
            while self._queue:
                yield self._next()
            if self._is_over():
                return
            await self._wait_for_news()

    async def for_each(self, function: Callable[[Batch], None]) -> None:
        if not callable(function) or iscoroutinefunction(function):
            raise UsageError(
                f"{function!r} is not a function that can be called with a batch and be done.",
                hint="To await something for each batch: async for batch in group.batches().",
            )
        if self._function is not None:
            raise UsageError("Another function is called with what is delivered.", hint="Read in one place.")
        self._function, self._raised = function, None
        try:
            while True:
                self.hand_out()
                if self._raised is not None:
                    error, self._raised = self._raised, None
                    raise error
                if self._is_over():
                    return
                await self._wait_for_news()
        finally:
            self._function = None

    def hand_out(self) -> bool:
        """Call the application's function with all that waits; without one, wake who reads.

        Whether it has had everything. What it raises reaches whoever gave it, and the rest waits.
        """
        function = self._function
        if function is None:
            self.wake()
            return False
        try:
            while self._queue:
                function(self._next())
        except Exception as error:
            self._function = None
            self._raised = error
            self._news.set()
            return False
        return True

    def wake(self) -> None:
        """Have what waits read soon."""
        if self._queue:
            self._news.set()

    def _next(self) -> Batch:
        batch = self._queue.popleft()
        self.queued_bytes -= weight(batch)
        if self.pressed:
            self._relax()
        return batch

    def _is_over(self) -> bool:
        """Whether nothing more will come; if something else than the application ended it, that is raised."""
        if self._standing.error is not None:
            raise self._standing.error
        return self._standing.is_out

    async def _wait_for_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    # What is delivered

    def delivered(self, effect: fx.Deliver, bodies: Packed, places: Sequence[int] | None) -> None:
        sender, number = effect.sender, effect.number
        count = bodies.messages
        if sender == self._name:
            self._watch.delivered(number + count, time.monotonic_ns())
        if places is not None and len(places) < count:
            self._deliver_some(effect, bodies, places)
            return
        self._figures.delivered_messages += count
        self._figures.delivered_bytes += bodies.size
        if bodies.continuing or bodies.unfinished or self.pieces.size:
            whole = self.pieces.take(sender, number, bodies)
            if whole is None:
                return
            number, bodies = whole
            count = bodies.messages
        numbers = range(number, number + count)
        to = effect.destinations if bodies.addresses is None else bodies.addresses.each()
        self._put(Batch(sender, numbers, bodies, bodies.size, self._stable, to, effect.group))

    def _deliver_some(self, effect: fx.Deliver, bodies: Packed, places: Sequence[int]) -> None:
        """Of a batch for several members, what is for this one."""
        assert bodies.addresses is not None
        offsets, data = bodies.offsets(), bodies.data
        chosen = [data[offsets[place] : offsets[place + 1]] for place in places]
        size = sum(map(len, chosen))
        numbers = [effect.number + place for place in places]
        each = bodies.addresses.each()
        to = [each[place] for place in places]
        self._figures.delivered_messages += len(chosen)
        self._figures.delivered_bytes += size
        self._put(Batch(effect.sender, numbers, chosen, size, self._stable, to, effect.group))

    def _put(self, batch: Batch) -> None:
        self._queue.append(batch)
        self.queued_bytes += weight(batch)
        if self.queued_bytes > self._limits.queue_bytes and not self.pressed:
            self._press()

    def has_room(self) -> bool:
        return self.queued_bytes < HUNGRY * self._limits.queue_bytes

    # A slow application

    def _press(self) -> None:
        """The queue is full: hold the group up, and step aside if that lasts."""
        self.pressed = True
        self._figures.slow_reader_spells += 1
        loop = asyncio.get_running_loop()
        self._stepping_aside = loop.call_later(self._limits.patience_s, self._step_aside)

    def _step_aside(self) -> None:
        assert self._member is not None
        self._stepping_aside = None
        self.is_aside = True
        self._member.depart()

    def _relax(self) -> None:
        """The application has caught up: take part again."""
        if self.queued_bytes > DRAINED * self._limits.queue_bytes:
            return
        self.pressed = False
        if self._stepping_aside is not None:
            self._stepping_aside.cancel()
            self._stepping_aside = None
        if self.is_aside and self._member is not None and not self._standing.is_out:
            self.is_aside = False
            self._member.come_back()


def weight(batch: Batch) -> int:
    """What a batch that waits counts for."""
    return batch.size + MESSAGE_BYTES * len(batch) + BATCH_BYTES
