"""One member: hands each input to the part that handles it, and takes the next batch in order itself."""

from collections.abc import Sequence
from random import Random
from typing import Final

from antiphon.core.effects import Arrived, Deliver, Effect, Rejected
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import (
    Admit,
    Departed,
    HasRoom,
    Input,
    Recalled,
    Received,
    Restored,
    Returned,
    RoundTriggered,
    Start,
    Suspected,
    TimerFired,
)
from antiphon.core.packing import pack
from antiphon.core.protocol import PeerReport
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.admission import check_admission
from antiphon.protocols.detection import PDUS as DETECTION_PDUS
from antiphon.protocols.fifo import error_detection
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.error_detection import DETECT, ErrorDetection
from antiphon.protocols.fifo.failure_detection import DETECTOR
from antiphon.protocols.fifo.group import COUNT, Group, Peer
from antiphon.protocols.fifo.history import NO_HISTORY, HistoryRole
from antiphon.protocols.fifo.history_reader import HISTORY, HistoryReader
from antiphon.protocols.fifo.keepalive import ALIVE
from antiphon.protocols.fifo.membership import SETTLE, Membership
from antiphon.protocols.fifo.pdus import (
    Ask,
    Chunk,
    Copy,
    Data,
    Fetch,
    FifoConfiguration,
    Inquire,
    Leaving,
    Offer,
    Position,
    RidingData,
    Sign,
    Status,
)
from antiphon.protocols.fifo.presence import Presence
from antiphon.protocols.fifo.reception import ACKNOWLEDGE, RECENT, Reception
from antiphon.protocols.fifo.repair import ANSWER, PASS, REPAIR, Repair
from antiphon.protocols.fifo.schedule import HEARTBEAT, StatusSchedule
from antiphon.protocols.fifo.sending import ANNOUNCE, REPEAT, Sending
from antiphon.protocols.fifo.stability import LAYER, ROUND, Stability
from antiphon.protocols.fifo.streams import MOST_KEPT
from antiphon.protocols.stability import PDUS as STABILITY_PDUS

LAYER_PDUS: Final = frozenset(STABILITY_PDUS)
DETECTOR_PDUS: Final = frozenset(DETECTION_PDUS)
WITNESS_SHARE: Final = 8
"""Times that a witness may acknowledge within `acknowledge_ns`. Raising it costs PDUs, and saves latency."""


