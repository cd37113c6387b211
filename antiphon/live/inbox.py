"""The inbox: what was delivered and waits for the application, which may read slowly.

The application reads batches as an iterator, in a task of its own, or gives a function that is called at each
delivery: that saves the switch to the task.

Other events stand in the same queue, in their place between the batches; readers of batches skip them. At
most `MOST_EVENTS` events wait. Further ones are counted where they would have stood.

A full queue first slows the group down: message bodies are refused until it has drained. If that takes longer
than `patience_s`, the member goes absent until it has.

The receiver's way, from the socket to the application:

1. The event loop calls `Member._receive` (`member`) when a socket is readable.
2. `Transport.receive` (`transport`) reads a bounded number of datagrams with `Sockets.read` (`sockets`).
3. `Transport._take` separates whole PDUs from fragments, which `FragmentReader` (`fragment_reader`)
   puts together.
4. `Gate.let_in` (`gate`) finds the member that sent a PDU, opens and decodes it. `Admission` (`admission`)
   decides on other processes; their PDUs are dropped and counted. `Transport._take_pdu` handles the
   transport's own PDUs and returns the protocol's.
5. `Member._receive` refuses PDUs with bodies while `Inbox.pressed`. `Member._carry_out` passes the others to
   `protocol.handle(now, Received(...))` and carries out the effects.
6. `Member._deliver` carries out `Deliver`: it records the trace, logs history and calls `Inbox.delivered`.
7. `Inbox.delivered` notes gaps and positions, puts the pieces of long messages together with `Incoming`
   (`pieces`), and queues a `Batch` (`messages`).
8. `Inbox.hand_out` calls the function of `Group.for_each_batch`, or wakes `Inbox.items`, from which
   `Group.batches`, `Group.events` and `async for message in group` read.

`outbox` has the sender's way.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from inspect import iscoroutinefunction
from typing import Final

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.packing import Destinations, Packed
from antiphon.core.time import to_seconds
from antiphon.live.events import CutOff, Happening, Missed, Restarted, Unread
from antiphon.live.figures import Figures, Watch
from antiphon.live.journal import SLOW_READER, STEPPED_ASIDE, Journal
from antiphon.live.lifecycle import Lifecycle
from antiphon.live.limits import Limits
from antiphon.live.machine import REAL, Machine
from antiphon.live.member import Member
from antiphon.live.messages import Batch
from antiphon.live.names import MetNames
from antiphon.live.pieces import Incoming
from antiphon.live.places import Gaps, Restarts
from antiphon.live.waits import DeliveryWaits, StabilityWaits

HUNGRY: Final = 0.25
"""History waits while the queue holds more than this share of its limit. Raising it costs memory."""
POSITION_BITS: Final = 20
"""A batch has fewer messages than two to this power, so that each message has its own position."""
MESSAGE_BYTES: Final = 8
"""Bytes that a queued message counts for beside its body: empty messages take memory, too."""
BATCH_BYTES: Final = 512
"""Bytes that a queued batch counts for beside its messages."""
DRAINED: Final = 0.5
"""A full queue counts as drained when it is down to this share of its limit."""
SKIPPED: Final = "The next message of this sender comes from behind them."
MOST_EVENTS: Final = 1024
"""Queued events, beside batches. Raising it costs memory if the application does not read them."""


class Inbox:
    """The queue of batches and events between a `Member`, which delivers into it, and the application."""

    def __init__(
        self,
        name: Site,
        *,
        lifecycle: Lifecycle,
        limits: Limits,
        figures: Figures,
        watch: Watch,
        machine: Machine = REAL,
        notify: Callable[[Happening], None],
        journal: Journal,
        counts_all: bool,
    ) -> None:
        """`notify` gets the events that message numbers show, and must pass them to `happened`. `counts_all`
        says that every member delivers all of a sender's numbers, so that a missing number is a missed
        message."""
        self.pressed = False
        """Whether the application reads so slowly that message bodies are refused."""
        self.is_aside = False
        """Whether the member is absent because the application has not caught up."""
        self.queued_bytes = 0
        self.queued_messages = 0
        self.busy_s = 0.0
        """Time that the application has spent on deliveries. If it is always busy, it is the bottleneck."""
        self.pieces: Final = Incoming()
        self.names: Final = MetNames()
        self._name: Final = name
        self._lifecycle: Final = lifecycle
        self._limits: Final = limits
        self._figures: Final = figures
        self._watch: Final = watch
        self._now_ns: Final = machine.now_ns
        self._stability = StabilityWaits()
        self._deliveries = DeliveryWaits()
        self._next_position = 0
        self._notify: Final = notify
        self._journal: Final = journal
        self._gaps: Final = Gaps() if counts_all else None
        self._restarts: Final = Restarts()
        self._member: Member | None = None
        self._queue: deque[Batch | Happening] = deque()
        self._events = 0
        """Number of queued items that are not batches."""
        self._news = asyncio.Event()
        self._function: Callable[[Batch], None] | None = None
        """The application's function, called with each batch, if it gave one."""
        self._raised: BaseException | None = None
        self._stepping_aside: asyncio.TimerHandle | None = None

    def open(self, member: Member) -> None:
        """Connect the member, which may go absent while the application is slow."""
        self._member = member

    def begin_spell(self, stability: StabilityWaits, deliveries: DeliveryWaits) -> None:
        """Later deliveries belong to another presence spell."""
        self._stability, self._deliveries = stability, deliveries

    def close(self) -> None:
        """The membership is over. Earlier deliveries can still be read."""
        if self._stepping_aside is not None:
            self._stepping_aside.cancel()
        self._news.set()

    # Reading

    async def batches(self) -> AsyncIterator[Batch]:
        async for item in self.items():
            if isinstance(item, Batch):
                yield item

    async def items(self) -> AsyncIterator[Batch | Happening]:
        """Yields batches and events, in one order."""
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
        """Call the application's function with everything queued; without a function, wake the reader.

        Returns whether the application has had everything. If the function raises, `for_each` raises the
        exception, and the rest stays queued.
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
        except (Exception, asyncio.CancelledError, GeneratorExit) as error:
            # Only what ends the whole process passes: the member is in the middle of a step.
            self._function = None
            self._raised = error
            self._news.set()
            return False
        finally:
            self.busy_s += to_seconds(self._now_ns()) - begin_s
        return True

    def wake(self) -> None:
        """Wake the reader if something is queued."""
        if self._queue:
            self._news.set()

    def _next(self) -> Batch | Happening:
        item = self._queue.popleft()
        if not isinstance(item, Batch):
            self._events -= 1
            return item
        self.queued_bytes -= weight(item)
        self.queued_messages -= len(item.numbers)
        if self.pressed:
            self._relax()
        return item

    def _is_over(self) -> bool:
        """Whether nothing more will come. Raises the error if something other than the application ended
        it."""
        if self._lifecycle.error is not None:
            raise self._lifecycle.error
        return self._lifecycle.is_out

    async def _wait_for_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    # Events

    def happened(self, event: Happening) -> None:
        """Put an event in its place: behind everything delivered so far."""
        queue = self._queue
        last = queue[-1] if queue else None
        if isinstance(event, Missed) and isinstance(last, CutOff):
            queue[-1] = event  # the cut-off is unread, and by now it is over
        elif self._events < MOST_EVENTS:
            queue.append(event)
            self._events += 1
        else:
            self._leave_out(event, last)
        self._news.set()

    def _leave_out(self, event: Happening, last: Batch | Happening | None) -> None:
        """Too many events wait: count this one in its place. A batch lies between two counts: they are
        bounded."""
        missed = isinstance(event, Missed | CutOff)
        if isinstance(last, Unread):
            self._queue[-1] = Unread(last.count + 1, last.missed or missed)
        else:
            self._queue.append(Unread(1, missed))
            self._events += 1

    def met(self, site: Site, boot: int) -> None:
        """A process was let in under its name."""
        if self._restarts.met(site, boot):
            self._notify(Restarted(site))

    # Deliveries

    def passed(self, effect: fx.Deliver, count: int) -> None:
        """Look for gaps and restarts in the numbers of messages, whether these are for this member or not."""
        sender, incarnation = effect.sender, effect.incarnation
        if sender != self._name and self._restarts.delivered(sender, incarnation):
            self._notify(Restarted(sender))
        if self._gaps is not None:
            missing = self._gaps.before(sender, incarnation, effect.number, count)
            if missing is not None:
                self._notify(Missed(sender, *missing, reason=SKIPPED))

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
                self._notify(Missed(reason="A long message was given up: a piece of it was missed."))
            if whole is None:
                return
            first, bodies = whole
        to = effect.destinations if bodies.addresses is None else bodies.addresses.each()
        positions = None if position is None else range(position, position + count)
        numbers, fate = range(number, number + count), self._stability
        self._put(
            Batch(
                sender, numbers, bodies, bodies.size, fate, to, effect.group, effect.incarnation,
                positions=positions, first=first,
            ),
            to,
        )  # fmt: skip

    def _position(self, place: int | None, count: int) -> int | None:
        """The position of a batch's first message, from its place in the order; None without one order.

        Positions never go back here, even if the member switches to another order that is less far.
        """
        if place is None:
            return None
        position = max(place << POSITION_BITS, self._next_position)
        self._next_position = position + count
        return position

    def _deliver_some(
        self, effect: fx.Deliver, bodies: Packed, places: Sequence[int], position: int | None
    ) -> None:
        """Deliver those messages of a batch that are for this member."""
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
                effect.sender, numbers, chosen, size, self._stability, to, effect.group,
                effect.incarnation, positions=positions,
            ),
            to,
        )  # fmt: skip

    def _put(self, batch: Batch, to: Destinations | Sequence[Destinations]) -> None:
        self.names.read(batch.sender, to)
        self._queue.append(batch)
        self.queued_bytes += weight(batch)
        self.queued_messages += len(batch.numbers)
        if self.queued_bytes > self._limits.queue_bytes and not self.pressed:
            self._press()

    def has_room(self) -> bool:
        return self.queued_bytes < HUNGRY * self._limits.queue_bytes

    # A slow application

    def _press(self) -> None:
        """The queue is full: slow the group down, and go absent if that lasts."""
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
        if self.is_aside and self._member is not None and not self._lifecycle.is_out:
            self.is_aside = False
            self._member.come_back()


def weight(batch: Batch) -> int:
    """Bytes that a queued batch counts for."""
    return batch.size + MESSAGE_BYTES * len(batch.numbers) + BATCH_BYTES
