"""Random runs of SCO groups on the simulator's mesh, judged by the pure checkers."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random
from typing import Any

from antiphon.check.verdict import Violation
from antiphon.core.ids import Site, site_names
from antiphon.core.packing import Packed
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Property
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import Codec, Pdu
from antiphon.protocols.sco import PDUS, PROMISES, Sco, ScoConfiguration
from antiphon.sim import churn
from antiphon.sim.layers import Duplication, Loss, Partition, Reordering
from antiphon.sim.mesh import Mesh
from antiphon.sim.network import Layer
from antiphon.sim.world import Host, World
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Event, Run
from tests.promises import broken_promises

Build = Callable[[Site, tuple[Site, ...], ScoConfiguration, Random], Protocol]
RETRY_NS = 5 * MILLISECOND_NS
CODEC = Codec(PDUS)


@dataclass(kw_only=True)
class Case:
    """What a run is made of."""

    members: int = 4
    messages: int = 40
    batch: int = 1
    spread_ms: float = 100.0
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    jitter_ms: float = 0.5
    crashes: int = 0
    absences: int = 0
    partitions: int = 0
    away_ms: float = 300.0
    to_self: bool = True
    patience_ms: float = 6000.0
    knobs: dict[str, Any] = field(default_factory=dict)


def draw_case(seed: int) -> Case:
    """A group and its network; about every second fault stays away."""
    random = Random(f"sco/{seed}")
    members = random.randint(2, 6)
    return Case(
        members=members,
        messages=random.choice([20, 40, 80]),
        batch=random.choice([1, 1, 3]),
        spread_ms=random.choice([20.0, 100.0, 300.0]),
        loss=random.choice([0.0, 0.05, 0.2, 0.3]),
        duplication=random.choice([0.0, 0.2]),
        reordering=random.choice([0.0, 0.2]),
        jitter_ms=random.choice([0.0, 0.5, 3.0]),
        knobs={
            "vectors": random.choice(["plain", "compressed"]),
            "acknowledge": random.choice(["causal", "causal", "continuous"]),
            "window": random.choice([1, 3, 20]),
            "buffers": random.choice([4, 40, 1024]),
            "gather_from": random.choice([1, 4, 16]),
        },
    )


def draw_faults(seed: int) -> Case:
    """The same with members that crash, leave and return."""
    random = Random(f"sco/faults/{seed}")
    case = draw_case(seed)
    case.spread_ms = random.choice([300.0, 800.0])
    case.loss = min(case.loss, 0.1)
    case.crashes = random.choice([0, 1, 2, 4])
    case.absences = random.choice([0, 1, 2])
    case.away_ms = random.choice([30.0, 300.0, 900.0])
    case.knobs |= {"silence_ns": random.choice([200, 400]) * MILLISECOND_NS}
    return case


class Drive:
    """Runs one case: the applications of all sites, and what came of it."""

    def __init__(self, case: Case, seed: int, build: Build = Sco) -> None:
        self.case = case
        self.seed = seed
        seeds = Seeds(seed)
        self.random = seeds.stream("applications")
        self.knobs = ScoConfiguration(**case.knobs)
        self.sites = tuple(site_names(case.members))
        self.recorder = MemoryRecorder("run")
        self.protocols: dict[Site, Any] = {}
        self.undelivered: dict[tuple[Site, int], set[Site]] = {}
        self.fate: dict[tuple[Site, int], frozenset[Site]] = {}
        self.rows: list[tuple[Site, str, Site | None, int | None]] = []
        """Site, event and message of each row, in the order of the run."""
        self.away: set[Site] = set()
        self.offered = 0
        self.troubled: set[Site] = set()
        partition = Partition(case.members)

        def make(site: Site) -> Protocol:
            protocol = build(site, self.sites, self.knobs, seeds.stream(f"sco/{site}"))
            self.protocols[site] = protocol
            return protocol

        mesh = Mesh(
            case.members, seeds, delay_ns=MILLISECOND_NS, jitter_ns=round(case.jitter_ms * MILLISECOND_NS)
        )
        self.world = World(
            sites=self.sites,
            build=make,
            network=mesh,
            size_of=self._size,
            layers=self._layers(seeds, partition),
            recorder=self,
        )
        self.world.on_deliver = self._delivered
        horizon_ns = round(case.spread_ms * MILLISECOND_NS)
        pace = churn.Pace(calm_ns=round(0.5 * horizon_ns), trouble_ns=round(case.away_ms * MILLISECOND_NS))
        stream = seeds.stream("faults")
        self.faults = churn.without_meetings(
            [
                *churn.draw_absences(
                    stream, stream.sample(self.sites, min(case.absences, case.members)), horizon_ns, pace
                ),
                *churn.draw_crashes(stream, self.sites, case.crashes, horizon_ns, pace),
                *churn.draw_splits(stream, self.sites, case.partitions, horizon_ns, pace),
            ]
        )
        churn.schedule(self.world, self.faults, partition)
        self.world.start()
        for _ in range(case.messages // case.batch):
            self._plan(self.random.randint(0, horizon_ns))
        calm_ns = max(horizon_ns, churn.healed_ns(self.faults))
        self.world.run(calm_ns)
        self.deadline_ns = self.world.now + round(case.patience_ms * MILLISECOND_NS)
        self._await(lambda: not self.away)
        if self.faults:
            self._close()
        self._await(self._complete)
        self.world.run(self.world.now + 100 * MILLISECOND_NS)

    def _layers(self, seeds: Seeds, partition: Partition) -> list[Layer]:
        case = self.case
        layers: list[Layer] = [partition] if case.partitions else []
        layers.append(Loss(seeds, case.loss))
        layers.append(Duplication(seeds, case.duplication, 6 * MILLISECOND_NS))
        layers.append(Reordering(seeds, case.reordering, 6 * MILLISECOND_NS))
        return layers

    @staticmethod
    def _size(pdu: Pdu) -> int:
        """Whatever the product sends must fit the wire; the mesh does not mind how much it is."""
        return len(CODEC.encode(pdu)) if isinstance(pdu, PDUS) else 0

    # Applications

    def _plan(self, time_ns: Nanoseconds) -> None:
        site = self.random.choice(self.sites)
        candidates = [other for other in self.sites if other != site or self.case.to_self]
        count = self.random.randint(1, len(candidates))
        chosen = frozenset(self.random.sample(candidates, count))
        self.offered += 1
        self.world.at(time_ns, lambda: self._hand_in(site, chosen, self.case.batch))

    def _hand_in(self, site: Site, chosen: frozenset[Site] | None, count: int) -> None:
        host = self.world.host(site)
        before = host.admitted
        if host.present:
            self.world.admit(site, [b"x"] * count, self._known(site, chosen))
        if host.admitted > before:
            self.offered -= 1
        else:
            self.world.at(self.world.now + RETRY_NS, lambda: self._hand_in(site, chosen, count))

    def _known(self, site: Site, chosen: frozenset[Site] | None) -> frozenset[Site] | None:
        """The chosen sites that a member knows: after a rejoin, only those that it has met."""
        if chosen is None:
            return None
        protocol = self.protocols[site]
        if not isinstance(protocol, Sco):
            return chosen
        return (chosen & protocol._state.lives.seen.keys()) or None

    def _close(self) -> None:
        """Everyone sends to everyone once more."""
        for site in self.sites:
            self.offered += 1
            self._hand_in(site, None, 1)

    def _await(self, done: Callable[[], bool]) -> None:
        while not done() and self.world.now < self.deadline_ns:
            self.world.run(self.world.now + 10 * MILLISECOND_NS)

    # What comes of it

    def record(self, site: Site, kind: Any, time_ns: Nanoseconds, *rest: Any) -> None:
        self.rows.append((site, kind, *(rest[:2] or (None, None))))
        if kind == "absent":
            self.away.add(site)
            self.troubled.add(site)
        elif kind == "present":
            self.away.discard(site)
        elif kind == "send":
            sender, number, count, _, destinations, _ = rest
            for offset in range(count):
                self.fate[sender, number + offset] = frozenset(destinations)
                self.undelivered[sender, number + offset] = set(destinations)
        self.recorder.record(site, kind, time_ns, *rest)

    def _delivered(self, _now: Nanoseconds, host: Host, effect: Any) -> None:
        assert isinstance(effect.bodies, Packed)
        for offset in range(len(effect.bodies)):
            self.undelivered[effect.sender, effect.number + offset].discard(host.site)

    def _complete(self) -> bool:
        return not self.offered and not self.missing()

    def missing(self) -> list[tuple[Site, int]]:
        """Messages that a site lacks although it stayed; what troubled sites sent may be lost with them."""
        return [
            message
            for message, lacking in self.undelivered.items()
            if (lacking - self.troubled)
            and not (message[0] in self.troubled and lacking == self.fate[message])
        ]

    @property
    def events(self) -> list[Event]:
        return list(self.recorder.events())

    def broken(self, promises: Collection[Property] = PROMISES) -> list[Violation]:
        return broken_promises(promises, self.events, Run("run", None, tuple(promises), None))

    def figure(self, name: str) -> int:
        return sum(protocol.figures()[name] for protocol in self.protocols.values())
