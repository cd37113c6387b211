"""Selective causal multicast under centralised and plain distributed control: C0, C1 and D0.

Source: Tachikawa and Takizawa, "Distributed Protocol for Selective Intra-group Communication", sections 2.3
and 4, which compare four ways to find out that all destinations have a message. D1 is SCO itself
(`antiphon.protocols.sco`). The service is the same under all: a message goes to its destinations only, is
ordered causally there, and is delivered once all of them are known to have it.

| scheme | who finds out | messages for d destinations | rounds |
|---|---|---|---|
| C0 | the sender: each destination replies, the sender confirms | 3d | 3 |
| C1 | the same; replies and confirmations ride on data, or go after `confirm_ns` without | at most 3d | 3 |
| D0 | each destination: all of them tell the sender and one another | d + d^2 | 2 |

With C0 and C1 a sender coordinates its own messages, or one member coordinates those of all (`coordinated`).
With `give_up_ns` a sender multicasts the failure of section 4 when not all destinations have accepted its
message in time. The failure takes the message's place in the causal order, and no destination delivers it:
the sender has not confirmed it to any. It is repeated until every destination has noted it.

Assumes: the network may lose, delay, duplicate and reorder. All members are known by name beforehand, begin
together and never crash; an absent member keeps its memory and is waited for.
Guarantees, each proved by the checker of that name: *integrity*, *duplicate*, *atomicity*, *fifo*, *causal*
and *stability*. If nothing is lost, not one control message goes beyond those of the table.

Deviations, with reasons.
- The text's d^2 for D0 leaves out the d copies of the message itself, which its 3d for C0 counts.
- Causal order does not use SCO's vectors of sequence numbers: those need control messages from members that
  have nothing to send, which would spoil the counts by which C0 and D0 are compared. Instead a message
  carries how many messages each member has sent to each (Raynal, Schiper and Toueg 1991): n^2 numbers, but
  silent members need not be heard.
- A destination replies when it has accepted a message causally, not when the message arrives, as SCO does.
  Then no more messages wait anywhere than the senders' windows allow.
- A loss is found by a missing answer: a sender repeats its message to destinations that have not replied, and
  a destination that waits repeats its own reply, which is answered. The text leaves this open.
- A sender among its own destinations needs no message: it has what it sends, and hears from the others as
  their sender.
"""

from typing import Final

from antiphon.core.recording import Property
from antiphon.protocols.rivals.controlled.coordinated import Coordinated
from antiphon.protocols.rivals.controlled.member import Controlled
from antiphon.protocols.rivals.controlled.pdus import (
    PDUS,
    SCHEMES,
    ControlledConfiguration,
    Data,
    Relayed,
    Scheme,
    Submit,
)

__all__ = [
    "DATA_KINDS",
    "PDUS",
    "PROMISES",
    "SCHEMES",
    "Controlled",
    "ControlledConfiguration",
    "Coordinated",
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
DATA_KINDS: Final = (Data, Submit, Relayed)
"""The PDUs that carry messages."""
