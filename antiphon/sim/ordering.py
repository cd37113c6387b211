"""What the scenarios of ordering protocols share: the knobs, the workload, the faults and the metrics.

A run has two parts. In the first, messages are offered at the given rate while the faults drawn from the seed
come and go. Once all of them have healed and every member takes part again, each member multicasts a closing
message, and the run demands progress: every member must deliver all of these. Under heavy loss a member can
be wrongly excluded in the middle of that; then another round of closing messages is sent. Without faults
there is only the first part.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.ids import MessageId, Site, site_names
from antiphon.core.packing import Packed
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Kind, Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import (
    MILLISECOND_NS,
    NEVER_NS,
    SECOND_NS,
    Nanoseconds,
    from_seconds,
    to_seconds,
)
from antiphon.core.wire import HEADER, Pdu
from antiphon.sim import churn
from antiphon.sim.churn import Pace
from antiphon.sim.control import MeteredNetwork
from antiphon.sim.layers import Delay, Duplication, Loss, Partition, Reordering
from antiphon.sim.medium import Medium
from antiphon.sim.mesh import Mesh
from antiphon.sim.network import Layer, Network
from antiphon.sim.sabotage import NONE, Saboteur, check_sabotage
from antiphon.sim.scenario import Metrics
from antiphon.sim.sizes import encoded_size
from antiphon.sim.tap import Tap
from antiphon.sim.world import Host, World

ASSUMED_FIELD_BYTES: Final = 24
"""Bytes of a PDU's fields beside its bodies, close enough for the medium's timing."""
RETRY_NS: Final = 5 * MILLISECOND_NS
"""When an application whose message was refused tries again."""
LOOK_NS: Final = 20 * MILLISECOND_NS
"""How often the run looks whether it is finished."""
LINGER_NS: Final = 50 * MILLISECOND_NS
"""How long a finished run continues, so that deliveries can become stable, too."""
CLOSING_NS: Final = SECOND_NS
"""How long a round of closing messages may take before another is sent."""
PATIENCE_NS: Final = 20 * SECOND_NS
"""How long a run may take to finish after its faults are over. With three in ten PDUs lost and room for four
messages, sixty of them may need most of it."""
BUCKET_NS: Final = 100 * MILLISECOND_NS
"""The unit in which halts and slow stretches are counted."""
HALTED: Final = 0.1
"""Below this share of its median bucket a member is halted."""
SLOWED: Final = 0.6
"""Below this share, and not halted, it is slowed: to about half, give or take what buckets vary by anyway."""


@dataclass(frozen=True, kw_only=True)
class OrderingConfiguration:
    """The knobs that every ordering protocol has."""

    members: Annotated[int, "members of the group"] = 7
    senders: Annotated[int | None, "members that send, the first ones; all by default"] = None
    messages: Annotated[int, "messages in total, over all members"] = 1000
    size: Annotated[int, "bytes of a message's body"] = 100
    batch: Annotated[int, "messages that an application hands in at once"] = 1
    rate: Annotated[float, "messages a second offered by the whole group"] = 1000.0
    network: Annotated[str, "mesh (a channel per pair) or medium (one broadcast channel of 10 Mbit/s)"] = (
        "mesh"
    )
    mbps: Annotated[float, "megabits a second of each channel of a mesh; 0 means no limit"] = 0.0
    delay_ms: Annotated[float, "one-way delay in milliseconds"] = 1.0
    jitter_ms: Annotated[float, "further delay, drawn evenly from 0 to this"] = 0.0
    loss: Annotated[float, "probability that an arrival is lost"] = 0.0
    duplication: Annotated[float, "probability that an arrival comes twice"] = 0.0
    reordering: Annotated[float, "probability that an arrival is held up, so that others overtake it"] = 0.0
    churn: Annotated[int, "members that alternate presence and absence"] = 0
    calm_ms: Annotated[float, "mean time between a member's absences, crashes and partitions"] = 500.0
    away_ms: Annotated[float, "mean time that an absence, a crash or a partition lasts"] = 300.0
    crashes: Annotated[int, "crashes of random members, each followed by a restart without memory"] = 0
    partitions: Annotated[int, "partitions, each of a random cell against the rest, healed in the end"] = 0
    detector_ms: Annotated[float, "delay of an outside failure detector in milliseconds; 0 means none"] = 0.0
    sabotage: Annotated[str, "none, or a deed that breaks one property on purpose, such as swap"] = NONE

    def __post_init__(self) -> None:
        if self.members < 2 or self.messages < 1 or self.size < 0 or self.batch < 1:
            raise UsageError("A run needs at least two members, one message and one message a batch.")
        if not 1 <= self.sender_count <= self.members:
            raise UsageError("At least one member sends, and at most all of them.")
        if self.rate <= 0:
            raise UsageError("The rate must be positive.")
        if min(self.mbps, self.delay_ms, self.jitter_ms, self.detector_ms) < 0:
            raise UsageError("No delay and no bandwidth can be negative.")
        if min(self.calm_ms, self.away_ms) < 1:
            raise UsageError("Presence and absence last a millisecond or longer.")
        if self.network not in ("mesh", "medium"):
            raise UsageError(f"There is no network '{self.network}'.", hint="Choose mesh or medium.")
        for name in ("loss", "duplication", "reordering"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise UsageError(f"The {name} is a probability from 0 to below 1.")
        if not 0 <= self.churn <= self.members or min(self.crashes, self.partitions) < 0:
            raise UsageError("At most all members can churn, and no count of faults is negative.")
        check_sabotage(self.sabotage)

    @property
    def sender_count(self) -> int:
        """How many members send."""
        return self.members if self.senders is None else self.senders

    @property
    def horizon_ns(self) -> Nanoseconds:
        """When the last message is offered, without the closing ones."""
        return from_seconds(self.messages / self.rate)

    @property
    def pace(self) -> Pace:
        """How long faults last and how long it is calm between them, on average."""
        return Pace(calm_ns=from_seconds(self.calm_ms / 1000), trouble_ns=from_seconds(self.away_ms / 1000))

    @property
    def round_trip_ns(self) -> Nanoseconds:
        """There and back, with a millisecond for what a shared channel adds."""
        return from_seconds(2 * (self.delay_ms + self.jitter_ms) / 1000) + MILLISECOND_NS


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What the run must know about the protocol under test."""

    build: Callable[[Site, tuple[Site, ...]], Protocol]
    repairs: bool
    """Whether it repairs losses, so that every message must reach every member that stays."""
    settle_ns: Nanoseconds
    """How long after the last fault it may take until every member takes part again."""
    leader_crashes_alone: bool
    """Whether nothing else may go wrong around a crash of the first member."""
    network: Callable[[Seeds], Network] | None = None
    """The protocol's own network, which handles losses itself; None means the network of the knobs."""
    watch: Callable[[World], None] | None = None
    """An observer that wants to see more of the world than the workload does."""
    size_of: Callable[[Pdu], int] | None = None
    """The size of its PDUs on the wire; None means `wire_size`."""
    pdus: tuple[type[Pdu], ...] = ()
    """Its PDUs, if the bytes that control costs are to be counted."""
    servers: tuple[Site, ...] = ()
    """Sites that take part and are no members: they have no application and no row in the trace."""
    server_crashes: int = 0
    """Crashes of the first server, each followed by a restart without memory."""
    forgets: bool = False
    """Whether a member whose spell ended restarts without memory: its admitted messages may be lost, and it
    knows only the members that have appeared to it since."""
    gave_up: Callable[[MessageId], bool] = lambda _message: False
    """Whether a member has reported that others need not have a message, or that it will not deliver it."""
    tells_losses: Callable[[], bool] = lambda: False
    """Whether a member has reported that a message cannot be delivered: it may be a message whose sender was
    absent before any other member had it."""


