"""The control schemes' PDUs and configuration."""

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

import msgspec

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.roster import Places

Scheme: TypeAlias = Literal["C0", "C1", "D0"]
SCHEMES: Final[tuple[Scheme, ...]] = ("C0", "C1", "D0")
COUNT_BYTES: Final = 4
"""Bytes of a count on the wire. Raising it costs bytes for each two members."""


class Rider(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Replies and confirmations for a destination of a batch, by first number: its own batches that are
    accepted here, and this member's batches that all destinations have accepted."""

    to: int
    replies: tuple[int, ...]
    confirms: tuple[int, ...]


class Data(Pdu, frozen=True, gc=False):
    """A batch, from its sender's message `number` on, to its destinations only.

    `sent` has, row by row, how many batches from each member to each other one its sender knew; the sender's
    own row counts the batches to each destination before this.
    """

    code: ClassVar[int] = 110
    number: int
    destinations: Places
    sent: bytes
    riders: tuple[Rider, ...]
    bodies: Packed


class Submit(Pdu, frozen=True, gc=False):
    """To a fixed coordinator: a batch that it is to send, the sender's message `number` on, in its `turn`."""

    code: ClassVar[int] = 115
    number: int
    turn: int
    destinations: Places
    riders: tuple[Rider, ...]
    bodies: Packed


class Relayed(Data, frozen=True, gc=False):
    """From a fixed coordinator: a batch of member `origin`, whose message `origin_number` is the first."""

    code: ClassVar[int] = 116
    origin: int
    origin_number: int


class Done(Pdu, frozen=True, gc=False):
    """From a fixed coordinator: all destinations of a submitted batch have accepted it."""

    code: ClassVar[int] = 117
    number: int


class Failure(Pdu, frozen=True, gc=False):
    """From a batch's coordinator: not all its destinations have accepted it in time, so none delivers it.

    It takes the batch's place in the causal order, for destinations that lack the batch.
    """

    code: ClassVar[int] = 118
    number: int
    destinations: Places
    sent: bytes


class Noted(Pdu, frozen=True, gc=False):
    """To a batch's coordinator: its failure is noted here."""

    code: ClassVar[int] = 119
    number: int


class Reply(Pdu, frozen=True, gc=False):
    """To a batch's sender: it is accepted here."""

    code: ClassVar[int] = 111
    number: int


class Confirm(Pdu, frozen=True, gc=False):
    """From a batch's sender: all its destinations have accepted it."""

    code: ClassVar[int] = 112
    number: int


class Deferred(Pdu, frozen=True, gc=False):
    """Replies and confirmations that found no data to ride on."""

    code: ClassVar[int] = 113
    replies: tuple[int, ...]
    confirms: tuple[int, ...]


class Announce(Pdu, frozen=True, gc=False):
    """To a batch's sender and its other destinations: it is accepted here.

    With `asks` its sender asks for the same announcement of the receiver, for which it is batch `position` of
    the batch's sender.
    """

    code: ClassVar[int] = 114
    sender: int
    number: int
    position: int
    asks: bool


PDUS: Final[tuple[type[Pdu], ...]] = (
    Data,
    Reply,
    Confirm,
    Deferred,
    Announce,
    Submit,
    Relayed,
    Done,
    Failure,
    Noted,
)


@dataclass(frozen=True, kw_only=True)
class ControlledConfiguration:
    """Each knob says what raising it costs."""

    scheme: Scheme = "C0"
    """Who finds out that all destinations have a message: its sender (C0 and C1) or each of them (D0)."""
    window: int = 16
    """Own batches that some destination is not known to have. Raising it costs memory at all members."""
    confirm_ns: Nanoseconds = 5 * MILLISECOND_NS
    """C1: how long a reply or a confirmation waits for data to ride on. Raising it costs time until messages
    are delivered; lowering it costs control messages."""
    repeat_ns: Nanoseconds = 20 * MILLISECOND_NS
    """How long a batch may go without an answer before it, or the question, is repeated. Raising it costs
    time after a loss; below a round trip and the time for which answers are deferred it costs needless
    repeats."""
    give_up_ns: Nanoseconds = 0
    """C0 and C1: how long a batch may go without the replies of all its destinations before its sender gives
    it up, and none delivers it; 0 means for ever. Raising it costs time for which one silent destination
    keeps the others waiting; below a round trip and what answers are deferred it costs good messages."""
    coordinator: Site = ""
    """C0 and C1: the member that coordinates all messages. If it is left out, each sender coordinates its
    own. A coordinator costs another round, and a message each way, for messages of all others."""

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise UsageError(
                f"There is no control scheme '{self.scheme}'.", hint=f"There are: {', '.join(SCHEMES)}."
            )
        if self.coordinator and self.scheme == "D0":
            raise UsageError("Under D0 no member coordinates.", hint="Choose C0 or C1, or no coordinator.")
        if self.give_up_ns and (self.scheme == "D0" or self.coordinator):
            raise UsageError(
                "Only senders that coordinate their own messages can give them up.",
                hint="Choose C0 or C1 without a coordinator for all.",
            )
        if self.give_up_ns < 0 or self.window < 1 or min(self.confirm_ns, self.repeat_ns) <= 0:
            raise UsageError("A window holds at least one batch, and the times are positive.")

    @property
    def reach(self) -> int:
        """Batches of one sender that are held here and not delivered, at most."""
        return 4 * self.window
