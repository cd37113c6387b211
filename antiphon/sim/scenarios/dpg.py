"""`antiphon simulate dpg`: the Distributed Precedence Graph on each of its services, under every fault.

On the medium a site may need time for what it receives: the more, the larger its graph is (`processing_us`,
`vertex_us`). Reports count with their full size, which the channel must carry.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Final

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.ids import MessageId, Site, site_names
from antiphon.core.inputs import Input, Start, TimerFired
from antiphon.core.knobs import require_known
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Kind, Property, Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds, from_seconds, to_seconds
from antiphon.core.wire import HEADER, Pdu
from antiphon.protocols.dpg import ALMOST, PDUS, PROMISES, Dpg, DpgConfiguration
from antiphon.protocols.dpg.pdus import CORRECTIONS, TAG_LIMIT, Message, Report
from antiphon.protocols.dpg.reports import lists_bytes
from antiphon.protocols.dpg.services import SERVICE_PDUS, SERVICES, bounded_delay, lan
from antiphon.protocols.dpg.services.base import Service
from antiphon.protocols.dpg.services.bounded_delay import BoundedDelayService
from antiphon.protocols.dpg.services.lan import LanService
from antiphon.protocols.dpg.services.tag_sequencer import (
    SequencerOptions,
    SequencerService,
    TagSequencerSite,
)
from antiphon.protocols.dpg.services.tag_sequencer.pdus import TagRequest
from antiphon.protocols.dpg.tag_lists import pack_tags
from antiphon.sim.delivery import DeliveryConfiguration, promised
from antiphon.sim.drift import Drifting
from antiphon.sim.medium import ETHERNET_BITS_PER_S, RECEPTION_BUFFERS, Medium, Processing
from antiphon.sim.network import Network
from antiphon.sim.ordering import ASSUMED_FIELD_BYTES, Subject, simulate, wire_size
from antiphon.sim.resource_sharing.disorder import out_of_order
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.tap import Tap
from antiphon.sim.world import Host, World

SECONDS_PER_DELIVERY: Final = 6e-5
UNDER_WAY_NS: Final = SECOND_NS
"""What was first delivered later than this before the end of an unfinished run may still be under way."""
LOOK_NS: Final = 10 * MILLISECOND_NS
"""How often the graphs' sizes are looked at."""


CONTIGUITY: Final[dict[str, tuple[str, ...]]] = {
    "lan": lan.DETECTORS,
    "bounded-delay": bounded_delay.DETECTORS,
    "sequencer": (),
}
"""The ContiguityDetectors of each service, of which the sequencer's numbers need none."""
MOST_DRIFT_PPM: Final = 100_000
OUTSIDE: Final[Site] = "outside"
"""The outside tag sequencer."""
FOREIGN: Final[Site] = "foreign"
"""A member of another group, which shares it."""
QUORUM_TELL_NS: Final = MILLISECOND_NS // 2
"""Least pause between a member's words on its place in the order, where deliveries wait for them."""


