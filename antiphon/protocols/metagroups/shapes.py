"""Two ways to arrange meta-groups into propagation trees: the paper's, and a shallower one.

Source: Jia and So, section 4.1. Both give trees that satisfy its two rules: every group has one primary
meta-group, which is an ancestor of all the group's other meta-groups. One tree joins all meta-groups that
are connected through shared groups, and depends on nothing but their labels.

- `printed` is the paper's procedure, with the list of joint meta-groups sorted by rank and each tested again
  for being unmarked when its turn comes. It works depth first, so a group's remaining meta-groups hang below
  one another in long chains: where the paper calls them children of the primary meta-group, it should say
  descendants.
- `shallow` separates first. The meta-group whose groups reach the most others becomes the root and the
  primary of all its groups; the parts that only these groups connected become subtrees, built in the
  same way. It is the elimination tree of that sequence of choices, and is built
  from the leaves up with a union-find.

Why `shallow` keeps the order: the proof of the theorem uses only that a group's primary meta-group is an
ancestor of its others. So does the absence of cycles over many groups: among the messages of a cycle take one
whose primary meta-group is deepest; its two neighbours pass through that node too and are in order there, so
it can be left out, down to two messages.

Measured over random groups, as the mean over groups of the depth at which a message ends: 200 groups over
1,000 sites in 1-3 groups each, `printed` 408, `shallow` 24; figure 2 of the paper gives the same tree.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, Literal, NamedTuple, TypeAlias

from antiphon.core.ids import Group
from antiphon.protocols.metagroups.formation import Label

Shape: TypeAlias = Literal["shallow", "printed"]
Index: TypeAlias = Mapping[Group, Sequence[int]]
"""The meta-groups of each group, as places in the ranked list of labels, in that order."""


class Arrangement(NamedTuple):
    """Each meta-group's parent, siblings in their order as children, and each group's primary meta-group."""

    parents: dict[Label, Label | None]
    primaries: dict[Group, Label]


def printed(labels: Sequence[Label]) -> Arrangement:
    """The paper's procedure over ranked labels, without recursion.

    A call's list of joint meta-groups only loses members while it waits, so that its next unmarked one is
    the first unmarked of all that are joint with it now: one moving place for each group finds it.
    """
    index = _index(labels)
    growth = _Growth(labels, index)
    for group in sorted(index):
        if group not in growth.primaries:
            growth.grow(index[group][0])
    parents = {labels[place]: None if up is None else labels[up] for place, up in growth.parents.items()}
    return Arrangement(parents, {group: labels[place] for group, place in growth.primaries.items()})


class _Growth:
    """Trees as they grow: `parents` holds exactly the meta-groups that are marked."""

    def __init__(self, labels: Sequence[Label], index: Index) -> None:
        self.parents: dict[int, int | None] = {}
        self.primaries: dict[Group, int] = {}
        self._labels = labels
        self._index = index
        self._sets = [frozenset(label) for label in labels]
        self._following = dict.fromkeys(index, 0)
        self._smallest: dict[Group, list[int]] = {}
        """Meta-groups under the rarest of their groups, small ones first: where to look for subsumed ones."""
        for place in reversed(range(len(labels))):
            rarest = min(labels[place], key=lambda group: (len(index[group]), group))
            self._smallest.setdefault(rarest, []).append(place)

    def grow(self, root: int) -> None:
        self._mark(root, None)
        stack = [root]
        while stack:
            joint = min(map(self._first_unmarked, self._labels[stack[-1]]))
            if joint == len(self._labels):
                stack.pop()
            else:
                self._mark(joint, stack[-1])
                stack.append(joint)

    def _mark(self, place: int, parent: int | None) -> None:
        """Put a meta-group on the tree, and all that it subsumes below it."""
        self.parents[place] = parent
        for group in self._labels[place]:
            self.primaries.setdefault(group, place)
        for subsumed in self._subsumed(place):
            self.parents[subsumed] = place

    def _subsumed(self, place: int) -> list[int]:
        found = []
        for group in self._labels[place]:
            for other in self._smallest.get(group, ()):
                if len(self._labels[other]) >= len(self._labels[place]):
                    break
                if other not in self.parents and self._sets[other] <= self._sets[place]:
                    found.append(other)
        return sorted(found)

    def _first_unmarked(self, group: Group) -> int:
        """The first unmarked meta-group of a group; beyond the last place if there is none."""
        places = self._index[group]
        following = self._following[group]
        while following < len(places) and places[following] in self.parents:
            following += 1
        self._following[group] = following
        return places[following] if following < len(places) else len(self._labels)


def shallow(labels: Sequence[Label]) -> Arrangement:
    """The elimination tree of the meta-groups, those that separate most first."""
    index = _index(labels)
    above: dict[int, int] = {}
    owners: dict[Group, int] = {}
    sequence = _separating(labels, index, owners)
    top = list(range(len(labels)))
    for place in reversed(sequence):
        for group in labels[place]:
            if owners[group] == place:
                for member in index[group]:
                    part = _find(top, member)
                    if part != place:
                        above[part] = top[part] = place
    owning = set(owners.values())
    leaves_first = sorted(range(len(labels)), key=lambda place: (place in owning, place))
    parents = {labels[place]: labels[above[place]] if place in above else None for place in leaves_first}
    return Arrangement(parents, {group: labels[place] for group, place in owners.items()})


def _separating(labels: Sequence[Label], index: Index, owners: dict[Group, int]) -> list[int]:
    """Meta-groups by how many others their groups reach that have no owner yet, the most first.

    The first meta-group of a group owns it. Counts only sink, so a stale one is put back into the heap.
    """

    def reach(place: int) -> int:
        return -sum(len(index[group]) for group in labels[place] if group not in owners)

    heap = [(reach(place), place) for place in range(len(labels))]
    heapify(heap)
    sequence = []
    while heap:
        known, place = heappop(heap)
        current = reach(place)
        if current != known:
            heappush(heap, (current, place))
            continue
        sequence.append(place)
        for group in labels[place]:
            owners.setdefault(group, place)
    return sequence


def _find(top: list[int], place: int) -> int:
    """The root of the part that holds a meta-group, with the path to it shortened."""
    root = place
    while top[root] != root:
        root = top[root]
    while top[place] != root:
        top[place], place = root, top[place]
    return root


def _index(labels: Sequence[Label]) -> dict[Group, list[int]]:
    index: dict[Group, list[int]] = {}
    for place, label in enumerate(labels):
        for group in label:
            index.setdefault(group, []).append(place)
    return index


SHAPES: Final[Mapping[Shape, Callable[[Sequence[Label]], Arrangement]]] = {
    "shallow": shallow,
    "printed": printed,
}
