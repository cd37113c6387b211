"""What a member of an SCO group remembers: the others, batches on their way to delivery, and its own numbers.

The glossary from the paper's names: SQN is `next_number`, LSN_j a peer's `sent`, LRN_j its `received`, CSN is
`csn`, AL_ij is `acks`, AL_jh a peer's `confirmed`, BUF_j its `buffers`, RRQ_j its `queue` (without a gap) and
`ahead` (beyond one), CRQ is `causality`, ARQ is `ready`. F_j, the number below which nothing of a peer can
come any more, is its `frontier`.
"""

import hashlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from antiphon.core.effects import Absent, Effect, Present, SetTimer
from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.time import Nanoseconds
from antiphon.protocols.probe import Probe
from antiphon.protocols.sco.pdus import MOST_NAMES, Name, ScoConfiguration

if TYPE_CHECKING:
    from antiphon.protocols.sco.coding import Parcel

Vector: TypeAlias = "dict[Peer, int]"
Table: TypeAlias = "tuple[Entry, ...]"

CONTROL: Final = "control"
CONFIRM: Final = "confirm"
REPAIR: Final = "repair"
FOREVER: Final = 1 << 62
"""Later than any time, and beyond all numbers."""
MOST_SEEN: Final = 4 * MOST_NAMES
"""Sites whose names are remembered."""


class Entry:
    """A position of a peer's table: a name, and whom we know by it; nobody if that life is forgotten."""

    __slots__ = ("peer", "site")

    def __init__(self, site: Site, peer: "Peer | None") -> None:
        self.site = site
        self.peer = peer


class Batch:
    """Messages of one sender that are ordered as one, with all that the sender stamped on them."""

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
        """Destinations that are not known to have it; whoever is last is looked at first."""
        self.blocked_by: Peer | None = None
        """Whose messages it was last seen to wait for."""
        self.freed: frozenset[Peer] = frozenset()
        """Whose messages it does not wait for, though it says that it follows them."""
        self.since_ns: Nanoseconds = 0
        """When it was accepted, or sent."""
        self.table_version = 0
        """The version of our own table at that time."""


class Peer:
    """One life of a member, in our eyes; also our own."""

    __slots__ = (
        "ack",
        "agreed",
        "ahead",
        "answered",
        "answered_number",
        "asked",
        "buffers",
        "company",
        "confirmed",
        "counts_us",
        "csn",
        "csn_version",
        "digest",
        "due_ns",
        "end",
        "final",
        "first",
        "forgotten",
        "frontier",
        "gone",
        "heard",
        "heard_ns",
        "imagined",
        "kept",
        "knows_table",
        "left",
        "lie",
        "life",
        "linked",
        "listed",
        "needed",
        "owed",
        "passed",
        "predecessor",
        "probed",
        "queue",
        "received",
        "refused",
        "round_trip_ns",
        "satisfied",
        "sent",
        "sent_ack",
        "sent_csn",
        "serial",
        "settled",
        "site",
        "skipped",
        "tables",
        "told",
        "whole_ns",
        "wire_bytes",
    )

    def __init__(self, site: Site, life: int, now: Nanoseconds, buffers: int) -> None:
        self.site = site
        self.life = life
        self.wire_bytes = Name(site, life).wire_bytes()
        # What comes from it
        self.received = 0
        self.needed = 0
        """How many batches it has sent us, as far as we know."""
        self.ahead: dict[int, Parcel | Batch] = {}
        """What has come before its turn, by its place."""
        self.frontier = 0
        self.end = 0
        """The number after the last message accepted from it."""
        self.answered = 0
        """The latest version of our table by which it told its number, and that number: whatever follows its
        messages from there on, and was here before that version, follows what was never sent."""
        self.answered_number = 0
        self.csn_version = 0
        """The version of our table when our csn last rose for it."""
        self.lie = 0
        """A number that others said it had reached, and it had not."""
        self.queue: deque[Batch] = deque()
        self.kept: dict[int, Batch] = {}
        """Its batches that are held and not fully accepted, by their first number."""
        self.csn: Vector = {}
        self.ack: Vector = {}
        """The vectors of the last batch accepted from it, to which the next one's are differences."""
        self.confirmed: Vector = {}
        self.passed: Vector = {}
        """What it had accepted, by its control messages, when all that it had sent us had come."""
        self.buffers = buffers
        # What goes to it
        self.sent = 0
        self.sent_csn: Vector = {}
        self.sent_ack: Vector = {}
        self.told: Vector = {}
        """Our acks as it was last told them; whether that arrived is another question."""
        self.due_ns: Nanoseconds | None = None
        """By when it is to be told how things stand, if there is something that it had better know."""
        self.whole_ns: Nanoseconds = -1
        """When it was last sent a message, or all our acks."""
        self.asked = 0
        """Places of batches that it has asked us for."""
        self.probed = 0
        """The serial of the batch by which it was last timed, and how long that took."""
        self.round_trip_ns: Nanoseconds | None = None
        # Whether it counts
        self.heard_ns = now
        self.heard = False
        """Whether it has spoken itself; else it is known by what others say."""
        self.imagined = False
        """Whether it turned out that there is no such life."""
        self.serial = -1
        self.tables: dict[int, Table] = {}
        self.counts_us = False
        self.listed: dict[Site, int] = {}
        """The lives that count for it, by its latest table and what it holds to be over."""
        self.agreed = 0
        """The digest for which that was last looked at."""
        self.knows_table = 0
        self.digest = 0
        self.final = True
        self.company = 1
        self.gone = False
        self.left = False
        self.settled = False
        """Whether it is gone, and we have all that we shall ever have of it."""
        self.forgotten = False
        """Whether everyone has all of it, so that nobody need speak of it any more."""
        self.skipped: set[int] = set()
        self.refused: set[int] = set()
        """Places of batches that others hold of a life that is over, and that make no sense here."""
        self.satisfied: int | None = None
        """The digest of gone lives for which we have all that it holds of them for us."""
        self.owed: list[tuple[Peer, tuple[int, ...]]] = []
        """What it holds for us of those who are gone, by the digest at hand, if we lack some of it."""
        self.predecessor: Peer | None = None
        self.first = -1
        """The number of its first message that was, or could have been, for us; -1 if that is not known."""
        self.linked = False
        """Whether it was looked at if that follows on what came of its site's earlier life."""

    @property
    def name(self) -> Name:
        return Name(self.site, self.life, self.gone, self.left)

    @property
    def known_table(self) -> int:
        """The latest version of its table that we have."""
        return max(self.tables, default=0)

    def expected(self) -> int:
        """How many batches it has sent us, by all that has come."""
        return max(self.needed, 1 + max(self.ahead, default=-1))

    def has_accepted(self, batch: Batch) -> bool:
        """Whether all that it will still send us was sent after it had accepted a batch."""
        sender = batch.sender
        return max(self.ack.get(sender, 0), self.passed.get(sender, 0)) >= batch.end

    def holds(self) -> Iterator[Batch]:
        """Its batches that we could pass on."""
        yield from self.kept.values()
        yield from (batch for batch in self.ahead.values() if isinstance(batch, Batch))

    def __repr__(self) -> str:
        return f"Peer({self.site}, {self.life})"


