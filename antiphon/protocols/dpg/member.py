"""A member of a Distributed Precedence Graph group: ties order, service, reports and spells together."""

from collections.abc import Sequence
from random import Random
from typing import Final

from antiphon.core.effects import Disagreed, Effect, Multicast, Unavailable
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit, Departed, Input, Received, Returned, Start, TimerFired
from antiphon.core.protocol import PeerReport
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.admission import batch_to_order
from antiphon.protocols.dpg.company import Company
from antiphon.protocols.dpg.cycles import build_clock
from antiphon.protocols.dpg.delivering import Delivering
from antiphon.protocols.dpg.flow import Flow
from antiphon.protocols.dpg.hearing import Hearing
from antiphon.protocols.dpg.heartbeat import ReportHeartbeat
from antiphon.protocols.dpg.intake import Intake
from antiphon.protocols.dpg.learning import Learning
from antiphon.protocols.dpg.order import Expected, Order
from antiphon.protocols.dpg.own import Batch, OwnMessages
from antiphon.protocols.dpg.pdus import (
    LARGEST_BATCH_BYTES,
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
from antiphon.protocols.dpg.reporting import Told, lists_bytes, read
from antiphon.protocols.dpg.services.base import PREFIX, Service
from antiphon.protocols.dpg.spells import Presence, State
from antiphon.protocols.dpg.stability import Stability
from antiphon.protocols.dpg.tag_lists import unpack_tags
from antiphon.protocols.dpg.tags import Tags
from antiphon.protocols.dpg.telling import Telling
from antiphon.protocols.dpg.wakes import Wakes

IDLE_CYCLES: Final = 5
"""Report cycles between the reports of a group in which nothing happens."""
GONE_SILENCES: Final = 5
"""How many of the longest silences of a present member are taken to mean that one is gone."""
PASSED_OVER: Final = "The others have not heard of a message of ours, and went on while we were away."
BEGINS_AGAIN: Final = "It has missed too much, and begins again."
SUPERSEDED: Final = "It knows a later incarnation of this member, and takes nothing from this one."


class Dpg:
    """Implements `antiphon.core.protocol.LiveProtocol`, and is its service's `Channel`.

    `now` is the host's time, `time_ns` the same moment in the member's own clock.
    """

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
        idle_ns = IDLE_CYCLES * knobs.report_cycle_ns
        silence_ns = 2 * idle_ns
        self.site = site
        self.random = random
        self._configuration = knobs
        self._service = service
        self._effects: list[Effect] = []
        emit = self._effects.append
        self._clock = build_clock(knobs, idle_ns)
        self._wakes = wakes = Wakes(self._clock, emit)
        self._tags = Tags(secret, random)
        self._flow = Flow(
            knobs.message_cycle_ns, knobs.delta_ns, knobs.fc_cycle_ns, knobs.longest_message_cycle_ns,
            2 * knobs.deliv_cycle_ns,
        )  # fmt: skip
        gone_ns = GONE_SILENCES * silence_ns
        self._company = Company(knobs.lately_ns, gone_ns, knobs.lag // 4, emit)
        # A member that was stopped for less than this goes on with its spell.
        longest_ns = max(gone_ns, knobs.absence_ns + 2 * silence_ns)
        self._stability = Stability(
            self._company, longest_ns, longest_ns - gone_ns, 2 * silence_ns, knobs.tombstones, emit
        )
        self._order = order = Order(knobs, self._stability, emit)
        self._own = own = OwnMessages(site, knobs, order, service, self._tags)
        self._hearing = Hearing(knobs, order, own, reports_ordered=service.reports_ordered)
        self._recovery = Recovery(
            site, knobs, order, self._company, wakes, random, emit, shared=service.reports_ordered
        )
        self._delivering = Delivering(knobs, order, own, self._recovery, wakes)
        heartbeat = ReportHeartbeat(knobs.report_cycle_ns, idle_ns, random)
        self._share = heartbeat.share
        self._intake = Intake(
            order, self._tags, self._flow, heartbeat, reports_ordered=service.reports_ordered
        )
        self._telling = Telling(
            site, knobs, order, own, self._recovery, self._company, self._flow, service, heartbeat,
            silence_ns, wakes, emit,
        )  # fmt: skip
        self._learning = Learning(order, emit, shared=service.reports_ordered)
        self._presence = Presence(knobs, emit)
        self._started = False
        self._superseded = False
        """Whether another has told that it refuses us, and the application knows."""
        self._handled_ns: Nanoseconds | None = None
        self.ignored = self.collisions = 0
        service.attach(self)

    # Inputs

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        if self._handled_ns is not None and now - self._handled_ns > self._configuration.absence_ns:
            self._wake_late(now)
        self._handled_ns = now
        if type(event) is Received:
            if self._presence.state is not State.AWAY:
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
                if self._presence.state is State.AWAY:
                    self._listen(now)
            case _:
                pass  # nobody's presence matters, and rounds have no meaning here

    def incarnation_of(self, site: Site) -> int:
        """The latest incarnation of a site that is known or remembered here; 0 if there is none."""
        return max(self._order.incarnations.get(site, 0), self._order.streams.get(site, (0, 0))[0])

    def peers(self, now: Nanoseconds) -> dict[Site, PeerReport]:
        """How far the others are behind in the order, and for whom our sending waits."""
        order, lag = self._order, self._configuration.lag
        ahead = order.agreement.index + len(order.own)
        waits = bool(self._own.waiting)
        return {
            site: PeerReport(order.stability.messages_since(index), heard_ns, None, None, waits and is_behind)
            for site, (index, heard_ns, is_behind) in self._company.reports(now, ahead, lag).items()
        }

    @property
    def vertices(self) -> int:
        """How large the graph is."""
        return len(self._order.graph)

    def figures(self) -> dict[str, int]:
        """What a user may want to watch."""
        return {
            "ignored": self.ignored,
            "collisions": self.collisions,
            "disagreements": self._learning.disagreements,
            "reports": self._telling.reports,
            **self._order.figures(),
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
        while self._presence.state is State.PRESENT and own.may_go():
            ahead = order.agreement.index + len(order.own)
            if len(order.own) >= knobs.lag or self._company.has_one_behind(now, ahead, knobs.lag):
                self._wakes.set("send", now, knobs.lately_ns // 4)
                return
            time_ns = self._clock.time(now)
            if not self._flow.ready(time_ns):
                self._wakes.set_own("send", now, time_ns + self._flow.wait_ns(time_ns))
                return
            self._flow.sent(time_ns)
            self._hand_over(now, time_ns, own.waiting.popleft())

    def _hand_over(self, now: Nanoseconds, time_ns: Nanoseconds, batch: Batch) -> None:
        message = self._own.compose(now, time_ns, batch, self._hearing.seen())
        self._telling.note_message(now, time_ns, batch.bodies.size)
        self._service.hand_over(now, message)

    def _repeat(self, now: Nanoseconds) -> None:
        """Hand own messages without a place over anew."""
        for batch in self._own.recall():
            self._hand_over(now, self._clock.time(now), batch)

    # Reception

    def _receive(self, now: Nanoseconds, sender: Site, pdu: Pdu, after_loss: bool) -> None:
        if sender == self.site:
            self._receive_own(now, pdu, after_loss)
        elif type(pdu) is Message:
            self._receive_message(now, sender, pdu, after_loss)
        elif type(pdu) is Report:
            self._receive_report(now, sender, pdu, after_loss)
        elif type(pdu) is Progress:
            if not self._is_latest(now, sender, pdu.incarnation):
                return
            self._note_progress(now, sender, pdu)
            self._service.receive_other(now, sender, pdu, after_loss=after_loss)
        else:
            if type(pdu) is Remulticast:
                self._receive_again(now, pdu)
            elif type(pdu) is Request:
                self._receive_request(now, sender, pdu)
            elif type(pdu) is Farewell:
                if not self._order.incarnations.hear(sender, pdu.incarnation):
                    self.ignored += 1
                    return
                self._company.leave(sender)
                self._stability.leave(sender)
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
        if not self._is_latest(now, sender, message.incarnation):
            return
        self._company.note(now, sender, message.index, self._order.agreement.index)
        self._clock.message(now)
        self._share.message(message.bodies.size)
        held = self._order.body(tag)
        if held is not None and (held.sender != sender or held.message.number != message.number):
            self._collide(now, tag)
            return
        fresh = intake.is_fresh(tag)
        if held is None:
            present = self._presence.state is State.PRESENT
            intake.take(self._clock.time(now), sender, message, present=present)
        self._service.receive(now, sender, message, after_loss=after_loss, fresh=fresh)

    def _is_latest(self, now: Nanoseconds, sender: Site, incarnation: int) -> bool:
        """Whether a member speaks under its latest incarnation; if not, it is refused, and is to learn that.

        Its messages would pass for repetitions of what a later incarnation has sent.
        """
        order = self._order
        known = order.incarnations.get(sender)
        if known == incarnation or order.incarnations.hear(sender, incarnation):
            return True
        self.ignored += 1
        order.expect(sender, max((known or 0, 0), order.streams.get(sender, (0, 0))))
        self._telling.note_listener(now)
        return False

    def _collide(self, now: Nanoseconds, tag: Tag) -> None:
        """Two messages have one tag. The first one known keeps it; ours, if it is the other, gets another."""
        self.collisions += 1
        if tag in self._own.unlocated:
            self._repeat(now)

    def _receive_again(self, now: Nanoseconds, pdu: Remulticast) -> None:
        """A remulticast body: taken if it is lacking here. It tells nothing of the channel."""
        time_ns = self._clock.time(now)
        self._recovery.heard(time_ns, pdu.tag)
        if pdu.tag not in self._order.lost:
            return
        message = pdu.message()
        is_plausible = self._order.incarnations.is_plausible(
            pdu.sender, pdu.incarnation, self._company.sites()
        )
        if pdu.sender == self.site:
            count = message.bodies.messages
            is_plausible = self._own.may_have_sent(message.incarnation, message.number, count)
        if not is_plausible or not self._intake.makes_sense(message):
            self.ignored += 1
            return
        present = self._presence.state is State.PRESENT
        self._intake.take(time_ns, pdu.sender, message, present=present, again=True)
        self._order.connect_as_sent(pdu.tag)
        self._progress(now, time_ns)

    def _receive_request(self, now: Nanoseconds, sender: Site, request: Request) -> None:
        lost = unpack_tags(request.lost)
        if lost is None:
            self.ignored += 1
        else:  # also while listening: a body says nothing of the order
            self._was_asked(now, self._clock.time(now), sender, lost)

    def _was_asked(self, now: Nanoseconds, time_ns: Nanoseconds, sender: Site, lost: tuple[Tag, ...]) -> None:
        self._recovery.asked(now, time_ns, sender, lost)
        if self._recovery.has_gone():
            self._telling.urge(now, time_ns)

    def _note_progress(self, now: Nanoseconds, sender: Site, pdu: Progress | Report) -> None:
        """Another tells how far it has come, and what it holds."""
        self._company.note(now, sender, pdu.index, self._order.agreement.index)
        self._stability.told(sender, pdu.held, pdu.held_digest)
        if self._presence.state is State.PRESENT:
            self._stability.settle(now)

    # The channel, as the service calls it

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def heard(self, now: Nanoseconds, tag: Tag, *, contiguous: bool) -> None:
        time_ns = self._clock.time(now)
        present = self._presence.state is State.PRESENT
        is_of_use = self._hearing.heard(time_ns, tag, contiguous=contiguous, present=present)
        if is_of_use:
            self._note_place(now, time_ns, tag)
        elif is_of_use is None:
            self._flow.overflowed(time_ns)

    def placed(self, now: Nanoseconds, tag: Tag, arcs: Sequence[Arc]) -> None:
        time_ns = self._clock.time(now)
        if self._hearing.placed(time_ns, tag, arcs):
            self._note_place(now, time_ns, tag)

    def is_ours(self, tag: Tag) -> bool:
        return self._tags.is_ours(tag)

    def unlocated(self) -> tuple[Message, ...]:
        return tuple(message for message, _ in self._own.unlocated.values())

    def is_at_origin(self) -> bool:
        return self._order.agreement.index == 0 and len(self._order.graph) == 0

    def root(self) -> Tag:
        return self._order.graph.root

    def is_ahead(self, tag: Tag) -> bool:
        return tag in self._order.graph

    def has_sent(self, site: Site) -> bool:
        return self._order.has_sent(site)

    def lately(self, now: Nanoseconds) -> frozenset[Site]:
        return self._company.lately(now)

    # Progress

    def _note_place(self, now: Nanoseconds, time_ns: Nanoseconds, tag: Tag) -> None:
        """The channel has told something of where this stands."""
        self._telling.note_change(now, time_ns)
        if tag in self._own.unlocated:
            self._own.locate(now, time_ns, tag)
        self._progress(now, time_ns)

    def _progress(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Deliver what can be, and tell how far that is."""
        if self._presence.state is State.PRESENT:
            delivered = self._stability.index
            self._delivering.deliver(now, time_ns)
            self._telling.tell_progress(now)
            if self._stability.index > delivered:
                self._stability.settle(now)

    # Timers

    def _fire(self, now: Nanoseconds, name: str) -> None:
        self._wakes.fired(name)
        if self._presence.state is State.AWAY:
            return
        if name.startswith(PREFIX):
            self._service.fire(now, name)
        elif name == "report":
            self._look_after(now)
        elif name == "deliver":
            self._commit(now)
        elif name == "answer":
            self._recovery.answer(now, self._clock.time(now))
        elif name == "ask":
            self._recovery.ask(self._clock.time(now))
        elif name == "tell" and self._presence.state is State.PRESENT:
            self._telling.tell_progress(now)
        self._send_waiting(now)

    def _commit(self, now: Nanoseconds) -> None:
        """The delivery timer: cycles may be over."""
        time_ns = self._clock.time(now)
        if self._presence.state is State.PRESENT and self._delivering.commit(time_ns):
            self._telling.changed = True
        self._progress(now, time_ns)
        if self._recovery.has_a_hole(now, time_ns):
            self._fall_out(now)

    def _look_after(self, now: Nanoseconds) -> None:
        """The report timer: report if it is our turn, and see to all that has become old."""
        time_ns = self._clock.time(now)
        presence = self._presence
        if presence.state is State.LISTENING and presence.listening.is_alone(now):
            self._take_part(now, ())  # nobody is there: go on where we were, or begin an order
        self._flow.tick(time_ns)
        self._order.kept.expire(time_ns)
        self._order.sweep(time_ns)
        for site in self._company.look(now):
            self._flow.forget(time_ns, site)
            self._stability.vanish(now, site)
            self._service.vanished(now, site)
        if presence.state is State.PRESENT:
            self._stability.settle(now)
            if not self._company.known():
                self._own.locate_alone(now, time_ns)
                self._progress(now, time_ns)
            self._recovery.ask_soon(now, time_ns)
        self._telling.look(now, time_ns, listening=presence.state is State.LISTENING)

    # Reports

    def _receive_report(self, now: Nanoseconds, sender: Site, report: Report, after_loss: bool) -> None:
        told = read(report)
        if told is None:
            self.ignored += 1
            return
        is_anew = report.incarnation > self._order.incarnations.get(sender, report.incarnation)
        if not self._is_latest(now, sender, report.incarnation):
            return
        time_ns = self._clock.time(now)
        self._order.note_incarnation(sender, report.incarnation)
        self._clock.heard(now, sender, report.clock_ns)
        self._flow.heard(time_ns, sender, 0 if report.listening else report.demand_ns)
        self._share.report(time_ns, lists_bytes(report))
        self._service.receive_report(now, sender, report, after_loss=after_loss)
        if report.listening:
            self._order.agreement.forget(sender)
            self._company.leave(sender, BEGINS_AGAIN)
            self._stability.begins_again(now, sender, self._order.agreement.index, anew=is_anew)
            self._welcome(now, time_ns)
        elif self._presence.state is State.LISTENING:
            self._note_progress(now, sender, report)
            self._was_asked(now, time_ns, sender, told.lost)
            self._listen_to(now, time_ns, sender, report, told)
        else:
            ahead = self._order.agreement.ahead_of(report.index, told.agreed)
            self._company.align(sender, ahead)
            self._order.keep_up(ahead, report.lead)
            self._note_progress(now, sender, report)
            self._learn(now, time_ns, sender, report, told)

    def _learn(
        self, now: Nanoseconds, time_ns: Nanoseconds, sender: Site, report: Report, told: Told
    ) -> None:
        learning = self._learning
        learned = learning.learn(now, time_ns, sender, report, told)
        if learning.has_lost_touch(now) or self._recovery.is_too_late_for(told.gone):
            self._fall_out(now)
            return
        for tag in told.vertices:
            self._order.kept.touch(time_ns, tag)
        self._recovery.heard_of(told.vertices)
        self._own.locate_known(now, time_ns)
        if learned.news:
            self._hearing.learned()
        if told.lost:
            self._was_asked(now, time_ns, sender, told.lost)
        if told.passed:
            self._recovery.note_passed(time_ns, sender, told.passed)
        learning.compare(sender, report, told)
        self._telling.note_report(now, time_ns, lacking=learned.lacking)
        self._progress(now, time_ns)

    # Presence

    def _start(self, now: Nanoseconds, event: Start) -> None:
        if self._started:
            raise UsageError("This member has started already.")
        self._started = True
        self._own.begin(event.incarnation, event.next_number)
        self._order.incarnations.hear(self.site, event.incarnation)
        if not event.incarnation:
            self._presence.begin()
            self._stability.listen(now)
            self._begin_service(now)
            self._service.take_part(now)
            return
        if event.returning:
            self._presence.begin_absent()
        self._listen(now)

    def _begin_service(self, now: Nanoseconds) -> None:
        self._service.start(now, self._own.incarnation)
        self._telling.begin(now, self._clock.time(now))

    def _listen(self, now: Nanoseconds) -> None:
        """Begin to listen, whatever was before."""
        time_ns = self._clock.time(now)
        self._presence.listen(now)
        self._wakes.forget()
        self._order.forget_graph()
        self._stability.listen(now)
        self._order.kept.refresh(time_ns)
        self._hearing.listen()
        self._recovery.listen()
        self._intake.listen()
        self._own.listen()
        self._learning.listen()
        self._begin_service(now)
        self._telling.urge(now, time_ns)

    def _welcome(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Someone listens before it takes part: it wants reports soon, with what it must know.

        Whoever returns may have what we have asked for in vain.
        """
        self._telling.note_listener(now)
        if self._presence.state is State.PRESENT:
            self._recovery.hope_again()
            self._telling.urge(now, time_ns)

    def _listen_to(
        self, now: Nanoseconds, time_ns: Nanoseconds, sender: Site, report: Report, told: Told
    ) -> None:
        own = self._own.next()
        if report.streams.get(self.site, own)[0] > own[0]:
            self._learn_refusal(sender)
            return
        if self._presence.listening.hear(self._order, now, sender, report, told):
            streams = self._believable(report.streams)
            if self._learning.take_up(time_ns, sender, report, told, streams):
                self._presence.be_absent()
            self._take_part(now, told.agreed)

    def _believable(self, streams: dict[Site, Expected]) -> dict[Site, Expected]:
        """What another tells of senders' next messages: of us it cannot know more than we do."""
        incarnations, present, own = self._order.incarnations, self._company.sites(), self._own.next()
        return {
            sender: expected
            for sender, expected in streams.items()
            if (
                expected <= own
                if sender == self.site
                else incarnations.is_plausible(sender, expected[0], present)
            )
        }

    def _learn_refusal(self, by: Site) -> None:
        if not self._superseded:
            self._superseded = True
            self._effects.append(Disagreed(by, SUPERSEDED))

    def _take_part(self, now: Nanoseconds, agreed: Sequence[Tag]) -> None:
        time_ns = self._clock.time(now)
        self._presence.take_part()
        self._service.take_part(now)
        for message in self._own.renew(now, time_ns, agreed):
            count = message.bodies.messages
            self._effects.append(Unavailable(PASSED_OVER, self.site, message.number, count))
        self._repeat(now)
        self._intake.take_part(time_ns)
        self._telling.begin_spell(now)
        self._progress(now, time_ns)
        self._send_waiting(now)

    def _fall_out(self, now: Nanoseconds) -> None:
        """We have missed more than can be made up for: this spell is over, and the next begins."""
        self._presence.be_absent()
        self._listen(now)

    def _wake_late(self, now: Nanoseconds) -> None:
        """We were stopped or asleep for so long that the others have gone on without us."""
        if self._presence.state is State.PRESENT:
            self._fall_out(now)
        elif self._presence.state is State.LISTENING:
            self._listen(now)

    def _depart(self, now: Nanoseconds) -> None:
        if self._presence.state is State.AWAY:
            return
        self._service.depart(now)
        if self._presence.state is State.PRESENT:
            # What only we know would leave with us.
            self._telling.report(now, self._clock.time(now), listening=False)
        self._presence.be_absent()  # only now: the service's last words may have brought deliveries
        self._effects.append(Multicast(Farewell(self._own.incarnation, self._service.note(now))))
        self._presence.leave()
        self._handled_ns = None