def wire_size(pdu: Pdu) -> int:
    """A PDU's size on the wire, near enough."""
    bodies: Iterable[bytes] = getattr(pdu, "bodies", ())
    size = bodies.size if isinstance(bodies, Packed) else sum(map(len, bodies))
    return HEADER.size + ASSUMED_FIELD_BYTES + size


def simulate(
    configuration: OrderingConfiguration,
    subject: Subject,
    seed: int,
    recorder: Recorder | None,
    workload_kind: "type[Workload] | None" = None,
) -> Metrics:
    """One run: a world, its faults, its workload, and the results."""
    seeds = Seeds(seed)
    sites = tuple(site_names(configuration.members))
    faults = draw_faults(configuration, subject, seeds, sites)
    everyone = (*sites, *subject.servers)
    partition = Partition(len(everyone))
    watch = Watch(sites, recorder)
    network = (
        _network(configuration, seeds, len(everyone)) if subject.network is None else subject.network(seeds)
    )
    meter = MeteredNetwork(network, len(everyone), encoded_size(subject.pdus)) if subject.pdus else None
    world = World(
        sites=everyone,
        servers=subject.servers,
        build=_builder(configuration, subject, seeds, sites, faults),
        network=meter or network,
        size_of=wire_size if subject.size_of is None else subject.size_of,
        layers=_layers(
            configuration, seeds, partition if configuration.partitions else None, subject.network is None
        ),
        recorder=watch,
    )
    if subject.watch is not None:
        subject.watch(world)
    detection_ns = from_seconds(configuration.detector_ms / 1000) if configuration.detector_ms else None
    churn.schedule(world, faults, partition, detection_ns)
    workload = (workload_kind or Workload)(world, configuration, subject, seeds, faults, watch)
    world.start()
    workload.begin()
    world.run(workload.deadline_ns)
    return workload.metrics() | (
        meter.metrics(world.now, configuration.sender_count) if meter is not None else {}
    )


