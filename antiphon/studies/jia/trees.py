"""Sections 3, 4.1 and 6: the trees. Figures 2 to 4, claims J1 and J2, and the depths of J5."""

from typing import Final

from antiphon.protocols.metagroups.formation import Label, label_text
from antiphon.protocols.metagroups.tree import Forest, build_forest
from antiphon.studies.formatting import number
from antiphon.studies.jia import orders
from antiphon.studies.jia.judging import USUALLY
from antiphon.studies.jia.settings import KIND_WORDS, KINDS, SIZES, Membership
from antiphon.studies.jia.structure import NAME, SHAPES, TREES, where
from antiphon.studies.judging import judged_by, total
from antiphon.studies.model import Curve, Figure, Finding, Panel, Section, Table
from antiphon.studies.results import Results

FIGURE_2: Final[Membership] = {
    "A": ("s0", "s4", "s5", "s7", "s8", "s9"),
    "B": ("s1", "s4", "s6", "s8", "s9"),
    "C": ("s2", "s5", "s6", "s8", "s9", "s10"),
    "D": ("s3", "s7", "s10"),
}
"""A site in each area of figure 2, and two in the darkest."""
META_GROUPS: Final = ("ABC", "AB", "AC", "AD", "BC", "CD", "A", "B", "C", "D")
PRIMARIES: Final = {"A": "ABC", "B": "ABC", "C": "ABC", "D": "AD"}
CHILDREN: Final = {"ABC": {"AB", "AC", "BC", "A", "B", "C", "AD"}, "AD": {"D", "CD"}}
"""Figure 4 as section 4.1 describes it."""


# J1


def rules_hold(results: Results) -> Finding:
    points = [point for shape in SHAPES for point in results.found({"scenario": NAME, "approach": shape})]
    broken, drawn = total(points, "broken"), total(points, "memberships")
    return Finding(
        ours=f"{broken:.0f} exceptions in {number(drawn)} trees, of 4 to {max(SIZES)} sites, half of them "
        "built as printed and half shallow",
        holds=broken == 0,
    )


def one_order(results: Results) -> Finding:
    broken, runs = orders.broken(results, "metagroups")
    other, other_runs = orders.broken(results, "group-sequencers")
    return Finding(
        ours=f"broken in {broken:.0f} of {runs} runs",
        interval=f"a sequencer for each group: broken in {other:.0f} of {other_runs}",
        holds=broken == 0,
    )


# J2


def _named(name: str) -> Label:
    return tuple(name)


def misread(forest: Forest) -> list[str]:
    """The differences from the paper's example."""
    wrong = []
    if set(forest.nodes) != set(map(_named, META_GROUPS)):
        wrong.append("The meta-groups differ.")
    wrong += [
        f"The primary of {group} is {label_text(forest.primary_of[group])}."
        for group, primary in PRIMARIES.items()
        if forest.primary_of[group] != _named(primary)
    ]
    wrong += [
        f"The children of {label_text(_named(parent))} differ."
        for parent, children in CHILDREN.items()
        if set(forest.nodes[_named(parent)].children) != set(map(_named, children))
    ]
    if forest.route("C").extra != (_named("AD"),):
        wrong.append("<CD> is not reached through <AD>.")
    return wrong


def worked_example(results: Results) -> Finding:  # noqa: ARG001
    wrong = [
        sentence for shape in SHAPES.values() for sentence in misread(build_forest(FIGURE_2, shape=shape))
    ]
    return Finding(
        ours=" ".join(wrong)
        or "10 meta-groups; <ABC> root and primary of A, B, C; <AD> primary of D; C reaches <CD> through "
        "<AD>; the same tree in both shapes",
        holds=not wrong,
    )


# The depths of J5


def usually(results: Results, metric: str, words: str) -> Finding:
    """Whether it holds for more than half of the groups at every kind and size, in the paper's tree."""
    shares = {
        (point.parameters["kind"], point.parameters["sites"]): point.metrics[metric].mean
        for point in results.found({"scenario": NAME, "approach": "printed", "memberships": 1})
    }
    sparse = sorted(place for place, share in shares.items() if share <= USUALLY)
    worst = min(shares, key=lambda place: shares[place])
    shallow = results.found(where("shallow", *worst[:1], sites=worst[1]))[0].metrics[metric].mean
    kinds = ", ".join(sorted({kind for kind, _ in sparse}))
    return Finding(
        ours=f"{words} for more than half of the groups at {len(shares) - len(sparse)} of {len(shares)} "
        f"points; least with {worst[0]} overlap and {worst[1]} sites: {shares[worst]:.0%} of the groups",
        interval=f"there {shallow:.0%} in the shallow tree",
        holds=not sparse,
        reason=f"Not with {kinds} overlap. The procedure goes on from each meta-group to the next that "
        "shares a group with it, so that where most sites are in groups of their own choice the tree is a "
        "long chain."
        if sparse
        else "",
    )


