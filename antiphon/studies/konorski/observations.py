"""Section 5, observations 1 to 3 on random graphs: claim K1.

Messages are drawn in a true order; each site hears some of them and, as its detector lets it, knows of some
consecutive receptions that nothing lay between. What a site heard is its report.
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
from antiphon.studies.konorski.judging import found, total
from antiphon.studies.model import Claim, Finding, Grid, Results, Section

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
            raise UsageError("A graph needs two messages, and somebody who reports them.")


@dataclass(frozen=True)
class World:
    """A true order and what each site heard of it."""

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
        """Whether the true order is as the arc says."""
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
    """All that is known to precede something."""
    return {pair for pair in permutations(graph, 2) if graph.precedes(*pair)}


def receive_next(world: World, random: Random) -> tuple[int, int, int]:
    """Observation 2: the next message comes. Arcs there were, arcs gone then, and relations gone then.

    Whatever is known then lies before it, as it does where reports share the ordered channel.
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
    points = found(results, {"scenario": NAME})
    untrue = total(points, "untrue") + total(points, "contradictions")
    return Finding(
        ours=f"{untrue:.0f} of {total(points, 'arcs'):.0f} arcs against the true order, in "
        f"{total(points, 'graphs'):.0f} graphs",
        holds=untrue == 0,
    )


def never_undoes(results: Results) -> Finding:
    points = found(results, {"scenario": NAME})
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
    points = found(results, {"scenario": NAME})
    dependent = total(points, "order_dependent")
    return Finding(
        ours=f"{dependent:.0f} of {total(points, 'graphs'):.0f} graphs differ", holds=dependent == 0
    )


SECTION: Final = Section(
    title="5 Observations on the precedence graph",
    text="Random orders, of which sites hear a part and notice some contiguities. Their reports are united "
    "and linearised.",
    claims=(
        Claim(
            id="K1a",
            where="5, observation 1",
            statement="Linearisation keeps the graph consistent with the true order.",
            theirs="proved",
            judge=stays_true,
        ),
        Claim(
            id="K1b",
            where="5, observation 2",
            statement="The reception of a message never undoes what is known.",
            theirs="proved",
            judge=never_undoes,
        ),
        Claim(
            id="K1c",
            where="5, observation 3",
            statement="The result does not depend on the order in which reports arrive.",
            theirs="proved",
            judge=order_does_not_matter,
        ),
    ),
)
