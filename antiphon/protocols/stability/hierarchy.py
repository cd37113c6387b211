"""Logical trees over the members of a group, for the structured stability protocols.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 4.3.
Members are known by their place in a depth-first walk that visits children in order, the root at place 0. So
a member's sub-tree, and the sub-trees of consecutive siblings, are unbroken ranges of places. A hierarchy is
made once and shared by all members in a process.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site

NOBODY: Final = -1
"""The parent of the root, and the elder sibling of a first child."""


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Sequences indexed by place."""

    walk: tuple[Site, ...]
    place: dict[Site, int]
    parent: tuple[int, ...]
    size: tuple[int, ...]
    """The number of members of the sub-tree, the one at its top included."""
    elder: tuple[int, ...]
    """The sibling just before."""

    @classmethod
    def from_parents(cls, members: Sequence[Site], parents: Sequence[int]) -> "Hierarchy":
        """From each member's parent, by its index among the members; the root's is `NOBODY`.

        Children stand in the order of the members.

        >>> Hierarchy.from_parents("abcd", [-1, 0, 1, 0]).walk
        ('a', 'b', 'c', 'd')
        """
        if len(set(members)) != len(members) or len(members) != len(parents):
            raise UsageError("A hierarchy needs one parent for each member, and each member once.")
        below: list[list[int]] = [[] for _ in members]
        roots = []
        for index, parent in enumerate(parents):
            if parent == NOBODY:
                roots.append(index)
            elif 0 <= parent < len(members):
                below[parent].append(index)
            else:
                raise UsageError(f"The parent of '{members[index]}' is not among the members.")
        if len(roots) != 1:
            raise UsageError(f"A hierarchy has one root, not {len(roots)}.")
        return _walked(members, below, roots[0])

    @classmethod
    def complete(cls, order: Sequence[Site], branching: int) -> "Hierarchy":
        """Level by level in this order, each member with `branching` children while there are enough.

        >>> hierarchy = Hierarchy.complete("abcde", 3)
        >>> [hierarchy.walk[child] for child in hierarchy.children(0)]
        ['b', 'c', 'd']
        """
        if branching < 1:
            raise UsageError(f"Members with {branching} children each make no tree.", hint="Take 1 or more.")
        return cls.from_parents(order, [(index - 1) // branching for index in range(len(order))])

    @classmethod
    def two_level(cls, order: Sequence[Site], subgroup: int) -> "Hierarchy":
        """Sub-groups of consecutive members, the first of each its head; the first head is the root.

        >>> hierarchy = Hierarchy.two_level("abcdef", 3)
        >>> [hierarchy.walk[child] for child in hierarchy.children(0)]
        ['b', 'c', 'd']
        """
        heads = _heads(len(order), subgroup)[1:]
        return cls.from_parents(order, [NOBODY, *(max(head, 0) for head in heads)])

    @classmethod
    def two_level_below(cls, order: Sequence[Site], subgroup: int) -> "Hierarchy":
        """The same, but the first member is only the root, and all heads stand below it.

        >>> hierarchy = Hierarchy.two_level_below("abcdef", 3)
        >>> [hierarchy.walk[child] for child in hierarchy.children(0)]
        ['b', 'e']
        """
        heads = _heads(len(order) - 1, subgroup)
        return cls.from_parents(order, [NOBODY, *(1 + head for head in heads)])

    def __len__(self) -> int:
        return len(self.walk)

    def end(self, place: int) -> int:
        """The first place after a sub-tree."""
        return place + self.size[place]

    def children(self, place: int) -> Iterator[int]:
        """In order."""
        child, end = place + 1, self.end(place)
        while child < end:
            yield child
            child += self.size[child]

    def ancestors(self, place: int) -> Iterator[int]:
        """From the parent up to the root."""
        while (place := self.parent[place]) != NOBODY:
            yield place

    @property
    def height(self) -> int:
        """The number of generations below the root."""
        depth = [0] * len(self.walk)
        for place in range(1, len(depth)):
            depth[place] = depth[self.parent[place]] + 1
        return max(depth)


def _heads(members: int, subgroup: int) -> list[int]:
    """For each member the head of its sub-group, and `NOBODY` for a head."""
    if subgroup < 2:
        raise UsageError(f"A sub-group of {subgroup} has no member but its head.", hint="Take 2 or more.")
    return [index - index % subgroup if index % subgroup else NOBODY for index in range(members)]


def _walked(members: Sequence[Site], below: list[list[int]], root: int) -> Hierarchy:
    """Number the members depth first."""
    order: list[int] = []
    parent: list[int] = []
    waiting = [(root, NOBODY)]
    while waiting:
        index, above = waiting.pop()
        waiting += [(child, len(order)) for child in reversed(below[index])]
        order.append(index)
        parent.append(above)
    if len(order) != len(members):
        raise UsageError("Some members of the hierarchy are not below its root.")
    size = [1] * len(order)
    for place in range(len(order) - 1, 0, -1):
        size[parent[place]] += size[place]
    walk = tuple(members[index] for index in order)
    places = {site: place for place, site in enumerate(walk)}
    return Hierarchy(walk, places, tuple(parent), tuple(size), _elders(parent, size))


def _elders(parent: Sequence[int], size: Sequence[int]) -> tuple[int, ...]:
    elder = [NOBODY] * len(parent)
    for place in range(1, len(parent)):
        after = place + size[place]
        if after < len(parent) and parent[after] == parent[place]:
            elder[after] = place
    return tuple(elder)
