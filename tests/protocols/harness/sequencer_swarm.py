"""A live-like group in the simulator: members know the sequencer's name only, come when they like, and go.

Every start has an incarnation above 0, as live ones have. Members join late, are killed, leave cleanly,
come back as new processes, and are cut off; the sequencer too, but as its docstring says: it is killed or
leaves only while the others are there. Then all heals, everyone must take part, and what the run recorded
is judged by the checkers.
"""

from dataclasses import dataclass, field
from random import Random

from antiphon.check.checkers import check_trace
from antiphon.check.verdict import Violation
from antiphon.core import effects as fx
from antiphon.core.ids import Site
from antiphon.core.inputs import Start
from antiphon.core.recording import Kind
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.protocols.sequencer import PROMISES, Sequencer
from antiphon.sim import churn
from antiphon.sim.layers import Duplication, Loss, Partition, Reordering
from antiphon.sim.mesh import Mesh
from antiphon.sim.network import Layer
from antiphon.sim.ordering import wire_size
from antiphon.sim.scenarios.sequencer import Configuration
from antiphon.sim.tap import Tap
from antiphon.sim.world import Host, World
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Run

SEQUENCER = "s0"
BOOT = 1_700_000_000_000
"""Incarnations are milliseconds of a wall clock."""
PACE = churn.Pace(calm_ns=500 * MILLISECOND_NS, trouble_ns=300 * MILLISECOND_NS)
ROUNDS = 20


