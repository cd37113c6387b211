"""The live driver of the quorum protocol: sockets, clocks, the disk and the machine around one `Quorum`.

It is to `Quorum` what `antiphon.live.member` is to the other protocols, and stands on the same transport:
the same gate, seals, fragments and pacing.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from antiphon.core import effects as fx
from antiphon.core.errors import AntiphonError
from antiphon.core.ids import Group, Site
from antiphon.core.inputs import Received, Start, TimerFired
from antiphon.core.time import MILLISECOND_NS, NEVER_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import Codec
from antiphon.live.counters import Counters
from antiphon.live.errors import NameTakenError
from antiphon.live.group_host import LARGEST_LEAP
from antiphon.live.handshake import Terms
from antiphon.live.keys import KeyFile, KeyRing
from antiphon.live.meeting import meet_others
from antiphon.live.networks import Network
from antiphon.live.poison import POISON, PoisonRing
from antiphon.live.status import Status
from antiphon.live.timers import Timers
from antiphon.live.transport import Transport
from antiphon.protocols.quorum import PDUS, Quorum
from antiphon.protocols.quorum import ports as qp
from antiphon.protocols.quorum.sides import SIDE_PDUS, Sides

PDUS_AT_ONCE: Final = 64
"""PDUs received before the application runs. Raising it costs latency under load."""
PAUSE_NS: Final = MILLISECOND_NS // 2
"""Datagrams further apart than this count as single: one is read per wake-up."""
TICK_NS: Final = 5 * MILLISECOND_NS
"""Interval of the transport's housekeeping while something is unfinished. Raising it costs repair latency."""
IDLE_TICK_NS: Final = 20 * TICK_NS


