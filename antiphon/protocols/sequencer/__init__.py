"""The fixed sequencer: one member gives every message its place, all deliver by place.

Sources: Guo, section 4.2.1, on the Amoeba protocol (requests to the sequencer, repair by negative
acknowledgement) and on PA (numbers per sender, several requests of one sender under way; members tell the
place up to which they hold everything, the least of them is stable); Jia and So, sections 1 and 6 (the
central mechanism, two steps to everyone).

Assumes: the network may lose, delay, duplicate and reorder, and may be partitioned; members may go absent
(and keep their memory) or crash (and lose it), the sequencer too. The first member is the sequencer, and
stays it: order stops while it is away.

Guarantees, each proved by the checker of that name: *integrity*, *duplicate*, *atomicity*, *fifo*,
*causal*, *total* and *stability*.
- A member that is silent for `suspect_after_ns`, or suspected, no longer counts for stability. When it is
  heard of again and still holds all that is stable, it goes on without a gap. Otherwise it says that its
  presence spell is over (`Absent`) and goes on at the end of the order (`Present`). It finds that out by
  itself: whoever is told of a stable position beyond his own was left out.
- A member that restarts joins at the end of the order. What it had admitted and nobody ordered is lost with
  it.
- A sequencer that restarts begins a new epoch and recovers the order from what the members reached. What
  was delivered survives that unless everyone who holds it is away at the same time: the sequencer delivers
  only what one more member that counts is known to hold, so one crash at a time is safe. If the sequencer
  crashes while the only other members that hold a message are absent, down or cut off from it, that message
  may be lost or get a second place. Fault schedules therefore let a sequencer crash only while the others
  are there.

Deviations: Amoeba's senders have one message under way, ours a window, as PA's. PA's and Amoeba's sequencer
delivers at once; ours waits for one member's word (the second member acknowledges each message at once for
its sake), since a crash in between would break atomicity; that costs one unicast per message and one round
trip at the sequencer alone. The sources leave the crash of a sequencer open.
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
from antiphon.core.recording import Property
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sequencer.follower import Follower
from antiphon.protocols.sequencer.orderer import Orderer
from antiphon.protocols.sequencer.pdus import PDUS, SequencerConfiguration

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

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        role = self._role
        match event:
            case Received(sender=sender, pdu=pdu):
                role.receive(now, sender, pdu)
            case TimerFired(name=name):
                role.fire(now, name)
            case Admit():
                self._check_admission(event)
                role.admit(now, tuple(event.bodies))
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

    def _check_admission(self, event: Admit) -> None:
        if not self._started:
            raise UsageError("A member takes messages only after its start.")
        if not event.bodies:
            raise UsageError("There is nothing to multicast: no body was handed in.")
        if event.destinations is not None or event.group is not None:
            raise UsageError("The sequencer orders messages to its whole group only.")
