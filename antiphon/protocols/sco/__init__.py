"""SCO: selective causally ordered multicast, where each message goes to the members that its sender chooses.

Source: Tachikawa and Takizawa, "Distributed Protocol for Selective Intra-group Communication": sections 2.2
(acceptance levels), 2.3 (piggy-backed and deferred confirmation) and 3 (data transmission). The unit that is
ordered is a batch: consecutive messages of one sender to one set of destinations. Where the paper has
`sqn + 1` a batch has the number after its last.

- Every batch carries its number, its place in what was sent to each destination, the sender's causal past
  (csn) and its confirmations (ack). Batches of one sender are accepted in the order of their places. What is
  missing is requested from the sender or, once that has departed, from another destination.
- Accepting a batch is confirmed. It moves to the causality queue when nothing that precedes it can come any
  more. It is delivered when every destination has confirmed it (`delivery="full"`), or at once (`"causal"`).
- Confirmations travel on messages. A member that gets none within `confirm_ns` gets a control message, and
  every member hears from every other one in each period of `control_ns`.

Assumes: the network may lose, delay, duplicate and reorder, and may be split; members may go absent or crash
and be restarted. Simulated members know one another from the start, live ones need not.

A *life* is one stay of a member in the group: its incarnation, and how often that has rejoined. Numbers,
places and vectors belong to lives.

Guarantees with full delivery, each proved by the checker of that name: *integrity*, *duplicate*, *fifo*,
*causal*, *causal-receipt*, *atomicity* and *stability*.
- Atomicity is uniform: what any member delivered, even if it crashed right after, every destination that
  stays delivers. A message is lost with its sender's life only if no member that stays holds it; then no
  member has delivered it.
- A member that is silent for `silence_ns` is left out, by all or by none. It is told so, ends its spell of
  presence (`Absent`), and rejoins as a newcomer (`Present`).
- When a group is split, the part with more than half of the members goes on (of two halves, the one with the
  first name). In the other parts spells end, and what members there had sent and not delivered may be lost.
  The same happens when half of the members or more crash at the same time. `splits=False` lets any survivor
  go on, for networks that do not split.
- It can fail when all members that hold another to be gone crash before they could tell it, and when members
  are cut off from one another in the moment in which they hear of a newcomer.
- A member that lies, or errs, may hold the others up and end their spells while it is present; what they send
  meanwhile may be lost, as in a split. It may have their messages wait for one another. These are freed;
  where no confirmation among them says which came first, their causal order may be wrong. It can forge
  messages of departed members, to members that lack them: only signatures would prevent that.
- Once it has been silent for `silence_ns`, or has left, the others go on within two seconds, at the cost of a
  spell at worst. Every promise holds for what they send from then on.
- With causal delivery, atomicity, and causal order across restarts, are lost when members depart: a member
  may have delivered what is lost with it (`CAUSAL_PROMISES`). As long as no member departs all promises hold.

Deviations from the paper, which prints a procedure with ten faults (each kept as a test that the printed form
fails, `tests/protocols/sco/test_paper.py`).
- csn entries only rise (S1). Only a top moves that nothing precedes (S2), and it need not wait until no
  receipt queue is empty: each member's frontier, below which nothing of it can come, is enough (S6).
- Acceptance of p acknowledges p too (S3). Control messages tell numbers and places, not only acks (S4), and
  go to every member, unasked (S5).
- A retransmission has the stamps of the original (S7), and what waited behind it follows (S9).
- Continuous acceptance is confirmed. The paper's confirmations (`acknowledge="causal"`) wait until the batch
  may move, and all destinations wait for them.
- From `gather_from` members on, destinations confirm to the sender alone, which tells all members how far
  every destination holds its messages (`gathering`), and members watch their neighbours only (`upkeep`). The
  paper's d^2 confirmations, and control messages from all to all in each period, grow with the square of the
  group; these are bounded for each member.
- The window is counted from the oldest batch that one of its own destinations has not confirmed (S8).
- Messages to oneself pass through the same queues, and count as confirmed by oneself at once.
- Vectors travel as differences (`antiphon.protocols.sco.coding`), unless the paper's form is asked for.
- Members may come, go and crash (`antiphon.protocols.sco.recovery`), which the paper leaves out.
- While a sender is present, its batches are taken only from itself. The paper lets any destination answer for
  it.

Measured: random runs under all faults at once found seven faults of ours, which the swarms keep. With 30
or 100 members and ten messages a second to all, a member gets 33 PDUs and 1.5 kB a second for control; as in
small groups 30 would get 1,724 and 330 kB each.

Where to read on: `member` hands each input to a part. `reception`, `ordering` and `sending` are the way of a
batch; `gathering` and `upkeep` are what large groups do. `membership`, `roster` and `recovery` deal with
members that come and go. `state` holds what they share (`peers`, `lives`, `stamps`), `peer` what is known of
one life.
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
    "causal-receipt",
)
CAUSAL_PROMISES: Final[tuple[Property, ...]] = ("integrity", "duplicate", "fifo", "stability")
"""The promises that causal delivery keeps when members depart; as long as none does, all hold."""
