"""Reliable multicast, first in first out per sender, with nine ways to repair losses.

Source: K. Guo, Scalable Message Stability Detection Protocols, sections 2.1 (the ways) and 2.2 (when to
discard). A sender numbers its messages; a batch of them travels in one PDU; receivers find gaps by number.

- `acknowledge`: receivers acknowledge to the sender, whose timer multicasts again what a receiver has not
  acknowledged.
- `request`: a member that misses something asks its sender, which multicasts it again.
- `request-all`: a member that misses something multicasts its request, which suppresses the requests of
  others; the sender answers.
- `any`: the same, but any member that holds the batch answers, unless another was faster.
- `hybrid`: a member that misses something asks its sender, and then any member that reports to hold it; the
  answer goes to the asker alone, or to all if another member asks for it too.

Those are the text's ways. Four more are those of systems that it cites (`ways`, docs/profiles.md): `distance`
(SRM), `parent` (RMTP, LBRM), `local` (LGMP) and `passes` (MFTP).

With all of them the sender announces the end of its messages, so that the last of a burst is not missed;
acknowledgements travel on messages where all members send; and a stability protocol, one of seven, finds what
all members hold, so that it can be discarded. Error detection by the same protocols can replace the sender's
announcements (chapter 7), rows that ride on messages can replace rounds, and rounds can begin when buffers
are full instead of by the clock (chapter 6).

Assumes: the network may lose, delay, duplicate and reorder, and may be partitioned; members may go absent
(and keep their memory) or crash (and lose it). Members need not know one another beforehand. Links work both
ways and between all members that are connected; where they do not, stability, and with it the senders, may
stall while that lasts.

Guarantees, each proved by the checker of that name: *integrity*, *duplicate*, *fifo*, *atomicity* and
*stability*, under every fault. A fault may cost the end of a spell of presence: a member that cannot get
something any more says so (`Absent`, then `Present`), and has no hole within a spell.
- The view is the set of members that the group waits for. A member that is silent for `suspect_after_ns`, or
  suspected by the chosen `detector`, or without progress for `lag_ns`, is excluded from it. If something was
  declared stable without it meanwhile, it finds out and starts a new spell.
- When a sender crashes: where others answer (`any`, `hybrid`, `distance`, `parent`, `local`) all members keep
  copies until they are stable, so what one member holds reaches all, and a sender delivers its own messages
  only when one more member holds them. With the others only the sender keeps copies, so members that lack
  something of a crashed sender end their spell.
- If a site had sent messages that no remaining member holds, that is known when the site is back, by the
  number with which it begins anew; the others then end their spell. If it never comes back they cannot know:
  what a member delivered while it was cut off from all others, or what only members held that crash together,
  is lost silently if none of them returns.

Joining and leaving. Members exchange small signs of life with their neighbours, which are all other members
of a small group. While something is unsettled each member multicasts statuses: which members it hears and has
in its view, and of each stream what it holds, keeps and knows to be stable. Their pauses double while nothing
happens. In a large group all periods grow with the view (`antiphon.protocols.fifo.pace`), stability takes the
place of acknowledgements, and a member that is no neighbour is suspected by its neighbours' word, so that
what a member sends and receives for control is bounded whatever the group's size. Each member has its own
view; PDUs of stability belong to one view, so that members wait, rather than err, while their views differ. A
newcomer follows a sender once that sender has the newcomer in its view: from the first message, if all of it
is still kept, else from there on. When a site restarts, the earlier incarnation's messages are completed
first: each member of the view reports how far it holds them, ignores later copies from the network, and
fetches from the others what the furthest member holds. Members may keep a log of what they deliver, and bring
a newcomer that wants it to the present (`antiphon.protocols.fifo.history`,
`antiphon.protocols.fifo.history_reader`).

What is believed. A site itself reports its incarnation and the end of its messages; what others report of
them is believed while the site is silent, and its own report corrects it. Only a sender gives what it has not
announced, and nothing is stable because of one member's status. While a liar is there it can: not
acknowledge, so that the group waits for it as for any slow member; make others end their spells; forge a
message that another member misses and asks it for; and, where a protocol trusts one member with a round's
result, declare something stable too early. Once it is silent all of that is over.

Deviations from the text: it multicasts to a fixed group and leaves open when the sender stops repeating.
Requests name all gaps of a stream at once, and are repeated with growing pauses. With `any`, a member that is
asked waits a random time for another's answer, as in SRM, which the text cites. The text has the sender
release messages when it has all ACKs; here the stability protocol does that with all five ways, since others
hold copies too. The text lets a sender deliver at once; where others keep copies ours waits for one
acknowledgement, since a crash in between would break atomicity. The next member in the view's order, the
witness, sends that one without delay, which costs a unicast for each message if only one member sends.

The parts. `member` hands inputs to the parts; `context` has a member's identity and its effects, `group` the
peer table and the view, `presence` the spells and what the application learns. `sending`, `reception` and
`repair` move messages; `membership` handles statuses and signs of life with `views`, `following`, `status`,
`keepalive` and `failure_detection`; `stability` and `error_detection` run the protocols of
`antiphon.protocols.stability` in a `layer_host`.

Measured: `handle` takes 1.2 microseconds for a batch in order, in a view of seven, and 2.8 for an admission
(Python 3.11). Random runs under all faults at once found six faults of ours, which tests/sim/test_swarm.py
keeps; the last 5,000 found none.
"""

from typing import Final

from antiphon.core.recording import Property
from antiphon.protocols.fifo.history import HistoryRole
from antiphon.protocols.fifo.member import Fifo
from antiphon.protocols.fifo.pdus import PDUS, REPAIRS, FifoConfiguration

__all__ = ["PDUS", "PROMISES", "REPAIRS", "Fifo", "FifoConfiguration", "HistoryRole", "promises"]

PROMISES: Final[tuple[Property, ...]] = ("integrity", "duplicate", "atomicity", "fifo", "stability")


def promises(repair: str) -> tuple[Property, ...]:  # noqa: ARG001
    """What a way of repair promises: all promise the same; see above for what a sender's crash costs."""
    return PROMISES
