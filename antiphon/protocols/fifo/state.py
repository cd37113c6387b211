"""What the parts of one member share: its peers, its own messages, the view, the timers, the effects."""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from antiphon.core.effects import Arrived, Deliver, Discard, Effect, SetTimer, Stable
from antiphon.core.fields import INCARNATION_LIMIT
from antiphon.core.ids import Site
from antiphon.core.time import NEVER_NS, Nanoseconds
from antiphon.protocols.fifo.pdus import Extent, FifoConfiguration
from antiphon.protocols.fifo.streams import OwnStream, Stream

COUNT: Final = struct.Struct("<q")
RECENT_HEARTBEATS: Final = 2
"""A member that was silent for longer may be gone: what others say of its messages counts then."""
MOST_GHOSTS: Final = 4096
"""Members of which only the incarnation is remembered. Raising it costs memory."""


class Peer:
    """Another member: when it was heard of, what it said, and its messages."""

    __slots__ = (
        "acked", "asked", "counted", "extents", "heard_ns", "incarnation", "left", "left_out", "listed_ns",
        "past", "probed", "progress_ns", "proven", "round_trip_ns", "serial", "site", "spell", "stream",
        "successor", "suspected", "view",
    )  # fmt: skip

    def __init__(self, site: Site, incarnation: int, now: Nanoseconds) -> None:
        self.site = site
        self.stream = Stream(site, incarnation)
        """Its messages as they are delivered."""
        self.successor: Stream | None = None
        """The messages of its later incarnation, while those of an earlier one are still completed."""
        self.past: Stream | None = None
        """Those of an earlier incarnation, complete, as long as others may need them."""
        self.counted = False
        self.heard_ns = now
        self.renew(incarnation, now)

    def renew(self, incarnation: int, now: Nanoseconds) -> None:
        """A later incarnation has said nothing yet."""
        self.incarnation = incarnation
        self.serial = -1
        self.spell = 0
        self.left_out = -1
        """Something was called stable without it in this spell of its presence, or an earlier one."""
        self.extents: dict[Site, Extent] = {}
        self.listed_ns = now
        """When it last said that it hears us."""
        self.proven = False
        """Whether it has said that we count since we began to settle."""
        self.left = False
        self.suspected = False
        self.view = -1
        self.acked = 0
        """How far it holds our own messages."""
        self.progress_ns = now
        self.asked = 0
        """Batches that it has asked us for."""
        self.probed = 0
        """The serial of the batch by which it was last timed, and how long that took."""
        self.round_trip_ns: Nanoseconds | None = None

    @property
    def newest(self) -> Stream:
        """The messages of the incarnation that speaks."""
        return self.successor or self.stream

    def own_extent(self) -> Extent | None:
        """What it says of its own messages."""
        extent = self.extents.get(self.site)
        return extent if extent is not None and extent.incarnation == self.incarnation else None


class View:
    """Who counts, ourselves included, in one order at all members; and everyone's messages in that order."""

    __slots__ = ("bytes", "number", "offset", "packer", "pairs", "sites", "streams", "witnessed")

    def __init__(self, pairs: Sequence[tuple[Site, int]], streams: Sequence[Stream], site: Site) -> None:
        self.pairs = tuple(pairs)
        self.sites = tuple(name for name, _ in pairs)
        self.streams = tuple(streams)
        self.number = view_number(self.pairs)
        self.packer = struct.Struct(f"<{len(self.pairs)}q")
        self.bytes = self.packer.size
        self.offset = COUNT.size * self.sites.index(site)
        # A sender delivers its own messages when one more holds them; the next in order tells it at once.
        self.witnessed = self.sites[self.sites.index(site) - 1]

    def held(self) -> list[int]:
        return [stream.expected for stream in self.streams]


def view_number(pairs: Sequence[tuple[Site, int]]) -> int:
    """63 bits that stand for a list of sites and incarnations."""
    text = "\n".join(f"{incarnation} {site}" for site, incarnation in pairs)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