@dataclass(frozen=True, kw_only=True)
class Configuration(DeliveryConfiguration):
    """The shared knobs and DPG's own."""

    network: Annotated[str, "medium (one broadcast channel) or mesh (a channel per pair)"] = "medium"
    service: Annotated[str, "the one-channel service: lan, bounded-delay or sequencer"] = "lan"
    detector: Annotated[bool, "use the ContiguityDetector's inferences"] = True
    suspended: Annotated[bool, "Suspended Delivery: infer contiguity across own messages"] = True
    cycles: Annotated[str, "what cycles are counted in: clock or count (of messages)"] = "clock"
    report_ms: Annotated[float, "Report_Cycle in milliseconds"] = 20.0
    deliv_ms: Annotated[float, "Deliv_Cycle in milliseconds"] = 240.0
    contiguity: Annotated[
        str, "how contiguity is inferred: overwrite or timing (lan), evidence or delays (bounded-delay)"
    ] = ""
    bound_ms: Annotated[float, "the bound ∆' of bounded-delay at first; 0: what suits the network"] = 0.0
    drift_ppm: Annotated[float, "greatest drift of a site's clock, in microseconds a second"] = 0.0
    message_ms: Annotated[float, "Message_Cycle at least, the pause between own messages"] = 0.0
    delta_ms: Annotated[float, "Delta, what an overflow of ordering buffers adds to Message_Cycle"] = 1.0
    fc_ms: Annotated[float, "Fc_Cycle, after which Delta is taken off again"] = 50.0
    ordering_buffers: Annotated[int, "bodies that a site holds before their delivery"] = (
        DpgConfiguration.ordering_buffers
    )
    remove_ms: Annotated[
        float, "how long a delivered body is kept that no member mentions; 0: two Deliv_Cycles"
    ] = 0.0
    tell_ms: Annotated[
        float, "least pause, per member, between notices of what it holds; 0: only reports"
    ] = 0.0
    quorum: Annotated[
        int, "members that must have a message in one place before it is delivered; 0: none"
    ] = 0
    buffers: Annotated[int, "reception buffers of a site, on the medium"] = RECEPTION_BUFFERS
    processing_us: Annotated[float, "microseconds a site needs for a PDU, on the medium"] = 0.0
    vertex_us: Annotated[float, "microseconds more for each vertex of its graph, on the medium"] = 0.0
    outside: Annotated[
        bool, "with the service sequencer: an outside site numbers the tags, as antiphon sequencer does"
    ] = False
    outside_crashes: Annotated[int, "crashes of that site, each followed by a restart without memory"] = 0
    foreign_rate: Annotated[float, "tags a second of another group that the outside site numbers, too"] = 0.0
    as_printed: Annotated[bool, "the protocol as published, without our corrections"] = False
    correct: Annotated[
        str,
        f"with --as-printed: corrections made all the same, such as marks,share; {', '.join(CORRECTIONS)}",
    ] = ""
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
        if self.service == "lan" and (self.jitter_ms or self.reordering):
            raise UsageError(
                "The service 'lan' needs a channel that carries messages to all members in one order.",
                hint="Leave out --jitter-ms and --reordering, or choose another service.",
            )
        if self.outside and self.service != "sequencer":
            raise UsageError("An outside site gives numbers.", hint="Choose --service sequencer.")
        if (self.outside_crashes or self.foreign_rate) and not self.outside:
            raise UsageError("There is no outside sequencer.", hint="Add --outside.")
        for name in self.corrections:
            require_known(name, CORRECTIONS, f"There is no correction '{name}'.")
        if self.correct and not self.as_printed:
            raise UsageError("All corrections are made.", hint="Add --as-printed, or leave out --correct.")
        if self.outside_crashes < 0 or self.foreign_rate < 0:
            raise UsageError("No count of crashes and no rate is negative.")
        known = CONTIGUITY[self.service]
        if self.contiguity and self.contiguity not in known:
            raise UsageError(
                f"The service '{self.service}' does not infer contiguity by '{self.contiguity}'.",
                hint=f"It does by {' or '.join(known)}." if known else "Leave out --contiguity.",
            )
        if not 0 <= self.drift_ppm < MOST_DRIFT_PPM or self.bound_ms < 0:
            raise UsageError("A clock drifts by less than a tenth, and no bound is negative.")
        if not 0 <= self.quorum <= self.members:
            raise UsageError(f"A group of {self.members} has no quorum of {self.quorum}.")
        if self.remove_ms < 0:
            raise UsageError("No body is kept for less than no time.")
        if min(self.processing_us, self.vertex_us) < 0:
            raise UsageError("Processing cannot take less than no time.")

    @property
    def corrections(self) -> frozenset[str]:
        """Those named."""
        if self.correct == "all":
            return frozenset(CORRECTIONS)
        return frozenset(self.correct.split(",") if self.correct else ())

    @property
    def servers(self) -> tuple[Site, ...]:
        """The sites that are no members."""
        if not self.outside:
            return ()
        return (OUTSIDE, FOREIGN) if self.foreign_rate else (OUTSIDE,)

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
            remove_cycle_ns=from_seconds(self.remove_ms / 1000) or 2 * deliv_ns,
            locate_cycle_ns=4 * report_ns,
            tell_ns=from_seconds(self.tell_ms / 1000) or (QUORUM_TELL_NS if self.quorum else 0),
            listen_ns=15 * report_ns,
            absence_ns=max(SECOND_NS, 2 * deliv_ns),
            lately_ns=max(60 * MILLISECOND_NS, 3 * report_ns),
            window=self.window,
            history=self.history,
            quorum=self.quorum,
            message_cycle_ns=from_seconds(self.message_ms / 1000),
            delta_ns=from_seconds(self.delta_ms / 1000),
            fc_cycle_ns=from_seconds(self.fc_ms / 1000),
            ordering_buffers=self.ordering_buffers,
            printed=frozenset(CORRECTIONS) - self.corrections if self.as_printed else frozenset(),
        )


