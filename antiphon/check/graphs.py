"""The few graph algorithms that the checkers need: plain, iterative, deterministic.

A graph is a mapping from each vertex to its successors; a vertex that only occurs as a successor has none.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def strong_components(graph: Mapping[Node, Collection[Node]]) -> list[list[Node]]:
    """The strongly connected components, each after every component that it points to (Tarjan 1972)."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    open_nodes: list[Node] = []
    is_open: set[Node] = set()
    components: list[list[Node]] = []
    for root in graph:
        if root in index:
            continue
        path: list[tuple[Node, Iterator[Node]]] = []
        _enter(root, graph, index, low, open_nodes, is_open, path)
        while path:
            node, successors = path[-1]
            for successor in successors:
                if successor not in index:
                    _enter(successor, graph, index, low, open_nodes, is_open, path)
                    break
                if successor in is_open:
                    low[node] = min(low[node], index[successor])
            else:
                path.pop()
                if path:
                    parent = path[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    components.append(_close(node, open_nodes, is_open))
    return components


def _enter(
    node: Node,
    graph: Mapping[Node, Collection[Node]],
    index: dict[Node, int],
    low: dict[Node, int],
    open_nodes: list[Node],
    is_open: set[Node],
    path: list[tuple[Node, Iterator[Node]]],
) -> None:
    index[node] = low[node] = len(index)
    open_nodes.append(node)
    is_open.add(node)
    path.append((node, iter(graph.get(node, ()))))


def _close(root: Node, open_nodes: list[Node], is_open: set[Node]) -> list[Node]:
    """Take the component of this root off the stack of open vertices."""
    component: list[Node] = []
    while True:
        node = open_nodes.pop()
        is_open.discard(node)
        component.append(node)
        if node == root:
            return component


def reachable(graph: Mapping[Node, Collection[Node]], start: Node) -> set[Node]:
    """The start and every vertex that a path leads to from it."""
    seen = {start}
    waiting = [start]
    while waiting:
        for successor in graph.get(waiting.pop(), ()):
            if successor not in seen:
                seen.add(successor)
                waiting.append(successor)
    return seen


def reverse(graph: Mapping[Node, Collection[Node]]) -> dict[Node, list[Node]]:
    """The same graph with every arc turned round."""
    turned: dict[Node, list[Node]] = {}
    for node, successors in graph.items():
        for successor in successors:
            turned.setdefault(successor, []).append(node)
    return turned


def shortest_cycle(graph: Mapping[Node, Collection[Node]], component: Iterable[Node]) -> list[Node]:
    """A shortest cycle among these vertices, from its start; one exists in a component of two or more.

    Each vertex is tried as the start, and a search stops as soon as it can't beat the best cycle so far; no
    cycle is shorter than two.
    """
    nodes = list(component)
    inside = set(nodes)
    best: list[Node] = []
    for start in nodes:
        cycle = _cycle_through(graph, start, inside, len(best))
        if cycle:
            best = cycle
        if len(best) == 2:
            break
    return best


def _cycle_through(
    graph: Mapping[Node, Collection[Node]], start: Node, inside: set[Node], bound: int
) -> list[Node]:
    """A shortest cycle through `start`; empty if there is none, or none shorter than a bound above 0."""
    came_from: dict[Node, Node] = {}
    frontier = [start]
    length = 1
    while frontier and (bound == 0 or length < bound):
        following: list[Node] = []
        for node in frontier:
            for successor in graph.get(node, ()):
                if successor == start:
                    return _walk_back(came_from, start, node)
                if successor in inside and successor not in came_from:
                    came_from[successor] = node
                    following.append(successor)
        frontier = following
        length += 1
    return []


def _walk_back(came_from: Mapping[Node, Node], start: Node, last: Node) -> list[Node]:
    backwards = [last]
    while backwards[-1] != start:
        backwards.append(came_from[backwards[-1]])
    return backwards[::-1]
