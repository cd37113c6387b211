"""The tag sequencer: a one-channel service in which one site numbers the tags of messages.

Source: Konorski, section 3.3. Senders multicast messages under tags that tell nothing of them. The sequencer
gives each tag the next number and multicasts numbered tags. A member that has seen the numbers i and i+1
knows that nothing lies between the two messages. Tags of other groups may be in the same sequence: they are
filtered out, and contiguity is inferred across them only if every number between was seen.

Assumes: the network may lose, delay, duplicate and reorder. Members may crash, stop, leave and return, the
sequencer too; its driver restarts a member that was stopped for long. A network that is split, with a
sequencer on each side, makes two orders.

Guarantees: while no sequencer is replaced, every arc told to the member is true and every mark sound; each
sender's tags are numbered in the order in which it sent them. When a sequencer is replaced the same holds if
each number that a member saw is known to a member that answers the claim. Otherwise a number may be given
twice: the first known place holds, the precedence graph keeps what it knows, and the members' digests show
the difference. `tests/protocols/dpg/test_sequencer.py` and `test_takeover.py` check all that.

Deviations, with reasons:
- Any member may be the sequencer. It sees 'message' PDUs anyway, so their reception stands for the copy of
  the tag that section 3.3 has unicast; a sender unicasts tags only when a number fails to come, or when the
  sequencer is an outside site that sees no messages.
- The numbering is not assumed to be reliable. Each PDU tells the numbers just before its own again, the last
  one of a burst is repeated, and what is still missing is asked for.
- The paper leaves the loss of the sequencer open. Here another member, whose message gets no number while
  the sequencer is silent, claims the role for the next epoch, which is a counter and a site, the greatest of
  which counts. The sequencer itself tells how long that silence must be: its lease, by how late its own
  timers are.
  Every member that hears the claim stops following the old epoch and answers with the numbers that the
  claimant lacks. The numbering goes on behind the greatest of them, so contiguity is not broken.
- An outside sequencer is not replaced: members of one group cannot know which numbers those of another have.
  While it is away its groups have no order, and wait. When it is back it claims the next epoch, and members
  of all its groups answer; it goes on behind the greatest number that any of them knows.
- A sequencer orders its own messages and others' by a number only when the PDU that tells it has left the
  host: if it is stopped before, and others give the number anew, it has delivered nothing by it. If the PDU
  left late, the sequencer first asks whether it was replaced meanwhile.
- A claimant goes on without the members that do not answer in time. If none answers although several could,
  or if it stood still meanwhile, it waits longer: it is then more likely cut off for a moment than alone, and
  the others may give the same numbers. So a pause of 100 ms, of the network or of a process, forks no order.
- A spell begins at the number of the root that was taken up. What waits in the buffers of a member that stood
  still has lower ones, and what was numbered in between is neither asked for nor ordered.
- A sequencer that was stopped for long enough to be replaced asks whether it is
  still the sequencer before it numbers anything.

Measured on two busy cores, the member's own work excluded: a message costs a member 7 microseconds and the
sequencer 9 when five share a numbering PDU, 13 and 16 when each has its own. With the shortest lease the
tests hold the halt of a simulated group of five below 90 ms when its sequencer is killed or stopped, below
40 ms when it restarts at once, and below 10 ms when it leaves; a longer lease costs as much more.
"""

from antiphon.protocols.dpg.services.tag_sequencer.numbering import TagSequencer
from antiphon.protocols.dpg.services.tag_sequencer.pdus import PDUS, SequencerOptions
from antiphon.protocols.dpg.services.tag_sequencer.service import SequencerService
from antiphon.protocols.dpg.services.tag_sequencer.site import TagSequencerSite

__all__ = ["PDUS", "SequencerOptions", "SequencerService", "TagSequencer", "TagSequencerSite"]
