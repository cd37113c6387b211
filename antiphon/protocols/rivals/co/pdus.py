"""CO's PDUs and configuration."""

from dataclasses import dataclass
from typing import ClassVar, Final

from antiphon.core.errors import UsageError
from antiphon.core.packing import Packed
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.roster import Places


class Data(Pdu, frozen=True, gc=False):
    """A batch, from its sender's message `number` on.

    The sender had accepted each member's messages below `accepted`, its own below `number`.
    """

    code: ClassVar[int] = 104
    number: int
    accepted: tuple[int, ...]
    destinations: Places
    bodies: Packed


class Control(Pdu, frozen=True, gc=False):
    """Its sender has accepted each member's messages below these numbers; its own entry counts its own."""

    code: ClassVar[int] = 105
    accepted: tuple[int, ...]


class Ask(Pdu, frozen=True, gc=False):
    """Requests the receiver's own messages from `begin` to below `end`."""

    code: ClassVar[int] = 106
    begin: int
    end: int


PDUS: Final[tuple[type[Pdu], ...]] = (Data, Control, Ask)


@dataclass(frozen=True, kw_only=True)
class CoConfiguration:
    """Each knob says what raising it costs."""

    window: int = 16
    """Own batches that some member is not known to have accepted. Raising it costs memory at all members."""
    confirm_ns: Nanoseconds = 5 * MILLISECOND_NS
    """How long a confirmation waits for data to ride on. Raising it costs time until messages are delivered;
    lowering it costs control messages."""
    heartbeat_ns: Nanoseconds = 20 * MILLISECOND_NS
    """Pause after which a member that has sent nothing sends its acceptance numbers. Raising it costs time
    until the loss of a last message is found."""
    repair_ns: Nanoseconds = 5 * MILLISECOND_NS
    """Pause between requests for what is missing. Raising it costs time after a loss; below a round trip it
    costs needless repeats."""

    def __post_init__(self) -> None:
        if self.window < 1 or min(self.confirm_ns, self.heartbeat_ns, self.repair_ns) <= 0:
            raise UsageError("CO's window holds at least one batch, and its times are positive.")

    @property
    def reach(self) -> int:
        """Batches of one sender that are held here and not delivered, at most."""
        return 4 * self.window
