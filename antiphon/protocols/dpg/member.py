"""A member of a Distributed Precedence Graph group: ties order, service, reports and spells together."""

from collections.abc import Sequence
from enum import Enum
from random import Random
from typing import Final

from antiphon.core.effects import (
    Absent,
    Appeared,
    Disagreed,
    Effect,
    Multicast,
    Present,
    Unavailable,
    Vanished,
)
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit, Departed, Input, Received, Returned, Start, TimerFired
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.admission import batch_to_order
from antiphon.protocols.dpg.company import Company
from antiphon.protocols.dpg.cycles import Clock, CountClock, RateClock
from antiphon.protocols.dpg.flow import Flow
from antiphon.protocols.dpg.hearing import Hearing
from antiphon.protocols.dpg.heartbeat import ReportHeartbeat
from antiphon.protocols.dpg.intake import Intake
from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.own import Batch, OwnMessages
from antiphon.protocols.dpg.pdus import (
    LARGEST,
    LARGEST_BATCH_BYTES,
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
    Told,
    arcs_as_sent,
    lists_bytes,
    pack_arcs,
    read,
    true_arcs,
    unite,
)
from antiphon.protocols.dpg.services.base import PREFIX, Service
from antiphon.protocols.dpg.spells import Listening, take_up
from antiphon.protocols.dpg.tag_lists import pack_tags, unpack_tags
from antiphon.protocols.dpg.tags import Tags
from antiphon.protocols.dpg.wakes import Wakes

IDLE_CYCLES: Final = 5
"""Report cycles between the reports of a group in which nothing happens."""
OWN_CYCLES: Final = 4
"""Delivery cycles that the order waits at most for word of where an own message stands."""
BEHIND: Final = 2
"""Reports in a row that tell nothing we know before we hold that we have missed too much."""
GONE_SILENCES: Final = 5
"""How many of the longest silences of a present member are taken to mean that one is gone."""
COUNT_UNITS: Final = 8
"""Messages that make up a report cycle where cycles are counted in messages."""
PASSED_OVER: Final = "The others have not heard of a message of ours, and went on while we were away."


