"""Shortcuts past nodes that a group's messages only pass through, where any two groups stay in order.

Source: Jia and So, section 4.2, corrected. The paper links a group's primary meta-group directly to what lies
below an extra node from which only one edge leads on for the group. That is unsound: with <ABC>, <ABD>,
<ACD> in a chain, C skips <ABD> and A does not, so A and C can be ordered differently at the ends of the
chain.

What holds instead. Two groups' messages are ordered at the merge point of their ways: the top of the longest
common end of the two ways to a meta-group. The order of *two* groups is one everywhere exactly if all the
meta-groups that are part of both have the same merge point; `Shortcuts.conflicts` finds the others. The plain
tree has none. `bypassed` takes only shortcuts without conflicts. Two groups with one primary meta-group merge
there, and without conflicts nowhere else: all sites receive a sender's requests to one primary site in that
order, as in the plain tree.

Not promised with shortcuts: an order without cycles over *three* groups. <AB> - <BC> - <AC>, where A skips
<BC>, has no conflict, yet b before a, a before c and c before b can all be seen. So shortcuts are for
applications that need only any two groups' messages in one order.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group
from antiphon.protocols.metagroups.formation import Label, label_text
from antiphon.protocols.metagroups.tree import Forest

Ways: TypeAlias = dict[Group, dict[Label, Label]]
"""For each group, the node before each node on its way; its primary meta-group has none before it."""


class Conflict(NamedTuple):
    """Two groups whose order can differ from place to place, since their ways merge at several nodes."""

    groups: tuple[Group, Group]
    merge_points: tuple[Label, ...]


class Shortcuts:
    """A forest in which the messages of each group skip the nodes named for it; immutable.

    Each of those nodes must be one that `candidates` gives for that group.
    """

    def __init__(self, forest: Forest, past: Mapping[Group, Collection[Label]]) -> None:
        self.forest: Final = forest
        self.past: Final = {group: frozenset(labels) for group, labels in past.items() if labels}
        self._ways = _plain_ways(forest)
        for group, labels in self.past.items():
            _require_single_ways(forest, group, labels)
            for above, below in forest.route(group).edges:
                if above in labels:
                    _go_past(self._ways[group], above, below)

    def way(self, group: Group, label: Label) -> tuple[Label, ...]:
        """The nodes through which a group's messages come to one of its meta-groups, both ends included."""
        nodes = [label]
        while nodes[-1] in self._ways[group]:
            nodes.append(self._ways[group][nodes[-1]])
        return tuple(reversed(nodes))

    def depth(self, group: Group) -> int:
        """Nodes on a group's longest way: `Route.depth` with the shortcuts."""
        return max(len(self.way(group, label)) for label in self.forest.meta_groups_of[group])

    def extra(self, group: Group) -> tuple[Label, ...]:
        """Extra nodes of a group: `Route.extra` with the shortcuts."""
        past = self.past.get(group, frozenset())
        return tuple(label for label in self.forest.route(group).extra if label not in past)

    def leads(self, label: Label) -> Mapping[Group, tuple[Label, ...]]:
        """The nodes to which a node passes each group's messages: `Forest.leads` with the shortcuts."""
        return {group: tuple(below) for group, below in self._handed.get(label, {}).items()}

    def conflicts(self) -> list[Conflict]:
        """The pairs of groups whose order is not one everywhere; none if the shortcuts are sound."""
        return _conflicts(self.forest, self._ways, self._ways)

    @cached_property
    def _handed(self) -> Mapping[Label, Mapping[Group, list[Label]]]:
        handed: dict[Label, dict[Group, list[Label]]] = {}
        for group, way in sorted(self._ways.items()):
            for below in sorted(way):
                handed.setdefault(way[below], {}).setdefault(group, []).append(below)
        return handed


def candidates(forest: Forest) -> dict[Group, tuple[Label, ...]]:
    """The nodes that section 4.2 would skip: each group's extra nodes from which one edge leads on for it."""
    return {group: _single_ways(forest, group) for group in forest.primary_of}


def bypassed(forest: Forest, groups: Collection[Group] | None = None) -> Shortcuts:
    """Sound shortcuts for these groups, or for all: as many as are found by trying each node from above.

    Groups that go on from a node to the same child are tried together, since two that take the same way stay
    in order; of those in conflict, the one with the most conflicts stays on the tree, until there are none.
    """
    ways = _plain_ways(forest)
    open_to = {group: set(labels) for group, labels in candidates(forest).items()}
    past: dict[Group, set[Label]] = {}
    for node in [label for root in forest.roots for label in forest.tree(root)]:
        together: dict[Label, set[Group]] = {}
        for group, below in forest.leads(node).items():
            if node in open_to[group] and (groups is None or group in groups):
                together.setdefault(below[0], set()).add(group)
        for child, tried in together.items():
            for group in _kept(forest, ways, node, child, tried):
                past.setdefault(group, set()).add(node)
    return Shortcuts(forest, past)


def _kept(forest: Forest, ways: Ways, node: Label, child: Label, tried: set[Group]) -> set[Group]:
    """Of the groups tried, those that can skip a node; `ways` is changed for them."""
    for group in tried:
        _go_past(ways[group], node, child)
    while found := _conflicts(forest, ways, tried):
        named = [group for conflict in found for group in conflict.groups if group in tried]
        worst = min(set(named), key=lambda group: (-named.count(group), group))
        tried = tried - {worst}
        ways[worst][node], ways[worst][child] = ways[worst][child], node
    return tried


def _single_ways(forest: Forest, group: Group) -> tuple[Label, ...]:
    route = forest.route(group)
    ways_on = Counter(above for above, _ in route.edges)
    return tuple(label for label in route.extra if ways_on[label] == 1)


def _require_single_ways(forest: Forest, group: Group, labels: Collection[Label]) -> None:
    wrong = sorted(set(labels) - set(_single_ways(forest, group)))
    if wrong:
        raise UsageError(
            f"The messages of {group} cannot go past {label_text(wrong[0])}.",
            hint="They can go past nodes that are no part of their group and have one way on for it.",
        )


def _plain_ways(forest: Forest) -> Ways:
    return {
        group: {below: above for above, below in forest.route(group).edges} for group in forest.primary_of
    }


def _go_past(way: dict[Label, Label], node: Label, child: Label) -> None:
    """Nodes are skipped from above, so the next one after `node` is still its child in the tree."""
    assert way[child] == node
    way[child] = way.pop(node)


def _conflicts(forest: Forest, ways: Ways, groups: Iterable[Group]) -> list[Conflict]:
    """The pairs with at least one of these groups that have more than one merge point."""
    merges: dict[tuple[Group, Group], set[Label]] = {}
    for group in sorted(groups):
        for label in forest.meta_groups_of[group]:
            for other in label:
                if other != group:
                    pair = (group, other) if group < other else (other, group)
                    merges.setdefault(pair, set()).add(_merge_point(label, ways[group], ways[other]))
    return [Conflict(pair, tuple(sorted(found))) for pair, found in sorted(merges.items()) if len(found) > 1]


def _merge_point(label: Label, first: Mapping[Label, Label], second: Mapping[Label, Label]) -> Label:
    """The top of the longest common end of two groups' ways to a meta-group."""
    while label in first and first[label] == second.get(label):
        label = first[label]
    return label
