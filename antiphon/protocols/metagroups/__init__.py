"""Total order across overlapping groups: trees of meta-groups, after Jia and So.

Source: X. Jia and S. Y. So, "A Multicast Mechanism with Ordering on Overlapping Groups". Sites that are in
exactly the same groups form a meta-group (`formation`); meta-groups are arranged into trees (`shapes`,
`tree`), which a change of membership alters only where it creates or deletes a meta-group (`changes`);
nodes that a group's messages only pass through can be left out where two groups stay in order (`bypass`).

The protocol (sections 3 and 5, with sequence numbers as told there). A message to a group goes to the primary
site of the group's primary meta-group, and from there down the tree (`serving`, `channels`); a site delivers
what comes to its own meta-group in that order (`reading`). Groups are open: any site of the cluster may
multicast to any group (`sending`).

Assumes: the network may lose, delay, duplicate and reorder, and may be partitioned; sites may go absent (and
keep their memory) or crash (and lose it). Incarnation 0 begins together, with everyone's groups known; any
other begins alone and finds the others by their words, or founds a cluster.

Guarantees with safe delivery, each proved by the checker of that name: *integrity*, *duplicate*, *atomicity*,
*fifo* (of a sender, over all groups), *total* (over all groups) and *stability*.
- A message is for those who are in its group, and in the cluster, by the table that its sender knows when it
  admits it: `Admitted` names them. It is delivered by these and nobody else: a table is in force until all
  that was admitted under it is delivered. A site that leaves a group therefore delivers what was admitted
  before.
- `Joined` and `Left` say at which place in its deliveries a site's own groups have changed.
- Joins and leaves stop nothing: trees that they alter hand over to others (`table`, `handover`). Sites that
  are silent for `suspect_ns` are left out by a change (`company`), which stops the trees that they were on,
  and no other (`council`, `coordinator`, `voter`, `attempt`, `ending`): messages to their groups are refused
  for that time.
- Any majority of the sites in the table (or half of them with the first) goes on; others wait, and deliver
  nothing. Whoever was left out begins anew: its presence spell ends (`Absent`), and the next begins when it
  is let in (`Present`). What it had admitted and was not stable may be lost, as with a sender that crashes.
- If so many have lost their memory that no majority can remember, the others begin anew too, and all found
  another cluster: everyone's spell ends. If only those who are away could make a majority with those who
  remember, they are waited for twice as long as it takes to hold a site to be gone (`coordinator`).
- Two clusters that were founded apart become one when they meet: the sites of the later one begin anew.
- Sites that turn one of `SHARED_KNOBS` differently never mix; each is told of the other (`Disagreed`).
- A site can be in 1024 groups, and a table has four million letters at most; one that fits no PDU travels in
  `parts`.
- A site that lies is held to what a coordinator could decide (`credible`) and to numbers that do not leap.
  The coordinator, and the primary sites of a tree for what travels on it, are believed. Even so no site
  delivers a message twice (`ledger`), or under its own name what it has not sent.
- With agreed delivery *atomicity*, *total* and *stability* hold as long as no tree is stopped
  (`AGREED_PROMISES`): one that ends so cannot keep the order of what not all hold.

*Causal* order across groups, which the paper does not provide, holds too with `causal=True`
(`CAUSAL_PROMISES`); see `sending`. Without that, an answer never overtakes its question, but it can overtake
what the one who asked had sent before to a group without a common member.

Deviations, with reasons.
- The paper delivers as soon as a message arrives, and leaves crashes and changes of membership open; even a
  table that all sites switch at the same moment breaks order, atomicity and uniqueness. Safe delivery costs
  the way up the tree and down again; `delivery="agreed"` is the paper's.
- A sender whose groups overlap and have different primary sites waits for one message to be stable before
  it sends the next to the other group: the paper's ordering of one source and several groups asks for one
  order of the two only, ours for the sender's.
- The optimisation of section 4.2 is unsound. With `bypass=True` messages take those of its shortcuts that
  keep any two groups in one order (`bypass`), and *pairwise* order is promised in place of *total*: no two
  sites deliver two messages differently, but three messages to three groups can be in a circle.
- With `bodies="direct"` bodies go from their sender to all members and only tokens down the tree (`bodies`).
  Measured with 12 sites in 4 groups and bodies of 56,000 bytes, the busiest site handles a third of the
  bytes; with 100 bytes little less, and each member gets a PDU more.
"""

from collections.abc import Iterable, Mapping
from random import Random
from typing import Final

