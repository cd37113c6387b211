"""A member of a Distributed Precedence Graph group: ties order, service, reports and spells together."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from enum import Enum
from random import Random
from typing import Final, NamedTuple

from antiphon.core.effects import (
    Absent,
    Admitted,
    Appeared,
    Disagreed,
    Effect,
    Multicast,
    Present,
    Rejected,
    SetTimer,
    Vanished,
)
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit, Departed, Input, Received, Returned, Start, TimerFired
from antiphon.core.packing import Packed
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.admission import batch_to_order
from antiphon.protocols.dpg.buffers import Held
from antiphon.protocols.dpg.company import Company
from antiphon.protocols.dpg.cycles import Clock, CountClock, RateClock
from antiphon.protocols.dpg.flow import Flow
from antiphon.protocols.dpg.heartbeat import ReportHeartbeat
from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.pdus import (
    LARGEST,
    LARGEST_BATCH_BYTES,
    MOST_TAGS,
    ORIGIN,
    Arc,
    DpgConfiguration,
    Farewell,
    Message,
    Progress,
    Remulticast,
    Report,
    Request,
    Tag,
)
from antiphon.protocols.dpg.recovery import Recovery
from antiphon.protocols.dpg.reporting import (
    TAG_BYTES,
    Told,
    arcs_as_sent,
    lists_bytes,
    pack_arcs,
    pack_tags,
    read,
    true_arcs,
    unite,
    unpack_tags,
)
from antiphon.protocols.dpg.services.base import PREFIX, Service
from antiphon.protocols.dpg.spells import Listening, take_up
from antiphon.protocols.dpg.suspended import SuspendedDelivery
from antiphon.protocols.dpg.tags import Tags

IDLE_CYCLES: Final = 5
"""Report cycles between the reports of a group in which nothing happens."""
MOST_RECEIVED: Final = 4096
"""Tags that are known to have come by the channel. Raising it costs memory."""
OWN_CYCLES: Final = 4
"""Delivery cycles that the order waits at most for word of where an own message stands."""
BEHIND: Final = 2
"""Reports in a row that tell nothing we know before we hold that we have missed too much."""
GONE_SILENCES: Final = 5
"""How many of the longest silences of a present member are taken to mean that one is gone."""
FIRST_REACH: Final = 4
"""Own messages under way at first, on a channel that is shared."""
COUNT_UNITS: Final = 8
"""Messages that make up a report cycle where cycles are counted in messages."""


class State(Enum):
    """Where a member is in its spells."""

    AWAY = "away"
    LISTENING = "listening"
    PRESENT = "present"


class Batch(NamedTuple):
    """An admitted batch that waits for its turn."""

    number: int
    bodies: Packed


class Dpg:
    """Implements `antiphon.core.protocol.Protocol`, and is its service's `Channel`."""

    def __init__(
        self,
        site: Site,
        configuration: DpgConfiguration,
        service: Service,
        random: Random,
        *,
        secret: bytes = b"antiphon",
    ) -> None:
        knobs = configuration
        self.site = site
        self.random = random
        self._configuration = knobs
        self._service = service
        self._tags = Tags(secret, random)
        self._effects: list[Effect] = []
        self._order = Order(knobs, self._effects.append)
        self._clock: Clock = (
            RateClock()
            if knobs.cycles == "clock"
            else CountClock(knobs.report_cycle_ns // COUNT_UNITS, IDLE_CYCLES * knobs.report_cycle_ns)
        )
        self._flow = Flow(
            knobs.message_cycle_ns, knobs.delta_ns, knobs.fc_cycle_ns, knobs.longest_message_cycle_ns,
            4 * knobs.deliv_cycle_ns,
        )  # fmt: skip
        idle_ns = IDLE_CYCLES * knobs.report_cycle_ns
        self._heartbeat = ReportHeartbeat(knobs.report_cycle_ns, idle_ns, random)
        self._recovery = Recovery(site, knobs, random, shared=service.reports_ordered)
        self._suspended = SuspendedDelivery()
        self._silence_ns = 2 * idle_ns
        self._company = Company(knobs.lately_ns, GONE_SILENCES * self._silence_ns, knobs.lag // 4)
        self._state = State.AWAY
        self._started = False
        self._listening = Listening(knobs, 0)
        self._absent = False
        self._incarnation = 0
        self._serial = 0
        self._next_number = 0
        self._waiting: deque[Batch] = deque()
        self._unlocated: dict[Tag, tuple[Message, Nanoseconds]] = {}
        """Own messages whose place is unknown, with when they were handed over."""
        self._previous: Tag = ORIGIN
        self._latest: Tag = ORIGIN
        """L_REC: the latest message that the channel brought."""
        self._located: list[tuple[int, Tag]] = []
        """Own messages that reports have told of since then, with their numbers."""
        self._reach = float(min(knobs.window, FIRST_REACH) if service.reports_ordered else knobs.window)
        """Own messages that may be under way, on a shared channel as many as it takes without delay."""
        self._slowed_ns: Nanoseconds = 0
        self._refused = False
        """Whether there was no room for a message since, which is as good as a miss."""
        self._received: OrderedDict[Tag, None] = OrderedDict()
        self._due: dict[str, Nanoseconds] = {}
        self._handled_ns: Nanoseconds | None = None
        self._behind = 0
        self._told_index = 0
        self._spoke_ns: Nanoseconds = 0
        self._listener_ns: Nanoseconds | None = None
        self._changed = False
        self.ignored = self.collisions = self.disagreements = self.reports = 0
        service.attach(self)

    # Inputs

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        if self._handled_ns is not None and now - self._handled_ns > self._configuration.absence_ns:
            self._wake_late(now)
        self._handled_ns = now
        if type(event) is Received:
            if self._state is not State.AWAY:
                self._receive(now, event.sender, event.pdu, event.after_loss)
        else:
            self._handle_other(now, event)
        effects = self._effects[:]
        self._effects.clear()
        return effects

    def _handle_other(self, now: Nanoseconds, event: Input) -> None:
        match event:
            case TimerFired(name=name):
                self._fire(now, name)
            case Admit():
                self._admit(now, event)
            case Start():
                self._start(now, event)
            case Departed():
                self._depart(now)
            case Returned():
                if self._state is State.AWAY:
                    self._listen(now)
            case _:
                pass  # nobody's presence matters, and rounds have no meaning here

    @property
    def vertices(self) -> int:
        """How large the graph is."""
        return len(self._order.graph)

    def figures(self) -> dict[str, int]:
        """What a user may want to watch."""
        order = self._order
        return {
            "ignored": self.ignored,
            "collisions": self.collisions,
            "disagreements": self.disagreements,
            "reports": self.reports,
            "dummies": order.dummies,
            "late": order.late,
            "repeated": order.repeated,
            "committed": order.committed,
            "contradictions": order.graph.contradictions,
            "vertices": len(order.graph),
            "ordering_buffers": len(order.buffers),
            "overflows": order.buffers.overflows,
            "lost_bodies": len(order.lost),
            "copies": self._recovery.remulticasts,
            "message_cycle_ns": self._flow.own_ns,
            **self._service.figures(),
        }

    # Admission

    def _admit(self, now: Nanoseconds, event: Admit) -> None:
        bodies = batch_to_order(event, "DPG", LARGEST_BATCH_BYTES, started=self._started)
        if len(self._waiting) >= self._configuration.admission_buffers:
            self._effects.append(Rejected("As many messages as the admission buffers hold wait already."))
            return
        self._effects.append(Admitted(self._next_number, len(bodies), bodies.size))
        self._waiting.append(Batch(self._next_number, bodies))
        self._next_number += len(bodies)
        self._send_waiting(now)

    def _send_waiting(self, now: Nanoseconds) -> None:
        """Hand over what flow control allows: the pace of the slowest, and what is under way already."""
        knobs, order = self._configuration, self._order
        while self._waiting and self._state is State.PRESENT and len(order.own) < self._reach:
            ahead = order.agreement.index + len(order.own) - self._company.slowest(now, order.agreement.index)
            if ahead >= knobs.lag:
                self._wake("send", now, knobs.lately_ns // 4)
                return
            time_ns = self._clock.time(now)
            if not self._flow.ready(time_ns):
                self._wake("send", now, self._clock.until(now, time_ns + self._flow.wait_ns(time_ns)))
                return
            self._flow.sent(time_ns)
            batch = self._waiting.popleft()
            self._hand_over(now, batch.number, batch.bodies)

    def _hand_over(self, now: Nanoseconds, number: int, bodies: Packed) -> None:
        order = self._order
        tag = self._tags.choose(order.is_known)
        message = Message(
            tag, self._previous, self._latest, self._service.stamp(now), order.agreement.index,
            self._incarnation, number, bodies,
        )  # fmt: skip
        self._previous = tag
        self._told_index, self._spoke_ns = order.agreement.index, now
        order.own[tag] = Held(self.site, message)
        self._unlocated[tag] = (message, self._clock.time(now))
        self._note_change(now)
        self._heartbeat.share.message(bodies.size)
        self._service.hand_over(now, message)

    # Reception

    def _receive(self, now: Nanoseconds, sender: Site, pdu: Pdu, after_loss: bool) -> None:
        if sender == self.site:
            self._receive_own(now, pdu, after_loss)
        elif type(pdu) is Message:
            self._receive_message(now, sender, pdu, after_loss)
        elif type(pdu) is Report:
            self._receive_report(now, sender, pdu, after_loss)
        elif type(pdu) is Progress:
            self._note_progress(now, sender, pdu.index)
            self._service.receive_other(now, sender, pdu, after_loss=after_loss)
        else:
            if type(pdu) is Remulticast:
                self._receive_again(now, pdu)
            elif type(pdu) is Request:
                self._receive_request(now, sender, pdu)
            elif type(pdu) is Farewell and self._company.leave(sender):
                self._effects.append(Vanished(sender, "It left."))
            self._service.receive_other(now, sender, pdu, after_loss=after_loss)
        if self._waiting:
            self._send_waiting(now)

    def _receive_own(self, now: Nanoseconds, pdu: Pdu, after_loss: bool) -> None:
        """A message of our own passes on a channel on which we hear ourselves."""
        if type(pdu) is Message and self._service.hears_itself and pdu.tag in self._unlocated:
            self._service.receive(now, self.site, pdu, after_loss=after_loss, fresh=True)
        else:
            self.ignored += 1

    def _receive_message(self, now: Nanoseconds, sender: Site, message: Message, after_loss: bool) -> None:
        tag = message.tag
        if not self._makes_sense(message):
            self.ignored += 1
            return
        if self._company.note(now, sender, message.index, self._order.agreement.index):
            self._effects.append(Appeared(sender))
        self._clock.message(now)
        self._heartbeat.share.message(message.bodies.size)
        order = self._order
        held = order.body(tag)
        if held is not None and (held.sender != sender or held.message.number != message.number):
            self._collide(now, tag)
            return
        fresh = tag not in self._received
        if fresh:
            self._received[tag] = None
            if len(self._received) > MOST_RECEIVED:
                self._received.popitem(last=False)
        if held is None:
            self._store(now, sender, message)
            if self._service.reports_ordered:
                self._look_for_gap(now, sender, message)
        self._service.receive(now, sender, message, after_loss=after_loss, fresh=fresh)

    def _makes_sense(self, message: Message) -> bool:
        numbers = (message.previous, message.seen, message.stamp, message.index, message.incarnation)
        return (
            self._tags.is_ours(message.tag)
            and 0 <= message.number < LARGEST
            and min(numbers) >= 0
            and message.index < LARGEST
            and len(message.bodies.data) <= 2 * LARGEST_BATCH_BYTES
        )

    def _collide(self, now: Nanoseconds, tag: Tag) -> None:
        """Two messages have one tag. The first one known keeps it; ours, if it is the other, gets another."""
        self.collisions += 1
        if tag in self._unlocated:
            self._repeat(now)

    def _store(self, now: Nanoseconds, sender: Site, message: Message) -> None:
        given_up = self._order.store(sender, message)
        if given_up is not None:
            self._flow.overflowed(self._clock.time(now))
            self._heartbeat.urge(self._clock.time(now))

    def _look_for_gap(self, now: Nanoseconds, sender: Site, message: Message) -> None:
        """Something before this is not delivered: if the sender's message before it is unknown, it is lost.

        Nobody may have it, and so nobody report it.
        """
        order = self._order
        expected = order.streams.get(sender, (0, 0))
        is_beyond = expected < (message.incarnation, message.number)
        previous = message.previous
        may_be_lost = is_beyond and self._state is State.PRESENT and not order.is_known(previous)
        if may_be_lost and self._tags.is_ours(previous):
            order.add(self._clock.time(now), previous)

    def _look_for_gaps(self, now: Nanoseconds) -> None:
        """The same for all that was heard before we took part."""
        for tag in list(self._order.graph):
            held = self._order.buffers.get(tag)
            if held is not None:
                self._look_for_gap(now, held.sender, held.message)

    def _receive_again(self, now: Nanoseconds, pdu: Remulticast) -> None:
        """A remulticast body: taken if it is lacking here. It tells nothing of the channel."""
        self._recovery.heard(self._clock.time(now), pdu.tag)
        if pdu.tag not in self._order.lost:
            return
        message = Message(
            pdu.tag, pdu.previous, pdu.seen, pdu.stamp, 0, pdu.incarnation, pdu.number, pdu.bodies
        )
        if not self._makes_sense(message):
            self.ignored += 1
            return
        self._store(now, pdu.sender, message)
        if self._service.reports_ordered:
            self._look_for_gap(now, pdu.sender, message)
        self._order.connect_as_sent(pdu.tag)
        self._progress(now)

    def _receive_request(self, now: Nanoseconds, sender: Site, request: Request) -> None:
        if len(request.lost) % TAG_BYTES or len(request.lost) > TAG_BYTES * MOST_TAGS:
            self.ignored += 1
        else:  # also while listening: a body says nothing of the order
            self._was_asked(now, sender, unpack_tags(request.lost))

    def _note_progress(self, now: Nanoseconds, sender: Site, index: int) -> None:
        """Another tells how far it has come."""
        if not 0 <= index < LARGEST:
            return
        company = self._company
        if company.note(now, sender, index, self._order.agreement.index):
            self._effects.append(Appeared(sender))
        if self._state is State.PRESENT:
            self._order.settle(company.everywhere(now, self._order.agreement.index))

    # The channel, as the service calls it

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def heard(self, now: Nanoseconds, tag: Tag, *, contiguous: bool) -> None:
        order, knobs = self._order, self._configuration
        graph = order.graph
        latest, self._latest = self._latest, tag
        own = self._possibly_between()
        if tag in order.tombstones:
            return
        is_new = tag not in graph
        sinks = graph.sinks() if is_new and self._service.reports_ordered else []
        is_last = latest in sinks if sinks else latest == graph.root and len(graph) == 0
        if is_new and not order.add(self._clock.time(now), tag):
            self._latest = latest  # it is missed, as good as
            self._refused = True
            self._flow.overflowed(self._clock.time(now))
            return
        for tail in sinks or [latest]:
            if tail != tag:
                graph.connect(tail, tag)
        order.connect_as_sent(tag)
        self._note_change(now)
        refused, self._refused = self._refused, False
        if knobs.detector and contiguous and latest != tag and not refused:
            self._infer(latest, tag, own, is_last)
        self._note_located(now, tag)
        self._progress(now)

    def _possibly_between(self) -> list[Tag]:
        """Own messages that may lie between what the channel brought last and what it brings now."""
        if self._service.hears_itself:
            return []
        located, self._located = self._located, []
        waiting = [(message.number, tag) for tag, (message, _) in self._unlocated.items()]
        return [tag for _, tag in sorted((*located, *waiting))]

    def _infer(self, latest: Tag, tag: Tag, own: list[Tag], is_last: bool) -> None:
        """Nothing was missed in between, unless it was one of these messages of our own."""
        if own and self._configuration.suspended_delivery:
            self._suspended.infer(latest, tag, own)
        elif not own and is_last:
            self._order.graph.connect(latest, tag, marked=True)

    def placed(self, now: Nanoseconds, tag: Tag, arcs: Sequence[Arc]) -> None:
        order = self._order
        graph = order.graph
        self._latest = tag
        if tag not in graph and tag not in order.tombstones and not order.add(self._clock.time(now), tag):
            return
        detector = self._configuration.detector
        for tail, head, marked in arcs:
            if head in graph:
                graph.connect(tail, head, marked=marked and detector)
        self._note_change(now)
        self._note_located(now, tag)
        self._progress(now)

    def is_ours(self, tag: Tag) -> bool:
        return self._tags.is_ours(tag)

    def unlocated(self) -> tuple[Message, ...]:
        return tuple(message for message, _ in self._unlocated.values())

    def is_at_origin(self) -> bool:
        return self._order.agreement.index == 0 and len(self._order.graph) == 0

    def lately(self, now: Nanoseconds) -> frozenset[Site]:
        return self._company.lately(now)

    def _note_change(self, now: Nanoseconds) -> None:
        """There is something to report that was not there before."""
        if not self._changed:
            self._changed = True
            self._heartbeat.stir(self._clock.time(now))
            self._wake("report", now, self._clock.until(now, self._heartbeat.next_ns))

    def _note_congestion(self, time_ns: Nanoseconds, handed_ns: Nanoseconds) -> None:
        """Word of an own message has come: late, if the shared channel is full. Keep the less under way."""
        knobs = self._configuration
        if not self._service.reports_ordered:
            return
        if time_ns - handed_ns <= knobs.locate_cycle_ns:
            self._reach = min(self._reach + 1 / self._reach, knobs.window)
        elif time_ns - self._slowed_ns >= knobs.locate_cycle_ns:
            self._slowed_ns = time_ns
            self._reach = max(1.0, self._reach / 2)

    def _note_located(self, now: Nanoseconds, tag: Tag) -> None:
        handed = self._unlocated.pop(tag, None)
        if handed is not None:
            self._note_congestion(self._clock.time(now), handed[1])
            if not self._service.hears_itself:
                self._located.append((handed[0].number, tag))
            self._service.located(now, tag)

    # Progress

    def _progress(self, now: Nanoseconds) -> None:
        """Incorporate and deliver what can be, and see to the next deadline if something waits."""
        if self._state is not State.PRESENT:
            return
        order = self._order
        time_ns = self._clock.time(now)
        order.incorporate_marked(time_ns)
        if order.queue:
            order.deliver(time_ns)
        if len(order.graph) or order.queue:
            self._wait_for_rest(now, time_ns)
        if order.lost and self._recovery.has_to_ask(order, time_ns):
            self._ask_soon(now, time_ns)
        if order.agreement.index - self._told_index >= self._configuration.lag // 4:
            self._tell_progress(now)

    def _tell_progress(self, now: Nanoseconds) -> None:
        self._told_index, self._spoke_ns = self._order.agreement.index, now
        self._effects.append(Multicast(Progress(self._told_index)))

    def _wait_for_rest(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Wake up when the front has been known for Deliv_Cycle, or the queue's head for its own time."""
        order, knobs = self._order, self._configuration
        deadlines = []
        if order.queue:
            deadlines.append(order.queue[0].since_ns + knobs.dummy_cycle_ns)
        if len(order.graph):
            deadlines.append(self._commit_ns())
        self._wake("deliver", now, self._clock.until(now, max(time_ns + 1, min(deadlines))))

    def _commit_ns(self) -> Nanoseconds:
        """When the front may be ordered by tag: not while an own message may belong before it."""
        knobs, graph = self._configuration, self._order.graph
        since_ns = max(map(graph.since, graph.front()))
        deadline_ns = since_ns + knobs.deliv_cycle_ns
        if self._unlocated:
            handed_ns = min(handed_ns for _, handed_ns in self._unlocated.values())
            if handed_ns <= since_ns:
                deadline_ns = max(deadline_ns, handed_ns + OWN_CYCLES * knobs.deliv_cycle_ns)
        return deadline_ns

    def _fire(self, now: Nanoseconds, name: str) -> None:
        self._due.pop(name, None)
        if self._state is State.AWAY:
            return
        if name.startswith(PREFIX):
            self._service.fire(now, name)
        elif name == "report":
            self._look_after(now)
        elif name == "deliver":
            self._commit(now)
        elif name == "answer":
            self._answer(now)
        elif name == "ask":
            self._ask(now)
        self._send_waiting(now)

    def _commit(self, now: Nanoseconds) -> None:
        order = self._order
        time_ns = self._clock.time(now)
        while self._state is State.PRESENT and len(order.graph) and self._commit_ns() <= time_ns:
            order.commit(time_ns)
            order.incorporate_marked(time_ns)
            self._changed = True
        self._progress(now)

    def _ask_soon(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Not at once, since others may lack the same, and one of them be quicker."""
        wait_ns = round(self._configuration.report_cycle_ns * self.random.random())
        self._wake("ask", now, self._clock.until(now, time_ns + wait_ns))

    def _ask(self, now: Nanoseconds) -> None:
        wanted = self._recovery.wanted(self._order, self._clock.time(now))
        if wanted:
            self._effects.append(Multicast(Request(pack_tags(wanted))))

    def _was_asked(self, now: Nanoseconds, sender: Site, lost: tuple[Tag, ...]) -> None:
        time_ns = self._clock.time(now)
        if self._recovery.asked(self._order, time_ns, sender, lost, self.lately(now)):
            self._answer(now)
        if self._recovery.has_gone():
            self._heartbeat.urge(time_ns)
            self._wake("report", now, self._clock.until(now, self._heartbeat.next_ns))

    def _answer(self, now: Nanoseconds) -> None:
        effects, next_ns = self._recovery.answer(self._order, self._clock.time(now))
        self._effects += effects
        if next_ns is not None:
            self._wake("answer", now, self._clock.until(now, next_ns))

    def _wake(self, name: str, now: Nanoseconds, pause_ns: Nanoseconds) -> None:
        """A timer no later than this; one that is set for earlier stays."""
        due_ns = now + max(1, pause_ns)
        known_ns = self._due.get(name)
        if known_ns is None or due_ns < known_ns:
            self._due[name] = due_ns
            self._effects.append(SetTimer(name, max(1, pause_ns)))

    # Reports

    def _look_after(self, now: Nanoseconds) -> None:
        """The report timer: report if it is our turn, and see to all that has become old."""
        time_ns = self._clock.time(now)
        if self._state is State.LISTENING and self._listening.is_alone(now):
            self._begin_alone(now)
        self._flow.tick(time_ns)
        self._order.kept.expire(time_ns)
        for site in self._company.look(now):
            self._effects.append(Vanished(site, "It has been silent for too long."))
        if self._state is State.PRESENT:
            self._order.settle(self._company.everywhere(now, self._order.agreement.index))
            self._locate_alone(now, time_ns)
            if self._recovery.has_to_ask(self._order, time_ns):
                self._ask_soon(now, time_ns)
        if self._heartbeat.due(time_ns):
            self._report(now, time_ns)
        elif self._state is State.PRESENT and now - self._spoke_ns >= self._silence_ns:
            self._tell_progress(now)
        self._wake("report", now, self._clock.until(now, self._heartbeat.next_ns))

    def _report(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        order, knobs = self._order, self._configuration
        self.reports += 1
        self._serial += 1
        agreed, links = order.agreement.recent(knobs.history)
        wanted = self._recovery.wanted(order, time_ns)
        listened = self._listener_ns is not None and now - self._listener_ns < knobs.listen_ns
        is_listening = self._state is State.LISTENING
        own = [] if is_listening else self._overdue(time_ns)
        vertices = (*(message.tag for message in own), *order.graph)
        arcs = (*(arc for message in own for arc in arcs_as_sent(message)), *true_arcs(order))
        report = Report(
            self._incarnation, self._serial, now, order.agreement.index, order.agreement.digest,
            agreed, links, pack_tags(vertices), pack_arcs(arcs), pack_tags(wanted),
            self._flow.own_ns, is_listening, dict(order.streams) if listened else {},
            self._service.note(now), pack_tags(self._recovery.gone()),
        )  # fmt: skip
        self._effects.append(Multicast(report))
        self._heartbeat.share.report(time_ns, lists_bytes(report))
        self._told_index, self._spoke_ns = order.agreement.index, now
        busy = self._changed or is_listening or bool(order.lost) or bool(len(order.graph) or self._unlocated)
        self._changed = False
        self._heartbeat.reported(time_ns, busy=busy)

    def _receive_report(self, now: Nanoseconds, sender: Site, report: Report, after_loss: bool) -> None:
        told = read(report)
        numbers = (report.index, report.digest, report.demand_ns, report.clock_ns, report.incarnation)
        if told is None or min(numbers) < 0 or max(report.index, report.incarnation) >= LARGEST:
            self.ignored += 1
            return
        time_ns = self._clock.time(now)
        self._clock.heard(now, sender, report.clock_ns)
        self._flow.heard(time_ns, sender, report.demand_ns)
        self._heartbeat.share.report(time_ns, lists_bytes(report))
        self._service.receive_report(now, sender, report, after_loss=after_loss)
        if report.listening:
            self._order.agreement.forget(sender)
            self._welcome(now, time_ns)
        elif self._state is State.LISTENING:
            self._was_asked(now, sender, told.lost)
            self._listen_to(now, sender, report, told)
        else:
            self._note_progress(now, sender, report.index)
            self._learn(now, sender, report, told)

    def _learn(self, now: Nanoseconds, sender: Site, report: Report, told: Told) -> None:
        order = self._order
        time_ns = self._clock.time(now)
        learned = unite(order, time_ns, report.index, told)
        self._behind = self._behind + 1 if learned.behind else 0
        if self._behind >= BEHIND or self._is_too_late_for(told.gone):
            self._fall_out(now)
            return
        for tag in told.vertices:
            order.kept.touch(time_ns, tag)
        for tag in [tag for tag in self._unlocated if order.is_known(tag)]:
            self._note_located(now, tag)
        if learned.news and len(self._suspended):
            self._suspended.resolve(order)
        if told.lost:
            self._was_asked(now, sender, told.lost)
        self._compare(sender, report, told)
        waive = learned.lacking or self._recovery.has_gone()
        self._heartbeat.heard(time_ns, waive=waive, busy=self._changed or len(order.graph) > 0)
        self._wake("report", now, self._clock.until(now, self._heartbeat.next_ns))
        self._progress(now)

    def _is_too_late_for(self, gone: tuple[Tag, ...]) -> bool:
        """Whether what we wait for was delivered by others and is kept no more: nobody waits for us."""
        queue = self._order.queue
        return bool(gone) and bool(queue) and queue[0].tag in gone and queue[0].tag in self._order.lost

    def _compare(self, sender: Site, report: Report, told: Told) -> None:
        """Whether the other's order is ours."""
        found = self._order.agreement.compare(sender, report.index, report.digest, told.agreed)
        if found is not None:
            self.disagreements += 1
            names = self._order.names
            name = names.get(found.mine or ORIGIN) or names.get(found.theirs or ORIGIN) or (None, None)
            self._effects.append(Disagreed(sender, found.reason, *name))

    def _overdue(self, time_ns: Nanoseconds) -> list[Message]:
        """Own messages that should have been reported by now, in order; nobody may have received them."""
        if not self._unlocated or self._service.hears_itself:
            return []
        since_ns = time_ns - self._configuration.locate_cycle_ns
        overdue = [message for message, handed_ns in self._unlocated.values() if handed_ns <= since_ns]
        return sorted(overdue, key=lambda message: message.number)

    def _locate_alone(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Where there is nobody else, what we vouch for ourselves has to do."""
        if self._company.known():
            return
        for message in self._overdue(time_ns):
            if self._order.add(time_ns, message.tag):
                self._order.connect_as_sent(message.tag)
                self._note_located(now, message.tag)
        self._progress(now)

    def _repeat(self, now: Nanoseconds) -> None:
        """Hand own messages without a place over anew."""
        for message in sorted(self.unlocated(), key=lambda message: message.number):
            del self._unlocated[message.tag]
            del self._order.own[message.tag]
            self._hand_over(now, message.number, message.bodies)

    # Presence

    def _start(self, now: Nanoseconds, event: Start) -> None:
        if self._started:
            raise UsageError("This member has started already.")
        self._started = True
        self._incarnation = event.incarnation
        self._next_number = event.next_number
        if event.incarnation:
            self._absent = event.returning
            self._listen(now)
            return
        self._state = State.PRESENT
        self._begin_service(now)
        self._service.take_part(now)

    def _begin_service(self, now: Nanoseconds) -> None:
        self._service.start(now, self._incarnation)
        self._heartbeat.begin(self._clock.time(now))
        self._wake("report", now, self._clock.until(now, self._heartbeat.next_ns))

    def _listen(self, now: Nanoseconds) -> None:
        """Begin to listen; timers of the time before are gone or mean nothing."""
        self._state = State.LISTENING
        self._due.clear()
        self._listening = Listening(self._configuration, now)
        self._order.forget_graph()
        self._suspended.forget()
        self._recovery.forget()
        self._received.clear()
        self._located.clear()
        self._behind = 0
        self._begin_service(now)
        self._heartbeat.urge(self._clock.time(now))
        self._wake("report", now, self._clock.until(now, self._heartbeat.next_ns))

    def _welcome(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Someone listens before it takes part: it wants reports soon, with what it must know."""
        self._listener_ns = now
        if self._state is State.PRESENT:
            self._heartbeat.urge(time_ns)
            self._wake("report", now, self._clock.until(now, self._heartbeat.next_ns))

    def _listen_to(self, now: Nanoseconds, sender: Site, report: Report, told: Told) -> None:
        order = self._order
        if not self._listening.hear(order, now, report, told):
            return
        self._compare(sender, report, told)
        missed = report.index > order.agreement.index
        take_up(order, self._clock.time(now), report, told)
        unite(order, self._clock.time(now), report.index, told)
        if missed:
            self._be_absent()
        self._take_part(now, frozenset(told.agreed))

    def _renew_own(self, now: Nanoseconds, agreed: frozenset[Tag]) -> None:
        """What we had handed over before: delivered without us, known, or to be handed over anew.

        What the others have agreed on may still be asked for, although it lies before our spell.
        """
        order = self._order
        expected = order.streams.get(self.site, (0, 0))
        self._previous = ORIGIN
        for tag, held in list(order.own.items()):
            if tag in agreed or (held.message.incarnation, held.message.number) < expected:
                order.kept.keep(self._clock.time(now), tag, order.own.pop(tag))
                self._unlocated.pop(tag, None)
            elif tag in order.graph:
                self._previous = tag
                self._note_located(now, tag)
            else:
                self._unlocated.setdefault(tag, (held.message, self._clock.time(now)))
        self._repeat(now)

    def _begin_alone(self, now: Nanoseconds) -> None:
        """Nobody is there: go on where we were, or begin an order."""
        self._take_part(now, frozenset())

    def _take_part(self, now: Nanoseconds, agreed: frozenset[Tag]) -> None:
        self._state = State.PRESENT
        self._absent = False
        self._effects.append(Present())
        self._service.take_part(now)
        self._renew_own(now, agreed)
        if self._service.reports_ordered:
            self._look_for_gaps(now)
        self._progress(now)
        self._send_waiting(now)

    def _be_absent(self) -> None:
        if not self._absent:
            self._absent = True
            self._effects.append(Absent())

    def _fall_out(self, now: Nanoseconds) -> None:
        """We have missed more than can be made up for: this spell is over, and the next begins."""
        self._be_absent()
        self._listen(now)

    def _wake_late(self, now: Nanoseconds) -> None:
        """We were stopped or asleep for so long that the others have gone on without us."""
        if self._state is State.PRESENT:
            self._fall_out(now)
        elif self._state is State.LISTENING:
            self._listen(now)

    def _depart(self, now: Nanoseconds) -> None:
        if self._state is State.AWAY:
            return
        self._service.depart(now)
        if self._state is State.PRESENT:
            self._report(now, self._clock.time(now))  # what only we know would leave with us
        self._be_absent()  # only now: the service's last words may have brought deliveries
        self._effects.append(Multicast(Farewell(self._incarnation)))
        self._state = State.AWAY
        self._handled_ns = None
