"""The simulated driver: honest members as a live group builds them, and a liar whose words are real bytes.

Whatever travels goes through the wire's codec, as live: what honest members say must be readable for all,
and what the liar says counts only if it decodes, under a name of its own (the live gate lets no process speak
under another's name). The world is the simulator's, without losses: whatever goes wrong is the liar's doing.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection
from random import Random
from typing import Any, ClassVar, Final

from antiphon.core import effects as fx
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received, Start
from antiphon.core.packing import pack
from antiphon.core.protocol import LiveProtocol, Protocol
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.live.group_host import LARGEST_LEAP
from antiphon.live.orders import Settings
from antiphon.sim.history import Archivist, MemoryLog
from antiphon.sim.medium import Medium
from antiphon.sim.mesh import Mesh
from antiphon.sim.network import Network
from antiphon.sim.ordering import Watch, wire_size
from antiphon.sim.world import Host, World
from antiphon.trace.recorder import MemoryRecorder
from tests.fuzz.pdus import Forge, Repertoire, datagram, fits
from tests.fuzz.plans import CROWD, MISTAKEN, STALE, VERSION, Plan

LIAR: Final[Site] = "liar"
RUN: Final = "fuzz"
DELAY_NS: Final = MILLISECOND_NS // 5
CHANNEL_BITS_PER_S: Final = 1_000_000_000
RECEIVE_BUFFER_BYTES: Final = 8 << 20
FIRST_INCARNATION: Final = 1_760_000_000_000
"""Live incarnations are milliseconds since 1970."""
MOST_EFFECTS: Final = 5000
"""Answers to one PDU; more is a flood that one datagram draws."""
SLOWEST_S: Final = 5.0
"""No PDU of some kilobytes takes a member this much of the processor's time, however busy the machine is."""
LOGGED_MESSAGES: Final = 500
NAMES_OF_A_CROWD: Final = 3000


class Broken(Exception):  # noqa: N818
    """A member did what it must not do, whatever it is told; says which member and why."""


class Watched:
    """Stands around an honest member's protocol object and does not let it raise, flood or stand still."""

    def __init__(self, site: Site, protocol: Protocol) -> None:
        self.site = site
        self.protocol = protocol

    def handle(self, now: Nanoseconds, event: Input) -> list[fx.Effect]:
        begin = time.process_time()
        try:
            effects = self.protocol.handle(now, event)
        except Exception as error:
            raise Broken(f"{self.site} raised {error!r} at {_short(event)}") from error
        if len(effects) > MOST_EFFECTS:
            raise Broken(f"{self.site} answered with {len(effects)} effects to {_short(event)}")
        if time.process_time() - begin > SLOWEST_S:
            raise Broken(f"{self.site} took {time.process_time() - begin:.1f} s for {_short(event)}")
        return effects


class Tally:
    """What the liar has said, by kind of PDU."""

    def __init__(self) -> None:
        self.said = 0
        self.decoded: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.raised: dict[str, str] = {}
        """What decoding raised, and at which bytes."""

    def add(self, other: "Tally") -> None:
        self.said += other.said
        self.decoded.update(other.decoded)
        self.refused.update(other.refused)
        self.raised.update(other.raised)


Wrap = Callable[[Site, Protocol], Protocol]


