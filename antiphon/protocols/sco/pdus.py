"""SCO's PDUs and configuration.

Source: Tachikawa and Takizawa, section 3. The paper's fields: `sqn` is a batch's first number, `lsn` its
place in what was sent to a destination, `csn` and `ack` are vectors with an entry for each member in the
sender's table, `buf` is `buffers`.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from antiphon.core import fields
from antiphon.core.errors import UsageError
from antiphon.core.fields import INCARNATION_LIMIT, Hash, Number
from antiphon.core.packing import Packed
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import MAXIMUM_BODY_BYTES, Pdu

SPELL_BITS: Final = 16
"""Low bits of a life that count how often the incarnation has rejoined; the others are the incarnation.
Raising it costs incarnations."""
LEAPT: Final = 1 << SPELL_BITS - 1
"""Set in lives of a member that went on under a later incarnation than it had begun with, since others said
that lives up to there are over. It continues the numbers of its earlier incarnations."""
LARGEST_LIFE: Final = INCARNATION_LIMIT << SPELL_BITS
MOST_NAMES: Final = fields.MOST_NAMES
"""Members that are known at a time, and lives that are remembered to be over. Raising it costs memory and
larger PDUs."""
NAME_OVERHEAD_BYTES: Final = 15
"""Bytes that a life takes in a PDU beside the name of its site, at most."""
TABLE_BYTES: Final = 24 << 10
"""Bytes that the names of present and departed lives may take in a PDU. Raising it costs room for batches:
a copy carries the names, three vectors and the batch, and has to fit."""
OVER_BYTES: Final = 64 << 10
"""Bytes that the lives that are over may take in a PDU. Raising it costs larger PDUs."""
MOST_HELD: Final = 1 << 14
"""Places of batches that a member may hold of one departed life. Raising it costs memory."""
MOST_ASKED: Final = 64
"""Places that one request names. Raising it costs bursts of copies."""
LARGEST_BATCH_BYTES: Final = MAXIMUM_BODY_BYTES - 65536
"""Bytes that a batch may take on the wire; the rest of a PDU is for names and vectors of many members."""


Life: TypeAlias = Annotated[int, Meta(ge=0, lt=LARGEST_LIFE)]
LONGEST_TABLE: Final = 2 * MOST_NAMES + 1
"""Our own life, the others, and departed ones."""
BITMAP_BYTES: Final = (LONGEST_TABLE + 7) // 8
Bitmap: TypeAlias = Annotated[bytes, Meta(max_length=BITMAP_BYTES)]
Packing: TypeAlias = Annotated[bytes, Meta(max_length=1 + BITMAP_BYTES + 8 * LONGEST_TABLE)]
"""Numbers, or a vector, with an entry for each name of a table."""
Targets: TypeAlias = Annotated[bytes, Meta(max_length=BITMAP_BYTES + 17 * LONGEST_TABLE)]


class Name(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One life of a site. `gone` says that the life is over, `left` that the site said so itself."""

    site: fields.Name
    life: Life
    gone: bool = False
    left: bool = False

    def wire_bytes(self) -> int:
        """Bytes that it takes in a PDU, at most."""
        return NAME_OVERHEAD_BYTES + len(self.site.encode())


Table: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=LONGEST_TABLE)]
Places: TypeAlias = Annotated[tuple[Number, ...], Meta(max_length=MOST_HELD)]


class Data(Pdu, frozen=True, gc=False):
    """Messages number, number+1, … of a member: one batch, to the destinations that the sender chose.

    `table` is the version of the sender's table of names; the other fields refer to its positions.
    `destinations` is a bitmap. `places` has the batch's place in what was sent to each destination except the
    sender. `csn` and `ack` are vectors, as differences to the previous batch to each destination. `atomic` is
    the number below which every destination holds the sender's messages.
    """

    code: ClassVar[int] = 93
    life: Life
    table: Number
    number: Number
    destinations: Bitmap
    places: Packing
    csn: Packing
    ack: Packing
    buffers: Number
    bodies: Packed
    atomic: Number = 0


class Control(Pdu, frozen=True, gc=False):
    """The state of its sender, for members to which it had no messages to send.

    `number` is the sender's next. `targets` has a bitmap of the members that are addressed, and for each the
    batches sent to it, the version known of its table, and 1 if the sender has all that it holds for the
    sender of departed lives. `ack` has some entries, whole. `gone` is the digest of all lives that the sender
    holds to be over; `final` says that their streams are complete at the sender. `members` is how many
    members it counts. `atomic` is that of a batch. `asks` requests a control message with all acks in answer.
    `names` is its table, left out if all addressed members know it. `over` has the lives that are over, for
    members that may not know them.
    """

    code: ClassVar[int] = 94
    life: Life
    serial: Number
    number: Number
    table: Number
    targets: Targets
    ack: Packing
    buffers: Number
    gone: Hash
    final: bool
    members: Number
    names: Table | None = None
    over: Annotated[tuple[Name, ...], Meta(max_length=MOST_NAMES)] | None = None
    atomic: Number = 0
    asks: bool = False


class Ask(Pdu, frozen=True, gc=False):
    """Its sender lacks the batches of these places of a life, and requests copies."""

    code: ClassVar[int] = 95
    life: Life
    of: Name
    places: Annotated[tuple[Number, ...], Meta(max_length=MOST_ASKED)]


class Copy(Pdu, frozen=True, gc=False):
    """A batch again, as it was: from its sender, or from another of its destinations.

    It has a table of its own, the batch's sender first, and whole vectors, so that it can be read by itself.
    """

    code: ClassVar[int] = 96
    life: Life
    names: Annotated[Table, Meta(min_length=1)]
    number: Number
    destinations: Bitmap
    places: Packing
    csn: Packing
    ack: Packing
    bodies: Packed


