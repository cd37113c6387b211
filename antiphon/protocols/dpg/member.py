"""A member of a Distributed Precedence Graph group: it ties order, service, reports and spells together."""

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
from antiphon.protocols.admission import batch_for_all
from antiphon.protocols.dpg.channel_queue import ChannelQueue
from antiphon.protocols.dpg.context import Context
from antiphon.protocols.dpg.cycles import build_clock
from antiphon.protocols.dpg.order import Expected, Order
from antiphon.protocols.dpg.own_messages import Batch
from antiphon.protocols.dpg.pdus import (
    LARGEST_BATCH_BYTES,
    DpgConfiguration,
    Farewell,
    Message,
    Progress,
    Remulticast,
    Report,
    Request,
    Tag,
)
from antiphon.protocols.dpg.peers import Peers
from antiphon.protocols.dpg.printed import parts_of
from antiphon.protocols.dpg.quorum import CutOffWatch, Quorum
from antiphon.protocols.dpg.reports import ReportLists, lists_bytes, read
from antiphon.protocols.dpg.services.base import PREFIX, Next, Placements, Service
from antiphon.protocols.dpg.spells import Presence, State
from antiphon.protocols.dpg.stability import Stability
from antiphon.protocols.dpg.tag_lists import unpack_tags
from antiphon.protocols.dpg.tags import Tags
from antiphon.protocols.dpg.timers import Timers
from antiphon.protocols.dpg.validation import Validation

PASSED_OVER: Final = "The others did not receive a message of this member, and went on while it was away."
BEGINS_AGAIN: Final = "It has missed too much, and begins again."
FORGETS: Final = (
    "It lost its memory before it told what it had delivered: from this message of ours on it may deliver "
    "messages once more."
)
SUPERSEDED: Final = "It knows a later incarnation of this member, and takes nothing from this one."


