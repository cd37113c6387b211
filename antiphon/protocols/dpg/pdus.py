"""The PDUs and the configuration of a Distributed Precedence Graph group.

Source: Konorski, section 4: the two PDU types 'message' and 'report'. The list RM of remulticast messages
travels beside a report, one PDU to a body, since a body may fill a PDU by itself.

Every field is bounded while it is decoded. The bounds of a report's lists together fit into a PDU: whatever
others invent, a member can always report what it has learned from them.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta

from antiphon.core.errors import UsageError
from antiphon.core.fields import NUMBER_LIMIT, Hash, Incarnation, Name, Number
from antiphon.core.knobs import require_known
from antiphon.core.packing import Packed
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import MAXIMUM_BODY_BYTES, Pdu

Tag: TypeAlias = int
"""A message's name while it lives: from 1 to below `TAG_LIMIT`."""
Arc: TypeAlias = tuple[Tag, Tag, bool]
"""Tail, head, and whether it is marked: whether nothing lies between them."""

ORIGIN: Final[Tag] = 0
"""Stands before the first message of a group's order."""
TAG_BITS: Final = 63
TAG_LIMIT: Final = 1 << TAG_BITS
DIGEST_LIMIT: Final = 1 << 63
"""Digests are added modulo this."""
LARGEST: Final = 1 << 62
"""Clocks and stamps of peers are smaller: there is always room to count on, and on the wire."""
LARGEST_BATCH_BYTES: Final = MAXIMUM_BODY_BYTES - 4096
"""Bytes that a batch may take on the wire, so that it also fits with its tag and a name around it."""
LARGEST_MESSAGE_BYTES: Final = MAXIMUM_BODY_BYTES - 2048
"""Bytes of a whole 'message' PDU, so that its batch can be retransmitted under any sender's name."""
MOST_TAGS: Final = 2048
"""Tags in each list of a PDU at most."""
MOST_ARCS: Final = MOST_TAGS
MOST_AGREED: Final = 2 * MOST_TAGS
"""Agreed tags in a report at most."""
MOST_ASKED: Final = 64
"""Bodies requested in one PDU at most. Raising it lets one request cost the group more."""
MOST_CHECKPOINTS: Final = 16
"""Checkpoints in a report at most."""
MOST_STREAMS: Final = 512
"""Senders whose next numbers a report carries at most. Raising it costs room in reports to listeners."""
MOST_NOTE_BYTES: Final = 4608
"""Bytes of a service's note in a report at most: the differences of 256 clocks."""
TAG_BYTES: Final = 8
"""A tag in a packed list."""

