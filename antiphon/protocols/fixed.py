"""What the causal orders of a fixed group share: a member that starts once, and its inputs.

All members know the group beforehand; it does not change, and no member crashes. A member that is away for a
while is waited for. A subclass handles a batch of the application (`_send`), a PDU of another member
(`_take`) and a timer (`_fire`), and appends its effects to `_effects`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from antiphon.core.effects import Effect
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit, Input, Received, Returned, Start, TimerFired
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.admission import check_admission
from antiphon.protocols.roster import Handed, Roster


class FixedMember(ABC):
    """One member of the group; implements `antiphon.core.protocol.Protocol`."""

    def __init__(self, site: Site, members: Sequence[Site], order: str) -> None:
        """Misuse raises in the name of the `order`."""
        self._roster = Roster(site, members)
        self._order_name = order
        self._fields_bytes = self._roster.vector_bytes
        """The size of the fields of a PDU that grow with the group."""
        self._started = False
        self._now: Nanoseconds = 0
        self._ignored = 0
        self._effects: list[Effect] = []

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        self._now = now
        match event:
            case Received(sender=sender, pdu=pdu):
                place = self._roster.place_of(sender)
                if place is None or not self._started or not self._take(place, pdu):
                    self._ignored += 1
            case TimerFired(name=name):
                self._fire(name)
            case Admit():
                check_admission(event, started=self._started)
                self._send(self._roster.take(event, self._order_name, self._fields_bytes))
            case Start():
                self._start(event)
            case Returned():
                self._resume()
            case _:
                pass  # an absent member is waited for
        effects = self._effects.copy()
        self._effects.clear()
        return effects

    def _start(self, event: Start) -> None:
        if self._started:
            raise UsageError("This member has started already.")
        if event.incarnation or event.next_number:
            raise UsageError(
                f"{self._order_name} takes its members to be reliable: none begins anew.",
                hint="Where members may crash, use sco.",
            )
        self._started = True

    # What a subclass does

    @abstractmethod
    def _send(self, handed: Handed) -> None:
        """Admit a batch and multicast it, or reject it."""

    @abstractmethod
    def _take(self, place: int, pdu: Pdu) -> bool:
        """Handle a PDU of another member; False if it makes no sense."""

    @abstractmethod
    def _fire(self, name: str) -> None:
        """A timer has run out."""

    @abstractmethod
    def _resume(self) -> None:
        """Set the timers again that stood still during an absence; nothing was forgotten."""
