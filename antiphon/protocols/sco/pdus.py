"""What SCO's members say to one another, and what a user may turn.

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
"""A life is an incarnation and, in so many low bits, how often that was left out and came back."""
LARGEST_LIFE: Final = INCARNATION_LIMIT << SPELL_BITS
MOST_NAMES: Final = fields.MOST_NAMES
"""Members that are known at a time, and lives that are remembered to be over. Raising it costs memory, and
PDUs that may grow too large."""
NAME_OVERHEAD_BYTES: Final = 15
"""What a life takes in a PDU beside the name of its site, at most."""
TABLE_BYTES: Final = 24 << 10
"""What the names of all members and of those who are gone may take in a PDU. Raising it costs the room of
batches: a copy carries the names, three vectors and the batch, and has to fit."""
OVER_BYTES: Final = 64 << 10
"""What the lives that are remembered to be over may take in a PDU. Raising it costs bytes."""
MOST_HELD: Final = 1 << 14
"""Places of batches that a member may hold of one life that is over. Raising it costs memory."""
MOST_ASKED: Final = 64
"""Places that one request names."""
LARGE_GROUP: Final = 32
"""Members from whom on it is felt what it costs to tell those whom a message is not for. Raising it costs
control messages in groups that are smaller than that."""
PATIENCE: Final = 2
"""How many times as long that may wait then. Raising it costs latency in large groups."""
LARGEST_BATCH_BYTES: Final = MAXIMUM_BODY_BYTES - 65536
"""What a batch may take on the wire, so that it also fits with the names and numbers of many members."""


Life: TypeAlias = Annotated[int, Meta(ge=0, lt=LARGEST_LIFE)]
LONGEST_TABLE: Final = 2 * MOST_NAMES + 1
"""Ourselves, the others, and those who are gone."""
BITMAP_BYTES: Final = (LONGEST_TABLE + 7) // 8
Bitmap: TypeAlias = Annotated[bytes, Meta(max_length=BITMAP_BYTES)]
Packing: TypeAlias = Annotated[bytes, Meta(max_length=1 + BITMAP_BYTES + 8 * LONGEST_TABLE)]
"""Numbers, or a vector, with an entry for each member of a table."""
Targets: TypeAlias = Annotated[bytes, Meta(max_length=BITMAP_BYTES + 17 * LONGEST_TABLE)]


class Name(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One life of a site. `gone` in a table says that this life is over, `left` that this is no mistake."""

    site: fields.Name
    life: Life
    gone: bool = False
    left: bool = False

    def wire_bytes(self) -> int:
        """What it takes in a PDU, at most."""
        return NAME_OVERHEAD_BYTES + len(self.site.encode())


Table: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=LONGEST_TABLE)]
Places: TypeAlias = Annotated[tuple[Number, ...], Meta(max_length=MOST_HELD)]


class Data(Pdu, frozen=True, gc=False):
    """Messages number, number+1, … of a member: one batch, to the destinations that it chose.

    `table` is the version of the sender's table of names, whose positions all else refers to. `destinations`
    is a bitmap; `places` has the batch's place in what was sent to each destination, the sender left out.
    `csn` and `ack` are vectors, told as differences to the batch before at each destination.
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


class Control(Pdu, frozen=True, gc=False):
    """What a member tells those to whom it had no messages to send.

    `number` is its next; `targets` has a bitmap of those it speaks to and for each how many batches it has
    sent there, which version of their table it knows, and whether it has all that they hold for it of those
    who are gone. `ack` tells some entries, whole. `gone` is a digest of all lives that it holds to be over,
    and `final` says that it has gone on with all it will ever have of them.
    `company` is how many it counts. `names` is its table, and `over` the lives themselves, for those who may
    not know them; without `names` they know the table already.
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
    company: Number
    names: Table | None = None
    over: Annotated[tuple[Name, ...], Meta(max_length=MOST_NAMES)] | None = None


class Ask(Pdu, frozen=True, gc=False):
    """Its sender lacks these places of a member's batches, and takes them from whoever has them."""

    code: ClassVar[int] = 95
    life: Life
    of: Name
    places: Annotated[tuple[Number, ...], Meta(max_length=MOST_ASKED)]