NamedTag: TypeAlias = Annotated[int, Meta(ge=1, le=TAG_LIMIT - 1)]
"""A message's tag in a PDU. Where there may be none, `ORIGIN` stands: `Hash`."""
Time: TypeAlias = Annotated[int, Meta(ge=0, lt=LARGEST)]
"""A clock, a stamp or a span in a PDU."""
MessageNumber: TypeAlias = Annotated[int, Meta(ge=0, lt=NUMBER_LIMIT // 2)]
"""Half of what numbers may be: the numbers behind it, however large a batch is, fit as well."""
PackedTags: TypeAlias = Annotated[bytes, Meta(max_length=TAG_BYTES * MOST_TAGS)]
AskedTags: TypeAlias = Annotated[bytes, Meta(max_length=TAG_BYTES * MOST_ASKED)]
AgreedTags: TypeAlias = Annotated[bytes, Meta(max_length=TAG_BYTES * MOST_AGREED)]
PackedArcs: TypeAlias = Annotated[bytes, Meta(max_length=2 * TAG_BYTES * MOST_ARCS)]
ServiceNote: TypeAlias = Annotated[bytes, Meta(max_length=MOST_NOTE_BYTES)]


class Message(Pdu, frozen=True, gc=False):
    """New messages number, number+1, … of a member, under one tag: one vertex of the graph.

    `previous` is the tag of the sender's message before, `seen` the latest that it had received when it
    handed this one over; both precede it on the channel (`ORIGIN` says nothing). `stamp` is the reception
    timestamp of a bounded-delay service, the sender's clock on a LAN, else 0. `index` tells how far the
    sender has come in the order.
    """

    code: ClassVar[int] = 70
    tag: NamedTag
    previous: Hash
    seen: Hash
    stamp: Time
    index: Number
    incarnation: Incarnation
    number: MessageNumber
    bodies: Packed


class Remulticast(Pdu, frozen=True, gc=False):
    """A retransmitted message, an entry of the list RM. It says nothing of the channel."""

    code: ClassVar[int] = 71
    sender: Name
    tag: NamedTag
    previous: Hash
    seen: Hash
    stamp: Time
    incarnation: Incarnation
    number: MessageNumber
    bodies: Packed

    def message(self) -> Message:
        """The original message, without the sender's index."""
        return Message(
            self.tag, self.previous, self.seen, self.stamp, 0, self.incarnation, self.number, self.bodies
        )


class Report(Pdu, frozen=True, gc=False):
    """What a member knows of the order, what it lacks, and its pace. Lists of tags are packed.

    `agreed` has the latest tags that it incorporated, oldest first, the last of them its root; `links` a byte
    for each: bit 0 if the arc from the tag before it is true, bit 1 if it is marked. `index` counts what it
    incorporated since the group began, `digest` is the digest of that sequence. `vertices` are those of its
    graph, and `steps` has a byte for each of them, as `links` has: of the arc from the vertex listed before
    it, or from the root to the first; empty if there are none. `arcs` are pairs of tags whose heads are
    vertices or agreed, the mark in the tail's highest bit; what links and steps imply is left out.
    `lost` is the list LM. Of tags on others' lists, `gone` are those that it has delivered and no longer
    keeps, and `passed` those that it has passed over: it will never have them, so no member waits for it.
    `demand_ns` is its own demand on Message_Cycle; `clock_ns` its clock. `streams` is for members that
    listen before they take part: each sender's incarnation and next expected number. `service` is the note
    of its one-channel service. `held` is the last vertex that it delivered, and `held_digest` the digest of
    the bodies that it holds up to there: see `stability`. `lead` is the number of places that it counts
    beyond `index`, since others had messages that it passed over. `oldest` is the least index of an agreed
    tag that it can still report to a member which needs it. `checkpoints` are pairs of an index and its
    digest, for members with which it shares no recent tag: see `agreement`.
    """

    code: ClassVar[int] = 72
    incarnation: Incarnation
    serial: Number
    clock_ns: Time
    index: Number
    digest: Hash
    agreed: AgreedTags
    links: Annotated[bytes, Meta(max_length=MOST_AGREED)]
    vertices: PackedTags
    arcs: PackedArcs
    lost: AskedTags
    demand_ns: Time
    listening: bool
    streams: Annotated[dict[Name, tuple[Incarnation, Number]], Meta(max_length=MOST_STREAMS)]
    service: ServiceNote
    gone: AskedTags = b""
    passed: AskedTags = b""
    held: Hash = ORIGIN
    held_digest: Hash = 0
    lead: Number = 0
    steps: Annotated[bytes, Meta(max_length=MOST_TAGS)] = b""
    oldest: Number = 0
    checkpoints: Annotated[bytes, Meta(max_length=2 * TAG_BYTES * MOST_CHECKPOINTS)] = b""


class Farewell(Pdu, frozen=True, gc=False):
    """A member leaves: its tasks can be taken over at once.

    `service` is the note of its one-channel service, as in a report: this PDU may overtake its last report.
    """

    code: ClassVar[int] = 73
    incarnation: Incarnation
    service: ServiceNote = b""


class Progress(Pdu, frozen=True, gc=False):
    """A member's index in the order and what it holds, between reports, which carry the same.

    `digest` is that of its order up to the index, where a quorum is needed; else 0.
    """

    code: ClassVar[int] = 90
    index: Number
    incarnation: Incarnation = 0
    held: Hash = ORIGIN
    held_digest: Hash = 0
    digest: Hash = 0


class Request(Pdu, frozen=True, gc=False):
    """The list LM alone: bodies may be missing more often than there is order to report."""

    code: ClassVar[int] = 92
    lost: AskedTags


PDUS: Final[tuple[type[Pdu], ...]] = (Message, Remulticast, Report, Farewell, Progress, Request)
CYCLES: Final = ("clock", "count")
IDLE_CYCLES: Final = 5
"""Report cycles between the reports of an idle group. Raising it costs time to notice what was lost last."""
CORRECTIONS: Final[dict[str, str]] = {
    "marks": "marks across own messages wait until they are certain",
    "history": "reports tell the places of recent messages, too",
    "requests": "what is missing is requested at once, not only in reports",
    "share": "reports keep within their share, and members take turns",
    "evidence": "no place is chosen before reports have come that could tell it",
    "spells": "a member that missed too much begins a new spell, and delivers no dummies",
    "flow": "members report their own demand, not the greatest that they heard",
    "return": "a member that returns adopts another's root",
}
"""What is done otherwise than published, and can be left out."""
GONE_SILENCES: Final = 5
"""Longest silences of a present member after which it counts as gone. Raising it costs time then."""


@dataclass(frozen=True, kw_only=True)
class DpgConfiguration:
    """The knobs; each says what raising it costs."""

    detector: bool = True
    """Whether the ContiguityDetector's inferences are used at all."""
    suspended_delivery: bool = True
    """Whether contiguity is inferred across own messages, provisionally."""
    cycles: str = "clock"
    """What cycles are counted in: `clock`, or `count` of messages received."""
    report_cycle_ns: Nanoseconds = 20 * MILLISECOND_NS
    """Pause between the group's reports. Raising it costs latency when something was missed."""
    deliv_cycle_ns: Nanoseconds = 500 * MILLISECOND_NS
    """Wait before vertices of unknown order are ordered by tag. Raising it costs latency then."""
    dummy_cycle_ns: Nanoseconds = SECOND_NS
    """How long the order waits for a body. Raising it costs a halt when no present member has it."""
    retr_cycle_ns: Nanoseconds = 20 * MILLISECOND_NS
    """Pause before a lost body is requested again. Raising it costs latency when an answer is lost."""
    remove_cycle_ns: Nanoseconds = SECOND_NS
    """How long a delivered body is kept that no member mentions. Raising it costs memory."""
    locate_cycle_ns: Nanoseconds = 80 * MILLISECOND_NS
    """Wait before a member reports an own message that others do not. Raising it costs latency then."""
    message_cycle_ns: Nanoseconds = 0
    """The lower bound of the pause between own 'message' PDUs. Raising it costs throughput."""
    delta_ns: Nanoseconds = MILLISECOND_NS
    """What an overflow adds to that pause. Raising it costs throughput after each overflow."""
    fc_cycle_ns: Nanoseconds = 50 * MILLISECOND_NS
    """Pause between steps back down. Raising it costs throughput after an overflow."""
    longest_message_cycle_ns: Nanoseconds = 2 * SECOND_NS
    """Greatest demand that is believed. Raising it lets one slow member slow the group further."""
    window: int = 16
    """Own messages handed over and not yet delivered. Raising it costs buffers at all members."""
    tell_ns: Nanoseconds = 0
    """Least pause, for each other member, between two `Progress` PDUs; 0 leaves progress to reports. Raising
    it costs time until messages are stable; lowering it costs small PDUs."""
    lag: int = 256
    """Places that the order may run ahead of the slowest peer heard recently; more if that is silent. Raising
    it costs buffers, and requires that four times as much is kept."""
    lately_ns: Nanoseconds = 50 * MILLISECOND_NS
    """Silence after which a member may be gone; after four of them no member waits for it. Raising it costs a
    longer time of little throughput when a member is gone."""
    admission_buffers: int = 16
    """Batches that wait for their turn. Raising it costs latency under load."""
    ordering_buffers: int = 1024
    """Bodies held that are not yet delivered. Raising it costs memory."""
    kept_bodies: int = 1024
    """Delivered bodies held for others. Raising it costs memory."""
    kept_bytes: int = 64 << 20
    """What they may take together. Raising it costs that memory."""
    graph_limit: int = 1024
    """Vertices of the graph. Raising it costs memory and time."""
    history: int = 256
    """Incorporated vertices that reports still carry. Raising it costs report bytes."""
    tombstones: int = 1 << 16
    """Tags remembered after they were incorporated. Raising it costs memory."""
    listen_reports: int = 6
    """Reports heard before taking part after an absence. Raising it costs time then."""
    listen_ns: Nanoseconds = 300 * MILLISECOND_NS
    """Silence after which a listening member is alone. Raising it costs time at the beginning."""
    quorum: int = 0
    """Members, with this one, that must have a message in the same place before it is delivered; 0 needs
    none. Raising it costs latency, and deliveries wait while fewer members are connected."""
    absence_ns: Nanoseconds = SECOND_NS
    """Pause of a member's own process after which it counts as absent. Raising it risks order."""
    printed: frozenset[str] = frozenset()
    """Corrections that are left out: in these respects the protocol is as published."""

    def __post_init__(self) -> None:
        if self.cycles not in CYCLES:
            raise UsageError(
                f"There are no cycles by '{self.cycles}'.", hint=f"Choose {' or '.join(CYCLES)}."
            )
        for name in self.printed:
            require_known(name, CORRECTIONS, f"There is no correction '{name}'.")
        spans = (
            self.report_cycle_ns, self.deliv_cycle_ns, self.dummy_cycle_ns, self.retr_cycle_ns,
            self.remove_cycle_ns, self.locate_cycle_ns, self.fc_cycle_ns, self.listen_ns, self.absence_ns,
            self.lately_ns,
        )  # fmt: skip
        pauses = (self.message_cycle_ns, self.delta_ns, self.longest_message_cycle_ns, self.tell_ns)
        if min(spans) <= 0 or min(pauses) < 0:
            raise UsageError("The cycles are positive.")
        counts = (
            self.window, self.lag, self.admission_buffers, self.ordering_buffers, self.kept_bodies,
            self.kept_bytes, self.graph_limit, self.history, self.tombstones, self.listen_reports,
        )  # fmt: skip
        if min(counts) < 1:
            raise UsageError("Buffers and windows hold at least one.")
        if self.quorum < 0:
            raise UsageError("A quorum cannot be negative.", hint="0 needs no quorum.")
        if self.deliv_cycle_ns < 3 * self.report_cycle_ns:
            raise UsageError(
                "Deliv_Cycle must leave time for reports.", hint="Make it at least three report cycles."
            )

    @property
    def idle_ns(self) -> Nanoseconds:
        """Pause between the reports of an idle group."""
        return IDLE_CYCLES * self.report_cycle_ns

    @property
    def silence_ns(self) -> Nanoseconds:
        """Longest silence of a present member."""
        return 2 * self.idle_ns

    @property
    def gone_ns(self) -> Nanoseconds:
        """Silence after which a member counts as gone."""
        return GONE_SILENCES * self.silence_ns
