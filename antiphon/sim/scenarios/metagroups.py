"""`antiphon simulate metagroups`: trees of meta-groups over overlapping groups, under every fault."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, Literal, cast

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.inputs import JoinGroup, LeaveGroup
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import Nanoseconds, from_seconds
from antiphon.protocols.metagroups import (
    DATA_PDUS,
    PDUS,
    PROMISES,
    MetaGroups,
    MetaGroupsConfiguration,
    promises,
)
from antiphon.protocols.metagroups.bypass import Shortcuts, bypassed
from antiphon.protocols.metagroups.shapes import Shape
from antiphon.protocols.metagroups.tree import build_forest
from antiphon.sim.churn import Crash, Fault
from antiphon.sim.groups import GroupsSubject, GroupWorkload, OverlappingConfiguration, simulate_groups
from antiphon.sim.ordering import Subject, Watch
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.world import Host, World

SECONDS_PER_DELIVERY: Final = 2e-4


@dataclass(frozen=True, kw_only=True)
class Configuration(OverlappingConfiguration):
    """The shared knobs and the protocol's own."""

    joins: Annotated[int, "joins of random sites to random groups, while messages flow"] = 0
    leaves: Annotated[int, "leaves of random sites from random groups, while messages flow"] = 0
    delivery: Annotated[str, "safe (once all hold a message) or agreed (at once, as in the paper)"] = "safe"
    bodies: Annotated[str, "tree (down the trees) or direct (only tokens go down the trees)"] = "tree"
    causal: Annotated[bool, "causal order across groups too: senders wait when they turn elsewhere"] = False
    shape: Annotated[str, "how trees are grown: shallow, or printed as in the paper"] = "shallow"
    bypass: Annotated[bool, "go past nodes where any two groups stay in order; pairwise order only"] = False
    window: Annotated[int, "batches that a primary site has under way"] = 64
    acknowledge_ms: Annotated[float, "how long receivers collect what they acknowledge"] = 1.0
    repair_ms: Annotated[float, "how long a sender waits for an answer before it asks or repeats"] = 20.0
    heartbeat_ms: Annotated[float, "pause between heartbeats to the coordinator"] = 50.0
    suspect_ms: Annotated[float, "silence after which a site is suspected"] = 300.0

    goodbye: Annotated[bool, "sites that go absent say so, and are not waited for"] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.joins, self.leaves) < 0:
            raise UsageError("No site can join or leave less than never.")
        self.protocol_configuration()

    def protocol_configuration(self) -> MetaGroupsConfiguration:
        return MetaGroupsConfiguration(
            delivery=cast(Literal["safe", "agreed"], self.delivery),
            bodies=cast(Literal["tree", "direct"], self.bodies),
            causal=self.causal,
            shape=cast(Shape, self.shape),
            bypass=self.bypass,
            window=self.window,
            acknowledge_ns=from_seconds(self.acknowledge_ms / 1000),
            repair_ns=from_seconds(self.repair_ms / 1000),
            heartbeat_ns=from_seconds(self.heartbeat_ms / 1000),
            suspect_ns=from_seconds(self.suspect_ms / 1000),
            says_goodbye=self.goodbye,
        )


