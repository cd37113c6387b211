"""Totem's single ring: the holder of the token may multicast, and the token numbers its messages.

Sources: Amir, Moser, Melliar-Smith, Agarwal and Ciarfella, "The Totem single-ring ordering and membership
protocol" (1995): total ordering, flow control, membership (the states Gather, Commit, Recovery and
Operational) and recovery. Where the paper leaves a choice, this follows Corosync's `totemsrp` and its default
timeouts.

Assumes: the network may lose, delay, duplicate and reorder, and may be partitioned; members may go absent
(and keep their memory) or crash (and lose it). All members are known by name beforehand, and incarnation 0
begins on a ring of all of them.

Guarantees with safe delivery, each proved by the checker of that name: *integrity*, *duplicate*,
*atomicity*, *fifo*, *causal*, *total* and *stability*.
- A ring continues the order if it has more than half of all members that remember the order (or half of
  them, the first member among these). Other rings form too, but order nothing, and the presence spells of
  their members end (`Absent`). When rings meet, members that were not on the latest ring that ordered begin a
  new spell at its end.
- What a correct member admitted is delivered in the end. What one ring did not deliver is sent again on the
  next.
- If no majority remembers, because too many crashed, the group waits until all members are back, then goes on
  from the latest state that any of them remembers; all spells end. What was ordered beyond that is lost, and
  might even be ordered again: only stable storage could prevent that. Fault schedules crash fewer than half
  in one run.
- With agreed delivery *atomicity* and *total* hold as long as no member fails: what a failed member has
  delivered, or multicast and not delivered, may be lost or get another place (`AGREED_PROMISES`).
- `Appeared` and `Vanished` report the members of the ring. A ring halts while its members detect that one has
  failed: `token_ns` until it is missed, `consensus_ns` until the others go on without it.

Deviations, with reasons.
- Minorities order nothing. The paper lets every component deliver and reports its configuration to the
  application; then two orders cannot become one again when they meet, and no audit of a whole run could hold.
  Corosync leaves that to its quorum service.
- Messages of an old ring behind a message that no member has are not delivered in a transitional
  configuration, but sent again on the new ring by their senders. The paper's rule needs every member to know
  which of them could depend on the lost one; sending them again costs one multicast each.
- A member whose recovery was interrupted, and that learns from the next commit token that another member
  completed it, completes it then. The paper reaches the same with obligation sets.
- A member from another ring learns from `State` which messages of each sender were ordered; the paper leaves
  that to the application.
- One message per visit is always allowed, whatever the window says, so that no member starves behind large
  backlogs. A rotation therefore carries at most the window and one message of each member.
- With `carries` the token is Guo's train (section 4.2.3): a member appends its messages to it instead of
  multicasting them, and takes them off when the train comes back. The ring's membership and recovery, which
  the text does not have, stay as they are; an idle train waits at the ring's representative, the trainmaster.
- A returning member stays on its old ring while the token can still be waiting for it.
"""

from random import Random
from typing import Final

from antiphon.core.effects import Effect
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit, Departed, Input, Received, Returned, Start, TimerFired
from antiphon.core.recording import Property
from antiphon.core.time import Nanoseconds
from antiphon.protocols.admission import batch_for_all
from antiphon.protocols.rivals.totem.member import Member
from antiphon.protocols.rivals.totem.pdus import PDUS, TotemConfiguration

__all__ = ["AGREED_PROMISES", "PDUS", "PROMISES", "Totem", "TotemConfiguration"]

PROMISES: Final[tuple[Property, ...]] = (
    "integrity",
    "duplicate",
    "atomicity",
    "fifo",
    "causal",
    "total",
    "stability",
)
AGREED_PROMISES: Final[tuple[Property, ...]] = ("integrity", "duplicate", "fifo", "causal", "stability")
"""What holds with agreed delivery after a member has failed; until then all of them hold."""


class Totem:
    """One member of the group; implements `antiphon.core.protocol.Protocol`."""

    def __init__(
        self, site: Site, members: tuple[Site, ...], configuration: TotemConfiguration, random: Random
    ) -> None:
        if site not in members or len(set(members)) != len(members):
            raise UsageError(f"The site {site} must be one of the members, which must differ.")
        self._member = Member(site, members, configuration, random)
        self._largest_bytes = configuration.largest_batch_bytes
        self._started = False

    @property
    def ignored(self) -> int:
        """PDUs that made no sense and were dropped."""
        return self._member.ignored

    def figures(self) -> dict[str, int]:
        """What a user may want to watch: PDUs ignored, copies sent, rings, tokens lost, what is kept."""
        return self._member.figures()

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        member = self._member
        match event:
            case Received(sender=sender, pdu=pdu):
                if self._started:
                    member.receive(now, sender, pdu)
            case TimerFired(name=name):
                member.fire(now, name)
            case Admit():
                member.admit(now, batch_for_all(event, "Totem", self._largest_bytes, started=self._started))
            case Start():
                if self._started:
                    raise UsageError("This member has started already.")
                self._started = True
                member.start(now, event)
            case Departed():
                member.depart()
            case Returned():
                member.come_back(now)
            case _:
                pass  # the token detects failures and stability
        return member.effects()
