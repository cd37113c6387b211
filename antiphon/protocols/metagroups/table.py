"""The table: who is in which group in one version of it, and the trees that follow from that.

Everything here is a pure function of a decision, so that all sites that know a version know the same trees.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.protocols.metagroups.bypass import Shortcuts, bypassed
from antiphon.protocols.metagroups.checks import are_few_enough
from antiphon.protocols.metagroups.formation import Label
from antiphon.protocols.metagroups.pdus import (
    LARGEST_TABLE,
    MOST_GROUPS,
    MOST_LETTERS,
    MOST_RETIRING,
    MOST_SITES,
    Decision,
    Ending,
    Life,
    Origin,
    Retiring,
    Seat,
    TreeId,
)
from antiphon.protocols.metagroups.shapes import Shape
from antiphon.protocols.metagroups.tree import Forest, build_forest

NO_FOUNDER: Final[Origin] = (0, 0, "")
"""The origin of a cluster whose sites all know one another from the start."""


class TreeNode(NamedTuple):
    """A meta-group in its tree; other nodes are named by their place in the tree."""

    label: Label
    sites: tuple[Site, ...]
    primary: Site
    parent: int | None
    children: tuple[int, ...]


class Tree:
    """One tree, with everything that is looked up while messages flow; immutable."""

    def __init__(
        self, tree: TreeId, nodes: tuple[TreeNode, ...], forest: Forest, shortcuts: Shortcuts | None
    ) -> None:
        self.id: Final = tree
        self.nodes: Final = nodes
        place = {node.label: index for index, node in enumerate(nodes)}
        groups = sorted({group for node in nodes for group in node.label})
        self.node_of: Final = {site: index for index, node in enumerate(nodes) for site in node.sites}
        self.entry: Final = {group: place[forest.primary_of[group]] for group in groups}
        self.members: Final = {group: frozenset(forest.members(group)) for group in groups}
        self.leads: Final[tuple[Mapping[Group, tuple[int, ...]], ...]] = tuple(
            {
                group: tuple(place[child] for child in children)
                for group, children in (shortcuts or forest).leads(node.label).items()
            }
            for node in nodes
        )
        self.below: Final = tuple(
            tuple(sorted({child for children in leads.values() for child in children}))
            for leads in self.leads
        )
        """To which nodes each node hands anything."""
        above: list[list[int]] = [[] for _ in nodes]
        for index, below in enumerate(self.below):
            for child in below:
                above[child].append(index)
        self.above: Final = tuple(map(tuple, above))
        """From which nodes anything comes to each node: from its parent alone, unless it is gone past."""

    def overlap(self, one: Group, other: Group) -> bool:
        """Whether two groups have a common member."""
        return one == other or not self.members[one].isdisjoint(self.members[other])


class Layout:
    """A version of the table with its trees; immutable."""

    def __init__(self, decision: Decision, shape: Shape, bypass: bool) -> None:
        self.decision: Final = decision
        self.version: Final = decision.version
        self.seats: Final = {seat.site: seat for seat in decision.seats}
        self.lives: Final[dict[Site, Life]] = {seat.site: seat.life for seat in decision.seats}
        forest = build_forest(membership_of(decision.seats), primaries=dict(decision.primaries), shape=shape)
        shortcuts = bypassed(forest) if bypass else None
        ids = dict(decision.trees)
        self.trees: Final = {
            ids[root]: Tree(ids[root], nodes, forest, shortcuts)
            for root, nodes in _trees(forest).items()
            if root in ids
        }
        self.retiring: Final = {
            retiring.tree: {group: frozenset(sites) for group, sites in retiring.members}
            for retiring in decision.retiring
        }
        """Trees that hand over to others, with the members of their groups."""
        self.is_complete: Final = sorted(ids) == list(forest.roots) and len(self.trees) == len(decision.trees)
        """Whether every tree has a name of its own."""
        self.tree_of: Final = {group: tree for tree, found in self.trees.items() for group in found.entry}

    def tree_to(self, group: Group) -> Tree | None:
        """The tree on which a group's messages travel; None if it has no members."""
        tree = self.tree_of.get(group)
        return None if tree is None else self.trees[tree]

    def all_trees(self) -> frozenset[TreeId]:
        """Those on which anything can be under way."""
        return frozenset((*self.trees, *self.retiring))

    def members_on(self, tree: TreeId) -> Mapping[Group, frozenset[Site]]:
        """Who is in which group on a tree."""
        found = self.trees.get(tree)
        return self.retiring[tree] if found is None else found.members

    def with_relatives(self, trees: Iterable[TreeId]) -> frozenset[TreeId]:
        """These trees, and those that must end together with them.

        A site that is on a tree that hands over and on another as well delivers on the second only when it is
        done with the first; so neither can end without the other.
        """
        everything = self.all_trees()
        found = set(trees) & everything
        size = -1
        while self.retiring and size != len(found):
            size = len(found)
            for retiring in self.decision.retiring:
                sites = self._sites[retiring.tree]
                related = {tree for tree in everything if not sites.isdisjoint(self._sites[tree])}
                if not found.isdisjoint(related):
                    found |= related
        return frozenset(found)

    @cached_property
    def _sites(self) -> dict[TreeId, frozenset[Site]]:
        """Who is on each tree."""
        return {tree: frozenset(_sites(self.members_on(tree))) for tree in self.all_trees()}

    @cached_property
    def _letters(self) -> int:
        return sum(map(_letters, self.decision.seats))

    def has_room(self, wish: Seat, wishes: Collection[Seat] = ()) -> bool:
        """Whether the table stays small enough if a site gets what it wants, after others who want more."""
        seat = self.seats.get(wish.site)
        if seat is None:
            coming = {wish.site, *(other.site for other in wishes if other.site not in self.seats)}
            if len(self.seats) + len(coming) > MOST_SITES:
                return False
        more = _letters(wish) - (0 if seat is None else _letters(seat))
        return more <= 0 or self._letters + sum(map(_letters, wishes)) + more <= LARGEST_TABLE

    def is_quorum(self, sites: Collection[Site]) -> bool:
        """Whether these can decide what follows: more than half of all, or half with the first of them.

        Any two such sets of sites have one in common.
        """
        present = sum(site in self.lives for site in sites)
        if 2 * present == len(self.lives):
            return min(self.lives) in sites
        return 2 * present > len(self.lives)


