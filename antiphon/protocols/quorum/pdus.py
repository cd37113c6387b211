"""The log's entries, the PDUs of the quorum protocol, and its configuration."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec
from msgspec import Meta

from antiphon.core.errors import UsageError
from antiphon.core.fields import Hash, Incarnation, Name, Number
from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu

LARGEST_BODY_BYTES: Final = 256 << 10
"""Bytes of one batch of commands: it fits a PDU beside the fields around it."""
MOST_ENTRIES: Final = 4096
"""Entries in one PDU."""
MOST_PIECES: Final = 64
"""Pieces of a snapshot that one PDU asks for."""
MOST_VOTERS: Final = 64
"""Members of a replicated group. Raising it costs acknowledgements at the leader."""

NOOP: Final = 0
"""A new leader's first entry: it commits what earlier leaders left behind."""
BATCH: Final = 1
"""Commands of one session."""
ENTER: Final = 2
"""A session begins; an earlier one of the same member is over."""
DEPART: Final = 3
"""A session is over: its member is gone."""
CONFIG: Final = 4
"""The members from this entry on."""
TICK: Final = 5
"""The leader's clock."""
SEAL: Final = 6
"""With number 1, no batch takes effect from here on; with number 0, batches do again."""
MERGE: Final = 7
"""A piece of another side's state: `number` of `life` pieces. With the last, that state is merged."""

Body: TypeAlias = Annotated[bytes, Meta(max_length=LARGEST_BODY_BYTES)]
Identities: TypeAlias = Annotated[dict[Name, Incarnation], Meta(max_length=MOST_VOTERS)]
Prompt: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=MOST_VOTERS)]
Pieces: TypeAlias = Annotated[tuple[Number, ...], Meta(max_length=MOST_PIECES)]


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry of the log. `life` and `number` name a batch among those of its sender."""

    term: Number
    kind: Annotated[int, Meta(ge=0, le=MERGE)]
    sender: Annotated[Site, Meta(max_length=64)] = ""
    life: Incarnation = 0
    number: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0
    body: Body = b""


Entries: TypeAlias = Annotated[tuple[Entry, ...], Meta(max_length=MOST_ENTRIES)]


class Config(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The members that count: each name with the identity of its memory.

    A member that has lost its memory has another identity, and is not the voter that it was.
    """

    voters: Identities
    learners: Identities = {}

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def identity_of(self, site: Site) -> int | None:
        """The identity under which a member is known; None if it is no member."""
        found = self.voters.get(site)
        return self.learners.get(site) if found is None else found

    @property
    def names(self) -> list[Site]:
        """Voters and learners, in order."""
        return sorted({*self.voters, *self.learners})


NO_CONFIG: Final = Config({})


class Greet(Pdu, frozen=True, gc=False):
    """A process shows the identity of its memory and the group that it belongs to, 0 if to none.

    `answers` is the identity of the process that is answered; 0 asks everyone to answer.
    """

    code: ClassVar[int] = 170
    identity: Incarnation
    group: Hash
    answers: Incarnation = 0
    stores: bool = False
    """Whether it keeps a store."""
    expected: Number = 0
    """How many members it expects; 0 if their names were given."""


class Found(Pdu, frozen=True, gc=False):
    """Founds a group, or informs a process that it is a member of one.

    `base` are the members at the beginning of the log. `to` is the identity of the process that it is for;
    0 means every member that `base` names.
    """

    code: ClassVar[int] = 171
    group: Hash
    base: Config
    to: Incarnation = 0
    is_led: bool = False
    """Whether the sender leads this group."""


class Ask(Pdu, frozen=True, gc=False):
    """A candidate asks for a vote; with `trial` it asks whether it would get the vote."""

    code: ClassVar[int] = 172
    group: Hash
    identity: Incarnation
    term: Number
    last_index: Number
    last_term: Number
    trial: bool
    handed_over: bool = False
    """Whether the leader itself asked the candidate to follow it."""


class Vote(Pdu, frozen=True, gc=False):
    """The answer. Where it is granted, `term` is the term asked for; else it is the voter's term."""

    code: ClassVar[int] = 173
    group: Hash
    identity: Incarnation
    term: Number
    granted: bool
    trial: bool


class Append(Pdu, frozen=True, gc=False):
    """The leader's entries after `previous`; without entries, a sign of life.

    `durable` is the index up to which the leader's own log is safe from a crash.
    """

    code: ClassVar[int] = 174
    group: Hash
    identity: Incarnation
    term: Number
    previous: Number
    previous_term: Number
    commit: Number
    durable: Number
    entries: Entries = ()
    prompt: Prompt = ()
    """Members that acknowledge at once, as many as it takes; others may wait a little. Empty means all."""

    @property
    def bodies(self) -> object | None:
        """What makes the transport pace it."""
        return self.entries or None


class Acknowledge(Pdu, frozen=True, gc=False):
    """A member's log equals the leader's up to `match`; if it is `lacking`, at most up to there."""

    code: ClassVar[int] = 175
    group: Hash
    identity: Incarnation
    term: Number
    match: Number
    lacking: bool = False


class Forward(Pdu, frozen=True, gc=False):
    """A member hands a batch of its commands to the leader. Number 0 begins the session."""

    code: ClassVar[int] = 176
    group: Hash
    identity: Incarnation
    life: Incarnation
    number: Number
    body: Body = b""