from antiphon.core.effects import Effect
from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.inputs import (
    Admit,
    Departed,
    Input,
    JoinGroup,
    LeaveGroup,
    Received,
    Restored,
    Returned,
    Start,
    Suspected,
    TimerFired,
)
from antiphon.core.packing import Packed, pack
from antiphon.core.protocol import PeerReport
from antiphon.core.recording import Property
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.formation import labels_of_sites
from antiphon.protocols.metagroups.member import Member
from antiphon.protocols.metagroups.pdus import (
    DATA_PDUS,
    LARGEST_BATCH_BYTES,
    PDUS,
    MetaGroupsConfiguration,
    Seat,
)

__all__ = [
    "AGREED_PROMISES",
    "CAUSAL_PROMISES",
    "DATA_PDUS",
    "PDUS",
    "PROMISES",
    "MetaGroups",
    "MetaGroupsConfiguration",
    "promises",
]

PROMISES: Final[tuple[Property, ...]] = (
    "integrity",
    "duplicate",
    "atomicity",
    "fifo",
    "total",
    "stability",
)
CAUSAL_PROMISES: Final[tuple[Property, ...]] = (*PROMISES, "causal")
"""What is promised with safe delivery and `causal=True`."""
AGREED_PROMISES: Final[tuple[Property, ...]] = ("integrity", "duplicate", "fifo")
"""What is left of them with agreed delivery when sites go or trees are altered; until then all hold."""


def promises(configuration: MetaGroupsConfiguration) -> tuple[Property, ...]:
    """What holds with these knobs; with agreed delivery, as long as nobody goes and no tree is altered."""
    found = CAUSAL_PROMISES if configuration.causal and configuration.delivery == "safe" else PROMISES
    if not configuration.bypass:
        return found
    return tuple("pairwise" if name == "total" else name for name in found)


class MetaGroups:
    """One site, with all the groups it is in; implements `antiphon.core.protocol.Protocol`."""

    def __init__(
        self,
        site: Site,
        membership: Mapping[Group, Iterable[Site]],
        configuration: MetaGroupsConfiguration,
        random: Random,
        *,
        others: Iterable[Site] = (),
    ) -> None:
        """`others` are sites that are in no group and known from the start.

        A site that begins alone takes from the membership only in which groups it wants to be itself.
        """
        groups_of = labels_of_sites({group: tuple(sites) for group, sites in membership.items()})
        sites = sorted({site, *others, *groups_of})
        seats = tuple(Seat(each, (0, 0), 1, groups_of.get(each, ())) for each in sites)
        self._member = Member(site, seats, configuration, random)
        self._started = False

    @property
    def ignored(self) -> int:
        """How many PDUs made no sense and were dropped."""
        return self._member.ignored

    def incarnation_of(self, site: Site) -> int:
        """The latest incarnation of a site that is known here; 0 if none is."""
        return self._member.incarnation_of(site)

    def peers(self, now: Nanoseconds) -> dict[Site, PeerReport]:
        """What is known of the other sites."""
        return self._member.peers(now)

    def figures(self) -> dict[str, int]:
        """What a user may want to watch: the table's version, trees, batches kept, changes, losses."""
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
                member.admit(now, *self._checked(event))
            case Start():
                if self._started:
                    raise UsageError("This site has started already.")
                self._started = True
                member.start(now, event)
            case JoinGroup(group=group):
                member.join(now, self._named(group))
            case LeaveGroup(group=group):
                member.leave(now, self._named(group))
            case Departed():
                member.depart()
            case Returned():
                member.come_back(now)
            case Suspected(site=site):
                member.suspect(now, site)
            case Restored(site=site):
                member.restore(now, site)
            case _:
                pass  # what is stable is found out all the time
        return member.effects()

    def _named(self, group: Group | None) -> Group:
        if not self._started:
            raise UsageError("A site takes part only after its start.")
        if not group:
            raise UsageError("A message goes to a group.", hint="Name the group that it is for.")
        return group

    def _checked(self, event: Admit) -> tuple[Group, Packed]:
        group = self._named(event.group)
        if not event.bodies:
            raise UsageError("There is nothing to multicast: no body was handed in.")
        if event.destinations is not None:
            raise UsageError("Messages go to a whole group; name it instead of destinations.")
        batch = pack(event.bodies)
        if len(batch.data) > LARGEST_BATCH_BYTES:
            raise UsageError(
                f"A batch of {len(batch.data)} bytes does not fit a PDU.",
                hint=f"At most {LARGEST_BATCH_BYTES} bytes do, lengths included; hand in less at once.",
            )
        return group, batch
