"""What the sites of overlapping groups say to one another, and what a user may turn.

The first PDUs carry messages along one tree. The others serve the council: how sites find out who is
there, and how they agree on who is in which group and on what becomes of the messages under way.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from antiphon.core.errors import UsageError
from antiphon.core.fields import LONGEST_NAME, NUMBER_LIMIT, Hash, Incarnation, Name, Number
from antiphon.core.ids import Group, Site
from antiphon.core.packing import Packed
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import MAXIMUM_BODY_BYTES, MAXIMUM_NAME_BYTES, Pdu
from antiphon.protocols.metagroups.shapes import Shape

LARGEST_BATCH_BYTES: Final = MAXIMUM_BODY_BYTES - 4096
"""What a batch may take on the wire, so that it also fits with its tree and its names around it."""
MOST_MISSING: Final = 32
"""Places of a channel that are asked for at once."""
BUSY: Final = 0
"""The stage of a site that has own batches on a tree which are not stable."""
DRAINED: Final = 1
"""The stage of one that has none left and will have none; when all are there, the streams can end."""
FINISHED: Final = 2
"""The stage of one that has delivered its stream to the end."""
NO_GROUP: Final[Group] = ""
"""The group of an entry that ends a stream."""
MOST_GROUPS: Final = 1024
"""Groups that one site can be in."""
MOST_LETTERS: Final = 16 << 10
"""Letters in the names of all groups that one site is in."""
LARGEST_TABLE: Final = 4 << 20
"""Letters in a table, a name counted wherever it stands."""
MOST_RETIRING: Final = 16
"""Trees that may hand over at once; each keeps what is under way on it. Others are stopped if altered."""
MOST_WANTED: Final = 256
"""Batches that are asked for at once when a tree ends."""
SHARED_KNOBS: Final = ("delivery", "bodies", "causal", "shape", "bypass")
LONGEST_RULES: Final = 256
"""Characters in which a site says how it turns them."""
MOST_SITES: Final = 4096
"""Sites in a table, and those outside of which word is kept."""
MOST_TREES: Final = MOST_SITES + MOST_RETIRING
"""Trees on which anything can be under way: each has a site that is on no other, or hands over."""
MOST_ITEMS: Final = 1 << 16
"""Batches under way on a tree when it ends. Its parts keep a PDU of more from being taken anyway."""
MOST_TREE_GROUPS: Final = 1 << 16
"""Groups whose messages travel on one tree."""
PART_BYTES: Final = 48 << 10
"""What goes into one PDU of those that are cut; anything smaller is not cut."""
MOST_PARTS: Final = 512
"""Parts of one whole: 24 MB."""

GroupName: TypeAlias = Annotated[Group, Meta(min_length=1, max_length=MAXIMUM_NAME_BYTES)]
GroupOrNone: TypeAlias = Annotated[Group, Meta(max_length=MAXIMUM_NAME_BYTES)]
"""The same, or `NO_GROUP`."""
Groups: TypeAlias = Annotated[tuple[GroupName, ...], Meta(max_length=MOST_GROUPS)]
NameOrNone: TypeAlias = Annotated[Site, Meta(max_length=LONGEST_NAME)]
FromOne: TypeAlias = Annotated[int, Meta(ge=1, lt=NUMBER_LIMIT)]
"""A number that counts from 1."""
Sites: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=MOST_SITES)]
Rules: TypeAlias = Annotated[str, Meta(max_length=LONGEST_RULES)]

TreeId: TypeAlias = tuple[Number, Number]
"""A tree as long as it stands unchanged: the version of the table that planted it, and its place there."""
TreeIds: TypeAlias = Annotated[tuple[TreeId, ...], Meta(max_length=MOST_TREES)]
Life: TypeAlias = tuple[Incarnation, Number]
"""A site's memory: its incarnation, and how often it has begun anew since, because it was left out."""
Ballot: TypeAlias = tuple[Number, NameOrNone]
"""An attempt to change the table; of two the greater is the later one."""
Origin: TypeAlias = tuple[Incarnation, Number, NameOrNone]
"""Who founded a cluster, with which memory; of two clusters that meet, the greater gives way."""
Stage: TypeAlias = Annotated[int, Meta(ge=BUSY, le=FINISHED)]
Stages: TypeAlias = Annotated[tuple[tuple[TreeId, Stage], ...], Meta(max_length=MOST_RETIRING)]


