"""Receiving the messages of others: in order, delivered and acknowledged; batches beyond a gap wait."""

from typing import Final

from antiphon.core.effects import Arrived, Deliver, Send
from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.ids import Site
from antiphon.core.packing import Packed, pack
from antiphon.core.time import Nanoseconds
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.group import Group, Peer
from antiphon.protocols.fifo.pdus import Copy, Position
from antiphon.protocols.fifo.presence import Presence
from antiphon.protocols.fifo.repair import Repair
from antiphon.protocols.fifo.stability import Stability
from antiphon.protocols.fifo.streams import MOST_KEPT, Stream

ACKNOWLEDGE: Final = "acknowledge"
RECENT: Final = 4
"""A member that has multicast within this many acknowledgement times is expected to do so again. Raising it
costs later acknowledgements at the end of a burst."""


class Reception:
    """Takes every batch but the usual one, which `Fifo` takes itself."""

    def __init__(
        self, context: Context, group: Group, presence: Presence, stability: Stability, repair: Repair
    ) -> None:
        self._context = context
        self._group = group
        self._presence = presence
        self._stability = stability
        self._repair = repair
        self._keeps = context.configuration.others_keep
        # With `acknowledge` a sender repeats what is not acknowledged in time, so nothing is put off.
        self._puts_off = context.configuration.repair != "acknowledge"

    def on_message(self, now: Nanoseconds, stream: Stream, number: int, bodies: Packed) -> None:
        """A batch from its sender."""
        self.receive(now, stream, number, bodies)
        stream.announced = max(stream.announced, min(stream.end, number + len(bodies)))

    def receive(self, now: Nanoseconds, stream: Stream, number: int, bodies: Packed) -> None:
        """A batch of a stream that is followed, from any member, in any order."""
        if stream.begun and number < stream.expected < number + len(bodies):
            # Another member has cut these messages into other batches; take the part that is missing.
            number, bodies = stream.expected, _tail(bodies, stream.expected - number)
        limit = stream.limit
        wanted = stream.begun and stream.expected <= number and (limit is None or number < limit)
        if not wanted or not self._has_room(stream):
            return
        if not stream.put_ahead(number, bodies, 2 * self._context.configuration.window_bytes):
            return
        self._presence.tell(Arrived(stream.site, number, len(bodies)))
        self.advance(now, stream)
        if stream.expected < stream.missing_to:
            self._repair.on_gap(now, stream)

    def _has_room(self, stream: Stream) -> bool:
        """Whether bounds are kept that an honest sender never exceeds."""
        most_bytes = 2 * self._context.configuration.retain_bytes
        room = stream.kept_bytes <= most_bytes and len(stream.kept) < MOST_KEPT
        return room and self._presence.has_room(most_bytes, MOST_KEPT)

    def advance(self, now: Nanoseconds, stream: Stream) -> None:
        """Deliver what follows on what is held; a later incarnation's messages wait for their turn."""
        if self._group.peers[stream.site].stream is not stream:
            return
        before = stream.expected
        while (bodies := stream.next_ahead()) is not None:
            number = stream.expected
            stream.take(number, bodies, keep=self._keeps)
            self._stability.fresh_bytes += bodies.weight
            self._presence.tell(Deliver(stream.site, number, bodies, None, stream.incarnation))
        if stream.expected == before:
            return
        if stream.ahead:
            # Only batches that do not fit one another, which no honest sender makes, leave any of these.
            stream.drop_ahead(stream.expected, NUMBER_LIMIT)
        self._repair.on_progress(now, stream)
        self._acknowledge_soon(now, stream)
        if self._stability.needs_timer:
            self._stability.arm(now)

    def on_copy(self, now: Nanoseconds, sender: Site, copy: Copy) -> None:
        """A repeated batch, from its sender or from a member that keeps it."""
        stream = self._group.find_stream(copy.site, copy.incarnation)
        if stream is None:
            return
        if sender != copy.site and not self._may_repeat(now, stream, copy):
            self._context.ignore()
            return
        self._repair.on_copy(now, stream, copy)
        if stream is not self._group.own:
            if stream.begun and copy.number >= stream.expected:
                self._context.counts["repaired"] += 1
            take = self.on_message if sender == copy.site else self.receive
            take(now, stream, copy.number, copy.bodies)

    def _may_repeat(self, now: Nanoseconds, stream: Stream, copy: Copy) -> bool:
        """Whether a member may repeat another's batch: only as far as the sender has announced, if it can.

        If the sender is gone, as far as members of the view report to hold its messages.
        """
        group, end = self._group, copy.number + len(copy.bodies)
        if not self._keeps or stream is group.own:
            return self._keeps
        speaks = group.speaks_for_itself(now, group.peers[copy.site], copy.incarnation)
        return end <= (stream.seen if speaks else stream.missing_to)

    # Acknowledgements

    def _acknowledge_soon(self, now: Nanoseconds, stream: Stream) -> None:
        if stream.unacknowledged_bytes >= self._context.configuration.acknowledge_bytes:
            self.acknowledge(now, stream)
        else:
            self._context.timers.arm(now, ACKNOWLEDGE, self._group.pace.acknowledge_ns)

    def acknowledge(self, now: Nanoseconds, stream: Stream) -> None:
        """Unicast our position to the sender."""
        stream.note_acknowledged(now)
        pdu = Position(self._context.incarnation, stream.incarnation, stream.expected)
        self._context.emit(Send(stream.site, pdu))

    def fire(self, now: Nanoseconds) -> None:
        """Acknowledge to each sender that lacks our position, unless our own messages will carry it soon."""
        group, acknowledge_ns = self._group, self._group.pace.acknowledge_ns
        if group.pace.is_late:
            self._acknowledge_unstable(now)
            return
        if self._puts_off and now - group.own.sent_ns < RECENT * acknowledge_ns:
            self._context.timers.arm(now, ACKNOWLEDGE, acknowledge_ns)
            return
        for peer in group.in_view():
            if _is_unacknowledged(peer):
                self.acknowledge(now, peer.stream)

    def _acknowledge_unstable(self, now: Nanoseconds) -> None:
        """Where stability takes their place: acknowledge what was held at the last look and is not stable."""
        waiting = False
        for peer in self._group.in_view():
            stream = peer.stream
            if not _is_unacknowledged(peer) or stream.stable >= stream.expected:
                continue
            if stream.stable < stream.looked:
                self.acknowledge(now, stream)
            stream.looked = stream.expected
            waiting = waiting or stream.acknowledged != stream.expected
        if waiting:
            self._context.timers.arm(now, ACKNOWLEDGE, self._group.pace.acknowledge_ns)


def _is_unacknowledged(peer: Peer) -> bool:
    stream = peer.stream
    current = stream.begun and stream.incarnation == peer.incarnation
    return current and stream.acknowledged != stream.expected


def _tail(bodies: Packed, first: int) -> Packed:
    """A batch without its first messages."""
    addresses = None if bodies.addresses is None else bodies.addresses.each()[first:]
    return pack(bodies[first:], unfinished=bodies.unfinished, addresses=addresses)
