"""The fixed sequencer: one member gives every message its place, and all members deliver by place.

Sources: Guo, section 4.2.1, on the Amoeba protocol (requests to the sequencer, repair by negative
acknowledgement) and on PA (numbers per sender, several requests of one sender under way; members report the
position up to which they hold everything, the least of these is stable); Jia and So, sections 1 and 6 (the
central mechanism, two steps to every member).

Assumes: the network may lose, delay, duplicate and reorder, and may be partitioned; members may go absent
(and keep their memory) or crash (and lose it), the sequencer too. All members know the sequencer: the first
member named. It stays the sequencer: order stops while it is away. Members need not be known beforehand. The
members named to the sequencer begin together with it (incarnation 0) or are waited for after its crash; all
others are met when they ask to join, up to `MOST_MEMBERS`, and forgotten after a long silence. Of two
incarnations of a member the greater is the later one. If the sequencer's clock has gone back, it learns that
from its members and takes an epoch beyond all that they know, so that no two orders share an epoch. It
believes only members, and only as far as a clock can have gone back; a member that it does not believe begins
anew.

Guarantees, each proved by the checker of that name: *integrity*, *duplicate*, *atomicity*, *fifo*,
*causal*, *total* and *stability*.
- The view is the set of members that stability waits for. A member that is silent for `suspect_after_ns`,
  suspected, without progress for `lag_ns`, or has left, is not in it. When it is heard again and still holds
  all that is stable, it goes on without a gap. Otherwise it ends its spell of presence (`Absent`) and goes on
  at the end of the order (`Present`). It finds that out by itself: a stable position beyond its own shows
  that it was excluded.
- A member that begins late joins at the end of the order and says that it missed something, unless all of
  the order since its beginning is still kept: then it gets all of it. A member that restarts joins at the
  end. Messages that it had admitted and that were not ordered are lost with it.
- A sequencer that restarts begins a new epoch and recovers the order from what the members reached. What
  was delivered survives that unless all holders are away at the same time: the sequencer delivers only what
  one more member of the view is known to hold, so one crash at a time is safe. If the sequencer crashes while
  the only other holders of a message are absent, down or cut off from it, that message may be lost or get a
  second place. Fault schedules therefore let a sequencer crash only while the others are there. If a
  sequencer that knows no members gets no answer, it begins an order from nothing; members that turn up later
  with another order join anew.
- `Appeared` and `Vanished` report changes of the view: at the sequencer at once, at the others with its
  roster.

Deviations: Amoeba's senders have one message under way, ours a window, as PA's. PA's and Amoeba's sequencer
delivers at once; ours waits for the acknowledgement of one member of the view (the witness, which
acknowledges each message at once), since a crash in between would break atomicity; that costs one unicast per
message and one round trip at the sequencer alone. Amoeba repeats a request that got no place in time; so do
we, but where places come late because all members send, we ask first which requests are lacking. The sources
leave the crash of a sequencer and members that come and go open.

Why bodies go through the sequencer: a sender could multicast its batch itself and the sequencer only the
place, so that bodies travel once. Measured on loopback with seven receivers and batches of 60,000 bytes, a
request costs the kernel 8.3 microseconds (5.6 to send, 2.7 to receive), but a multicast of places 11.5 (5.2
to send, 0.9 at each of seven to receive), and one more PDU at every member costs Python more than that. The
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
from antiphon.protocols.admission import batch_for_all
from antiphon.protocols.sequencer.follower_role import FollowerRole
from antiphon.protocols.sequencer.pdus import LARGEST_BATCH_BYTES, PDUS, SequencerConfiguration
from antiphon.protocols.sequencer.sequencer_role import SequencerRole

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
        role = SequencerRole if site == members[0] else FollowerRole
        self._role: SequencerRole | FollowerRole = role(site, members, configuration)
        self._started = False

    @property
    def ignored(self) -> int:
        """PDUs that made no sense and were dropped."""
        return self._role.ignored

    def incarnation_of(self, site: Site) -> int:
        """The latest incarnation of a site that is known here; the sequencer's is its epoch."""
        return self._role.incarnation_of(site)

    def peers(self, now: Nanoseconds) -> dict[Site, PeerReport]:
        """What this member knows of the others: the sequencer of all, a follower of the sequencer only."""
        return self._role.peers(now)

    def figures(self) -> dict[str, int]:
        """Figures for a user: PDUs ignored, copies sent, what is kept for others."""
        return self._role.figures()

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        role = self._role
        if type(event) is Received:
            role.on_pdu(now, event.sender, event.pdu)
            return role.effects()
        match event:
            case TimerFired(name=name):
                role.fire(now, name)
            case Admit():
                role.admit(
                    now, batch_for_all(event, "The sequencer", LARGEST_BATCH_BYTES, started=self._started)
                )
            case Start():
                if self._started:
                    raise UsageError("This member has started already.")
                self._started = True
                role.start(now, event)
            case Departed():
                role.depart()
            case Returned():
                role.resume(now)
            case Suspected(site=site):
                role.suspect(now, site)
            case Restored(site=site):
                role.restore(now, site)
            case RoundTriggered():
                pass  # stability is found all the time
        return role.effects()