def depth_is_two(results: Results) -> Finding:
    return usually(results, "shallow_share", "depth at most 2")


def three_delays(results: Results) -> Finding:
    return usually(results, "three_hops_share", "at most 3T")


def shorter_than_sites(results: Results) -> Finding:
    """The paper claims a depth; a member waits for hops."""
    longer = []
    points = results.found({"scenario": NAME, "approach": "printed", "memberships": 1})
    means = {"printed": 0.0, "shallow": 0.0, "sites": 0.0}
    for point in points:
        kind, sites = point.parameters["kind"], point.parameters["sites"]
        hops = {tree: results.one(where(tree, kind, sites=sites), "hops").mean for tree in TREES}
        means = {tree: means[tree] + hops[tree] / len(points) for tree in TREES}
        if hops["printed"] > hops["sites"]:
            longer.append(kind)
    return Finding(
        ours=f"mean hops {means['printed']:.1f} in the paper's tree, {means['sites']:.1f} in the tree of "
        f"sites; longer at {len(longer)} of {len(points)} points",
        interval=f"{means['shallow']:.1f} in the shallow tree",
        holds=not longer,
        reason="A tree of sites needs no last step from a primary site to its meta-group, and its root has "
        "all that it separates as children; the paper's tree is a chain."
        if longer
        else "",
    )


SHOWN: Final = {
    "nodes": ".0f",
    "trees": ".0f",
    "depth": ".1f",
    "depth_median": ".0f",
    "depth_max": ".0f",
    "shallow_share": ".0%",
    "hops": ".1f",
    "extra": ".1f",
}
"""The metrics of the table, each with its format."""


def rows(results: Results) -> list[list[str]]:
    made = []
    for kind in KINDS:
        for sites in SIZES:
            for tree, words in TREES.items():
                for point in results.matching(where(tree, kind, sites=sites)):
                    cells = [f"{point.metrics[name].mean:{form}}" for name, form in SHOWN.items()]
                    made.append([kind, str(sites), words, *cells])
    return made


def panel(tree: str) -> Panel:
    return Panel(
        title=TREES[tree],
        x="sites",
        x_label="sites",
        y="hops",
        y_label="hops until all members have it",
        curves=[Curve(name=kind, where=where(tree, kind), hue=hue) for hue, kind in enumerate(KINDS)],
        log_x=True,
        log_y=True,
    )


SECTION: Final = Section(
    title="3 and 4.1 The trees and their order",
    text="Memberships drawn in five ways, with a group for every five sites: "
    + "; ".join(f"{kind} ({words})" for kind, words in KIND_WORDS.items())
    + ". Trees are worked out for all of them; orders are those of runs with delays of 1 to 6 ms and 2% "
    "loss.",
    figures=(
        Figure(
            id="J5",
            title="Hops of a multicast by the number of sites (worked out)",
            caption="Mean over groups, for a sender that is no primary site; both axes are logarithmic.",
            panels=[panel(tree) for tree in TREES],
        ),
    ),
    tables=(
        Table(
            title="One order at common members (run)",
            caption="12 sites in 5 groups; sites in 1.1, 2 and 4 groups on average. Broken: runs with a "
            "cycle in what was delivered. Others: lost, doubled or misdirected messages.",
            columns=("protocol", "runs", "deliveries", "broken", "two sites differ", "others"),
            compute=orders.rows,
        ),
        Table(
            title="Trees (worked out)",
            caption="Depth in nodes, from the primary node to the farthest. Up to 2: the share of groups "
            "whose subtree is no deeper, as the text has it.",
            columns=(
                "overlap",
                "sites",
                "tree",
                "nodes",
                "trees",
                "depth",
                "median",
                "largest",
                "up to 2",
                "hops",
                "extra nodes",
            ),
            compute=rows,
        ),
    ),
    claims=judged_by(
        "jia",
        J1a=rules_hold,
        J1b=one_order,
        J2=worked_example,
    ),
)