def _letters(seat: Seat) -> int:
    return len(seat.site) + sum(map(len, seat.groups))


def check_room(layout: Layout | None, site: Site, groups: Collection[Group]) -> None:
    """Refuse groups that a site cannot be in, since they or the table would be too many."""
    if not are_few_enough(groups):
        raise UsageError(
            "A site cannot be in so many groups, or in one with so long a name.",
            hint=f"It can be in {MOST_GROUPS} groups, whose names have {MOST_LETTERS} letters in all.",
        )
    if layout is not None and not layout.has_room(Seat(site, (0, 0), 0, tuple(groups))):
        raise UsageError(
            "So many sites are in so many groups that the cluster has no room for more.",
            hint="Leave some groups, or give them and the sites shorter names.",
        )


@lru_cache(maxsize=64)
def layout_of(decision: Decision, shape: Shape, *, bypass: bool = False) -> Layout:
    """The layout of a decision; sites in one process share it."""
    return Layout(decision, shape, bypass)


def membership_of(seats: Iterable[Seat]) -> dict[Group, list[Site]]:
    found: dict[Group, list[Site]] = {}
    for seat in seats:
        for group in seat.groups:
            found.setdefault(group, []).append(seat.site)
    return found


def _trees(forest: Forest) -> dict[Label, tuple[TreeNode, ...]]:
    """The nodes of each tree by its root, above before below."""
    found = {}
    for root in forest.roots:
        labels = list(forest.tree(root))
        place = {label: index for index, label in enumerate(labels)}
        nodes = [forest.nodes[label] for label in labels]
        found[root] = tuple(
            TreeNode(
                node.label,
                node.sites,
                node.primary,
                None if node.parent is None else place[node.parent],
                tuple(place[child] for child in node.children),
            )
            for node in nodes
        )
    return found


