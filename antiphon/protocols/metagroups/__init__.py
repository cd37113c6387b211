"""Total order across overlapping groups: trees of meta-groups, after Jia and So.

Source: X. Jia and S. Y. So, "A Multicast Mechanism with Ordering on Overlapping Groups". Sites that are in
exactly the same groups form a meta-group (`formation`); meta-groups are arranged into trees (`shapes`,
`tree`), which a change of membership alters only where it creates or deletes a meta-group (`changes`);
nodes that a group's messages only pass through can be left out where two groups stay in order (`bypass`).

The protocol (sections 3 and 5, with the sequence numbers described there). A message to a group goes to the
primary site of the group's primary meta-group, and from there down the tree (`server`, `channels`). A site
delivers what comes to its own meta-group in that order (`endpoint`, `stream`). Groups are open: any site of
the cluster may multicast to any group (`outbox`).

The sites of a cluster agree on one *view* after another: which sites there are, in which *session* (a span of
unbroken memory), in which groups, on which trees (`view`). A view change is one consensus: the coordinator,
the first site that is not suspected (`peers`), proposes (`proposer`, `attempt`), the others accept
(`acceptor`), and all install the result (`membership`).

Assumes: the network may lose, delay, duplicate and reorder, and may be partitioned; sites may go absent (and
keep their memory) or crash (and lose it). Incarnation 0 begins together, with all groups known; any other
begins alone and finds the others by their heartbeats, or founds a cluster.

Guarantees with safe delivery, each proved by the checker of that name: *integrity*, *duplicate*, *atomicity*,
*fifo* (of a sender, over all groups), *total* (over all groups) and *stability*.
- The destinations of a message are the members of its group that its sender knows when it admits it, by its
  view and the moves since (`moving`): `Admitted` names them. Only these deliver it. The trees of a view go
  on until everything admitted on them is delivered; so a site that leaves a group still delivers what was
  admitted before.
- `Joined` and `Left` say where in a site's deliveries its own groups have changed.
- A join that makes and deletes no meta-group alters no tree: the site moves on it (`moving`, `granting`).
- Joins and leaves stop nothing: the trees that they alter retire, and new ones follow (`handover`). Sites
  that are silent for `suspect_ns` are excluded. That stops the trees that they were on, and no other
  (`ending`); meanwhile messages to the groups of those trees are refused.
- A majority of the sites of the view, or half of them with the first, goes on; others wait, and deliver
  nothing. An excluded site starts a new session: its presence spell ends (`Absent`), and the next one begins
  when it is let in (`Present`). What it had admitted and was not stable may be lost, as when a sender
  crashes.
- If so few sites remember the view that no quorum is left, they start new sessions too, and all sites found
  another cluster: every spell ends. If absent sites could still complete a quorum, they are waited for, for
  twice the time after which a site is suspected (`proposer`).
- Two clusters that were founded apart become one when they meet: the sites of the later one start new
  sessions.
- Sites with different `SHARED_OPTIONS` never mix; each reports the other (`Disagreed`).
- A site can be in 1024 groups, and a view has four million letters at most; one that does not fit a PDU
  travels in `parts`.
- A site that lies is held to what a proposer could decide (`credible`) and to numbers that do not leap. The
  coordinator, and the primary sites of a tree for what travels on it, are believed. Even so no site delivers
  a message twice (`ledger`), or delivers under its own name what it has not sent.
- With agreed delivery *atomicity*, *total* and *stability* hold as long as no tree is stopped
  (`AGREED_PROMISES`): a stopped tree cannot keep the order of messages that some destinations lack.

*Causal* order across groups, which the paper does not provide, holds too with `causal=True`
(`CAUSAL_PROMISES`); see `outbox`. Without it, an answer never overtakes its question, but it can overtake
what the author of the question had sent before to a group without a common member.

Deviations, with reasons.
- The paper delivers as soon as a message arrives, and leaves crashes and changes of membership open; even a
  view that all sites change at the same moment breaks order, atomicity and uniqueness. Safe delivery costs
  the way up the tree and down again; `delivery="agreed"` is the paper's.
- A sender whose groups overlap and have different primary sites waits until one message is stable before it
  sends the next to the other group: the paper orders messages of one source to several groups in any one
  order, this protocol in the sender's.
- The optimisation of section 4.2 is unsound. With `bypass=True` messages take those of its shortcuts that
  keep any two groups in one order (`bypass`), and *pairwise* order is promised in place of *total*: no two
  sites deliver two messages in different orders, but three messages to three groups can form a cycle.
- With `bodies="direct"` bodies go from their sender to all members and only tokens down the tree (`bodies`).
  Measured with 12 sites in 4 groups and bodies of 56,000 bytes, the busiest site handles two fifths of the
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
from antiphon.core.packing import Packed
from antiphon.core.protocol import PeerReport
from antiphon.core.recording import Property
from antiphon.core.time import Nanoseconds
from antiphon.protocols.admission import check_admission, pack_within
from antiphon.protocols.metagroups.formation import labels_of_sites
from antiphon.protocols.metagroups.member import Member
from antiphon.protocols.metagroups.pdus import (
    DATA_PDUS,
    LARGEST_BATCH_BYTES,
    PDUS,
    MetaGroupsConfiguration,
    SiteRecord,
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
"""What holds with agreed delivery after a tree was stopped; until then all of them hold."""


def promises(configuration: MetaGroupsConfiguration) -> tuple[Property, ...]:
    """What holds with these options; with agreed delivery, as long as no tree is stopped."""
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

        A site that begins alone takes only its own groups from `membership`.
        """
        groups_of = labels_of_sites({group: tuple(sites) for group, sites in membership.items()})
        sites = sorted({site, *others, *groups_of})
        records = tuple(SiteRecord(each, (0, 0), 1, groups_of.get(each, ())) for each in sites)
        self._member = Member(site, records, configuration, random)
        self._started = False

    @property
    def ignored(self) -> int:
        """PDUs that made no sense and were dropped."""
        return self._member.ignored

    def incarnation_of(self, site: Site) -> int:
        """The latest known incarnation of a site; 0 if none is known."""
        return self._member.incarnation_of(site)

    def peers(self, now: Nanoseconds) -> dict[Site, PeerReport]:
        """What is known of the other sites."""
        return self._member.peers(now)

    def figures(self) -> dict[str, int]:
        """What a user may want to watch: the view's version, trees, batches kept, changes, losses."""
        return self._member.figures()

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        member = self._member
        match event:
            case Received(sender=sender, pdu=pdu):
                if self._started:
                    member.receive(now, sender, pdu)
            case TimerFired(name=name):
                member.on_timer(now, name)
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
            case Departed(for_good=for_good):
                member.depart(for_good=for_good)
            case Returned():
                member.come_back(now)
            case Suspected(site=site):
                member.suspect(now, site)
            case Restored(site=site):
                member.restore(now, site)
            case _:
                pass  # stability is detected all the time
        return member.effects()

    def _named(self, group: Group | None) -> Group:
        if not self._started:
            raise UsageError("A site takes part only after its start.")
        if not group:
            raise UsageError("A message goes to a group.", hint="Name the group that it is for.")
        return group

    def _checked(self, event: Admit) -> tuple[Group, Packed]:
        group = self._named(event.group)
        check_admission(event, started=self._started)
        if event.destinations is not None:
            raise UsageError("Messages go to a whole group; name it instead of destinations.")
        return group, pack_within(event.bodies, LARGEST_BATCH_BYTES)
