"""A view: the members of each group, and the trees that follow from them.

Everything here is a pure function of a decision, so all sites that have a view have the same trees.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.protocols.metagroups.bypass import Shortcuts, bypassed
from antiphon.protocols.metagroups.formation import Label
from antiphon.protocols.metagroups.pdus import (
    LARGEST_VIEW,
    MOST_GROUPS,
    MOST_LETTERS,
    MOST_RETIRING,
    MOST_SITES,
    Change,
    Decision,
    Ending,
    MetaGroupsConfiguration,
    Origin,
    Retiring,
    Session,
    SiteRecord,
    TreeId,
)
from antiphon.protocols.metagroups.shapes import Shape
from antiphon.protocols.metagroups.tree import Forest, build_forest
from antiphon.protocols.metagroups.validation import are_few_enough

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
    """A tree, with all tables that are needed while messages flow; immutable."""

    def __init__(
        self, tree: TreeId, nodes: tuple[TreeNode, ...], forest: Forest, shortcuts: Shortcuts | None
    ) -> None:
        self.id: Final = tree
        self.nodes: Final = nodes
        place = self.places = {node.label: index for index, node in enumerate(nodes)}
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
        """The nodes that each node passes anything to."""
        above: list[list[int]] = [[] for _ in nodes]
        for index, below in enumerate(self.below):
            for child in below:
                above[child].append(index)
        self.above: Final = tuple(map(tuple, above))
        """The nodes that pass anything to each node: only its parent, unless there are shortcuts."""

    def meeting(self, one: int, other: int) -> int:
        """The lowest node from which there is a way down to both."""
        above = set(self._upwards(one))
        return next(node for node in self._upwards(other) if node in above)

    def step_down(self, node: int, to: int) -> int | None:
        """The child on the way from a node down to another; None if there is no such way."""
        way = list(self._upwards(to))
        return way[way.index(node) - 1] if node in way[1:] else None

    def _upwards(self, node: int) -> Iterator[int]:
        """A node, its parent, and so on."""
        at: int | None = node
        while at is not None:
            yield at
            at = self.nodes[at].parent

    def overlap(self, one: Group, other: Group) -> bool:
        """Whether two groups have a common member."""
        return one == other or not self.members[one].isdisjoint(self.members[other])


class View:
    """A decision with its trees; immutable."""

    def __init__(self, decision: Decision, shape: Shape, bypass: bool) -> None:
        self.decision: Final = decision
        self.version: Final = decision.version
        self.records: Final = {record.site: record for record in decision.records}
        self.sessions: Final[dict[Site, Session]] = {
            record.site: record.session for record in decision.records
        }
        forest = build_forest(
            membership_of(decision.records), primaries=dict(decision.primaries), shape=shape
        )
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
        """Retiring trees, with the members of their groups."""
        self.is_complete: Final = sorted(ids) == list(forest.roots) and len(self.trees) == len(decision.trees)
        """Whether every tree has a name of its own."""
        self.tree_of: Final = {group: tree for tree, found in self.trees.items() for group in found.entry}

    @property
    def first(self) -> Site:
        """The first site by name."""
        return self.decision.records[0].site

    def tree_to(self, group: Group) -> Tree | None:
        """The tree on which a group's messages travel; None if it has no members."""
        tree = self.tree_of.get(group)
        return None if tree is None else self.trees[tree]

    def all_trees(self) -> frozenset[TreeId]:
        """All trees on which anything can be under way."""
        return frozenset((*self.trees, *self.retiring))

    def members_on(self, tree: TreeId) -> Mapping[Group, frozenset[Site]]:
        """The members of each group on a tree."""
        found = self.trees.get(tree)
        return self.retiring[tree] if found is None else found.members

    def sites_on(self, tree: TreeId) -> frozenset[Site]:
        """The sites on a tree."""
        return self._sites[tree]

    def with_relatives(self, trees: Iterable[TreeId]) -> frozenset[TreeId]:
        """These trees, and those that must end together with them.

        A site on a retiring tree and on another one delivers on the second only when it has finished the
        first; so neither can end without the other.
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
        """The sites on each tree."""
        return {tree: frozenset(_sites(self.members_on(tree))) for tree in self.all_trees()}

    @cached_property
    def _letters(self) -> int:
        return sum(map(_letters, self.decision.records))

    def has_room(self, request: SiteRecord, requests: Collection[SiteRecord] = ()) -> bool:
        """Whether the view stays small enough if this request is fulfilled after the others."""
        record = self.records.get(request.site)
        if record is None:
            coming = {request.site, *(other.site for other in requests if other.site not in self.records)}
            if len(self.records) + len(coming) > MOST_SITES:
                return False
        more = _letters(request) - (0 if record is None else _letters(record))
        return more <= 0 or self._letters + sum(map(_letters, requests)) + more <= LARGEST_VIEW

    def is_quorum(self, sites: Collection[Site], left: Collection[Site] = ()) -> bool:
        """Whether these sites can decide the next view: more than half of all, or half with the first.

        Sites that have `left` do not count: they have accepted no decision, and never will. Any two quorums
        that have accepted one have a site in common, also where not all know yet who has left: neither has a
        site that has left, and each is half, or more, of the sites that remain.
        """
        voters = self.sessions.keys() - set(left)
        present = sum(site in voters for site in sites)
        if 2 * present == len(voters):
            return bool(voters) and min(voters) in sites
        return 2 * present > len(voters)


def _letters(record: SiteRecord) -> int:
    return len(record.site) + sum(map(len, record.groups))


def check_room(view: View | None, site: Site, groups: Collection[Group]) -> None:
    """Raise if a site cannot be in these groups, since they or the view would be too large."""
    if not are_few_enough(groups):
        raise UsageError(
            "These are too many groups for one site, or a group's name is too long.",
            hint=f"It can be in {MOST_GROUPS} groups, whose names have {MOST_LETTERS} letters in all.",
        )
    if view is not None and not view.has_room(SiteRecord(site, (0, 0), 0, tuple(groups))):
        raise UsageError(
            "The cluster has no room for more sites and groups.",
            hint="Leave some groups, or give them and the sites shorter names.",
        )


@lru_cache(maxsize=64)
def view_of(decision: Decision, shape: Shape, *, bypass: bool = False) -> View:
    """The view of a decision; sites in one process share it."""
    return View(decision, shape, bypass)


def membership_of(records: Iterable[SiteRecord]) -> dict[Group, list[Site]]:
    found: dict[Group, list[Site]] = {}
    for record in records:
        for group in record.groups:
            found.setdefault(group, []).append(record.site)
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
    """The trees for new records: the old trees that stay, and those that must be planted."""

    primaries: tuple[tuple[Label, Site], ...]
    kept: Mapping[Label, TreeId]
    handed_over: frozenset[TreeId]
    """Old trees that retire: they go on until they are empty, while new ones begin."""
    planted: tuple[Label, ...]
    """Roots of new trees, sorted."""
    ended: frozenset[TreeId]
    """Old trees that end."""


def plan_trees(
    view: View,
    records: Iterable[SiteRecord],
    stopped: Collection[TreeId],
    shape: Shape,
    moved: Collection[TreeId] = (),
) -> Plan:
    """What new records do to the trees.

    A tree stays if it has the same nodes, with the same sites, and no moves. It ends if one of its sites is
    missing or has lost its memory, or if it was stopped. Otherwise it retires, unless too many do so already.
    Its sites finish a retiring tree before they deliver anything on trees planted later. So at all sites the
    trees follow one another by their versions, and no two sites can disagree.
    """
    records = list(records)
    same = {record.site for record in records if view.sessions.get(record.site) == record.session}
    before = {node.label: node.primary for tree in view.trees.values() for node in tree.nodes}
    forest = build_forest(membership_of(records), primaries=before, shape=shape)
    old = {tree.nodes[0].label: tree for tree in view.trees.values()}
    lost = [tree for tree in view.all_trees() if not _sites(view.members_on(tree)) <= same]
    found = _trees(forest)
    standing = {
        root
        for root, nodes in found.items()
        if root in old and old[root].nodes == nodes and old[root].id not in moved
    }
    altered = view.trees.keys() - {old[root].id for root in standing}
    if len(view.retiring) + len(altered) > MOST_RETIRING:
        lost += altered
    ended = view.with_relatives([*stopped, *lost])
    kept = {root: old[root].id for root in standing if old[root].id not in ended}
    primaries = tuple(sorted((label, node.primary) for label, node in forest.nodes.items()))
    return Plan(primaries, kept, frozenset(altered - ended), tuple(sorted(found.keys() - kept.keys())), ended)


def _sites(members: Mapping[Group, frozenset[Site]]) -> set[Site]:
    return {site for sites in members.values() for site in sites}


def decide(
    origin: Origin,
    version: int,
    ballot: tuple[int, Site],
    records: Iterable[SiteRecord],
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
        tuple(sorted(records, key=lambda record: record.site)),
        plan.primaries,
        trees,
        tuple(retiring),
        tuple(endings),
    )


def apply_change(view: View, change: Change, shape: Shape) -> Decision:
    """The decision that a change makes of a view."""
    records = {site: record for site, record in view.records.items() if site not in change.gone}
    records |= {record.site: record for record in change.records}
    plan = plan_trees(view, records.values(), change.stopped, shape, change.moved)
    retiring = retire(view, plan, change.finished)
    origin, version = view.decision.origin, view.version + 1
    return decide(origin, version, change.ballot, records.values(), plan, retiring, change.endings)


@lru_cache(maxsize=16)
def decision_after(decision: Decision, change: Change, configuration: MetaGroupsConfiguration) -> Decision:
    """The decision that a change makes of an earlier one; sites in one process share it."""
    view = view_of(decision, configuration.shape, bypass=configuration.bypass)
    return apply_change(view, change, configuration.shape)


def planted_trees(origin: Origin, version: int, plan: Plan) -> dict[Label, TreeId]:
    """The ids of the trees that a plan plants, by their roots.

    Every cluster counts its versions from 1. Each counts its trees from another offset, so that a late PDU of
    an abandoned cluster is not taken for one of its successor.
    """
    ground = 0
    if origin != NO_FOUNDER:
        ground = int.from_bytes(hashlib.blake2b(repr(origin).encode(), digest_size=2).digest(), "big") << 16
    return {root: (version, ground + place) for place, root in enumerate(plan.planted)}


def retire(view: View, plan: Plan, over: Collection[TreeId]) -> list[Retiring]:
    """The retiring trees: those that still are, and those that begin to be."""
    going_on = [
        retiring
        for retiring in view.decision.retiring
        if retiring.tree not in plan.ended and retiring.tree not in over
    ]
    for tree in sorted(plan.handed_over):
        members = view.trees[tree].members
        listed = tuple((group, tuple(sorted(members[group]))) for group in sorted(members))
        going_on.append(Retiring(tree, listed))
    return going_on


@lru_cache(maxsize=16)
def first_decision(origin: Origin, records: tuple[SiteRecord, ...], shape: Shape) -> Decision:
    """The view that a cluster begins with."""
    nothing = Decision(origin, 0, (0, ""), (), (), (), (), ())
    plan = plan_trees(view_of(nothing, shape), records, (), shape)
    return decide(origin, 1, (0, ""), records, plan)
