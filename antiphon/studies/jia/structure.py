"""Trees computed for random memberships, without a run: rules, depth, extra nodes, hops and loads.

Up to 1,000 sites and 200 groups, for the paper's tree, our shallower one, and Garcia-Molina's tree of sites;
the other approaches have no structure, only a load. Part of claims J1, J4 and J5.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any, Final, NamedTuple

from antiphon.core.errors import UsageError
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.protocols.metagroups.shapes import Shape
from antiphon.protocols.metagroups.tree import Forest, broken_rules, build_forest
from antiphon.protocols.rivals.propagation_tree.tree import build_tree
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.studies.jia.loads import LOADS
from antiphon.studies.jia.settings import KINDS, QUICK_SIZES, SIZES, Membership, draw, groups_for
from antiphon.studies.study import Grid

NAME: Final = "antiphon.studies.jia.structure:SCENARIO"
SHAPES: Final[Mapping[str, Shape]] = {"shallow": "shallow", "printed": "printed"}
TREES: Final = {
    "printed": "meta-groups, the paper's tree",
    "shallow": "meta-groups, shallow tree",
    "sites": "tree of sites",
}
OTHERS: Final = {
    "central": "one sequencer",
    "each": "a sequencer for each group",
    "token": "token",
    "two-phase": "two-phase",
}
APPROACHES: Final = {**TREES, **OTHERS}
HUES: Final = {approach: hue for hue, approach in enumerate(APPROACHES)}
"""The colour of each approach, the same in all figures."""
SECONDS_PER_SITE: Final = 1e-4
SECONDS_PER_PRINTED_PAIR: Final = 5e-7


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Memberships, and the structure built for them."""

    sites: Annotated[int, "sites"] = 50
    groups: Annotated[int, "groups"] = 10
    kind: Annotated[str, "how groups overlap: separate, moderate, heavy, profiles or neighbours"] = "moderate"
    approach: Annotated[str, "printed, shallow, sites, central, each, token or two-phase"] = "shallow"
    memberships: Annotated[int, "memberships that are drawn"] = 1

    def __post_init__(self) -> None:
        if self.sites < 2 or self.groups < 1 or self.memberships < 1:
            raise UsageError("There are two sites, one group and one membership at least.")
        if self.kind not in KINDS:
            raise UsageError(f"There is no overlap '{self.kind}'.", hint=f"There are: {', '.join(KINDS)}.")
        if self.approach not in APPROACHES:
            raise UsageError(
                f"There is no approach '{self.approach}'.", hint=f"There are: {', '.join(APPROACHES)}."
            )


class Way(NamedTuple):
    """One group's part of a tree."""

    depth: int
    """The depth in nodes."""
    extra: int
    hops: int


class Structure(NamedTuple):
    """The properties of a tree or a forest."""

    ways: list[Way]
    nodes: int
    trees: int
    broken: int
    """Exceptions from the paper's two rules."""


def build(approach: str, membership: Membership) -> Structure | None:
    """The structure of an approach that has one."""
    if approach in SHAPES:
        return _forest(build_forest(membership, shape=SHAPES[approach]))
    if approach == "sites":
        return _sites(membership)
    return None


def _forest(forest: Forest) -> Structure:
    routes = [forest.route(group) for group in forest.primary_of]
    ways = [Way(route.depth, len(route.extra), route.hops) for route in routes]
    return Structure(ways, len(forest.nodes), len(forest.roots), len(broken_rules(forest)))


def _sites(membership: Membership) -> Structure:
    tree = build_tree(membership)
    ways = [Way(route.depth + 1, len(route.extra), route.depth + 1) for route in tree.routes.values()]
    trees = sum(above is None for above in tree.parent.values())
    return Structure(ways, len(tree.parent), trees, 0)


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:  # noqa: ARG001
    """The same seed draws the same memberships for every approach."""
    random = Seeds(seed).stream("jia/structure")
    sizes: list[int] = []
    busiest: list[float] = []
    structures: list[Structure] = []
    for _ in range(configuration.memberships):
        membership = draw(configuration.kind, random, configuration.sites, configuration.groups)
        sizes += map(len, membership.values())
        busiest.append(max(LOADS[configuration.approach](membership, configuration.sites).values()))
        structure = build(configuration.approach, membership)
        if structure is not None:
            structures.append(structure)
    return {
        "memberships": configuration.memberships,
        "size": _mean(sizes),
        "busiest_load": _mean(busiest),
        **(_described(structures) if structures else {}),
    }


def _described(structures: list[Structure]) -> Metrics:
    ways = [way for structure in structures for way in structure.ways]
    depths = [way.depth for way in ways]
    return {
        "drawn_groups": len(ways),
        "depth": _mean(depths),
        "depth_median": median(depths),
        "depth_max": max(depths),
        "shallow_share": sum(depth <= 2 for depth in depths) / len(depths),
        "extra": _mean([way.extra for way in ways]),
        "hops": _mean([way.hops for way in ways]),
        "three_hops_share": sum(way.hops <= 3 for way in ways) / len(ways),
        "nodes": _mean([structure.nodes for structure in structures]),
        "trees": _mean([structure.trees for structure in structures]),
        "broken": sum(structure.broken for structure in structures),
    }


def _mean(values: list[int] | list[float]) -> float:
    return sum(values) / len(values)


def cost_s(knobs: Configuration) -> float:
    each = SECONDS_PER_SITE * knobs.sites
    if knobs.approach == "printed":
        each += SECONDS_PER_PRINTED_PAIR * knobs.sites**2
    return 0.001 + each * knobs.memberships


SCENARIO: Final = Scenario(
    name=NAME,
    summary="Propagation trees of random overlapping groups (Jia and So, 4 and 6)",
    example=f"antiphon simulate {NAME} --sites 1000 --groups 200 --seed 0 --json",
    configuration=Configuration,
    run=run,
    promises=(),
    cost_s=cost_s,
)

SMALL_SITES: Final = (4, 6, 9)
SMALL_GROUPS: Final = (3, 5)
GRIDS: Final = (
    Grid(
        scenario=NAME,
        axes={"sites": SIZES, "kind": tuple(KINDS), "approach": tuple(APPROACHES)},
        quick={"sites": QUICK_SIZES},
        derived={"groups": lambda point: groups_for(point["sites"])},
        seeds={"quick": 1, "full": 5},
    ),
    Grid(
        scenario=NAME,
        axes={
            "sites": SMALL_SITES,
            "groups": SMALL_GROUPS,
            "kind": tuple(KINDS),
            "approach": tuple(SHAPES),
            "memberships": (200,),
        },
        seeds={"quick": 1, "full": 10},
    ),
)
"""Large memberships one at a time, small ones in large numbers."""


def where(approach: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"scenario": NAME, "approach": approach, "kind": kind, "memberships": 1, **more}
