"""The PDUs between the sites of overlapping groups, and the options.

The first PDUs carry messages along one tree. The others serve the membership protocol: how sites find one
another, and how they agree on the members of each group and on the messages under way.
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
"""Bytes of a batch on the wire. The rest of a PDU is kept for its tree and its names."""
MOST_MISSING: Final = 32
"""Entries that one PDU asks for."""
BUSY: Final = 0
"""The stage of a site that has own batches on a retiring tree which are not stable."""
DRAINED: Final = 1
"""The stage of a site that has none left and will have none; when all are there, the streams can end."""
FINISHED: Final = 2
"""The stage of a site that has delivered its stream to the end."""
NO_GROUP: Final[Group] = ""
"""The group of an entry that ends a stream."""
MOST_GROUPS: Final = 1024
"""Groups that one site can be in."""
MOST_LETTERS: Final = 16 << 10
"""Letters in the names of all groups that one site is in."""
LARGEST_VIEW: Final = 4 << 20
"""Letters in a view, each name counted wherever it stands."""
MOST_RETIRING: Final = 16
"""Trees that may retire at once; beyond that, altered trees are stopped. Raising it costs memory."""
MOST_WANTED: Final = 256
"""Batches that one PDU asks for when a tree ends."""
SHARED_OPTIONS: Final = ("delivery", "bodies", "causal", "shape", "bypass")
LONGEST_RULES: Final = 256
"""Characters of a site's shared options in a PDU."""
MOST_SITES: Final = 4096
"""Sites in a view, and sites outside whose requests are kept."""
MOST_TREES: Final = MOST_SITES + MOST_RETIRING
"""Trees on which anything can be under way: each retires, or has a site that is on no other such tree."""
MOST_ITEMS: Final = 1 << 16
"""Batches under way on a tree when it ends. `MOST_PARTS` bounds them too."""
MOST_TREE_GROUPS: Final = 1 << 16
"""Groups whose messages travel on one tree."""
PART_BYTES: Final = 48 << 10
"""Bytes of a part; a smaller PDU is not split."""
MOST_PARTS: Final = 512
"""Reassembly of one whole: 24 MB."""
MOST_MOVES: Final = 255
"""Joins that alter no tree, in one view; the next one changes the view. Raising it costs memory, and bytes
where a site learns of them late."""

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
"""A tree: the version of the view that planted it, and its place there."""
TreeIds: TypeAlias = Annotated[tuple[TreeId, ...], Meta(max_length=MOST_TREES)]
Session: TypeAlias = tuple[Incarnation, Number]
"""A span of a site's unbroken memory: its incarnation, and how often it has started anew since."""
Ballot: TypeAlias = tuple[Number, NameOrNone]
"""An attempt to change the view: its round and its proposer. Of two the greater is the later one."""
Origin: TypeAlias = tuple[Incarnation, Number, NameOrNone]
"""A cluster, by the session and the name of its founder. Of two clusters that meet, the greater gives way."""
MoveNumber: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_MOVES)]
MoveCount: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_MOVES)]
Stage: TypeAlias = Annotated[int, Meta(ge=BUSY, le=FINISHED)]
Stages: TypeAlias = Annotated[tuple[tuple[TreeId, Stage], ...], Meta(max_length=MOST_RETIRING)]


class Request(Pdu, frozen=True, gc=False):
    """A batch on its way to the primary site of its group's primary meta-group; `seq` counts a site's own."""

    code: ClassVar[int] = 120
    tree: TreeId
    node: Number
    session: Session
    seq: FromOne
    number: Number
    group: GroupName
    bodies: Packed
    moves: MoveCount = 0
    """The moves that its sender knew when it admitted the batch: they tell its destinations."""


class TokenRequest(Pdu, frozen=True, gc=False):
    """A request without the bodies, which go to all members directly."""

    code: ClassVar[int] = 137
    tree: TreeId
    node: Number
    session: Session
    seq: FromOne
    number: Number
    count: FromOne
    group: GroupName


class Taken(Pdu, frozen=True, gc=False):
    """Requests up to `accepted` have come; those up to `stable` are held by every destination."""

    code: ClassVar[int] = 121
    tree: TreeId
    node: Number
    session: Session
    accepted: Number
    stable: Number


class Query(Pdu, frozen=True, gc=False):
    """A sender asks for the state of its requests."""

    code: ClassVar[int] = 134
    tree: TreeId
    node: Number
    session: Session


