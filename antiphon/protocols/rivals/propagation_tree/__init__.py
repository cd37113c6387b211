"""The propagation tree: messages go to their group's primary destination, and from it down a tree of sites.

Sources: Garcia-Molina and Spauster, "Ordered and Reliable Multicast Communication" (1991), as Jia and So
describe it in sections 2 and 6; `tree` says how the tree is built. A multicast to n members costs n messages
and one for each extra site on the way, and takes d+1 transmissions one after the other, where d is the depth
of the farthest member below the primary destination. If that is the sender, there is one less of both.

Assumes: the network may lose, delay, duplicate and reorder. No site crashes, and the groups are fixed.
Guarantees, each proved by the checker of that name: *integrity*, *duplicate*, *atomicity*, *total* and
*stability*, across any overlap of groups: a site merges what comes from above with what is sent to it, and
passes it on in the order in which it delivers.
It does not promise *fifo*: a sender's messages to groups with different primary destinations may meet in
either order where they merge; those to one group stay in order. Nor *causal*, for the same reason.

Deviations: the tree never changes here, and crash tolerance, which the paper has, is left out.
"""

from collections.abc import Iterable
from typing import ClassVar, Final

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.packing import Packed
from antiphon.core.recording import Property
from antiphon.core.wire import Pdu
from antiphon.protocols.links import Done, Held, Linked
from antiphon.protocols.overlapping import Batch, GroupMember, GroupsConfiguration, Membership
from antiphon.protocols.rivals.propagation_tree.tree import Tree, build_tree

__all__ = ["PDUS", "PROMISES", "PropagationTree", "Tree", "build_tree"]

PROMISES: Final[tuple[Property, ...]] = ("integrity", "duplicate", "atomicity", "total", "stability")


class Request(Linked, frozen=True, gc=False):
    """Messages number, number+1, … of the sender, for the primary destination of their group."""

    code: ClassVar[int] = 150
    number: int
    group: Group
    bodies: Packed


class Propagation(Linked, frozen=True, gc=False):
    """Messages that come next from above."""

    code: ClassVar[int] = 151
    sender: Site
    number: int
    group: Group
    bodies: Packed


PDUS: Final[tuple[type[Pdu], ...]] = (Held, Request, Propagation)


class PropagationTree(GroupMember):
    """One site; implements `antiphon.core.protocol.Protocol`."""

    def __init__(
        self,
        site: Site,
        membership: Membership,
        configuration: GroupsConfiguration,
        sites: Iterable[Site] = (),
        tree: Tree | None = None,
    ) -> None:
        """`sites` may name sites that are in no group. All may share one tree of that membership."""
        super().__init__(site, membership, sites, configuration)
        tree = build_tree(membership) if tree is None else tree
        members = {site for members in self._membership.values() for site in members}
        if tree.primary.keys() != self._membership.keys() or tree.parent.keys() != members:
            raise UsageError("The tree is not one of these groups.")
        self._primary = tree.primary
        self._parent = tree.parent.get(site)
        self._leads = tree.leads.get(site, {})

    def _begin(self, batch: Batch, done: Done) -> None:
        primary = self._primary[batch.group]
        if primary == self._site:
            self._propagate(batch, done)
        else:
            self._links.send(primary, Request(0, 0, 0, batch.number, batch.group, batch.bodies), done)

    def _take(self, sender: Site, pdu: Linked) -> None:
        batch: Batch | None = None
        match pdu:
            case Request() if self._primary.get(pdu.group) == self._site:
                batch = Batch(sender, pdu.number, pdu.group, pdu.bodies)
            case Propagation() if sender == self._parent:
                batch = Batch(pdu.sender, pdu.number, pdu.group, pdu.bodies)
            case _:
                pass
        if batch is None or not self._makes_sense(batch):
            self._ignore(sender, pdu)
            return
        self._propagate(batch, self._finisher(sender, pdu))

    def _propagate(self, batch: Batch, done: Done) -> None:
        """The order of these calls is the order of deliveries, here and at all sites below."""
        if batch.group in self._mine:
            self._arrived(batch)
            self._deliver(batch)
        propagation = Propagation(0, 0, 0, *batch)
        self._spread(self._leads.get(batch.group, ()), lambda _: propagation, done)
