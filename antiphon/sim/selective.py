"""What the scenarios share whose senders choose the destinations of each message.

The workload is that of every ordering protocol, except that each batch goes to random members and is awaited
at these only. Closing messages go to every member. A meter between each member and the world counts what the
member sends: copies of data, and everything else, which is the cost of control.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Final

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.ids import MessageId, Site
from antiphon.core.inputs import Input
from antiphon.core.packing import Packed, pack
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import Nanoseconds, from_seconds, to_seconds
from antiphon.core.wire import Codec, Pdu
from antiphon.sim.churn import Fault
from antiphon.sim.ordering import OrderingConfiguration, Subject, Watch, Workload, simulate
from antiphon.sim.scenario import Metrics
from antiphon.sim.sizes import encoded_size
from antiphon.sim.world import Host, World

SENDINGS: Final = ("random", "even")


@dataclass(frozen=True, kw_only=True)
class SelectiveConfiguration(OrderingConfiguration):
    """The shared knobs and those of a choice of destinations."""

    destinations: Annotated[int, "destinations of each message, drawn at random; 0 means all"] = 0
    varied: Annotated[bool, "each message has from one to that many destinations"] = False
    own_share: Annotated[float, "share of messages that go to their sender too, as one of their number"] = 0.1
    mixed: Annotated[bool, "the messages of one batch have destinations of their own"] = False
    sending: Annotated[str, "random (at any time) or even (each member at even distances)"] = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.destinations <= self.members:
            raise UsageError("A message goes to no more destinations than there are members.")
        if not 0.0 <= self.own_share <= 1.0:
            raise UsageError("The share of messages that go to their sender too is from 0 to 1.")
        if self.sending not in SENDINGS:
            raise UsageError(f"There is no sending '{self.sending}'.", hint="Choose random or even.")


@dataclass(frozen=True, kw_only=True)
class FixedConfiguration(SelectiveConfiguration):
    """The same for protocols whose members never forget: absent members are waited for."""

    window: Annotated[int, "batches that a sender may have under way, not known to be held by all"] = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.crashes:
            raise UsageError(
                "The members of this protocol are taken to be reliable: none of them may crash.",
                hint="Leave --crashes out, or simulate sco, which goes on without those that crashed.",
            )
        if self.window < 1:
            raise UsageError("A window holds at least one batch.")

    @property
    def is_reliable(self) -> bool:
        """Whether nothing can be lost, come twice or be overtaken on the way."""
        trouble = (self.loss, self.duplication, self.reordering, self.churn, self.partitions)
        return self.network == "mesh" and not any(trouble)


def draw_destinations(
    random: Random, site: Site, others: Sequence[Site], configuration: SelectiveConfiguration
) -> frozenset[Site] | None:
    """The destinations of one message of this member: some others, and sometimes itself; None means all."""
    count = configuration.destinations
    if not count:
        return None
    if configuration.varied:
        count = random.randint(1, count)
    # Its sender comes to the others' number; where they are too few it must be among them.
    if random.random() < configuration.own_share or count > len(others):
        return frozenset(random.sample(others, min(count - 1, len(others)))) | {site}
    return frozenset(random.sample(others, count))


class SelectiveWorkload(Workload):
    """Applications that choose the destinations of each batch."""

    _configuration: SelectiveConfiguration

    def __init__(
        self,
        world: World,
        configuration: SelectiveConfiguration,
        subject: Subject,
        seeds: Seeds,
        faults: list[Fault],
        watch: Watch,
    ) -> None:
        super().__init__(world, configuration, subject, seeds, faults, watch)
        self._choice: Final = seeds.stream("workload/destinations")
        self._appeared_ns: Final = {site: dict.fromkeys(self._backlog, 0) for site in self._backlog}
        """Since when each member knows each other member."""
        self._addressed: Sequence[frozenset[Site] | None] | None = None
        """The destinations of each message of the batch being handed in, if they differ."""
        self._half_accepted: Final[set[tuple[MessageId, Site]]] = set()
        """Messages that some destination has delivered, or knows to be stable, but not both."""
        self._acceptances_ns: Final[list[Nanoseconds]] = []
        self._stabilities_ns: Final[list[Nanoseconds]] = []
        self._offers = 0
        self._phases_ns: Final = self._draw_phases(seeds.stream("workload/phases"))
        world.on_stable = self._note_stable
        world.on_presence = self._note_presence

    def _draw_phases(self, random: Random) -> dict[Site, Nanoseconds]:
        return {site: random.randrange(max(1, self._interval_ns)) for site in self._backlog}

    @property
    def _interval_ns(self) -> Nanoseconds:
        """How far apart a member's batches are when they come evenly."""
        knobs = self._configuration
        return from_seconds(knobs.sender_count * knobs.batch / knobs.rate)

    # Offering

    def _next_offer(self) -> tuple[Nanoseconds, Site]:
        if self._configuration.sending == "random":
            return super()._next_offer()
        sites = self._senders
        turn, place = divmod(self._offers, len(sites))
        self._offers += 1
        site = sites[place]
        time_ns = self._phases_ns[site] + turn * self._interval_ns
        # What would come after the end of a last, incomplete turn comes in the first turn.
        return time_ns % (self._configuration.horizon_ns + 1), site

    def _next_batch(self, site: Site, count: int) -> tuple[Sequence[bytes], frozenset[Site] | None]:
        """A batch that is refused gets other destinations when it is tried again."""
        bodies = [self._body] * count
        self._addressed = None
        if self._closing is not None:
            return bodies, None
        others = self._others_known(site)
        if not self._configuration.mixed:
            return bodies, draw_destinations(self._choice, site, others, self._configuration)
        each = [draw_destinations(self._choice, site, others, self._configuration) for _ in bodies]
        if None in each:
            return bodies, None
        self._addressed = each
        together = frozenset().union(*(some for some in each if some is not None))
        return pack(bodies, addresses=each), together

    def _others_known(self, site: Site) -> list[Site]:
        """The members that this one can name, without itself. Members that it met before a restart are not
        known."""
        begun_ns = self._watch.left_ns.get(site, 0) if self._subject.forgets else 0
        appeared_ns = self._appeared_ns[site]
        return [other for other in self._backlog if other != site and appeared_ns.get(other, -1) >= begun_ns]

    # Counting

    def _note_presence(self, now: Nanoseconds, host: Host, effect: fx.Appeared | fx.Vanished) -> None:
        if isinstance(effect, fx.Appeared):
            self._appeared_ns[host.site][effect.site] = now
        else:
            self._appeared_ns[host.site].pop(effect.site, None)

    def _meant_for(self, effect: fx.Admitted) -> Sequence[frozenset[Site]]:
        meant = self._everyone if effect.destinations is None else effect.destinations
        if self._addressed is None:
            return [meant] * effect.count
        return [meant if some is None else some & meant for some in self._addressed]

    def _note_delivery(self, now: Nanoseconds, host: Host, effect: fx.Deliver) -> None:
        super()._note_delivery(now, host, effect)
        self._note_half(now, host.site, effect.sender, effect.number, len(effect.bodies))

    def _note_stable(self, now: Nanoseconds, host: Host, effect: fx.Stable) -> None:
        """A message is atomically accepted where it is known to be held by all its destinations."""
        for number in range(effect.number, effect.number + effect.count):
            message = MessageId(effect.sender, number)
            if host.site in self._meant.get(message, ()):
                self._stabilities_ns.append(now - self._admitted_ns[message])
        self._note_half(now, host.site, effect.sender, effect.number, effect.count)

    def _note_half(self, now: Nanoseconds, site: Site, sender: Site, number: int, count: int) -> None:
        """A message is fully accepted where it is atomically accepted and delivered."""
        for message in (MessageId(sender, number + offset) for offset in range(count)):
            if site not in self._meant.get(message, ()):
                continue
            if (message, site) in self._half_accepted:
                self._half_accepted.remove((message, site))
                self._acceptances_ns.append(now - self._admitted_ns[message])
            else:
                self._half_accepted.add((message, site))

    def metrics(self) -> Metrics:
        return super().metrics() | {
            "admitted": len(self._admitted_ns),
            "atomic_s": _mean_s(self._stabilities_ns),
            "accepted": len(self._acceptances_ns),
            "acceptance_s": _mean_s(self._acceptances_ns),
        }


