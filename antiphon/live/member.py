"""The live driver: it drives a protocol object with sockets and clocks, as the simulator's world does.

A step takes an input (a datagram, a timer, the application's batch), calls the protocol, sends the datagrams
and then writes the trace. The application reads after that or meanwhile. So everything that led to a delivery
was sent before the delivery is logged: the log of a killed member holds nothing that the other members cannot
know. Only the application's own messages are logged before their datagrams leave, since a number must never
be used twice.

A protocol that raises at a peer's PDU or at a timer may be half changed. The member replaces it by one with
an empty memory under a later incarnation, as after a crash. That is an absence, which the application gets as
an event. Only the application's own mistakes, and a trace that cannot be written, end a member.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final
from typing import Protocol as Interface

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.inputs import (
    Admit,
    Departed,
    HasRoom,
    Input,
    JoinGroup,
    LeaveGroup,
    Recalled,
    Received,
    Returned,
    Start,
    TimerFired,
)
from antiphon.core.packing import Destinations, Packed, consecutive, pack
from antiphon.core.protocol import LiveProtocol, PeerReport
from antiphon.core.time import MILLISECOND_NS, NEVER_NS, SECOND_NS, Nanoseconds
from antiphon.live.counters import Counters
from antiphon.live.history import HistoryLog, Recaller
from antiphon.live.machine import REAL, Machine
from antiphon.live.poison import POISON, PoisonRing
from antiphon.live.timers import Timers
from antiphon.live.transport import Arrival, Transport
from antiphon.trace.segments import SegmentRecorder

PDUS_AT_ONCE: Final = 64
"""PDUs received before the trace is written. Raising it costs latency under load."""
PAUSE_NS: Final = MILLISECOND_NS // 2
"""Datagrams further apart than this count as single: the member then reads one per wake-up."""
TICK_NS: Final = 5 * MILLISECOND_NS
"""Interval of the transport's housekeeping while something is unfinished. Raising it costs repair latency."""
IDLE_TICK_NS: Final = 20 * TICK_NS
"""The same while nothing is unfinished. Raising it only delays looking up the names of peers again."""
FIRST_PAUSE_NS: Final = 10 * MILLISECOND_NS
"""Pause before the next restart of a protocol that failed recently. It doubles with each fault."""
LONGEST_PAUSE_NS: Final = SECOND_NS
CALM_NS: Final = 10 * SECOND_NS
"""After this time without a fault the next restart is immediate."""


BATCH_NS: Final = 10 * MILLISECOND_NS
"""Time that one batch may take to leave. Raising it costs latency; lowering it costs throughput."""
LEAST_BATCH_BYTES: Final = 1_200
MISUSES: Final = (Start, Admit, JoinGroup, LeaveGroup)
"""Inputs whose failure can only be the fault of this member's application, or of its build."""


class Reader(Interface):
    """The queue between the member and the application; `Inbox` implements it."""

    pressed: bool
    """Whether the application reads too slowly, so that message bodies are refused."""

    def delivered(self, effect: fx.Deliver, bodies: Packed, places: Sequence[int] | None) -> None:
        """`bodies` are the effect's, packed. `places` are the indices of those for this member; None means
        all."""

    def passed(self, effect: fx.Deliver, count: int) -> None:
        """`count` messages are delivered, none of them for this member."""

    def hand_out(self) -> bool:
        """Hand deliveries to the application. Returns whether it has had all of them."""

    def wake(self) -> None:
        """Let the application read later: the caller may be the application itself."""

    def has_room(self) -> bool:
        """Whether history may continue: the application has read most of what it was given."""


class Listener(Interface):
    """The application's side of a member; `GroupListener` implements it."""

    def admitted(self, effect: fx.Admitted) -> None: ...
    def stable(self, effect: fx.Stable) -> None: ...
    def reached(self, effect: fx.Reached) -> None: ...
    def unstable(self, effect: fx.Unstable) -> None: ...
    def noted(self, effect: fx.Absent | fx.Present | fx.Appeared | fx.Vanished | fx.CaughtUp) -> None: ...
    def doubted(self, effect: fx.Doubt) -> None: ...
    def grouped(self, effect: fx.Joined | fx.Left) -> None:
        """This member has joined or left one of several groups."""

    def history_failed(self, reason: str) -> None:
        """The log of deliveries cannot be kept any longer."""

    def begun_anew(self, reason: str) -> None:
        """The protocol has an empty memory and needs its settings again."""

    def stepped(self) -> None:
        """A step of work is done: a batch that was refused may be taken now."""

    def failed(self, error: BaseException) -> None:
        """The member cannot continue."""


