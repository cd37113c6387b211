"""The group as one member knows it: its own messages, the other members, and the view."""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from antiphon.core.fields import INCARNATION_LIMIT
from antiphon.core.ids import Site
from antiphon.core.time import NEVER_NS, Nanoseconds
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.pace import Pace
from antiphon.protocols.fifo.pdus import Extent
from antiphon.protocols.fifo.streams import OwnStream, Stream

COUNT: Final = struct.Struct("<q")
RECENT_TICKS: Final = 2
"""Signs of life for which a member's own word on its messages outweighs what others report. Raising it costs
time until losses of a crashed member are found."""
MOST_DEPARTED: Final = 4096
"""Departed members of which the incarnation is remembered. Raising it costs memory."""


class Peer:
    """Another member: when it was last heard, what it reported, and its messages."""

    __slots__ = (
        "acked", "asked", "deaf", "distance_ns", "doubted_ns", "excluded_spell", "extents", "has_us_in_view",
        "heard_ns", "hears_us_ns", "in_view", "incarnation", "left", "outside_ns", "past", "probed",
        "progress_ns", "round_trip_ns", "serial", "site", "spell", "stream", "successor", "suspected", "view",
    )  # fmt: skip

    def __init__(self, site: Site, incarnation: int, now: Nanoseconds) -> None:
        self.site = site
        self.stream = Stream(site, incarnation)
        """Its messages as they are delivered."""
        self.successor: Stream | None = None
        """The messages of its later incarnation, while those of an earlier one are still completed."""
        self.past: Stream | None = None
        """The messages of an earlier incarnation, complete, while others may need them."""
        self.in_view = False
        self.outside_ns: Nanoseconds = now
        """When it was last excluded from the view."""
        self.heard_ns = now
        self.doubted_ns: Nanoseconds = -NEVER_NS
        """When a member of the view last reported that it does not hear this one."""
        self.renew(incarnation, now)

    def renew(self, incarnation: int, now: Nanoseconds) -> None:
        """Begin a later incarnation, which has reported nothing yet."""
        self.incarnation = incarnation
        self.serial = -1
        self.spell = 0
        self.excluded_spell = -1
        """The latest spell of its presence in which something was declared stable without it."""
        self.extents: dict[Site, Extent] = {}
        self.hears_us_ns = now
        """When it last reported that it hears us."""
        self.deaf = False
        """Whether its last status says that it does not hear us."""
        self.has_us_in_view = False
        """Whether it has reported us in its view since we began to settle."""
        self.left = False
        self.suspected = False
        self.view = -1
        self.acked = 0
        """It holds our own messages below this number."""
        self.progress_ns = now
        self.asked = 0
        """Batches that it has asked us for."""
        self.probed = 0
        """The serial of the batch by which its round trip was last measured."""
        self.round_trip_ns: Nanoseconds | None = None
        self.distance_ns: Nanoseconds | None = None
        """How long a message takes from or to it, if session messages have told."""

    @property
    def newest(self) -> Stream:
        """The messages of its latest incarnation."""
        return self.successor or self.stream

    def own_extent(self) -> Extent | None:
        """What it reports of its own messages."""
        extent = self.extents.get(self.site)
        return extent if extent is not None and extent.incarnation == self.incarnation else None

    def reports_of(self, stream: Stream) -> Extent | None:
        """What it reports of a stream; None if it reports none, or another incarnation's."""
        extent = self.extents.get(stream.site)
        return extent if extent is not None and extent.incarnation == stream.incarnation else None

    def excuse(self, span_ns: Nanoseconds) -> None:
        """Do not hold this much silence against it."""
        self.heard_ns += span_ns
        self.hears_us_ns += span_ns
        self.progress_ns += span_ns


class View:
    """The members that the group waits for, in one order at all members, and their streams in that order."""

    __slots__ = (
        "bytes", "neighbours", "number", "offset", "packer", "pairs", "rank", "sites", "streams", "witnessed",
    )  # fmt: skip

    def __init__(
        self, pairs: Sequence[tuple[Site, int]], streams: Sequence[Stream], site: Site, neighbours: int
    ) -> None:
        self.pairs = tuple(pairs)
        self.sites = tuple(name for name, _ in pairs)
        self.streams = tuple(streams)
        self.number = view_number(self.pairs)
        self.packer = struct.Struct(f"<{len(self.pairs)}q")
        self.bytes = self.packer.size
        self.rank = self.sites.index(site)
        self.offset = COUNT.size * self.rank
        self.neighbours = _ring(self.sites, self.rank, neighbours)
        """The members that we exchange signs of life with."""
        # A sender delivers its own messages once one more member holds them; the next in order, its witness,
        # acknowledges them at once. This is the member whose witness we are.
        self.witnessed = self.sites[self.rank - 1]

    def held(self) -> list[int]:
        return [stream.expected for stream in self.streams]


