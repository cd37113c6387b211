"""Section 4.2: messages that bypass nodes which only pass them on. Claim J3.

Three ways through the same tree: along it, past all nodes that the section would bypass, and past only those
that keep any two groups in order. The savings of each are computed for random memberships; whether the order
holds is tested by running them, on random memberships and on two small ones where the section fails. The last
way is also a knob of our own protocol, which is run with it and without.
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Final

from antiphon.core.errors import UsageError
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.protocols.metagroups.shapes import Shape
from antiphon.protocols.metagroups.tree import build_forest
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.scenarios.metagroups import SCENARIO as METAGROUPS
from antiphon.spark.statistics import Point
from antiphon.studies.jia import relays
from antiphon.studies.jia.orders import judged
from antiphon.studies.jia.relays import EXAMPLE_SITES, EXAMPLES, WAYS, require_ways, shortcuts
from antiphon.studies.jia.settings import KIND_WORDS, KINDS, draw, groups_for
from antiphon.studies.judging import judged_by, mean, runs, total
from antiphon.studies.model import Finding, Section, Table
from antiphon.studies.results import Results
from antiphon.studies.study import Grid, fixed

STRUCTURE_NAME: Final = "antiphon.studies.jia.bypassing:STRUCTURE"
RUNS_NAME: Final = "antiphon.studies.jia.bypassing:RUNS"
SIZES: Final = (15, 30, 50)
SHAPES: Final[dict[Shape, str]] = {"printed": "the paper's", "shallow": "shallow"}
CONSIDERABLY: Final = 0.5


# What is saved


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Memberships, and how messages go through their trees."""

    sites: Annotated[int, "sites"] = 15
    groups: Annotated[int, "groups"] = 3
    kind: Annotated[str, "how groups overlap: separate, moderate, heavy, profiles or neighbours"] = "moderate"
    shape: Annotated[Shape, "printed or shallow"] = "printed"
    ways: Annotated[str, "tree, section (4.2 as printed) or pairwise"] = "section"
    memberships: Annotated[int, "memberships that are drawn"] = 20

    def __post_init__(self) -> None:
        if self.sites < 2 or self.groups < 2 or self.memberships < 1:
            raise UsageError("There are two sites, two groups and one membership at least.")
        if self.kind not in KINDS:
            raise UsageError(f"There is no overlap '{self.kind}'.", hint=f"There are: {', '.join(KINDS)}.")
        require_ways(self.ways)


