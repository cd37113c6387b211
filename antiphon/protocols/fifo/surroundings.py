"""A member's place among the others: the logical tree and the local groups of the present view.

Source: K. Guo, Scalable Message Stability Detection Protocols, sections 2.1.4 and 4.3. The tree is the one in
which the structured stability protocols gather what members hold. A local group has `subgroup` consecutive
members of the view.
"""

from antiphon.core.ids import Site
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.group import Group
from antiphon.protocols.stability import SUBGROUP, logical_tree


class Surroundings:
    """Worked out again when the view has changed and something is asked."""

    def __init__(self, context: Context, group: Group) -> None:
        self._site = context.site
        self._tuning = context.configuration.tuning
        self._group = group
        self._view = -1
        self._superiors: tuple[Site, ...] = ()
        self._children: frozenset[Site] = frozenset()

    def superiors(self) -> tuple[Site, ...]:
        """The members above us in the tree, the parent first."""
        self._refresh()
        return self._superiors

    def children(self) -> frozenset[Site]:
        self._refresh()
        return self._children

    def local_group(self, site: Site) -> tuple[Site, ...]:
        """The members of a member's local group; none if it is not in the view."""
        sites = self._group.view.sites
        if site not in sites:
            return ()
        size = self._tuning.subgroup or SUBGROUP
        first = sites.index(site) // size * size
        return sites[first : first + size]

    def neighbours(self) -> tuple[Site, ...]:
        """The other members of our own local group."""
        return tuple(site for site in self.local_group(self._site) if site != self._site)

    def _refresh(self) -> None:
        view = self._group.view
        if view.number == self._view:
            return
        self._view = view.number
        tree = logical_tree(view.sites, self._tuning)
        place = tree.place[self._site]
        self._superiors = tuple(tree.walk[above] for above in tree.ancestors(place))
        self._children = frozenset(tree.walk[child] for child in tree.children(place))
