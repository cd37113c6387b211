"""CBCAST: causal multicast with vector clocks, to the whole group, over a network that loses nothing.

Source: Birman, Schiper and Stephenson, "Lightweight Causal and Atomic Group Multicast" (1991): the CBCAST
protocol for one group, with stability by vectors that ride on messages. Tachikawa and Takizawa compare SCO
with it (their table 1: continuous acceptance by the network, causal by vector clocks, atomic decentralised).

Assumes: a network that keeps each sender's order and loses nothing. Where the network does not
(`reliable_network` off, the default), it runs over the links of `antiphon.protocols.links`, whose
acknowledgements then count among its PDUs. All members are known by name beforehand, begin together and never
crash; an absent member keeps its memory and is waited for.
Guarantees, each proved by the checker of that name: *integrity*, *duplicate*, *atomicity*, *fifo*, *causal*
and *stability*. A message is delivered as soon as everything that precedes it is, and is stable once all
members' vectors say that they have delivered it.

A sender has no choice of destinations, which is what SCO is compared with: a message for some members goes to
all, counts in all vectors, and is delivered only at its destinations.

Deviations, with reasons.
- There is one group, and its membership does not change by virtual synchrony: the flush belongs to ISIS, and
  the comparison has no crashes.
- Vectors count messages rather than batches: a batch moves its sender's entry by its number of messages, so
  that a stamp is also the message's number.
- Vectors travel whole. The paper also shows how to leave out entries that have not changed.
"""

from typing import Final

from antiphon.core.recording import Property
from antiphon.protocols.rivals.vector_clock.member import VectorClock
from antiphon.protocols.rivals.vector_clock.pdus import PDUS, Message, VectorClockConfiguration

__all__ = ["DATA_KINDS", "PDUS", "PROMISES", "VectorClock", "VectorClockConfiguration"]

PROMISES: Final[tuple[Property, ...]] = (
    "integrity",
    "duplicate",
    "atomicity",
    "fifo",
    "causal",
    "stability",
)
DATA_KINDS: Final = (Message,)
"""The PDUs that carry messages."""