class Member:
    """One member of a live group, below its application: the driver of a protocol.

    Above it are the `Outbox`, which calls `admit`, the `Inbox` (its `reader`), which takes deliveries, and
    the `GroupListener` (its `listener`), which gets all other effects. Below it is the `Transport`, which
    sends and receives its PDUs. The trace recorder and the history log stand beside it.
    """

    def __init__(
        self,
        *,
        site: Site,
        group: Group,
        build: Callable[[bool], LiveProtocol],
        transport: Transport,
        recorder: SegmentRecorder | None,
        reader: Reader,
        listener: Listener,
        counters: Counters,
        poison: PoisonRing,
        history: HistoryLog | None = None,
        machine: Machine = REAL,
    ) -> None:
        """`build` makes a protocol with an empty memory; its argument is whether one has failed before."""
        self.steps = 0
        self.refused_bodies = 0
        """PDUs with bodies that were refused because the application reads too slowly."""
        self._site = site
        self._group = group
        self._build = build
        self._protocol = build(False)
        self._handle = self._protocol.handle
        self._counters = counters
        self._poison = poison
        self._start: Start | None = None
        """The input with which this member last started."""
        self._next_number = 0
        self._present = False
        self._has_been_present = False
        self._begun_anew_ns: Nanoseconds = -CALM_NS
        self._pause_ns: Nanoseconds = 0
        self._transport = transport
        self._recorder = recorder
        self._reader = reader
        self._listener = listener
        self._history = history
        self._recaller = None if history is None else Recaller(history, self._recalled)
        self._history_failed = False
        self._wants_room = False
        self._loop = machine.loop()
        self._now_ns = machine.now_ns
        self._wall_clock_ns = machine.wall_ns
        self._timers = Timers()
        self._wake: asyncio.TimerHandle | None = None
        self._wake_ns: Nanoseconds = NEVER_NS
        self._tick_ns: Nanoseconds = 0
        self._read_ns: Nanoseconds = 0
        self._arrived_last = 0
        self._outgoing: list[fx.Send | fx.Multicast] = []
        self._leaving: list[tuple[int, str]] = []
        """Counters of PDUs that have not left yet, and the timers that fire then."""
        self._letting_go = False
        self._rejected = False
        self._awaits_clear = False
        """Whether a batch was refused because the network must first get what was sent before."""
        self._handed_in: Packed | None = None
        """The batch that was handed in last: the one being admitted."""
        self._refused = False
        """Whether the last PDU was refused, so that the next one follows a loss."""
        self._running = False
        self._finishing = False
        self._away = True
        self._wall_ns: Nanoseconds = 0

    # Calls of the group

    def listen(self) -> None:
        """Start to receive, so that members learn each other's addresses before the protocol starts."""
        self._running = True
        for place, number in enumerate(self._transport.filenos()):
            self._loop.add_reader(number, self._receive, place)
        self._transport.tick(self._now_ns())
        self._schedule()

    def start(self, event: Start) -> None:
        """Start the protocol."""
        self._away = False
        self._start = event
        self._next_number = event.next_number
        self._step(event)

    @property
    def incarnation(self) -> int:
        """This member's own incarnation; 0 before it starts."""
        return 0 if self._start is None else self._start.incarnation

    def incarnation_of(self, site: Site) -> int:
        """The latest incarnation of a site that the protocol knows; 0 if there is none."""
        return 0 if self._start is None else self._protocol.incarnation_of(site)

    def peers(self) -> Mapping[Site, PeerReport]:
        """What the protocol knows about its peers now."""
        return self._protocol.peers(self._now_ns()) if self._start is not None else {}

    def outlive(self, incarnation: int) -> None:
        """The others know a later incarnation of this member's name: restart the protocol above it."""
        if self._running and self._start is not None and self._start.incarnation <= incarnation:
            self._begin_anew("The others know a later incarnation of its name.", incarnation + 1)

    def admit(self, bodies: Packed, destinations: Destinations = None, group: Group | None = None) -> bool:
        """Hand a batch to the protocol. Returns whether it was taken."""
        if not self._transport.is_clear():
            self._awaits_clear = True
            self._schedule()
            return False
        self._rejected = self._awaits_clear = False
        self._handed_in = bodies
        self._step(Admit(bodies, destinations, group))
        return not self._rejected

    def batch_bytes(self, most: int) -> int:
        """The batch size, at most `most`: on a slow link a batch must not delay the others for long."""
        rate = self._transport.rate_bytes_s
        if rate is None:
            return most
        return min(most, max(LEAST_BATCH_BYTES, int(rate * BATCH_NS / SECOND_NS)))

    def change(self, event: JoinGroup | LeaveGroup) -> None:
        """Join or leave one of several groups."""
        self._step(event)

    def depart(self, *, for_good: bool = False) -> None:
        """Go absent: receive nothing until `come_back`, or ever again."""
        if self._running and not self._away:
            self._step(Departed(for_good))
            self._away = True
            self._wants_room = False
            self._timers.clear()
            self._leaving.clear()

    def come_back(self) -> None:
        if self._running and self._away:
            self._away = False
            self._step(Returned())

    def stop(self) -> None:
        """Stop receiving and sending."""
        if not self._running:
            return
        self._running = False
        if self._recaller is not None:
            self._recaller.forget()
        for number in self._transport.filenos():
            self._loop.remove_reader(number)
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    def figures(self) -> dict[str, int]:
        """The driver's and the protocol's counters."""
        told = getattr(self._protocol, "figures", None)
        recalls = {} if self._recaller is None else {"recalls_dropped": self._recaller.dropped}
        counts = {"steps": self.steps, "refused_bodies": self.refused_bodies}
        return {**counts, **recalls, **(told() if told else {})}

    # Steps

    def _at_once(self, now: Nanoseconds) -> int:
        """How many PDUs to read.

        When datagrams come singly, looking for a second one costs as much as reading it. So only one is read;
        the event loop calls again at once if there are more.
        """
        one_by_one = self._arrived_last <= 1 and now - self._read_ns > PAUSE_NS
        self._read_ns = now
        return 1 if one_by_one else PDUS_AT_ONCE

    def _receive(self, place: int) -> None:
        """Read one socket."""
        try:
            read_ns = self._now_ns()
            arrivals = self._transport.receive(self._at_once(read_ns), place=place, now=read_ns)
            self._arrived_last = len(arrivals)
            if self._away:
                arrivals = []
            elif self._reader.pressed or self._refused:
                arrivals = self._with_room_for(arrivals)
            if arrivals:
                self._wall_ns = self._wall_clock_ns()
                for sender, pdu, after_loss in arrivals:
                    if self._away:
                        break
                    # A fresh time for each: the process may be stopped between two, and the protocol must
                    # notice.
                    self._carry_out(self._now_ns(), Received(sender, pdu, after_loss))
                self._let_go()
            if self._reader.hand_out():
                self._finish_receiving()
            elif not self._finishing:
                # The application, which the delivery woke, runs before the files are written.
                self._finishing = True
                self._loop.call_soon(self._finish_receiving)
        except Exception as error:
            self._fail(error)

    def _finish_receiving(self) -> None:
        self._finishing = False
        if self._running:
            try:
                self._finish()
            except Exception as error:
                self._fail(error)

    def _with_room_for(self, arrivals: list[Arrival]) -> list[Arrival]:
        """Refuse bodies while the reader is slow. The protocol sees a refusal as a loss before the next
        PDU."""
        taken: list[Arrival] = []
        for sender, pdu, after_loss in arrivals:
            if self._reader.pressed and getattr(pdu, "bodies", None) is not None:
                self.refused_bodies += 1
                self._refused = True
            else:
                taken.append((sender, pdu, after_loss or self._refused))
                self._refused = False
        return taken

    def _step(self, event: Input) -> None:
        if not self._running:
            return
        try:
            self._wall_ns = self._wall_clock_ns()
            self._carry_out(self._now_ns(), event)
            self._flush()
            self._reader.wake()
        except UsageError:
            raise  # the caller's mistake has changed nothing
        except Exception as error:
            self._fail(error)

    def _awake(self) -> None:
        """Fire the timers that are due."""
        self._wake = None
        self._wake_ns = NEVER_NS
        try:
            now = self._now_ns()
            self._wall_ns = self._wall_clock_ns()
            self._transport.pace(now)
            while (name := self._timers.due(now)) is not None:
                self._carry_out(self._now_ns(), TimerFired(name))
            if now >= self._tick_ns:
                self._tick_ns = now + TICK_NS
                self._tick(now)
                self._look_for_room()
            self._finish()
            self._reader.hand_out()
        except Exception as error:
            self._fail(error)

    def _tick(self, now: Nanoseconds) -> None:
        """Run the transport's housekeeping. A fault there is counted and does not end the member."""
        try:
            self._transport.tick(now)
        except Exception as error:
            self._counters.drop(POISON)
            self._poison.keep(self._site, "tick", error)

    def _finish(self) -> None:
        self._flush()
        self._listener.stepped()

    def _flush(self) -> None:
        """Send the datagrams, write the trace and schedule the next wake-up."""
        self.steps += 1
        self._let_go()
        if self._recorder is not None:
            self._recorder.flush()
        self._schedule()

    def _let_go(self) -> None:
        """Send the collected PDUs, and those that the protocol sends because they have left."""
        if self._letting_go:
            return
        self._letting_go = True
        try:
            self._send_outgoing()
            while self._leaving and self._fire_left():
                self._send_outgoing()
        finally:
            self._letting_go = False

    def _send_outgoing(self) -> None:
        """Send the collected PDUs; a late-join handler has logged by then what it acknowledges."""
        if self._history is not None:
            self._write_history(self._history)
        if self._outgoing:
            outgoing, self._outgoing = self._outgoing, []
            transport = self._transport
            for effect in outgoing:
                if type(effect) is fx.Send:
                    transport.send(effect.to, effect.pdu)
                else:
                    assert type(effect) is fx.Multicast
                    counter = transport.multicast(effect.pdu, effect.to, effect.hops)
                    if effect.left is not None:
                        self._leaving.append((counter, effect.left))

    def _fire_left(self) -> bool:
        """Fire the timers of PDUs that have left. Returns whether there were any."""
        is_waiting = self._transport.is_waiting
        left = [name for counter, name in self._leaving if not is_waiting(counter)]
        self._leaving = [each for each in self._leaving if is_waiting(each[0])]
        for name in left:
            if not self._away:
                self._carry_out(self._now_ns(), TimerFired(name))
        return bool(left)

    def _schedule(self) -> None:
        """Schedule one wake-up for the earliest timer or the transport's next housekeeping."""
        now = self._now_ns()
        is_idle = not (self._wants_room or self._transport.is_unfinished)
        next_ns = min(self._timers.next_ns(), now + (IDLE_TICK_NS if is_idle else TICK_NS))
        if self._awaits_clear or self._transport.has_queue:
            next_ns = min(next_ns, self._transport.clear_ns(now))
        if not self._running or (self._wake is not None and self._wake_ns <= next_ns):
            return
        if self._wake is not None:
            self._wake.cancel()
        self._wake_ns = next_ns
        self._wake = self._loop.call_later(max(0, next_ns - now) / SECOND_NS, self._awake)

    def _fail(self, error: BaseException) -> None:
        self.stop()
        self._outgoing.clear()
        self._listener.failed(error)

    # Effects

    def _carry_out(self, now: Nanoseconds, event: Input) -> None:
        try:
            effects = self._handle(now, event)
        except Exception as error:
            if isinstance(event, MISUSES):
                raise
            self._survive(event, error)
            return
        for effect in effects:
            self._apply[type(effect)](self, now, effect)
        # Sent at once: at the next event the protocol may rely on it. With a history log, which is written
        # first, a whole step is sent together.
        if self._outgoing and self._history is None:
            self._let_go()

    # Faults

    def _survive(self, event: Input, error: Exception) -> None:
        """The protocol failed at an input that is not the application's fault: drop it and restart."""
        self._counters.lose(POISON)
        if isinstance(event, Received):
            data = self._transport.encoded(event.pdu)
            self._poison.keep(event.sender, type(event.pdu).__name__, error, data)
        else:
            self._poison.keep(self._site, type(event).__name__, error)
        now = self._now_ns()
        calm = now - self._begun_anew_ns >= CALM_NS
        self._pause_ns = 0 if calm else min(LONGEST_PAUSE_NS, max(FIRST_PAUSE_NS, 2 * self._pause_ns))
        self._give_up_memory(now)
        reason = f"A fault: {type(error).__name__} at a {type(event).__name__}; see Group.poison."
        self._loop.call_later(self._pause_ns / SECOND_NS, self._begin_anew, reason)

    def _give_up_memory(self, now: Nanoseconds) -> None:
        """Go absent, without asking the protocol."""
        self._away = True
        self._wants_room = False
        self._timers.clear()
        self._outgoing.clear()
        self._leaving.clear()
        if self._present:
            self._note(now, fx.Absent())

    def _begin_anew(self, reason: str, incarnation: int = 0) -> None:
        """Restart the protocol with an empty memory, under a later incarnation."""
        if not self._running or self._start is None:
            return
        now = self._now_ns()
        self._give_up_memory(now)
        self._begun_anew_ns = now
        self._protocol = self._build(True)
        self._handle = self._protocol.handle
        returning = self._start.returning or self._has_been_present
        later = max(self._start.incarnation + 1, incarnation)
        self._away = False
        self._start = Start(later, self._next_number, returning)
        self._step(self._start)
        self._listener.begun_anew(reason)

    def _send(self, _now: Nanoseconds, effect: fx.Send | fx.Multicast) -> None:
        self._outgoing.append(effect)

    def _set_timer(self, now: Nanoseconds, effect: fx.SetTimer) -> None:
        self._timers.set(effect.name, now + effect.after_ns)

    def _cancel_timer(self, _now: Nanoseconds, effect: fx.CancelTimer) -> None:
        self._timers.cancel(effect.name)

    def _reject(self, _now: Nanoseconds, _effect: fx.Rejected) -> None:
        self._rejected = True

    def _admitted(self, _now: Nanoseconds, effect: fx.Admitted) -> None:
        self._next_number = effect.number + effect.count
        if self._recorder is not None:
            bodies = self._handed_in
            if bodies is not None and bodies.addresses is not None:
                self._record_addressed(effect, bodies)
            else:
                self._record_send(effect.number, effect.count, effect.size, effect.destinations, effect.group)
            self._recorder.flush()
        self._listener.admitted(effect)

    def _record_addressed(self, effect: fx.Admitted, bodies: Packed) -> None:
        """Record one row for each run of messages with the same destinations."""
        offsets = bodies.offsets()
        for place, count, destinations in bodies.runs():
            size = offsets[place + count] - offsets[place]
            self._record_send(effect.number + place, count, size, destinations, effect.group)

    def _record_send(
        self, number: int, count: int, size: int, destinations: Destinations, group: Group | None
    ) -> None:
        assert self._recorder is not None
        named = None if destinations is None else sorted(destinations)
        self._recorder.record(
            self._site, "send", self._wall_ns, self._site, number, count, group or self._group, named, size
        )

    def _deliver(self, _now: Nanoseconds, effect: fx.Deliver) -> None:
        bodies = effect.bodies if type(effect.bodies) is Packed else pack(effect.bodies)
        places: Sequence[int] | None = None
        if bodies.addresses is not None:
            places = bodies.places_for(self._site)
            if not places:
                self._reader.passed(effect, bodies.messages)
                return
        if self._recorder is not None:
            if places is None:
                self._record_delivery(effect, 0, bodies.messages, bodies.size)
            else:
                offsets = bodies.offsets()
                for place, count in consecutive(places):
                    self._record_delivery(effect, place, count, offsets[place + count] - offsets[place])
        if self._history is not None:
            self._history.append(effect)
        self._reader.delivered(effect, bodies, places)

    def _record_delivery(self, effect: fx.Deliver, place: int, count: int, size: int) -> None:
        assert self._recorder is not None
        self._recorder.record(
            self._site, "deliver", self._wall_ns, effect.sender, effect.number + place, count,
            effect.group or self._group, None, size,
        )  # fmt: skip

    def _arrived(self, _now: Nanoseconds, effect: fx.Arrived) -> None:
        if self._recorder is not None:
            self._recorder.record(
                self._site, "receive", self._wall_ns, effect.sender, effect.number, effect.count,
                effect.group or self._group,
            )  # fmt: skip

    def _stable(self, _now: Nanoseconds, effect: fx.Stable) -> None:
        if self._recorder is not None:
            self._recorder.record(
                self._site, "stable", self._wall_ns, effect.sender, effect.number, effect.count,
                effect.group or self._group,
            )  # fmt: skip
        self._listener.stable(effect)

    def _reached(self, _now: Nanoseconds, effect: fx.Reached) -> None:
        if self._recorder is not None:
            self._recorder.reach(
                self._site, effect.level, self._wall_ns, effect.sender, effect.number, effect.count
            )
        self._listener.reached(effect)

    def _unstable(self, _now: Nanoseconds, effect: fx.Unstable) -> None:
        self._listener.unstable(effect)

    def _discard(self, _now: Nanoseconds, effect: fx.Discard) -> None:
        if self._recorder is not None:
            self._recorder.record(
                self._site, "discard", self._wall_ns, effect.sender, effect.number, effect.count,
                effect.group or self._group,
            )  # fmt: skip

    def _note(self, _now: Nanoseconds, effect: fx.Absent | fx.Present) -> None:
        self._present = type(effect) is fx.Present
        self._has_been_present |= self._present
        if self._recorder is not None:
            kind: Final = "absent" if type(effect) is fx.Absent else "present"
            self._recorder.record(self._site, kind, self._wall_ns)
        self._listener.noted(effect)

    def _presence(self, _now: Nanoseconds, effect: fx.Appeared | fx.Vanished | fx.CaughtUp) -> None:
        self._listener.noted(effect)

    def _doubt(self, _now: Nanoseconds, effect: fx.Doubt) -> None:
        self._listener.doubted(effect)

    def _grouped(self, _now: Nanoseconds, effect: fx.Joined | fx.Left) -> None:
        self._listener.grouped(effect)

    # History

    def _write_history(self, history: HistoryLog) -> None:
        history.flush()
        if history.failure is not None and not self._history_failed:
            self._history_failed = True
            self._listener.history_failed(history.failure)

    def _recall(self, _now: Nanoseconds, effect: fx.Recall) -> None:
        """Read the log in a thread. It holds everything that was delivered before this."""
        assert self._recaller is not None, "only a member that keeps a log is asked to read it"
        self._recaller.ask(effect)

    def _recalled(self, answer: Recalled) -> None:
        if self._running and not self._away:
            self._step(answer)

    def _await_room(self, _now: Nanoseconds, _effect: fx.AwaitRoom) -> None:
        self._wants_room = True
        self._loop.call_soon(self._look_for_room)

    def _look_for_room(self) -> None:
        if self._wants_room and self._running and not self._away and self._reader.has_room():
            self._wants_room = False
            self._step(HasRoom())

    _apply: ClassVar[dict[type, Callable[["Member", Nanoseconds, Any], None]]] = {
        fx.Send: _send,
        fx.Multicast: _send,
        fx.SetTimer: _set_timer,
        fx.CancelTimer: _cancel_timer,
        fx.Rejected: _reject,
        fx.Admitted: _admitted,
        fx.Deliver: _deliver,
        fx.Arrived: _arrived,
        fx.Stable: _stable,
        fx.Unstable: _unstable,
        fx.Reached: _reached,
        fx.Discard: _discard,
        fx.Absent: _note,
        fx.Present: _note,
        fx.Appeared: _presence,
        fx.Vanished: _presence,
        fx.CaughtUp: _presence,
        fx.Joined: _grouped,
        fx.Left: _grouped,
        fx.Disagreed: _doubt,
        fx.Forked: _doubt,
        fx.CutOff: _doubt,
        fx.Resumed: _doubt,
        fx.Unavailable: _doubt,
        fx.Recall: _recall,
        fx.AwaitRoom: _await_room,
    }