class Holding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The places of a departed life's batches that the sender of the PDU holds for its receiver."""

    of: Name
    places: Places


class Holds(Pdu, frozen=True, gc=False):
    """All that a member holds for another of departed lives, by the digest of the lives that are over."""

    code: ClassVar[int] = 97
    life: Life
    gone: Hash
    holdings: Annotated[tuple[Holding, ...], Meta(max_length=2 * MOST_NAMES)]


class Leave(Pdu, frozen=True, gc=False):
    """Its sender leaves; the others need not wait until it is missed."""

    code: ClassVar[int] = 98
    life: Life


class Confirm(Pdu, frozen=True, gc=False):
    """In a large group, to a sender only: what it sent us below this number is accepted here.

    `of` is the sender's life, `gone` the digest of all lives that we hold to be over.
    """

    code: ClassVar[int] = 161
    life: Life
    of: Life
    gone: Hash
    number: Number


class Heartbeat(Pdu, frozen=True, gc=False):
    """In a large group: a sign of life, and the number below which every destination holds our messages."""

    code: ClassVar[int] = 162
    life: Life
    gone: Hash
    atomic: Number


class Query(Pdu, frozen=True, gc=False):
    """Do all destinations hold the batch of that life that ends before this number?

    `to` is the receiver's life.
    """

    code: ClassVar[int] = 163
    life: Life
    to: Life
    of: Name
    end: Number


class Answer(Pdu, frozen=True, gc=False):
    """It is: every destination holds it, but those that are over by the digest `gone`."""

    code: ClassVar[int] = 164
    life: Life
    gone: Hash
    of: Name
    end: Number


PDUS: Final[tuple[type[Pdu], ...]] = (
    Data, Control, Ask, Copy, Holds, Leave, Confirm, Heartbeat, Query, Answer
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ScoConfiguration:
    """Each knob says what raising it costs. All members of a group use the same values."""

    window: int = 20
    """The paper's W: own batches from the oldest that some destination has not confirmed. Raising it costs
    buffers at all members."""
    buffers: int = 1024
    """Batches held that are not fully accepted; the paper's buf counts down from it. Raising it costs memory
    at each member."""
    buffer_share: int = 2
    """The paper's H: a sender uses a share of 1 / (H n) of a destination's buffers. Raising it costs
    throughput where buffers are few, and saves overruns."""
    confirm_ns: Nanoseconds = 2 * MILLISECOND_NS
    """The paper's k: how long a confirmation waits for a message to ride on. Raising it costs latency, and
    saves control messages."""
    control_ns: Nanoseconds = 20 * MILLISECOND_NS
    """T_c: a member to which nothing was sent for this long gets a control message. Raising it costs time to
    find that the last message of a burst was lost."""
    repair_ns: Nanoseconds = 5 * MILLISECOND_NS
    """T_rtx: pause before what is missing is requested, and requested again. Raising it costs latency after
    a loss."""
    silence_ns: Nanoseconds = 500 * MILLISECOND_NS
    """Silence after which a member is left out. Raising it costs a longer halt after a crash."""
    settle_ns: Nanoseconds = 60 * MILLISECOND_NS
    """How long a newcomer listens before it takes part. Raising it costs time to join."""
    announce_ns: Nanoseconds = 200 * MILLISECOND_NS
    """Pause between announcements to sites that no member knows. Raising it costs time until they are met."""
    delivery: Literal["full", "causal"] = "full"
    """Deliver a message once every destination is known to have it, or once nothing before it is missing.
    Full costs a confirmation's time; causal costs atomicity when members crash."""
    acknowledge: Literal["continuous", "causal"] = "continuous"
    """What a confirmation means: nothing of the batch's sender is missing before it, or nothing that precedes
    it is. Causal is the paper's; it costs latency, and control messages in large groups."""
    vectors: Literal["plain", "compressed"] = "compressed"
    """How csn and ack travel: eight bytes a member as in the paper, or as differences. Compressed costs a few
    microseconds per batch."""
    gather_from: int = 16
    """Group size from which on destinations confirm to a message's sender alone, which tells all when every
    destination has it, and members watch their neighbours only. Raising it costs PDUs with the square of the
    group in groups up to this size, and saves a hop of latency there."""
    splits: bool = True
    """Whether the network may split. Then members that have lost half of the group or more take themselves to
    be cut off, and rejoin. False lets any survivor go on."""
    observe: bool = False
    """Whether each level of acceptance that a message reaches is reported (`Reached`), and remembered after
    its delivery. True costs memory, and time for each PDU in proportion to the messages held."""

    def __post_init__(self) -> None:
        choices = {
            "delivery": ("full", "causal"),
            "acknowledge": ("continuous", "causal"),
            "vectors": ("plain", "compressed"),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise UsageError(
                    f"There is no {name} '{getattr(self, name)}'.", hint=f"Choose {' or '.join(known)}."
                )
        if min(self.window, self.buffers, self.buffer_share, self.gather_from) < 1:
            raise UsageError("The window, the buffers, their share and gather_from must be at least 1.")
        spans = (self.confirm_ns, self.control_ns, self.repair_ns, self.settle_ns, self.announce_ns)
        if min(spans) < 1:
            raise UsageError("SCO's times must be positive.")
        if self.silence_ns <= self.control_ns:
            raise UsageError(
                "silence_ns must be longer than control_ns, the pause between control messages.",
                hint="Make silence_ns several times control_ns.",
            )

    @property
    def reach(self) -> int:
        """How far a sender's places may run ahead of what was accepted from it."""
        return 4 * self.window
