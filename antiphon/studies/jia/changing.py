"""Joins and leaves, computed on the trees: which of them alter a tree, and how much of it. Claim J6.

Links are compared with those of a forest built from scratch. Whether a tree is replaced is what the
protocol's own decision says (`AgreedTrees`).

Two kinds of change: a site joins or leaves a single group, both drawn at random; or a site leaves all its
groups, and a site in no group joins the groups of some other site, as a process that starts with a profile
does. Garcia-Molina's tree of sites is computed for the same changes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any, Final, NamedTuple

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site, site_names
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.protocols.metagroups.agreed import AgreedTrees
from antiphon.protocols.metagroups.changes import Change, change
from antiphon.protocols.metagroups.formation import Label
from antiphon.protocols.metagroups.shapes import Shape
from antiphon.protocols.metagroups.tree import Forest, build_forest
from antiphon.protocols.rivals.propagation_tree.tree import build_tree
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.spark.statistics import Point
from antiphon.studies.jia.settings import KIND_WORDS, KINDS, QUICK_SIZES, SIZES, draw, groups_for
from antiphon.studies.judging import judged_by, mean, total, unless
from antiphon.studies.model import Curve, Figure, Finding, Panel, Section, Table
from antiphon.studies.results import Results
from antiphon.studies.study import Grid

NAME: Final = "antiphon.studies.jia.changing:SCENARIO"
MOVES: Final = {"single": "one group joined or left", "whole": "a site comes or goes with all its groups"}
SECONDS_PER_SITE: Final = 6e-5


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A membership that changes."""

    sites: Annotated[int, "sites"] = 50
    groups: Annotated[int, "groups"] = 10
    kind: Annotated[str, "how groups overlap: separate, moderate, heavy, profiles or neighbours"] = "moderate"
    shape: Annotated[Shape, "shallow or printed"] = "shallow"
    moves: Annotated[str, "single (one group joined or left) or whole (all of a site's groups)"] = "single"
    changes: Annotated[int, "joins and leaves, one after the other"] = 40

    def __post_init__(self) -> None:
        if self.sites < 2 or self.groups < 2 or self.changes < 1:
            raise UsageError("There are two sites, two groups and one change at least.")
        if self.kind not in KINDS:
            raise UsageError(f"There is no overlap '{self.kind}'.", hint=f"There are: {', '.join(KINDS)}.")
        if self.moves not in MOVES:
            raise UsageError(f"There is no change '{self.moves}'.", hint=f"There are: {', '.join(MOVES)}.")


class Move(NamedTuple):
    """What a site joins and what it leaves."""

    site: Site
    joins: tuple[Group, ...]
    leaves: tuple[Group, ...]

    def applied(self, forest: Forest) -> Change:
        return change(
            forest,
            [(self.site, group) for group in self.joins],
            [(self.site, group) for group in self.leaves],
        )


def draw_move(random: Random, forest: Forest, sites: list[Site], groups: list[Group], moves: str) -> Move:
    """The next change; half of them are joins, and half of the sites are always there."""
    if moves == "single":
        return _single(random, forest, sites, groups)
    away = [site for site in sites if site not in forest.label_of]
    present = sorted(forest.label_of)
    if 2 * len(away) >= len(sites) or (away and random.random() < 0.5):
        return Move(random.choice(away), forest.label_of[random.choice(present)], ())
    site = random.choice(present)
    return Move(site, (), forest.label_of[site])


def _single(random: Random, forest: Forest, sites: list[Site], groups: list[Group]) -> Move:
    """Half of the changes are leaves, of sites that are in several groups, so that none is left without."""
    several = [site for site, label in sorted(forest.label_of.items()) if len(label) > 1]
    joinable = [site for site in sites if len(forest.label_of.get(site, ())) < len(groups)]
    if several and (random.random() < 0.5 or not joinable):
        site = random.choice(several)
        return Move(site, (), (random.choice(forest.label_of[site]),))
    site = random.choice(joinable)
    label = forest.label_of.get(site, ())
    return Move(site, (random.choice([group for group in groups if group not in label]),), ())


