"""This member's own messages: admitted if there is room, multicast, and delivered here once they are safe."""

from typing import Final

from antiphon.core.effects import Admitted, Multicast, Rejected
from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.protocol import PeerReport
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.group import Group, Peer
from antiphon.protocols.fifo.pdus import Copy, Data, RidingData
from antiphon.protocols.fifo.presence import Presence
from antiphon.protocols.fifo.schedule import HEARTBEAT
from antiphon.protocols.fifo.stability import Stability
from antiphon.protocols.fifo.streams import MOST_KEPT
from antiphon.protocols.probe import Probe

REPEAT: Final = "repeat"
ANNOUNCE: Final = "announce"
"""Fires at the end of a block."""
ALLOWANCE: Final = "allowance"
"""Fires when a member that keeps a rate may send again."""
BURST_NS: Final = 10 * MILLISECOND_NS
"""The burst of a member that keeps a rate: what the rate allows in this time. Raising it costs queues."""
ROW_SHARE: Final = 20
"""In a large group a batch carries our positions if it is this many times as long. Raising it costs separate
acknowledgements, lowering it bytes."""
MOST_REPEATED: Final = 16
"""Batches that one timer repeats, the oldest first. Raising it costs bursts of copies."""


class Allowance:
    """The bytes that a member that keeps a rate may multicast now: a bucket that fills at that rate."""

    def __init__(self, bytes_s: float) -> None:
        self._bytes_s = bytes_s
        self._free_ns: Nanoseconds = 0
        """When everything that was sent has passed at the rate."""

    def has_room(self, now: Nanoseconds) -> bool:
        """Whether less than a burst is ahead of the rate."""
        return self.wait_ns(now) == 0

    def wait_ns(self, now: Nanoseconds) -> Nanoseconds:
        """How long until there is room."""
        return max(0, self._free_ns - now - BURST_NS)

    def spend(self, now: Nanoseconds, weight: int) -> None:
        self._free_ns = max(now, self._free_ns) + round(weight * SECOND_NS / self._bytes_s)