class Dpg:
    """Implements `antiphon.core.protocol.LiveProtocol`, and is its service's `MemberView`.

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
        self.site = site
        self.random = random
        self._configuration = knobs
        self._service = service
        self._effects: list[Effect] = []
        emit = self._effects.append
        self._clock = build_clock(knobs)
        self._timers = Timers(self._clock, emit)
        self._queue = ChannelQueue()
        context = Context(site, knobs, service, random, self._timers, emit, self._queue)
        self._tags = Tags(secret, random)
        parts = parts_of(knobs, random)
        self._flow = flow = parts.flow(
            knobs.message_cycle_ns, knobs.delta_ns, knobs.fc_cycle_ns, knobs.longest_message_cycle_ns,
            2 * knobs.deliv_cycle_ns,
        )  # fmt: skip
        self._peers = peers = Peers(knobs.lately_ns, knobs.gone_ns, knobs.lag // 4, emit)
        # A member that was stopped for less than this continues its spell.
        longest_ns = max(knobs.gone_ns, knobs.absence_ns + 2 * knobs.silence_ns)
        self._stability = Stability(
            peers, longest_ns, longest_ns - knobs.gone_ns, 2 * knobs.silence_ns, knobs.tombstones, emit
        )
        self._order = order = Order(knobs, self._stability, emit)
        self._own = own = parts.own_messages(context, order, self._tags)
        self._channel = parts.channel(context, order, own)
        self._recovery = recovery = parts.recovery(context, order, peers)
        self._quorum = Quorum(knobs.quorum, order.agreement)
        self._delivery = parts.delivery(context, order, own, recovery, self._quorum)
        self._cut_off = CutOffWatch(knobs.quorum, 2 * knobs.silence_ns, emit)
        heartbeat = parts.heartbeat(knobs.report_cycle_ns, knobs.idle_ns, random, self._queue)
        self._share = heartbeat.share
        self._validation = Validation(context, order, self._tags, flow, heartbeat)
        self._report_sender = parts.report_sender(context, order, own, recovery, peers, flow, heartbeat)
        self._report_merge = parts.report_merge(context, order)
        self._presence = Presence(knobs, emit)
        self._started = False
        self._superseded = False
        """Whether the application knows that another member refuses this incarnation."""
        self._handled_ns: Nanoseconds | None = None
        self.ignored = self.collisions = 0
        service.attach(self)

    # Inputs

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        if self._handled_ns is not None and now - self._handled_ns > self._configuration.absence_ns:
            self._on_standstill(now)
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
                self._on_timer(now, name)
            case Admit():
                self._admit(now, event)
            case Start():
                self._on_start(now, event)
            case Departed():
                self._on_departed(now)
            case Returned():
                if self._presence.state is State.AWAY:
                    self._listen(now)
            case _:
                pass  # presence does not matter, and rounds have no meaning here

    def incarnation_of(self, site: Site) -> int:
        """The latest incarnation of a site that is known or remembered here; 0 if there is none."""
        return max(self._order.incarnations.get(site, 0), self._order.streams.get(site, (0, 0))[0])

    def peers(self, now: Nanoseconds) -> dict[Site, PeerReport]:
        """How far each peer is behind in the order, and whether sending waits for it."""
        order, lag = self._order, self._configuration.lag
        ahead = order.agreement.index + len(order.own)
        waits = bool(self._own.waiting)
        return {
            site: PeerReport(order.stability.messages_since(index), heard_ns, None, None, waits and is_behind)
            for site, (index, heard_ns, is_behind) in self._peers.reports(now, ahead, lag).items()
        }

    @property
    def vertices(self) -> int:
        """The number of vertices in the graph."""
        return len(self._order.graph)

    def figures(self) -> dict[str, int]:
        """Figures for users to watch."""
        return {
            "ignored": self.ignored,
            "collisions": self.collisions,
            "disagreements": self._report_merge.disagreements,
            "forks": self._report_merge.forks,
            "reports": self._report_sender.reports,
            **self._order.figures(),
            "copies": self._recovery.remulticasts,
            "message_cycle_ns": self._flow.own_ns,
            **self._service.figures(),
        }

    # Admission

    def _admit(self, now: Nanoseconds, event: Admit) -> None:
        bodies = batch_for_all(event, "DPG", LARGEST_BATCH_BYTES, started=self._started)
        self._effects.append(self._own.admit(bodies))
        self._send_waiting(now)

    def _send_waiting(self, now: Nanoseconds) -> None:
        """Hand over what flow control allows: the demands, the lag of the slowest peer, and the window."""
        knobs, order, own = self._configuration, self._order, self._own
        while self._presence.state is State.PRESENT and own.may_go() and not self._cut_off.is_cut_off:
            ahead = order.agreement.index + len(order.own)
            if len(order.own) >= knobs.lag or self._peers.is_any_behind(now, ahead, knobs.lag):
                self._timers.arm(now, "send", max(1, knobs.lately_ns // 4))
                return
            time_ns = self._clock.time(now)
            if not self._flow.ready(time_ns):
                self._timers.arm_own(now, "send", time_ns + self._flow.wait_ns(time_ns))
                return
            self._flow.sent(time_ns)
            self._hand_over(now, time_ns, own.waiting.popleft())

    def _hand_over(self, now: Nanoseconds, time_ns: Nanoseconds, batch: Batch) -> None:
        message = self._own.compose(now, time_ns, batch, self._channel.seen())
        self._report_sender.on_own_message(now, time_ns, batch.bodies.size)
        self._service.hand_over(now, message)

    def _repeat(self, now: Nanoseconds) -> None:
        """Hand own messages without a place over anew."""
        for batch in self._own.recall():
            self._hand_over(now, self._clock.time(now), batch)

    # Validation

    def _receive(self, now: Nanoseconds, sender: Site, pdu: Pdu, after_loss: bool) -> None:
        if sender == self.site:
            self._on_own_message(now, pdu, after_loss)
        elif type(pdu) is Message:
            self._on_message(now, sender, pdu, after_loss)
        elif type(pdu) is Report:
            self._on_report(now, sender, pdu, after_loss)
        elif type(pdu) is Progress:
            if not self._is_latest(now, sender, pdu.incarnation):
                return
            self._on_progress(now, sender, pdu)
            self._place(now, self._service.on_other_pdu(now, sender, pdu, after_loss=after_loss))
        else:
            if type(pdu) is Remulticast:
                self._on_retransmission(now, sender, pdu)
            elif type(pdu) is Request:
                self._on_request(now, sender, pdu)
            elif type(pdu) is Farewell:
                if not self._order.incarnations.hear(sender, pdu.incarnation):
                    self.ignored += 1
                    return
                self._peers.leave(sender)
                self._quorum.forget(sender)
                self._stability.leave(sender)
            self._place(now, self._service.on_other_pdu(now, sender, pdu, after_loss=after_loss))
        if self._own.waiting:
            self._send_waiting(now)

    def _on_own_message(self, now: Nanoseconds, pdu: Pdu, after_loss: bool) -> None:
        """An own message comes back on a channel on which a member hears itself."""
        if type(pdu) is Message and self._service.hears_itself and pdu.tag in self._own.unlocated:
            self._place(now, self._service.on_message(now, self.site, pdu, after_loss=after_loss, fresh=True))
        else:
            self.ignored += 1

    def _on_message(self, now: Nanoseconds, sender: Site, message: Message, after_loss: bool) -> None:
        tag = message.tag
        validation = self._validation
        if not validation.makes_sense(message):
            self.ignored += 1
            return
        if not self._is_latest(now, sender, message.incarnation):
            return
        self._peers.on_progress(now, sender, message.index, self._order.agreement.index)
        self._clock.message(now)
        self._share.message(message.bodies.size)
        if self._service.reports_ordered:
            self._queue.on_clock(now, sender, message.stamp)
        held = self._order.body(tag)
        if held is not None and (held.sender != sender or held.message.number != message.number):
            self._collide(now, tag)
            return
        fresh = validation.is_fresh(tag)
        if held is None:
            present = self._presence.state is State.PRESENT
            validation.take(self._clock.time(now), sender, message, present=present)
        self._place(now, self._service.on_message(now, sender, message, after_loss=after_loss, fresh=fresh))

    def _is_latest(self, now: Nanoseconds, sender: Site, incarnation: int) -> bool:
        """Whether this is the sender's latest incarnation; if not, it is refused, and a report tells it so.

        Its messages would look like repetitions of what a later incarnation has sent.
        """
        order = self._order
        known = order.incarnations.get(sender)
        if known == incarnation or order.incarnations.hear(sender, incarnation):
            return True
        self.ignored += 1
        order.expect(sender, max((known or 0, 0), order.streams.get(sender, (0, 0))))
        self._report_sender.note_listener(now, sender, None)
        return False

    def _collide(self, now: Nanoseconds, tag: Tag) -> None:
        """Two messages have one tag. The first known message keeps it; an own message gets another tag."""
        self.collisions += 1
        if tag in self._own.unlocated:
            self._repeat(now)

    def _on_retransmission(self, now: Nanoseconds, by: Site, pdu: Remulticast) -> None:
        """Take a retransmitted body if it is missing here. It says nothing of the channel."""
        time_ns = self._clock.time(now)
        self._recovery.on_retransmission(time_ns, pdu.tag)
        if pdu.tag not in self._order.lost:
            return
        message = pdu.message()
        is_plausible = self._order.incarnations.is_plausible(pdu.sender, pdu.incarnation, self._peers.sites())
        if pdu.sender == self.site:
            count = message.bodies.messages
            is_plausible = self._own.may_have_sent(message.incarnation, message.number, count)
        if not is_plausible or not self._validation.makes_sense(message):
            self.ignored += 1
            self._recovery.on_refused(pdu.tag, by)
            return
        present = self._presence.state is State.PRESENT
        self._validation.take(time_ns, pdu.sender, message, present=present, again=True)
        self._order.connect_as_sent(pdu.tag)
        self._progress(now, time_ns)

    def _on_request(self, now: Nanoseconds, sender: Site, request: Request) -> None:
        lost = unpack_tags(request.lost)
        if lost is None:
            self.ignored += 1
        else:  # also while listening: a body says nothing of the order
            self._on_lost(now, self._clock.time(now), sender, lost)

    def _on_lost(self, now: Nanoseconds, time_ns: Nanoseconds, sender: Site, lost: tuple[Tag, ...]) -> None:
        self._recovery.on_request(now, time_ns, sender, lost)
        if self._recovery.has_gone():
            self._report_sender.urge(now, time_ns)

    def _on_progress(self, now: Nanoseconds, sender: Site, pdu: Progress | Report) -> None:
        """A peer tells its index, and what it holds."""
        self._peers.on_progress(now, sender, pdu.index, self._order.agreement.index)
        self._stability.told(sender, pdu.held, pdu.held_digest)
        if self._presence.state is State.PRESENT:
            if self._quorum.is_needed:
                self._on_word(now, sender, pdu)
            self._stability.settle(now)

    def _on_word(self, now: Nanoseconds, sender: Site, pdu: Progress | Report) -> None:
        """A peer's index and digest may complete a quorum."""
        self._quorum.on_told(sender, pdu.index, pdu.digest)
        if self._order.queue and not self._delivery.lacks_quorum():
            self._progress(now, self._clock.time(now))

    # The member, as its service sees it

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

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

    def is_behind(self, tag: Tag, latest: Tag) -> bool:
        return self._order.is_behind(tag, latest)

    def has_sent(self, site: Site) -> bool:
        return self._order.has_sent(site)

    def lately(self, now: Nanoseconds) -> frozenset[Site]:
        return self._peers.lately(now)

    # Progress

    def _place(self, now: Nanoseconds, placements: Placements) -> None:
        """Apply what the service has found out about the order."""
        if not placements:
            return
        time_ns, present = self._clock.time(now), self._presence.state is State.PRESENT
        channel = self._channel
        for each in placements:
            if isinstance(each, Next):
                is_news = channel.on_message(time_ns, each.tag, contiguous=each.contiguous, present=present)
                if is_news is None:
                    self._flow.overflowed(time_ns)
            else:
                is_news = channel.on_placement(time_ns, each.tag, each.arcs, present=present)
            if is_news:
                self._note_place(now, time_ns, each.tag)

    def _note_place(self, now: Nanoseconds, time_ns: Nanoseconds, tag: Tag) -> None:
        """The channel has news of this message's place."""
        self._report_sender.note_change(now, time_ns)
        if tag in self._own.unlocated:
            self._own.locate(now, time_ns, tag)
        self._progress(now, time_ns)

    def _progress(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Deliver what is certain, and tell this member's progress."""
        if self._presence.state is State.PRESENT:
            delivered = self._stability.index
            self._delivery.deliver(now, time_ns)
            self._report_sender.tell_progress(now)
            if self._stability.index > delivered:
                self._stability.settle(now)

    # Timers

    def _on_timer(self, now: Nanoseconds, name: str) -> None:
        self._timers.fired(name)
        if self._presence.state is State.AWAY:
            return
        if name.startswith(PREFIX):
            self._place(now, self._service.on_timer(now, name))
        elif name == "report":
            self._on_report_timer(now)
        elif name == "deliver":
            self._on_delivery_timer(now)
        elif name == "answer":
            self._recovery.answer(now, self._clock.time(now))
        elif name == "ask":
            self._recovery.ask(now, self._clock.time(now))
        elif name == "tell" and self._presence.state is State.PRESENT:
            self._report_sender.tell_progress(now)
        self._send_waiting(now)

    def _on_delivery_timer(self, now: Nanoseconds) -> None:
        """The delivery timer: cycles may be over."""
        time_ns = self._clock.time(now)
        is_present = self._presence.state is State.PRESENT
        is_first = all(self.site < site for site in self._peers.sites())
        if is_present and self._delivery.must_yield(time_ns, is_first=is_first):
            self._end_spell(now)
            return
        if is_present and self._delivery.commit(time_ns):
            self._report_sender.changed = True
        self._progress(now, time_ns)
        if self._delivery.has_a_hole(now, time_ns):
            self._end_spell(now)

    def _has_to_give_up(self, now: Nanoseconds) -> bool:
        """Tell whether deliveries wait for a quorum; returns whether others show that they wait in vain."""
        if not self._quorum.is_needed:
            return False
        watch = self._cut_off
        watch.look(now, self._peers.heard_since(now - watch.patience_ns), waits=self._delivery.lacks_quorum())
        is_first = all(self.site < site for site in self._peers.sites())
        return watch.is_stuck(now, contradicted=self._quorum.is_contradicted(), is_first=is_first)

    def _on_report_timer(self, now: Nanoseconds) -> None:
        """The report timer: report if due, and expire what has become old."""
        time_ns = self._clock.time(now)
        presence = self._presence
        if presence.state is State.LISTENING and presence.listening.is_alone(now):
            self._take_part(now, ())  # it is alone: go on where it was, or begin an order
        self._flow.tick(time_ns)
        # In a Message_Cycle each member may send one message: as many bodies may leave.
        self._order.kept.expire(time_ns, self._flow.cycle_ns(time_ns) // (1 + len(self._peers.sites())))
        self._order.sweep(time_ns)
        for site in self._peers.expire(now):
            self._flow.forget(time_ns, site)
            self._stability.vanish(now, site)
            self._service.on_vanished(now, site)
        if presence.state is State.PRESENT and self._has_to_give_up(now):
            self._end_spell(now)
        if presence.state is State.PRESENT:
            self._stability.settle(now)
            if not self._peers.known():
                self._own.locate_alone(now, time_ns)
                self._progress(now, time_ns)
            self._recovery.ask_soon(now, time_ns)
        self._report_sender.look(now, time_ns, listening=presence.state is State.LISTENING)

    # Reports

    def _on_report(self, now: Nanoseconds, sender: Site, report: Report, after_loss: bool) -> None:
        lists = read(report)
        if lists is None:
            self.ignored += 1
            return
        is_anew = report.incarnation > self._order.incarnations.get(sender, report.incarnation)
        if not self._is_latest(now, sender, report.incarnation):
            return
        time_ns = self._clock.time(now)
        if is_anew:
            self._on_restarted(time_ns, sender)
        self._order.note_incarnation(sender, report.incarnation)
        self._clock.on_report(now, sender, report.clock_ns)
        self._flow.on_report(time_ns, sender, 0 if report.listening else report.demand_ns)
        self._share.report(time_ns, lists_bytes(report))
        if self._service.reports_ordered:
            self._queue.on_clock(now, sender, report.clock_ns)
        self._place(now, self._service.on_report(now, sender, report, after_loss=after_loss))
        if report.listening:
            self._order.agreement.forget(sender)
            self._report_merge.on_listener(sender)
            self._quorum.forget(sender)
            self._peers.leave(sender, BEGINS_AGAIN)
            self._stability.begins_again(now, sender, self._order.agreement.index, anew=is_anew)
            self._on_listener(now, time_ns, sender, report.index)
        elif self._presence.state is State.LISTENING:
            self._on_progress(now, sender, report)
            self._on_lost(now, time_ns, sender, lists.lost)
            self._report_sender.on_report_while_listening(now, time_ns, sender, helps=bool(report.streams))
            self._on_report_while_listening(now, time_ns, sender, report, lists)
        else:
            ahead = self._order.agreement.ahead_of(report.index, lists.agreed)
            self._peers.align(sender, ahead)
            self._order.keep_up(ahead, report.lead)
            self._on_progress(now, sender, report)
            self._merge(now, time_ns, sender, report, lists)

    def _merge(
        self, now: Nanoseconds, time_ns: Nanoseconds, sender: Site, report: Report, lists: ReportLists
    ) -> None:
        merge = self._report_merge
        is_estranged = self._peers.is_estranged(sender)
        merged = merge.merge(now, time_ns, sender, report, lists, is_estranged=is_estranged)
        if is_estranged and merge.follows(sender):
            self._peers.reconcile(sender)
        self._delivery.on_report(time_ns)
        if merge.is_settling(now, sender):
            merge.compare(sender, report, lists)
            return
        if merge.has_lost_continuity(now) or self._recovery.is_too_late_for(lists.gone):
            merge.compare(sender, report, lists)
            self._end_spell(now)
            return
        for tag in lists.vertices:
            self._order.kept.touch(time_ns, tag)
        self._recovery.on_vertices(lists.vertices)
        self._own.locate_known(now, time_ns)
        if merged.news:
            self._channel.on_news()
        if lists.lost:
            self._on_lost(now, time_ns, sender, lists.lost)
        if lists.passed:
            self._recovery.on_passed(time_ns, sender, lists.passed)
        merge.compare(sender, report, lists)
        index = report.index + max(0, self._order.agreement.ahead_of(report.index, lists.agreed) or 0)
        self._report_sender.on_report(now, time_ns, sender, merged, index, lists)
        self._progress(now, time_ns)

    # Presence

    def _on_start(self, now: Nanoseconds, event: Start) -> None:
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
        self._report_sender.begin(now, self._clock.time(now))

    def _listen(self, now: Nanoseconds) -> None:
        """Begin to listen."""
        time_ns = self._clock.time(now)
        self._presence.listen(now)
        self._timers.clear()
        self._order.forget_graph()
        self._stability.listen(now)
        self._order.kept.refresh(time_ns)
        self._channel.listen()
        self._recovery.listen()
        self._delivery.listen()
        self._quorum.listen()
        self._cut_off.begin(now)
        self._validation.listen()
        self._own.listen()
        self._report_merge.listen()
        self._begin_service(now)
        self._report_sender.urge(now, time_ns)

    def _on_restarted(self, time_ns: Nanoseconds, sender: Site) -> None:
        """Another member has lost its memory. What it delivered and told no other, it delivers once more."""
        message = self._own.old(time_ns)
        if message is not None:
            self._effects.append(Disagreed(sender, FORGETS, self.site, message.number))

    def _on_listener(self, now: Nanoseconds, time_ns: Nanoseconds, sender: Site, index: int) -> None:
        """A member listens before it takes part: it needs reports soon, with what it must know.

        It may hold what was requested here in vain.
        """
        self._report_sender.note_listener(now, sender, index)
        if self._presence.state is State.PRESENT:
            self._recovery.ask_anew()
            self._report_sender.urge(now, time_ns)

    def _on_report_while_listening(
        self, now: Nanoseconds, time_ns: Nanoseconds, sender: Site, report: Report, lists: ReportLists
    ) -> None:
        own = self._own.next()
        if report.streams.get(self.site, own)[0] > own[0]:
            self._on_refusal(sender)
            return
        if self._presence.listening.hear(self._order, now, sender, report, lists):
            streams = self._believable(report.streams)
            if self._report_merge.adopt(time_ns, sender, report, lists, streams):
                self._presence.be_absent()
            self._take_part(now, lists.agreed)

    def _believable(self, streams: dict[Site, Expected]) -> dict[Site, Expected]:
        """The believable part of reported next numbers: no peer knows more of this member than itself."""
        incarnations, present, own = self._order.incarnations, self._peers.sites(), self._own.next()
        return {
            sender: expected
            for sender, expected in streams.items()
            if (
                expected <= own
                if sender == self.site
                else incarnations.is_plausible(sender, expected[0], present)
            )
        }

    def _on_refusal(self, by: Site) -> None:
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
        self._validation.take_part(time_ns)
        self._delivery.take_part()
        self._report_sender.begin_spell(now)
        self._progress(now, time_ns)
        self._send_waiting(now)

    def _end_spell(self, now: Nanoseconds) -> None:
        """This member has missed too much: its spell is over, and the next begins."""
        self._presence.be_absent()
        self._listen(now)

    def _on_standstill(self, now: Nanoseconds) -> None:
        """This process was stopped for too long: the others have continued without it."""
        if self._presence.state is State.PRESENT:
            self._end_spell(now)
        elif self._presence.state is State.LISTENING:
            self._listen(now)

    def _on_departed(self, now: Nanoseconds) -> None:
        if self._presence.state is State.AWAY:
            return
        self._place(now, self._service.depart(now))
        if self._presence.state is State.PRESENT:
            # What only this member knows would be lost.
            self._report_sender.report(now, self._clock.time(now), listening=False)
        self._presence.be_absent()  # only now: the service's last placements may have brought deliveries
        self._effects.append(Multicast(Farewell(self._own.incarnation, self._service.note(now))))
        self._presence.leave()
        self._handled_ns = None
