"""What members under each control scheme say to one another, and what a user may turn."""

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

import msgspec

from antiphon.core.errors import UsageError
from antiphon.core.packing import Packed
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.roster import Places

Scheme: TypeAlias = Literal["C0", "C1", "D0"]
SCHEMES: Final[tuple[Scheme, ...]] = ("C0", "C1", "D0")
COUNT_BYTES: Final = 4
"""What an entry of the matrix takes on the wire: batches from one member to another."""


class Rider(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a destination of a batch is told along with it: of its own batches that are accepted here, and of
    this member's batches that all have accepted, each by the number of its first message."""

    to: int
    replies: tuple[int, ...]
    confirms: tuple[int, ...]


class Data(Pdu, frozen=True, gc=False):
    """A batch, from its sender's message `number` on, to its destinations only.

    `sent` tells, row by row, how many batches from each member to each other one its sender knew of; among
    them, how many of its own went to each destination before this.
    """

    code: ClassVar[int] = 110
    number: int
    destinations: Places
    sent: bytes
    riders: tuple[Rider, ...]
    bodies: Packed


class Reply(Pdu, frozen=True, gc=False):
    """To a batch's sender: it is accepted here."""

    code: ClassVar[int] = 111
    number: int


class Confirm(Pdu, frozen=True, gc=False):
    """From a batch's sender: all its destinations have accepted it."""

    code: ClassVar[int] = 112
    number: int


class Deferred(Pdu, frozen=True, gc=False):
    """What would have ridden on data, had there been any."""

    code: ClassVar[int] = 113
    replies: tuple[int, ...]
    confirms: tuple[int, ...]


class Announce(Pdu, frozen=True, gc=False):
    """To a batch's sender and its other destinations: it is accepted here.

    Whoever `asks` has waited long to hear the same of the receiver, for which it is batch `position` of that
    sender.
    """

    code: ClassVar[int] = 114
    sender: int
    number: int
    position: int
    asks: bool


PDUS: Final[tuple[type[Pdu], ...]] = (Data, Reply, Confirm, Deferred, Announce)


@dataclass(frozen=True, kw_only=True)
class ControlledConfiguration:
    """Each knob says what raising it costs."""

    scheme: Scheme = "C0"
    """How it is found out that all destinations have a message: C0 and C1 by its sender, D0 by each."""
    window: int = 16
    """Own batches that some destination is not known to have. Raising it costs memory at all members."""
    confirm_ns: Nanoseconds = 5 * MILLISECOND_NS
    """C1: how long a reply or a confirmation waits for data to ride on. Raising it costs time until messages
    are delivered; lowering it costs control messages."""
    repeat_ns: Nanoseconds = 20 * MILLISECOND_NS
    """How long a batch may go without an answer before it, or the question, is repeated. Raising it costs
    time after a loss; below a round trip and the time for which answers are deferred it costs needless
    repeats."""

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise UsageError(
                f"There is no control scheme '{self.scheme}'.", hint=f"There are: {', '.join(SCHEMES)}."
            )
        if self.window < 1 or min(self.confirm_ns, self.repeat_ns) <= 0:
            raise UsageError("A window holds at least one batch, and the times are positive.")

    @property
    def reach(self) -> int:
        """Batches of one sender that are held here and not delivered, at most."""
        return 4 * self.window
