"""What the fixed sequencer's members say to one another, and what a user may turn."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta

from antiphon.core.errors import UsageError
from antiphon.core.fields import (
    INCARNATION_LIMIT,
    LONGEST_NAME,
    MOST_NAMES,
    Incarnation,
    Name,
    Names,
    Number,
    NumberOrNone,
)
from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import MAXIMUM_BODY_BYTES, Pdu

NO_POSITION: Final = -1
"""The position of a member that holds nothing of the order."""
NOBODY: Final[Site] = ""
"""The witness while nobody counts."""
MOST_MISSING: Final = 32
"""Positions that one PDU asks for at most, so that one answer cannot flood the network."""
MOST_MEMBERS: Final = MOST_NAMES
"""Members that the sequencer knows at most."""
MOST_NAME_BYTES: Final = 24_000
"""What the names of all members may take together, so that a list of them fits a datagram."""
MOST_STREAM_BYTES: Final = 2 * MOST_NAME_BYTES
"""What the table of streams may take on the wire: all members, and as many that are gone."""
MOST_REASONS: Final = 16
"""Reasons that a roster tells: those of the members that ceased to count last."""
LARGEST_BATCH_BYTES: Final = MAXIMUM_BODY_BYTES - 4096
"""What a batch may take on the wire, so that it also fits with its place and two names around it."""
NUMBER_BYTES: Final = 12
"""What a number takes in a table on the wire, with the length of the name beside it."""
LONGEST_SETBACK: Final = 1 << 41
"""Milliseconds, 70 years, by which a clock may have gone back: no epoch of which a sequencer only hears is
believed if it lies further beyond the one that it began with."""
LATEST_HEARSAY: Final = INCARNATION_LIMIT // 2
"""Nor is one beyond this: there is always room for the restarts to come."""

Witness: TypeAlias = Annotated[Site, Meta(max_length=LONGEST_NAME)]
Places: TypeAlias = Annotated[tuple[Number, ...], Meta(max_length=MOST_MISSING)]
NextNumbers: TypeAlias = Annotated[
    dict[Name, Number], Meta(max_length=MOST_STREAM_BYTES // (NUMBER_BYTES + 1))
]
"""For each sender the number of its first message without a place."""
Reason: TypeAlias = Annotated[str, Meta(max_length=200)]
Reasons: TypeAlias = Annotated[dict[Name, Reason], Meta(max_length=MOST_REASONS)]


def name_bytes(site: Site) -> int:
    """What a name takes in a table on the wire, with a number beside it."""
    return len(site.encode(errors="replace")) + NUMBER_BYTES


class Request(Pdu, frozen=True, gc=False):
    """A member asks for a place in the order for messages number, number+1, … of its own.

    `first` is the number of its oldest message without a place: whatever lies below it has one or died with
    an earlier incarnation, and is not waited for. `position` is an acknowledgement that costs no datagram.
    """

    code: ClassVar[int] = 32
    epoch: Incarnation
    incarnation: Incarnation
    position: Number
    first: Number
    number: Number
    bodies: Packed


class Ordered(Pdu, frozen=True, gc=False):
    """What stands at a position of the order; every position below `stable` is held by all who count."""

    code: ClassVar[int] = 33
    epoch: Incarnation
    position: Number
    stable: Number
    witness: Witness
    sender: Name
    number: Number
    bodies: Packed
    incarnation: Incarnation = 0
    """The sender's, that numbered them."""


class Heartbeat(Pdu, frozen=True, gc=False):
    """The sequencer tells how far the order goes, so that a lost tail is found."""

    code: ClassVar[int] = 34
    epoch: Incarnation
    next_position: Number
    stable: Number
    witness: Witness


class Acknowledge(Pdu, frozen=True, gc=False):
    """A member holds everything below `position`, and asks for what it misses beyond.

    `roster` is the version of the roster that it knows.
    """

    code: ClassVar[int] = 35
    epoch: Incarnation
    incarnation: Incarnation
    position: Number
    roster: NumberOrNone
    missing: Places = ()


class Join(Pdu, frozen=True, gc=False):
    """A member wants to take part; it reached `position` in the order of `epoch`.

    `promised` is the latest epoch it has heard of. A `newcomer` has never taken part before, in no
    incarnation: it can be let in where the order begins without seeing anything twice.
    """

    code: ClassVar[int] = 36
    incarnation: Incarnation
    attempt: Number
    first: Number
    promised: Incarnation
    epoch: Incarnation
    position: NumberOrNone
    newcomer: bool


class Resume(Pdu, frozen=True, gc=False):
    """The sequencer lets a member take part from `position` on.

    `kept` says that the member goes on without a gap, `whole` that the order begins at `position`: nothing
    came before it. If not kept, `streams` tells for each sender the number of its first message that has no
    place below `position`; a sender that is not named begins with whatever it sends.
    """

    code: ClassVar[int] = 37
    epoch: Incarnation
    incarnation: Incarnation
    attempt: Number
    position: Number
    stable: Number
    kept: bool
    whole: bool
    streams: NextNumbers