class State:
    """Changed by the parts in turn; whatever they want done they append to `effects`."""

    def __init__(self, site: Site, configuration: FifoConfiguration, random: Random) -> None:
        self.site = site
        self.configuration = configuration
        self.random = random
        self.own = OwnStream(site)
        self.incarnation = 0
        self.spell = 0
        """Counts the spells of presence, from 0 while nothing was ever missed."""
        self.declared = False
        """Whether anything was called stable here."""
        self.peers: dict[Site, Peer] = {}
        self.uncounted: list[Peer] = []
        self.taking_part = False
        self.forgetful = False
        """Whether messages may have been delivered here that this object knows nothing of."""
        self.view = View([(site, 0)], [self.own], site)
        self.effects: list[Effect] = []
        self.withheld: list[Arrived | Deliver | Stable | Discard] = []
        """What is told once this member takes part."""
        self.withheld_bytes = 0
        self._ghosts: dict[tuple[Site, int], None] = {}
        """Incarnations of members that we do not know (any more), of which others may hold messages."""
        self.forgotten: dict[Site, int] = {}
        """The last incarnations of members that were known and are not any more."""
        self.armed: dict[str, Nanoseconds] = {}
        """The timers that are set, and when they run out."""
        self.counts = {
            "ignored": 0, "copies": 0, "asked": 0, "repaired": 0, "rounds": 0, "rejoined": 0,
            "refused": 0, "error_rounds": 0, "errors_found": 0, "history_messages": 0, "history_gaps": 0,
            "history_answers": 0, "history_switches": 0, "history_given_up": 0,
        }  # fmt: skip

    def ignore(self) -> None:
        """A peer's nonsense is counted and dropped."""
        self.counts["ignored"] += 1

    def arm(self, now: Nanoseconds, name: str, after_ns: Nanoseconds) -> None:
        """See to it that a timer runs out by then; one that runs out sooner is left alone."""
        due_ns = now + after_ns
        if due_ns < self.armed.get(name, NEVER_NS):
            self.armed[name] = due_ns
            self.effects.append(SetTimer(name, after_ns))

    def tell(self, effect: Arrived | Deliver | Stable | Discard) -> None:
        """For the application and the trace; who does not take part yet keeps it until he does."""
        if self.taking_part:
            self.effects.append(effect)
        else:
            self.withheld.append(effect)
            if type(effect) is Deliver:
                self.withheld_bytes += getattr(effect.bodies, "weight", 0)

    def note_ghost(self, site: Site, incarnation: int) -> bool:
        """Remember that someone existed whom we do not know; whether that is new."""
        if (site, incarnation) in self._ghosts:
            return False
        if len(self._ghosts) >= MOST_GHOSTS:
            del self._ghosts[next(iter(self._ghosts))]
        self._ghosts[site, incarnation] = None
        return True

    def note_forgotten(self, site: Site, incarnation: int) -> None:
        """Remember the incarnation of a member of which nothing else is remembered.

        Not one that leaves no room for later ones: whoever had the name then may have lied.
        """
        if incarnation >= INCARNATION_LIMIT // 2:
            return
        if len(self.forgotten) >= MOST_GHOSTS and site not in self.forgotten:
            del self.forgotten[next(iter(self.forgotten))]
        self.forgotten[site] = max(incarnation, self.forgotten.get(site, 0))

    def speaks(self, now: Nanoseconds, peer: Peer, incarnation: int) -> bool:
        """Whether a member has said itself, just now, how far its messages go: it need not be guessed."""
        recent = now - peer.heard_ns < RECENT_HEARTBEATS * self.configuration.heartbeat_ns
        return peer.counted and recent and peer.incarnation == incarnation

    def counted(self) -> Iterator[Peer]:
        return (peer for peer in self.peers.values() if peer.counted)

    def alone(self) -> bool:
        return len(self.view.pairs) == 1

    def streams(self) -> Iterator[Stream]:
        """Every stream that is followed, our own aside."""
        for peer in self.peers.values():
            if peer.stream.begun:
                yield peer.stream
            if peer.successor is not None:
                yield peer.successor

    def find_stream(self, site: Site, incarnation: int) -> Stream | None:
        """The stream of a site's incarnation, if anything is known of it."""
        if site == self.site:
            return self.own if incarnation == self.incarnation else None
        peer = self.peers.get(site)
        if peer is None:
            return None
        for stream in (peer.stream, peer.successor, peer.past):
            if stream is not None and stream.incarnation == incarnation:
                return stream
        return None
