"""What a member says of itself: its statuses to the others, and its spells of presence to the trace."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from antiphon.core.effects import Absent, Multicast, Present, Send
from antiphon.core.fields import LONGEST_NAME
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.fifo.pdus import NOT_FOLLOWED, Extent, Leaving, Mark, Status
from antiphon.protocols.fifo.state import Peer, State
from antiphon.protocols.fifo.watching import Watching

HEARTBEAT: Final = "heartbeat"
EXTENT_BYTES: Final = 120
"""What an extent takes beside the site's name, at most."""
MOST_NAME_BYTES: Final = 4 * LONGEST_NAME
"""What a name takes in UTF-8, at most."""
MARK_BYTES: Final = 24
"""The same of a mark."""
STATUS_BYTES: Final = 224 << 10
"""What the extents of a status take at most. Raising it costs room for what else a PDU must hold."""
MARKS_BYTES: Final = 64 << 10
"""The same of its marks."""
SOON: Final = 16
"""A status that is wanted at once comes after this part of a heartbeat, so that one answers for several."""


class Herald:
    """Multicasts statuses."""

    def __init__(self, state: State, watching: Watching) -> None:
        self._state = state
        self._watching = watching
        self._serial = 0
        self._told_ns: Nanoseconds = 0
        self._due = False

    def due(self, now: Nanoseconds) -> bool:
        """Whether a status is wanted, or was not sent for a heartbeat."""
        return self._due or now - self._told_ns >= self._state.configuration.heartbeat_ns

    def soon(self, now: Nanoseconds) -> None:
        """Someone had better know how things stand."""
        self._due = True
        self._state.arm(now, HEARTBEAT, max(1, self._state.configuration.heartbeat_ns // SOON))

    def tell(self, now: Nanoseconds, to: Site | None = None) -> None:
        """Say what we hold and whom we count: to all, or to one who had better know at once."""
        state, own, watching = self._state, self._state.own, self._watching
        mine = (own.first, own.expected, own.stable, own.kept_from)
        extents = [Extent(state.site, state.incarnation, True, True, *mine)]
        peers = _fitting(state.peers.values(), EXTENT_BYTES, STATUS_BYTES)
        extents += [_extent(peer, heard=watching.hears(now, peer)) for peer in peers]
        left_out = (
            peer for peer in state.uncounted if peer.spell <= peer.left_out and watching.hears(now, peer)
        )
        marks = tuple(
            Mark(peer.site, peer.incarnation, peer.left_out)
            for peer in _fitting(left_out, MARK_BYTES, MARKS_BYTES)
        )
        self._serial += 1
        pdu = Status(state.incarnation, state.spell, self._serial, state.view.number, tuple(extents), marks)
        if to is not None:
            state.effects.append(Send(to, pdu))
            return
        self._told_ns = now
        self._due = False
        state.effects.append(Multicast(pdu))

    def take_leave(self) -> None:
        self._serial += 1
        self._state.effects.append(Multicast(Leaving(self._state.incarnation, self._serial)))


def _fitting(peers: Iterable[Peer], bytes_each: int, most_bytes: int) -> list[Peer]:
    """The members that there is room to speak of: if not all, those that count, and those known longest."""
    found = list(peers)
    if len(found) * (bytes_each + MOST_NAME_BYTES) <= most_bytes:
        return found
    found.sort(key=attrgetter("counted"), reverse=True)
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
        peer.counted,
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


class Spells:
    """Begins and ends spells of presence, so that none has a hole in it."""

    def __init__(self, state: State, herald: Herald) -> None:
        self._state = state
        self._herald = herald
        self.missed = False
        """Whether something has been missed since this member was last present."""
        self.blemished = False
        """Whether this member has ever been absent: only one that never was must have everything."""
        self._absent = False
        """Whether the trace knows that this member is absent."""

    def begin(self, *, returning: bool) -> None:
        """A log that ends in an absence may exist."""
        self._absent = self.blemished = returning

    def be_absent(self) -> None:
        self._state.taking_part = False
        if not self._absent:
            self._absent = self.blemished = True
            self._state.effects.append(Absent())

    def be_present(self) -> None:
        """Take part, and tell what has come meanwhile."""
        state = self._state
        if self.missed:
            self.be_absent()
        if state.incarnation or self._absent:
            state.effects.append(Present())
        state.taking_part = True
        self._absent = self.missed = False
        state.effects += state.withheld
        state.withheld = []
        state.withheld_bytes = 0

    def note_gap(self, now: Nanoseconds, site: Site) -> None:
        """Something of a site is lost for good: one spell ends before it, the next begins behind it."""
        state = self._state
        if not state.taking_part:
            self.missed = True
            state.withheld = [effect for effect in state.withheld if effect.sender != site]
            return
        self.blemished = True
        state.spell += 1
        state.effects += (Absent(), Present())
        self._herald.soon(now)