class Fifo:
    """One member of the group; implements `antiphon.core.protocol.Protocol`."""

    def __init__(
        self,
        site: Site,
        members: Sequence[Site],
        configuration: FifoConfiguration,
        random: Random,
        *,
        history: HistoryRole = NO_HISTORY,
    ) -> None:
        if len(set(members)) != len(members):
            raise UsageError("A site stands twice among the members.")
        self._members = tuple(members)
        self._context = context = Context(site, configuration, random)
        self._timers_due = context.timers.due_ns
        self._group = group = Group(context)
        self._schedule = StatusSchedule(context, group)
        self._presence = presence = Presence(context, self._schedule)
        self._repair = Repair(context, group)
        self._errors = ErrorDetection(context, group, self._repair)
        self._stability = Stability(context, group, presence, self._errors)
        self._sending = Sending(context, group, presence, self._stability)
        self._reception = Reception(context, group, presence, self._stability, self._repair)
        self._membership = Membership(
            context, group, presence, self._schedule, self._stability, self._sending, self._reception,
            self._repair,
        )  # fmt: skip
        self._catches_up = history.catches_up
        self._history = HistoryReader(context, group, presence, serves=history.keeps)
        self._started = False
        self._keeps = configuration.others_keep
        self._acknowledge_bytes = configuration.acknowledge_bytes
        self._most_kept = 2 * configuration.retain_bytes
        self._active_ns = RECENT * configuration.acknowledge_ns
        self._witness_ns = configuration.acknowledge_ns // WITNESS_SHARE

    @property
    def ignored(self) -> int:
        """PDUs that made no sense and were dropped."""
        return self._context.counts["ignored"]

    def incarnation_of(self, site: Site) -> int:
        """The latest incarnation under which a site itself has spoken, as far as that is remembered."""
        context = self._context
        return context.incarnation if site == context.site else self._group.incarnation_of(site)

    def peers(self, _now: Nanoseconds) -> dict[Site, PeerReport]:
        """How far the others are behind in our own messages, and for which of them our sending waits."""
        return self._sending.reports()

    def figures(self) -> dict[str, int]:
        """What a driver may show: counts of events, and how much is kept."""
        kept = [self._group.own, *self._group.streams()]
        return {
            **self._context.counts,
            **self._stability.figures(),
            "kept_bytes": sum(stream.kept_bytes for stream in kept),
            "held_back_bytes": self._history.held_back_bytes,
        }

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        if type(event) is Received:
            if type(event.pdu) is Data:
                self._on_data(now, event.sender, event.pdu)
            else:
                self._receive(now, event.sender, event.pdu)
        elif type(event) is TimerFired:
            self._fire(now, event.name)
        elif type(event) is Admit:
            check_admission(event, started=self._started, to_all="This protocol")
            if self._history.filters and self._history.is_full:
                self._context.emit(Rejected("History is still on its way."))
            else:
                self._sending.admit(now, pack(event.bodies))
        else:
            self._handle_rare(now, event)
        context = self._context
        effects, context.effects = context.effects, []
        return self._history.filter(now, effects) if self._history.filters else effects

    def _handle_rare(self, now: Nanoseconds, event: Input) -> None:
        membership = self._membership
        match event:
            case Start():
                if self._started:
                    raise UsageError("This member has started already.")
                self._started = True
                if self._catches_up and event.incarnation:
                    self._history.start(returning=event.returning, delivered=event.delivered)
                membership.start(now, event, self._members)
            case Departed():
                membership.depart()
                if self._history.server is not None:
                    self._history.server.reset()
            case Returned():
                membership.resume(now)
            case Suspected(site=site):
                membership.suspect(now, site)
            case Restored(site=site):
                membership.restore(now, site)
            case RoundTriggered():
                self._stability.begin_round(now)
            case Recalled():
                if self._history.server is not None:
                    self._history.server.answer(now, event)
            case HasRoom():
                self._history.has_room(now)

    # The usual case: the next batch of a known member. Everything here is done for each PDU.

    def _on_data(self, now: Nanoseconds, sender: Site, pdu: Data) -> None:
        group = self._group
        peer = group.peers.get(sender)
        if peer is None or pdu.incarnation != peer.incarnation:
            self._on_unknown_incarnation(now, peer, pdu)
            return
        peer.heard_ns = now
        view = group.view
        peer.view = pdu.view
        if pdu.view == view.number and len(pdu.held) == view.bytes:
            (position,) = COUNT.unpack_from(pdu.held, view.offset)
            if position > peer.acked:
                self._sending.on_acknowledged(now, peer, position)
        stream, number, bodies = peer.stream, pdu.number, pdu.bodies
        usual = number == stream.expected and stream.begun and self._presence.taking_part
        full = stream.kept_bytes > self._most_kept or len(stream.kept) >= MOST_KEPT
        if not usual or full or stream.ahead or stream.limit is not None:
            self._reception.on_message(now, peer.newest, number, bodies)
            return
        count, weight = len(bodies), bodies.weight
        stream.expected = number + count
        if stream.expected > stream.end:
            stream.end = stream.expected
        if self._keeps:
            stream.kept[number] = bodies
            stream.kept_bytes += weight
        stream.unacknowledged_bytes += weight
        self._context.effects += (
            Arrived(sender, number, count),
            Deliver(sender, number, bodies, None, pdu.incarnation),
        )
        if stream.unacknowledged_bytes >= self._acknowledge_bytes or self._witnesses(now, peer):
            self._reception.acknowledge(now, stream)
        elif ACKNOWLEDGE not in self._timers_due:
            self._context.timers.arm(now, ACKNOWLEDGE, group.pace.acknowledge_ns)
        stability = self._stability
        stability.fresh_bytes += weight
        if stability.needs_timer:
            stability.arm(now)
        if stability.fresh_bytes > stability.check_bytes:
            stability.check(now)

    def _witnesses(self, now: Nanoseconds, peer: Peer) -> bool:
        """Whether the sender waits for our acknowledgement, and no message of ours will carry it soon."""
        if not self._keeps or now - self._group.own.sent_ns < self._active_ns:
            return False
        witnessed = self._group.view.witnessed == peer.site
        return witnessed and now - peer.stream.acknowledged_ns >= self._witness_ns

    def _on_unknown_incarnation(self, now: Nanoseconds, peer: Peer | None, pdu: Data) -> None:
        """A batch of a member, or an incarnation, without a status yet. It is repaired once we have that."""
        if peer is None or pdu.incarnation > peer.incarnation:
            # Our status makes its sender answer with its own.
            self._schedule.soon(now)

    # Everything else

    def _receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        if sender == self._context.site:
            self._context.ignore()
        elif type(pdu) is RidingData:
            self._on_riding_data(now, sender, pdu)
        elif type(pdu) is Position:
            self._on_position(now, sender, pdu)
        elif type(pdu) is Sign:
            self._membership.on_alive(now, sender, pdu)
        elif type(pdu) is Status:
            self._membership.on_status(now, sender, pdu)
        elif type(pdu) in LAYER_PDUS:
            self._stability.on_pdu(now, sender, pdu)
            self._on_row(now, sender)
        elif type(pdu) is Copy:
            self._reception.on_copy(now, sender, pdu)
        elif type(pdu) is Ask:
            if not self._repair.on_ask(now, sender, pdu):
                self._membership.send_status(now, sender)
        elif type(pdu) in DETECTOR_PDUS:
            self._membership.on_detector_pdu(now, sender, pdu)
        elif type(pdu) is Leaving:
            self._membership.on_leaving(now, sender, pdu)
        elif type(pdu) is Inquire or type(pdu) is Fetch:
            if self._history.server is not None:
                self._history.server.on_request(sender, pdu)
        elif type(pdu) is Offer or type(pdu) is Chunk:
            self._history.on_answer(now, sender, pdu)
        else:
            self._context.ignore()

    def _on_riding_data(self, now: Nanoseconds, sender: Site, pdu: RidingData) -> None:
        """A batch that carries a row of another form."""
        group, riding = self._group, self._stability.riding
        peer = group.peers.get(sender)
        known = peer is not None and peer.incarnation == pdu.incarnation
        if known and riding is not None and pdu.view == group.view.number:
            if riding.on_row(sender, pdu.row):
                self._on_row(now, sender)
            else:
                self._context.ignore()
        self._on_data(now, sender, Data(pdu.incarnation, pdu.number, pdu.view, b"", pdu.bodies))

    def _on_row(self, now: Nanoseconds, sender: Site) -> None:
        """What a member's row says of our own messages."""
        peer, held = self._group.peers.get(sender), self._stability.held_by(sender)
        if peer is not None and held is not None:
            self._sending.on_acknowledged(now, peer, held)

    def _on_position(self, now: Nanoseconds, sender: Site, pdu: Position) -> None:
        peer = self._group.peers.get(sender)
        if peer is None or pdu.incarnation != peer.incarnation or pdu.stream != self._context.incarnation:
            return
        peer.heard_ns = peer.hears_us_ns = now
        self._sending.on_acknowledged(now, peer, pdu.held)

    def _fire(self, now: Nanoseconds, name: str) -> None:
        self._context.timers.fired(name)
        if name == ACKNOWLEDGE:
            self._reception.fire(now)
        elif name == ROUND or name.startswith(LAYER):
            self._stability.fire(now, name)
        elif name == DETECT or name.startswith(error_detection.LAYER):
            self._errors.fire(now, name)
        elif name == ALIVE:
            self._membership.fire_alive(now)
        elif name == HEARTBEAT:
            self._membership.fire_heartbeat(now)
        elif name == REPAIR:
            self._repair.fire(now)
        elif name == ANSWER:
            self._repair.fire_answers(now)
        elif name == REPEAT:
            self._sending.fire(now)
        elif name == ANNOUNCE or (name == PASS and self._repair.fire_pass()):
            self._membership.fire_announce(now)
        elif name == SETTLE:
            self._membership.fire_settle(now)
        elif name.startswith(DETECTOR):
            self._membership.fire_detector(now, name)
        elif name == HISTORY:
            self._history.fire(now)