class ChangingWorkload(GroupWorkload):
    """Applications that also join and leave groups.

    They remember their groups when their sites lose their memory: so every group is wanted by some
    application at any time, and none stays without members.
    """

    _configuration: Configuration

    def __init__(
        self,
        world: World,
        configuration: Configuration,
        subject: Subject,
        seeds: Seeds,
        faults: list[Fault],
        watch: Watch,
    ) -> None:
        super().__init__(world, configuration, subject, seeds, faults, watch)
        self._changing: Final = seeds.stream("workload/changes")
        self._wanted: Final = {group: set(sites) for group, sites in self._membership.items()}
        """The groups that each application wants."""
        self._joined = self._left = 0
        world.on_group = self._note_change

    def begin(self) -> None:
        super().begin()
        for fault in self._faults:
            if isinstance(fault, Crash):
                self._world.at(fault.end_ns, partial(self._wish_again, fault.site))
        for count, act in (
            (self._configuration.joins, self._join),
            (self._configuration.leaves, self._leave),
        ):
            for _ in range(count):
                self._world.at(self._changing.randint(0, self._configuration.horizon_ns), act)

    def _join(self) -> None:
        """Some site wants to be in a group that it is not in; if it is down, it has no wish."""
        open_to = [
            (group, site) for group in self._names for site in self._own if site not in self._wanted[group]
        ]
        if open_to:
            group, site = self._changing.choice(open_to)
            host = self._world.host(site)
            if host.present:
                self._wanted[group].add(site)
                self._world.give(host, JoinGroup(group))

    def _leave(self) -> None:
        """Some site leaves a group, unless it is the last that wants to be there."""
        open_to = [(group, site) for group in self._names for site in sorted(self._wanted[group])]
        group, site = self._changing.choice(open_to)
        host = self._world.host(site)
        if host.present and len(self._wanted[group]) > 1:
            self._wanted[group].discard(site)
            self._world.give(host, LeaveGroup(group))

    def _wish_again(self, site: Site) -> None:
        """A restarted site knows only the groups that it was in at first; its application joins the
        others."""
        host = self._world.host(site)
        for group, wanting in self._wanted.items():
            self._world.give(host, JoinGroup(group) if site in wanting else LeaveGroup(group))

    def _note_change(self, now: Nanoseconds, host: Host, effect: fx.Joined | fx.Left) -> None:
        own = self._own[host.site]
        if isinstance(effect, fx.Left) and effect.group in own:
            self._left += now > 0
            own.remove(effect.group)
        elif isinstance(effect, fx.Joined) and effect.group not in own:
            self._joined += now > 0
            own.append(effect.group)

    def _next_group(self, site: Site) -> Group:
        return super()._next_group(site) if self._own[site] else self._choice.choice(self._names)

    def metrics(self) -> Metrics:
        return super().metrics() | {"joined": self._joined, "left": self._left}


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs = configuration.protocol_configuration()
    seeds = Seeds(seed)
    built: list[MetaGroups] = []

    def build(
        site: Site, membership: Mapping[Group, tuple[Site, ...]], sites: tuple[Site, ...]
    ) -> MetaGroups:
        random = seeds.stream(f"metagroups/{site}/{len(built)}")
        built.append(MetaGroups(site, membership, knobs, random, others=sites))
        return built[-1]

    subject = GroupsSubject(
        build=build, pdus=PDUS, data_kinds=DATA_PDUS, settle_ns=4 * knobs.suspect_ns, forgets=True
    )
    metrics = simulate_groups(configuration, subject, seed, recorder, ChangingWorkload)
    return metrics | _figures(built) | _shape(configuration.membership(seed), knobs)


def _figures(built: list[MetaGroups]) -> Metrics:
    """The sites' own counts; restarted sites count from zero."""
    figures = [site.figures() for site in built]
    return {
        "changes": max(found["version"] for found in figures) - 1,
        "moves": sum(found["moves"] for found in figures),
        "stops": sum(found["stops"] for found in figures),
        "repeated": sum(found["repeated"] for found in figures),
        "begun_anew": sum(found["begun_anew"] for found in figures),
        "ignored": sum(found["ignored"] for found in figures),
    }


def _shape(membership: Mapping[Group, tuple[Site, ...]], knobs: MetaGroupsConfiguration) -> Metrics:
    """The trees of the memberships that a run begins with: means over groups."""
    forest = build_forest(membership, shape=knobs.shape)
    ways = bypassed(forest) if knobs.bypass else Shortcuts(forest, {})
    groups = list(forest.primary_of)
    return {
        "trees": len(forest.roots),
        "depth": sum(map(ways.depth, groups)) / len(groups),
        "extra_nodes": sum(len(ways.extra(group)) for group in groups) / len(groups),
    }


SCENARIO: Final = Scenario(
    name="metagroups",
    summary="Total order across overlapping groups by Jia and So's trees of meta-groups.",
    example="antiphon simulate metagroups --members 12 --groups 4 --messages 1000 --loss 0.02 --seed 1",
    configuration=Configuration,
    run=run,
    promises=PROMISES,
    promised=lambda knobs: promises(knobs.protocol_configuration()),
    audited=True,
    cost_s=lambda knobs: 0.1 + SECONDS_PER_DELIVERY * knobs.members * knobs.messages / knobs.batch,
)
