"""One life of a member as another member sees it, and the batches that members exchange.

The paper's names: LSN_j is `Outgoing.sent`, LRN_j is `Stream.received`, AL_jh is `Peer.confirmed`, BUF_j is
`Peer.buffers`, RRQ_j is `Stream.queue` (without a gap) and `Stream.ahead` (beyond one). F_j, the number below
which nothing of a peer can come any more, is `Stream.frontier`.
"""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.time import Nanoseconds
from antiphon.protocols.probe import Probe
from antiphon.protocols.sco.pdus import Name

if TYPE_CHECKING:
    from antiphon.protocols.sco.coding import UnreadBatch

Vector: TypeAlias = "dict[Peer, int]"
"""A number for each life; 0 for those without an entry."""
Table: TypeAlias = "tuple[Entry, ...]"
"""A table of names as its reader resolved it."""

FOREVER: Final = 1 << 62
"""Later than any time, and beyond all numbers."""
KEPT_TABLES: Final = 4
"""Versions of a peer's table that are kept, for PDUs that were overtaken. Raising it costs memory."""
MOST_DOUBLINGS: Final = 4
"""Times that the pause between questions to a peer doubles. Raising it costs time to make up for losses."""
FAR: Final = 1 << 12
"""A version or serial this far below the latest one was not overtaken: the latest was a mistake. Raising it
costs time to recover from that."""


class Entry:
    """A position of a peer's table: the site, and the peer of that life; None if the life is forgotten."""

    __slots__ = ("peer", "site")

    def __init__(self, site: Site, peer: "Peer | None") -> None:
        self.site = site
        self.peer = peer


class Batch:
    """Messages of one sender that are ordered as a unit, with the sender's stamps."""

    __slots__ = (
        "ack",
        "blocked_by",
        "bodies",
        "csn",
        "destinations",
        "end",
        "freed",
        "number",
        "places",
        "sender",
        "since_ns",
        "sites",
        "table_version",
        "unconfirmed",
    )

    def __init__(
        self,
        sender: "Peer",
        number: int,
        bodies: Packed,
        destinations: "tuple[Peer, ...]",
        sites: frozenset[Site],
        places: Vector,
        csn: Vector,
        ack: Vector,
        me: "Peer",
    ) -> None:
        self.sender = sender
        self.number = number
        self.end = number + len(bodies)
        self.bodies = bodies
        self.destinations = destinations
        self.sites = sites
        self.places = places
        self.csn = csn
        self.ack = ack
        self.unconfirmed = [peer for peer in destinations if peer is not sender and peer is not me]
        """Destinations that are not known to have it; the last entry is checked first."""
        self.blocked_by: Peer | None = None
        """The peer whose messages it was last seen to wait for."""
        self.freed: frozenset[Peer] = frozenset()
        """Peers whose messages it does not wait for, although its csn names them."""
        self.since_ns: Nanoseconds = 0
        """When it was accepted, or sent."""
        self.table_version = 0
        """The version of our own table at that time."""