class Watch(Tap):
    """Keeps the rows, and who is present."""

    def __init__(self) -> None:
        self.memory = MemoryRecorder("open")
        super().__init__(self.memory)
        self.present: set[Site] = set()

    def on_row(self, site: Site, kind: Kind, time_ns: Nanoseconds, *_row: object) -> None:
        if kind == "present":
            self.present.add(site)
        elif kind == "absent":
            self.present.discard(site)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What one seed draws."""

    members: int
    span_ns: Nanoseconds
    messages: int
    loss: float
    duplication: float
    reordering: float
    jitter_ms: float
    partitions: int
    kills: int
    leaves: int
    window: int
    order_window: int
    starts_ns: dict[Site, Nanoseconds]
    faults: list[churn.Fault] = field(repr=False)


def draw(seed: int) -> Drawn:
    random = Random(f"open/{seed}")
    members = random.randint(2, 6)
    sites = tuple(f"s{index}" for index in range(members))
    span_ns = random.choice([1, 2, 4]) * SECOND_NS
    starts_ns = {site: random.choice([0, 0, random.randint(0, span_ns // 2)]) for site in sites}
    kills, leaves, partitions = (random.choice([0, 0, 1, 3]) for _ in range(3))
    faults: list[churn.Fault] = [
        *churn.draw_crashes(random, sites, kills, span_ns, PACE),
        *churn.draw_absences(random, random.sample(sites, min(leaves, members)), span_ns, PACE),
        *churn.draw_splits(random, sites, partitions, span_ns, PACE),
    ]
    # An absence of the sequencer is a clean leave here, after which its memory is gone.
    faults = [
        churn.Crash(site=fault.site, begin_ns=fault.begin_ns, end_ns=fault.end_ns)
        if isinstance(fault, churn.Absence) and fault.site == SEQUENCER
        else fault
        for fault in faults
        if isinstance(fault, churn.Split) or fault.begin_ns > starts_ns[fault.site]
    ]
    faults = churn.alone(churn.without_meetings(faults), SEQUENCER, 1_500 * MILLISECOND_NS)
    return Drawn(
        members=members,
        span_ns=span_ns,
        messages=random.choice([20, 80]),
        loss=random.choice([0.0, 0.05, 0.2]),
        duplication=random.choice([0.0, 0.2]),
        reordering=random.choice([0.0, 0.2]),
        jitter_ms=random.choice([0.0, 2.0]),
        partitions=partitions,
        kills=kills,
        leaves=leaves,
        window=random.choice([1, 4, 16]),
        order_window=random.choice([4, 16, 48]),
        starts_ns=starts_ns,
        faults=faults,
    )


class OpenGroup:
    """The run of one seed."""

    def __init__(self, seed: int) -> None:
        self.drawn = drawn = draw(seed)
        self._random = Random(f"open/{seed}/run")
        seeds = Seeds(seed)
        shared = Configuration(
            members=drawn.members,
            jitter_ms=drawn.jitter_ms,
            window=drawn.window,
            order_window=drawn.order_window,
        )
        self.knobs = shared.protocol_configuration()
        self.sites = tuple(f"s{index}" for index in range(drawn.members))
        self.watch = Watch()
        self.partition = Partition(drawn.members)
        span_ns = 3 * shared.round_trip_ns
        layers: list[Layer] = [
            self.partition,
            Loss(seeds, drawn.loss),
            Duplication(seeds, drawn.duplication, span_ns),
            Reordering(seeds, drawn.reordering, span_ns),
        ]
        self.world = World(
            sites=self.sites,
            build=self._build,
            network=Mesh(
                drawn.members,
                seeds,
                delay_ns=MILLISECOND_NS,
                jitter_ns=round(drawn.jitter_ms * MILLISECOND_NS),
            ),
            size_of=wire_size,
            layers=layers,
            recorder=self.watch,
        )
        self.world.on_deliver = self._note_delivery
        self.world.on_presence = self._note_presence
        self.delivered: dict[Site, set[tuple[Site, int]]] = {site: set() for site in self.sites}
        self.seen: dict[Site, set[Site]] = {site: set() for site in self.sites}
        for host in self.world.hosts:
            host.up = host.present = False

    def _build(self, site: Site) -> Sequencer:
        return Sequencer(site, (SEQUENCER,) if site == SEQUENCER else (SEQUENCER, site), self.knobs)

    def _note_delivery(self, _now: Nanoseconds, host: Host, effect: fx.Deliver) -> None:
        numbers = range(effect.number, effect.number + len(effect.bodies))
        self.delivered[host.site].update((effect.sender, number) for number in numbers)

    def _note_presence(self, _now: Nanoseconds, host: Host, effect: fx.Appeared | fx.Vanished) -> None:
        seen = self.seen[host.site]
        assert (effect.site in seen) == isinstance(effect, fx.Vanished), (
            "told twice that someone came or went"
        )
        assert effect.site != host.site
        (seen.discard if isinstance(effect, fx.Vanished) else seen.add)(effect.site)

    # What happens to members

    def begin(self, site: Site) -> None:
        """A process starts: for the first time, or with the log of an earlier one."""
        host = self.world.host(site)
        if host.up:
            return
        returning = host.incarnation > 0
        self.seen[site].clear()
        host.handle = self._build(site).handle
        host.up = host.present = True
        host.incarnation = BOOT + self.world.now // MILLISECOND_NS
        self.world.give(host, Start(host.incarnation, host.admitted, returning=returning))

    def leave(self, site: Site) -> None:
        host = self.world.host(site)
        self.world.depart(site)
        host.up = False

    def _schedule(self) -> None:
        world, drawn = self.world, self.drawn
        for site, start_ns in drawn.starts_ns.items():
            world.at(start_ns, lambda site=site: self.begin(site))  # type: ignore[misc]
        for fault in drawn.faults:
            if isinstance(fault, churn.Split):
                cell = [world.host(site).index for site in fault.cell]
                world.at(fault.begin_ns, lambda cell=cell: self.partition.split([cell]))  # type: ignore[misc]
                world.at(fault.end_ns, self.partition.heal)
                continue
            kill = isinstance(fault, churn.Crash) and self._random.random() < 0.7
            end = world.crash if kill else self.leave
            world.at(fault.begin_ns, lambda end=end, site=fault.site: end(site))  # type: ignore[misc]
            world.at(fault.end_ns, lambda site=fault.site: self.begin(site))  # type: ignore[misc]
        for _ in range(drawn.messages):
            site, time_ns = self._random.choice(self.sites), self._random.randint(0, drawn.span_ns)
            bodies = [b"x"] * self._random.choice([1, 1, 3])
            world.at(time_ns, lambda site=site, bodies=bodies: world.admit(site, bodies))  # type: ignore[misc]

    def run(self) -> bool:
        """Let it all happen, then demand that everyone delivers a last message of everyone."""
        self._schedule()
        healed_ns = max([self.drawn.span_ns, churn.healed_ns(self.drawn.faults)])
        self.world.run(healed_ns + SECOND_NS)
        return any(self._close() for _ in range(ROUNDS))

    def _close(self) -> bool:
        """One round of closing messages; heavy loss may exclude a member in the middle of it."""
        world = self.world
        closing = set()
        if len(self.watch.present) == len(self.sites):
            for host in world.hosts:
                before = host.admitted
                world.admit(host.site, [b"closing"])
                closing |= {(host.site, number) for number in range(before, host.admitted)}
        world.run(world.now + SECOND_NS)
        complete = all(closing <= delivered for delivered in self.delivered.values())
        return len(closing) == len(self.sites) and complete

    def violations(self) -> list[Violation]:
        run = Run(run="open", protocol="sequencer", promises=PROMISES, seed=0)
        return [found for found in check_trace(self.watch.memory.events(), run) if found.property in PROMISES]
