"""Section 5, observations 1 to 3 on random graphs: claim K1.

Messages are drawn in a true order. Each site receives some of them and, as far as its detector allows, knows
of some pairs that they are consecutive. A site's report is what it received.
"""

from dataclasses import dataclass
from itertools import pairwise, permutations
from random import Random
from typing import Annotated, Final

from antiphon.core.errors import UsageError
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.protocols.dpg.graph import PrecedenceGraph
from antiphon.protocols.dpg.pdus import ORIGIN, Arc, Tag
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.studies.judging import judged_by, total
from antiphon.studies.model import Finding, Section
from antiphon.studies.results import Results
from antiphon.studies.study import Grid

NAME: Final = "antiphon.studies.konorski.observations:SCENARIO"
SECONDS_PER_GRAPH: Final = 0.002


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Random graphs."""

    graphs: Annotated[int, "graphs that are drawn"] = 200
    messages: Annotated[int, "messages of each"] = 16
    sites: Annotated[int, "sites that report"] = 4
    heard: Annotated[float, "share of the messages that a site hears"] = 0.7
    detected: Annotated[float, "share of the contiguities that it notices"] = 0.5

    def __post_init__(self) -> None:
        if min(self.graphs, self.sites) < 1 or self.messages < 2:
            raise UsageError("A graph needs at least two messages and one site that reports them.")


@dataclass(frozen=True)
class World:
    """A true order, and what each site received of it."""

    order: list[Tag]
    reports: list[list[Arc]]

    @classmethod
    def draw(cls, random: Random, knobs: Configuration) -> "World":
        order = random.sample(range(1, 10 * knobs.messages), knobs.messages)
        reports = []
        for _ in range(knobs.sites):
            heard = [place for place in range(len(order)) if random.random() < knobs.heard]
            reports.append(
                [
                    (
                        order[tail] if tail >= 0 else ORIGIN,
                        order[head],
                        tail + 1 == head and random.random() < knobs.detected,
                    )
                    for tail, head in pairwise([-1, *heard])
                ]
            )
        return cls(order, reports)

    def allows(self, arc: Arc) -> bool:
        """Whether the true order agrees with the arc."""
        tail, head, marked = arc
        before = -1 if tail == ORIGIN else self.order.index(tail)
        after = self.order.index(head)
        return before + 1 == after if marked else before < after


def unite(graph: PrecedenceGraph, report: list[Arc]) -> None:
    for tail, head, marked in report:
        if head not in graph:
            graph.add(head, 0)
        graph.connect(tail, head, marked=marked)


def united(reports: list[list[Arc]]) -> PrecedenceGraph:
    graph = PrecedenceGraph()
    for report in reports:
        unite(graph, report)
    return graph


def relations(graph: PrecedenceGraph) -> set[tuple[Tag, Tag]]:
    """All known predecessors of a message."""
    return {pair for pair in permutations(graph, 2) if graph.precedes(*pair)}


def receive_next(world: World, random: Random) -> tuple[int, int, int]:
    """Observation 2: the next message arrives. Returns the arcs before, the arcs removed, the relations lost.

    All known messages precede it, as they do where reports share the ordered channel.
    """
    place = random.randrange(1, len(world.order))
    past, new = set(world.order[:place]), world.order[place]
    reports = [[arc for arc in report if arc[1] in past] for report in world.reports]
    graph = united(reports)
    known, arcs = relations(graph), {(tail, head) for tail, head, _ in graph.arcs()}
    latest = reports[0][-1][1] if reports[0] else ORIGIN
    tails = graph.sinks() or [ORIGIN]
    graph.add(new, 0)
    for tail in tails:
        contiguous = tail == latest and latest == world.order[place - 1]
        graph.connect(tail, new, marked=contiguous)
    left = {(tail, head) for tail, head, _ in graph.arcs()}
    return len(arcs), len(arcs - left), len(known - relations(graph))


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:  # noqa: ARG001
    random = Seeds(seed).stream("observations")
    arcs = untrue = dependent = contradictions = before = replaced = undone = 0
    for _ in range(configuration.graphs):
        world = World.draw(random, configuration)
        graph = united(world.reports)
        linear = graph.arcs()
        arcs += len(linear)
        untrue += sum(not world.allows(arc) for arc in linear)
        contradictions += graph.contradictions
        shuffled = random.sample(world.reports, len(world.reports))
        dependent += united(shuffled).arcs() != linear
        there, gone, relations_gone = receive_next(world, random)
        before += there
        replaced += gone
        undone += relations_gone
    return {
        "graphs": configuration.graphs,
        "arcs": arcs,
        "untrue": untrue,
        "contradictions": contradictions,
        "order_dependent": dependent,
        "arcs_before": before,
        "arcs_replaced": replaced,
        "relations_undone": undone,
    }


SCENARIO: Final = Scenario(
    name=NAME,
    summary="Precedence graphs of random orders against observations 1 to 3 (Konorski, 5)",
    example=f"antiphon simulate {NAME} --graphs 1000 --seed 0 --json",
    configuration=Configuration,
    run=run,
    promises=(),
    cost_s=lambda knobs: SECONDS_PER_GRAPH * knobs.graphs,
)

GRID: Final = Grid(
    scenario=NAME,
    axes={"heard": (0.4, 0.7, 0.9), "detected": (0.0, 0.5, 1.0)},
    seeds={"quick": 2, "full": 20},
)


def stays_true(results: Results) -> Finding:
    points = results.found({"scenario": NAME})
    untrue = total(points, "untrue") + total(points, "contradictions")
    return Finding(
        ours=f"{untrue:.0f} of {total(points, 'arcs'):.0f} arcs against the true order, in "
        f"{total(points, 'graphs'):.0f} graphs",
        holds=untrue == 0,
    )


def never_undoes(results: Results) -> Finding:
    points = results.found({"scenario": NAME})
    undone, replaced = total(points, "relations_undone"), total(points, "arcs_replaced")
    return Finding(
        ours=f"{undone:.0f} relations undone",
        holds=undone == 0,
        reason=f"As a statement of arcs it does not hold: {replaced:.0f} of "
        f"{total(points, 'arcs_before'):.0f} arcs gave way to paths. What they said stays known."
        if replaced
        else "",
    )


def order_does_not_matter(results: Results) -> Finding:
    points = results.found({"scenario": NAME})
    dependent = total(points, "order_dependent")
    return Finding(
        ours=f"{dependent:.0f} of {total(points, 'graphs'):.0f} graphs differ", holds=dependent == 0
    )


SECTION: Final = Section(
    title="5 Observations on the precedence graph",
    text="Random orders, of which sites receive a part and detect some contiguities. Their reports are "
    "merged and linearised.",
    claims=judged_by(
        "konorski",
        K1a=stays_true,
        K1b=never_undoes,
        K1c=order_does_not_matter,
    ),
)