class Request(Pdu, frozen=True, gc=False):
    """A batch on its way to the primary site of its group's primary meta-group; `seq` counts a site's own."""

    code: ClassVar[int] = 120
    tree: TreeId
    node: Number
    life: Life
    seq: FromOne
    number: Number
    group: GroupName
    bodies: Packed


class TokenRequest(Pdu, frozen=True, gc=False):
    """The same without the bodies, which go to all members directly."""

    code: ClassVar[int] = 137
    tree: TreeId
    node: Number
    life: Life
    seq: FromOne
    number: Number
    count: FromOne
    group: GroupName


class Taken(Pdu, frozen=True, gc=False):
    """Requests up to `accepted` have come; those up to `stable` are held by all for whom they are."""

    code: ClassVar[int] = 121
    tree: TreeId
    node: Number
    life: Life
    accepted: Number
    stable: Number


class Query(Pdu, frozen=True, gc=False):
    """How far are my requests?"""

    code: ClassVar[int] = 134
    tree: TreeId
    node: Number
    life: Life


class Entry(Pdu, frozen=True, gc=False):
    """What stands at a place of a channel: messages number, number+1, … of a sender to a group.

    What lies up to `ready` may be delivered, and what lies up to `settled` was, by all for whom it is.
    """

    code: ClassVar[int] = 122
    tree: TreeId
    channel: Number
    seq: FromOne
    ready: Number
    settled: Number
    sender: Name
    incarnation: Incarnation
    number: Number
    group: GroupOrNone
    bodies: Packed


class Token(Pdu, frozen=True, gc=False):
    """The same without the bodies."""

    code: ClassVar[int] = 138
    tree: TreeId
    channel: Number
    seq: FromOne
    ready: Number
    settled: Number
    sender: Name
    incarnation: Incarnation
    number: Number
    count: FromOne
    group: GroupName


class Body(Pdu, frozen=True, gc=False):
    """A batch from its sender to all for whom it is; its place comes along the tree."""

    code: ClassVar[int] = 139
    tree: TreeId
    life: Life
    number: Number
    group: GroupName
    bodies: Packed


class Mark(Pdu, frozen=True, gc=False):
    """How far a channel goes, and the same two marks without an entry."""

    code: ClassVar[int] = 123
    tree: TreeId
    channel: Number
    last: Number
    ready: Number
    settled: Number


class Held(Pdu, frozen=True, gc=False):
    """A receiver and all below it hold what lies up to `held`, and have delivered what lies up to `done`."""

    code: ClassVar[int] = 124
    tree: TreeId
    channel: Number
    held: Number
    done: Number
    missing: Annotated[tuple[Number, ...], Meta(max_length=MOST_MISSING)]


class Word(Pdu, frozen=True, gc=False):
    """I am here, this is the table that I know, and in these groups I want to be; `serial` counts wishes.

    Without an origin it comes from a site that is in no cluster yet.
    """

    code: ClassVar[int] = 125
    origin: Origin | None
    version: Number
    life: Life
    serial: Number
    groups: Groups
    rules: Rules
    """What all sites of a cluster must do alike, as this one does it."""
    stages: Stages = ()
    """How far this site is with trees that hand over to others; those that it is done with are left out."""


class Progress(Pdu, frozen=True, gc=False):
    """How far all sites are with trees that hand over to others."""

    code: ClassVar[int] = 135
    stages: Stages


class Goodbye(Pdu, frozen=True, gc=False):
    """I go, and need not be waited for."""

    code: ClassVar[int] = 136
    life: Life


