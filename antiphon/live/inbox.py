"""What was delivered and waits for the application, which may read it slowly.

It reads batches as an iterator, in a task of its own, or gives a function that is called as soon as something
is delivered: that saves the switch to the task.

What else happens to the member stands in the same queue, in its place between the batches. Whoever reads
batches alone passes over it. So many such events wait at most; of further ones it is counted how many were
left out, where they would have stood.

A full queue first slows the group down: bodies are not taken in until it has drained. If it has not after
`patience_s`, the member goes absent until then.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from inspect import iscoroutinefunction
from typing import Final

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.time import to_seconds
from antiphon.live.boards import DeliveryBoard, StabilityBoard
from antiphon.live.events import CutOff, Happening, Missed, Restarted, Unread
from antiphon.live.figures import Figures, Watch
from antiphon.live.journal import SLOW_READER, STEPPED_ASIDE, Journal
from antiphon.live.limits import Limits
from antiphon.live.machine import REAL, Machine
from antiphon.live.member import Member
from antiphon.live.messages import Batch
from antiphon.live.pieces import Incoming
from antiphon.live.places import Gaps, Restarts
from antiphon.live.standing import Standing

HUNGRY: Final = 0.25
"""History waits while more than this share of the queue's limit waits for the application."""
POSITION_BITS: Final = 20
"""A batch has fewer messages than two to this power, so that each has a position of its own."""
MESSAGE_BYTES: Final = 8
"""What a message that waits counts for beside its body: empty ones take memory, too."""
BATCH_BYTES: Final = 512
"""What a batch counts for beside its messages."""
DRAINED: Final = 0.5
"""A full queue counts as drained when it is down to this share of its limit."""
SKIPPED: Final = "The next message of this sender comes from behind them."
MOST_EVENTS: Final = 1024
"""Events that wait to be read, beside batches. Raising it costs memory where nobody reads them."""


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
        machine: Machine = REAL,
        tell: Callable[[Happening], None],
        journal: Journal,
        counts_all: bool,
    ) -> None:
        """`tell` is told what the numbers of messages show, and is to hand it to `happened`; `counts_all`
        says that everyone delivers all of a sender's numbers, so that one that is missing is missed."""
        self.pressed = False
        """Whether the application reads so slowly that bodies are not taken in."""
        self.is_aside = False
        """Whether the member is absent since the application has not caught up."""
        self.queued_bytes = 0
        self.queued_messages = 0
        self.busy_s = 0.0
        """How long the application has taken with what it was given: one that is always busy is the brake."""
        self.pieces: Final = Incoming()
        self._name: Final = name
        self._standing: Final = standing
        self._limits: Final = limits
        self._figures: Final = figures
        self._watch: Final = watch
        self._now_ns: Final = machine.now_ns
        self._stability = StabilityBoard()
        self._deliveries = DeliveryBoard()
        self._next_position = 0
        self._tell: Final = tell
        self._journal: Final = journal
        self._gaps: Final = Gaps() if counts_all else None
        self._restarts: Final = Restarts()
        self._member: Member | None = None
        self._queue: deque[Batch | Happening] = deque()
        self._events = 0
        """Of those in the queue, how many are no batches."""
        self._news = asyncio.Event()
        self._function: Callable[[Batch], None] | None = None
        """What is called with each batch at once, if the application wants that."""
        self._raised: Exception | None = None
        self._stepping_aside: asyncio.TimerHandle | None = None

    def open(self, member: Member) -> None:
        """From now on this member can be held up."""
        self._member = member

    def begin_spell(self, stability: StabilityBoard, deliveries: DeliveryBoard) -> None:
        """What is delivered from here on belongs to another presence spell."""
        self._stability, self._deliveries = stability, deliveries

    def close(self) -> None:
        """The membership is over; what was delivered before can still be read."""
        if self._stepping_aside is not None:
            self._stepping_aside.cancel()
        self._news.set()

    # How the application reads

    async def batches(self) -> AsyncIterator[Batch]:
        async for item in self.items():
            if isinstance(item, Batch):
                yield item

    async def items(self) -> AsyncIterator[Batch | Happening]:
        """Batches, and what else happens, in one order."""
        if self._function is not None:
            raise UsageError("A function is called with what is delivered.", hint="Read in one way only.")
        while True:
            while self._queue:
                begin_s = to_seconds(self._now_ns())
                yield self._next()
                self.busy_s += to_seconds(self._now_ns()) - begin_s
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
        if not self._queue:
            return True
        begin_s = to_seconds(self._now_ns())
        try:
            while self._queue:
                item = self._next()
                if isinstance(item, Batch):
                    function(item)
        except Exception as error:
            self._function = None
            self._raised = error
            self._news.set()
            return False
        finally:
            self.busy_s += to_seconds(self._now_ns()) - begin_s
        return True

    def wake(self) -> None:
        """Have what waits read soon."""
        if self._queue:
            self._news.set()

    def _next(self) -> Batch | Happening:
        item = self._queue.popleft()
        if not isinstance(item, Batch):
            self._events -= 1
            return item
        self.queued_bytes -= weight(item)
        self.queued_messages -= len(item)
        if self.pressed:
            self._relax()
        return item

    def _is_over(self) -> bool:
        """Whether nothing more will come; if something else than the application ended it, that is raised."""
        if self._standing.error is not None:
            raise self._standing.error
        return self._standing.is_out

    async def _wait_for_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    # What happens

    def happened(self, event: Happening) -> None:
        """Put an event in its place: behind all that was delivered so far."""
        queue = self._queue
        last = queue[-1] if queue else None
        if isinstance(event, Missed) and isinstance(last, CutOff):
            queue[-1] = event  # nobody has read that it was cut off, and by now it is back
        elif self._events < MOST_EVENTS:
            queue.append(event)
            self._events += 1
        else:
            self._leave_out(event, last)
        self._news.set()

    def _leave_out(self, event: Happening, last: Batch | Happening | None) -> None:
        """Too many wait: count this one in its place. Between two counts is a batch, so they are bounded."""
        missed = isinstance(event, Missed | CutOff)
        if isinstance(last, Unread):
            self._queue[-1] = Unread(last.count + 1, last.missed or missed)
        else:
            self._queue.append(Unread(1, missed))
            self._events += 1

    def met(self, site: Site, boot: int) -> None:
        """A process was let in under its name."""
        if self._restarts.met(site, boot):
            self._tell(Restarted(site))

    # What is delivered

    def passed(self, effect: fx.Deliver, count: int) -> None:
        """Messages have their place here, whether they are for this member or not: look at their numbers."""
        sender, incarnation = effect.sender, effect.incarnation
        if sender != self._name and self._restarts.delivered(sender, incarnation):
            self._tell(Restarted(sender))
        if self._gaps is not None:
            missing = self._gaps.before(sender, incarnation, effect.number, count)
            if missing is not None:
                self._tell(Missed(sender, *missing, reason=SKIPPED))

    def delivered(self, effect: fx.Deliver, bodies: Packed, places: Sequence[int] | None) -> None:
        sender, number = effect.sender, effect.number
        count = bodies.messages
        self.passed(effect, count)
        position = self._position(effect.place, count)
        self._stability.delivered(sender, number, number + count)
        if sender == self._name:
            self._watch.delivered(number + count, self._now_ns())
            self._deliveries.note(number, number + count, position)
        if places is not None and len(places) < count:
            self._deliver_some(effect, bodies, places, position)
            return
        self._figures.delivered_messages += count
        self._figures.delivered_bytes += bodies.size
        first = number
        if bodies.continuing or bodies.unfinished or self.pieces.size:
            given_up = self.pieces.dropped
            whole = self.pieces.take(sender, number, bodies)
            if self.pieces.dropped > given_up:
                self._tell(Missed(reason="A long message was given up: a piece of it was missed."))
            if whole is None:
                return
            first, bodies = whole
        to = effect.destinations if bodies.addresses is None else bodies.addresses.each()
        positions = None if position is None else range(position, position + count)
        numbers, stable = range(number, number + count), self._stability.wait
        self._put(
            Batch(
                sender, numbers, bodies, bodies.size, stable, to, effect.group, effect.incarnation,
                positions=positions, first=first,
            )
        )  # fmt: skip

    def _position(self, place: int | None, count: int) -> int | None:
        """The position of a batch's first message: by its place in the order, if there is one.

        It never goes back here, also where another order is taken up that has come less far.
        """
        if place is None:
            return None
        position = max(place << POSITION_BITS, self._next_position)
        self._next_position = position + count
        return position

    def _deliver_some(
        self, effect: fx.Deliver, bodies: Packed, places: Sequence[int], position: int | None
    ) -> None:
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
        positions = None if position is None else [position + place for place in places]
        self._put(
            Batch(
                effect.sender, numbers, chosen, size, self._stability.wait, to, effect.group,
                effect.incarnation, positions=positions,
            )
        )  # fmt: skip

    def _put(self, batch: Batch) -> None:
        self._queue.append(batch)
        self.queued_bytes += weight(batch)
        self.queued_messages += len(batch)
        if self.queued_bytes > self._limits.queue_bytes and not self.pressed:
            self._press()

    def has_room(self) -> bool:
        return self.queued_bytes < HUNGRY * self._limits.queue_bytes

    # A slow application

    def _press(self) -> None:
        """The queue is full: hold the group up, and step aside if that lasts."""
        self.pressed = True
        self._figures.slow_reader_spells += 1
        patience = f"{self._limits.patience_s:g} s"
        self._journal.note(SLOW_READER, f"the application reads too slowly; it has {patience} to catch up.")
        loop = asyncio.get_running_loop()
        self._stepping_aside = loop.call_later(self._limits.patience_s, self._step_aside)

    def _step_aside(self) -> None:
        assert self._member is not None
        self._stepping_aside = None
        self.is_aside = True
        self._journal.note(STEPPED_ASIDE, "is absent until the application has caught up.")
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