def draw_faults(
    configuration: OrderingConfiguration, subject: Subject, seeds: Seeds, sites: tuple[Site, ...]
) -> list[churn.Fault]:
    """All that goes wrong in a run, each kind from a stream of its own."""
    random = seeds.stream("churn/absences")
    # The first member comes last: protocols with a leader have it there, and churn without it is the usual.
    followers = random.sample(sites[1:], min(configuration.churn, len(sites) - 1))
    churning = [*followers, *sites[: configuration.churn - len(followers)]]
    horizon_ns, pace = configuration.horizon_ns, configuration.pace
    faults: list[churn.Fault] = [
        *churn.draw_absences(random, churning, horizon_ns, pace),
        *churn.draw_crashes(seeds.stream("churn/crashes"), sites, configuration.crashes, horizon_ns, pace),
        *churn.draw_crashes(
            seeds.stream("churn/servers"), subject.servers[:1], subject.server_crashes, horizon_ns, pace
        ),
        *churn.draw_splits(seeds.stream("churn/splits"), sites, configuration.partitions, horizon_ns, pace),
    ]
    faults = churn.without_meetings(faults)
    return churn.alone(faults, sites[0], subject.settle_ns) if subject.leader_crashes_alone else faults


def _builder(
    configuration: OrderingConfiguration,
    subject: Subject,
    seeds: Seeds,
    sites: tuple[Site, ...],
    faults: list[churn.Fault],
) -> Callable[[Site], Protocol]:
    """Builds the members, including a saboteur if there is one: if possible a member that always stays."""
    if configuration.sabotage == NONE:
        return lambda site: subject.build(site, sites)
    random = seeds.stream("sabotage")
    calm = [site for site in sites if site not in churn.troubled_sites(faults)]
    culprit = random.choice(calm or sites)

    def build(site: Site) -> Protocol:
        protocol = subject.build(site, sites)
        return (
            Saboteur(protocol, configuration.sabotage, site, sites, random) if site == culprit else protocol
        )

    return build


def _network(configuration: OrderingConfiguration, seeds: Seeds, sites: int) -> Network:
    delay_ns = from_seconds(configuration.delay_ms / 1000)
    if configuration.network == "medium":
        return Medium(sites, seeds, propagation_ns=delay_ns)
    jitter_ns = from_seconds(configuration.jitter_ms / 1000)
    bandwidth = 1e6 * configuration.mbps or None
    return Mesh(sites, seeds, delay_ns=delay_ns, jitter_ns=jitter_ns, bandwidth=bandwidth)