class Seat(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One site of the cluster, and in which groups it is."""

    site: Name
    life: Life
    serial: Number
    groups: Groups


class Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A batch by its name: messages number, number+1, … of a sender to a group."""

    sender: Name
    number: Number
    count: FromOne
    group: GroupName


Items: TypeAlias = Annotated[tuple[Item, ...], Meta(max_length=MOST_ITEMS)]


class Ending(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is delivered last in a tree that ends, in this order; `sources` are sites that have each of it.

    The first `sure` of it may have been delivered somewhere.
    """

    tree: TreeId
    items: Items
    sources: Annotated[tuple[Name, ...], Meta(max_length=MOST_ITEMS)]
    sure: Number


class Retiring(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A tree that hands over to others: what is under way on it goes on, nothing new does.

    `members` tells who is in which group there.
    """

    tree: TreeId
    members: Annotated[tuple[tuple[GroupName, Sites], ...], Meta(max_length=MOST_TREE_GROUPS)]


class Decision(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A version of the table: who is there, in which groups, on which trees; and how earlier trees end.

    `ballot` is the attempt that made it, and so its name.
    """

    origin: Origin
    version: Number
    ballot: Ballot
    seats: Annotated[tuple[Seat, ...], Meta(min_length=1, max_length=MOST_SITES)]
    primaries: Annotated[tuple[tuple[Groups, Name], ...], Meta(max_length=MOST_SITES)]
    trees: Annotated[tuple[tuple[Groups, TreeId], ...], Meta(max_length=MOST_SITES)]
    retiring: Annotated[tuple[Retiring, ...], Meta(max_length=MOST_RETIRING)]
    endings: Annotated[tuple[Ending, ...], Meta(max_length=MOST_TREES)]


class Vote(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A decision that a site has accepted in some attempt.

    `whole` says that it holds all that it must deliver by it. An `adopted` one was made by an earlier attempt
    and may be in force somewhere.
    """

    ballot: Ballot
    adopted: bool
    whole: bool
    decision: Decision


class Holding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a site has of a stopped tree: the end of its stream, of which it delivered so many, and its own
    batches that it does not know to be stable."""

    tree: TreeId
    stream: Items
    delivered: Number
    waiting: Items


class Prepare(Pdu, frozen=True, gc=False):
    """I want to make the next version of the table: stop these trees, and tell me what you hold of them."""

    code: ClassVar[int] = 126
    rules: Rules
    origin: Origin
    version: Number
    round: Number
    stop: TreeIds


class Report(Pdu, frozen=True, gc=False):
    """I shall take part in no earlier attempt; this is what I have accepted and what I hold."""

    code: ClassVar[int] = 127
    version: Number
    round: Number
    life: Life
    vote: Vote | None
    holdings: Annotated[tuple[Holding, ...], Meta(max_length=MOST_TREES)]


class Accept(Pdu, frozen=True, gc=False):
    """This is to be the next version."""

    code: ClassVar[int] = 128
    version: Number
    round: Number
    adopted: bool
    decision: Decision


class Accepted(Pdu, frozen=True, gc=False):
    """I have accepted it, and hold all that I must deliver by it."""

    code: ClassVar[int] = 129
    version: Number
    round: Number
    life: Life


class Refuse(Pdu, frozen=True, gc=False):
    """I take part in a later attempt."""

    code: ClassVar[int] = 130
    version: Number
    round: Number


class Install(Pdu, frozen=True, gc=False):
    """This version of the table is in force, in a cluster with these rules."""

    code: ClassVar[int] = 131
    rules: Rules
    decision: Decision


class Want(Pdu, frozen=True, gc=False):
    """I lack these batches of a tree: a sender and a number each."""

    code: ClassVar[int] = 132
    tree: TreeId
    items: Annotated[tuple[tuple[Name, Number], ...], Meta(max_length=MOST_WANTED)]


class Copy(Pdu, frozen=True, gc=False):
    """One of them."""

    code: ClassVar[int] = 133
    tree: TreeId
    sender: Name
    incarnation: Incarnation
    number: Number
    group: GroupName
    bodies: Packed


class Part(Pdu, frozen=True, gc=False):
    """Part number `place` of `count` of a PDU that is too large; `kind` is that one's code."""

    code: ClassVar[int] = 143
    kind: Annotated[int, Meta(ge=1, le=255)]
    name: Hash
    place: Number
    count: Annotated[int, Meta(ge=1, le=MOST_PARTS)]
    data: Annotated[bytes, Meta(min_length=1, max_length=PART_BYTES)]


PDUS: Final[tuple[type[Pdu], ...]] = (
    Request,
    TokenRequest,
    Taken,
    Query,
    Entry,
    Token,
    Body,
    Mark,
    Held,
    Word,
    Progress,
    Goodbye,
    Prepare,
    Report,
    Accept,
    Accepted,
    Refuse,
    Install,
    Want,
    Copy,
    Part,
)
DATA_PDUS: Final[tuple[type[Pdu], ...]] = (Request, TokenRequest, Entry, Token, Body)
"""Those that carry bodies or their order where nobody has crashed: what the paper counts."""


@dataclass(frozen=True, kw_only=True)
class MetaGroupsConfiguration:
    """What a user may turn; each knob says what raising it costs."""

    delivery: Literal["safe", "agreed"] = "safe"
    """Safe waits until all for whom a message is hold it: only then does a crash take nothing along that
    somebody has delivered. Agreed is the paper's: at once."""
    bodies: Literal["tree", "direct"] = "tree"
    """Whether bodies travel down the tree, or from their sender to all members at once and only small tokens
    down the tree. Direct spares primary sites the most bytes and costs one PDU more a batch."""
    causal: bool = False
    """Whether safe delivery keeps causal order across groups. That costs a sender the time until its earlier
    messages are stable whenever it turns to another primary site."""
    shape: Shape = "shallow"
    """How trees are grown; `printed` follows the paper to the letter and grows chains."""
    bypass: bool = False
    """Whether messages go past nodes that only pass them on, where any two groups stay in one order. That
    costs the one order of all groups: three messages to three groups can be in a circle."""
    admission: int = 64
    """Own batches that are not stable. Raising it costs memory, here and at primary sites."""
    window: int = 64
    """Batches of its own groups that a primary site has under way. Raising it costs memory everywhere, and
    makes changes of the table longer."""
    acknowledge_ns: Nanoseconds = MILLISECOND_NS
    """How long receivers collect what they acknowledge. Raising it costs latency and saves PDUs."""
    repair_ns: Nanoseconds = 20 * MILLISECOND_NS
    """Without news for so long, a sender asks or repeats. Raising it makes losses last longer."""
    heartbeat_ns: Nanoseconds = 50 * MILLISECOND_NS
    """Pause between words to the coordinator, and from it. Raising it costs time until a crash is found."""
    suspect_ns: Nanoseconds = 300 * MILLISECOND_NS
    """Who is silent for so long is held to be gone. Lowering it leaves out those who are only slow."""
    gather_ns: Nanoseconds = 10 * MILLISECOND_NS
    """How long the coordinator waits for more changes to come before it makes one of them all."""
    found_ns: Nanoseconds = 300 * MILLISECOND_NS
    """Who has heard of no cluster for so long founds one. Lowering it makes clusters that have to merge."""
    says_goodbye: bool = False
    """Whether a site that goes absent says so: then nobody waits for it, and it begins anew if it returns."""

    @property
    def rules(self) -> str:
        """The knobs that all sites of a cluster must turn alike; those who turn them otherwise stay out."""
        return " ".join(f"{name}={getattr(self, name)}" for name in SHARED_KNOBS)

    def __post_init__(self) -> None:
        if self.delivery not in ("safe", "agreed"):
            raise UsageError(f"There is no delivery '{self.delivery}'.", hint="Choose safe or agreed.")
        if self.bodies not in ("tree", "direct"):
            raise UsageError(f"Bodies cannot go '{self.bodies}'.", hint="Choose tree or direct.")
        if min(self.admission, self.window) < 1:
            raise UsageError("At least one batch must be allowed under way.")
        times_ns = (self.repair_ns, self.heartbeat_ns, self.suspect_ns, self.gather_ns, self.found_ns)
        if min(times_ns) < 1 or self.acknowledge_ns < 0:
            raise UsageError("Times must be positive; only acknowledgements may go out at once.")
        if self.suspect_ns <= 2 * self.heartbeat_ns:
            raise UsageError(
                "Who misses two words must not be held to be gone yet.",
                hint="Raise suspect_ns or lower heartbeat_ns.",
            )
