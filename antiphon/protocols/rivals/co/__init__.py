"""CO: causal broadcast by sequence numbers alone, over a network that may lose.

Sources: Nakamura and Takizawa, "Causally Ordering Broadcast Protocol" (1994), as Tachikawa and Takizawa
describe it: its causality condition in their section 3.3, and how it reaches each acceptance level in their
table 1 (continuous and causal by sequence numbers, atomic by distributed control). Every message goes to all
members. So the sender of q had accepted p exactly if p's number is below q's acceptance number for p's
sender.

Assumes: the network may lose, delay, duplicate and reorder. All members are known by name beforehand, begin
together and never crash; an absent member keeps its memory and is waited for.
Guarantees, each proved by the checker of that name: *integrity*, *duplicate*, *atomicity*, *fifo*, *causal*
and *stability*. A message is delivered once everything that precedes it is, and all members are known to
have accepted it: full acceptance, as under SCO.

A sender has no choice of destinations, which is what SCO is compared with: a message for some members goes to
all and is confirmed by all, and is delivered only at its destinations.

Deviations, with reasons.
- Acceptance numbers count messages rather than batches: a batch of three moves them by three.
- A batch is delivered as soon as all members are known to have accepted it. The original may wait until all
  are known to know that; SCO, with which it is compared, does not wait either.
- Control messages are also sent when no confirmation is due, after `heartbeat_ns` without data, and carry the
  number of messages that their sender has sent. Otherwise the loss of a last message, or of a last
  confirmation, stays unknown.
- What others have accepted also shows that something is missing here, as does a gap in a sender's numbers.
"""

from typing import Final

from antiphon.core.recording import Property
from antiphon.protocols.rivals.co.member import Co
from antiphon.protocols.rivals.co.pdus import PDUS, CoConfiguration, Data

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
