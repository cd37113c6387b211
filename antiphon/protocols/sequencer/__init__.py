"""The fixed sequencer: one member gives every message its place, all deliver by place.

Sources: Guo, section 4.2.1, on the Amoeba protocol (requests to the sequencer, repair by negative
acknowledgement) and on PA (numbers per sender, several requests of one sender under way; members tell the
place up to which they hold everything, the least of them is stable); Jia and So, sections 1 and 6 (the
central mechanism, two steps to everyone).

Assumes: the network may lose, delay, duplicate and reorder, and may be partitioned; members may go absent
(and keep their memory) or crash (and lose it), the sequencer too. Everyone knows who the sequencer is: the
first member named. It stays it: order stops while it is away. Members need not be known beforehand. Those
named to the sequencer begin together with it (incarnation 0) or are waited for after its crash; all others
are met when they ask to join, up to `MOST_MEMBERS`, and forgotten when they have long been silent. Of two
incarnations of a member the greater is the later one; should the sequencer's clock have gone back, it finds
that out from the others and takes an epoch beyond all that they know, so that no two orders share one. It
believes that of its members, and only as far as a clock can have gone back; a member that it does not believe
begins anew.

Guarantees, each proved by the checker of that name: *integrity*, *duplicate*, *atomicity*, *fifo*,
*causal*, *total* and *stability*.
- A member that is silent for `suspect_after_ns`, suspected, without progress for `lag_ns`, or that has said
  that it leaves, no longer counts for stability. When it is heard of again and still holds all that is
  stable, it goes on without a gap. Otherwise it says that its presence spell is over (`Absent`) and goes on
  at the end of the order (`Present`). It finds that out by itself: whoever is told of a stable position
  beyond his own was left out.
- A member that begins late joins at the end of the order and says that it missed something, unless all of
  the order since its beginning is still kept: then it gets all of it. One that restarts joins at the end.
  What it had admitted and nobody ordered is lost with it.
- A sequencer that restarts begins a new epoch and recovers the order from what the members reached. What
  was delivered survives that unless everyone who holds it is away at the same time: the sequencer delivers
  only what one more member that counts is known to hold, so one crash at a time is safe. If the sequencer
  crashes while the only other members that hold a message are absent, down or cut off from it, that message
  may be lost or get a second place. Fault schedules therefore let a sequencer crash only while the others
  are there. If nobody answers a sequencer that knows no members, it begins an order from nothing; whoever
  turns up later with memories of another is let in anew.
- `Appeared` and `Vanished` tell who counts: at the sequencer at once, at the others when its roster says so.

Deviations: Amoeba's senders have one message under way, ours a window, as PA's. PA's and Amoeba's sequencer
delivers at once; ours waits for one member's word (one that counts, the witness, acknowledges each message
at once for its sake), since a crash in between would break atomicity; that costs one unicast per message and
one round trip at the sequencer alone. Amoeba repeats a request that got no place in time; so do we, but
where places come late because everyone sends, we ask for what is lacking first. The sources leave the crash
of a sequencer and members that come and go open.

Why bodies go through the sequencer: a sender could multicast its batch itself and the sequencer only the
place, so that bodies travel once. Measured on loopback with seven receivers and batches of 60,000 bytes, a
request costs the kernel 8.3 microseconds (5.6 to send, 2.7 to receive), but a multicast of places 11.5 (5.2
to send, 0.9 at each of seven to receive), and a PDU more at every member costs Python more than that. The
latency is two steps either way, and one source for every place makes loss and recovery simple. A batch costs
`handle` about 6 microseconds at the sequencer, acknowledgements of six others included, and 4 at each other
member.
"""

from typing import Final

from antiphon.core.effects import Effect
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import (
    Admit,
    Departed,
    Input,
    Received,
    Restored,
    Returned,
    RoundTriggered,
    Start,
    Suspected,
    TimerFired,
)
from antiphon.core.protocol import PeerReport
from antiphon.core.recording import Property
from antiphon.core.time import Nanoseconds
from antiphon.protocols.admission import batch_to_order
from antiphon.protocols.sequencer.follower import Follower
from antiphon.protocols.sequencer.orderer import Orderer
from antiphon.protocols.sequencer.pdus import LARGEST_BATCH_BYTES, PDUS, SequencerConfiguration

__all__ = ["PDUS", "PROMISES", "Sequencer", "SequencerConfiguration"]

PROMISES: Final[tuple[Property, ...]] = (
    "integrity",
    "duplicate",
    "atomicity",
    "fifo",
    "causal",
    "total",
    "stability",
)


class Sequencer:
    """One member of the group; implements `antiphon.core.protocol.Protocol`."""

    def __init__(self, site: Site, members: tuple[Site, ...], configuration: SequencerConfiguration) -> None:
        if site not in members or len(set(members)) != len(members):
            raise UsageError(f"The site {site} must be one of the members, which must differ.")
        role = Orderer if site == members[0] else Follower
        self._role: Orderer | Follower = role(site, members, configuration)
        self._started = False

    @property
    def ignored(self) -> int:
        """How many PDUs made no sense and were dropped."""
        return self._role.ignored

    def incarnation_of(self, site: Site) -> int:
        """The latest incarnation of a site that is known here; the sequencer's is its epoch."""
        return self._role.incarnation_of(site)

    def peers(self, now: Nanoseconds) -> dict[Site, PeerReport]:
        """What this member knows of the others: the sequencer of all, a follower of the sequencer."""
        return self._role.peers(now)

    def figures(self) -> dict[str, int]:
        """What a user may want to watch: PDUs ignored, copies sent again, what is kept for others."""
        return self._role.figures()

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        role = self._role
        if type(event) is Received:
            role.receive(now, event.sender, event.pdu)
            return role.effects()
        match event:
            case TimerFired(name=name):
                role.fire(now, name)
            case Admit():
                role.admit(
                    now, batch_to_order(event, "The sequencer", LARGEST_BATCH_BYTES, started=self._started)
                )
            case Start():
                if self._started:
                    raise UsageError("This member has started already.")
                self._started = True
                role.start(now, event)
            case Departed():
                role.depart()
            case Returned():
                role.come_back(now)
            case Suspected(site=site):
                role.suspect(now, site)
            case Restored(site=site):
                role.restore(now, site)
            case RoundTriggered():
                pass  # stability is found all the time
        return role.effects()