@dataclass
class Doubts:
    """What the members themselves found wrong, and how large their graphs were."""

    disagreements: int = 0
    unavailable: int = 0
    cut_off: int = 0
    forks: list[tuple[Site, int, int]] = field(default_factory=list)
    """The member that gave up its order, and the first and last place that it delivered alone."""
    sizes: Counter[int] = field(default_factory=Counter)
    """How often a graph was seen with each number of vertices."""
    members: list[Dpg] = field(default_factory=list)
    disputed: set[MessageId] = field(default_factory=set)
    """Messages of which a member told that it delivered them alone, or does not deliver them."""
    suspects: dict[Site, int] = field(default_factory=dict)
    """Members that told that another order differs from theirs, and from which place on; 0 if unknown."""
    lacking: set[Site] = field(default_factory=set)
    """Members that told that a message without a known name is not delivered."""
    _placed: dict[MessageId, dict[Site, int]] = field(default_factory=dict)
    """The place of each message at each site that delivered it."""
    latest: dict[Site, Dpg] = field(default_factory=dict)
    """The current member of each site: a restarted one is another object."""

    def add(self, site: Site, member: Dpg) -> None:
        self.members.append(member)
        self.latest[site] = member

    def watch(self, world: World) -> None:
        world.on_doubt = self._note
        world.on_deliver = self._note_delivery
        world.at(0, lambda: self._look(world))

    def _note(self, _now: Nanoseconds, host: Host, effect: fx.Doubt) -> None:
        match effect:
            case fx.Disagreed(place=place):
                self.disagreements += 1
                self.suspects[host.site] = min(place or 0, self.suspects.get(host.site, place or 0))
            case fx.Forked(first=first, last=last):
                self.forks.append((host.site, first, last))
                self._dispute(host.site, range(first, last + 1))
            case fx.Unavailable(sender=sender, number=number, count=count):
                self.unavailable += 1
                if sender is not None and number is not None:
                    self.disputed.update(MessageId(sender, each) for each in range(number, number + count))
                else:
                    self.lacking.add(host.site)
            case fx.CutOff():
                self.cut_off += 1
            case fx.Resumed():
                pass

    def _note_delivery(self, _now: Nanoseconds, host: Host, effect: fx.Deliver) -> None:
        if effect.place is None:
            return  # forged
        for number in range(effect.number, effect.number + len(effect.bodies)):
            self._placed.setdefault(MessageId(effect.sender, number), {})[host.site] = effect.place

    def _dispute(self, site: Site, places: range) -> None:
        """A member has told that it delivered these places alone."""
        self.disputed.update(message for message, at in self._placed.items() if at.get(site, -1) in places)

    def is_told(self, site: Site, message: MessageId) -> bool:
        """Whether a member told that this message may be missing at that site."""
        if message in self.disputed or site in self.suspects or site in self.lacking:
            return True
        placed = self._placed.get(message, {})
        return any(place >= self.suspects[at] for at, place in placed.items() if at in self.suspects)

    def _look(self, world: World) -> None:
        for member in self.members:
            self.sizes[member.vertices] += 1
        world.at(world.now + LOOK_NS, lambda: self._look(world))

    def metrics(self) -> Metrics:
        totals: dict[str, int] = {}
        for member in self.members:
            for name, value in member.figures().items():
                totals[name] = totals.get(name, 0) + value
        told = (
            "reports", "dummies", "late", "committed", "contradictions", "overflows", "seizures", "copies",
            "ignored",
        )  # fmt: skip
        return {
            "disagreements": self.disagreements,
            "unavailable": self.unavailable,
            "forks": len(self.forks),
            "forked_places": sum(last - first + 1 for _, first, last in self.forks),
            "cut_off": self.cut_off,
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


class DeliveryLog(Tap):
    """The deliveries of each member in order, and its presence.

    Throughput and presence are measured while messages are offered.
    """

    def __init__(self, sites: Iterable[Site], horizon_ns: Nanoseconds, recorder: Recorder | None) -> None:
        super().__init__(recorder)
        self._horizon_ns = horizon_ns
        self._delivered: dict[Site, list[MessageId]] = {site: [] for site in sites}
        self._in_time = dict.fromkeys(self._delivered, 0)
        self._left_ns: dict[Site, Nanoseconds] = {}
        self._away_ns: Nanoseconds = 0
        self._stayed = set(self._delivered)
        self._first_ns: dict[MessageId, Nanoseconds] = {}
        """When each message was first delivered anywhere."""
        self._spells = len(self._delivered)

    def on_row(
        self,
        site: Site,
        kind: Kind,
        time_ns: Nanoseconds,
        sender: Site | None,
        number: int | None,
        count: int,
    ) -> None:
        if kind == "deliver":
            assert sender is not None, "a delivery has a sender"
            assert number is not None, "and a number"
            messages = [MessageId(sender, number + index) for index in range(count)]
            self._delivered[site] += messages
            for message in messages:
                self._first_ns.setdefault(message, time_ns)
            self._in_time[site] += count if time_ns <= self._horizon_ns else 0
        elif kind == "absent":
            self._left_ns.setdefault(site, min(time_ns, self._horizon_ns))
            self._stayed.discard(site)
        elif kind == "present" and site in self._left_ns:
            self._away_ns += min(time_ns, self._horizon_ns) - self._left_ns.pop(site)
            self._spells += 1

    def missing(self, until_ns: Nanoseconds) -> list[tuple[Site, MessageId]]:
        """What was delivered somewhere until then and is missing at a member that stayed."""
        anywhere = {message for message, first_ns in self._first_ns.items() if first_ns <= until_ns}
        return [(site, each) for site in self._stayed for each in anywhere.difference(self._delivered[site])]

    def metrics(
        self,
        until_ns: Nanoseconds,
        is_told: Callable[[Site, MessageId], bool] = lambda _site, _message: False,
    ) -> Metrics:
        """The order of the member that delivered most is the reference for the others.

        What was delivered after `until_ns` may still be under way. `is_told` says whether members told that a
        site lacks a message.
        """
        delivered = self._delivered
        reference = max(delivered.values(), key=len)
        missing = self.missing(until_ns)
        horizon_ns = max(1, self._horizon_ns)
        away_ns = self._away_ns + sum(horizon_ns - left_ns for left_ns in self._left_ns.values())
        in_time = min(self._in_time[site] for site in self._stayed or self._in_time)
        return {
            "out_of_order": len(out_of_order(reference, delivered)),
            "missing": len(missing),
            "missing_untold": sum(not is_told(*each) for each in missing),
            "busy_throughput": in_time / to_seconds(horizon_ns),
            "present_share": 1.0 - away_ns / (horizon_ns * len(delivered)),
            "spells": self._spells,
        }


def build_service(configuration: Configuration) -> Service:
    """The service asked for, with pauses that suit the network."""
    round_trip_ns = configuration.round_trip_ns
    if configuration.service == "lan":
        return build_lan(configuration)
    if configuration.service == "bounded-delay":
        usual_ns = max(5 * MILLISECOND_NS, 2 * round_trip_ns)
        bound_ns = from_seconds(configuration.bound_ms / 1000) or usual_ns
        return BoundedDelayService(
            bound_ns,
            least_ns=min(MILLISECOND_NS, bound_ns),
            most_ns=max(SECOND_NS, 4 * bound_ns),
            detector=configuration.contiguity or "evidence",
        )
    return SequencerService(
        SequencerOptions(
            repeat_ns=max(10 * MILLISECOND_NS, 2 * round_trip_ns),
            gap_ns=max(3 * MILLISECOND_NS, round_trip_ns),
            takeover_ns=max(40 * MILLISECOND_NS, 8 * round_trip_ns),
            gather_answers_ns=max(25 * MILLISECOND_NS, 4 * round_trip_ns),
            outside=OUTSIDE if configuration.outside else None,
        )
    )


class ForeignGroup:
    """Another group as an outside sequencer sees it: tags, at random times. Implements `Protocol`."""

    def __init__(self, rate: float, random: Random) -> None:
        self._mean_ns: Final = SECOND_NS / rate
        self._random: Final = random

    def handle(self, now: Nanoseconds, event: Input) -> list[fx.Effect]:  # noqa: ARG002
        match event:
            case Start():
                return [self._wait()]
            case TimerFired():
                tags = pack_tags([self._random.randrange(1, TAG_LIMIT)])
                return [fx.Send(OUTSIDE, TagRequest(tags, 1, 0)), self._wait()]
        return []

    def _wait(self) -> fx.SetTimer:
        return fx.SetTimer("foreign", 1 + round(self._random.expovariate(1 / self._mean_ns)))


def build_lan(configuration: Configuration) -> LanService:
    """The single-access LAN; its timing detector knows how long a message without a body takes."""
    if configuration.contiguity != "timing":
        return LanService()
    byte_ns = 8 * SECOND_NS / configuration.bandwidth
    return LanService("timing", round((HEADER.size + ASSUMED_FIELD_BYTES) * byte_ns), byte_ns)


def build_network(configuration: Configuration, seeds: Seeds, processing: Processing | None = None) -> Medium:
    return Medium(
        configuration.members + len(configuration.servers),
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

    Missing messages are matched with what members told, see `Doubts.is_told`. Messages out of order are
    noticed if members disagreed.
    """
    late, missing, untold = (
        int(metrics[name] or 0) for name in ("out_of_order", "missing", "missing_untold")
    )
    return {"violated": late + missing, "unnoticed": untold + (0 if metrics["disagreements"] else late)}


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs = configuration.protocol_configuration()
    doubts = Doubts()
    log = DeliveryLog(site_names(configuration.members), configuration.horizon_ns, recorder)
    seeds = Seeds(seed)
    streams: dict[Site, Random] = {}

    def build(site: Site, _members: tuple[Site, ...]) -> Protocol:
        random = streams.setdefault(site, seeds.stream(f"dpg/{site}"))
        if site == OUTSIDE:
            return TagSequencerSite(site, random)
        if site == FOREIGN:
            return ForeignGroup(configuration.foreign_rate, random)
        member = Dpg(site, knobs, build_service(configuration), random)
        doubts.add(site, member)
        delivering = configuration.delivering(member, one_order=True)
        if not configuration.drift_ppm:
            return delivering
        return Drifting(delivering, configuration.drift_ppm, seeds.stream(f"drift/{site}"))

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
        pdus=(*PDUS, *SERVICE_PDUS),
        servers=configuration.servers,
        server_crashes=configuration.outside_crashes,
        tells_losses=lambda: doubts.unavailable > 0,
        gave_up=doubts.disputed.__contains__,
    )
    metrics = simulate(configuration, subject, seed, log) | doubts.metrics()
    end_ns = from_seconds(float(metrics["simulated_s"] or 0.0))
    metrics |= log.metrics(end_ns if metrics["finished"] else end_ns - UNDER_WAY_NS, doubts.is_told)
    metrics |= violated_metrics(metrics)
    return metrics | (channel_metrics(media[0], configuration.members) if media else {})


def almost(configuration: Configuration | None) -> tuple[Property, ...]:
    """After a partition a sender's messages may come out of its order: a side may lack the first of them.

    A crashed member may be given again what it delivered and told no other.
    """
    split = configuration is not None and configuration.partitions > 0
    crashes = configuration is not None and configuration.crashes > 0
    return (*ALMOST, *(("fifo",) if split else ()), *(("duplicate",) if crashes else ()))


SCENARIO: Final = Scenario(
    name="dpg",
    summary="Total order by a Distributed Precedence Graph, which needs no agreed membership.",
    example="antiphon simulate dpg --members 7 --messages 1000 --loss 0.05 --churn 2 --seed 1",
    configuration=Configuration,
    run=run,
    promises=PROMISES,
    promised=promised(PROMISES),
    almost=ALMOST,
    almost_in=almost,
    audited=True,
    cost_s=lambda knobs: 0.02 + SECONDS_PER_DELIVERY * knobs.members * knobs.messages / knobs.batch,
)
