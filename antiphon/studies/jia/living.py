"""Beyond the paper, our protocol on these trees: the cost of safe delivery and of changes.

The paper delivers messages as they arrive and leaves crashes and changes of membership open. `antiphon
simulate metagroups` delivers a message once all destinations hold it, and changes the table of members by
agreement, while altered trees hand over to others.
"""

from collections.abc import Mapping
from typing import Any, Final

from antiphon.core import effects as fx
from antiphon.core.ids import Group, Site
from antiphon.core.inputs import Input, JoinGroup, LeaveGroup, Received, TimerFired
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import Nanoseconds, to_seconds
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups import DATA_PDUS, PDUS, MetaGroups, pdus
from antiphon.sim.groups import GroupsSubject, simulate_groups
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.scenarios.metagroups import SCENARIO as METAGROUPS
from antiphon.sim.scenarios.metagroups import ChangingWorkload, Configuration
from antiphon.spark.statistics import Point
from antiphon.studies.jia.costs import MEMBERS, RARE, hops, messages
from antiphon.studies.jia.settings import OVERLAPS, SITES_A_GROUP
from antiphon.studies.judging import judged_by, runs, total
from antiphon.studies.model import Finding, Section, Table
from antiphon.studies.results import Results
from antiphon.studies.study import Grid, fixed

NAME: Final = "antiphon.studies.jia.living:SCENARIO"
CHANGE_PDUS: Final[tuple[type[Pdu], ...]] = (
    pdus.Prepare,
    pdus.Report,
    pdus.Accept,
    pdus.AcceptChange,
    pdus.Accepted,
    pdus.Refuse,
    pdus.Install,
    pdus.Decided,
    pdus.Want,
    pdus.Copy,
)
"""The PDUs that a change needs."""


class Watched:
    """A site observed while its table changes; implements `antiphon.core.protocol.Protocol`."""

    def __init__(self, protocol: MetaGroups, others: int, log: "Log") -> None:
        self._protocol = protocol
        self._others = others
        self._log = log
        self._stops = 0
        self._version = protocol.figures()["version"]
        self._still_since_ns: Nanoseconds | None = None
        self._wished_ns: dict[Group, Nanoseconds] = {}

    def handle(self, now: Nanoseconds, event: Input) -> list[fx.Effect]:
        effects = self._protocol.handle(now, event)
        if isinstance(event, JoinGroup | LeaveGroup):
            self._wished_ns.setdefault(event.group, now)
        for effect in effects:
            self._note(now, effect)
        if isinstance(event, TimerFired) or (
            isinstance(event, Received) and isinstance(event.pdu, CHANGE_PDUS)
        ):
            self._look(now)
        return effects

    def _note(self, now: Nanoseconds, effect: fx.Effect) -> None:
        if isinstance(effect, fx.Send) and isinstance(effect.pdu, CHANGE_PDUS):
            self._log.messages += 1
        elif isinstance(effect, fx.Multicast) and isinstance(effect.pdu, CHANGE_PDUS):
            self._log.messages += self._others if effect.to is None else len(effect.to)
        elif isinstance(effect, fx.Joined | fx.Left) and effect.group in self._wished_ns:
            self._log.waits_ns.append(now - self._wished_ns.pop(effect.group))

    def _look(self, now: Nanoseconds) -> None:
        """A site is stalled from the time its first tree stops until it has the next version."""
        figures = self._protocol.figures()
        if figures["stops"] > self._stops and self._still_since_ns is None:
            self._still_since_ns = now
        if figures["version"] != self._version and self._still_since_ns is not None:
            self._log.stands_ns.append(now - self._still_since_ns)
            self._still_since_ns = None
        self._stops, self._version = figures["stops"], figures["version"]


class Log:
    """Observations of the changes in a run."""

    def __init__(self) -> None:
        self.messages = 0
        self.stands_ns: list[Nanoseconds] = []
        """For each change and each site of a tree that it altered, how long that stood still."""
        self.waits_ns: list[Nanoseconds] = []
        """From each wish to join or leave until it was fulfilled."""

    def metrics(self, versions: int, members: int) -> Metrics:
        return {
            "versions": versions,
            "change_messages": self.messages / versions if versions else None,
            "still_share": len(self.stands_ns) / versions / members if versions else None,
            "still_s": _mean_s(self.stands_ns),
            "wait_s": _mean_s(self.waits_ns),
        }


def _mean_s(times_ns: list[Nanoseconds]) -> float | None:
    return to_seconds(sum(times_ns)) / len(times_ns) if times_ns else None


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs, seeds, log = configuration.protocol_configuration(), Seeds(seed), Log()
    built: list[MetaGroups] = []

    def build(site: Site, membership: Mapping[Group, tuple[Site, ...]], sites: tuple[Site, ...]) -> Watched:
        built.append(MetaGroups(site, membership, knobs, seeds.stream(f"metagroups/{site}"), others=sites))
        return Watched(built[-1], len(sites) - 1, log)

    subject = GroupsSubject(
        build=build, pdus=PDUS, data_kinds=DATA_PDUS, settle_ns=4 * knobs.suspect_ns, forgets=True
    )
    metrics = simulate_groups(configuration, subject, seed, recorder, ChangingWorkload)
    versions = max(site.figures()["version"] for site in built) - 1
    return metrics | log.metrics(versions, configuration.members)