def _mean_s(times_ns: Sequence[Nanoseconds]) -> float | None:
    return to_seconds(sum(times_ns)) / len(times_ns) if times_ns else None


@dataclass
class Meter:
    """What all members of a run have sent, in copies: a multicast to five is five."""

    members: int
    data_kinds: tuple[type[Pdu], ...]
    """The PDUs that carry bodies."""
    codec: Codec
    data_messages: int = 0
    control_messages: int = 0
    given_up: set[MessageId] = field(default_factory=set)
    """Messages that their senders have given up: no member delivers them."""
    metadata_bytes: int = 0
    """What copies of data take on the wire beside their bodies, the header that all PDUs have left out."""
    control_bytes: int = 0

    def count(self, effect: fx.Send | fx.Multicast) -> None:
        pdu = effect.pdu
        copies = 1
        if isinstance(effect, fx.Multicast):
            copies = self.members - 1 if effect.to is None else len(effect.to)
        if isinstance(pdu, self.data_kinds):
            self.data_messages += copies
            self.metadata_bytes += copies * (self._fields_bytes(pdu) - _body_bytes(pdu))
        else:
            self.control_messages += copies
            self.control_bytes += copies * self._fields_bytes(pdu)

    def _fields_bytes(self, pdu: Pdu) -> int:
        buffer = bytearray()
        self.codec.encode_into(pdu, buffer, 0)
        return len(buffer)

    def metrics(self, admitted: int) -> Metrics:
        """Sums, what each message of an application cost, and what a copy takes beside bodies, on average."""
        total = self.data_messages + self.control_messages
        return {
            "data_messages": self.data_messages,
            "control_messages": self.control_messages,
            "transmissions_per_message": total / admitted if admitted else None,
            "metadata_bytes": self.metadata_bytes / self.data_messages if self.data_messages else None,
            "control_bytes": self.control_bytes / self.control_messages if self.control_messages else None,
            "given_up": len(self.given_up),
        }


