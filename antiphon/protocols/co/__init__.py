"""CO: causal broadcast by sequence numbers alone, over a network that may lose.

Sources: Nakamura and Takizawa, "Causally Ordering Broadcast Protocol" (1994), as Tachikawa and Takizawa tell
of it: its causality condition in their section 3.3, and its way to each acceptance level in their table 1
(continuous and causal by sequence numbers, atomic by distributed control). Every message goes to everyone, so
that whoever sent q had accepted p exactly if p's number is below what q says to be accepted of p's sender.

Assumes: the network may lose, delay, duplicate and reorder. All members are known by name beforehand, begin
together and never crash; one that is absent keeps its memory and is waited for.
Guarantees, each proved by the checker of that name: *integrity*, *duplicate*, *atomicity*, *fifo*, *causal*
and *stability*. A message is delivered once all is that precedes it and everyone is known to have accepted
it: full acceptance, as under SCO.

A sender has no choice of destinations here, which is what it is compared for: a message for some goes to all
and is confirmed by all, and is delivered only where it was meant to be.

Deviations, with reasons.
- Acceptance numbers count messages rather than batches: a batch of three moves them by three.
- A batch is delivered as soon as it is known to be accepted everywhere. The original may wait until it is
  known that everyone knows; SCO, beside which it is measured, does not either.
- Control messages also go when nothing is owed, every `heartbeat_ns` without data, and tell how many messages
  their sender has sent: otherwise the loss of a last message, or of a last confirmation, stays unknown.
- What others have accepted also tells that something is missing here, as does a gap in a sender's numbers.
"""

from typing import Final

from antiphon.core.recording import Property
from antiphon.protocols.co.member import Co
from antiphon.protocols.co.pdus import PDUS, CoConfiguration, Data

__all__ = ["DATA_KINDS", "PDUS", "PROMISES", "Co", "CoConfiguration"]

PROMISES: Final[tuple[Property, ...]] = (
    "integrity",
    "duplicate",
    "atomicity",
    "fifo",
    "causal",
    "stability",
)
DATA_KINDS: Final = (Data,)
"""The PDUs that carry messages."""