class Stream:
    """The batches that a life sends us, in the order of their places; ours are those to ourselves."""

    __slots__ = (
        "ack",
        "ahead",
        "atomic",
        "csn",
        "end",
        "first",
        "frontier",
        "full",
        "kept",
        "needed",
        "queue",
        "received",
        "refused",
        "skipped",
    )

    def __init__(self, frontier: int = 0) -> None:
        self.received = 0
        """Batches accepted, which is the place of the next."""
        self.needed = 0
        """Batches that the sender has sent us, as far as it has told."""
        self.ahead: dict[int, UnreadBatch | Batch] = {}
        """Batches beyond a gap, by place."""
        self.queue: deque[Batch] = deque()
        """Accepted batches that have not moved to the causality queue."""
        self.kept: dict[int, Batch] = {}
        """Accepted batches that are not fully accepted, by first number."""
        self.frontier = frontier
        self.end = 0
        """The number after the last message accepted."""
        self.first = -1
        """The number of the first message that was, or could have been, for us; -1 if that is not known."""
        self.atomic = 0
        """The number below which every destination holds the sender's messages, as far as it has told."""
        self.full = 0
        """The number after the last message fully accepted here."""
        self.csn: Vector = {}
        self.ack: Vector = {}
        """The vectors of the last batch accepted; those of the next are differences to them."""
        self.skipped: set[int] = set()
        """Places that no survivor held when the sender's stream was completed."""
        self.refused: set[int] = set()
        """Places of which others hold batches that are malformed here, once the sender has departed."""

    def expected(self) -> int:
        """Batches that the sender has sent us, by all that has come."""
        return max(self.needed, 1 + max(self.ahead, default=-1))

    def has_gap(self) -> bool:
        return self.received < self.expected()

    def missing(self, reach: int) -> list[int]:
        """Places that have not come, at most `reach` ahead."""
        limit = min(self.expected(), self.received + reach)
        return [place for place in range(self.received, limit) if place not in self.ahead]

    def holds(self) -> Iterator[Batch]:
        """Batches that could be passed on."""
        yield from self.kept.values()
        yield from (batch for batch in self.ahead.values() if isinstance(batch, Batch))

    def accept(self, batch: Batch) -> None:
        """Accept the batch of the next place."""
        self.received += 1
        self.csn = batch.csn
        self.ack = batch.ack
        # A sender that promised nothing below some number, and sends it now, takes that promise back.
        self.frontier = self.end = batch.end
        if self.first < 0:
            self.first = batch.number

    def enqueue(self, batch: Batch) -> None:
        self.kept[batch.number] = batch
        self.queue.append(batch)

    def hold(self, place: int, batch: "UnreadBatch | Batch") -> None:
        """Keep a batch beyond a gap."""
        self.ahead[place] = batch

    def need(self, place: int) -> None:
        """The sender has sent the batch of that place."""
        self.needed = max(self.needed, place + 1)

    def refuse(self, place: int) -> None:
        """Do not wait for the batch of that place: what others hold of it is malformed."""
        self.refused.add(place)

    def note_sent(self, number: int, sent: int) -> None:
        """The sender had sent us this many batches when it had reached that number."""
        if sent == 0 and self.first < 0:
            self.first = number
        if sent <= self.received:
            self.frontier = max(self.frontier, number)
        else:
            self.needed = max(self.needed, sent)

    def note_atomic(self, number: int) -> None:
        """Every destination holds the messages below that number: none of them can come to us any more."""
        self.atomic = max(self.atomic, number)
        self.frontier = max(self.frontier, number)

    def skip_to(self, place: int) -> None:
        """Go on without the batches before a place."""
        self.skipped.update(range(self.received, place))
        self.received = place

    def take_late(self, missing: list[int], late: list[int]) -> None:
        """Give up batches that turned up after the stream was completed."""
        self.skipped.difference_update(late)
        self.received = max([self.received, *(1 + place for place in missing)])


class Claims:
    """How far others say that a life has come, and what it says itself."""

    __slots__ = ("answered", "csn_version", "lie", "number")

    def __init__(self) -> None:
        self.answered = 0
        """The latest version of our table that the peer has answered with its number."""
        self.number = 0
        """That number. A batch that was here before that version, and follows messages of the peer from this
        number on, follows messages that were never sent."""
        self.csn_version = 0
        """The version of our table when our csn last rose for the peer."""
        self.lie = 0
        """A number that others said the peer had reached, although it had not."""

    def note_answer(self, version: int, number: int) -> bool:
        """The peer knew this version of our table when it had reached that number; whether that is news."""
        if version <= self.answered:
            return False
        self.answered, self.number = version, number
        return True

    def most_sent(self, version: int) -> int:
        """The number that the peer can have reached when a batch came here, under that version."""
        return self.number if version < self.answered else FOREVER


