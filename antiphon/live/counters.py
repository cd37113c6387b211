"""What a transport has sent, received, repaired and refused, counted."""

from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class Counters:
    """Plain numbers, cheap to raise. `drops` has a count by reason; there are only so many reasons."""

    pdus_sent: int = 0
    pdus_received: int = 0
    datagrams_sent: int = 0
    datagrams_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    datagrams_lost: int = 0
    """Dropped by the kernel since the receive buffer was full, where that is watched."""
    pdus_lost: int = 0
    """Of members or would-be members, dropped here."""
    reassembled: int = 0
    fragments_requested: int = 0
    fragments_resent: int = 0
    challenges_sent: int = 0
    proofs_given: int = 0
    key_changes: int = 0
    """Times that a changed key file was taken up."""
    drops: dict[str, int] = field(default_factory=dict)

    def drop(self, reason: str) -> None:
        self.drops[reason] = self.drops.get(reason, 0) + 1

    def lose(self, reason: str) -> None:
        """Drop what may have been for the protocol above."""
        self.pdus_lost += 1
        self.drop(reason)

    def snapshot(self) -> dict[str, Any]:
        """A copy that no longer changes."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**values, "drops": dict(self.drops)}
