"""What comes of others' messages: taken in order, delivered, acknowledged; what lies beyond a gap waits."""

from typing import Final

from antiphon.core.effects import Arrived, Deliver, Send
from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.ids import Site
from antiphon.core.packing import Packed, pack
from antiphon.core.time import Nanoseconds
from antiphon.protocols.fifo.pdus import Copy, Position
from antiphon.protocols.fifo.release import Release
from antiphon.protocols.fifo.repair import Repair
from antiphon.protocols.fifo.state import Peer, State
from antiphon.protocols.fifo.streams import MOST_KEPT, Stream

ACKNOWLEDGE: Final = "acknowledge"
RECENT: Final = 4
"""Who has multicast messages within this many acknowledgement times is taken to do so again soon."""


class Reception:
    """The way of a batch when it is not the usual one; `Fifo` itself does that."""

    def __init__(self, state: State, release: Release, repair: Repair) -> None:
        self._state = state
        self._release = release
        self._repair = repair
        self._keeps = state.configuration.others_keep
        # With `acknowledge` a sender repeats what is not acknowledged in time, so nothing is put off.
        self._puts_off = state.configuration.repair != "acknowledge"

    def hear(self, now: Nanoseconds, stream: Stream, number: int, bodies: Packed) -> None:
        """A batch from its sender itself."""
        self.receive(now, stream, number, bodies)
        stream.spoken = max(stream.spoken, min(stream.end, number + len(bodies)))

    def receive(self, now: Nanoseconds, stream: Stream, number: int, bodies: Packed) -> None:
        """A batch of a stream that is followed, from whomever, in whatever order."""
        state = self._state
        if stream.begun and number < stream.expected < number + len(bodies):
            # Somebody else has cut these messages into other batches; what we lack of them is as good.
            number, bodies = stream.expected, _tail(bodies, stream.expected - number)
        limit = stream.limit
        wanted = stream.begun and stream.expected <= number and (limit is None or number < limit)
        if not wanted or not self._has_room(stream):
            return
        if not stream.put_ahead(number, bodies, 2 * state.configuration.window_bytes):
            return
        state.tell(Arrived(stream.site, number, len(bodies)))
        self.advance(now, stream)
        if stream.expected < stream.missing_to:
            self._repair.notice(now, stream)

    def _has_room(self, stream: Stream) -> bool:
        """What an honest sender never exceeds, and what who settles may take on."""
        state, most_bytes = self._state, 2 * self._state.configuration.retain_bytes
        room = stream.kept_bytes <= most_bytes and state.withheld_bytes <= most_bytes
        return room and max(len(stream.kept), len(state.withheld)) < MOST_KEPT

    def advance(self, now: Nanoseconds, stream: Stream) -> None:
        """Deliver whatever follows on what is held; a later incarnation's messages wait for their turn."""
        state = self._state
        if state.peers[stream.site].stream is not stream:
            return
        before = stream.expected
        while (bodies := stream.next_ahead()) is not None:
            number = stream.expected
            stream.take(number, bodies, keep=self._keeps)
            self._release.fresh_bytes += bodies.weight
            state.tell(Deliver(stream.site, number, bodies, None, stream.incarnation))
        if stream.expected == before:
            return
        if stream.ahead:
            # Only batches that do not fit one another, as no honest sender makes them, leave any of these.
            stream.drop_ahead(stream.expected, NUMBER_LIMIT)
        self._repair.moved_on(now, stream)
        self.tell_soon(now, stream)
        if self._release.wakeful:
            self._release.wake(now)

    def repeated(self, now: Nanoseconds, sender: Site, copy: Copy) -> None:
        """A batch again, from its sender or from someone who keeps it."""
        state = self._state
        stream = state.find_stream(copy.site, copy.incarnation)
        if stream is None:
            return
        if sender != copy.site and not self._may_repeat(now, stream, copy):
            state.ignore()
            return
        self._repair.repeated(now, stream, copy)
        if stream is not state.own:
            if stream.begun and copy.number >= stream.expected:
                state.counts["repaired"] += 1
            take = self.hear if sender == copy.site else self.receive
            take(now, stream, copy.number, copy.bodies)

    def _may_repeat(self, now: Nanoseconds, stream: Stream, copy: Copy) -> bool:
        """Whether another than the sender may give this: only what the sender has sent, if it can be asked.

        Of a sender that is gone, what those who count say that they hold.
        """
        state, end = self._state, copy.number + len(copy.bodies)
        if not self._keeps or stream is state.own:
            return self._keeps
        speaks = state.speaks(now, state.peers[copy.site], copy.incarnation)
        return end <= (stream.seen if speaks else stream.missing_to)

    # Acknowledgements

    def tell_soon(self, now: Nanoseconds, stream: Stream) -> None:
        if stream.untold_bytes >= self._state.configuration.tell_bytes:
            self.tell(now, stream)
        else:
            self._state.arm(now, ACKNOWLEDGE, self._state.configuration.acknowledge_ns)

    def tell(self, now: Nanoseconds, stream: Stream) -> None:
        """Unicast our position to the sender."""
        state = self._state
        stream.told, stream.told_ns, stream.untold_bytes = stream.expected, now, 0
        pdu = Position(state.incarnation, stream.incarnation, stream.expected)
        state.effects.append(Send(stream.site, pdu))

    def fire(self, now: Nanoseconds) -> None:
        """Tell whoever does not know our position, unless our own messages are about to tell it."""
        state = self._state
        if self._puts_off and now - state.own.sent_ns < RECENT * state.configuration.acknowledge_ns:
            state.arm(now, ACKNOWLEDGE, state.configuration.acknowledge_ns)
            return
        for peer in state.counted():
            if self._untold(peer):
                self.tell(now, peer.stream)

    def _untold(self, peer: Peer) -> bool:
        stream = peer.stream
        return stream.begun and stream.incarnation == peer.incarnation and stream.told != stream.expected


def _tail(bodies: Packed, first: int) -> Packed:
    """A batch without its first messages."""
    addresses = None if bodies.addresses is None else bodies.addresses.each()[first:]
    return pack(bodies[first:], unfinished=bodies.unfinished, addresses=addresses)
