"""The shape of Guo's network: a balanced tree whose interior nodes pass messages on.

Source: K. Guo, Scalable Message Stability Detection Protocols, sections 5.1 and 5.3.1.
The root and every interior node have three children (so that all but the root have degree 4). Nodes are
numbered level by level from 0 and all levels but the last are full. The text does not say how the nodes of
the last level hang: 'even' spreads them over the parents, which fits its figures best; 'left' fills the
parents one after another. Dense groups have a member at every node, sparse ones at node 0 and at others
drawn at random. Besides the tree there are the other two shapes of figure 5.1: a star, the tree whose root
has all other nodes as children, and a chain, in which each node has one.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from antiphon.core.errors import UsageError

IntegerArray: TypeAlias = NDArray[np.int64]
Fill = Literal["even", "left"]
Shape = Literal["tree", "star", "chain"]

CHILDREN_PER_NODE: Final = 3
NO_NODE: Final = -1


@dataclass(frozen=True, eq=False)
class Tree:
    """Arrays indexed by node. The children of a node are numbered consecutively.

    `enter` is a node's place in a depth-first walk that visits children in order and `size` counts the nodes
    of its sub-tree, itself included; so the sub-tree of y is what has enter[y] <= enter < enter[y] + size[y].
    """

    parent: IntegerArray
    first_child: IntegerArray
    children: IntegerArray
    depth: IntegerArray
    enter: IntegerArray
    size: IntegerArray

    @property
    def nodes(self) -> int:
        return len(self.parent)

    @property
    def height(self) -> int:
        """Links from the root to the deepest node."""
        return int(self.depth[-1])

    def children_of(self, node: int) -> range:
        first = int(self.first_child[node])
        return range(first, first + int(self.children[node]))

    def ancestors(self, node: int) -> list[int]:
        """From the parent up to the root."""
        found = []
        while (node := int(self.parent[node])) != NO_NODE:
            found.append(node)
        return found

    def below(self, node: int, root: int) -> bool:
        """Whether a node lies in the sub-tree of another (or is it)."""
        return bool(self.enter[root] <= self.enter[node] < self.enter[root] + self.size[root])


@lru_cache(maxsize=32)
def grow_tree(nodes: int, fill: Fill = "even", shape: Shape = "tree") -> Tree:
    """The tree of this many nodes; its arrays are shared and must not be written to."""
    if nodes < 1:
        raise UsageError(f"A tree of {nodes} nodes makes no sense.", hint="It needs at least one node.")
    width = {"tree": CHILDREN_PER_NODE, "star": max(1, nodes - 1), "chain": 1}[shape]
    levels = _levels(nodes, width)
    parent = np.full(nodes, NO_NODE, np.int64)
    depth = np.zeros(nodes, np.int64)
    for height, (above, level) in enumerate(pairwise(levels), start=1):
        depth[level.start : level.stop] = height
        parent[level.start : level.stop] = above.start + _parents(len(level), len(above), fill, width)
    children = np.bincount(parent[1:], minlength=nodes).astype(np.int64)
    first_child = 1 + np.concatenate([np.zeros(1, np.int64), np.cumsum(children)[:-1]])
    size = _sizes(parent, levels)
    tree = Tree(parent, first_child, children, depth, _walk(parent, first_child, size, levels), size)
    for array in vars(tree).values():
        array.setflags(write=False)
    return tree


def draw_members(tree: Tree, members: int, random: np.random.Generator) -> list[int]:
    """The nodes of a sparse group in order: node 0 and members-1 others drawn at random."""
    if not 1 <= members <= tree.nodes:
        raise UsageError(
            f"{members} members do not fit a network of {tree.nodes} nodes.",
            hint="Lower the members or raise the network's nodes.",
        )
    others = random.choice(tree.nodes - 1, size=members - 1, replace=False) + 1
    return [0, *sorted(int(node) for node in others)]


def _levels(nodes: int, width: int) -> list[range]:
    """The node numbers of each level."""
    levels = [range(1)]
    while levels[-1].stop < nodes:
        first = levels[-1].stop
        levels.append(range(first, min(first + width * len(levels[-1]), nodes)))
    return levels


def _parents(count: int, parents: int, fill: Fill, width: int) -> IntegerArray:
    """For each of a level's `count` nodes, the index of its parent on the level above."""
    places = np.arange(count, dtype=np.int64)
    if fill == "left":
        return places // width
    if count <= parents:
        return places * parents // count
    bounds = np.arange(parents + 1, dtype=np.int64) * count // parents
    return np.repeat(np.arange(parents, dtype=np.int64), np.diff(bounds))


def _sizes(parent: IntegerArray, levels: list[range]) -> IntegerArray:
    size = np.ones(len(parent), np.int64)
    for level in reversed(levels[1:]):
        np.add.at(size, parent[level.start : level.stop], size[level.start : level.stop])
    return size


def _walk(
    parent: IntegerArray, first_child: IntegerArray, size: IntegerArray, levels: list[range]
) -> IntegerArray:
    """Each node's place in the depth-first walk: after its parent and its elder siblings' sub-trees."""
    enter = np.zeros(len(parent), np.int64)
    sizes_before = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])
    for level in levels[1:]:
        nodes = np.arange(level.start, level.stop)
        above = parent[nodes]
        enter[nodes] = enter[above] + 1 + sizes_before[nodes] - sizes_before[first_child[above]]
    return enter
