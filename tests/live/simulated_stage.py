"""The simulated stage: the protocol objects of live members in the simulator's world."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from antiphon.core import effects as fx
from antiphon.core.ids import Site
from antiphon.core.inputs import Received, Start, TimerFired
from antiphon.core.protocol import Protocol
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, from_seconds
from antiphon.live.orders import Settings, make_order
from antiphon.sim.mesh import Mesh
from antiphon.sim.network import Arrival
from antiphon.sim.ordering import Watch, wire_size
from antiphon.sim.sabotage import NONE, Saboteur
from antiphon.sim.world import Host, World
from antiphon.trace.files import write_trace
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Run
from tests.live.stage import Stage
from tests.live.weather import Weather

RUN: Final = "simulated"
STEP_NS: Final = 10 * MILLISECOND_NS
DELAY_NS: Final = MILLISECOND_NS // 5
RETRY_NS: Final = 5 * MILLISECOND_NS
PATIENCE_NS: Final = 2 * SECOND_NS
"""How long a member whose application does not read holds the group up before it steps aside."""
BUFFER_PDUS: Final = 100
"""What a stopped member's socket holds."""
RECEIVE_BUFFER_BYTES: Final = 8 << 20


class Idle:
    """A fault layer: what reaches a stopped member piles up, and an unread one takes no bodies in."""

    def __init__(self) -> None:
        self.stopped: dict[int, list[Arrival]] = {}
        self.unread: set[int] = set()

    def apply(self, arrival: Arrival) -> Sequence[Arrival]:
        pile = self.stopped.get(arrival.target)
        if pile is not None:
            if len(pile) < BUFFER_PDUS:
                pile.append(arrival)
            return ()
        if arrival.target in self.unread and getattr(arrival.pdu, "bodies", None) is not None:
            return ()
        return (arrival,)


class SimulatedStage(Stage):
    """A world whose members start as live ones do: each finds a group that may have gone on without it."""

    def __init__(
        self,
        members: int,
        order: str,
        folder: Path,
        seed: int,
        *,
        options: Mapping[str, Any] | None = None,
        sabotage: str = NONE,
    ) -> None:
        super().__init__(members, order, Weather(members, seed))
        self._options = dict(options or {})
        self._sabotage = sabotage
        self._folder = folder
        self._seeds = Seeds(seed)
        needed = {"sequencer": self.sites[0]} if order == "sequencer" else {}
        self._order = make_order(order, {**self._options, **needed})
        self._recorder = MemoryRecorder(RUN)
        self._watch = Watch(self.sites, self._recorder)
        self._idle = Idle()
        self._backlog: dict[Site, list[bytes]] = {site: [] for site in self.sites}
        self._frozen: dict[Site, list[str]] = {}
        self._world = World(
            sites=self.sites,
            build=self._build,
            network=Mesh(members, self._seeds, delay_ns=DELAY_NS),
            size_of=wire_size,
            layers=(self.weather, self._idle),
            recorder=self._watch,
        )
        self._world.on_deliver = self._note_delivery
        self._watch.away.update(self.sites)
        for site in self.sites:
            self._begin(site)
        self.until(lambda: not self._watch.away, "everyone to take part")

    def wait(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        deadline_ns = self._world.now + from_seconds(deadline_s)
        while not condition():
            if self._world.now >= deadline_ns:
                return False
            self._world.run(self._world.now + STEP_NS)
            self._note_absences()
        return True

    def kill(self, site: Site) -> None:
        self._world.crash(site)
        self._backlog[site].clear()
        self.gone.add(site)
        self.missed.add(site)

    def leave(self, site: Site) -> None:
        self._world.depart(site)
        self._world.host(site).up = False
        self.gone.add(site)
        self.missed.add(site)

    def restart(self, site: Site) -> None:
        self._world.restart(site)
        self.until(lambda: site not in self._watch.away, f"{site} to take part again")
        self.gone.discard(site)

    def stop(self, site: Site) -> None:
        host = self._world.host(site)
        self._idle.stopped[host.index] = []
        self._frozen[site] = list(host.timers)
        host.timers.clear()
        self.gone.add(site)

    def proceed(self, site: Site) -> None:
        """Its clock went on: timers that stood have run out, before it reads what has piled up."""
        host = self._world.host(site)
        for name in self._frozen.pop(site):
            self._world.give(host, TimerFired(name))
        for arrival in self._idle.stopped.pop(host.index):
            self._world.give(host, Received(self.sites[arrival.source], arrival.pdu))
        self.gone.discard(site)

    def stop_reading(self, site: Site) -> None:
        index = self._world.host(site).index
        self._idle.unread.add(index)

        def step_aside() -> None:
            if index in self._idle.unread:
                self._world.depart(site)

        self._world.at(self._world.now + PATIENCE_NS, step_aside)

    def read_again(self, site: Site) -> None:
        self._idle.unread.discard(self._world.host(site).index)
        self._world.come_back(site)

    def memory(self) -> dict[Site, int]:
        return {}

    def finish(self) -> Path:
        for site in self.present():
            self._world.depart(site)
        promises = self._order.promises()
        write_trace(self._folder, [self._recorder], [Run(RUN, self.order, promises)])
        return self._folder

    # Inside

    def _settings(self, site: Site) -> Settings:
        return Settings(
            site=site,
            receive_buffer_bytes=RECEIVE_BUFFER_BYTES,
            random=self._seeds.stream(f"member/{site}"),
        )

    def _build(self, site: Site) -> Protocol:
        protocol = self._order.build(self._settings(site))
        if self._sabotage == NONE or site != self.sites[-1]:
            return protocol
        return Saboteur(protocol, self._sabotage, site, self.sites, self._seeds.stream("sabotage"))

    def _begin(self, site: Site) -> None:
        host = self._world.host(site)
        host.incarnation = 1
        self._world.give(host, Start(1, 0))

    def _hand_in(self, site: Site, bodies: Sequence[bytes]) -> None:
        waiting = self._backlog[site]
        waiting += bodies
        if len(waiting) == len(bodies):
            self._admit(site)

    def _admit(self, site: Site) -> None:
        """Hand in what waits, one by one; when one is refused, try again later."""
        host, waiting = self._world.host(site), self._backlog[site]
        while waiting:
            before = host.admitted
            if site not in self._frozen:
                self._world.admit(site, waiting[:1])
            if host.admitted == before:
                self._world.at(self._world.now + RETRY_NS, lambda: self._admit(site))
                return
            del waiting[0]

    def _note_delivery(self, _now: int, host: Host, effect: fx.Deliver) -> None:
        self.delivered[host.site] += [body.partition(b".")[0].decode() for body in effect.bodies]

    def _note_absences(self) -> None:
        self.missed.update(set(self.sites) - self._watch.stayed)
