"""Following others' streams: where to begin, what of an earlier incarnation to complete, what to give up."""

from collections.abc import Iterable

from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.time import Nanoseconds
from antiphon.protocols.fifo.census import Census
from antiphon.protocols.fifo.pdus import Extent
from antiphon.protocols.fifo.presence import Herald, Spells
from antiphon.protocols.fifo.reception import Reception
from antiphon.protocols.fifo.repair import Repair, holds
from antiphon.protocols.fifo.state import Peer, State
from antiphon.protocols.fifo.streams import Stream


class Following:
    """Begins streams, ends those of earlier incarnations, and goes on behind what cannot be had."""

    def __init__(
        self,
        state: State,
        herald: Herald,
        spells: Spells,
        census: Census,
        reception: Reception,
        repair: Repair,
    ) -> None:
        self._state = state
        self._herald = herald
        self._spells = spells
        self._census = census
        self._reception = reception
        self._repair = repair

    # Beginning

    def begin(self, now: Nanoseconds, peer: Peer, own: Extent) -> None:
        """Follow a stream whose sender counts us: from its beginning, or from now on."""
        if own.held < own.first:
            self._state.ignore()
            return
        stream = peer.stream
        complete = not self._state.forgetful and own.kept_from <= own.first
        position = own.first if complete else own.held
        stream.begin(own.first, position, own.stable)
        stream.hear_end(own.held)
        if position > own.first or (position > 0 and not self._spells.blemished):
            self._spells.note_gap(now, peer.site)
        self._reception.tell(now, stream)

    def hear_end(self, now: Nanoseconds, peer: Peer, own: Extent) -> None:
        """A sender says how far it has gone; what others have said of that is refuted."""
        stream = peer.newest
        if stream.unsure == stream.expected > own.held:
            # Nothing has come from there: the sender has never been where others said that it was.
            self._spells.note_gap(now, peer.site)
            stream.fall_back(max(0, own.held))
        stream.unsure = None
        stream.hear_end(own.held)

    def see_ghosts(self, now: Nanoseconds, extents: Iterable[Extent]) -> None:
        """Others hold messages of sites that are gone and that we never met: we have missed them."""
        state = self._state
        gone = [
            extent
            for extent in extents
            if extent.site not in state.peers and extent.site != state.site
            if not extent.counted and extent.held > 0
        ]
        new = [extent.site for extent in gone if state.note_ghost(extent.site, extent.incarnation)]
        if new:
            self._spells.note_gap(now, new[0])

    # A site's later incarnation

    def reborn(self, now: Nanoseconds, peer: Peer, incarnation: int, first: int) -> None:
        """A later incarnation: what we follow of the earlier one ends where those who hold it end."""
        peer.renew(incarnation, now)
        successor = Stream(peer.site, incarnation)
        if peer.stream.begun:
            peer.stream.limit = peer.stream.expected
            successor.begin(first, first, first)
            peer.successor = successor
        else:
            peer.stream = successor
        self._census.see(now)

    def close(self, now: Nanoseconds, peer: Peer) -> None:
        """End the earlier incarnation's stream, once all who count have said how far they hold it."""
        state, stream, successor = self._state, peer.stream, peer.successor
        assert successor is not None, "only a stream that has a successor is closed"
        others = [other for other in state.counted() if other is not peer]
        limits = [_sealed_end(other, stream, successor.incarnation) for other in others]
        known = [limit for limit in limits if limit is not None]
        stream.limit = max([stream.expected, *known])
        self._reception.advance(now, stream)
        if stream.expected < stream.limit and self._can_be_had(peer, stream):
            self._repair.notice(now, stream)
            return
        if len(known) < len(limits):
            return
        if max(successor.first, stream.limit) > stream.expected:
            # Whatever the site sent in between is held by nobody who is here, but may be held elsewhere.
            self._spells.note_gap(now, peer.site)
        self._move_on(now, peer, stream, successor)

    def _move_on(self, now: Nanoseconds, peer: Peer, stream: Stream, successor: Stream) -> None:
        stream.drop_ahead(0, 0)
        peer.stream, peer.successor = successor, None
        peer.past = stream if stream.kept else None
        self._herald.soon(now)
        self._reception.advance(now, successor)
        if successor.expected < successor.end:
            self._repair.notice(now, successor)

    # What cannot be had any more

    def resolve(self, now: Nanoseconds, peer: Peer) -> None:
        """Go on behind what nobody can repair."""
        stream = peer.stream
        if not stream.begun or peer.successor is not None:
            return
        if stream.expected >= stream.end or self._can_be_had(peer, stream):
            return
        own = peer.own_extent()
        unsure = not peer.counted or own is None
        if peer.counted and own is not None:
            position = own.kept_from
        else:
            position = min(extent.kept_from for extent in self._told(stream) if extent.held > stream.expected)
        if position <= stream.expected:
            return  # it is said to be kept, by a member of a group in which only senders keep anything
        self._spells.note_gap(now, peer.site)
        stream.jump(position)
        stream.unsure = position if unsure else None
        stream.drop_ahead(position, NUMBER_LIMIT)
        self._reception.tell(now, stream)
        self._reception.advance(now, stream)

    def _can_be_had(self, peer: Peer, stream: Stream) -> bool:
        """Whether someone may still give what comes next in a stream."""
        state = self._state
        speaks = peer.counted and peer.incarnation == stream.incarnation
        own = peer.own_extent()
        if speaks and (own is None or own.kept_from <= stream.expected):
            return True
        if state.configuration.others_keep and any(holds(other, stream) for other in state.counted()):
            return True
        if speaks or stream.limit is not None:
            return False
        return not any(extent.held > stream.expected for extent in self._told(stream))

    def _told(self, stream: Stream) -> list[Extent]:
        """What those who count say of a stream."""
        told = (peer.extents.get(stream.site) for peer in self._state.counted())
        return [extent for extent in told if extent is not None and extent.incarnation == stream.incarnation]


def _sealed_end(peer: Peer, stream: Stream, successor: int) -> int | None:
    """How far a member holds a stream that has ended; None while it may not know of the end."""
    if not peer.extents:
        return None
    extent = peer.extents.get(stream.site)
    if extent is None:
        return 0
    if extent.incarnation >= successor:
        return extent.previous_end if extent.previous == stream.incarnation else 0
    if extent.next_incarnation < successor:
        return None
    return max(0, extent.held) if extent.incarnation == stream.incarnation else 0
