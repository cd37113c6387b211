"""`antiphon simulate dpg`: the Distributed Precedence Graph on each of its services, under every fault.

On the medium a site may need time for what it receives: the more, the larger its graph is (`processing_us`,
`vertex_us`). Reports count with their full size, which the channel must carry.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Final

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, MessageId, Site, site_names
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Kind, Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds, from_seconds, to_seconds
from antiphon.core.wire import Pdu
from antiphon.protocols.dpg import ALMOST, PROMISES, Dpg, DpgConfiguration
from antiphon.protocols.dpg.pdus import Message, Report
from antiphon.protocols.dpg.reports import lists_bytes
from antiphon.protocols.dpg.services import SERVICES
from antiphon.protocols.dpg.services.base import Service
from antiphon.protocols.dpg.services.bounded_delay import BoundedDelayService
from antiphon.protocols.dpg.services.lan import LanService
from antiphon.protocols.dpg.services.tag_sequencer import SequencerOptions, SequencerService
from antiphon.sim.medium import ETHERNET_BITS_PER_S, RECEPTION_BUFFERS, Medium, Processing
from antiphon.sim.network import Network
from antiphon.sim.ordering import OrderingConfiguration, Subject, simulate, wire_size
from antiphon.sim.resource_sharing.disorder import out_of_order
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.world import Host, World

SECONDS_PER_DELIVERY: Final = 6e-5
LOOK_NS: Final = 10 * MILLISECOND_NS
"""How often the graphs' sizes are looked at."""


@dataclass(frozen=True, kw_only=True)
class Configuration(OrderingConfiguration):
    """The shared knobs and DPG's own."""

    network: Annotated[str, "medium (one broadcast channel) or mesh (a channel per pair)"] = "medium"
    service: Annotated[str, "the one-channel service: lan, bounded-delay or sequencer"] = "lan"
    detector: Annotated[bool, "use the ContiguityDetector's inferences"] = True
    suspended: Annotated[bool, "Suspended Delivery: infer contiguity across own messages"] = True
    cycles: Annotated[str, "what cycles are counted in: clock or count (of messages)"] = "clock"
    report_ms: Annotated[float, "Report_Cycle in milliseconds"] = 20.0
    deliv_ms: Annotated[float, "Deliv_Cycle in milliseconds"] = 240.0
    tell_ms: Annotated[
        float, "least pause, per member, between notices of what it holds; 0: only reports"
    ] = 0.0
    buffers: Annotated[int, "reception buffers of a site, on the medium"] = RECEPTION_BUFFERS
    processing_us: Annotated[float, "microseconds a site needs for a PDU, on the medium"] = 0.0
    vertex_us: Annotated[float, "microseconds more for each vertex of its graph, on the medium"] = 0.0
    window: Annotated[int, "own messages that a member has under way at most"] = DpgConfiguration.window
    history: Annotated[int, "agreed messages that a report covers"] = 64
    bandwidth: Annotated[int, "bits a second of the medium"] = ETHERNET_BITS_PER_S
    delay_ms: Annotated[float, "one-way delay in milliseconds"] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.service not in SERVICES:
            raise UsageError(
                f"There is no service '{self.service}'.", hint=f"There are: {', '.join(SERVICES)}."
            )
        if self.service == "lan" and self.network != "medium":
            raise UsageError(
                "The service 'lan' needs the one channel of a medium.",
                hint="Choose --network medium, or another service.",
            )
        if min(self.processing_us, self.vertex_us) < 0:
            raise UsageError("Processing cannot take less than no time.")

    def protocol_configuration(self) -> DpgConfiguration:
        report_ns = from_seconds(self.report_ms / 1000)
        deliv_ns = from_seconds(self.deliv_ms / 1000)
        return DpgConfiguration(
            detector=self.detector,
            suspended_delivery=self.suspended,
            cycles=self.cycles,
            report_cycle_ns=report_ns,
            deliv_cycle_ns=deliv_ns,
            dummy_cycle_ns=2 * deliv_ns,
            retr_cycle_ns=report_ns,
            remove_cycle_ns=2 * deliv_ns,
            locate_cycle_ns=4 * report_ns,
            tell_ns=from_seconds(self.tell_ms / 1000),
            listen_ns=15 * report_ns,
            absence_ns=max(SECOND_NS, 2 * deliv_ns),
            lately_ns=max(60 * MILLISECOND_NS, 3 * report_ns),
            window=self.window,
            history=self.history,
        )