class Expect(Pdu, frozen=True, gc=False):
    """The leader lacks an earlier batch of this session: it expects `number`."""

    code: ClassVar[int] = 177
    group: Hash
    life: Incarnation
    number: Number


class Offer(Pdu, frozen=True, gc=False):
    """The leader no longer has the entries that a member lacks, and offers a snapshot up to `index`."""

    code: ClassVar[int] = 178
    group: Hash
    identity: Incarnation
    term: Number
    index: Number
    index_term: Number
    size: Number
    checksum: Annotated[int, Meta(ge=0, lt=1 << 32)]


class Fetch(Pdu, frozen=True, gc=False):
    """A member asks for pieces of the snapshot up to `index`."""

    code: ClassVar[int] = 179
    group: Hash
    identity: Incarnation
    index: Number
    pieces: Pieces


class Piece(Pdu, frozen=True, gc=False):
    """One piece of a snapshot."""

    code: ClassVar[int] = 190
    group: Hash
    index: Number
    number: Number
    body: Body

    @property
    def bodies(self) -> object | None:
        """What makes the transport pace it."""
        return self.body


class Change(Pdu, frozen=True, gc=False):
    """A member asks the leader to add a member, or to remove it. Asking twice changes nothing."""

    code: ClassVar[int] = 191
    group: Hash
    name: Name
    remove: bool


class Handover(Pdu, frozen=True, gc=False):
    """The leader leaves and asks this member to lead as soon as it has the entries up to `index`."""

    code: ClassVar[int] = 192
    group: Hash
    term: Number
    index: Number


class Removed(Pdu, frozen=True, gc=False):
    """The group no longer knows the process that asked for a vote."""

    code: ClassVar[int] = 193
    group: Hash
    identity: Incarnation
    index: Number
    """The index of the entry that says so; it is committed."""


class Bye(Pdu, frozen=True, gc=False):
    """A member leaves: its session may end at once."""

    code: ClassVar[int] = 194
    group: Hash
    life: Incarnation


class Agree(Pdu, frozen=True, gc=False):
    """The lowest of these processes asks whether they shall be a group; the others answer that they agree."""

    code: ClassVar[int] = 201
    members: Identities


PDUS: Final[tuple[type[Pdu], ...]] = (
    Greet, Found, Ask, Vote, Append, Acknowledge, Forward, Expect, Offer, Fetch, Piece, Change, Handover,
    Removed, Bye, Agree,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class QuorumConfiguration:
    """The knobs, each with what raising it costs."""

    heartbeat_ns: Nanoseconds = 18 * MILLISECOND_NS
    """Pause between the leader's signs of life. Raising it costs time until a dead leader is noticed."""
    election_ns: Nanoseconds = 60 * MILLISECOND_NS
    """Least silence of the leader before an election; up to two thirds more is drawn at random. Raising it
    costs time without a leader; lowering it costs elections on a busy machine."""
    cut_off_ns: Nanoseconds = 500 * MILLISECOND_NS
    """A member without contact to a majority for this long is cut off. Raising it costs time until calls
    fail in a minority."""
    depart_ns: Nanoseconds = SECOND_NS
    """A member that the leader has not heard for this long has departed. Raising it costs time until its
    locks are free; lowering it costs members that only paused their locks."""
    greet_ns: Nanoseconds = 40 * MILLISECOND_NS
    """Pause between the greetings of a process without a group. Raising it costs time to begin."""
    late_ns: Nanoseconds = 3 * MILLISECOND_NS
    """Time that an acknowledgement may wait where the leader does not need it. Raising it costs time where a
    member that is needed is slow; lowering it costs datagrams."""
    resend_ns: Nanoseconds = 25 * MILLISECOND_NS
    """Pause before what was not answered is sent again. Raising it costs time after a loss."""
    batch_bytes: int = 60_000
    """Bytes of entries in one PDU. Raising it costs more at each loss."""
    window: int = 4
    """PDUs with entries that the leader has under way. Raising it costs smaller batches."""
    forwards: int = 2
    """Batches that a member has under way to the leader. Raising it costs smaller batches."""
    piece_bytes: int = 60_000
    """Bytes in one piece of a snapshot."""
    piece_window: int = 16
    """Pieces of a snapshot under way. Raising it costs losses where buffers are small."""
    kept_bytes: int = 4 << 20
    """Bytes of entries kept behind a snapshot for members that lag a little. Raising it costs memory."""
    unstored_bytes: int = 32 << 20
    """Most bytes of entries that wait for the disk; further ones are refused. Raising it costs memory."""
    admits_all: bool = False
    """Whether a process that belongs to no group is added as soon as it greets."""
    stores: bool = False
    """Whether the log is kept on disk, and nothing counts before it is there."""
    expected: int = 0
    """How many members found the group, where their names are not given. Raising it costs patience."""

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_ns < self.election_ns:
            raise UsageError("A leader gives signs of life more often than members look for them.")
        if not 0 < self.batch_bytes <= LARGEST_BODY_BYTES or not 0 < self.piece_bytes <= LARGEST_BODY_BYTES:
            raise UsageError(f"A batch or a piece has 1 to {LARGEST_BODY_BYTES} bytes.")
        if not 0 < self.piece_window <= MOST_PIECES or self.window < 1 or self.forwards < 1:
            raise UsageError(f"A window has at least one PDU, and at most {MOST_PIECES} pieces.")
        if not 0 <= self.expected <= MOST_VOTERS:
            raise UsageError(f"A group has at most {MOST_VOTERS} members.")
