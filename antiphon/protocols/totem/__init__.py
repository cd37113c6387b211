"""Totem's single ring: who holds the token may multicast, and the token numbers what is multicast.

Sources: Amir, Moser, Melliar-Smith, Agarwal and Ciarfella, "The Totem single-ring ordering and membership
protocol" (1995): total ordering, flow control, membership (the states Gather, Commit, Recovery and
Operational) and recovery. Where the paper leaves a choice we follow Corosync's `totemsrp`, and take its
default timeouts.

Assumes: the network may lose, delay, duplicate and reorder, and may be partitioned; members may go absent
(and keep their memory) or crash (and lose it). All members are known by name beforehand, and incarnation 0
begins on a ring of all of them.

Guarantees with safe delivery, each proved by the checker of that name: *integrity*, *duplicate*,
*atomicity*, *fifo*, *causal*, *total* and *stability*.
- A ring goes on with the order if more than half of all members who remember it are on it (or half of them,
  the first member among these). Others form too, but order nothing, and their members' presence spells end
  (`Absent`). When rings meet, those who were not on the latest that ordered begin a new spell at its end.
- What a member that lives admitted is delivered in the end. What a ring did not bring to delivery is sent
  again on the next.
- If so many crash that no majority remembers, the group waits until all are back, then goes on from the
  latest that anybody remembers; everyone's spell ends. What was ordered beyond that is lost, and might even
  be ordered again: who wants more needs a disk. Fault schedules let fewer than half crash in one run.
- With agreed delivery *atomicity* and *total* hold as long as no member goes: what a member has delivered,
  or multicast and not delivered, may then be lost or get another place (`AGREED_PROMISES`).
- `Appeared` and `Vanished` tell who is on the ring. A ring halts while its members find out that one is
  gone: `token_ns` until it is missed, `consensus_ns` until the others go on without it.

Deviations, with reasons.
- Minorities order nothing. The paper lets every component deliver and tells the application which one it is
  in; then two orders cannot become one again when they meet, and no audit of a whole run could hold.
  Corosync leaves that to its quorum service.
- Messages of an old ring that lie beyond one which nobody has are not delivered after a transitional
  configuration but sent again on the new ring by their senders. The paper's rule needs every member to know
  which of them could depend on the lost one; sending them again costs one multicast each.
- A member whose recovery was cut short, and that learns from the next commit token that another got on that
  ring, gets on it then. The paper reaches the same with obligation sets.
- A member from another ring learns from `State` how far each sender's messages got; the paper lets the
  application find that out.
- One message per visit is always allowed, whatever the window says, so that nobody starves behind large
  backlogs. A rotation therefore carries at most the window and one for each member.
- A returning member goes on with its old ring while the token can still be waiting for it.
"""

from random import Random
from typing import Final

from antiphon.core.effects import Effect
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit, Departed, Input, Received, Returned, Start, TimerFired
from antiphon.core.recording import Property
from antiphon.core.time import Nanoseconds
from antiphon.protocols.admission import batch_to_order
from antiphon.protocols.totem.member import Member
from antiphon.protocols.totem.pdus import LARGEST_BATCH_BYTES, PDUS, TotemConfiguration

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
"""What is left of them with agreed delivery when members go; as long as none does, all hold."""


class Totem:
    """One member of the group; implements `antiphon.core.protocol.Protocol`."""

    def __init__(
        self, site: Site, members: tuple[Site, ...], configuration: TotemConfiguration, random: Random
    ) -> None:
        if site not in members or len(set(members)) != len(members):
            raise UsageError(f"The site {site} must be one of the members, which must differ.")
        self._member = Member(site, members, configuration, random)
        self._started = False

    @property
    def ignored(self) -> int:
        """How many PDUs made no sense and were dropped."""
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
                member.admit(now, batch_to_order(event, "Totem", LARGEST_BATCH_BYTES, started=self._started))
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
                pass  # the token finds out who is gone and what is stable
        return member.effects()