def _body_bytes(pdu: Pdu) -> int:
    bodies = getattr(pdu, "bodies", None)
    return len(bodies.wire()) if isinstance(bodies, Packed) else 0


class Metered:
    """A member whose sending is counted; implements `antiphon.core.protocol.Protocol`."""

    def __init__(self, protocol: Protocol, meter: Meter) -> None:
        self._handle = protocol.handle
        self._meter = meter

    def handle(self, now: Nanoseconds, event: Input) -> list[fx.Effect]:
        effects = self._handle(now, event)
        for effect in effects:
            if isinstance(effect, fx.Send | fx.Multicast):
                self._meter.count(effect)
            elif isinstance(effect, fx.Unstable):
                numbers = range(effect.number, effect.number + effect.count)
                self._meter.given_up.update(MessageId(effect.sender, number) for number in numbers)
        return effects


@dataclass(frozen=True, kw_only=True)
class SelectiveSubject:
    """What a selective run must know about the protocol under test, beside what every run must."""

    build: Callable[[Site, tuple[Site, ...]], Protocol]
    settle_ns: Nanoseconds
    pdus: tuple[type[Pdu], ...]
    data_kinds: tuple[type[Pdu], ...]
    forgets: bool = False


def simulate_selective(
    configuration: SelectiveConfiguration, subject: SelectiveSubject, seed: int, recorder: Recorder | None
) -> Metrics:
    """One run of a protocol whose senders choose destinations, with what it sent."""
    meter = Meter(configuration.members, subject.data_kinds, Codec(subject.pdus))
    metrics = simulate(
        configuration,
        Subject(
            build=lambda site, members: Metered(subject.build(site, members), meter),
            repairs=True,
            settle_ns=subject.settle_ns,
            leader_crashes_alone=False,
            size_of=encoded_size(subject.pdus),
            forgets=subject.forgets,
            pdus=subject.pdus,
            gave_up=meter.given_up.__contains__,
        ),
        seed,
        recorder,
        SelectiveWorkload,
    )
    admitted = metrics["admitted"]
    assert isinstance(admitted, int)
    return metrics | meter.metrics(admitted)
