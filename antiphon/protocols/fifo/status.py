"""Statuses: what this member reports of itself, of the others, and of every stream."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from antiphon.core.effects import Multicast, Send
from antiphon.core.fields import LONGEST_NAME
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.failure_detection import FailureDetection
from antiphon.protocols.fifo.group import Group, Peer
from antiphon.protocols.fifo.pdus import NOT_FOLLOWED, Extent, Leaving, Mark, Status
from antiphon.protocols.fifo.presence import Presence
from antiphon.protocols.fifo.schedule import StatusSchedule

EXTENT_BYTES: Final = 120
"""The most that an extent takes on the wire, without the site's name."""
MOST_NAME_BYTES: Final = 4 * LONGEST_NAME
"""The most that a name takes in UTF-8."""
MARK_BYTES: Final = 24
"""The most that a mark takes, without the site's name."""
STATUS_BYTES: Final = 224 << 10
"""The most that the extents of a status take. Raising it costs room for the other fields of the PDU."""
MARKS_BYTES: Final = 64 << 10
"""The most that its marks take. Raising it costs the same."""


class StatusSender:
    """Sends statuses, and the last word of a member that leaves."""

    def __init__(
        self,
        context: Context,
        group: Group,
        presence: Presence,
        detection: FailureDetection,
        schedule: StatusSchedule,
    ) -> None:
        self._context = context
        self._group = group
        self._presence = presence
        self._detection = detection
        self._schedule = schedule
        self._serial = 0

    def multicast(self, now: Nanoseconds) -> None:
        """Report to all members."""
        self._schedule.sent(now)
        self._context.emit(Multicast(self._make(now)))

    def send(self, now: Nanoseconds, to: Site) -> None:
        """Report to a member that should know at once."""
        self._context.emit(Send(to, self._make(now)))

    def multicast_leaving(self) -> None:
        self._serial += 1
        self._context.emit(Multicast(Leaving(self._context.incarnation, self._serial)))

    def _make(self, now: Nanoseconds) -> Status:
        group, own, hears = self._group, self._group.own, self._detection.hears
        incarnation = self._context.incarnation
        mine = (own.first, own.expected, own.stable, own.kept_from)
        extents = [Extent(self._context.site, incarnation, True, True, *mine)]
        peers = _fitting(group.peers.values(), EXTENT_BYTES, STATUS_BYTES)
        extents += [_extent(peer, heard=hears(now, peer)) for peer in peers]
        excluded = (peer for peer in group.outside if peer.spell <= peer.excluded_spell and hears(now, peer))
        marks = tuple(
            Mark(peer.site, peer.incarnation, peer.excluded_spell)
            for peer in _fitting(excluded, MARK_BYTES, MARKS_BYTES)
        )
        self._serial += 1
        return Status(
            incarnation, self._presence.spell, self._serial, group.view.number, tuple(extents), marks
        )


def _fitting(peers: Iterable[Peer], bytes_each: int, most_bytes: int) -> list[Peer]:
    """The peers that a status has room for: if not all, those in the view and those known longest."""
    found = list(peers)
    if len(found) * (bytes_each + MOST_NAME_BYTES) <= most_bytes:
        return found
    found.sort(key=attrgetter("in_view"), reverse=True)
    left_bytes = most_bytes
    for place, peer in enumerate(found):
        left_bytes -= bytes_each + len(peer.site.encode())
        if left_bytes < 0:
            return found[:place]
    return found


def _extent(peer: Peer, *, heard: bool) -> Extent:
    stream, successor, past = peer.stream, peer.successor, peer.past
    return Extent(
        peer.site,
        stream.incarnation,
        heard and not peer.left,
        peer.in_view,
        stream.first,
        stream.expected if stream.begun else NOT_FOLLOWED,
        stream.stable,
        stream.kept_from,
        -1 if successor is None else successor.incarnation,
        0 if successor is None else successor.first,
        -1 if past is None else past.incarnation,
        0 if past is None else past.expected,
        0 if past is None else past.kept_from,
    )