class State(Enum):
    """Where a member is in its spells."""

    AWAY = "away"
    LISTENING = "listening"
    PRESENT = "present"


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
        self._wakes = Wakes(self._effects.append)
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
        self._own = OwnMessages(site, knobs, self._order, service, self._tags)
        self._hearing = Hearing(knobs, self._order, self._own, reports_ordered=service.reports_ordered)
        self._intake = Intake(self._order, self._tags, self._flow, self._heartbeat)
        self._recovery = Recovery(site, knobs, random, shared=service.reports_ordered)
        self._silence_ns = 2 * idle_ns
        self._company = Company(knobs.lately_ns, GONE_SILENCES * self._silence_ns, knobs.lag // 4)
        self._state = State.AWAY
        self._started = False
        self._listening = Listening(knobs, 0)
        self._absent = False
        self._serial = 0
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
        self._effects.append(self._own.admit(bodies))
        self._send_waiting(now)

    def _send_waiting(self, now: Nanoseconds) -> None:
        """Hand over what flow control allows: the pace of the slowest, and what is under way already."""
        knobs, order, own = self._configuration, self._order, self._own
        while self._state is State.PRESENT and own.may_go():
            ahead = order.agreement.index + len(order.own) - self._company.slowest(now, order.agreement.index)
            if ahead >= knobs.lag:
                self._wakes.set("send", now, knobs.lately_ns // 4)
                return
            time_ns = self._clock.time(now)
            if not self._flow.ready(time_ns):
                self._wakes.set("send", now, self._clock.until(now, time_ns + self._flow.wait_ns(time_ns)))
                return
            self._flow.sent(time_ns)
            self._hand_over(now, own.waiting.popleft())

    def _hand_over(self, now: Nanoseconds, batch: Batch) -> None:
        message = self._own.compose(now, self._clock.time(now), batch, self._hearing.seen())
        self._told_index, self._spoke_ns = self._order.agreement.index, now
        self._note_change(now)
        self._heartbeat.share.message(batch.bodies.size)
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
        if self._own.waiting:
            self._send_waiting(now)

    def _receive_own(self, now: Nanoseconds, pdu: Pdu, after_loss: bool) -> None:
        """A message of our own passes on a channel on which we hear ourselves."""
        if type(pdu) is Message and self._service.hears_itself and pdu.tag in self._own.unlocated:
            self._service.receive(now, self.site, pdu, after_loss=after_loss, fresh=True)
        else:
            self.ignored += 1

    def _receive_message(self, now: Nanoseconds, sender: Site, message: Message, after_loss: bool) -> None:
        tag = message.tag
        intake = self._intake
        if not intake.makes_sense(message):
            self.ignored += 1
            return
        if self._company.note(now, sender, message.index, self._order.agreement.index):
            self._effects.append(Appeared(sender))
        self._clock.message(now)
        self._heartbeat.share.message(message.bodies.size)
        held = self._order.body(tag)
        if held is not None and (held.sender != sender or held.message.number != message.number):
            self._collide(now, tag)
            return
        fresh = intake.is_fresh(tag)
        if held is None:
            self._take(now, sender, message)
        self._service.receive(now, sender, message, after_loss=after_loss, fresh=fresh)

    def _take(self, now: Nanoseconds, sender: Site, message: Message) -> None:
        time_ns = self._clock.time(now)
        self._intake.store(time_ns, sender, message)
        if self._service.reports_ordered and self._state is State.PRESENT:
            self._intake.look_for_gap(time_ns, sender, message)

    def _collide(self, now: Nanoseconds, tag: Tag) -> None:
        """Two messages have one tag. The first one known keeps it; ours, if it is the other, gets another."""
        self.collisions += 1
        if tag in self._own.unlocated:
            self._repeat(now)

    def _receive_again(self, now: Nanoseconds, pdu: Remulticast) -> None:
        """A remulticast body: taken if it is lacking here. It tells nothing of the channel."""
        self._recovery.heard(self._clock.time(now), pdu.tag)
        if pdu.tag not in self._order.lost:
            return
        message = Message(
            pdu.tag, pdu.previous, pdu.seen, pdu.stamp, 0, pdu.incarnation, pdu.number, pdu.bodies
        )
        if not self._intake.makes_sense(message):
            self.ignored += 1
            return
        self._take(now, pdu.sender, message)
        self._order.connect_as_sent(pdu.tag)
        self._progress(now)

    def _receive_request(self, now: Nanoseconds, sender: Site, request: Request) -> None:
        lost = unpack_tags(request.lost)
        if lost is None:
            self.ignored += 1
        else:  # also while listening: a body says nothing of the order
            self._was_asked(now, sender, lost)

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
        time_ns = self._clock.time(now)
        present = self._state is State.PRESENT
        is_of_use = self._hearing.heard(time_ns, tag, contiguous=contiguous, present=present)
        if is_of_use:
            self._note_change(now)
            self._note_located(now, tag)
            self._progress(now)
        elif is_of_use is None:
            self._flow.overflowed(time_ns)

    def placed(self, now: Nanoseconds, tag: Tag, arcs: Sequence[Arc]) -> None:
        if self._hearing.placed(self._clock.time(now), tag, arcs):
            self._note_change(now)
            self._note_located(now, tag)
            self._progress(now)

    def is_ours(self, tag: Tag) -> bool:
        return self._tags.is_ours(tag)

    def unlocated(self) -> tuple[Message, ...]:
        return tuple(message for message, _ in self._own.unlocated.values())

    def is_at_origin(self) -> bool:
        return self._order.agreement.index == 0 and len(self._order.graph) == 0

    def lately(self, now: Nanoseconds) -> frozenset[Site]:
        return self._company.lately(now)

    def _note_change(self, now: Nanoseconds) -> None:
        """There is something to report that was not there before."""
        if not self._changed:
            self._changed = True
            self._heartbeat.stir(self._clock.time(now))
            self._wakes.set("report", now, self._clock.until(now, self._heartbeat.next_ns))

    def _note_located(self, now: Nanoseconds, tag: Tag) -> None:
        if self._own.locate(self._clock.time(now), tag):
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
            order.deliver(time_ns, lambda tag: self._may_pass(now, tag))
        if len(order.graph) or order.queue:
            self._wait_for_rest(now, time_ns)
        if order.lost and self._recovery.has_to_ask(order, time_ns):
            self._ask_soon(now, time_ns)
        if order.agreement.index - self._told_index >= self._configuration.lag // 4:
            self._tell_progress(now)

    def _may_pass(self, now: Nanoseconds, tag: Tag) -> bool:
        """Whether nobody has a body: all who are there have asked for it."""
        others = self._company.sites()
        return bool(others) and others <= self._recovery.lacking(tag, self._clock.time(now))

    def _has_a_hole(self, now: Nanoseconds, time_ns: Nanoseconds) -> bool:
        """Whether we lack alone what we have waited for long enough: the others have a message there.

        Whoever is silent may be gone, and then it does not matter that it has not asked for it.
        """
        tag = self._order.awaited(time_ns)
        if tag is None:
            return False
        lacking = self._recovery.lacking(tag, time_ns)
        return not self._company.known() or bool(self.lately(now) - lacking)

    def _tell_progress(self, now: Nanoseconds) -> None:
        self._told_index, self._spoke_ns = self._order.agreement.index, now
        self._effects.append(Multicast(Progress(self._told_index)))

    def _wait_for_rest(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Wake up when the front has been known for Deliv_Cycle, or the queue's head for its own time."""
        order, knobs = self._order, self._configuration
        deadlines = []
        if order.awaited(time_ns) is not None:
            deadlines.append(time_ns + knobs.retr_cycle_ns)
        elif order.queue:
            deadlines.append(order.queue[0].since_ns + knobs.dummy_cycle_ns)
        if len(order.graph):
            deadlines.append(self._commit_ns())
        self._wakes.set("deliver", now, self._clock.until(now, max(time_ns + 1, min(deadlines))))

    def _commit_ns(self) -> Nanoseconds:
        """When the front may be ordered by tag: not while an own message may belong before it."""
        knobs, graph = self._configuration, self._order.graph
        since_ns = max(map(graph.since, graph.front()))
        deadline_ns = since_ns + knobs.deliv_cycle_ns
        if self._own.unlocated:
            handed_ns = self._own.oldest_ns()
            if handed_ns <= since_ns:
                deadline_ns = max(deadline_ns, handed_ns + OWN_CYCLES * knobs.deliv_cycle_ns)
        return deadline_ns

    def _fire(self, now: Nanoseconds, name: str) -> None:
        self._wakes.fired(name)
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
        if self._has_a_hole(now, time_ns):
            self._fall_out(now)

    def _ask_soon(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Not at once, since others may lack the same, and one of them be quicker."""
        wait_ns = round(self._configuration.report_cycle_ns * self.random.random())
        self._wakes.set("ask", now, self._clock.until(now, time_ns + wait_ns))

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
            self._wakes.set("report", now, self._clock.until(now, self._heartbeat.next_ns))

    def _answer(self, now: Nanoseconds) -> None:
        effects, next_ns = self._recovery.answer(self._order, self._clock.time(now))
        self._effects += effects
        if next_ns is not None:
            self._wakes.set("answer", now, self._clock.until(now, next_ns))

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
        self._wakes.set("report", now, self._clock.until(now, self._heartbeat.next_ns))

    def _report(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        order, knobs = self._order, self._configuration
        self.reports += 1
        self._serial += 1
        agreed, links = order.agreement.recent(knobs.history)
        wanted = self._recovery.wanted(order, time_ns)
        listened = self._listener_ns is not None and now - self._listener_ns < knobs.listen_ns
        is_listening = self._state is State.LISTENING
        own = [] if is_listening else self._own.overdue(time_ns)
        vertices = (*(message.tag for message in own), *order.graph)
        arcs = (*(arc for message in own for arc in arcs_as_sent(message)), *true_arcs(order))
        report = Report(
            self._own.incarnation, self._serial, now, order.agreement.index, order.agreement.digest,
            agreed, links, pack_tags(vertices), pack_arcs(arcs), pack_tags(wanted),
            self._flow.own_ns, is_listening, dict(order.streams) if listened and not order.queue else {},
            self._service.note(now), pack_tags(self._recovery.gone()),
        )  # fmt: skip
        self._effects.append(Multicast(report))
        self._heartbeat.share.report(time_ns, lists_bytes(report))
        self._told_index, self._spoke_ns = order.agreement.index, now
        busy = (
            self._changed or is_listening or bool(order.lost) or bool(len(order.graph) or self._own.unlocated)
        )
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
        for tag in [tag for tag in self._own.unlocated if order.is_known(tag)]:
            self._note_located(now, tag)
        if learned.news:
            self._hearing.learned()
        if told.lost:
            self._was_asked(now, sender, told.lost)
        self._compare(sender, report, told)
        waive = learned.lacking or self._recovery.has_gone()
        self._heartbeat.heard(time_ns, waive=waive, busy=self._changed or len(order.graph) > 0)
        self._wakes.set("report", now, self._clock.until(now, self._heartbeat.next_ns))
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

    def _locate_alone(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Where there is nobody else, what we vouch for ourselves has to do."""
        if self._company.known():
            return
        for message in self._own.overdue(time_ns):
            if self._order.add(time_ns, message.tag):
                self._order.connect_as_sent(message.tag)
                self._note_located(now, message.tag)
        self._progress(now)

    def _repeat(self, now: Nanoseconds) -> None:
        """Hand own messages without a place over anew."""
        for batch in self._own.recall():
            self._hand_over(now, batch)

    # Presence

    def _start(self, now: Nanoseconds, event: Start) -> None:
        if self._started:
            raise UsageError("This member has started already.")
        self._started = True
        self._own.begin(event.incarnation, event.next_number)
        if event.incarnation:
            self._absent = event.returning
            self._listen(now)
            return
        self._state = State.PRESENT
        self._begin_service(now)
        self._service.take_part(now)

    def _begin_service(self, now: Nanoseconds) -> None:
        self._service.start(now, self._own.incarnation)
        self._heartbeat.begin(self._clock.time(now))
        self._wakes.set("report", now, self._clock.until(now, self._heartbeat.next_ns))

    def _listen(self, now: Nanoseconds) -> None:
        """Begin to listen, whatever was before."""
        self._state = State.LISTENING
        self._wakes.forget()
        self._listening = Listening(self._configuration, now)
        self._order.forget_graph()
        self._hearing.listen()
        self._recovery.forget()
        self._order.kept.refresh(self._clock.time(now))
        self._intake.listen()
        self._own.listen()
        self._behind = 0
        self._begin_service(now)
        self._heartbeat.urge(self._clock.time(now))
        self._wakes.set("report", now, self._clock.until(now, self._heartbeat.next_ns))

    def _welcome(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Someone listens before it takes part: it wants reports soon, with what it must know.

        Whoever returns may have what we have asked for in vain.
        """
        self._listener_ns = now
        if self._state is State.PRESENT:
            self._recovery.hope_again()
            self._heartbeat.urge(time_ns)
            self._wakes.set("report", now, self._clock.until(now, self._heartbeat.next_ns))

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
        self._take_part(now, told.agreed)

    def _renew_own(self, now: Nanoseconds, agreed: Sequence[Tag]) -> None:
        """See what has become of our messages, and hand those without a place over anew."""
        renewed = self._own.renew(self._clock.time(now), agreed)
        for tag in renewed.placed:
            self._note_located(now, tag)
        for message in renewed.passed:
            self._effects.append(Unavailable(PASSED_OVER, self.site, message.number))
        self._repeat(now)

    def _begin_alone(self, now: Nanoseconds) -> None:
        """Nobody is there: go on where we were, or begin an order."""
        self._take_part(now, ())

    def _take_part(self, now: Nanoseconds, agreed: Sequence[Tag]) -> None:
        self._state = State.PRESENT
        self._absent = False
        self._effects.append(Present())
        self._service.take_part(now)
        self._renew_own(now, agreed)
        if self._service.reports_ordered:
            self._intake.look_for_gaps(self._clock.time(now))
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
        self._effects.append(Multicast(Farewell(self._own.incarnation, self._service.note(now))))
        self._state = State.AWAY
        self._handled_ns = None