def _ring(sites: tuple[Site, ...], rank: int, most: int) -> dict[Site, None]:
    """All other members if there are no more than `most`, else those around us in the view's order."""
    size = len(sites)
    reach = min(size - 1, most) // 2 if size - 1 > most else size - 1
    places = (rank + step for distance in range(1, reach + 1) for step in (distance, -distance))
    return {sites[place % size]: None for place in places if place % size != rank}


def view_number(pairs: Sequence[tuple[Site, int]]) -> int:
    """A hash of 63 bits over sites and incarnations."""
    text = "\n".join(f"{incarnation} {site}" for site, incarnation in pairs)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


class Group:
    """Owns the peer table, this member's own stream, and the view.

    Any part may read `peers`, `outside` and `view`; they change by the methods here only.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.own = OwnStream(context.site)
        self.peers: dict[Site, Peer] = {}
        self.outside: list[Peer] = []
        """The peers outside the view."""
        self._neighbours = context.configuration.neighbours
        self.view = View([(context.site, 0)], [self.own], context.site, self._neighbours)
        self.pace = Pace(context.configuration, 1)
        """How often to speak in this view."""
        self.may_have_forgotten = False
        """Whether messages may have been delivered here of which nothing is remembered."""
        self._departed: dict[tuple[Site, int], None] = {}
        """Incarnations of members that are not in the peer table, of which others may hold messages."""
        self._last_incarnations: dict[Site, int] = {}
        """The last incarnations of members that were dropped from the peer table."""

    # Peers

    def add(self, site: Site, incarnation: int, now: Nanoseconds) -> Peer:
        peer = self.peers[site] = Peer(site, incarnation, now)
        self.outside.append(peer)
        return peer

    def drop(self, peer: Peer) -> None:
        """Forget a peer outside the view but for its incarnation."""
        del self.peers[peer.site]
        self.outside.remove(peer)
        self.note_departed(peer.site, peer.incarnation)
        self._note_last_incarnation(peer.site, peer.incarnation)
        self.may_have_forgotten = self.may_have_forgotten or peer.stream.begun

    def in_view(self) -> Iterator[Peer]:
        """The peers in the view."""
        return (peer for peer in self.peers.values() if peer.in_view)

    def incarnation_of(self, site: Site) -> int:
        """The latest incarnation under which a peer itself has spoken, as far as that is remembered."""
        peer = self.peers.get(site)
        return max(0 if peer is None else peer.incarnation, self._last_incarnations.get(site, 0))

    def speaks_for_itself(self, now: Nanoseconds, peer: Peer, incarnation: int) -> bool:
        """Whether a peer has reported recently how far its messages go: then no other report is needed."""
        far = peer.site not in self.view.neighbours and peer.doubted_ns < peer.heard_ns
        recent = far or now - peer.heard_ns < RECENT_TICKS * self.pace.tick_ns
        return peer.in_view and recent and peer.incarnation == incarnation

    def note_departed(self, site: Site, incarnation: int) -> bool:
        """Remember an incarnation that existed and is not in the peer table; whether that is new."""
        if (site, incarnation) in self._departed:
            return False
        if len(self._departed) >= MOST_DEPARTED:
            del self._departed[next(iter(self._departed))]
        self._departed[site, incarnation] = None
        return True

    def _note_last_incarnation(self, site: Site, incarnation: int) -> None:
        """An incarnation that leaves no room for later ones is not remembered: its owner may have lied."""
        if incarnation >= INCARNATION_LIMIT // 2:
            return
        known = self._last_incarnations
        if len(known) >= MOST_DEPARTED and site not in known:
            del known[next(iter(known))]
        known[site] = max(incarnation, known.get(site, 0))

    # Streams

    def streams(self) -> Iterator[Stream]:
        """Every stream that is followed, except our own."""
        for peer in self.peers.values():
            if peer.stream.begun:
                yield peer.stream
            if peer.successor is not None:
                yield peer.successor

    def find_stream(self, site: Site, incarnation: int) -> Stream | None:
        """The stream of a site's incarnation, if it is known."""
        if site == self._context.site:
            return self.own if incarnation == self._context.incarnation else None
        peer = self.peers.get(site)
        if peer is None:
            return None
        for stream in (peer.stream, peer.successor, peer.past):
            if stream is not None and stream.incarnation == incarnation:
                return stream
        return None

    # The view

    def is_alone(self) -> bool:
        return len(self.view.pairs) == 1

    def view_is_current(self) -> bool:
        """Whether the view has exactly the peers that are marked as in it."""
        return self._pairs() == self.view.pairs

    def renew_view(self) -> None:
        """Begin a view of the peers that are marked as in it."""
        pairs, own = self._pairs(), self._context.site
        self.outside = [peer for peer in self.peers.values() if not peer.in_view]
        streams = [self.own if site == own else self.peers[site].newest for site, _ in pairs]
        self.view = View(pairs, streams, own, self._neighbours)
        self.pace = Pace(self._context.configuration, len(pairs))

    def _pairs(self) -> tuple[tuple[Site, int], ...]:
        others = ((peer.site, peer.incarnation) for peer in self.in_view())
        return tuple(sorted([(self._context.site, self._context.incarnation), *others]))
