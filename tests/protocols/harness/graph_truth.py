"""What precedence graphs are tested with: true orders, what sites may know of them, a look inside."""

from dataclasses import dataclass
from itertools import pairwise
from random import Random

from antiphon.protocols.dpg.graph import PrecedenceGraph
from antiphon.protocols.dpg.pdus import ORIGIN, Arc, Tag


@dataclass
class Truth:
    """Messages in their true order, and for each site the arcs between those that it received in turn."""

    order: list[Tag]
    heard: list[list[Arc]]

    @classmethod
    def draw(cls, rng: Random, most: int) -> "Truth":
        count = rng.randint(1, most)
        order = rng.sample(range(1, 100), count)
        share, detector = rng.choice((0.3, 0.6, 0.9)), rng.choice((0.0, 0.5, 1.0))
        heard = []
        for _ in range(rng.randint(1, 4)):
            received = [-1, *(place for place in range(count) if rng.random() < share)]
            heard.append(
                [
                    (order[tail] if tail >= 0 else ORIGIN, order[head], marked and rng.random() < detector)
                    for tail, head in pairwise(received)
                    for marked in (tail + 1 == head,)
                ]
            )
        return cls(order, heard)

    def allows(self, tail: Tag, head: Tag, marked: bool) -> bool:
        places = [-1 if tag == ORIGIN else self.order.index(tag) for tag in (tail, head)]
        return places[0] + 1 == places[1] if marked else places[0] < places[1]


def check_inside(graph: PrecedenceGraph) -> None:
    """What must hold of the parts whatever was told; chains and ranks are looked at from inside."""
    chains = {vertex.chain for vertex in graph.vertices.values()}
    for chain in chains:
        assert all(vertex.chain is chain and graph.vertices[vertex.tag] is vertex for vertex in chain.members)
        assert all(one.position + 1 == other.position for one, other in pairwise(chain.members))
        assert all(after.rank > chain.rank and chain in after.predecessors for after in chain.successors)
        assert all(chain in before.successors for before in chain.predecessors)
    assert set(graph._sources) == {chain for chain in chains if not chain.predecessors}
    assert set(graph._sinks) == {chain for chain in chains if not chain.successors}
    assert graph._lead is None or graph._lead in graph._sources
    assert bool(graph.front()) == bool(graph.sinks()) == bool(len(graph))
    for tail, heads in graph._awaited.items():
        assert heads
        assert tail not in graph
        assert all(tail in dict(graph.origins(head)) for head in heads)