class Arena(World):
    """A world in which everything travels as bytes, and one member lies."""

    def __init__(self, plan: Plan, only: Collection[int] | None = None, wrap: Wrap | None = None) -> None:
        """`only` names the lies that are told, by their places; `wrap` stands around honest members."""
        self.plan: Final = plan
        self.tally: Final = Tally()
        self.lying = False
        self.reformed = False
        """Whether the liar's name is an honest process's by now."""
        self.on_lie: Callable[[Pdu], None] | None = None
        """Told what the liar says, as the others read it."""
        self._only = only
        self._wrap = wrap
        self._seeds = Seeds(plan.seed)
        self._order = plan.made
        self._codec = Codec(self._order.pdus)
        self._names = {kind.code: kind.__name__ for kind in self._order.pdus}
        self._random = Random(f"liar/{plan.order}/{plan.seed}")
        self.forge = Forge(self._order.pdus, self._random, (*plan.sites, LIAR))
        self.repertoire = Repertoire(self.forge, repeats=plan.liar == STALE)
        self._heard = 0
        self._lies = 0
        self._turns = 0
        self._last: tuple[Pdu | None, Pdu | None] = (None, None)
        self._logs: dict[Site, tuple[MemoryLog, dict[Site, int]]] = {}
        self._made: Counter[Site] = Counter()
        self.protocols: dict[Site, LiveProtocol] = {}
        sites = (*plan.sites, LIAR)
        self.trace = MemoryRecorder(RUN)
        self.watch = Watch(sites, self.trace)
        super().__init__(
            sites=sites, build=self._make, network=self._network(len(sites)), size_of=wire_size,
            recorder=self.watch,
        )  # fmt: skip
        self.liar = self.host(LIAR)
        self.honest = [self.host(site) for site in plan.sites]

    def _network(self, sites: int) -> Network:
        """The service `lan` needs a channel; the others take any network."""
        if self.plan.order == "total" and self.plan.service == "lan":
            return Medium(
                sites, self._seeds, bandwidth_bits_per_s=CHANNEL_BITS_PER_S, propagation_ns=DELAY_NS,
                buffers=10_000,
            )  # fmt: skip
        return Mesh(sites, self._seeds, delay_ns=DELAY_NS)

    def _make(self, site: Site) -> Protocol:
        """A member as `antiphon.live.group` makes it."""
        plan = self.plan
        # A process that restarts draws other numbers than before, as live: its tags must not come again.
        self._made[site] += 1
        again = f"/{self._made[site]}" if self._made[site] > 1 else ""
        live = self._order.build(
            Settings(
                site=site, receive_buffer_bytes=RECEIVE_BUFFER_BYTES,
                random=self._seeds.stream(f"member/{site}{again}"), history=plan.history, secret=b"fuzz",
            )
        )  # fmt: skip
        self.protocols[site] = live
        protocol: Protocol = live
        if plan.history.keeps:
            log, delivered = self._logs.setdefault(site, (MemoryLog(LOGGED_MESSAGES), {}))
            protocol = Archivist(protocol, log, delivered)
        if self._wrap is not None and site != LIAR:
            protocol = self._wrap(site, protocol)
        return Watched(site, protocol)

    # Coming and going

    def begin(self, site: Site) -> None:
        host = self.host(site)
        host.incarnation = FIRST_INCARNATION + host.index
        self.watch.away.add(site)
        self.give(host, Start(host.incarnation))

    def begin_anew(self, site: Site) -> None:
        """A member crashes and restarts, with an incarnation above all that the others report for it."""
        self.crash(site)
        host = self.host(site)
        clock = FIRST_INCARNATION + 1000 + self.now // MILLISECOND_NS
        reported = 0 if self.is_spoiled(site) else self.latest_incarnation(site)
        host.incarnation = max(clock, reported, host.incarnation)
        self.restart(site)

    def latest_incarnation(self, site: Site) -> int:
        """Of those that the other members report for a name."""
        return max(
            protocol.incarnation_of(site) for other, protocol in self.protocols.items() if other != site
        )

    def is_spoiled(self, site: Site) -> bool:
        """Whether a name's incarnation is one that no process would follow, until it is forgotten."""
        return self.latest_incarnation(site) > LARGEST_LEAP

    def silence(self) -> None:
        """The liar says nothing from here on."""
        self.lying = False
        self.crash(LIAR)

    # What travels

    def _wire(self, host: Host, pdu: Pdu) -> Pdu:
        """What the others read of an honest member's PDU: the same, or it should not have been sent."""
        if self._last[0] is pdu:
            assert self._last[1] is not None
            return self._last[1]
        try:
            found = self._codec.decode(self._codec.encode(pdu, sender=host.site))
        except Exception as error:
            raise Broken(f"{host.site} sent what cannot be encoded ({error!r}): {_short(pdu)}") from error
        if not isinstance(found, Packet):
            raise Broken(f"{host.site} sent what no member can read ({found.reason.value}): {_short(pdu)}")
        self._last = (pdu, found.pdu)
        self._heard += 1
        if self._heard % 3 == 0:
            self.repertoire.observe(found.pdu)
        return found.pdu

    def _send_bytes(self, host: Host, effect: fx.Send) -> None:
        if host is self.liar and not self.reformed:
            self._say(effect.pdu, [effect.to])
            return
        pdu = self._wire(host, effect.pdu)
        if effect.to in self._index:  # live, nothing goes to a name without an address
            World._send(self, host, fx.Send(effect.to, pdu))

    def _multicast_bytes(self, host: Host, effect: fx.Multicast) -> None:
        if host is self.liar and not self.reformed:
            self._say(effect.pdu, list(self.plan.sites) if effect.to is None else list(effect.to))
            if effect.left is not None:
                self._set_timer(host, fx.SetTimer(effect.left, 1))
            return
        pdu = self._wire(host, effect.pdu)
        to = None if effect.to is None else tuple(site for site in effect.to if site in self._index)
        World._multicast(self, host, fx.Multicast(pdu, to, effect.hops, effect.left))

    # The liar

    def _say(self, pdu: Pdu, targets: list[Site]) -> None:
        """What the liar's own protocol wants said; a mistaken one says something else now and then."""
        plan = self.plan
        self.repertoire.own.append(pdu)
        self._draw_anew()
        present = [site for site in targets if site in self._index and site != LIAR]
        alters = self.lying and plan.liar in (MISTAKEN, VERSION)
        if not alters or self._random.random() >= (1.0 if plan.liar == VERSION else plan.share):
            self._bring(datagram(LIAR, *self.forge.plain(pdu)), LIAR, present, counts=False)
            return
        together = self._random.random() < 0.6
        for some in [present] if together else [[site] for site in present]:
            if not self._lie(lambda: self._alteration(pdu), some):
                self._bring(datagram(LIAR, *self.forge.plain(pdu)), LIAR, some, counts=False)

    def _draw_anew(self) -> None:
        """Each turn of the liar draws for itself: a lie left out does not change what later ones are."""
        self._turns += 1
        self._random.seed(self.plan.seed << 32 | self._turns)

    def _alteration(self, pdu: Pdu) -> tuple[int, bytes]:
        if self.plan.liar == VERSION:
            return self.forge.newer(pdu)
        if self._random.random() < 0.1:
            return self.forge.flipped(*self.forge.plain(pdu))
        return self.forge.altered(pdu)

    def lie(self) -> None:
        """One more PDU that no protocol asked for."""
        self._draw_anew()
        sites = self.plan.sites
        targets = list(sites) if self._random.random() < 0.5 else [self._random.choice(sites)]
        sender = LIAR
        if self.plan.liar == CROWD:
            number = self._random.randrange(NAMES_OF_A_CROWD)
            sender = f"x{number}" + "y" * self._random.choice((0, 0, 58))
        self._lie(self.repertoire.invent, targets, sender)

    def _lie(self, make: Callable[[], tuple[int, bytes]], targets: list[Site], sender: Site = LIAR) -> bool:
        """Tell one lie, unless this run leaves it out; whether it was told."""
        place = self._lies
        self._lies += 1
        if self._only is not None and place not in self._only:
            return False
        code, body = make()
        if fits(body):
            self._bring(datagram(sender, code, body), sender, targets)
        return True

    @property
    def lies(self) -> int:
        """How many places lies have had so far."""
        return self._lies

    def _bring(self, data: bytes, sender: Site, targets: list[Site], *, counts: bool = True) -> None:
        """Let the gate of each target read a datagram, and its protocol what came through."""
        tally = self.tally if counts else Tally()
        tally.said += 1
        try:
            found = self._codec.decode(data)
        except Exception as error:
            self.tally.raised[repr(error)] = data.hex()
            return
        if not isinstance(found, Packet):
            tally.refused[found.reason.value] += 1
            return
        tally.decoded[type(found.pdu).__name__] += 1
        if self.on_lie is not None:
            self.on_lie(found.pdu)
        event = Received(sender, found.pdu)
        if self.plan.order == "total" and self.plan.service == "lan" and sender == LIAR:
            self._network_send(
                self.now, self.liar.index, [self._index[site] for site in targets], found.pdu, len(data)
            )
            return
        self.at(self.now + DELAY_NS, lambda: self._give_all(targets, event))

    def _give_all(self, targets: list[Site], event: Received) -> None:
        for site in targets:
            self.give(self.host(site), event)

    _apply: ClassVar[dict[type, Callable[[Any, Host, Any], None]]] = {
        **World._apply,
        fx.Send: _send_bytes,
        fx.Multicast: _multicast_bytes,
    }


def batch(body: bytes) -> Any:
    """A message as an application's outbox hands it in."""
    return pack([body])


def _short(thing: object) -> str:
    text = repr(thing)
    return text if len(text) < 600 else f"{text[:600]}…"