class Count:
    """The effects of changes on both kinds of tree."""

    def __init__(self, forest: Forest, sites: int) -> None:
        self._sites = sites
        self._agreed = AgreedTrees(forest.membership(), forest.shape)
        self.replaced = 0
        self._parents = build_tree(forest.membership()).parent
        self.altered = self.reparented = self.silent = self.exceptions = 0
        self.stopped_share = 0.0
        self.sites_changed = self.sites_restructured = 0

    def add(self, before: Forest, after: Change, move: Move) -> None:
        replacement = self._agreed.change(after.forest.membership())
        if after.created or after.deleted:
            self.altered += 1
            self.reparented += bool(after.reparented)
            self.stopped_share += _sites_below(before, after.stopped) / self._sites
        else:
            self.silent += 1
            self.exceptions += _links_differ(before, after.forest)
            self.replaced += bool(replacement.planted)
        old, new = self._parents, build_tree(after.forest.membership()).parent
        self._parents = new
        self.sites_changed += old != new
        self.sites_restructured += any(old[site] != new.get(site) for site in old if site != move.site)

    def metrics(self) -> Metrics:
        changes = self.altered + self.silent
        return {
            "changes": changes,
            "altered_share": self.altered / changes,
            "reparented_share": self.reparented / changes,
            "stopped_share": self.stopped_share / self.altered if self.altered else 0.0,
            "sites_changed_share": self.sites_changed / changes,
            "sites_restructured_share": self.sites_restructured / changes,
            "silent": self.silent,
            "exceptions": self.exceptions,
            "replaced": self.replaced,
        }


def _sites_below(forest: Forest, roots: Iterable[Label]) -> int:
    return sum(len(forest.nodes[label].sites) for root in roots for label in forest.tree(root))


def _links_differ(before: Forest, after: Forest) -> bool:
    """Whether a forest built from scratch for the new membership has other links than the old one."""
    built = build_forest(after.membership(), shape=before.shape)
    return any(
        label not in built.nodes or built.nodes[label].parent != node.parent
        for label, node in before.nodes.items()
    ) or len(built.nodes) != len(before.nodes)


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:  # noqa: ARG001
    random = Seeds(seed).stream("jia/changing")
    membership = draw(configuration.kind, random, configuration.sites, configuration.groups)
    forest = build_forest(membership, shape=configuration.shape)
    sites, groups = site_names(configuration.sites), list(membership)
    count = Count(forest, configuration.sites)
    for _ in range(configuration.changes):
        move = draw_move(random, forest, sites, groups, configuration.moves)
        after = move.applied(forest)
        count.add(forest, after, move)
        forest = after.forest
    return count.metrics()


SCENARIO: Final = Scenario(
    name=NAME,
    summary="Joins and leaves, and the trees that they alter (Jia and So, 6)",
    example=f"antiphon simulate {NAME} --sites 150 --groups 30 --moves whole --seed 0 --json",
    configuration=Configuration,
    run=run,
    promises=(),
    cost_s=lambda knobs: 0.001 + SECONDS_PER_SITE * knobs.sites * knobs.changes,
)


# The runs of the study

OFTEN, SELDOM = 60, 10
"""Large trees are changed less often: each change is compared with trees built from scratch."""


def grid(shape: Shape, sizes: Sequence[int], changes: int) -> Grid:
    return Grid(
        scenario=NAME,
        axes={
            "sites": sizes,
            "kind": tuple(KINDS),
            "moves": tuple(MOVES),
            "shape": (shape,),
            "changes": (changes,),
        },
        quick={"sites": [size for size in sizes if size in QUICK_SIZES]},
        derived={"groups": lambda point: groups_for(point["sites"])},
        seeds={"quick": 1, "full": 5},
    )


GRIDS: Final = (
    grid("shallow", SIZES[:3], OFTEN),
    grid("shallow", SIZES[3:], SELDOM),
    grid("printed", SIZES[:3], OFTEN),
)


def where(**more: Any) -> dict[str, Any]:
    return {"scenario": NAME, **more}


def share(results: Results, metric: str, **more: Any) -> float:
    """Over all changes that were made."""
    points = results.found(where(**more))
    weights = [point.metrics["changes"].mean * point.metrics["changes"].count for point in points]
    values = [point.metrics[metric].mean for point in points]
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def silent_changes_change_nothing(results: Results) -> Finding:
    points = results.found(where())
    silent, exceptions = total(points, "silent"), total(points, "exceptions")
    holds = exceptions == 0 and total(points, "replaced") == 0
    kept = []
    for moves, words in MOVES.items():
        some = results.found(where(moves=moves))
        count, replaced = total(some, "silent"), total(some, "replaced")
        kept.append(f"for {count - replaced:.0f} of {count:.0f} where {words}")
    return Finding(
        ours=f"of {silent:.0f} such changes, {exceptions:.0f} alter links; our protocol keeps all trees "
        + ", ".join(kept),
        holds=holds,
        reason=unless(
            holds,
            "The links stay, as the text argues. Our protocol keeps the tree when a site joins or leaves "
            "one of its groups. It plants it anew for a site that comes from outside the tree or leaves all "
            "its groups, since the sites of a tree are a part of what all sites agree on; and for a site "
            "that returns to a node where it was since then.",
        ),
    )


