"""What a transport has sent, received, repaired and refused, counted."""

from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class Counters:
    """Plain numbers, cheap to increment. `drops` counts by reason; the set of reasons is fixed."""

    pdus_sent: int = 0
    pdus_received: int = 0
    datagrams_sent: int = 0
    datagrams_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    datagrams_lost: int = 0
    """Datagrams dropped by the kernel because the receive buffer was full, where that is watched."""
    pdus_lost: int = 0
    """PDUs of members or would-be members, dropped here."""
    reassembled: int = 0
    fragments_requested: int = 0
    fragments_resent: int = 0
    challenges_sent: int = 0
    proofs_given: int = 0
    key_changes: int = 0
    """How often a changed key file was loaded."""
    drops: dict[str, int] = field(default_factory=dict)

    def drop(self, reason: str) -> None:
        self.drops[reason] = self.drops.get(reason, 0) + 1

    def lose(self, reason: str) -> None:
        """Count a dropped PDU that may have been for the protocol."""
        self.pdus_lost += 1
        self.drop(reason)

    def snapshot(self) -> dict[str, Any]:
        """A copy that no longer changes."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**values, "drops": dict(self.drops)}