class Sending:
    """Admission, flow control and, with `acknowledge`, repetition."""

    def __init__(self, context: Context, group: Group, presence: Presence, stability: Stability) -> None:
        self._context = context
        self._group = group
        self._presence = presence
        self._stability = stability
        configuration = context.configuration
        self._waits = configuration.others_keep
        self._repeats = configuration.repair == "acknowledge"
        self._announce_ns = configuration.announce_ns if configuration.announces else None
        conduct = configuration.conduct
        self._bare = conduct.acknowledgements == "late"
        self._block_bytes = conduct.block_bytes
        self._block_left = conduct.block_bytes or 0
        self._allowance = None if conduct.most_bytes_s is None else Allowance(conduct.most_bytes_s)
        self._probe = Probe()
        self._held_up = False
        """Whether the last admission was refused because the group is behind."""
        self._slowest = 0
        """No member of the view is behind this position; refreshed when the window seems full."""

    def admit(self, now: Nanoseconds, bodies: Packed) -> None:
        context, own, view = self._context, self._group.own, self._group.view
        reason = self._reason_to_refuse(now, bodies)
        self._held_up = reason is not None and self._presence.taking_part
        if reason is not None:
            context.emit(Rejected(reason))
            return
        number = own.add(now, bodies)
        if self._allowance is not None:
            self._allowance.spend(now, bodies.weight)
        self._probe.sent(now, own.expected)
        effects = context.effects
        effects.append(Admitted(number, len(bodies), bodies.size))
        stability = self._stability
        stability.fresh_bytes += bodies.weight
        if len(view.pairs) > 1:
            effects.append(Multicast(self._make(now, number, bodies)))
            if self._announce_ns is not None:
                context.timers.arm(now, HEARTBEAT, self._announce_ns)
            if self._block_bytes is not None:
                self._count_block(now, bodies.weight, self._block_bytes)
        if len(view.pairs) == 1 or not self._waits:
            stability.deliver_own(own.expected)
        if self._repeats:
            own.repaired[number] = (now + context.configuration.repair_ns, context.site)
            context.timers.arm(now, REPEAT, context.configuration.repair_ns)
        if stability.needs_timer:
            stability.arm(now)
        if stability.fresh_bytes > stability.check_bytes:
            stability.check(now)

    def _count_block(self, now: Nanoseconds, weight: int, block_bytes: int) -> None:
        """Announce the end of a block, although more may follow."""
        self._block_left -= weight
        if self._block_left <= 0:
            self._block_left = block_bytes
            self._context.timers.arm(now, ANNOUNCE, 1)

    def _make(self, now: Nanoseconds, number: int, bodies: Packed) -> Data | RidingData:
        """The PDU of a batch, with our positions if they are a small part of it."""
        incarnation, view, row = self._context.incarnation, self._group.view, self._stability.row
        if row is not None:
            pdu: Data | RidingData = RidingData(incarnation, number, view.number, row(view.held()), bodies)
        elif self._bare or (self._group.pace.is_large and view.bytes * ROW_SHARE > bodies.size):
            return Data(incarnation, number, view.number, b"", bodies)
        else:
            pdu = Data(incarnation, number, view.number, view.packer.pack(*view.held()), bodies)
        self._note_acknowledged(now)
        return pdu

    def _reason_to_refuse(self, now: Nanoseconds, bodies: Packed) -> str | None:
        """Why a batch is refused now. A batch that exceeds a limit by itself is taken when it is alone."""
        own, configuration = self._group.own, self._context.configuration
        if not self._presence.taking_part:
            return "This member does not take part yet."
        full = own.kept_bytes + bodies.weight > configuration.retain_bytes or len(own.kept) >= MOST_KEPT // 2
        if own.kept and full:
            self._context.counts["refused"] += 1
            return "As much as may be retained is not stable yet."
        if self._allowance is not None and not self._allowance.has_room(now):
            self._context.timers.arm(now, ALLOWANCE, self._allowance.wait_ns(now))
            return "This member has reached its rate for now."
        window_bytes = configuration.window_bytes - bodies.weight
        if own.bytes_beyond(self._slowest) > max(0, window_bytes):
            self._slowest = self._find_slowest()
            if own.bytes_beyond(self._slowest) > max(0, window_bytes):
                return "The slowest member is as far behind as the window allows."
        return None

    def _note_acknowledged(self, now: Nanoseconds) -> None:
        """A message of ours carries our positions to every member that sees the same view."""
        number = self._group.view.number
        for peer in self._group.peers.values():
            if peer.view == number:
                stream = peer.stream
                stream.acknowledged = stream.expected
                stream.acknowledged_ns = now
                stream.unacknowledged_bytes = 0

    def _find_slowest(self) -> int:
        """The least position in our own messages of any member of the view."""
        return min((peer.acked for peer in self._group.in_view()), default=self._group.own.expected)

    # Acknowledgements

    def on_acknowledged(self, now: Nanoseconds, peer: Peer, position: int) -> None:
        """A member holds our messages below a position."""
        own = self._group.own
        if position <= peer.acked or not own.begins_at(position):
            return
        peer.acked = position
        peer.progress_ns = now
        if peer.probed != self._probe.serial:
            self._measure_round_trip(now, peer)
        if position > own.delivered and peer.in_view:
            # One more member of the view holds it, so that our crash cannot take it along.
            self._stability.deliver_own(position)

    def _measure_round_trip(self, now: Nanoseconds, peer: Peer) -> None:
        round_trip_ns = self._probe.held(now, peer.probed, peer.acked)
        if round_trip_ns is not None:
            peer.probed, peer.round_trip_ns = self._probe.serial, round_trip_ns

    def reports(self) -> dict[Site, PeerReport]:
        """How far each member of the view is behind, and whether our sending waits for it."""
        own = self._group.own
        members = [peer for peer in list(self._group.peers.values()) if peer.in_view]
        slowest = min((peer.acked for peer in members), default=own.expected)
        return {
            peer.site: PeerReport(
                own.expected - peer.acked, peer.heard_ns, peer.round_trip_ns, peer.asked,
                self._held_up and peer.acked == slowest < own.expected,
            )
            for peer in members
        }  # fmt: skip

    def on_view(self, now: Nanoseconds) -> None:
        """A new view has begun: its new members acknowledge everything that is not stable."""
        own = self._group.own
        self._slowest = own.stable
        acked = [peer.acked for peer in self._group.in_view()]
        self._stability.deliver_own(max(acked, default=own.expected))
        if self._repeats and own.kept:
            self._context.timers.arm(now, REPEAT, self._context.configuration.repair_ns)

    def fire(self, now: Nanoseconds) -> None:
        """With `acknowledge`: multicast again what a member of the view has not acknowledged in time."""
        context, own = self._context, self._group.own
        slowest = self._find_slowest()
        if slowest >= own.expected:
            return
        pause_ns = context.configuration.repair_ns
        repeated = 0
        for number, bodies in own.kept.items():
            due_ns, _ = own.repaired.get(number, (now, context.site))
            if number < slowest or due_ns > now:
                continue
            own.repaired[number] = (now + pause_ns, context.site)
            context.emit(Multicast(Copy(context.site, context.incarnation, number, bodies)))
            context.counts["copies"] += 1
            repeated += 1
            if repeated == MOST_REPEATED:
                break
        context.timers.arm(now, REPEAT, pause_ns)