class Recover(Pdu, frozen=True, gc=False):
    """A sequencer that lost its memory asks everyone what they hold."""

    code: ClassVar[int] = 38
    epoch: Incarnation


class Report(Pdu, frozen=True, gc=False):
    """The answer: what the member holds of the order of `order_epoch`, and how to let it go on.

    The other fields are those of its `Join`.
    """

    code: ClassVar[int] = 39
    epoch: Incarnation
    incarnation: Incarnation
    attempt: Number
    first: Number
    promised: Incarnation
    order_epoch: Incarnation
    position: NumberOrNone
    newcomer: bool
    kept_from: Number
    stable: Number
    streams: NextNumbers


class Fetch(Pdu, frozen=True, gc=False):
    """The recovering sequencer asks one member for the bodies at these positions."""

    code: ClassVar[int] = 40
    epoch: Incarnation
    missing: Places


class Leave(Pdu, frozen=True, gc=False):
    """A member goes, and says so: nobody need wait for it. The sequencer's incarnation here is its epoch."""

    code: ClassVar[int] = 41
    incarnation: Incarnation
    attempt: Number


class Roster(Pdu, frozen=True, gc=False):
    """Who counts beside the sequencer, and why others lately ceased to."""

    code: ClassVar[int] = 42
    epoch: Incarnation
    version: Number
    members: Names
    gone: Reasons


class Enquire(Pdu, frozen=True, gc=False):
    """A member asks after requests that have waited for their places for longer than usual.

    Bodies are sent again only where they are lacking: when everyone sends, places come late, and copies
    would make them come later.
    """

    code: ClassVar[int] = 43
    epoch: Incarnation
    incarnation: Incarnation
    position: Number
    numbers: Places


class Lacking(Pdu, frozen=True, gc=False):
    """The answer: requests that the sequencer does not have and would take now."""

    code: ClassVar[int] = 44
    epoch: Incarnation
    incarnation: Incarnation
    numbers: Places


PDUS: Final[tuple[type[Pdu], ...]] = (
    Request,
    Ordered,
    Heartbeat,
    Acknowledge,
    Join,
    Resume,
    Recover,
    Report,
    Fetch,
    Leave,
    Roster,
    Enquire,
    Lacking,
)


@dataclass(frozen=True, kw_only=True)
class SequencerConfiguration:
    """The knobs; each says what raising it costs."""

    window: int = 64
    """Own requests under way. Raising it costs the sequencer memory: it may have to queue them all."""
    order_window: int = 256
    """How far the order may run ahead of the slowest member that counts. Raising it costs memory at all."""
    repeat_ns: Nanoseconds = 20 * MILLISECOND_NS
    """Pause before a request is asked after or a join repeated. Raising it costs latency when one is lost."""
    heartbeat_ns: Nanoseconds = 10 * MILLISECOND_NS
    """Pause between announcements. Raising it costs latency when the last message of a burst is lost."""
    acknowledge_ns: Nanoseconds = 5 * MILLISECOND_NS
    """How long a member keeps its new position to itself. Raising it costs memory: stability comes later."""
    acknowledge_every: int = 16
    """Positions after which a member tells without waiting. Raising it costs the same."""
    gap_ns: Nanoseconds = 3 * MILLISECOND_NS
    """How long a gap may be mere reordering. Raising it costs latency when something is lost."""
    suspect_after_ns: Nanoseconds = 200 * MILLISECOND_NS
    """Silence after which a member no longer counts. Raising it costs a longer halt when one is gone."""
    lag_ns: Nanoseconds = 2 * SECOND_NS
    """How long a member may speak without getting on. Raising it costs a longer halt when one is stuck."""
    recovery_ns: Nanoseconds = 300 * MILLISECOND_NS
    """How long a sequencer without memory waits for answers. Raising it costs a longer halt then."""

    def __post_init__(self) -> None:
        if self.window < 1 or self.order_window < 1 or self.acknowledge_every < 1:
            raise UsageError("The sequencer's windows hold at least one message.")
        spans = (self.repeat_ns, self.heartbeat_ns, self.acknowledge_ns, self.gap_ns, self.suspect_after_ns)
        if min(*spans, self.lag_ns, self.recovery_ns) <= 0:
            raise UsageError("The sequencer's times are positive.")

    @property
    def keepalive_ns(self) -> Nanoseconds:
        """Everyone speaks eight times before silence counts, so that loss alone seldom leaves one out."""
        return max(1, self.suspect_after_ns // 8)

    @property
    def give_up_ns(self) -> Nanoseconds:
        """How long a member tries to tell its sequencer of a later epoch before it forgets that one."""
        return self.lag_ns // 2

    @property
    def tell_every(self) -> int:
        """Positions after which a member tells: often enough that the order need not wait for the word."""
        return max(1, min(self.acknowledge_every, self.order_window // 4))
