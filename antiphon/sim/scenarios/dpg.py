"""`antiphon simulate dpg`: the Distributed Precedence Graph on each of its services, under every fault."""

from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Final

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds, from_seconds
from antiphon.protocols.dpg import PROMISES, Dpg, DpgConfiguration
from antiphon.protocols.dpg.services import SERVICES
from antiphon.protocols.dpg.services.base import Service
from antiphon.protocols.dpg.services.bounded_delay import BoundedDelayService
from antiphon.protocols.dpg.services.lan import LanService
from antiphon.protocols.dpg.services.tag_sequencer import SequencerOptions, SequencerService
from antiphon.sim.medium import ETHERNET_BITS_PER_S, RECEPTION_BUFFERS, Medium
from antiphon.sim.network import Network
from antiphon.sim.ordering import OrderingConfiguration, Subject, simulate
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
    buffers: Annotated[int, "reception buffers of a site, on the medium"] = RECEPTION_BUFFERS
    processing_us: Annotated[float, "microseconds a site needs for a PDU, on the medium"] = 0.0
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
            locate_cycle_ns=4 * deliv_ns,
            listen_ns=15 * report_ns,
            absence_ns=max(SECOND_NS, 2 * deliv_ns),
            lately_ns=max(60 * MILLISECOND_NS, 3 * report_ns),
        )


@dataclass
class Doubts:
    """What the members themselves found wrong, and how large their graphs were."""

    disagreements: int = 0
    unavailable: int = 0
    largest: int = 0
    looks: int = 0
    vertices: int = 0
    members: list[Dpg] = field(default_factory=list)

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
            size = member.vertices
            self.looks += 1
            self.vertices += size
            self.largest = max(self.largest, size)
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
            "graph_mean": self.vertices / self.looks if self.looks else 0.0,
            "graph_max": self.largest,
            **{name: totals.get(name, 0) for name in told},
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


def build_network(configuration: Configuration, seeds: Seeds) -> Network:
    return Medium(
        configuration.members,
        seeds,
        bandwidth_bits_per_s=configuration.bandwidth,
        propagation_ns=from_seconds(configuration.delay_ms / 1000),
        buffers=configuration.buffers,
        processing_ns=from_seconds(configuration.processing_us / 1e6),
        miss=configuration.loss,
    )


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs = configuration.protocol_configuration()
    doubts = Doubts()
    seeds = Seeds(seed)
    streams: dict[Site, Random] = {}

    def build(site: Site, _members: tuple[Site, ...]) -> Protocol:
        random = streams.setdefault(site, seeds.stream(f"dpg/{site}"))
        member = Dpg(site, knobs, build_service(configuration), random)
        doubts.members.append(member)
        return member

    on_medium = configuration.network == "medium"
    subject = Subject(
        build=build,
        repairs=True,
        settle_ns=2 * knobs.deliv_cycle_ns + 2 * knobs.listen_ns,
        leader_crashes_alone=False,
        network=(lambda seeds: build_network(configuration, seeds)) if on_medium else None,
        watch=doubts.watch,
    )
    return simulate(configuration, subject, seed, recorder) | doubts.metrics()


SCENARIO: Final = Scenario(
    name="dpg",
    summary="Total order by a Distributed Precedence Graph, which does not care who is present.",
    example="antiphon simulate dpg --members 7 --messages 1000 --loss 0.05 --churn 2 --seed 1",
    configuration=Configuration,
    run=run,
    promises=PROMISES,
    audited=True,
    cost_s=lambda knobs: 0.02 + SECONDS_PER_DELIVERY * knobs.members * knobs.messages / knobs.batch,
)