class Driver:
    """Drives one member; it is also the `Host` of the transport's gate."""

    def __init__(
        self,
        *,
        site: Site,
        group: Group,
        network: Network,
        keys: KeyRing | KeyFile | None,
        rate_bytes_s: float | None,
        carry_out: Callable[[Any], None],
        stepped: Callable[[], None],
        failed: Callable[[BaseException], None],
        refused: Callable[[Site, str], None],
        has_quorum: bool,
    ) -> None:
        """`carry_out` gets the protocol's effects that are not for the network; `stepped` is called when all
        effects of some inputs are carried out."""
        self._site: Final = site
        self._group: Final = group
        self._machine: Final = network.machine
        self._now_ns: Final = network.machine.now_ns
        self._loop: Final = network.machine.loop()
        self._carry_out: Final = carry_out
        self._stepped: Final = stepped
        self._failed: Final = failed
        self._refused: Final = refused
        self.counters: Final = Counters()
        self.poison: Final = PoisonRing()
        self._timers: Final = Timers()
        self._protocol: Quorum | Sides | None = None
        self._reported = 0
        self._running = True
        self._feeding = False
        self._read_ns: Nanoseconds = 0
        self._arrived_last = 0
        self._in_step = False
        """Whether sockets or timers are being served; the next wake-up is scheduled after that."""
        self._inputs: list[qp.QuorumInput] = []
        self._wake: asyncio.TimerHandle | None = None
        self._wake_ns: Nanoseconds = NEVER_NS
        self._tick_ns: Nanoseconds = 0
        self._transport: Final = Transport(
            site=site, group=group, codec=Codec(PDUS if has_quorum else SIDE_PDUS), network=network,
            keys=keys, counters=self.counters, host=self, poison=self.poison, rate_bytes_s=rate_bytes_s,
            terms=Terms({"order": "quorum" if has_quorum else "sides"}),
        )  # fmt: skip
        for place, number in enumerate(self._transport.filenos()):
            self._loop.add_reader(number, self._receive, place)
        self._transport.tick(self._now_ns())
        self._schedule()

    @property
    def receive_buffer_bytes(self) -> int:
        return self._transport.receive_buffer_bytes

    async def meet(self) -> None:
        """Let the other processes prove themselves, and learn which incarnation of ours they know."""
        await meet_others(self._transport, self._machine, lambda: self._running)

    def start(self, protocol: "Quorum | Sides") -> None:
        self._protocol = protocol
        life = max(self._machine.wall_ns() // MILLISECOND_NS, self._reported + 1)
        self.feed(Start(life))
        self._transport.take_part()

    def stop(self) -> None:
        if not self._running:
            return
        self._running = False
        for number in self._transport.filenos():
            self._loop.remove_reader(number)
        if self._wake is not None:
            self._wake.cancel()
        self._transport.close(farewell=True)

    # Steps

    def feed(self, event: qp.QuorumInput) -> None:
        """Give the protocol an input and carry out its effects. Inputs that arise meanwhile follow."""
        if self._feeding:
            self._inputs.append(event)
            return
        if not self._running:
            return
        self._feeding = True
        try:
            self._handle(event)
            while self._inputs:
                self._handle(self._inputs.pop(0))
        finally:
            self._feeding = False
        if not self._in_step:
            self._schedule()

    def _handle(self, event: qp.QuorumInput) -> None:
        protocol, transport = self._protocol, self._transport
        if protocol is None or not self._running:
            return
        now = self._now_ns()
        try:
            effects = protocol.handle(now, event)
        except Exception as error:
            if not isinstance(event, Received | TimerFired):
                raise
            self._keep(event, error)
            effects = protocol.recover(now)
        for effect in effects:
            if isinstance(effect, fx.Send):
                transport.send(effect.to, effect.pdu)
            elif isinstance(effect, fx.Multicast):
                transport.multicast(effect.pdu)
            elif isinstance(effect, fx.SetTimer):
                self._timers.set(effect.name, now + effect.after_ns)
            else:
                self._carry_out(effect)

    def _keep(self, event: Received | TimerFired, error: Exception) -> None:
        """The protocol failed at an input that is not the application's fault: drop it, and keep it for
        inspection."""
        self.counters.lose(POISON)
        if isinstance(event, Received):
            data = self._transport.encoded(event.pdu)
            self.poison.keep(event.sender, type(event.pdu).__name__, error, data)
        else:
            self.poison.keep(self._site, type(event).__name__, error)

    def _tick(self, now: Nanoseconds) -> None:
        """Run the transport's housekeeping. A fault there is counted and does not end the member."""
        try:
            self._transport.tick(now)
        except Exception as error:
            self.counters.drop(POISON)
            self.poison.keep(self._site, "tick", error)

    def _receive(self, place: int) -> None:
        self._in_step = True
        try:
            now = self._now_ns()
            # When datagrams come singly, looking for a second one costs as much as reading it.
            singly = self._arrived_last <= 1 and now - self._read_ns > PAUSE_NS
            arrivals = self._transport.receive(1 if singly else PDUS_AT_ONCE, place=place, now=now)
            self._read_ns, self._arrived_last = now, len(arrivals)
            for sender, pdu, after_loss in arrivals:
                self.feed(Received(sender, pdu, after_loss))
            self._stepped()
        except Exception as error:
            self._fail(error)
        finally:
            self._in_step = False
        self._schedule()

    def _awake(self) -> None:
        self._wake = None
        self._wake_ns = NEVER_NS
        if not self._running:
            return
        self._in_step = True
        try:
            now = self._now_ns()
            self._transport.pace(now)
            while (name := self._timers.due(now)) is not None:
                self.feed(TimerFired(name))
            if now >= self._tick_ns:
                self._tick_ns = now + TICK_NS
                self._tick(now)
            self._stepped()
        except Exception as error:
            self._fail(error)
        finally:
            self._in_step = False
        self._schedule()

    def _schedule(self) -> None:
        if not self._running:
            return
        now = self._now_ns()
        next_ns = min(
            self._timers.next_ns(), now + (TICK_NS if self._transport.is_unfinished else IDLE_TICK_NS)
        )
        if self._transport.has_queue:
            next_ns = min(next_ns, self._transport.clear_ns(now))
        if self._wake is not None:
            if self._wake_ns <= next_ns:
                return
            self._wake.cancel()
        self._wake_ns = next_ns
        self._wake = self._loop.call_later(max(0, next_ns - now) / SECOND_NS, self._awake)

    def _fail(self, error: BaseException) -> None:
        """This member cannot go on: its application's machine has failed, or its name is taken."""
        self.stop()
        self._failed(error)

    # The gate's host

    def incarnation_of(self, site: Site) -> int:
        protocol = self._protocol.present if isinstance(self._protocol, Sides) else self._protocol
        return 0 if protocol is None else protocol.identity_of(site)

    def reported(self, incarnation: int) -> None:
        """Another member knows an incarnation of our name."""
        if incarnation <= self._machine.wall_ns() // MILLISECOND_NS + LARGEST_LEAP:
            self._reported = max(self._reported, incarnation)

    def met(self, site: Site, boot: int) -> None:
        """The protocol greets by itself."""

    def status(self) -> Status | None:
        return None

    def told(self, site: Site, status: Status) -> None:
        """Ignored: a member never asks for a status."""

    def refused(self, site: Site, reason: str) -> None:
        self._refused(site, reason)

    def left_behind(self, site: Site) -> None:
        """The protocol finds out by itself."""

    def namesake(self, address: str) -> None:
        error: AntiphonError = NameTakenError(
            f"'{self._site}' cannot be in '{self._group}': a process at {address} has that name there.",
            "Give each process a name of its own.",
        )
        self._loop.call_soon(self._fail, error)
