"""The forest of propagation trees over meta-groups, and the way of a group's messages through it.

Source: Jia and So, sections 3 (rules 1 and 2), 4.1 and 5. A node of a tree is a meta-group. A message of a
group goes first to the primary site of the group's primary meta-group, and from there down the tree: each
node that is a part of the group passes it to its own sites, and each node passes it to the children that lead
to more of the group. A node on the way that is no part of the group is extra: it only orders and passes on.

What the tables cost: `build_forest` takes time in proportion to the memberships, but for sorting; what is
derived from the tree is worked out when it is first asked for.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, pairwise
from typing import Final, NamedTuple

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.protocols.metagroups.formation import Label, Membership, MetaGroup, form_meta_groups, label_text
from antiphon.protocols.metagroups.shapes import SHAPES, Shape


class Node(NamedTuple):
    """A meta-group at its place in a tree."""

    label: Label
    sites: tuple[Site, ...]
    primary: Site
    """The site that receives for all of them, orders, and passes on."""
    parent: Label | None
    children: tuple[Label, ...]


class Route(NamedTuple):
    """The way of one message to a group, from its primary meta-group down."""

    group: Group
    edges: tuple[tuple[Label, Label], ...]
    """From node to node, above before below."""
    extra: tuple[Label, ...]
    """Nodes on the way that are no part of the group; the paper's intermediaries."""
    depth: int
    """Nodes on the longest way down, the primary meta-group and the last meta-group included."""
    hops: int
    """Messages one after another until the last member has it, for a sender that is no primary site."""
    messages: int
    """All messages: to the primary meta-group, along the edges, and to each meta-group's other sites."""
    busiest: Site
    """The site that sends and receives most of them."""
    busiest_load: int


class Forest:
    """Every meta-group's node, and every group's primary meta-group; immutable."""

    def __init__(self, nodes: Mapping[Label, Node], primary_of: Mapping[Group, Label], shape: Shape) -> None:
        self.nodes: Final = nodes
        self.primary_of: Final = primary_of
        """The primary meta-group of each group; a group without members has none."""
        self.shape: Final = shape
        self._leads: dict[Label, Mapping[Group, tuple[Label, ...]]] = {}

    @cached_property
    def label_of(self) -> Mapping[Site, Label]:
        """The meta-group of each site; a site in no group has none."""
        return {site: node.label for node in self.nodes.values() for site in node.sites}

    @cached_property
    def roots(self) -> tuple[Label, ...]:
        """The root of each tree, sorted."""
        return tuple(sorted(node.label for node in self.nodes.values() if node.parent is None))

    @cached_property
    def root_of(self) -> Mapping[Label, Label]:
        """The root of each meta-group's tree."""
        return {label: root for root in self.roots for label in self.tree(root)}

    @cached_property
    def meta_groups_of(self) -> Mapping[Group, tuple[Label, ...]]:
        """The meta-groups that make up each group, sorted."""
        found: dict[Group, list[Label]] = {}
        for label in sorted(self.nodes):
            for group in label:
                found.setdefault(group, []).append(label)
        return {group: tuple(labels) for group, labels in sorted(found.items())}

    def tree(self, root: Label) -> Iterator[Label]:
        """The meta-groups from a node down, above before below, siblings in their order."""
        stack = [root]
        while stack:
            label = stack.pop()
            yield label
            stack.extend(reversed(self.nodes[label].children))

    def members(self, group: Group) -> tuple[Site, ...]:
        """The members of a group, sorted."""
        labels = self.meta_groups_of.get(group, ())
        return tuple(sorted(site for label in labels for site in self.nodes[label].sites))

    def membership(self) -> dict[Group, tuple[Site, ...]]:
        """The members of each group that has any."""
        return {group: self.members(group) for group in self.meta_groups_of}

    def entry(self, group: Group) -> Site | None:
        """The site to which a message to the group is sent first; None if the group has no members."""
        primary = self.primary_of.get(group)
        return None if primary is None else self.nodes[primary].primary

    def flows(self, label: Label) -> tuple[Group, ...]:
        """The groups whose messages come to a node from its parent, sorted."""
        return tuple(group for bit, group in enumerate(self.meta_groups_of) if self._flow[label] >> bit & 1)

    def leads(self, label: Label) -> Mapping[Group, tuple[Label, ...]]:
        """The children to which a node passes each group's messages; groups that end here are left out."""
        if label not in self._leads:
            found: dict[Group, list[Label]] = {}
            for child in self.nodes[label].children:
                for group in self.flows(child):
                    found.setdefault(group, []).append(child)
            self._leads[label] = {group: tuple(children) for group, children in found.items()}
        return self._leads[label]

    def route(self, group: Group) -> Route:
        """The way of a group's messages."""
        if group not in self.primary_of:
            raise UsageError(
                f"The group {group} has no members.", hint="Only groups with members have a route."
            )
        levels, edges = self._climb(group)
        own = self.meta_groups_of[group]
        members = set(own)
        loads = self._loads(own, edges)
        busiest = min(loads, key=lambda site: (-loads[site], site))
        return Route(
            group,
            tuple(edges),
            tuple(sorted(label for label in levels if label not in members)),
            max(levels.values()),
            max(levels[label] + (len(self.nodes[label].sites) > 1) for label in own),
            1 + len(edges) + sum(len(self.nodes[label].sites) - 1 for label in own),
            busiest,
            loads[busiest],
        )

    def loads(self, group: Group) -> dict[Site, int]:
        """The messages that each site sends and receives for one to a group, except those of its sender."""
        route = self.route(group)
        return dict.fromkeys(self.members(group), 1) | self._loads(self.meta_groups_of[group], route.edges)

    def _climb(self, group: Group) -> tuple[dict[Label, int], list[tuple[Label, Label]]]:
        """The level of every node on a group's way, and the edges, found from each meta-group upwards."""
        levels = {self.primary_of[group]: 1}
        edges: list[tuple[Label, Label]] = []
        for label in self.meta_groups_of[group]:
            climbed = [label]
            while climbed[-1] not in levels:
                climbed.append(self._parent(climbed[-1]))
            climbed.reverse()
            for above, below in pairwise(climbed):
                levels[below] = levels[above] + 1
                edges.append((above, below))
        return levels, edges

    def _parent(self, label: Label) -> Label:
        parent = self.nodes[label].parent
        assert parent is not None, f"{label_text(label)} does not lie below the primary of its groups"
        return parent

    def _loads(self, own: Sequence[Label], edges: Sequence[tuple[Label, Label]]) -> dict[Site, int]:
        """The messages that each primary site on a route sends and receives; other members receive one."""
        loads = {self.nodes[label].primary: len(self.nodes[label].sites) for label in own}
        for above, below in edges:
            loads.setdefault(self.nodes[below].primary, 1)
            loads[self.nodes[above].primary] += 1
        return loads

    @cached_property
    def _flow(self) -> Mapping[Label, int]:
        """`flows` as sets of bits: what a node or one below it wants, less what begins at the node itself."""
        bits = {group: 1 << bit for bit, group in enumerate(self.meta_groups_of)}
        begins: dict[Label, int] = {}
        for group, label in self.primary_of.items():
            begins[label] = begins.get(label, 0) | bits[group]
        flow: dict[Label, int] = {}
        for root in self.roots:
            for label in reversed(list(self.tree(root))):
                wanted = 0
                for group in label:
                    wanted |= bits[group]
                for child in self.nodes[label].children:
                    wanted |= flow[child]
                flow[label] = wanted & ~begins.get(label, 0)
        return flow


