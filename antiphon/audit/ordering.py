"""The agreed order of a run, as far as there is one: the merge of its lanes, and the messages entangled.

Where rows share a step, a lane is laid out as several sequences (`order.strands`), with barriers that stand
for the moments between steps. A barrier is a further node, numbered after the messages.
"""

from itertools import pairwise
from typing import Any, Final

import numpy as np

from antiphon.audit.kernels import identity, order
from antiphon.audit.lanes import Lanes
from antiphon.check.graphs import shortest_cycle

WHOLE_SEARCH: Final = 500
"""Up to this many entangled messages, every one is tried as the start of a shortest cycle."""
CYCLE_STARTS: Final = 1000
"""Beyond that, at most this many backward arcs are tried, the shortest first. Raising it costs time."""

Array = Any
Places = tuple[int, int]


class Order:
    """The merged order of a run's deliveries and, where arcs lead backward in it, the entangled messages."""

    def __init__(self, lanes: Lanes, messages: int) -> None:
        self.lanes = lanes
        self.messages = messages
        self.sequence, self.starts, self.origin, nodes = (
            lanes.delivered,
            lanes.starts,
            identity.empty(),
            messages,
        )
        if len(lanes.groups):
            self.sequence, self.starts, self.origin, nodes = order.strands(
                lanes.delivered, lanes.starts, lanes.groups, lanes.rows, messages
            )
        self.position, self.placed, certain = order.merge(self.sequence, self.starts, nodes)
        self.components: list[Array] = []
        if not certain:
            self._entangle()

    def _entangle(self) -> None:
        blocks = order.entangled_blocks(self.sequence, self.starts, self.position, self.placed)
        self.ends = order.arcs_within(self.sequence, self.starts, self.position, blocks)
        heads, tails = self.sequence[self.ends], self.sequence[self.ends - 1]
        self.nodes = np.unique(np.concatenate([heads, tails]))
        tail_nodes = np.searchsorted(self.nodes, tails)
        head_nodes = np.searchsorted(self.nodes, heads)
        self.offsets, self.targets, self.arcs = order.adjacency(tail_nodes, head_nodes, len(self.nodes))
        self.component = order.strong_components(self.offsets, self.targets)
        by_component = np.argsort(self.component, kind="stable")
        edges = np.flatnonzero(np.diff(self.component[by_component], prepend=-1, append=-1))
        # Nodes are in order of messages, so that the first of each component is its least.
        parts = [by_component[begin:end] for begin, end in pairwise(edges)]
        parts = [part[self.nodes[part] < self.messages] for part in parts]
        self.components = sorted((part for part in parts if len(part) > 1), key=lambda part: int(part[0]))

    def arcs_by_place(self) -> tuple[Array, Array]:
        """All arcs of the run, as places of the merged order grouped by tail."""
        ends = np.ones(len(self.sequence), np.bool_)
        ends[self.starts[:-1][self.starts[:-1] < len(ends)]] = False
        places = self.position[self.sequence]
        at = np.flatnonzero(ends)
        offsets, targets, _ = order.adjacency(places[at - 1], places[at], self.placed)
        return offsets, targets

    def by_place(self) -> Array:
        """The node at each place of the merged order."""
        placed = np.empty(self.placed, np.int32)
        held = np.flatnonzero(self.position >= 0)
        placed[self.position[held]] = held
        return placed

    def cycle(self, component: Array) -> list[Places]:
        """A shortest cycle, as pairs of deliveries of which one follows the other at a site."""
        if len(component) <= WHOLE_SEARCH:
            return self._shortest_of_all(component)
        return self._shortest_of_backward_arcs(component)

    def _is_barrier(self, node: int) -> bool:
        return bool(self.nodes[node] >= self.messages)

    def _arcs_from(self, node: int) -> list[tuple[int, int]]:
        """The nodes that arcs lead to from this one, each with the place in `sequence` where the arc ends."""
        return [
            (int(self.targets[slot]), int(self.ends[self.arcs[slot]]))
            for slot in range(self.offsets[node], self.offsets[node + 1])
        ]

    def _shortest_of_all(self, component: Array) -> list[Places]:
        graph: dict[int, dict[int, Places]] = {}
        inside = set(component.tolist())
        for node in component.tolist():
            following = graph.setdefault(node, {})
            for target, end in self._arcs_from(node):
                beyond = self._arcs_from(target) if self._is_barrier(target) else [(target, end)]
                for head, place in beyond:
                    if head in inside:
                        following.setdefault(head, (self._place(end - 1), self._place(place)))
        cycle = shortest_cycle(graph, component.tolist())
        return [graph[node][after] for node, after in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]

    def _shortest_of_backward_arcs(self, component: Array) -> list[Places]:
        """Every cycle has an arc that leads backward in the merged order, so starting there suffices."""
        tails = np.repeat(np.arange(len(self.nodes)), np.diff(self.offsets))
        places = self.position[self.nodes]
        span = places[tails] - places[self.targets]
        own = self.component == self.component[component[0]]
        backward = np.flatnonzero((span > 0) & own[tails] & own[self.targets])
        starts = dict.fromkeys(tails[backward[np.argsort(span[backward], kind="stable")]].tolist())
        came_by = np.full(len(self.nodes), -1, np.int64)
        best: Array = np.empty(0, np.int64)
        for start in list(starts)[:CYCLE_STARTS]:
            bound = len(best) if len(best) else len(self.nodes) + 1
            cycle = order.cycle_through(start, self.offsets, self.targets, self.component, came_by, bound)
            best = cycle if len(cycle) else best
            if len(best) == 2:
                break
        return self._without_barriers([int(self.ends[self.arcs[slot]]) for slot in best])

    def _without_barriers(self, ends: list[int]) -> list[Places]:
        """A cycle of arcs, each given by its end; two that meet in a barrier are one."""
        while self.sequence[ends[0] - 1] >= self.messages:
            ends = [*ends[1:], ends[0]]
        pairs: list[Places] = []
        first = ends[0] - 1
        for end in ends:
            if self.sequence[end - 1] < self.messages:
                first = end - 1
            if self.sequence[end] < self.messages:
                pairs.append((self._place(first), self._place(end)))
        return pairs

    def _place(self, index: int) -> int:
        """The place among all deliveries of an element of `sequence`."""
        return self.lanes.place(int(self.origin[index]) if len(self.origin) else index)
