"""One member: hands each input to the part that it concerns, and does the usual thing itself."""

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
from antiphon.protocols.detection import PDUS as DETECTION_PDUS
from antiphon.protocols.fifo import errors
from antiphon.protocols.fifo.catching_up import HISTORY, CatchUp
from antiphon.protocols.fifo.errors import DETECT, Errors
from antiphon.protocols.fifo.history import NO_HISTORY, HistoryRole, Keeper
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
    Status,
)
from antiphon.protocols.fifo.presence import HEARTBEAT
from antiphon.protocols.fifo.reception import ACKNOWLEDGE, RECENT, Reception
from antiphon.protocols.fifo.release import LAYER, ROUND, Release
from antiphon.protocols.fifo.repair import ANSWER, REPAIR, Repair
from antiphon.protocols.fifo.sending import REPEAT, Sending
from antiphon.protocols.fifo.state import COUNT, Peer, State
from antiphon.protocols.fifo.streams import MOST_KEPT
from antiphon.protocols.fifo.watching import DETECTOR
from antiphon.protocols.stability import PDUS as STABILITY_PDUS

LAYER_PDUS: Final = frozenset(STABILITY_PDUS)
DETECTOR_PDUS: Final = frozenset(DETECTION_PDUS)
WITNESS_SHARE: Final = 8
"""The witness acknowledges at once, but no oftener than this many times in an acknowledgement's time."""


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
        self._state = state = State(site, configuration, random)
        self._repair = Repair(state)
        self._errors = Errors(state, self._repair)
        self._release = Release(state, self._errors)
        self._sending = Sending(state, self._release)
        self._reception = Reception(state, self._release, self._repair)
        self._membership = Membership(state, self._release, self._sending, self._reception, self._repair)
        self._history = history
        self._catch_up = CatchUp(state, self._membership.spells)
        self._keeper = Keeper(state, self._catch_up.receive) if history.keeps else None
        self._catch_up.keeper = self._keeper
        self._started = False
        self._keeps = configuration.others_keep
        self._tell_bytes = configuration.tell_bytes
        self._most_kept = 2 * configuration.retain_bytes
        self._active_ns = RECENT * configuration.acknowledge_ns
        self._witness_ns = configuration.acknowledge_ns // WITNESS_SHARE

    @property
    def ignored(self) -> int:
        """How many PDUs made no sense and were dropped."""
        return self._state.counts["ignored"]

    def incarnation_of(self, site: Site) -> int:
        """The latest incarnation under which a site itself has spoken, as far as it is remembered."""
        state = self._state
        if site == state.site:
            return state.incarnation
        peer = state.peers.get(site)
        return max(0 if peer is None else peer.incarnation, state.forgotten.get(site, 0))

    def peers(self, _now: Nanoseconds) -> dict[Site, PeerReport]:
        """How far the others are behind in our own messages, and for whom our sending waits."""
        return self._sending.reports()

    def figures(self) -> dict[str, int]:
        """What a driver may show: how often what happened, and how much is kept."""
        state = self._state
        kept = [state.own, *state.streams()]
        return {
            **state.counts,
            **self._release.figures(),
            "kept_bytes": sum(stream.kept_bytes for stream in kept),
            "held_back_bytes": self._catch_up.held_back_bytes,
        }

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        state = self._state
        if type(event) is Received:
            if type(event.pdu) is Data:
                self._on_data(now, event.sender, event.pdu)
            else:
                self._receive(now, event.sender, event.pdu)
        elif type(event) is TimerFired:
            self._fire(now, event.name)
        elif type(event) is Admit:
            self._check_admission(event)
            if self._catch_up.watching and self._catch_up.is_full:
                state.effects.append(Rejected("History is still on its way."))
            else:
                self._sending.admit(now, pack(event.bodies))
        else:
            self._other_input(now, event)
        effects, state.effects = state.effects, []
        return self._catch_up.sift(now, effects) if self._catch_up.watching else effects

    def _other_input(self, now: Nanoseconds, event: Input) -> None:
        membership = self._membership
        match event:
            case Start():
                if self._started:
                    raise UsageError("This member has started already.")
                self._started = True
                if self._history.catches_up and event.incarnation:
                    self._catch_up.want(returning=event.returning, delivered=event.delivered)
                membership.start(now, event, self._members)
            case Departed():
                membership.depart()
                if self._keeper is not None:
                    self._keeper.reset()
            case Returned():
                membership.come_back(now)
            case Suspected(site=site):
                membership.suspect(now, site)
            case Restored(site=site):
                membership.restore(now, site)
            case RoundTriggered():
                self._release.begin_round(now)
            case Recalled():
                if self._keeper is not None:
                    self._keeper.recalled(now, event)
            case HasRoom():
                self._catch_up.has_room(now)

    def _check_admission(self, event: Admit) -> None:
        if not self._started:
            raise UsageError("A member takes messages only after its start.")
        if not event.bodies:
            raise UsageError("There is nothing to multicast: no body was handed in.")
        if event.destinations is not None or event.group is not None:
            raise UsageError("This protocol multicasts to its whole group only.")

    # The usual thing: the next batch of a member that is known. Everything here is done for each PDU.

    def _on_data(self, now: Nanoseconds, sender: Site, pdu: Data) -> None:
        state = self._state
        peer = state.peers.get(sender)
        if peer is None or pdu.incarnation != peer.incarnation:
            self._on_stranger(now, peer, pdu)
            return
        peer.heard_ns = now
        view = state.view
        peer.view = pdu.view
        if pdu.view == view.number and len(pdu.held) == view.bytes:
            (position,) = COUNT.unpack_from(pdu.held, view.offset)
            if position > peer.acked:
                self._sending.acknowledged(now, peer, position)
        stream, number, bodies = peer.stream, pdu.number, pdu.bodies
        usual = number == stream.expected and stream.begun and state.taking_part
        full = stream.kept_bytes > self._most_kept or len(stream.kept) >= MOST_KEPT
        if not usual or full or stream.ahead or stream.limit is not None:
            self._reception.hear(now, peer.newest, number, bodies)
            return
        count, weight = len(bodies), bodies.weight
        stream.expected = number + count
        if stream.expected > stream.end:
            stream.end = stream.expected
        if self._keeps:
            stream.kept[number] = bodies
            stream.kept_bytes += weight
        stream.untold_bytes += weight
        state.effects += (
            Arrived(sender, number, count),
            Deliver(sender, number, bodies, None, pdu.incarnation),
        )
        if stream.untold_bytes >= self._tell_bytes or self._witnesses(now, peer):
            self._reception.tell(now, stream)
        elif ACKNOWLEDGE not in state.armed:
            state.arm(now, ACKNOWLEDGE, state.configuration.acknowledge_ns)
        release = self._release
        release.fresh_bytes += weight
        if release.wakeful:
            release.wake(now)
        if release.fresh_bytes > release.due_bytes:
            release.hurry(now)

    def _witnesses(self, now: Nanoseconds, peer: Peer) -> bool:
        """Whether the sender waits for our word before all, and nothing of ours is about to tell it."""
        if not self._keeps or now - self._state.own.sent_ns < self._active_ns:
            return False
        return self._state.view.witnessed == peer.site and now - peer.stream.told_ns >= self._witness_ns

    def _on_stranger(self, now: Nanoseconds, peer: Peer | None, pdu: Data) -> None:
        """A batch of someone whom we have not met, or not in this incarnation; once met, it is repaired."""
        if peer is None or pdu.incarnation > peer.incarnation:
            # If he hears that we are here, he will say who he is.
            self._membership.herald.soon(now)

    # Everything else

    def _receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        state = self._state
        if sender == state.site:
            state.ignore()
        elif type(pdu) is RidingData:
            self._on_riding_data(now, sender, pdu)
        elif type(pdu) is Position:
            self._on_position(now, sender, pdu)
        elif type(pdu) is Status:
            self._membership.receive(now, sender, pdu)
        elif type(pdu) in LAYER_PDUS:
            self._release.receive(now, sender, pdu)
            self._acknowledged_by_row(now, sender)
        elif type(pdu) is Copy:
            self._reception.repeated(now, sender, pdu)
        elif type(pdu) is Ask:
            if not self._repair.asked(now, sender, pdu):
                self._membership.herald.tell(now, sender)
        elif type(pdu) in DETECTOR_PDUS:
            self._membership.detect(now, sender, pdu)
        elif type(pdu) is Leaving:
            self._membership.leave(now, sender, pdu)
        elif type(pdu) is Inquire or type(pdu) is Fetch:
            if self._keeper is not None:
                self._keeper.asked(sender, pdu)
        elif type(pdu) is Offer or type(pdu) is Chunk:
            self._catch_up.receive(now, sender, pdu)
        else:
            state.ignore()

    def _on_riding_data(self, now: Nanoseconds, sender: Site, pdu: RidingData) -> None:
        """A batch that carries a row of another form."""
        state, riding = self._state, self._release.riding
        peer = state.peers.get(sender)
        known = peer is not None and peer.incarnation == pdu.incarnation
        if known and riding is not None and pdu.view == state.view.number:
            if riding.hear(sender, pdu.row):
                self._acknowledged_by_row(now, sender)
            else:
                state.ignore()
        self._on_data(now, sender, Data(pdu.incarnation, pdu.number, pdu.view, b"", pdu.bodies))

    def _acknowledged_by_row(self, now: Nanoseconds, sender: Site) -> None:
        """What a member's row says of our own messages."""
        peer, riding = self._state.peers.get(sender), self._release.riding
        if peer is not None and riding is not None:
            self._sending.acknowledged(now, peer, riding.held_by(sender))

    def _on_position(self, now: Nanoseconds, sender: Site, pdu: Position) -> None:
        state = self._state
        peer = state.peers.get(sender)
        if peer is None or pdu.incarnation != peer.incarnation or pdu.stream != state.incarnation:
            return
        peer.heard_ns = now
        self._sending.acknowledged(now, peer, pdu.held)

    def _fire(self, now: Nanoseconds, name: str) -> None:
        self._state.armed.pop(name, None)
        if name == ACKNOWLEDGE:
            self._reception.fire(now)
        elif name == ROUND or name.startswith(LAYER):
            self._release.fire(now, name)
        elif name == DETECT or name.startswith(errors.LAYER):
            self._errors.fire(now, name)
        elif name == HEARTBEAT:
            self._membership.tick(now)
        elif name == REPAIR:
            self._repair.fire(now)
        elif name == ANSWER:
            self._repair.answer(now)
        elif name == REPEAT:
            self._sending.repeat(now)
        elif name == SETTLE:
            self._membership.settle(now)
        elif name.startswith(DETECTOR):
            self._membership.watch(now, name)
        elif name == HISTORY:
            self._catch_up.fire(now)
