"""Overlapping groups on a small simulated mesh, for the tests of the protocols that order across them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from antiphon.core.effects import Deliver, Stable
from antiphon.core.ids import Site
from antiphon.core.protocol import Protocol
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, NEVER_NS, Nanoseconds
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.links import Held
from antiphon.protocols.overlapping import GroupMember
from antiphon.protocols.rivals.token import Moved
from antiphon.sim.layers import Duplication, Loss, Reordering
from antiphon.sim.mesh import Mesh
from antiphon.sim.network import Arrival, Layer
from antiphon.sim.world import Host, World
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Event

Build = Callable[[Site], Protocol]
HOP_NS = MILLISECOND_NS
"""One transmission."""


class Spying(Mesh):
    """A mesh that remembers what was sent and can hold up what travels from one site to another.

    Each PDU goes through the wire format, so that what a site sends is what others can read.
    """

    def __init__(self, sites: Sequence[Site], pdus: Sequence[type[Pdu]]) -> None:
        super().__init__(len(sites), Seeds(0), delay_ns=HOP_NS)
        self.sent: list[tuple[Site, Site, Pdu]] = []
        self.slow: dict[tuple[Site, Site], Nanoseconds] = {}
        self._names = sites
        self._codec = Codec(pdus)

    def send(self, now: Nanoseconds, source: int, targets: Sequence[int] | None, pdu: Pdu, size: int) -> None:
        packet = self._codec.decode(self._codec.encode(pdu))
        assert isinstance(packet, Packet), packet
        assert packet.pdu == pdu
        for target in range(len(self._names)) if targets is None else targets:
            pair = self._names[source], self._names[target]
            self.sent.append((*pair, pdu))
            super().send(now + self.slow.get(pair, 0), source, (target,), pdu, size)


class Overlapping:
    """Sites and what they delivered, beside what travelled between them."""

    def __init__(
        self,
        sites: Sequence[Site],
        build: Build,
        pdus: Sequence[type[Pdu]],
        layers: Sequence[Layer] = (),
    ) -> None:
        self.network = Spying(sites, pdus)
        self.protocols: dict[Site, Protocol] = {}
        self.delivered: dict[Site, list[str]] = {site: [] for site in sites}
        self.delivered_ns: dict[str, Nanoseconds] = {}
        """When each message was last delivered anywhere."""
        self.stable: list[str] = []
        self._recorder = MemoryRecorder("run")
        self.world = World(
            sites=sites,
            build=self._keep(build),
            network=self.network,
            size_of=lambda _: 0,
            layers=layers,
            recorder=self._recorder,
        )
        self.world.on_deliver = self._note_delivery
        self.world.on_stable = self._note_stable
        self.world.start()

    def _keep(self, build: Build) -> Build:
        def keeping(site: Site) -> Protocol:
            self.protocols[site] = build(site)
            return self.protocols[site]

        return keeping

    def _note_delivery(self, now: Nanoseconds, host: Host, effect: Deliver) -> None:
        for offset in range(len(effect.bodies)):
            message = f"{effect.sender}{effect.number + offset}"
            self.delivered[host.site].append(message)
            self.delivered_ns[message] = now

    def _note_stable(self, _now: Nanoseconds, _host: Host, effect: Stable) -> None:
        self.stable += [f"{effect.sender}{effect.number + offset}" for offset in range(effect.count)]

    def admit(self, site: Site, group: str, *bodies: bytes, at_ms: float = 0.0) -> None:
        time_ns = self.world.now + round(at_ms * MILLISECOND_NS)
        self.world.at(time_ns, lambda: self.world.admit(site, bodies or (b"x",), None, group))

    def run(self, seconds: float = 2.0) -> None:
        """Let everything happen; it must come to rest by itself."""
        self.world.run(self.world.now + round(seconds * 1000) * MILLISECOND_NS)
        assert self.network.next_ns() == NEVER_NS, "something is sent for ever"

    def messages(self) -> int:
        """What was sent from one site to another, acknowledgements aside."""
        return sum(not isinstance(pdu, Held | Moved) for _, _, pdu in self.network.sent)

    def kinds(self) -> Counter[str]:
        return Counter(type(pdu).__name__ for _, _, pdu in self.network.sent)

    def figure(self, name: str) -> int:
        """One of the sites' figures, over all of them."""
        return sum(site.figures()[name] for site in self.protocols.values() if isinstance(site, GroupMember))

    def events(self) -> Sequence[Event]:
        return self._recorder.events()


def faulty(loss: float, seed: int = 1) -> list[Layer]:
    """What can go wrong on the way."""
    seeds = Seeds(seed)
    span_ns = 6 * HOP_NS
    return [Loss(seeds, loss), Duplication(seeds, 0.2, span_ns), Reordering(seeds, 0.3, span_ns)]


def cost(
    sites: Sequence[Site], build: Build, pdus: Sequence[type[Pdu]], sender: Site, group: str
) -> tuple[int, float]:
    """Messages and transmissions one after the other of a single multicast."""
    groups = Overlapping(sites, build, pdus)
    groups.admit(sender, group)
    groups.run()
    assert groups.figure("repeated") == groups.figure("ignored") == 0
    return groups.messages(), groups.delivered_ns[f"{sender}0"] / HOP_NS


FIGURE_2: Mapping[str, tuple[Site, ...]] = {
    "A": ("a", "ab", "ac", "ad", "abc"),
    "B": ("b", "ab", "bc", "abc"),
    "C": ("c", "ac", "bc", "cd", "abc"),
    "D": ("d", "ad", "cd"),
}
"""The groups of Jia and So's figure 2, with one site for each meta-group."""


class Dropping:
    """A layer that loses what a rule picks."""

    def __init__(self, rule: Callable[[Arrival], bool]) -> None:
        self._rule = rule

    def apply(self, arrival: Arrival) -> Sequence[Arrival]:
        return () if self._rule(arrival) else (arrival,)
