"""Selective causal multicast under centralised and plain distributed control: C0, C1 and D0.

Source: Tachikawa and Takizawa, "Distributed Protocol for Selective Intra-group Communication", sections 2.3
and 4, which compare four ways to find out that all destinations have a message. D1 is SCO itself
(`antiphon.protocols.sco`). The service is the same under all: a message goes to its destinations only, is
ordered causally there, and is delivered once it is known that all of them have it.

| scheme | who finds out | messages for d destinations | rounds |
|---|---|---|---|
| C0 | the sender: each destination replies, the sender confirms | 3d | 3 |
| C1 | the same; replies and confirmations ride on data, or go after `confirm_ns` without | at most 3d | 3 |
| D0 | each destination: all of them tell the sender and one another | d + d^2 | 2 |

Assumes: the network may lose, delay, duplicate and reorder. All members are known by name beforehand, begin
together and never crash; one that is absent keeps its memory and is waited for.
Guarantees, each proved by the checker of that name: *integrity*, *duplicate*, *atomicity*, *fifo*, *causal*
and *stability*. If nothing is lost, not one control message goes beyond those of the table.

Deviations, with reasons.
- The text's d^2 for D0 leaves out the d copies of the message itself, which its 3d for C0 counts.
- Causal order is not SCO's by vectors of sequence numbers: those need word from members that have nothing to
  say here, and such messages would spoil the very counts that C0 and D0 are compared by. Instead a message
  carries how many each member has sent to each (Raynal, Schiper and Toueg 1991): n^2 numbers, but nobody has
  to be heard of.
- A destination replies when it has accepted a message causally rather than at first sight, as SCO does. Then
  no more waits anywhere than the senders' windows allow.
- Whatever is lost is found by not being answered: a sender repeats its message to whoever has not replied,
  and a destination that waits repeats its own word, which is answered. The text leaves this open.
- A sender among its own destinations takes part without a message: it has what it sends, and hears of the
  others as their sender.
"""

from typing import Final

from antiphon.core.recording import Property
from antiphon.protocols.controlled.member import Controlled
from antiphon.protocols.controlled.pdus import PDUS, SCHEMES, ControlledConfiguration, Data, Scheme

__all__ = [
    "DATA_KINDS",
    "PDUS",
    "PROMISES",
    "SCHEMES",
    "Controlled",
    "ControlledConfiguration",
    "Scheme",
]

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
