"""What the fixed sequencer's members say to one another, and what a user may turn."""

from dataclasses import dataclass
from typing import ClassVar, Final

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu

NO_POSITION: Final = -1
"""The position of a member that holds nothing of the order."""
MOST_MISSING: Final = 32
"""Positions that one PDU asks for at most, so that one answer cannot flood the network."""


class Request(Pdu, frozen=True, gc=False):
    """A member asks for a place in the order for messages number, number+1, … of its own.

    `first` is the number with which this incarnation of the member began: whatever lies below it and has no
    place yet died with an earlier one and is not waited for.
    """

    code: ClassVar[int] = 32
    incarnation: int
    first: int
    number: int
    bodies: tuple[bytes, ...]


class Ordered(Pdu, frozen=True, gc=False):
    """What stands at a position of the order; every position below `stable` is held by all who count."""

    code: ClassVar[int] = 33
    epoch: int
    position: int
    stable: int
    sender: Site
    number: int
    bodies: tuple[bytes, ...]


class Heartbeat(Pdu, frozen=True, gc=False):
    """The sequencer tells how far the order goes, so that a lost tail is found."""

    code: ClassVar[int] = 34
    epoch: int
    next_position: int
    stable: int


class Acknowledge(Pdu, frozen=True, gc=False):
    """A member holds everything below `position`, and asks for what it misses beyond."""

    code: ClassVar[int] = 35
    epoch: int
    incarnation: int
    position: int
    missing: tuple[int, ...] = ()


class Join(Pdu, frozen=True, gc=False):
    """A member wants to take part again; it reached `position` in the order of `epoch`."""

    code: ClassVar[int] = 36
    incarnation: int
    first: int
    attempt: int
    epoch: int
    position: int


class Resume(Pdu, frozen=True, gc=False):
    """The sequencer lets a member take part from `position` on.

    `kept` says that the member goes on without a gap. Otherwise `streams` tells for each sender the number
    of its first message that has no place below `position`.
    """

    code: ClassVar[int] = 37
    epoch: int
    incarnation: int
    attempt: int
    position: int
    stable: int
    kept: bool
    streams: dict[Site, int]


class Recover(Pdu, frozen=True, gc=False):
    """A sequencer that lost its memory asks everyone what they hold."""

    code: ClassVar[int] = 38
    epoch: int


class Report(Pdu, frozen=True, gc=False):
    """The answer: what the member holds of the order of `order_epoch`, and how to let it go on."""

    code: ClassVar[int] = 39
    epoch: int
    incarnation: int
    attempt: int
    order_epoch: int
    position: int
    kept_from: int
    stable: int
    streams: dict[Site, int]


class Fetch(Pdu, frozen=True, gc=False):
    """The recovering sequencer asks one member for the bodies at these positions."""

    code: ClassVar[int] = 40
    epoch: int
    missing: tuple[int, ...]


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
)


@dataclass(frozen=True, kw_only=True)
class SequencerConfiguration:
    """The knobs; each says what raising it costs."""

    window: int = 64
    """Own requests under way. Raising it costs the sequencer memory: it may have to queue them all."""
    order_window: int = 256
    """How far the order may run ahead of the slowest member that counts. Raising it costs memory at all."""
    repeat_ns: Nanoseconds = 20 * MILLISECOND_NS
    """Pause before a request or a join is repeated. Raising it costs latency when one is lost."""
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
    recovery_ns: Nanoseconds = 300 * MILLISECOND_NS
    """How long a sequencer without memory waits for answers. Raising it costs a longer halt then."""

    def __post_init__(self) -> None:
        if self.window < 1 or self.order_window < 1 or self.acknowledge_every < 1:
            raise UsageError("The sequencer's windows hold at least one message.")
        spans = (self.repeat_ns, self.heartbeat_ns, self.acknowledge_ns, self.gap_ns, self.suspect_after_ns)
        if min(*spans, self.recovery_ns) <= 0:
            raise UsageError("The sequencer's times are positive.")

    @property
    def keepalive_ns(self) -> Nanoseconds:
        """A member speaks eight times before its silence counts, so that loss alone seldom leaves one out."""
        return max(1, self.suspect_after_ns // 8)