class Plan(NamedTuple):
    """The trees for new seats: which of the old ones stay, and which must be planted."""

    primaries: tuple[tuple[Label, Site], ...]
    kept: Mapping[Label, TreeId]
    handed_over: frozenset[TreeId]
    """Old trees that go on until they are empty, while new ones begin."""
    planted: tuple[Label, ...]
    """Roots of new trees, sorted, those included to which old ones hand over."""
    ended: frozenset[TreeId]
    """Old trees that do neither."""


def plan_trees(layout: Layout, seats: Iterable[Seat], stopped: Collection[TreeId], shape: Shape) -> Plan:
    """What new seats do to the trees.

    A tree stays if it has the same nodes, with the same sites. It ends if one of its sites is gone or has
    lost its memory, or if it was stopped. Otherwise it hands over, unless too many do so already. Whatever
    has become of its groups, its sites are done with it before they deliver anything on trees planted later:
    so at all sites the trees follow one another by their versions, and no two can disagree.
    """
    seats = list(seats)
    same = {seat.site for seat in seats if layout.lives.get(seat.site) == seat.life}
    before = {node.label: node.primary for tree in layout.trees.values() for node in tree.nodes}
    forest = build_forest(membership_of(seats), primaries=before, shape=shape)
    old = {tree.nodes[0].label: tree for tree in layout.trees.values()}
    lost = [tree for tree in layout.all_trees() if not _sites(layout.members_on(tree)) <= same]
    found = _trees(forest)
    standing = {root for root, nodes in found.items() if root in old and old[root].nodes == nodes}
    altered = layout.trees.keys() - {old[root].id for root in standing}
    if len(layout.retiring) + len(altered) > MOST_RETIRING:
        lost += altered
    ended = layout.with_relatives([*stopped, *lost])
    kept = {root: old[root].id for root in standing if old[root].id not in ended}
    primaries = tuple(sorted((label, node.primary) for label, node in forest.nodes.items()))
    return Plan(primaries, kept, frozenset(altered - ended), tuple(sorted(found.keys() - kept.keys())), ended)


def _sites(members: Mapping[Group, frozenset[Site]]) -> set[Site]:
    return {site for sites in members.values() for site in sites}


def decide(
    origin: Origin,
    version: int,
    ballot: tuple[int, Site],
    seats: Iterable[Seat],
    plan: Plan,
    retiring: Iterable[Retiring] = (),
    endings: Iterable[Ending] = (),
) -> Decision:
    """The decision that carries out a plan."""
    planted = planted_trees(origin, version, plan)
    trees = tuple(sorted({**plan.kept, **planted}.items()))
    return Decision(
        origin,
        version,
        ballot,
        tuple(sorted(seats, key=lambda seat: seat.site)),
        plan.primaries,
        trees,
        tuple(retiring),
        tuple(endings),
    )


def planted_trees(origin: Origin, version: int, plan: Plan) -> dict[Label, TreeId]:
    """The names of the trees that a plan plants, by their roots.

    Clusters count their versions from 1, each for itself. So that nothing that comes late from one that was
    given up is taken for a message of another, each counts its trees from elsewhere.
    """
    ground = 0
    if origin != NO_FOUNDER:
        ground = int.from_bytes(hashlib.blake2b(repr(origin).encode(), digest_size=2).digest(), "big") << 16
    return {root: (version, ground + place) for place, root in enumerate(plan.planted)}


def retire(layout: Layout, plan: Plan, over: Collection[TreeId]) -> list[Retiring]:
    """The trees that hand over: those that still do, and those that begin to."""
    going_on = [
        retiring
        for retiring in layout.decision.retiring
        if retiring.tree not in plan.ended and retiring.tree not in over
    ]
    for tree in sorted(plan.handed_over):
        members = layout.trees[tree].members
        listed = tuple((group, tuple(sorted(members[group]))) for group in sorted(members))
        going_on.append(Retiring(tree, listed))
    return going_on


@lru_cache(maxsize=16)
def first_decision(origin: Origin, seats: tuple[Seat, ...], shape: Shape) -> Decision:
    """The table that a cluster begins with."""
    nothing = Decision(origin, 0, (0, ""), (), (), (), (), ())
    plan = plan_trees(layout_of(nothing, shape), seats, (), shape)
    return decide(origin, 1, (0, ""), seats, plan)
