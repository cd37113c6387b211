"""CBCAST's PDUs and configuration."""

from dataclasses import dataclass
from typing import ClassVar, Final

from antiphon.core.errors import UsageError
from antiphon.core.packing import Packed
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.links import Held, Linked
from antiphon.protocols.roster import Places


class Message(Linked, frozen=True, gc=False):
    """A batch and its vector time: its sender had delivered each member's messages below these numbers.

    The sender's own entry is the number of the batch's first message.
    """

    code: ClassVar[int] = 100
    vector: tuple[int, ...]
    destinations: Places
    bodies: Packed


class Delivered(Linked, frozen=True, gc=False):
    """Its sender's vector clock, sent when no message carries it."""

    code: ClassVar[int] = 101
    vector: tuple[int, ...]


PDUS: Final[tuple[type[Pdu], ...]] = (Message, Delivered, Held)


@dataclass(frozen=True, kw_only=True)
class VectorClockConfiguration:
    """Each knob says what raising it costs."""

    window: int = 16
    """Own batches that some member is not known to have delivered. Raising it costs memory at all members."""
    confirm_ns: Nanoseconds = 5 * MILLISECOND_NS
    """How long a confirmation of deliveries waits for a message to ride on. Raising it costs time until
    messages are stable; lowering it costs PDUs."""
    reliable_network: bool = False
    """Whether the network is what CBCAST assumes: no loss, no duplicates, each sender's order. False
    costs a link's acknowledgements."""
    acknowledge_ns: Nanoseconds = 5 * MILLISECOND_NS
    """How long a link's acknowledgement may wait. Raising it costs time until losses are found."""
    repeat_ns: Nanoseconds = 20 * MILLISECOND_NS
    """How long a link waits before it repeats a PDU. Raising it costs time after a loss."""

    def __post_init__(self) -> None:
        if self.window < 1 or min(self.confirm_ns, self.acknowledge_ns, self.repeat_ns) <= 0:
            raise UsageError("CBCAST's window holds at least one batch, and its times are positive.")