def every_change_restructures_sites(results: Results) -> Finding:
    by_moves = {moves: share(results, "sites_changed_share", moves=moves) for moves in MOVES}
    others = {moves: share(results, "sites_restructured_share", moves=moves) for moves in MOVES}
    holds = min(by_moves.values()) >= 1.0
    return Finding(
        ours=f"{by_moves['single']:.0%} of single joins and leaves and {by_moves['whole']:.0%} of whole "
        f"sites that come or go change a link; anyone else than that site is moved by {others['single']:.0%} "
        f"and {others['whole']:.0%}",
        holds=holds,
        reason=unless(
            holds,
            "Most sites are leaves of the tree, or stay leaves below the same site; built after the idea of "
            "the text, since Garcia-Molina and Spauster leave choices open.",
        ),
    )


def alters_fewer(results: Results) -> Finding:
    """At every kind, size and kind of change, compared with links of the tree of sites."""
    points = results.found(where(shape="shallow"))
    worse = [
        point
        for point in points
        if point.metrics["altered_share"].mean > point.metrics["sites_changed_share"].mean
    ]
    single, whole = (share(results, "altered_share", moves=moves, shape="shallow") for moves in MOVES)
    sites = [share(results, "sites_changed_share", moves=moves, shape="shallow") for moves in MOVES]
    return Finding(
        ours=f"single changes: {single:.0%} against {sites[0]:.0%}; whole sites: {whole:.0%} against "
        f"{sites[1]:.0%}; more than in the tree of sites at {len(worse)} of {len(points)} points",
        holds=not worse,
        reason="Where few sites are in the same groups, a site that joins or leaves one makes or empties a "
        "meta-group nearly always."
        if worse
        else "",
    )


def rows(results: Results) -> list[list[str]]:
    made = []
    for kind in KINDS:
        for moves, words in MOVES.items():
            for sites in SIZES:
                points = results.matching(where(kind=kind, moves=moves, sites=sites, shape="shallow"))
                if points:
                    made.append([kind, words, str(sites), *(_cells(points))])
    return made


def _cells(points: list[Point]) -> list[str]:
    names = ("altered_share", "reparented_share", "stopped_share", "sites_changed_share")
    return [f"{mean(points, name):.0%}" for name in (*names, "sites_restructured_share")]


def panel(moves: str) -> Panel:
    return Panel(
        title=MOVES[moves],
        x="sites",
        x_label="sites",
        y="altered_share",
        y_label="share of changes that alter a tree",
        curves=[
            Curve(name=kind, where=where(kind=kind, moves=moves, shape="shallow"), hue=hue)
            for hue, kind in enumerate(KINDS)
        ],
        log_x=True,
    )


SECTION: Final = Section(
    title="6 Changes of membership",
    text="Joins and leaves, computed on the trees. In the tree of meta-groups a change matters only if it "
    "creates or empties a meta-group. How often it does depends on how many sites share the same groups: "
    "rarely where sites share profiles, nearly always where each has its own.",
    figures=(
        Figure(
            id="J6",
            title="Changes that alter a tree of meta-groups",
            caption="; ".join(f"{kind}: {words}" for kind, words in KIND_WORDS.items()) + ".",
            panels=[panel(moves) for moves in MOVES],
        ),
    ),
    tables=(
        Table(
            title="What changes alter (worked out, shallow tree)",
            caption="Altered: a meta-group was made or emptied. Reparented: a meta-group that stays got "
            "another parent; the other altered trees only gained or lost a leaf. Standing still: sites in "
            "the altered trees, as a share of all. Tree of sites: a link differs, and one of another site's "
            "than that which moved.",
            columns=(
                "overlap",
                "change",
                "sites",
                "altered",
                "reparented",
                "standing still",
                "tree of sites: links",
                "others moved",
            ),
            compute=rows,
        ),
    ),
    claims=judged_by(
        "jia",
        J6a=silent_changes_change_nothing,
        J6b=every_change_restructures_sites,
        J6c=alters_fewer,
    ),
)
