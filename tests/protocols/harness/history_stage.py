"""A simulated group with late-join handlers and latecomers, for the tests of history."""

from collections.abc import Callable, Sequence

from antiphon.core.effects import CaughtUp
from antiphon.core.ids import Site
from antiphon.core.inputs import Start
from antiphon.core.protocol import Protocol
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS
from antiphon.protocols.fifo import PROMISES, Fifo, FifoConfiguration, HistoryRole
from antiphon.sim.history import Archivist, MemoryLog
from antiphon.sim.layers import Duplication, Loss, Reordering
from antiphon.sim.mesh import Mesh
from antiphon.sim.network import Arrival, Layer
from antiphon.sim.ordering import wire_size
from antiphon.sim.world import World
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Event, Run
from tests.promises import broken_promises

KNOBS = FifoConfiguration()


class Drop:
    """Loses what a test wants lost."""

    def __init__(self) -> None:
        self.is_lost: Callable[[Arrival], bool] = lambda _: False

    def apply(self, arrival: Arrival) -> Sequence[Arrival]:
        return () if self.is_lost(arrival) else (arrival,)


class Stage:
    """Members named by one letter each; those who are `late` begin when `begin` says so."""

    def __init__(
        self,
        early: str = "abc",
        late: str = "j",
        handlers: str = "ab",
        *,
        knobs: FifoConfiguration = KNOBS,
        log: int = 10_000,
        seed: int = 0,
        faults: float = 0.0,
        read_ms: float = 0.2,
    ) -> None:
        self.early, self.late, self.handlers = tuple(early), tuple(late), handlers
        self.knobs = knobs
        self.seeds = Seeds(seed)
        self.read_ns = round(read_ms * MILLISECOND_NS)
        self.logs = {site: MemoryLog(log) for site in handlers}
        self.delivered: dict[Site, dict[Site, int]] = {site: {} for site in early + late}
        self.archivists: dict[Site, Archivist] = {}
        self.members: dict[Site, Fifo] = {}
        self.recorder = MemoryRecorder("stage")
        sites = self.early + self.late
        span_ns = 3 * MILLISECOND_NS
        self.drop = Drop()
        layers: list[Layer] = [self.drop]
        if faults:
            layers += (
                Loss(self.seeds, faults),
                Duplication(self.seeds, faults, span_ns),
                Reordering(self.seeds, faults, span_ns),
            )
        self.world = World(
            sites=sites,
            build=self.build,
            network=Mesh(len(sites), self.seeds, delay_ns=MILLISECOND_NS // 2),
            size_of=wire_size,
            layers=layers,
            recorder=self.recorder,
        )
        for site in self.early:
            self.world.give(self.world.host(site), Start())
        for site in self.late:
            self.world.host(site).up = self.world.host(site).present = False

    def build(self, site: Site) -> Protocol:
        known = self.early if site in self.early else (site,)
        role = HistoryRole(site in self.handlers, site in self.late)
        fifo = Fifo(site, known, self.knobs, self.seeds.stream(site), history=role)
        self.members[site] = fifo
        archivist = Archivist(fifo, self.logs.get(site), self.delivered[site], self.read_ns)
        self.archivists[site] = archivist
        return archivist

    # What happens

    def send(self, site: Site, count: int = 1, size: int = 10) -> None:
        """Admit that many messages, one by one, a millisecond apart."""
        for _ in range(count):
            self.world.admit(site, [bytes(size)])
            self.pass_time(1)

    def begin(self, site: Site) -> None:
        """A latecomer begins, like a live member: nothing of its name was there before."""
        host = self.world.host(site)
        host.up = host.present = True
        host.incarnation = 1
        self.world.give(host, Start(1, host.admitted))

    def pass_time(self, span_ms: float) -> None:
        self.world.run(self.world.now + round(span_ms * MILLISECOND_NS))

    def wait_until_caught_up(self, site: Site, most_ms: int = 20_000) -> CaughtUp:
        for _ in range(most_ms // 5):
            if self.archivists[site].outcomes:
                break
            self.pass_time(5)
        assert self.archivists[site].outcomes, "the catching up does not end"
        return self.archivists[site].outcomes[-1]

    # What came of it

    def rows(self, site: Site, *kinds: str) -> list[Event]:
        return [event for event in self.recorder.events() if event.site == site and event.kind in kinds]

    def numbers(self, site: Site, sender: Site) -> list[int]:
        return [
            row.number + offset
            for row in self.rows(site, "deliver")
            if row.sender == sender and row.number is not None
            for offset in range(row.count or 1)
        ]

    def order(self, site: Site) -> list[tuple[Site | None, int | None]]:
        return [(row.sender, row.number) for row in self.rows(site, "deliver")]

    def figure(self, site: Site, name: str) -> int:
        return self.members[site].figures()[name]

    def source(self, site: Site) -> Site | None:
        """The handler whose log a newcomer is reading."""
        return self.members[site]._history._source

    def violations(self) -> list[str]:
        run = Run(run="stage", protocol="fifo", promises=PROMISES, seed=0)
        broken = broken_promises(PROMISES, self.recorder.events(), run)
        return [violation.explanation for violation in broken]