class Copy(Pdu, frozen=True, gc=False):
    """A batch again, as it was: from its sender, or from another of its destinations.

    It brings a table of its own, the batch's sender first, and its vectors are whole, so that it can be read
    by itself.
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
    """Of one life that is over: the places of batches for somebody that its sender holds."""

    of: Name
    places: Places


class Holds(Pdu, frozen=True, gc=False):
    """All that a member has for another of the lives that are over, by the digest of those lives."""

    code: ClassVar[int] = 97
    life: Life
    gone: Hash
    holdings: Annotated[tuple[Holding, ...], Meta(max_length=2 * MOST_NAMES)]


class Leave(Pdu, frozen=True, gc=False):
    """Its sender goes; nobody need wait until it is missed."""

    code: ClassVar[int] = 98
    life: Life


PDUS: Final[tuple[type[Pdu], ...]] = (Data, Control, Ask, Copy, Holds, Leave)


@dataclass(frozen=True, kw_only=True)
class ScoConfiguration:
    """The knobs; each says what raising it costs. Members of one group use the same."""

    window: int = 20
    """The paper's W: own batches from the oldest that some destination has not confirmed. Raising it costs
    everyone buffers."""
    buffers: int = 1024
    """Batches held that are not fully accepted: what `buf` is counted down from. Raising it costs memory."""
    buffer_share: int = 2
    """The paper's H: a sender uses one part in H n of a destination's buffers. Raising it costs throughput
    where buffers are few, and saves overruns."""
    confirm_ns: Nanoseconds = 2 * MILLISECOND_NS
    """The paper's k: how long news for a member waits for a message that takes them along. Raising it costs
    latency, and saves control messages."""
    control_ns: Nanoseconds = 20 * MILLISECOND_NS
    """T_c: a member to whom nothing was sent for so long gets a control message. Raising it costs time to
    find that the last of a burst was lost."""
    repair_ns: Nanoseconds = 5 * MILLISECOND_NS
    """T_rtx: pause before what is missing is asked for, and asked for again. Raising it costs latency when
    something is lost."""
    silence_ns: Nanoseconds = 500 * MILLISECOND_NS
    """Silence after which a member is left out. Raising it costs a longer halt when one is gone."""
    settle_ns: Nanoseconds = 60 * MILLISECOND_NS
    """How long a newcomer listens before it takes part. Raising it costs time to join."""
    announce_ns: Nanoseconds = 200 * MILLISECOND_NS
    """Pause between announcements to those whom nobody counts. Raising it costs time until they are met."""
    delivery: Literal["full", "causal"] = "full"
    """Deliver what every destination is known to have, or as soon as nothing before it is missing. Full
    costs a confirmation's time; causal costs what a message is worth that dies with a member."""
    acknowledge: Literal["continuous", "causal"] = "continuous"
    """What a confirmation means: that nothing of its sender is missing before it, or nothing at all. Causal
    costs latency, and control messages in large groups, and is the paper's."""
    vectors: Literal["plain", "compressed"] = "compressed"
    """How csn and ack travel: eight bytes a member as in the paper, or as differences. Compressed costs a few
    microseconds a batch."""
    splits: bool = True
    """Whether members may be cut off from one another without having crashed. Then those who have lost half
    of their company or more take themselves to be the ones who are gone. False lets any survivor go on."""
    observe: bool = False
    """Whether the levels of messages that were delivered are remembered too. True costs memory."""

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
        if min(self.window, self.buffers, self.buffer_share) < 1:
            raise UsageError("Windows, buffers and their shares are at least one.")
        spans = (self.confirm_ns, self.control_ns, self.repair_ns, self.settle_ns, self.announce_ns)
        if min(spans) < 1:
            raise UsageError("SCO's times are positive.")
        if self.silence_ns <= self.control_ns:
            raise UsageError(
                "Nobody can be heard of more often than its control messages come.",
                hint="Make silence_ns several times control_ns.",
            )

    def others_ns(self, members: int) -> Nanoseconds:
        """How long those whom a message is not for may wait to be told so, in a group of that size.

        They need it once something comes that follows the message. In a large group telling them is most of
        what is sent; there it waits longer, as long as that is beside confirmations and not before them.
        """
        is_beside = self.acknowledge == "continuous" and self.delivery == "full"
        return self.confirm_ns * (PATIENCE if is_beside and members >= LARGE_GROUP else 1)

    @property
    def reach(self) -> int:
        """How far a sender's places may run ahead of what was accepted; not felt unless one is stuck."""
        return 4 * self.window