def build_forest(
    membership: Membership,
    *,
    primaries: Mapping[Label, Site] | None = None,
    shape: Shape = "shallow",
) -> Forest:
    """The forest for a membership; equal memberships give equal forests.

    A meta-group's primary site is the one in `primaries` if that is one of its sites, else the first by name.
    With the primaries of the forest before, none moves without need.
    """
    meta_groups = form_meta_groups(membership)
    nodes, primary_of = plant(meta_groups, primaries or {}, shape)
    return Forest(nodes, primary_of, shape)


def plant(
    meta_groups: Sequence[MetaGroup], primaries: Mapping[Label, Site], shape: Shape
) -> tuple[dict[Label, Node], dict[Group, Label]]:
    """The nodes of the trees over ranked meta-groups, and their groups' primary meta-groups."""
    parents, primary_of = SHAPES[shape]([meta_group.label for meta_group in meta_groups])
    children: dict[Label, list[Label]] = {}
    for label, parent in parents.items():
        if parent is not None:
            children.setdefault(parent, []).append(label)
    nodes = {
        label: Node(
            label,
            sites,
            choose_primary(sites, primaries.get(label)),
            parents[label],
            tuple(children.get(label, ())),
        )
        for label, sites in meta_groups
    }
    return nodes, primary_of


def choose_primary(sites: Sequence[Site], preferred: Site | None) -> Site:
    return preferred if preferred is not None and preferred in sites else min(sites)


def broken_rules(forest: Forest) -> list[str]:
    """What contradicts the paper's two rules, in sentences; none if the forest is right.

    Rule 1: every group has one primary meta-group. Rule 2: from there one path leads to each of the group's
    meta-groups. Both rest on parents and children that fit together, so that these come first.
    """
    return _broken_links(forest) or _broken_paths(forest)


def _broken_links(forest: Forest) -> list[str]:
    wrong = [
        f"{label_text(child)} is a child of {label_text(node.label)} and has another parent."
        for node in forest.nodes.values()
        for child in node.children
        if forest.nodes[child].parent != node.label
    ]
    if not wrong and len(reached := [*chain.from_iterable(map(forest.tree, forest.roots))]) != len(
        forest.nodes
    ):
        wrong.append(f"{len(reached)} meta-groups are reached from roots, and there are {len(forest.nodes)}.")
    return wrong


def _broken_paths(forest: Forest) -> list[str]:
    """Violations of rule 2. In a walk through a tree, all nodes below a node directly follow it."""
    walk = [label for root in forest.roots for label in forest.tree(root)]
    first = {label: place for place, label in enumerate(walk)}
    sizes = dict.fromkeys(walk, 1)
    for label in reversed(walk):
        parent = forest.nodes[label].parent
        if parent is not None:
            sizes[parent] += sizes[label]
    wrong = []
    for group, labels in forest.meta_groups_of.items():
        primary = forest.primary_of.get(group)
        if primary not in labels:
            wrong.append(f"The primary meta-group of {group} is none of its own.")
            continue
        wrong.extend(
            f"No path leads from {label_text(primary)}, the primary of {group}, to {label_text(label)}."
            for label in labels
            if not 0 <= first[label] - first[primary] < sizes[primary]
        )
    return wrong
