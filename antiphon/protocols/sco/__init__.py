"""SCO: selective causally ordered multicast, where each message goes to the members that its sender chooses.

Source: Tachikawa and Takizawa, "Distributed Protocol for Selective Intra-group Communication": sections 2.2
(acceptance levels), 2.3 (piggy-backed and deferred confirmation) and 3 (data transmission). The unit that is
ordered is a batch: consecutive messages of one sender to one set of destinations. Where the paper has
`sqn + 1` a batch has the number after its last.

- Every batch carries its number, its place in what was sent to each destination, the sender's causal past
  (csn) and its confirmations (ack). Batches of one sender are accepted in the order of their places; what is
  missing is asked for, of the sender or, once that is gone, of another destination.
- Accepting a batch is confirmed. It moves to the causality queue when nothing that precedes it can come any
  more, and is delivered when every destination has confirmed it (`delivery="full"`), or at once (`"causal"`).
- Confirmations travel on messages. Whoever gets none within `confirm_ns` gets a control message, and everyone
  hears of everyone in each period of `control_ns`.

Assumes: the network may lose, delay, duplicate and reorder, and may be split; members may go absent or crash
and be restarted. Simulated members know one another from the start, live ones need not.

Guarantees with full delivery, each proved by the checker of that name: *integrity*, *duplicate*, *fifo*,
*causal*, *atomicity* and *stability*.
- Atomicity is uniform: what anyone delivered, even one that crashed then, every destination that stays
  delivers. A message dies with its sender's life only if nobody who stays holds it, and then nobody has
  delivered it.
- Whoever is silent for `silence_ns` is left out, by all or by none; it is told, ends its spell of presence
  (`Absent`), and comes back as one who was never there (`Present`).
- Of a group that is split, the part goes on that has more than half of the members who count (or half of
  them, the first by name among these); the others' spells end, and what they had sent and not delivered may
  be lost. The same happens when so many crash at the same time. `splits=False` lets any survivor go on, for
  networks that do not split.
- It can fail when everyone who holds a member to be gone crashes before it could be told, and when members
  are cut off from one another within the moment in which they hear of a newcomer.
- A member that lies, or errs, may hold the others up and end their spells while it is there; what they send
  meanwhile may be lost, as in a split. It may have their messages wait for one another. These are freed, and
  where no confirmation among them says which came first, their causal order may be wrong. It can forge
  messages of members that are gone, to those who lack them: only signatures would prevent that.
- Once it has been silent for `silence_ns`, or has left, the others go on within two seconds, at the cost of a
  spell at worst. Every promise holds for what they send from then on.
- With causal delivery atomicity, and causal order across restarts, are lost when members go: one may
  have delivered what dies with it (`CAUSAL_PROMISES`). As long as nobody goes all hold.

Deviations from the paper, which prints a procedure with ten faults (each kept as a test that the printed form
fails, `tests/protocols/test_sco_paper.py`).
- csn entries only rise (S1). Only a top moves that nothing precedes (S2), and it need not wait until no
  receipt queue is empty: each member's frontier, below which nothing of it can come, is enough (S6).
- Acceptance of p acknowledges p too (S3). Control messages tell numbers and places, not only acks (S4), and
  go to everyone, unasked (S5).
- A retransmission has the stamps of the original (S7), and what waited behind it follows (S9).
- What is confirmed is continuous acceptance. The paper's confirmations (`acknowledge="causal"`) wait until
  the batch may move, and everyone else waits for them. In large groups that comes later, to save control
  messages (`ScoConfiguration.others_ns`).
- The window is counted from the oldest batch that one of its own destinations has not confirmed (S8).
- Messages to oneself pass through the same queues, and count as confirmed by oneself at once.
- Vectors travel as differences (`antiphon.protocols.sco.coding`), unless the paper's form is asked for.
- Members may come, go and crash (`antiphon.protocols.sco.parting`), which the paper leaves out.
- Nobody is believed what another who is there has sent. The paper lets any destination answer for a sender.

Measured: random runs under all faults at once found seven faults of ours, which the swarms keep. With 100
members and five destinations, everyone sending once in a quarter of `confirm_ns`, a message costs 19 control
messages and 12.4 units of delay; 27 and 11.6 if those whom it is not for are told as soon as the others; with
the paper's confirmations 19 and 14.4.
"""

from typing import Final

from antiphon.core.recording import Property
from antiphon.protocols.sco.levels import LEVELS, Level
from antiphon.protocols.sco.member import Sco
from antiphon.protocols.sco.pdus import PDUS, ScoConfiguration

__all__ = ["CAUSAL_PROMISES", "LEVELS", "PDUS", "PROMISES", "Level", "Sco", "ScoConfiguration"]

PROMISES: Final[tuple[Property, ...]] = (
    "integrity",
    "duplicate",
    "atomicity",
    "fifo",
    "causal",
    "stability",
)
CAUSAL_PROMISES: Final[tuple[Property, ...]] = ("integrity", "duplicate", "fifo", "stability")
"""What is left of them with causal delivery when members go; as long as none does, all hold."""
