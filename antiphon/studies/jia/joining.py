"""Beyond the paper: what one join costs a cluster, found by running it.

Two runs of the same sites, one with a join and one without, differ by what the join costs: all PDUs, also the
heartbeats that it adds, by their encoded size. The join makes and deletes no meta-group.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, NamedTuple

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site, site_names
from antiphon.core.inputs import Input, JoinGroup
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
JOIN_NS: Final = 220 * MILLISECOND_NS
"""When the site asks to join: all sites have heard one another's heartbeats by then."""
END_NS: Final = 620 * MILLISECOND_NS
"""By then the join is over, with all that it leads to."""
SIZES: Final = (10, 100, 1000)
SECONDS_PER_SITE: Final = 0.02


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A cluster that a site's join changes."""

    sites: Annotated[int, "sites"] = 50
    groups: Annotated[int, "groups"] = 10
    kind: Annotated[str, "how groups overlap: separate, moderate, heavy, profiles or neighbours"] = (
        "neighbours"
    )

    def __post_init__(self) -> None:
        if self.sites < 2 or self.groups < 2:
            raise UsageError("There are two sites and two groups at least.")
        if self.kind not in KINDS:
            raise UsageError(f"There is no overlap '{self.kind}'.", hint=f"There are: {', '.join(KINDS)}.")


class Bill(NamedTuple):
    """What all sites sent, and when the join was over."""

    pdus: int
    bytes: int
    joined_ns: Nanoseconds | None


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


def quiet_joins(membership: Membership) -> list[tuple[Site, Group]]:
    """Joins that make and delete no meta-group, of sites that are not the first of theirs."""
    sites_of = {meta_group.label: meta_group.sites for meta_group in form_meta_groups(membership)}
    return [
        (site, group)
        for label, sites in sorted(sites_of.items())
        for group in sorted(membership)
        if group not in label and tuple(sorted((*label, group))) in sites_of
        for site in sites[1:]
    ]


def bill(membership: Mapping[Group, tuple[Site, ...]], sites: list[Site], join: tuple[Site, Group] | None,
         seeds: Seeds) -> Bill:  # fmt: skip
    """What a run costs, with this join or without one."""
    meter, joined_ns = Meter(), []
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
        if join == (host.site, effect.group) and now >= JOIN_NS:
            joined_ns.append(now)

    world.on_group = note
    world.start()
    if join is not None:
        site, group = join
        world.at(JOIN_NS, partial(world.give, world.host(site), JoinGroup(group)))
    world.run(END_NS)
    return Bill(meter.pdus, meter.bytes, joined_ns[0] if joined_ns else None)


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:  # noqa: ARG001
    random = Seeds(seed).stream("jia/joining")
    membership = draw(configuration.kind, random, configuration.sites, configuration.groups)
    joins = quiet_joins(membership)
    if not joins:
        return {"pdus": None, "bytes": None, "wait_s": None}
    sites = site_names(configuration.sites)
    without = bill(membership, sites, None, Seeds(seed))
    spent = bill(membership, sites, random.choice(joins), Seeds(seed))
    return {
        "pdus": spent.pdus - without.pdus,
        "bytes": spent.bytes - without.bytes,
        "wait_s": None if spent.joined_ns is None else to_seconds(spent.joined_ns - JOIN_NS),
        "quiet_pdus_per_s": without.pdus * SECOND_NS / END_NS,
    }


SCENARIO: Final = Scenario(
    name=NAME,
    summary="One join that makes and deletes no meta-group, and what it costs the cluster",
    example=f"antiphon simulate {NAME} --sites 100 --groups 20 --seed 0 --json",
    configuration=Configuration,
    run=run,
    promises=(),
    cost_s=lambda knobs: SECONDS_PER_SITE * knobs.sites,
)
GRID: Final = Grid(
    scenario=NAME,
    axes={"sites": SIZES, "kind": ("neighbours",)},
    derived={"groups": lambda point: groups_for(point["sites"])},
    seeds={"quick": 1, "full": 3},
)


def rows(results: Results) -> list[list[str]]:
    return [
        [
            f"{sites:,}",
            f"{point.metrics['pdus'].mean:,.0f}",
            f"{point.metrics['bytes'].mean / 1000:,.0f} KB",
            f"{point.metrics['bytes'].mean / sites:,.0f}",
            f"{1000 * point.metrics['wait_s'].mean:.0f} ms",
        ]
        for sites in SIZES
        for point in results.matching({"scenario": NAME, "sites": sites})
    ]


SECTION: Final = Section(
    title="Beyond the paper: what a join costs",
    text="A site joins a group, and makes and deletes no meta-group. As in the paper's section 6 the tree "
    "stays, and only the sites concerned take part: the first site of the view, which grants it; the primary "
    "sites on the ways from the node where both ways part to the site's old node and to its new one; the "
    "site; and the members of the group, which are told. Other sites learn of it before they multicast: two "
    "PDUs for each that does, not counted here, since none does.",
    tables=(
        Table(
            title="One join that makes and deletes no meta-group (run)",
            caption="Groups in a row, five sites for each. All PDUs that a run has more than the same run "
            "without the join, by their encoded size. Wait: until the site is in the group; 10 ms of it "
            "collect requests.",
            columns=("sites", "PDUs", "bytes", "bytes a site", "wait"),
            compute=rows,
        ),
    ),
)