SCENARIO: Final = Scenario(
    name=NAME,
    summary="Joins and leaves while messages flow, and how long trees stand still",
    example=f"antiphon simulate {NAME} --members 30 --groups 6 --joins 5 --leaves 5 --seed 0 --json",
    configuration=Configuration,
    run=run,
    promises=METAGROUPS.promises,
    promised=METAGROUPS.promised,
    audited=True,
    cost_s=METAGROUPS.cost_s,
)


# The runs of the study

DELIVERIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "agreed, as in the paper": {"delivery": "agreed"},
    "safe, acknowledged at once": {"delivery": "safe", "acknowledge_ms": 0.0},
    "safe, acknowledged within a delay": {"delivery": "safe", "acknowledge_ms": 1.0},
}
LIVELY: Final[dict[str, Any]] = {"messages": 300, "rate": 300.0, "joins": 8, "leaves": 8}
SETTINGS: Final = {"few groups": (10, 1.5), "separate": (5, 1.1), "moderate": (5, 2.0), "heavy": (5, 4.0)}
"""Sites for every group, and groups that a site is in on average."""
GRIDS: Final = (
    *(
        Grid(
            scenario=METAGROUPS.name,
            axes={**fixed({**RARE, **knobs}), "members": MEMBERS, "overlap": tuple(OVERLAPS.values())},
            quick={"members": MEMBERS[:1]},
            derived={"groups": lambda point: point["members"] // SITES_A_GROUP},
            seeds={"quick": 1, "full": 3},
        )
        for knobs in DELIVERIES.values()
    ),
    *(
        Grid(
            scenario=NAME,
            axes={**fixed({**LIVELY, "overlap": overlap}), "members": MEMBERS},
            quick={"members": MEMBERS[:1]},
            derived={"groups": lambda point, share=share: point["members"] // share},  # type: ignore[misc]
            seeds={"quick": 1, "full": 5},
        )
        for share, overlap in SETTINGS.values()
    ),
)


def order_is_kept(results: Results) -> Finding:
    points = results.found({"scenario": NAME})
    violations = total(points, "violations")
    unfinished = runs(points) - total(points, "finished")
    return Finding(
        ours=f"{violations:.0f} violations, {unfinished:.0f} runs without end, in {runs(points)} runs with "
        f"{total(points, 'joined') + total(points, 'left'):.0f} joins and leaves",
        holds=not violations and not unfinished,
    )


def delivery_rows(results: Results) -> list[list[str]]:
    return [
        [str(members), f"{overlap:g}", words, *_delivery_cells(point)]
        for members in MEMBERS
        for overlap in OVERLAPS.values()
        for words, knobs in DELIVERIES.items()
        for point in results.matching(
            {"scenario": METAGROUPS.name, **RARE, **knobs, "members": members, "overlap": overlap}
        )
    ]


def _delivery_cells(point: Point) -> list[str]:
    everything = point.metrics["network_messages"].mean / point.metrics["batches"].mean
    return [
        f"{messages(point):.1f}",
        f"{everything:.0f}",
        f"{hops(point):.1f}",
        f"{point.metrics['busiest_load'].mean:.2f}",
        f"{total([point], 'violations'):.0f}",
    ]


def change_rows(results: Results) -> list[list[str]]:
    return [
        [str(members), words, str(point.parameters["groups"]), *_change_cells(point)]
        for members in MEMBERS
        for words, (share, overlap) in SETTINGS.items()
        for point in results.matching(
            {"scenario": NAME, "members": members, "groups": members // share, "overlap": overlap}
        )
    ]


def _change_cells(point: Point) -> list[str]:
    metrics = point.metrics
    return [
        f"{metrics['versions'].mean:.1f}",
        f"{metrics['change_messages'].mean:.0f}",
        f"{metrics['still_share'].mean:.0%}",
        f"{1000 * metrics['still_s'].mean:.1f} ms" if "still_s" in metrics else "–",
        f"{1000 * metrics['wait_s'].mean:.1f} ms",
        f"{total([point], 'violations'):.0f}",
    ]


SECTION: Final = Section(
    title="Beyond the paper: our protocol on these trees",
    text="Delivered at once, as in the paper, a message may be lost in a crash after a site has delivered "
    "it. Safe delivery waits until every destination holds it: up the tree and down again. All sites agree "
    "on joins and leaves; altered trees hand over, and no site stalls.",
    tables=(
        Table(
            title="What safe delivery costs (run)",
            caption="Messages with a body and all PDUs for a multicast, heartbeats and acknowledgements "
            "included; with more multicasts there are fewer of these for each. Delay in units of the "
            "network's, 1 ms.",
            columns=("sites", "overlap", "delivery", "messages", "all PDUs", "delay", "load", "violated"),
            compute=delivery_rows,
        ),
        Table(
            title="Joins and leaves while messages flow (run)",
            caption="Eight of each in a second, over delays of 1 ms; those within 10 ms are one change. "
            "Messages: all messages of a change. Standing still: sites of stopped trees, as a share of all, "
            "and for how long. Wait: from a request to join or leave until it takes effect.",
            columns=(
                "sites",
                "overlap",
                "groups",
                "changes",
                "messages a change",
                "standing still",
                "for",
                "wait",
                "violated",
            ),
            compute=change_rows,
        ),
    ),
    claims=judged_by(
        "jia",
        J7=order_is_kept,
    ),
)