class Entry(Pdu, frozen=True, gc=False):
    """The batch at a place of a channel: messages number, number+1, … of a sender to a group.

    Entries up to `ready` may be delivered, and those up to `settled` were, by every destination. An entry
    without a group ends the stream if its number is 0; otherwise it is the place of a move in the order.
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
    moves: MoveCount = 0


class Token(Pdu, frozen=True, gc=False):
    """An entry without the bodies."""

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
    """A batch from its sender to all destinations; its place comes along the tree."""

    code: ClassVar[int] = 139
    tree: TreeId
    session: Session
    number: Number
    group: GroupName
    bodies: Packed


class Mark(Pdu, frozen=True, gc=False):
    """The last entry of a channel, and both marks."""

    code: ClassVar[int] = 123
    tree: TreeId
    channel: Number
    last: Number
    ready: Number
    settled: Number


class Held(Pdu, frozen=True, gc=False):
    """A receiver and all sites below it hold entries up to `held`, and have delivered those up to `done`."""

    code: ClassVar[int] = 124
    tree: TreeId
    channel: Number
    held: Number
    done: Number
    missing: Annotated[tuple[Number, ...], Meta(max_length=MOST_MISSING)]


class Heartbeat(Pdu, frozen=True, gc=False):
    """A sign of life, with the sender's view and the groups that it wants to be in; `serial` counts requests.

    Without an origin it comes from a site that is in no cluster.
    """

    code: ClassVar[int] = 125
    origin: Origin | None
    version: Number
    session: Session
    serial: Number
    groups: Groups
    rules: Rules
    """The sender's shared options."""
    stages: Stages = ()
    """The sender's stages on retiring trees; trees that it has finished are left out."""
    moves: MoveCount = 0
    """From the first site of the view: the moves that every sender should know."""
    settled: MoveCount = 0
    """No batch of the sender is unstable, or will be, that names a site which leaves by a move up to this."""


class Progress(Pdu, frozen=True, gc=False):
    """The stages that all sites have reached on retiring trees."""

    code: ClassVar[int] = 135
    stages: Stages


class Goodbye(Pdu, frozen=True, gc=False):
    """The sender goes absent, and need not be waited for."""

    code: ClassVar[int] = 136
    session: Session
    for_good: bool = False
    """Whether its session is over: it will never again say what it knows, nor accept a decision."""
    version: Number = 0
    """The version of its view."""
    has_voted: bool = True
    """Whether it may have accepted a decision that follows on that view."""


class SiteRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A site of the cluster, its session and its groups."""

    site: Name
    session: Session
    serial: Number
    groups: Groups


class Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A batch by its name: messages number, number+1, … of a sender to a group."""

    sender: Name
    number: Number
    count: FromOne
    group: GroupName
    moves: MoveCount = 0


Items: TypeAlias = Annotated[tuple[Item, ...], Meta(max_length=MOST_ITEMS)]


