"""Following the streams of others: where to begin, which earlier incarnation to complete, what to skip."""

from collections.abc import Iterable

from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.time import Nanoseconds
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.group import Group, Peer
from antiphon.protocols.fifo.pdus import Extent
from antiphon.protocols.fifo.presence import Presence
from antiphon.protocols.fifo.reception import Reception
from antiphon.protocols.fifo.repair import Repair, holds
from antiphon.protocols.fifo.schedule import StatusSchedule
from antiphon.protocols.fifo.streams import Stream


class Following:
    """Begins streams, ends those of earlier incarnations, and skips what cannot be had."""

    def __init__(
        self,
        context: Context,
        group: Group,
        presence: Presence,
        schedule: StatusSchedule,
        reception: Reception,
        repair: Repair,
    ) -> None:
        self._context = context
        self._group = group
        self._presence = presence
        self._schedule = schedule
        self._reception = reception
        self._repair = repair

    # Beginning

    def begin(self, now: Nanoseconds, peer: Peer, own: Extent) -> None:
        """Follow a stream whose sender has us in its view: from its beginning, or from now on."""
        if own.held < own.first:
            self._context.ignore()
            return
        stream = peer.stream
        complete = not self._group.may_have_forgotten and own.kept_from <= own.first
        position = own.first if complete else own.held
        stream.begin(own.first, position, own.stable)
        stream.on_end(own.held)
        if position > own.first or (position > 0 and not self._presence.was_absent):
            self._presence.note_gap(now, peer.site)
        self._reception.acknowledge(now, stream)

    def on_end(self, now: Nanoseconds, peer: Peer, own: Extent) -> None:
        """A sender reports the end of its stream, which corrects what others reported."""
        stream = peer.newest
        if stream.unconfirmed == stream.expected > own.held:
            # Nothing has come since we went on here: the sender has never been where others reported it.
            self._presence.note_gap(now, peer.site)
            stream.fall_back(max(0, own.held))
        stream.unconfirmed = None
        stream.on_end(own.held)

    def note_departed(self, now: Nanoseconds, extents: Iterable[Extent]) -> None:
        """Others hold messages of departed sites that we never met: we have missed those messages."""
        peers, own = self._group.peers, self._context.site
        gone = [
            extent
            for extent in extents
            if extent.site not in peers and extent.site != own
            if not extent.counted and extent.held > 0
        ]
        new = [extent.site for extent in gone if self._group.note_departed(extent.site, extent.incarnation)]
        if new:
            self._presence.note_gap(now, new[0])

    # A site's later incarnation

    def begin_incarnation(self, now: Nanoseconds, peer: Peer, incarnation: int, first: int) -> None:
        """A later incarnation has begun: the earlier one ends where the members that hold most of it end."""
        peer.renew(incarnation, now)
        successor = Stream(peer.site, incarnation)
        if peer.stream.begun:
            peer.stream.limit = peer.stream.expected
            successor.begin(first, first, first)
            peer.successor = successor
        else:
            peer.stream = successor

    def close(self, now: Nanoseconds, peer: Peer) -> None:
        """End the earlier incarnation's stream, once all in the view have reported how far they hold it."""
        stream, successor = peer.stream, peer.successor
        assert successor is not None, "only a stream that has a successor is closed"
        others = [other for other in self._group.in_view() if other is not peer]
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
            # What the site sent in between no member here holds, but members elsewhere may.
            self._presence.note_gap(now, peer.site)
        self._move_on(now, peer, stream, successor)

    def _move_on(self, now: Nanoseconds, peer: Peer, stream: Stream, successor: Stream) -> None:
        stream.drop_ahead(0, 0)
        peer.stream, peer.successor = successor, None
        peer.past = stream if stream.kept else None
        self._schedule.soon(now)
        self._reception.advance(now, successor)
        if successor.expected < successor.end:
            self._repair.notice(now, successor)

    # What cannot be had any more

    def resolve(self, now: Nanoseconds, peer: Peer) -> None:
        """Skip what no member can repair."""
        stream = peer.stream
        if not stream.begun or peer.successor is not None:
            return
        if stream.expected >= stream.end or self._can_be_had(peer, stream):
            return
        if peer.in_view:
            own = peer.own_extent()
            assert own is not None, "a member of the view can give what it has not reported of"
            position = own.kept_from
        else:
            reports = self._reports(stream)
            position = min(extent.kept_from for extent in reports if extent.held > stream.expected)
        if position <= stream.expected:
            return  # a member reports to keep it, in a group in which only senders keep anything
        self._presence.note_gap(now, peer.site)
        stream.jump(position)
        stream.unconfirmed = None if peer.in_view else position
        stream.drop_ahead(position, NUMBER_LIMIT)
        self._reception.acknowledge(now, stream)
        self._reception.advance(now, stream)

    def _can_be_had(self, peer: Peer, stream: Stream) -> bool:
        """Whether a member may still give what comes next in a stream."""
        speaks = peer.in_view and peer.incarnation == stream.incarnation
        own = peer.own_extent()
        if speaks and (own is None or own.kept_from <= stream.expected):
            return True
        others_keep = self._context.configuration.others_keep
        if others_keep and any(holds(other, stream) for other in self._group.in_view()):
            return True
        if speaks or stream.limit is not None:
            return False
        return not any(extent.held > stream.expected for extent in self._reports(stream))

    def _reports(self, stream: Stream) -> list[Extent]:
        """What members of the view report of a stream."""
        reports = (peer.reports_of(stream) for peer in self._group.in_view())
        return [extent for extent in reports if extent is not None]


def _sealed_end(peer: Peer, stream: Stream, successor: int) -> int | None:
    """How far a member holds a stream that has ended; None if it may not know of the end."""
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