def _layers(
    configuration: OrderingConfiguration, seeds: Seeds, partition: Partition | None, with_loss: bool
) -> list[Layer]:
    span_ns = 3 * configuration.round_trip_ns
    layers: list[Layer] = [partition] if partition is not None else []
    if configuration.network == "medium" and configuration.jitter_ms:
        layers.append(Delay(seeds, 0, from_seconds(configuration.jitter_ms / 1000)))
    if configuration.loss and with_loss:
        layers.append(Loss(seeds, configuration.loss))
    if configuration.duplication:
        layers.append(Duplication(seeds, configuration.duplication, span_ns))
    if configuration.reordering:
        layers.append(Reordering(seeds, configuration.reordering, span_ns))
    return layers


class Watch(Tap):
    """Tracks which sites are present and which always were."""

    def __init__(self, sites: tuple[Site, ...], recorder: Recorder | None) -> None:
        super().__init__(recorder)
        self.stayed = set(sites)
        self.away: set[Site] = set()
        self.left_ns: dict[Site, Nanoseconds] = {}
        self.returned_ns: dict[Site, Nanoseconds] = {}
        """When each site's last spell ended, and when the next one began."""

    def on_row(self, site: Site, kind: Kind, time_ns: Nanoseconds, *_row: object) -> None:
        if kind == "absent":
            self.stayed.discard(site)
            self.away.add(site)
            self.left_ns[site] = time_ns
        elif kind == "present":
            self.away.discard(site)
            self.returned_ns[site] = time_ns


