"""The PDUs of the fixed sequencer, and its configuration."""

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
"""The witness while the view is empty."""
MOST_MISSING: Final = 32
"""Positions that one PDU asks for. Raising it costs bursts of answers."""
MOST_MEMBERS: Final = MOST_NAMES
"""Members that the sequencer knows. Raising it costs memory."""
MOST_NAME_BYTES: Final = 24_000
"""Bytes of all members' names together. Raising it costs rosters that fit no datagram."""
MOST_STREAM_BYTES: Final = 2 * MOST_NAME_BYTES
"""Bytes of the table of streams on the wire: all members, and as many that are gone. Raising it costs
memory, and longer `Resume` and `Report` PDUs."""
MOST_REASONS: Final = 16
"""Reasons in a roster, of the members that left the view last. Raising it costs longer rosters."""
LARGEST_BATCH_BYTES: Final = MAXIMUM_BODY_BYTES - 4096
"""Bytes of a batch on the wire, so that it fits a PDU beside its place and two names."""
NUMBER_BYTES: Final = 12
"""Bytes of a number in a table on the wire, with the length of the name beside it."""
LONGEST_SETBACK: Final = 1 << 41
"""Milliseconds, 70 years, by which a clock may have gone back: a sequencer believes no reported epoch that
exceeds its first one by more. Raising it costs epochs that a liar can use up."""
LATEST_HEARSAY: Final = INCARNATION_LIMIT // 2
"""The latest epoch that is believed when reported: there is always room for later restarts."""

Witness: TypeAlias = Annotated[Site, Meta(max_length=LONGEST_NAME)]
Places: TypeAlias = Annotated[tuple[Number, ...], Meta(max_length=MOST_MISSING)]
NextNumbers: TypeAlias = Annotated[
    dict[Name, Number], Meta(max_length=MOST_STREAM_BYTES // (NUMBER_BYTES + 1))
]
"""For each sender the number of its first message without a place."""
Reason: TypeAlias = Annotated[str, Meta(max_length=200)]
Reasons: TypeAlias = Annotated[dict[Name, Reason], Meta(max_length=MOST_REASONS)]


def name_bytes(site: Site) -> int:
    """Bytes of a name in a table on the wire, with a number beside it."""
    return len(site.encode(errors="replace")) + NUMBER_BYTES


class Request(Pdu, frozen=True, gc=False):
    """A member asks for a place in the order for messages number, number+1, … of its own.

    `first` is the number of its oldest message without a place: each message below it has a place or was lost
    with an earlier incarnation, and is not waited for. `position` acknowledges without a datagram of its own.
    """

    code: ClassVar[int] = 32
    epoch: Incarnation
    incarnation: Incarnation
    position: Number
    first: Number
    number: Number
    bodies: Packed


class Ordered(Pdu, frozen=True, gc=False):
    """The entry at a position of the order; all of the view hold every entry below `stable`."""

    code: ClassVar[int] = 33
    epoch: Incarnation
    position: Number
    stable: Number
    witness: Witness
    sender: Name
    number: Number
    bodies: Packed
    incarnation: Incarnation = 0
    """The incarnation of the sender that numbered them."""


class Heartbeat(Pdu, frozen=True, gc=False):
    """The sequencer announces the end of the order, so that a lost tail is found."""

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

    `promised` is the latest epoch that it knows. A `newcomer` has never taken part in any incarnation: it can
    be let in at the beginning of the order without delivering anything twice.
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

    If `kept`, the member goes on without a gap. If `whole`, the order begins at `position`. If not kept,
    `streams` has for each sender the number of its first message without a place below `position`; a sender
    that is not named begins with the first message that it sends.
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
    """A sequencer that lost its memory asks all members what they hold."""

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
    """A member leaves and need not be waited for. The sequencer's incarnation here is its epoch."""

    code: ClassVar[int] = 41
    incarnation: Incarnation
    attempt: Number


class Roster(Pdu, frozen=True, gc=False):
    """The view without the sequencer, and why members left it recently."""

    code: ClassVar[int] = 42
    epoch: Incarnation
    version: Number
    members: Names
    gone: Reasons


class Enquire(Pdu, frozen=True, gc=False):
    """A member asks after requests that have waited for a place for longer than usual.

    Bodies are repeated only if the sequencer lacks them: when all members send, places come late, and copies
    would make them come later.
    """

    code: ClassVar[int] = 43
    epoch: Incarnation
    incarnation: Incarnation
    position: Number
    numbers: Places


class Lacking(Pdu, frozen=True, gc=False):
    """The answer: requests that the sequencer lacks and has room for."""

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
    """The knobs, each with what raising it costs."""

    window: int = 64
    """Requests of one member without a place. Raising it costs memory at the sequencer, which queues them."""
    order_window: int = 256
    """Positions between the slowest member of the view and the end of the order. Raising it costs memory."""
    receipts: bool = False
    """Whether members acknowledge each entry, and the sequencer repeats what is not acknowledged in time, as
    in PA; otherwise members ask for what they miss, as in Amoeba. It costs PDUs."""
    repeat_ns: Nanoseconds = 20 * MILLISECOND_NS
    """Pause before a request is asked after, or a join or an entry without a receipt repeated. Raising it
    costs latency when one is lost."""
    heartbeat_ns: Nanoseconds = 10 * MILLISECOND_NS
    """Pause between announcements. Raising it costs latency when the last message of a burst is lost."""
    acknowledge_ns: Nanoseconds = 5 * MILLISECOND_NS
    """The longest delay of an acknowledgement. Raising it costs memory: stability comes later."""
    acknowledge_every: int = 16
    """Positions after which a member acknowledges at once. Raising it costs the same."""
    gap_ns: Nanoseconds = 3 * MILLISECOND_NS
    """How long a gap may be mere reordering. Raising it costs latency when something is lost."""
    suspect_after_ns: Nanoseconds = 200 * MILLISECOND_NS
    """Silence after which a member leaves the view. Raising it costs a longer halt after a crash."""
    lag_ns: Nanoseconds = 2 * SECOND_NS
    """How long a live member may make no progress. Raising it costs a longer halt when a member is stuck."""
    recovery_ns: Nanoseconds = 300 * MILLISECOND_NS
    """How long a sequencer without memory waits for answers. Raising it costs a longer halt after a crash."""

    def __post_init__(self) -> None:
        if self.window < 1 or self.order_window < 1 or self.acknowledge_every < 1:
            raise UsageError("The sequencer's windows hold at least one message.")
        spans = (self.repeat_ns, self.heartbeat_ns, self.acknowledge_ns, self.gap_ns, self.suspect_after_ns)
        if min(*spans, self.lag_ns, self.recovery_ns) <= 0:
            raise UsageError("The sequencer's times are positive.")

    @property
    def keepalive_ns(self) -> Nanoseconds:
        """A member sends eight PDUs before it is suspected, so that loss alone seldom excludes it."""
        return max(1, self.suspect_after_ns // 8)

    @property
    def give_up_ns(self) -> Nanoseconds:
        """How long a member reports a later epoch to its sequencer before it forgets that epoch."""
        return self.lag_ns // 2

    @property
    def acknowledge_after(self) -> int:
        """Positions after which a member acknowledges: often enough that the order need not wait."""
        return 1 if self.receipts else max(1, min(self.acknowledge_every, self.order_window // 4))