class State:
    """Everything that the parts of a member share."""

    def __init__(self, site: Site, configuration: ScoConfiguration) -> None:
        self.site = site
        self.configuration = configuration
        self.effects: list[Effect] = []
        self.counts: Counter[str] = Counter()
        self.next_number = 0
        self.absent = False
        """Whether the trace knows that this member is absent."""
        self.deadlines: dict[str, Nanoseconds] = {}
        self.over: dict[Site, Name] = {}
        """The latest life of each site that is known to be over."""
        self.seen: dict[Site, None] = {site: None}
        """Sites that have ever counted, as far as that is remembered."""
        self.voices: dict[Site, int] = {}
        """The latest life of each site that it spoke with itself, as far as that is remembered."""
        self.probe = Probe()
        self.refuted = -1
        """A life of ours that is said to be over and never was, or -1."""
        self.begin(0, 0)

    def begin(self, now: Nanoseconds, life: int) -> None:
        """A life begins, and remembers nothing of those before."""
        self.life = life
        self.me = Peer(self.site, life, now, self.configuration.buffers)
        self.me.frontier = self.next_number
        self.me.linked = True
        self.peers: dict[Site, Peer] = {}
        """The others who count: one life of each site."""
        self.ghosts: list[Peer] = []
        """Lives that are over and not forgotten."""
        self.over.clear()
        self.buried: dict[Site, int] = {}
        """The latest life of each site that was forgotten, as far as it is in `over`."""
        self.ended: dict[Site, int] = {}
        """The latest life of each site that has counted here or has been heard, and is over."""
        self.reached: dict[Site, int] = {}
        """How far each site had come with us, by its own word, when a life of it was over."""
        self.disproved: dict[Site, int] = {}
        """The latest life that others told of a site whose own voice says that it has come less far."""
        self._digest = 0
        self.digest_is_stale = False
        self.final = True
        self.bereaved = False
        """Whether lives were found to be over that have not been attended to."""
        self.cut_off = False
        """Whether so many are gone that it may be we who are."""
        self.table: tuple[Peer, ...] = (self.me,)
        self.table_version = 1
        self.table_is_stale = False
        self.csn: Vector = {}
        self.csn_fell = False
        """Whether an entry had to be taken back."""
        self.acks: Vector = {}
        self._csn_copy: Vector | None = None
        self._acks_copy: Vector | None = None
        self.own: deque[Batch] = deque()
        """Own batches from the oldest that some destination has not confirmed."""
        self.waiting: dict[Peer, None] = {}
        """Those whose queues are not empty."""
        self.causality: deque[Batch] = deque()
        self.ready: deque[Batch] = deque()
        self.held = 0
        """Batches of others, and own ones to ourselves, that are not delivered yet."""
        self.taking_part = False
        self.settling_ns = now
        self.deadlines.clear()

    # Vectors

    def raise_csn(self, peer: Peer, number: int) -> None:
        if number > self.csn.get(peer, 0) and peer is not self.me:
            if peer.frontier < number <= peer.lie:
                return self.raise_csn(peer, peer.frontier)
            self.csn[peer] = number
            peer.csn_version = self.table_version
            self._csn_copy = None
        return None

    def take_back(self, peer: Peer, number: int) -> None:
        """What we follow of a peer was never sent, from that number on."""
        claimed = self.csn.get(peer, 0)
        if claimed > number:
            peer.lie = max(peer.lie, claimed)
            self.csn[peer] = number
            self.csn_fell = True
            self._csn_copy = None

    def raise_ack(self, peer: Peer, number: int) -> None:
        if number > self.acks.get(peer, 0):
            self.acks[peer] = number
            self._acks_copy = None

    def csn_now(self) -> Vector:
        """The vector as it stands, in a copy that nobody changes."""
        if self._csn_copy is None:
            self._csn_copy = dict(self.csn)
        return self._csn_copy

    def acks_now(self) -> Vector:
        if self._acks_copy is None:
            self._acks_copy = dict(self.acks)
        return self._acks_copy

    def drop_entries(self, peer: Peer) -> None:
        """A life is forgotten."""
        self.csn.pop(peer, None)
        self.acks.pop(peer, None)
        self._csn_copy = self._acks_copy = None
        for other in self.peers.values():
            other.confirmed.pop(peer, None)
            other.passed.pop(peer, None)

    # Those who are gone

    @property
    def digest(self) -> int:
        """What stands for the lives that are over."""
        if self.digest_is_stale:
            self.digest_is_stale = False
            self._digest = digest_of(self.over.values())
        return self._digest

    def is_final(self) -> bool:
        """Whether we have, and have moved, all that we shall ever have of the lives that are over."""
        return self.final and not any(ghost.queue for ghost in self.ghosts)

    def everyone_is_final(self) -> bool:
        """Whether the same is known of all who count, and all of them have told us what they hold."""
        return self.is_final() and all(
            peer.final and peer.digest == peer.satisfied == self.digest for peer in self.peers.values()
        )

    # Time

    def arm(self, now: Nanoseconds, name: str, after_ns: Nanoseconds) -> None:
        """Have a timer run out no later than that."""
        due_ns = now + after_ns
        if due_ns < self.deadlines.get(name, FOREVER):
            self.deadlines[name] = due_ns
            self.effects.append(SetTimer(name, after_ns))

    def tell(self, now: Nanoseconds, peer: Peer, within_ns: Nanoseconds | None = None) -> None:
        """There is something that a peer had better know soon: within `confirm_ns` unless told otherwise."""
        if peer.gone or peer is self.me:
            return
        wait_ns = self.configuration.confirm_ns if within_ns is None else within_ns
        if peer.due_ns is None or now + wait_ns < peer.due_ns:
            peer.due_ns = now + wait_ns
            self.arm(now, CONFIRM, wait_ns)

    def note_site(self, site: Site) -> None:
        self.seen[site] = None
        trim(self.seen, MOST_SEEN)

    def note_voice(self, site: Site, life: int) -> None:
        self.voices[site] = max(life, self.voices.pop(site, -1))
        trim(self.voices, MOST_SEEN)

    def note_reached(self, site: Site, number: int) -> None:
        self.reached.pop(site, None)
        self.reached[site] = number
        trim(self.reached, MOST_SEEN)

    def time(self, now: Nanoseconds, peer: Peer) -> None:
        """A member may have confirmed more: how long did that take?"""
        if peer.probed != self.probe.serial:
            round_trip_ns = self.probe.held(now, peer.probed, peer.confirmed.get(self.me, 0))
            if round_trip_ns is not None:
                peer.probed, peer.round_trip_ns = self.probe.serial, round_trip_ns

    def note_hole(self) -> None:
        """Messages that others have were not delivered here: this spell of presence is over."""
        self.counts["holes"] += 1
        if self.taking_part:
            self.effects += (Absent(), Present())

    def ignore(self) -> None:
        """What came from a peer made no sense."""
        self.counts["ignored"] += 1

    def present_table(self) -> tuple[Peer, ...]:
        """Our table of names, made anew if somebody has come or gone."""
        if self.table_is_stale:
            self.table_is_stale = False
            self.table = (self.me, *self.peers.values(), *self.ghosts)
            self.table_version += 1
        return self.table


def trim(table: "dict[Site, Any]", most: int) -> None:
    """Forget the oldest entry of a table that has become too long."""
    if len(table) > most:
        del table[next(iter(table))]


def digest_of(names: Iterable[Name]) -> int:
    """What stands for a map of lives that are over; 0 for the empty one."""
    lives = sorted((name.site, name.life) for name in names)
    if not lives:
        return 0
    digest = hashlib.blake2b(repr(lives).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")
