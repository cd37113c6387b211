"""Total order: the graph of consecutive deliveries, over all sites of a run, has no cycle.

Without a cycle, every linear order that extends the graph is an order in which all sites delivered. With one,
no such order exists. Only a site's first delivery of a message counts. Rows of one step are unordered: each
of them directly follows each row of the step before. Domains are judged apart.
"""

from collections.abc import Iterator
from itertools import pairwise, product

from antiphon.check import explain
from antiphon.check.graphs import shortest_cycle, strong_components
from antiphon.check.history import Delivery, History, by_step
from antiphon.check.verdict import Violation, Witness
from antiphon.core.ids import MessageId

DeliveryGraph = dict[MessageId, dict[MessageId, explain.Arc]]
"""For each message, the messages that directly follow it at some site, with the first place where they do."""


def delivery_graph(history: History) -> DeliveryGraph:
    """Arcs between consecutive deliveries at a site; sites in order of name."""
    graph: DeliveryGraph = {}
    for site, lane in history.lanes():
        for delivery in lane:
            graph.setdefault(delivery.message, {})
        for first, second in _arcs(lane):
            arc = explain.Arc(site, first.message, first.step, second.message, second.step)
            graph[first.message].setdefault(second.message, arc)
    return graph


def _arcs(lane: list[Delivery]) -> Iterator[tuple[Delivery, Delivery]]:
    """The pairs of deliveries of which one directly follows the other."""
    steps = by_step(lane)
    for step in steps:
        for row in step:
            yield from pairwise(row)
    for step, following in pairwise(steps):
        yield from ((before[-1], after[0]) for before, after in product(step, following))


def check_total(history: History) -> list[Violation]:
    """One violation per strongly connected component of more than one message."""
    graph = delivery_graph(history)
    entangled = sorted(sorted(component) for component in strong_components(graph) if len(component) > 1)
    return [_violation(history, graph, component) for component in entangled]


def _violation(history: History, graph: DeliveryGraph, component: list[MessageId]) -> Violation:
    """`component` is sorted, so that its first message names it and the witness is always the same."""
    cycle = shortest_cycle(graph, component)
    arcs = [graph[first][second] for first, second in pairwise([*cycle, cycle[0]])]
    rows = [
        row
        for arc in arcs
        for row in (
            Witness(arc.site, arc.first_step, *arc.first),
            Witness(arc.site, arc.second_step, *arc.second),
        )
    ]
    story = explain.total(arcs, len(component))
    found = tuple(dict.fromkeys(rows))
    return Violation("total", history.run, None, *component[0], story, found, len(component))
