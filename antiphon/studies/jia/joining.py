"""Beyond the paper: what one join or leave costs a cluster, found by running it.

Two runs of the same sites, one with the change and one without, differ by what it costs: all PDUs, also the
heartbeats that it adds, by their encoded size. The change makes and deletes no meta-group; beside it, for
comparison, a join that makes one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, NamedTuple

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site, site_names
from antiphon.core.inputs import Input, JoinGroup, LeaveGroup
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds, to_seconds
from antiphon.protocols.metagroups import PDUS, MetaGroups, MetaGroupsConfiguration
from antiphon.protocols.metagroups.formation import form_meta_groups
from antiphon.sim.mesh import Mesh
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.sizes import encoded_size
from antiphon.sim.world import Host, World
from antiphon.studies.jia.settings import KINDS, Membership, draw, groups_for
from antiphon.studies.model import Section, Table
from antiphon.studies.results import Results
from antiphon.studies.study import Grid

NAME: Final = "antiphon.studies.jia.joining:SCENARIO"
CHANGE_NS: Final = 220 * MILLISECOND_NS
"""When the site asks to join or leave: all sites have heard one another's heartbeats by then."""
END_NS: Final = 620 * MILLISECOND_NS
"""By then the change is over, with all that it leads to."""
CHANGES: Final = {"join": "join", "leave": "leave", "create": "join that makes a meta-group"}
SIZES: Final = (10, 100, 1000)
LARGER_SIZES: Final = (100, 1000)
"""Sizes at which groups in a row leave room for another meta-group."""
SECONDS_PER_SITE: Final = 0.02


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A cluster whose groups a site joins or leaves."""

    sites: Annotated[int, "sites"] = 50
    groups: Annotated[int, "groups"] = 10
    kind: Annotated[str, "how groups overlap: separate, moderate, heavy, profiles or neighbours"] = (
        "neighbours"
    )
    change: Annotated[str, "join, leave, or create: a join that makes a meta-group"] = "join"

    def __post_init__(self) -> None:
        if self.sites < 2 or self.groups < 2:
            raise UsageError("There are two sites and two groups at least.")
        if self.kind not in KINDS:
            raise UsageError(f"There is no overlap '{self.kind}'.", hint=f"There are: {', '.join(KINDS)}.")
        if self.change not in CHANGES:
            raise UsageError(f"There is no change '{self.change}'.", hint=f"There are: {', '.join(CHANGES)}.")


class Bill(NamedTuple):
    """What all sites sent, and when the change was over."""

    pdus: int
    bytes: int
    done_ns: Nanoseconds | None


class Metered:
    """A site whose PDUs are weighed; implements `antiphon.core.protocol.Protocol`."""

    def __init__(self, protocol: MetaGroups, others: int, meter: "Meter") -> None:
        self._protocol = protocol
        self._others = others
        self._meter = meter

    def handle(self, now: Nanoseconds, event: Input) -> list[fx.Effect]:
        effects = self._protocol.handle(now, event)
        for effect in effects:
            if isinstance(effect, fx.Send):
                self._meter.count(effect, 1)
            elif isinstance(effect, fx.Multicast):
                self._meter.count(effect, self._others if effect.to is None else len(effect.to))
        return effects


class Meter:
    """Sums over all sites of a run."""

    def __init__(self) -> None:
        self.pdus = self.bytes = 0
        self._size_of = encoded_size(PDUS)

    def count(self, effect: fx.Send | fx.Multicast, copies: int) -> None:
        self.pdus += copies
        self.bytes += copies * self._size_of(effect.pdu)


def quiet_changes(membership: Membership, change: str) -> list[tuple[Site, Group]]:
    """Joins, or leaves, that make and delete no meta-group."""
    sites_of = {meta_group.label: meta_group.sites for meta_group in form_meta_groups(membership)}
    return [
        (site, group)
        for label, sites in sorted(sites_of.items())
        for group in sorted(membership)
        if (group in label) == (change == "leave")
        and tuple(sorted({*label} ^ {group})) in sites_of
        and len(sites) > 1
        for site in sites
    ]


def creating_joins(membership: Membership) -> list[tuple[Site, Group]]:
    """Joins that make a meta-group and delete none."""
    sites_of = {meta_group.label: meta_group.sites for meta_group in form_meta_groups(membership)}
    return [
        (site, group)
        for label, sites in sorted(sites_of.items())
        for group in sorted(membership)
        if group not in label and tuple(sorted({*label, group})) not in sites_of and len(sites) > 1
        for site in sites
    ]


def bill(
    membership: Mapping[Group, tuple[Site, ...]],
    sites: list[Site],
    request: tuple[Site, JoinGroup | LeaveGroup] | None,
    seeds: Seeds,
) -> Bill:
    """What a run costs, with this request or without one."""
    meter, done_ns = Meter(), []
    knobs = MetaGroupsConfiguration()

    def build(site: Site) -> Metered:
        protocol = MetaGroups(site, membership, knobs, seeds.stream(f"metagroups/{site}"), others=sites)
        return Metered(protocol, len(sites) - 1, meter)

    world = World(
        sites=sites,
        build=build,
        network=Mesh(len(sites), seeds, delay_ns=MILLISECOND_NS),
        size_of=lambda _: 0,
    )

    def note(now: Nanoseconds, host: Host, effect: fx.Joined | fx.Left) -> None:
        if request is not None and (host.site, effect.group) == (request[0], request[1].group):
            done_ns.append(now)

    world.start()
    if request is not None:
        site, wish = request
        world.run(CHANGE_NS)
        world.on_group = note
        world.at(CHANGE_NS, partial(world.give, world.host(site), wish))
    world.run(END_NS)
    return Bill(meter.pdus, meter.bytes, done_ns[0] if done_ns else None)


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:  # noqa: ARG001
    random = Seeds(seed).stream("jia/joining")
    membership = draw(configuration.kind, random, configuration.sites, configuration.groups)
    is_quiet = configuration.change != "create"
    changes = quiet_changes(membership, configuration.change) if is_quiet else creating_joins(membership)
    if not changes:
        return {"pdus": None, "bytes": None, "wait_s": None}
    sites = site_names(configuration.sites)
    site, group = random.choice(changes)
    wish = LeaveGroup(group) if configuration.change == "leave" else JoinGroup(group)
    without = bill(membership, sites, None, Seeds(seed))
    spent = bill(membership, sites, (site, wish), Seeds(seed))
    return {
        "pdus": spent.pdus - without.pdus,
        "bytes": spent.bytes - without.bytes,
        "wait_s": None if spent.done_ns is None else to_seconds(spent.done_ns - CHANGE_NS),
        "quiet_pdus_per_s": without.pdus * SECOND_NS / END_NS,
    }


SCENARIO: Final = Scenario(
    name=NAME,
    summary="One join or leave, and what it costs the cluster (Jia and So, 6)",
    example=f"antiphon simulate {NAME} --sites 100 --groups 20 --seed 0 --json",
    configuration=Configuration,
    run=run,
    promises=(),
    cost_s=lambda knobs: SECONDS_PER_SITE * knobs.sites,
)
GRIDS: Final = (
    Grid(
        scenario=NAME,
        axes={"sites": SIZES, "kind": ("neighbours",), "change": ("join", "leave")},
        derived={"groups": lambda point: groups_for(point["sites"])},
        seeds={"quick": 1, "full": 3},
    ),
    Grid(
        scenario=NAME,
        axes={"sites": LARGER_SIZES, "kind": ("neighbours",), "change": ("create",)},
        quick={"sites": LARGER_SIZES[:1]},
        derived={"groups": lambda point: groups_for(point["sites"])},
        seeds={"quick": 1, "full": 1},
    ),
)


def rows(results: Results) -> list[list[str]]:
    return [
        [
            f"{sites:,}",
            words,
            f"{point.metrics['pdus'].mean:,.0f}",
            f"{point.metrics['bytes'].mean / 1000:,.1f} KB",
            f"{point.metrics['bytes'].mean / sites:,.0f}",
            f"{1000 * point.metrics['wait_s'].mean:.0f} ms",
        ]
        for change, words in CHANGES.items()
        for sites in SIZES
        for point in results.matching({"scenario": NAME, "sites": sites, "change": change})
    ]


SECTION: Final = Section(
    title="Beyond the paper: what a join or leave costs",
    text="A site joins or leaves a group, and makes and deletes no meta-group. As in the paper's section 6 "
    "the tree stays, and only the sites concerned take part: the first site of the view, which grants it; "
    "the primary sites on the ways from the node where both ways part to the site's old node and to its new "
    "one; the site; and the members of the group, which are told. Other sites learn of it before they "
    "multicast: two PDUs for each that does, not counted here, since none does. A leave waits until no site "
    "names the site any more, which heartbeats tell that are sent anyway.\n\nA join that makes a meta-group "
    "changes a tree, and so the view: all sites of the cluster agree on it, by differences to the view that "
    "they have.",
    tables=(
        Table(
            title="One join or leave (run)",
            caption="Groups in a row, five sites for each; no meta-group is made or deleted but where it "
            "says so. All PDUs that a run has more than the same run without the change, by their encoded "
            "size. Wait: until the site is in the group, or out of it.",
            columns=("sites", "change", "PDUs", "bytes", "bytes a site", "wait"),
            compute=rows,
        ),
    ),
)
