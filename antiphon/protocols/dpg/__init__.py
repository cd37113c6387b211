"""The Distributed Precedence Graph protocol (DPG): total order that is insensitive to membership.

Source: Konorski, "A membership-insensitive, multicast group transport protocol": sections 3 (one-channel
services with ContiguityDetector, `services`), 4 (the protocol), 5 (observations) and 6 (lessons).

Assumes: a one-channel service. It delivers any two messages in one order to all members that receive both,
and its detector tells of some messages that nothing lies between them. Messages may be lost. Members may
crash, stop, leave and return. Of infinitely many repetitions one reaches every member (Eventual Receipt).

Guarantees, each proved by the checker of that name: *integrity*, *duplicate*, *fifo*; and, except in
schedules that the cycles make improbable, *total* and *atomicity* within each presence spell (quasi-agreed
order), and *stability*. No member waits for another: there are no views, and a member that is gone costs only
its own messages. Members exchange digests of what they have agreed on. They report `Disagreed` when orders
differ, `Unavailable` when a message is passed over, and `Forked` when they give up their own order for that
of a larger side. With a `quorum` a minority delivers nothing, and reports `CutOff`.

Members that lie under their own names: every field is bounded while it is decoded. An order far from what the
others report is not adopted. A claim about a sender counts only until that sender is heard itself. A body
that no member holds is awaited for Dummy_Cycle. A liar's claims count until it has been silent for a second.
While it lies it can slow the others down, end their spells, or keep messages from becoming stable. A
retransmitted message is believed as it comes: to detect a forgery takes signatures. But no number of a sender
is delivered twice, and no message that is held here is delivered after a later one of its sender. Names that
were hardly heard, or never sent a message, have little or no influence on pacing, clocks and sequencers.

Modules, in the order in which a message meets them: `own_messages` admission until a message has its place;
`flow` pacing; `services` one order on the channel; `validation` checks of received messages; `channel` what
the channel tells the graph; `suspended` Suspended Delivery; `graph` the precedence graph; `order` the graph's
root, the agreed sequence, bodies, deliveries; `delivery` when the order goes on; `buffers` bodies;
`unconfirmed` deliveries that rest on another member's word; `recovery` lost bodies; `stability` what all
hold; `channel_queue` how full the channel is. Reports: `heartbeat` when to report; `report_sender` what;
`reports` their contents; `report_merge` what a member learns from them; `continuity` whether its order can go
on; `agreement` and `checkpoints` digests; `quorum` whether enough members have a place. Members: `peers`
heard recently; `spells` absence and return. `context` is what these parts share. `cycles`, `timers`, `tags`,
`tag_lists`, `pdus` are what their names say;
`printed` has the published form of the parts. `member` ties them together.

Deviations, with reasons:
- A 'message' PDU carries a packed batch, so one vertex orders many messages. It names the sender's previous
  message and the latest message that the sender had received; both precede it on any channel. Retransmitted
  bodies travel beside a report, since a body may fill a PDU.
- Arcs from all vertices without successor are drawn only where reports share the ordered channel (the LAN);
  elsewhere they would be false. The other services know a message's place whenever it arrives.
- After Deliv_Cycle the front is taken by decreasing tags. The successors of its other elements then hang
  under the new root, else they would never be reached. While own messages have no place that waits, up to a
  limit. A member that had no room in its graph for a vertex during the last Deliv_Cycle would choose without
  it: it ends its spell instead; see `delivery`.
- Reports also tell the true arcs of vertices that were incorporated recently: a member that missed a vertex
  which the others have delivered would otherwise never learn its place. Chosen arcs are never reported.
- Suspended Delivery as printed reports false marks; see `suspended`.
- Message_Cycle as printed hardly ever decreases; see `flow`. Beyond the paper, a sender also keeps within
  reach of the slowest member that was heard recently: socket buffers overflow sooner than ordering buffers. A
  silent member is left behind step by step, within what is kept for it.
- Without membership no member can know that all present sites delivered a message: a body is kept until it
  was not mentioned for a while. A member that asks for a body which others delivered and no longer keep, or
  which not all others have asked for when Dummy_Cycle is over, ends its spell. A dummy in its place would be
  a message that the others delivered.
- Returning as printed delivers thousands of messages again; see `spells`. A message that was not received
  before its sender was away keeps its place before its successors. If those were delivered meanwhile, its
  sender gets `Unavailable`.
- The delay of a report is also waived when something is lost, else requesters starve. Members take turns, and
  reports are incremental, else they fill a shared channel; see `heartbeat` and `report_sender`. Requests and
  answers wait for what is under way on it; see `channel_queue`.
- A vertex that should have preceded one already delivered is passed over: order is kept, atomicity is not.
- Stability (`Stable`): the paper has none. Members tell which bodies they hold, see `stability`.
"""

from typing import Final

from antiphon.core.recording import Property
from antiphon.protocols.dpg.member import Dpg
from antiphon.protocols.dpg.pdus import PDUS, DpgConfiguration

__all__ = ["ALMOST", "PDUS", "PROMISES", "Dpg", "DpgConfiguration"]

PROMISES: Final[tuple[Property, ...]] = ("integrity", "duplicate", "atomicity", "fifo", "total", "stability")
ALMOST: Final[tuple[Property, ...]] = ("atomicity", "total", "stability")
"""The promises that hold almost always; members report when one did not hold.

Stability fails where a present member was never heard, or has been silent for longer than it may be: because
of losses in a row, or because the network is split.
"""
