"""The Distributed Precedence Graph protocol (DPG): total order that does not care who is there.

Source: Konorski, "A membership-insensitive, multicast group transport protocol": sections 3 (one-channel
services with ContiguityDetector, `services`), 4 (the protocol), 5 (observations) and 6 (lessons).

Assumes: a one-channel service, in which whatever two members receive they receive in one order, and whose
detector tells of some messages that nothing lies between them. Messages may be lost, members may crash, stop,
leave and return. Infinitely many repetitions reach everyone (Eventual Receipt).

Guarantees, each proved by the checker of that name: *integrity*, *duplicate*, *fifo*; and, except in
schedules that the cycles make improbable, *total* and *atomicity* within each presence spell (quasi-agreed
order), and *stability*. Nobody waits for anybody: there are no views, and a member that is gone costs nothing
but its own messages. Members exchange digests of what they have agreed on, and say so (`Disagreed`) when
orders have gone apart; a message that is passed over is told too (`Unavailable`).

Members that lie under their own names: every field is bounded as it is decoded. An order far from what the
others tell is not taken up, and what is told of a sender counts only until the sender is heard itself. What
nobody has is waited for up to Dummy_Cycle, and what a liar said counts until it has been silent for a second.
While it lies it can slow the others down, end their spells, or keep messages from being called stable. A
remulticast message is believed as it comes: to tell a forged one takes signatures. But no number of a sender
is delivered twice, and none that is held here after a later one of that sender. Where demands, clocks or
sequencers are concerned, names that were hardly heard or never sent a message have little say or none.

What is where: `graph` the precedence graph; `order` the graph's root, the agreed sequence, bodies, delivery;
`delivering` when it goes on; `hearing` what the channel brings; `suspended` Suspended Delivery; `intake`
bodies as they come; `foretold` what was delivered on another's word; `recovery` lost bodies; `own` a member's
own messages until they have a place;
`reporting` what stands in reports; `telling` when a member reports, and what; `learning` what it makes of
others' reports; `agreement` digests; `stability` what all hold; `spells` absence and return; `company` who
was heard of lately; `flow`, `cycles`, `heartbeat`, `wakes`, `buffers`, `tags` what their names say; `member`
ties them together.

Deviations, with reasons:
- 'message' PDUs carry a packed batch, so that one vertex orders many messages; they name the sender's message
  before and the latest it had received, which precede it on any of the channels. Remulticast bodies travel
  beside a report, since one may fill a PDU.
- Arcs from all vertices without successor are drawn only where reports share the ordered channel (the LAN);
  elsewhere they would be wrong. The other services know a message's place whenever it comes, and say so.
- After Deliv_Cycle the front is taken by decreasing tags, and what followed its other elements hangs under
  the new root, else it would never be reached. While own messages are unlocated that waits, up to a limit.
- Reports also tell the true arcs of vertices incorporated lately: whoever missed one that the others have
  delivered would otherwise never learn its place. Arcs that were only chosen are never told.
- Suspended Delivery as printed reports false marks; see `suspended`.
- Message_Cycle as printed hardly ever comes down; see `flow`. Beyond the paper, a sender also keeps within
  reach of the slowest member that it has heard of lately: socket buffers are lost sooner than ordering ones.
  Who is silent is left behind step by step, within what is kept for it.
- That a message was delivered at all present sites cannot be known without membership: a body is kept until
  nobody has spoken of it for a while. A member that asks for one which others delivered and keep no more, or
  which not all who are there have asked for when Dummy_Cycle is over, ends its spell instead of delivering a
  dummy that the others did not.
- Returning as printed re-delivers thousands of messages; see `spells`. What nobody heard before its sender
  was away keeps its place before its successors; if those were delivered meanwhile its sender is told.
- The delay of a report is also waived when something is lost, else requesters starve; see `heartbeat`.
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
"""Those of them that hold almost always; members report when one did not.

Stability fails where a member is present and was never heard, or not for longer than it may be silent: by
losses in a row, or on the other side of a network that is cut in two.
"""