class Ending(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The last deliveries of a tree that ends, in this order, with a site in `sources` that has each.

    The first `sure` items may have been delivered somewhere.
    """

    tree: TreeId
    items: Items
    sources: Annotated[tuple[Name, ...], Meta(max_length=MOST_ITEMS)]
    sure: Number


class Retiring(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A tree that finishes what is under way on it, and takes nothing new; with the members of its groups."""

    tree: TreeId
    members: Annotated[tuple[tuple[GroupName, Sites], ...], Meta(max_length=MOST_TREE_GROUPS)]


class Decision(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A view: its sites, their groups, the trees, and how earlier trees end.

    `ballot` is the attempt that decided it first.
    """

    origin: Origin
    version: Number
    ballot: Ballot
    records: Annotated[tuple[SiteRecord, ...], Meta(min_length=1, max_length=MOST_SITES)]
    primaries: Annotated[tuple[tuple[Groups, Name], ...], Meta(max_length=MOST_SITES)]
    trees: Annotated[tuple[tuple[Groups, TreeId], ...], Meta(max_length=MOST_SITES)]
    retiring: Annotated[tuple[Retiring, ...], Meta(max_length=MOST_RETIRING)]
    endings: Annotated[tuple[Ending, ...], Meta(max_length=MOST_TREES)]


class Change(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A view by what makes it differ from the one before: all sites that have that make the same of it."""

    ballot: Ballot
    records: Annotated[tuple[SiteRecord, ...], Meta(max_length=MOST_SITES)]
    """Sites that are new, or whose records are."""
    gone: Sites
    stopped: TreeIds
    finished: TreeIds
    """Retiring trees that are over."""
    endings: Annotated[tuple[Ending, ...], Meta(max_length=MOST_TREES)]
    moved: TreeIds = ()
    """Trees with moves: they are planted anew with the sites at their places."""


class Vote(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A decision that a site has accepted in an attempt.

    `whole`: the site holds everything that it must deliver by it. `adopted`: it was decided by an earlier
    attempt and may be installed somewhere.
    """

    ballot: Ballot
    adopted: bool
    whole: bool
    decision: Decision


class Holding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a site has of a stopped tree: the end of its stream, how much of that it has delivered, and its
    own batches that it does not know to be stable."""

    tree: TreeId
    stream: Items
    delivered: Number
    waiting: Items
    joined: Annotated[tuple[tuple[GroupName, MoveNumber], ...], Meta(max_length=MOST_MOVES)] = ()
    """The groups that the site has joined on this tree, by which moves."""
    left: Annotated[tuple[tuple[GroupName, MoveNumber], ...], Meta(max_length=MOST_MOVES)] = ()
    """The groups that it has left, or leaves."""


class Prepare(Pdu, frozen=True, gc=False):
    """A proposer asks for a promise, and for reports; the receiver stops these trees."""

    code: ClassVar[int] = 126
    rules: Rules
    origin: Origin
    version: Number
    round: Number
    stop: TreeIds


class Report(Pdu, frozen=True, gc=False):
    """The sender promises the attempt, and reports what it has accepted and what it holds."""

    code: ClassVar[int] = 127
    version: Number
    round: Number
    session: Session
    vote: Vote | None
    holdings: Annotated[tuple[Holding, ...], Meta(max_length=MOST_TREES)]
    moved: TreeIds = ()
    """Trees on which the sender has given a move its place, or has granted one, or has moved itself."""
    record: SiteRecord | None = None
    """The sender's record with the groups that it has joined or left by moves."""


class Accept(Pdu, frozen=True, gc=False):
    """A proposer asks to accept a decision."""

    code: ClassVar[int] = 128
    version: Number
    round: Number
    adopted: bool
    decision: Decision


class AcceptChange(Pdu, frozen=True, gc=False):
    """A proposer asks sites of the current view to accept the decision that this change makes of it.

    `name` is a hash of the decision.
    """

    code: ClassVar[int] = 144
    version: Number
    round: Number
    name: Hash
    change: Change


class Accepted(Pdu, frozen=True, gc=False):
    """The sender has accepted the decision, and holds everything that it must deliver by it."""

    code: ClassVar[int] = 129
    version: Number
    round: Number
    session: Session


class Refuse(Pdu, frozen=True, gc=False):
    """The sender has promised a later attempt."""

    code: ClassVar[int] = 130
    version: Number
    round: Number


class Install(Pdu, frozen=True, gc=False):
    """A view that was decided, in a cluster with these shared options."""

    code: ClassVar[int] = 131
    rules: Rules
    decision: Decision


class Decided(Pdu, frozen=True, gc=False):
    """A view was decided that its receivers have accepted; `name` is a hash of the decision."""

    code: ClassVar[int] = 149
    origin: Origin
    version: Number
    name: Hash


class Want(Pdu, frozen=True, gc=False):
    """The sender lacks these batches of a tree: a sender and a number each."""

    code: ClassVar[int] = 132
    tree: TreeId
    items: Annotated[tuple[tuple[Name, Number], ...], Meta(max_length=MOST_WANTED)]


class Copy(Pdu, frozen=True, gc=False):
    """A batch that was asked for."""

    code: ClassVar[int] = 133
    tree: TreeId
    sender: Name
    incarnation: Incarnation
    number: Number
    group: GroupName
    bodies: Packed
    moves: MoveCount = 0


class Move(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A join or leave that alters no tree: a site passes from one node of a tree to another, and so joins or
    leaves a group."""

    version: Number
    number: MoveNumber
    """Among the moves of the view."""
    site: Name
    group: GroupName
    tree: TreeId
    source: Number
    target: Number


class PlaceMove(Pdu, frozen=True, gc=False):
    """The first site of a view grants a move: the site where the ways to both nodes part gives it its place
    in the order."""

    code: ClassVar[int] = 180
    move: Move


class Turn(Pdu, frozen=True, gc=False):
    """A primary site tells the site that moves after which entry its stream ends here, or begins here."""

    code: ClassVar[int] = 181
    move: Move
    node: Number
    place: Number


class Leave(Pdu, frozen=True, gc=False):
    """The first site of a view grants a leave: the site that leaves notes so."""

    code: ClassVar[int] = 186
    move: Move


class Leaving(Pdu, frozen=True, gc=False):
    """The site that leaves a group has noted so: it skips what does not name it any more."""

    code: ClassVar[int] = 187
    move: Move


class Turned(Pdu, frozen=True, gc=False):
    """The site that moves has noted its turn at a node; until then the primary site repeats it."""

    code: ClassVar[int] = 182
    move: Move
    node: Number


class Moved(Pdu, frozen=True, gc=False):
    """The sender receives on its new node: if it has joined a group, its messages may name it from now on."""

    code: ClassVar[int] = 183
    move: Move


class Moves(Pdu, frozen=True, gc=False):
    """Joins that are done and leaves that begin, in the order of their numbers, without a gap."""

    code: ClassVar[int] = 184
    moves: Annotated[tuple[Move, ...], Meta(min_length=1, max_length=MOST_MOVES)]


class AskMoves(Pdu, frozen=True, gc=False):
    """The sender wants to multicast, and knows the moves of this view up to `known`."""

    code: ClassVar[int] = 185
    origin: Origin
    version: Number
    known: MoveCount


class Part(Pdu, frozen=True, gc=False):
    """Part `place` of `count` of a large PDU with the code `kind`."""

    code: ClassVar[int] = 143
    kind: Annotated[int, Meta(le=255)]
    name: Hash
    place: Number
    count: Annotated[int, Meta(le=MOST_PARTS)]
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
    Heartbeat,
    Progress,
    Goodbye,
    Prepare,
    Report,
    Accept,
    AcceptChange,
    Accepted,
    Refuse,
    Install,
    Decided,
    Want,
    Copy,
    PlaceMove,
    Leave,
    Leaving,
    Turn,
    Turned,
    Moved,
    Moves,
    AskMoves,
    Part,
)
DATA_PDUS: Final[tuple[type[Pdu], ...]] = (Request, TokenRequest, Entry, Token, Body)
"""PDUs that carry bodies or their order while no site crashes: what the paper counts."""


@dataclass(frozen=True, kw_only=True)
class MetaGroupsConfiguration:
    """The options; each says what raising it costs."""

    delivery: Literal["safe", "agreed"] = "safe"
    """Safe delivery waits until every destination holds a message, so that no crash loses what any site has
    delivered. Agreed delivery, the paper's, delivers at once."""
    bodies: Literal["tree", "direct"] = "tree"
    """Whether bodies travel down the tree, or directly from their sender to all members, with small tokens
    down the tree. Direct bodies spare primary sites most of the bytes and cost one more PDU a batch."""
    causal: bool = False
    """Whether safe delivery keeps causal order across groups. It costs a sender the time until its earlier
    messages are stable whenever it turns to another primary site."""
    shape: Shape = "shallow"
    """How trees are built; `printed` follows the paper to the letter and builds chains."""
    bypass: bool = False
    """Whether messages skip nodes that only pass them on, where any two groups stay in one order. It costs
    the one order of all groups: three messages to three groups can form a cycle."""
    admission: int = 64
    """Own batches that may be unstable at once. Raising it costs memory, here and at primary sites."""
    requests: int = 64
    """Own batches on their way to primary sites that have not accepted them. Raising it costs room in their
    receive buffers."""
    window: int = 64
    """Requests that a primary site may have under way. Raising it costs memory everywhere, and makes view
    changes longer."""
    acknowledge_ns: Nanoseconds = MILLISECOND_NS
    """Time in which receivers collect acknowledgements. Raising it costs latency and saves PDUs."""
    repair_ns: Nanoseconds = 20 * MILLISECOND_NS
    """Time without progress after which a site asks or repeats. Raising it makes losses last longer."""
    heartbeat_ns: Nanoseconds = 50 * MILLISECOND_NS
    """Time between heartbeats to the coordinator, and from it. Raising it delays the detection of crashes."""
    suspect_ns: Nanoseconds = 300 * MILLISECOND_NS
    """Silence after which a site is suspected. Raising it makes crashes stop trees for longer; lowering it
    excludes sites that are only slow."""
    gather_ns: Nanoseconds = 10 * MILLISECOND_NS
    """Time in which the coordinator collects requests for one view change. Raising it delays each change."""
    found_ns: Nanoseconds = 300 * MILLISECOND_NS
    """Time without a sign of a cluster after which a site founds one. Raising it delays the first site;
    lowering it makes clusters that have to merge."""
    says_goodbye: bool = False
    """Whether a site that goes absent says so: then it is excluded at once, and returns in a new session."""

    @property
    def rules(self) -> str:
        """The options that all sites of a cluster must share; a site with others stays out."""
        return " ".join(f"{name}={getattr(self, name)}" for name in SHARED_OPTIONS)

    def __post_init__(self) -> None:
        if self.delivery not in ("safe", "agreed"):
            raise UsageError(f"There is no delivery '{self.delivery}'.", hint="Choose safe or agreed.")
        if self.bodies not in ("tree", "direct"):
            raise UsageError(f"Bodies cannot go '{self.bodies}'.", hint="Choose tree or direct.")
        if min(self.admission, self.requests, self.window) < 1:
            raise UsageError("At least one batch must be allowed under way.")
        times_ns = (self.repair_ns, self.heartbeat_ns, self.suspect_ns, self.gather_ns, self.found_ns)
        if min(times_ns) < 1 or self.acknowledge_ns < 0:
            raise UsageError("Times must be positive; only acknowledgements may go out at once.")
        if self.suspect_ns <= 2 * self.heartbeat_ns:
            raise UsageError(
                "A site that misses two heartbeats must not be suspected yet.",
                hint="Raise suspect_ns or lower heartbeat_ns.",
            )
