"""Sequencers for overlapping groups: one for all of them, or one for each.

Sources: the centralised mechanisms of Jia and So, section 2. One central site, as that of Kaashoek,
Tanenbaum, Hummel and Bal: every message goes to it, and from it to the members of its group. Or a manager for
each group that does the same for its group only, as that of Navaratnam, Chanson and Neufeld. A multicast to n
members costs n+1 messages and takes two transmissions one after the other. If the sequencer is a member, or
sends itself, each of these saves one.

Assumes: the network may lose, delay, duplicate and reorder. No site crashes, and the groups are fixed.
Guarantees, each proved by the checker of that name: *integrity*, *duplicate*, *atomicity* and *stability*.
With one sequencer also *fifo*, *causal* and *total*: every site delivers a part of one sequence. With one for
each group these hold within each group, and are broken across them (`EACH_PROMISES`): two groups with two
common members are enough, since no site orders messages of one group against those of the other.

Deviations: the sequencer reports to senders when a message is stable, in acknowledgements; the papers leave a
sender's window to the transport. Crash tolerance, which they have, is left out here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.packing import Packed
from antiphon.core.recording import Property
from antiphon.core.wire import Pdu
from antiphon.protocols.links import Done, Held, Linked
from antiphon.protocols.overlapping import Batch, GroupMember, GroupsConfiguration, Membership

__all__ = ["EACH_PROMISES", "PDUS", "PROMISES", "GroupSequencers", "GroupSequencersConfiguration"]

PROMISES: Final[tuple[Property, ...]] = (
    "integrity",
    "duplicate",
    "atomicity",
    "fifo",
    "causal",
    "total",
    "stability",
)
EACH_PROMISES: Final[tuple[Property, ...]] = ("integrity", "duplicate", "atomicity", "stability")
"""What holds with a sequencer for each group."""


class Request(Linked, frozen=True, gc=False):
    """Messages number, number+1, … of the sender, for their sequencer to order."""

    code: ClassVar[int] = 155
    number: int
    group: Group
    bodies: Packed


class Order(Linked, frozen=True, gc=False):
    """Messages that come next from this sequencer."""

    code: ClassVar[int] = 156
    sender: Site
    number: int
    group: Group
    bodies: Packed


PDUS: Final[tuple[type[Pdu], ...]] = (Held, Request, Order)


@dataclass(frozen=True, kw_only=True)
class GroupSequencersConfiguration(GroupsConfiguration):
    """The shared options, and the number of sequencers."""

    sequencers: Literal["one", "each"] = "one"
    """One for all groups, or one of each group's members. One costs a site that everything passes; one for
    each group costs the order across groups."""
    central: Site | None = None
    """The one sequencer; None means the first site by name."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sequencers not in ("one", "each"):
            raise UsageError(
                f"There is no such number of sequencers: '{self.sequencers}'.", hint="Choose one or each."
            )


def managers(membership: Membership) -> dict[Group, Site]:
    """A member of each group, chosen so that a site in many groups does not order all of them."""
    return {
        group: membership[group][place % len(membership[group])]
        for place, group in enumerate(sorted(membership))
    }


class GroupSequencers(GroupMember):
    """One site; implements `antiphon.core.protocol.Protocol`."""

    def __init__(
        self,
        site: Site,
        membership: Membership,
        configuration: GroupSequencersConfiguration,
        sites: Iterable[Site] = (),
    ) -> None:
        """`sites` may name sites that are in no group."""
        super().__init__(site, membership, sites, configuration)
        central = self._sites[0] if configuration.central is None else configuration.central
        if central not in self._known:
            raise UsageError(f"The sequencer {central} is not among the sites.")
        self._sequencers = dict.fromkeys(self._membership, central)
        if configuration.sequencers == "each":
            self._sequencers = managers(membership)

    def _begin(self, batch: Batch, done: Done) -> None:
        sequencer = self._sequencers[batch.group]
        if sequencer == self._site:
            self._order(batch, done)
        else:
            request = Request(0, 0, 0, batch.number, batch.group, batch.bodies)
            self._links.send(sequencer, request, done)

    def _take(self, sender: Site, pdu: Linked) -> None:
        match pdu:
            case Request():
                self._take_request(Batch(sender, pdu.number, pdu.group, pdu.bodies), sender, pdu)
            case Order():
                self._take_order(Batch(pdu.sender, pdu.number, pdu.group, pdu.bodies), sender, pdu)
            case _:
                self._ignore(sender, pdu)

    def _take_request(self, batch: Batch, sender: Site, pdu: Request) -> None:
        if not self._makes_sense(batch) or self._sequencers[batch.group] != self._site:
            self._ignore(sender, pdu)
            return
        self._order(batch, self._finisher(sender, pdu))

    def _order(self, batch: Batch, done: Done) -> None:
        """The order of these calls is the order of deliveries."""
        if batch.group in self._mine:
            self._arrived(batch)
            self._deliver(batch)
        order = Order(0, 0, 0, *batch)
        self._spread(self._membership[batch.group], lambda _: order, done)

    def _take_order(self, batch: Batch, sender: Site, pdu: Order) -> None:
        sane = self._makes_sense(batch) and batch.group in self._mine
        if not sane or self._sequencers[batch.group] != sender:
            self._ignore(sender, pdu)
            return
        self._arrived(batch)
        self._deliver(batch)
        self._links.finish(sender, pdu.position)