class Outgoing:
    """What was sent to a peer, and what is due to it."""

    __slots__ = (
        "ack",
        "asked",
        "chased_ns",
        "chases",
        "confirmed_ns",
        "csn",
        "due_ns",
        "sent",
        "told",
        "whole_ns",
    )

    def __init__(self) -> None:
        self.sent = 0
        """Batches sent to it."""
        self.csn: Vector = {}
        self.ack: Vector = {}
        """The vectors of the last batch sent to it."""
        self.told: Vector = {}
        """Our acks as last sent to it, whether they arrived or not."""
        self.due_ns: Nanoseconds | None = None
        """When a control message to it is due; None if it has no news to get."""
        self.whole_ns: Nanoseconds = -1
        """When it was last sent a batch, or all our acks."""
        self.confirmed_ns: Nanoseconds = -FOREVER
        """When its messages were last confirmed to it alone."""
        self.chased_ns: Nanoseconds = -FOREVER
        """When it was last asked for a control message."""
        self.chases = 0
        """How often it was asked since something of it has been awaited."""
        self.asked = 0
        """Places of batches that it has asked us for."""

    def note_batch(self, now: Nanoseconds, batch: Batch) -> None:
        self.sent += 1
        self.csn = batch.csn
        self.ack = self.told = batch.ack
        self.due_ns = None
        self.whole_ns = now

    def chase(self, now: Nanoseconds, pause_ns: Nanoseconds, longest_ns: Nanoseconds) -> bool:
        """Whether it is to be asked for a control message now: after pauses that double."""
        if now - self.chased_ns < min(
            pause_ns << min(self.chases, MOST_DOUBLINGS), max(pause_ns, longest_ns)
        ):
            return False
        self.chased_ns = now
        self.chases += 1
        return True

    def end_chase(self) -> None:
        """Nothing of it is awaited."""
        self.chases = 0

    def forget_told(self) -> None:
        """It asks for all our acks: what we told may be lost."""
        self.told = {}

    def note_control(self, now: Nanoseconds, acks: Vector, *, whole: bool) -> None:
        self.told = acks
        self.due_ns = None
        if whole:
            self.whole_ns = now


class View:
    """What a peer has said of the group: its tables, the lives that it holds to be over, what it holds."""

    __slots__ = (
        "agreed",
        "counts_us",
        "digest",
        "final",
        "knows_table",
        "listed",
        "owed",
        "satisfied",
        "serial",
        "tables",
    )

    def __init__(self, digest: int, *, final: bool) -> None:
        self.serial = -1
        """Of its latest control message."""
        self.tables: dict[int, Table] = {}
        """Its tables of names, by version."""
        self.counts_us = False
        """Whether its latest table has our life."""
        self.listed: dict[Site, int] = {}
        """The lives that are present for it, by its latest table and the lives that it holds to be over."""
        self.agreed = 0
        """The digest for which `listed` was last trimmed."""
        self.knows_table = 0
        """The latest version of our table that it has."""
        self.digest = digest
        """Of the lives that it holds to be over."""
        self.final = final
        """Whether it has completed the streams of those lives."""
        self.satisfied: int | None = None
        """The digest for which we have all that it holds for us."""
        self.owed: list[tuple[Peer, tuple[int, ...]]] = []
        """Places of departed lives that it holds for us, by the present digest, if we lack some of them."""

    @property
    def known_table(self) -> int:
        """The latest version of its table that we have."""
        return max(self.tables, default=0)

    def is_news(self, serial: int) -> bool:
        """Whether a control message is its latest one."""
        return serial > self.serial or serial + FAR < self.serial

    def update(self, serial: int, digest: int) -> None:
        """Its latest control message has this serial and digest."""
        self.serial = serial
        self.digest = digest

    def wants_table(self, version: int) -> bool:
        """Whether a version of its table is new; one far below the latest replaces all."""
        if version + FAR < self.known_table:
            self.tables.clear()
        return version > max(self.tables, default=-1)

    def add_table(self, version: int, table: Table, listed: dict[Site, int], me: "Peer") -> None:
        """Its latest table, and the lives in it that are not over."""
        self.listed = listed
        self.counts_us = any(entry.peer is me for entry in table)
        self.tables[version] = table
        while len(self.tables) > KEPT_TABLES:
            del self.tables[min(self.tables)]

    def agree(self, digest: int) -> bool:
        """It holds the same lives to be over as we do, by that digest; whether that is new."""
        is_new = self.agreed != digest
        self.agreed = digest
        return is_new

    def owe(self, places: "list[tuple[Peer, tuple[int, ...]]]") -> None:
        """It holds these places of departed lives for us."""
        self.owed = places

    def satisfy(self, digest: int) -> None:
        """We have all that it holds for us of the lives of that digest."""
        self.satisfied = digest
        self.owed = []

    def is_final(self, digest: int) -> bool:
        """Whether it has completed the streams of the lives of that digest."""
        return self.final and self.digest == digest