@dataclass
class Doubts:
    """What the members themselves found wrong, and how large their graphs were."""

    disagreements: int = 0
    unavailable: int = 0
    sizes: Counter[int] = field(default_factory=Counter)
    """How often a graph was seen with each number of vertices."""
    members: list[Dpg] = field(default_factory=list)
    latest: dict[Site, Dpg] = field(default_factory=dict)
    """The current member of each site: a restarted one is another object."""

    def add(self, site: Site, member: Dpg) -> None:
        self.members.append(member)
        self.latest[site] = member

    def watch(self, world: World) -> None:
        world.on_doubt = self._note
        world.at(0, lambda: self._look(world))

    def _note(self, _now: Nanoseconds, _host: Host, effect: fx.Disagreed | fx.Unavailable) -> None:
        if isinstance(effect, fx.Disagreed):
            self.disagreements += 1
        else:
            self.unavailable += 1

    def _look(self, world: World) -> None:
        for member in self.members:
            self.sizes[member.vertices] += 1
        world.at(world.now + LOOK_NS, lambda: self._look(world))

    def metrics(self) -> Metrics:
        totals: dict[str, int] = {}
        for member in self.members:
            for name, value in member.figures().items():
                totals[name] = totals.get(name, 0) + value
        told = ("reports", "dummies", "late", "committed", "contradictions", "overflows", "copies", "ignored")
        return {
            "disagreements": self.disagreements,
            "unavailable": self.unavailable,
            "graph_mean": sum(size * looks for size, looks in self.sizes.items())
            / max(1, self.sizes.total()),
            "graph_p95": self._size_at(0.95),
            "graph_max": max(self.sizes, default=0),
            **{name: totals.get(name, 0) for name in told},
        }

    def _size_at(self, share: float) -> int:
        """The size that so large a share of the graphs did not exceed."""
        left = share * self.sizes.total()
        for size in sorted(self.sizes):
            left -= self.sizes[size]
            if left <= 0:
                return size
        return 0


class DeliveryLog:
    """Wraps the recorder, if there is one: the deliveries of each member in order, and its presence.

    Throughput and presence are measured while messages are offered. Implements
    `antiphon.core.recording.Recorder`.
    """

    def __init__(self, sites: Iterable[Site], horizon_ns: Nanoseconds, recorder: Recorder | None) -> None:
        self._horizon_ns = horizon_ns
        self._delivered: dict[Site, list[MessageId]] = {site: [] for site in sites}
        self._in_time = dict.fromkeys(self._delivered, 0)
        self._left_ns: dict[Site, Nanoseconds] = {}
        self._away_ns: Nanoseconds = 0
        self._stayed = set(self._delivered)
        self._spells = len(self._delivered)
        self._recorder = recorder

    def record(
        self,
        site: Site,
        kind: Kind,
        time_ns: Nanoseconds,
        sender: Site | None = None,
        number: int | None = None,
        count: int = 1,
        group: Group | None = None,
        destinations: Iterable[Site] | None = None,
        size: int | None = None,
    ) -> None:
        if kind == "deliver":
            assert sender is not None, "a delivery has a sender"
            assert number is not None, "and a number"
            self._delivered[site] += [MessageId(sender, number + index) for index in range(count)]
            self._in_time[site] += count if time_ns <= self._horizon_ns else 0
        elif kind == "absent":
            self._left_ns.setdefault(site, min(time_ns, self._horizon_ns))
            self._stayed.discard(site)
        elif kind == "present" and site in self._left_ns:
            self._away_ns += min(time_ns, self._horizon_ns) - self._left_ns.pop(site)
            self._spells += 1
        if self._recorder is not None:
            self._recorder.record(site, kind, time_ns, sender, number, count, group, destinations, size)

    def metrics(self) -> Metrics:
        """The order of the member that delivered most is the reference for the others."""
        delivered = self._delivered
        reference = max(delivered.values(), key=len)
        anywhere = {message for messages in delivered.values() for message in messages}
        missing = sum(len(anywhere.difference(delivered[site])) for site in self._stayed)
        horizon_ns = max(1, self._horizon_ns)
        away_ns = self._away_ns + sum(horizon_ns - left_ns for left_ns in self._left_ns.values())
        in_time = min(self._in_time[site] for site in self._stayed or self._in_time)
        return {
            "out_of_order": len(out_of_order(reference, delivered)),
            "missing": missing,
            "busy_throughput": in_time / to_seconds(horizon_ns),
            "present_share": 1.0 - away_ns / (horizon_ns * len(delivered)),
            "spells": self._spells,
        }