def structure(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:  # noqa: ARG001
    """The same seed draws the same memberships for all ways."""
    random = Seeds(seed).stream("jia/bypassing")
    extra = levels = groups = conflicting = 0
    for _ in range(configuration.memberships):
        membership = draw(configuration.kind, random, configuration.sites, configuration.groups)
        forest = build_forest(membership, shape=configuration.shape)
        chosen = shortcuts(forest, configuration.ways)
        conflicting += bool(chosen.conflicts())
        groups += len(membership)
        for group in membership:
            extra += len(chosen.extra(group))
            levels += chosen.depth(group)
    return {
        "memberships": configuration.memberships,
        "extra": extra / groups,
        "depth": levels / groups,
        "conflicting": conflicting,
    }


STRUCTURE: Final = Scenario(
    name=STRUCTURE_NAME,
    summary="What it saves to go past extra nodes (Jia and So, 4.2)",
    example=f"antiphon simulate {STRUCTURE_NAME} --ways pairwise --seed 0 --json",
    configuration=Configuration,
    run=structure,
    promises=(),
    cost_s=lambda knobs: 1e-6 * knobs.sites**2 * knobs.memberships,
)


# Whether the order holds


def run(configuration: relays.Configuration, seed: int, recorder: Recorder | None) -> Metrics:  # noqa: ARG001
    return judged(relays.SCENARIO, configuration, seed)


RUNS: Final = dataclasses.replace(
    relays.SCENARIO,
    name=RUNS_NAME,
    summary="Messages that go past extra nodes, and the order in which they come (Jia and So, 4.2)",
    example=f"antiphon simulate {RUNS_NAME} --example 'two groups' --members 3 --ways section --seed 0",
    run=run,
    promises=(),
    audited=False,
)


# The runs of the study

BUSY: Final[dict[str, Any]] = {"messages": 150, "rate": 1500.0, "jitter_ms": 8.0, "outsiders": 1.0}
DRAWN_SITES: Final = 30
OWN: Final[dict[str, Any]] = {
    "members": 50,
    "groups": groups_for(50),
    "messages": 100,
    "rate": 50.0,
    "outsiders": 1.0,
    "delivery": "agreed",
    "acknowledge_ms": 0.0,
}
"""Our own protocol as the paper counts: delivered at once, with messages too rare to wait for each other."""
OWN_OVERLAPS: Final = (1.5, 2.0, 4.0)
OWN_WAYS: Final = {False: "along the tree", True: "past what is sound for two"}
GRIDS: Final = (
    Grid(
        scenario=STRUCTURE_NAME,
        axes={"sites": SIZES, "kind": tuple(KINDS), "shape": tuple(SHAPES), "ways": tuple(WAYS)},
        derived={"groups": lambda point: groups_for(point["sites"])},
        seeds={"quick": 1, "full": 5},
    ),
    Grid(
        scenario=RUNS_NAME,
        axes={**fixed(BUSY), "members": (EXAMPLE_SITES,), "example": tuple(EXAMPLES), "ways": tuple(WAYS)},
        seeds={"quick": 5, "full": 50},
    ),
    Grid(
        scenario=RUNS_NAME,
        axes={
            **fixed(BUSY),
            "members": (DRAWN_SITES,),
            "groups": (groups_for(DRAWN_SITES),),
            "example": ("moderate", "profiles"),
            "shape": tuple(SHAPES),
            "ways": tuple(WAYS),
        },
        seeds={"quick": 4, "full": 30},
    ),
    Grid(
        scenario=METAGROUPS.name,
        axes={
            **fixed(OWN),
            "overlap": OWN_OVERLAPS,
            "shape": tuple(SHAPES),
            "bypass": tuple(OWN_WAYS),
        },
        quick={"overlap": OWN_OVERLAPS[:2]},
        seeds={"quick": 1, "full": 10},
    ),
)


def ran(results: Results, **more: Any) -> list[Point]:
    return results.found({"scenario": RUNS_NAME, **more})


def of_runs(points: list[Point], metric: str = "broken_run") -> str:
    return f"{total(points, metric):.0f} of {runs(points)} runs"


def keeps_the_order(results: Results) -> Finding:
    section, along = ran(results, ways="section"), ran(results, ways="tree")
    pairwise = ran(results, ways="pairwise")
    broken = total(section, "broken_run")
    return Finding(
        ours=f"order broken in {of_runs(section)}, in {of_runs(section, 'disagreeing_run')} between two "
        f"sites; along the tree in {of_runs(along)}",
        interval=f"where only what is sound for two groups is passed: {of_runs(pairwise, 'disagreeing_run')} "
        f"between two sites, {of_runs(pairwise)} over three or more",
        holds=not broken,
        reason="<ABC>, <ABD>, <ACD> in a chain: C goes past <ABD> and A does not, so that the chain's ends "
        "can order A and C differently. <AB>, <BC>, <AC>: b before a, a before c, c before b. The section "
        "looks at groups that merge in at the nodes passed by, and not at those that come from above with "
        "it."
        if broken
        else "",
    )


def saves_extra_nodes(results: Results) -> Finding:
    """Over all memberships drawn with the paper's tree."""
    extra = {
        ways: mean(results.found({"scenario": STRUCTURE_NAME, "shape": "printed", "ways": ways}), "extra")
        for ways in WAYS
    }
    saved = 1 - extra["section"] / extra["tree"]
    sound = 1 - extra["pairwise"] / extra["tree"]
    return Finding(
        ours=f"{extra['tree']:.2f} extra nodes a group become {extra['section']:.2f}, {saved:.0%} fewer",
        interval=f"{extra['pairwise']:.2f}, {sound:.0%} fewer, where any two groups stay in order",
        holds=saved >= CONSIDERABLY,
        reason="It saves them, but not the order." if saved >= CONSIDERABLY else "",
    )


def own(**more: Any) -> dict[str, Any]:
    return {"scenario": METAGROUPS.name, **OWN, **more}


def own_order_is_kept(results: Results) -> Finding:
    points = results.found(own(bypass=True))
    violations = total(points, "violations")
    unfinished = runs(points) - total(points, "finished")
    return Finding(
        ours=f"{violations:.0f} violations, {unfinished:.0f} runs without end, in {runs(points)} runs",
        holds=not violations and not unfinished,
    )


def own_rows(results: Results) -> list[list[str]]:
    return [
        [
            f"{overlap:g}",
            words,
            told_ways,
            *(f"{mean(points, metric):.2f}" for metric in ("extra_nodes", "messages_per_multicast", "hops")),
            f"{total(points, 'violations'):.0f}",
        ]
        for overlap in OWN_OVERLAPS
        for shape, words in SHAPES.items()
        for bypass, told_ways in OWN_WAYS.items()
        if (points := results.matching(own(overlap=overlap, shape=shape, bypass=bypass)))
    ]


def saving_rows(results: Results) -> list[list[str]]:
    made = []
    for kind in KINDS:
        for shape, words in SHAPES.items():
            where = {"scenario": STRUCTURE_NAME, "kind": kind, "shape": shape, "sites": SIZES[-1]}
            if results.matching(where):
                points = {ways: results.found({**where, "ways": ways}) for ways in WAYS}
                section = points["section"]
                share = total(section, "conflicting") / total(section, "memberships")
                made.append(
                    [
                        kind,
                        words,
                        *(f"{mean(points[ways], 'extra'):.2f}" for ways in WAYS),
                        *(f"{mean(points[ways], 'depth'):.2f}" for ways in WAYS),
                        f"{share:.0%}",
                    ]
                )
    return made


def run_rows(results: Results) -> list[list[str]]:
    made = []
    for example in (*EXAMPLES, "moderate", "profiles"):
        for ways, words in WAYS.items():
            points = results.matching({"scenario": RUNS_NAME, "example": example, "ways": ways})
            if points:
                made.append([example, words, of_runs(points), of_runs(points, "disagreeing_run")])
    return made


SECTION: Final = Section(
    title="4.2 Going past extra nodes",
    text="A group's messages may have to pass nodes that are no part of the group. Section 4.2 bypasses "
    "those that have only one successor. As published it breaks the order; its sound part keeps any two "
    "groups in order, but allows a cycle of three.",
    tables=(
        Table(
            title=f"What is saved, {SIZES[-1]} sites and {groups_for(SIZES[-1])} groups (worked out)",
            caption="Extra nodes and depth, means over groups; conflicting: memberships in which section 4.2 "
            "lets two groups be ordered differently at different sites. "
            + "; ".join(f"{kind}: {words}" for kind, words in KIND_WORDS.items())
            + ".",
            columns=(
                "overlap",
                "tree",
                "extra: tree",
                "4.2",
                "sound for two",
                "depth: tree",
                "4.2",
                "sound for two",
                "conflicting",
            ),
            compute=saving_rows,
        ),
        Table(
            title="Whether the order holds (run)",
            caption="Runs with a cycle in what the sites delivered, and runs in which two sites differ. The "
            "examples are of three sites; the others of 30, with both trees.",
            columns=("groups", "ways", "broken", "two sites differ"),
            compute=run_rows,
        ),
        Table(
            title=f"Our protocol with the knob and without, {OWN['members']} sites and {OWN['groups']} "
            "groups (run)",
            caption="Overlap: groups that a site is in on average. Messages a multicast and delays until the "
            "last member has it, in the network's; delivered at once, as in the paper. Violated: what is "
            "promised, which with the knob is that no two sites differ, and not one order of all.",
            columns=("overlap", "tree", "ways", "extra", "messages", "delay", "violated"),
            compute=own_rows,
        ),
    ),
    claims=judged_by(
        "jia",
        J3a=keeps_the_order,
        J3b=saves_extra_nodes,
        J3c=own_order_is_kept,
    ),
)