class Workload:
    """The applications of all members: they hand messages in, count what is delivered, and end the run."""

    def __init__(
        self,
        world: World,
        configuration: OrderingConfiguration,
        subject: Subject,
        seeds: Seeds,
        faults: list[churn.Fault],
        watch: Watch,
    ) -> None:
        self._world = world
        self._configuration = configuration
        self._subject = subject
        self._random = seeds.stream("workload")
        self._faults = faults
        self._watch = watch
        self._body = bytes(configuration.size)
        self._backlog = {host.site: 0 for host in world.hosts if host.site not in subject.servers}
        self._everyone: Final = frozenset(self._backlog)
        self._senders: Final = list(self._backlog)[: configuration.sender_count]
        self._retrying: set[Site] = set()
        self._admitted_ns: dict[MessageId, Nanoseconds] = {}
        self._meant: dict[MessageId, frozenset[Site]] = {}
        self._reached: dict[MessageId, set[Site]] = {}
        self._open: set[MessageId] = set()
        self._latencies_ns: list[Nanoseconds] = []
        self._until_stable_ns: list[Nanoseconds] = []
        """How long it took until a message's sender knew that it was stable."""
        self._counts = dict.fromkeys(self._backlog, 0)
        self._last_ns: Nanoseconds = 0
        self._offers_ns: list[Nanoseconds] = []
        self._buckets: dict[Site, Counter[int]] = {site: Counter() for site in self._backlog}
        self._closing: set[MessageId] | None = None
        self._closing_since_ns: Nanoseconds = 0
        self._finished_ns: Nanoseconds | None = None
        calm_ns = max(configuration.horizon_ns, churn.healed_ns(faults))
        self._closing_ns = calm_ns + subject.settle_ns if faults else calm_ns
        self.deadline_ns = self._closing_ns + PATIENCE_NS + configuration.horizon_ns
        self._also = world.on_deliver
        """An observer of deliveries that was there before."""
        world.on_admitted = self._note_admission
        world.on_deliver = self._note_delivery
        world.on_stable = self._note_own_stable

    # Offering

    def begin(self) -> None:
        """Spread the messages over the time, each batch from a member drawn at random."""
        left = self._configuration.messages
        if self._faults:
            # The closing messages are part of the total.
            left = max(0, left - len(self._backlog))
        while left:
            count = min(left, self._configuration.batch)
            left -= count
            time_ns, site = self._next_offer()
            self._offers_ns.append(time_ns)
            self._world.at(time_ns, lambda site=site, count=count: self._offer(site, count))  # type: ignore[misc]
        self._world.at(self._closing_ns, self._look)

    def _next_offer(self) -> tuple[Nanoseconds, Site]:
        """When the next batch is offered, and its destinations."""
        time_ns = self._random.randint(0, self._configuration.horizon_ns)
        return time_ns, self._random.choice(self._senders)

    def _offer(self, site: Site, count: int) -> None:
        self._backlog[site] += count
        if site not in self._retrying:
            self._hand_in(site)

    def _hand_in(self, site: Site) -> None:
        """Hand in what waits, batch by batch; when a batch is refused, try again later."""
        self._retrying.discard(site)
        host = self._world.host(site)
        while self._backlog[site]:
            before = host.admitted
            count = min(self._backlog[site], self._configuration.batch)
            self._hand_over(site, count)
            if host.admitted == before:
                self._retrying.add(site)
                self._world.at(self._world.now + RETRY_NS, lambda: self._hand_in(site))
                return
            self._backlog[site] -= count

    def _hand_over(self, site: Site, count: int) -> None:
        self._world.admit(site, *self._next_batch(site, count))

    def _next_batch(self, site: Site, count: int) -> tuple[Sequence[bytes], frozenset[Site] | None]:  # noqa: ARG002
        """What this member hands in next, and its destinations; None means every member."""
        return [self._body] * count, None

    # Counting

    def _meant_for(self, effect: fx.Admitted) -> Sequence[frozenset[Site]]:
        """The members that must deliver each of the admitted messages."""
        return [self._everyone] * effect.count

    def _note_admission(self, now: Nanoseconds, host: Host, effect: fx.Admitted) -> None:
        for number, meant in enumerate(self._meant_for(effect), start=effect.number):
            message = MessageId(host.site, number)
            self._admitted_ns[message] = now
            self._meant[message] = meant
            self._reached[message] = set()
            self._open.add(message)
            if self._closing is not None:
                self._closing.add(message)

    def _note_own_stable(self, now: Nanoseconds, host: Host, effect: fx.Stable) -> None:
        if effect.sender == host.site:
            numbers = range(effect.number, effect.number + effect.count)
            sent_ns = (self._admitted_ns.get(MessageId(host.site, number)) for number in numbers)
            self._until_stable_ns += [now - each_ns for each_ns in sent_ns if each_ns is not None]

    def _note_delivery(self, now: Nanoseconds, host: Host, effect: fx.Deliver) -> None:
        if self._also is not None:
            self._also(now, host, effect)
        for number in range(effect.number, effect.number + len(effect.bodies)):
            message = MessageId(effect.sender, number)
            reached = self._reached.get(message)
            if reached is None:
                continue  # forged
            reached.add(host.site)
            self._latencies_ns.append(now - self._admitted_ns[message])
            if len(reached) == len(self._meant[message]):
                self._open.discard(message)
        self._buckets[host.site][now // BUCKET_NS] += len(effect.bodies)
        if self._closing is None:
            self._counts[host.site] += len(effect.bodies)
            self._last_ns = now

    # Ending

    def _look(self) -> None:
        """Go from offering to closing, and from closing to the end."""
        if self._offered() and self._closed() and self._complete():
            self._finished_ns = self._world.now
            self._world.at(self._world.now + LINGER_NS, self._world.stop)
            return
        self._world.at(self._world.now + LOOK_NS, self._look)

    def _offered(self) -> bool:
        return not any(self._backlog.values())

    def _closed(self) -> bool:
        """After faults, every member has sent a closing message; they do so once everyone takes part."""
        if not self._faults:
            return True
        begun = self._closing is not None and self._world.now < self._closing_since_ns + CLOSING_NS
        if not begun and not self._watch.away:
            self._closing = set()
            self._closing_since_ns = self._world.now
            for site in self._backlog:
                self._offer(site, 1)
            return False
        return self._closing is not None and len(self._closing) >= len(self._backlog)

    def _complete(self) -> bool:
        """Whether everything that had to be delivered was."""
        if not self._subject.repairs:
            return self._world.network.next_ns() == NEVER_NS
        self._open = {message for message in self._open if not self._is_complete(message)}
        return not self._open

    def _is_complete(self, message: MessageId) -> bool:
        reached, meant = self._reached[message], self._meant[message]
        if self._closing and message in self._closing:
            return len(reached) == len(meant)
        if self._subject.gave_up(message):
            return True
        if not reached:
            return self._may_be_lost(message)
        return self._watch.stayed & meant <= reached

    def _may_be_lost(self, message: MessageId) -> bool:
        """A message that no member delivered may die with its sender, or with the last of its
        destinations."""
        admitted_ns = self._admitted_ns[message]
        if self._subject.forgets and self._is_forgotten(message):
            return True
        if self._subject.tells_losses() and self._watch.left_ns.get(message.sender, -1) >= admitted_ns:
            return True
        return any(
            isinstance(fault, churn.Crash) and fault.site == message.sender and fault.begin_ns >= admitted_ns
            for fault in self._faults
        )

    def _is_forgotten(self, message: MessageId) -> bool:
        """Whether its sender, or every destination, restarted after it was admitted.

        A member that restarted recently may have been addressed as its earlier incarnation, of which it knows
        nothing.
        """
        admitted_ns, watch = self._admitted_ns[message], self._watch
        lately_ns = admitted_ns - self._subject.settle_ns
        gone = {site for site, left_ns in watch.left_ns.items() if left_ns >= admitted_ns}
        new = {site for site, returned_ns in watch.returned_ns.items() if returned_ns > lately_ns}
        return message.sender in gone or self._meant[message] <= gone | new

    def metrics(self) -> Metrics:
        latencies_ns = sorted(self._latencies_ns)
        stayed = self._watch.stayed or set(self._counts)
        least = min(self._counts[site] for site in stayed)
        end_ns = self._world.now if self._finished_ns is None else self._finished_ns
        halted_share, slowed_share = self._weak_shares()
        return {
            "deliveries": sum(host.delivered for host in self._world.hosts),
            "throughput": least / to_seconds(self._last_ns) if self._last_ns else 0.0,
            "latency_s": _mean_s(latencies_ns),
            "latency_p99_s": to_seconds(latencies_ns[len(latencies_ns) * 99 // 100])
            if latencies_ns
            else None,
            "stability_s": _mean_s(self._until_stable_ns),
            "network_messages": self._world.network.network_messages(),
            "rejected": self._world.rejections,
            "halted_share": round(halted_share, 4),
            "slowed_share": round(slowed_share, 4),
            "finished": self._finished_ns is not None,
            "simulated_s": to_seconds(end_ns),
        }

    def _weak_shares(self) -> tuple[float, float]:
        """The share of the time, while messages were offered, in which stayers were halted, and slowed.

        Members that no fault touched are stayers, even if the protocol excluded them; if all were touched,
        all are.
        """
        troubled = churn.troubled_sites(self._faults)
        stayed = [site for site in self._buckets if site not in troubled] or list(self._buckets)
        first = min(self._offers_ns, default=0) // BUCKET_NS
        following = max(self._offers_ns, default=0) // BUCKET_NS
        halted = slowed = 0
        for site in stayed:
            counts = [self._buckets[site][bucket] for bucket in range(first, following)]
            usual = usual_count(counts)
            halted += sum(count < HALTED * usual for count in counts)
            slowed += sum(HALTED * usual <= count < SLOWED * usual for count in counts)
        total = max(1, len(stayed) * (following - first))
        return halted / total, slowed / total


def _mean_s(spans_ns: Sequence[Nanoseconds]) -> float | None:
    return to_seconds(sum(spans_ns)) / len(spans_ns) if spans_ns else None


def usual_count(counts: list[int]) -> int:
    """The median; if that would be zero, the median of the nonzero values, since then halts are normal."""
    for chosen in (sorted(counts), sorted(count for count in counts if count)):
        if chosen and chosen[len(chosen) // 2]:
            return chosen[len(chosen) // 2]
    return 0