def build_service(configuration: Configuration) -> Service:
    """The service asked for, with pauses that suit the network."""
    round_trip_ns = configuration.round_trip_ns
    if configuration.service == "lan":
        return LanService()
    if configuration.service == "bounded-delay":
        bound_ns = max(5 * MILLISECOND_NS, 2 * round_trip_ns)
        return BoundedDelayService(bound_ns, most_ns=max(SECOND_NS, 4 * bound_ns))
    return SequencerService(
        SequencerOptions(
            repeat_ns=max(10 * MILLISECOND_NS, 2 * round_trip_ns),
            gap_ns=max(3 * MILLISECOND_NS, round_trip_ns),
            takeover_ns=max(40 * MILLISECOND_NS, 8 * round_trip_ns),
            gather_answers_ns=max(25 * MILLISECOND_NS, 4 * round_trip_ns),
        )
    )


def build_network(configuration: Configuration, seeds: Seeds, processing: Processing | None = None) -> Medium:
    return Medium(
        configuration.members,
        seeds,
        bandwidth_bits_per_s=configuration.bandwidth,
        propagation_ns=from_seconds(configuration.delay_ms / 1000),
        buffers=configuration.buffers,
        processing_ns=processing or from_seconds(configuration.processing_us / 1e6),
        miss=configuration.loss,
    )


def size_of(pdu: Pdu) -> int:
    """A PDU's size on the wire, near enough; a report's lists are most of it."""
    return wire_size(pdu) + (lists_bytes(pdu) if type(pdu) is Report else 0)


def processing_of(configuration: Configuration, latest: dict[Site, Dpg]) -> Processing | None:
    """How long a PDU takes a site, if that depends on its graph."""
    if not configuration.vertex_us:
        return None
    sites = site_names(configuration.members)
    fixed_ns = from_seconds(configuration.processing_us / 1e6)
    vertex_ns = from_seconds(configuration.vertex_us / 1e6)
    return lambda index: fixed_ns + vertex_ns * latest[sites[index]].vertices


def channel_metrics(medium: Medium, members: int) -> Metrics:
    """How much of the traffic reports were, and what share of the frames sites lost."""
    carried = medium.carried_bytes()
    heard = sum(map(medium.heard, range(members)))
    lost = sum(medium.missed(site) + medium.overwritten(site) for site in range(members))
    return {
        "report_share": carried[Report] / carried[Message] if carried[Message] else None,
        "miss_rate": lost / heard if heard else 0.0,
    }


def violated_metrics(metrics: Metrics) -> Metrics:
    """How many messages broke the agreed order or went missing, and how many of them unnoticed.

    Messages that are missing when a run is cut short may only have been under way.
    """
    late, missing = metrics["out_of_order"], metrics["missing"]
    assert isinstance(late, int)
    assert isinstance(missing, int)
    violated = late + (missing if metrics["finished"] else 0)
    noticed = bool(metrics["disagreements"] or metrics["unavailable"])
    return {"violated": violated, "unnoticed": 0 if noticed else violated}


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs = configuration.protocol_configuration()
    doubts = Doubts()
    log = DeliveryLog(site_names(configuration.members), configuration.horizon_ns, recorder)
    seeds = Seeds(seed)
    streams: dict[Site, Random] = {}

    def build(site: Site, _members: tuple[Site, ...]) -> Protocol:
        random = streams.setdefault(site, seeds.stream(f"dpg/{site}"))
        member = Dpg(site, knobs, build_service(configuration), random)
        doubts.add(site, member)
        return member

    media: list[Medium] = []

    def build_medium(seeds: Seeds) -> Network:
        media.append(build_network(configuration, seeds, processing_of(configuration, doubts.latest)))
        return media[0]

    subject = Subject(
        build=build,
        repairs=True,
        settle_ns=2 * knobs.deliv_cycle_ns + 2 * knobs.listen_ns,
        leader_crashes_alone=False,
        network=build_medium if configuration.network == "medium" else None,
        watch=doubts.watch,
        size_of=size_of,
        tells_losses=lambda: doubts.unavailable > 0,
    )
    metrics = simulate(configuration, subject, seed, log) | doubts.metrics() | log.metrics()
    metrics |= violated_metrics(metrics)
    return metrics | (channel_metrics(media[0], configuration.members) if media else {})


SCENARIO: Final = Scenario(
    name="dpg",
    summary="Total order by a Distributed Precedence Graph, which needs no agreed membership.",
    example="antiphon simulate dpg --members 7 --messages 1000 --loss 0.05 --churn 2 --seed 1",
    configuration=Configuration,
    run=run,
    promises=PROMISES,
    almost=ALMOST,
    audited=True,
    cost_s=lambda knobs: 0.02 + SECONDS_PER_DELIVERY * knobs.members * knobs.messages / knobs.batch,
)