class Peer:
    """One life of a member; also our own."""

    __slots__ = (
        "awaited_ns",
        "buffers",
        "claims",
        "confirmed",
        "forgotten",
        "gone",
        "heard",
        "heard_ns",
        "imagined",
        "left",
        "life",
        "linked",
        "outgoing",
        "passed",
        "predecessor",
        "probed",
        "round_trip_ns",
        "settled",
        "site",
        "stream",
        "view",
        "vouched",
        "wire_bytes",
    )

    def __init__(
        self,
        site: Site,
        life: int,
        now: Nanoseconds,
        buffers: int,
        *,
        frontier: int = 0,
        digest: int = 0,
        final: bool = True,
    ) -> None:
        self.site = site
        self.life = life
        self.wire_bytes = Name(site, life).wire_bytes()
        self.stream = Stream(frontier)
        self.outgoing = Outgoing()
        self.view = View(digest, final=final)
        self.claims = Claims()
        # What it has accepted
        self.confirmed: Vector = {}
        self.passed: Vector = {}
        """What it had accepted, by its control messages, when all that it had sent us had come."""
        self.buffers = buffers
        """Batches that it can still hold."""
        self.probed = 0
        """The serial of the batch by which it was last timed."""
        self.round_trip_ns: Nanoseconds | None = None
        # Whether it is present
        self.heard_ns = now
        self.awaited_ns: Nanoseconds = now
        """Since when something of it is awaited, in a large group."""
        self.heard = False
        """Whether it has sent something itself; otherwise it is known by other members' tables."""
        self.vouched = False
        """Whether it is known not only by the word of others: it was heard, or all began together."""
        self.gone = False
        """Whether the life is over."""
        self.left = False
        """Whether it said so itself."""
        self.settled = False
        """Whether it is gone and its stream is complete: nothing more of it will be accepted here."""
        self.forgotten = False
        """Whether every member has completed its stream, so that it is named no more."""
        self.imagined = False
        """Whether there never was such a life."""
        self.predecessor: Peer | None = None
        """The site's earlier life."""
        self.linked = False
        """Whether its first message was compared with the end of the site's earlier life."""

    @property
    def name(self) -> Name:
        return Name(self.site, self.life, self.gone, self.left)

    def has_accepted(self, batch: Batch) -> bool:
        """Whether all that it will still send us was sent after it had accepted a batch."""
        sender = batch.sender
        return max(self.stream.ack.get(sender, 0), self.passed.get(sender, 0)) >= batch.end

    def confirm(self, acks: Vector) -> None:
        """It has accepted these messages; entries never fall."""
        _raise_entries(self.confirmed, acks)

    def note_passed(self, acks: Vector) -> None:
        """It had accepted these messages when it had sent nothing that we lack."""
        _raise_entries(self.passed, acks)

    def time(self, now: Nanoseconds, probe: Probe, me: "Peer") -> None:
        """Measure the round trip if it has confirmed the batch that is being timed."""
        if self.probed != probe.serial:
            round_trip_ns = probe.held(now, self.probed, self.confirmed.get(me, 0))
            if round_trip_ns is not None:
                self.probed, self.round_trip_ns = probe.serial, round_trip_ns

    def depart(self, *, left: bool) -> None:
        """Its life is over; what it has sent may still come from others."""
        self.gone = True
        self.left = left
        self.outgoing.due_ns = None

    def settle(self) -> None:
        """Nothing more of it will be accepted here, so that nothing waits for it."""
        self.settled = True
        self.stream.frontier = FOREVER

    def give_up(self) -> None:
        """There is no such life, or nothing of it is left to wait for."""
        self.gone = self.forgotten = self.imagined = True
        self.settle()

    def drop_entries(self, other: "Peer") -> None:
        """Another life is forgotten."""
        self.confirmed.pop(other, None)
        self.passed.pop(other, None)

    def is_alone(self) -> bool:
        """Whether nothing is left to move of earlier lives of its site: their messages come first."""
        earlier = self.predecessor
        while earlier is not None:
            if earlier.stream.queue or not earlier.settled:
                return False
            earlier = self.predecessor = earlier.predecessor
        return True

    def first_life(self) -> "Peer":
        """The earliest life of its site of which something is left to move, or may come."""
        first, earlier = self, self.predecessor
        while earlier is not None:
            if earlier.stream.queue or not earlier.settled:
                first = earlier
            earlier = earlier.predecessor
        return first

    def __repr__(self) -> str:
        return f"Peer({self.site}, {self.life})"


def _raise_entries(vector: Vector, told: Vector) -> None:
    """Raise each entry to what was told; entries never fall."""
    for peer, number in told.items():
        if number > vector.get(peer, 0):
            vector[peer] = number
