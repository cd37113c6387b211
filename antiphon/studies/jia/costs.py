"""Section 6: messages and delays of a multicast, run and compared with the text's formulas. J4 and J5.

Every protocol is run on the same memberships and with the same multicasts, too rare to wait for one another,
over a network with a constant delay.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from antiphon.spark.statistics import Point
from antiphon.studies.jia import relays, trees
from antiphon.studies.jia.judging import ITS_OWN, costs, costs_without_its_own
from antiphon.studies.jia.settings import OVERLAPS, SITES_A_GROUP
from antiphon.studies.jia.structure import NAME as STRUCTURE
from antiphon.studies.jia.structure import TREES
from antiphon.studies.jia.structure import where as structure
from antiphon.studies.judging import is_near, judged_by, total
from antiphon.studies.model import Finding, Section, Table
from antiphon.studies.results import Results
from antiphon.studies.study import Grid

MEMBERS: Final = (30, 60, 100)
QUICK_MEMBERS: Final = MEMBERS[:2]
RARE: Final[dict[str, Any]] = {"messages": 200, "rate": 50.0, "outsiders": 1.0}
"""Too far apart to wait for one another, each to a group drawn from all."""


def size(point: Point) -> float:
    """n: the mean number of sites that a multicast of the run went to."""
    return point.metrics["deliveries"].mean / point.metrics["batches"].mean


def extra(point: Point) -> float:
    return point.metrics["extra_nodes"].mean


def depth(point: Point) -> float:
    return point.metrics["depth"].mean


@dataclass(frozen=True, kw_only=True)
class Rival:
    """A protocol as the text counts it."""

    words: str
    scenario: str
    knobs: Mapping[str, Any] = field(default_factory=dict)
    messages_text: str
    messages: Callable[[Point], float]
    hops_text: str
    hops: Callable[[Point], float]

    def where(self, **more: Any) -> dict[str, Any]:
        return {"scenario": self.scenario, **RARE, **self.knobs, **more}


RIVALS: Final[Mapping[str, Rival]] = {
    "central": Rival(
        words="one sequencer",
        scenario="global-sequencer",
        messages_text="n + 1",
        messages=lambda point: size(point) + 1,
        hops_text="2T",
        hops=lambda _: 2.0,
    ),
    "each": Rival(
        words="a sequencer for each group",
        scenario="group-sequencers",
        messages_text="n + 1",
        messages=lambda point: size(point) + 1,
        hops_text="2T",
        hops=lambda _: 2.0,
    ),
    **{
        f"token {resilience}": Rival(
            words=f"token, L = {resilience}",
            scenario="token",
            knobs={"resilience": resilience},
            messages_text="n + L",
            messages=lambda point, length=resilience: size(point) + length,  # type: ignore[misc]
            hops_text="(L + 1)T",
            hops=lambda _, length=resilience: length + 1.0,  # type: ignore[misc]
        )
        for resilience in (3, 5)
    },
    "two-phase": Rival(
        words="two-phase",
        scenario="two-phase",
        messages_text="3n",
        messages=lambda point: 3 * size(point),
        hops_text="at least 3T",
        hops=lambda _: 3.0,
    ),
    "sites": Rival(
        words="tree of sites",
        scenario="propagation-tree",
        messages_text="n + e",
        messages=lambda point: size(point) + extra(point),
        hops_text="(d + 1)T",
        hops=lambda point: depth(point) + 1,
    ),
    **{
        shape: Rival(
            words=TREES[shape],
            scenario=relays.NAME,
            knobs={"shape": shape},
            messages_text="n + e",
            messages=lambda point: size(point) + extra(point),
            hops_text="3T, (d + 1)T",
            hops=lambda point: depth(point) + 1,
        )
        for shape in ("printed", "shallow")
    },
}
GRIDS: Final = tuple(
    Grid(
        scenario=rival.scenario,
        axes={
            **{name: (value,) for name, value in {**RARE, **rival.knobs}.items()},
            "members": MEMBERS,
            "overlap": tuple(OVERLAPS.values()),
        },
        quick={"members": QUICK_MEMBERS},
        derived={"groups": lambda point: point["members"] // SITES_A_GROUP},
        seeds={"quick": 1, "full": 5},
    )
    for rival in RIVALS.values()
)


def messages(point: Point) -> float:
    return point.metrics["messages_per_multicast"].mean


def hops(point: Point) -> float:
    return point.metrics["hops"].mean


def costs_what_is_said(results: Results, *names: str) -> Finding:
    """At every point; the finding names the worst."""
    pairs = [
        (messages(point), RIVALS[name].messages(point), point)
        for name in names
        for point in results.found(RIVALS[name].where())
    ]
    ours, theirs, point = max(pairs, key=lambda pair: abs(pair[0] - pair[1]) / pair[1])
    return Finding(
        ours=f"{ours:.2f} where the formula gives {theirs:.2f}, farthest apart of {len(pairs)} points (n = "
        f"{size(point):.1f})",
        holds=all(costs_without_its_own(ours, theirs) for ours, theirs, _ in pairs),
        condition="" if all(costs(ours, theirs) for ours, theirs, _ in pairs) else ITS_OWN,
    )


def takes_what_is_said(results: Results, *names: str) -> Finding:
    pairs = [
        (hops(point), RIVALS[name].hops(point))
        for name in names
        for point in results.found(RIVALS[name].where())
    ]
    ours, theirs = max(pairs, key=lambda pair: abs(pair[0] - pair[1]) / pair[1])
    return Finding(
        ours=f"{ours:.2f}T where the formula gives {theirs:.2f}T, farthest apart of {len(pairs)} points",
        holds=all(is_near(ours, theirs) for ours, theirs in pairs),
    )


def takes_three_at_least(results: Results) -> Finding:
    values = [hops(point) for point in results.found(RIVALS["two-phase"].where())]
    return Finding(ours=f"{min(values):.2f}T to {max(values):.2f}T", holds=is_near(min(values), 3.0))


def fewer_extra_nodes(results: Results) -> Finding:
    """Computed at every kind and size, in the tree as printed."""
    points = results.found({"scenario": STRUCTURE, "approach": "printed", "memberships": 1})
    more = 0
    means = dict.fromkeys(TREES, 0.0)
    for point in points:
        kind, sites = point.parameters["kind"], point.parameters["sites"]
        found_extra = {tree: results.one(structure(tree, kind, sites=sites), "extra").mean for tree in TREES}
        means = {tree: means[tree] + found_extra[tree] / len(points) for tree in TREES}
        more += found_extra["printed"] > found_extra["sites"]
    return Finding(
        ours=f"{means['printed']:.1f} in the paper's tree, {means['sites']:.1f} in the tree of sites, means "
        f"over all points; more at {more} of {len(points)}",
        interval=f"{means['shallow']:.1f} in the shallow tree",
        holds=not more,
        reason="The paper's tree becomes a chain where most sites are in groups of their own choice. The "
        "text has its optimisation in mind, which does not keep the order (J3)."
        if more
        else "",
    )


def rows(results: Results) -> list[list[str]]:
    return [
        [str(members), f"{overlap:g}", rival.words, *_cells(rival, point)]
        for members in MEMBERS
        for overlap in OVERLAPS.values()
        for rival in RIVALS.values()
        for point in results.matching(rival.where(members=members, overlap=overlap))
    ]


def _cells(rival: Rival, point: Point) -> list[str]:
    return [
        f"{size(point):.1f}",
        rival.messages_text,
        f"{rival.messages(point):.1f}",
        f"{messages(point):.1f}",
        rival.hops_text,
        f"{rival.hops(point):.1f}",
        f"{hops(point):.2f}",
        f"{point.metrics['busiest_load'].mean:.2f}",
        f"{total([point], 'violations'):.0f}",
    ]


SECTION: Final = Section(
    title="6 Messages and delays",
    text="All protocols on the same memberships, with a group for every five sites. A run's multicasts are "
    "too far apart to wait for one another. n, e and d are those of the groups that were drawn; e and d are "
    "means over groups.",
    tables=(
        Table(
            title="A multicast's messages and delays (run)",
            caption="Formula and measured, in messages and in units of the network's delay. Load: messages "
            "that the busiest site sends and receives for each multicast of the run. Violated: what the "
            "checkers found against each protocol's own promises; a sequencer for each group promises no "
            "order across groups.",
            columns=(
                "sites",
                "overlap",
                "protocol",
                "n",
                "messages",
                "formula",
                "measured",
                "delay",
                "formula",
                "measured",
                "load",
                "violated",
            ),
            compute=rows,
        ),
    ),
    claims=judged_by(
        "jia",
        J4a=lambda results: costs_what_is_said(results, "central", "each"),
        J4b=lambda results: costs_what_is_said(results, "token 3", "token 5"),
        J4c=lambda results: costs_what_is_said(results, "two-phase"),
        J4d=lambda results: costs_what_is_said(results, "sites"),
        J4e=lambda results: costs_what_is_said(results, "printed", "shallow"),
        J4f=fewer_extra_nodes,
        J5a=lambda results: takes_what_is_said(results, "central", "each"),
        J5b=lambda results: takes_what_is_said(results, "token 3", "token 5"),
        J5c=takes_three_at_least,
        J5d=lambda results: takes_what_is_said(results, "sites"),
        J5e=trees.three_delays,
        J5f=trees.depth_is_two,
        J5g=trees.shorter_than_sites,
    ),
)
