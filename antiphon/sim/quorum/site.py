"""One site of a simulated replicated group: the protocol, its disk, its machine and its clients."""

from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec

from antiphon.core import effects as fx
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit, Departed, Received, Returned, Start, TimerFired
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.protocols.quorum import Quorum, QuorumConfiguration
from antiphon.protocols.quorum import ports as qp
from antiphon.protocols.quorum.applying import Applier, Raised, encode_commands
from antiphon.protocols.quorum.pdus import BATCH, Entry
from antiphon.protocols.quorum.sides import Sides
from antiphon.sim.quorum.disk import SimulatedDisk

DISK: Final = "disk"
TICK: Final = "tick"
TICK_NS: Final = 50 * MILLISECOND_NS
PASSED: Final = (fx.Send, fx.Multicast, fx.SetTimer, fx.CancelTimer)
SIDE_TIMERS: Final = ("beacon", "solo")
Make = Callable[..., Quorum | Sides]


class SimulatedCall(msgspec.Struct):
    """One call of a client, and its answer."""

    client: Site
    number: int
    command: Any
    start: int
    end: int | None = None
    result: Any = None


class Ledger:
    """What all sites of a run applied, compared entry by entry, and what their clients were answered."""

    def __init__(self, *, has_one_group: bool) -> None:
        self._has_one_group: Final = has_one_group
        self.moment = 0
        """Counts everything that happens, so that any two events of a run have an order."""
        self.calls: list[SimulatedCall] = []
        self.applied: dict[tuple[int, int, int], Entry] = {}
        """Entries by group, index and kind."""
        self.disagreements: list[str] = []
        self.leaders: dict[tuple[int, int], set[Site]] = {}
        """Leaders by group and term."""
        self.delivered: dict[Site, int] = {}
        """The last index that each site's log of deliveries has."""
        self.numbers: dict[Site, int] = {}
        self.elections = 0
        self.cut_offs = 0
        self.installs = 0
        self.merges = 0
        """Times that a member merged another side's state."""
        self.snapshots = 0

    def now(self) -> int:
        self.moment += 1
        return self.moment

    def note(self, site: Site, group: int, index: int, entry: Entry) -> None:
        """A site applies an entry: every site of the group must apply the same one there."""
        known = self.applied.setdefault((group, index, entry.kind), entry)
        if known != entry:
            self.disagreements.append(f"{site} applied {entry} at {index}, where another applied {known}")

    def led(self, site: Site, group: int, term: int) -> None:
        leaders = self.leaders.setdefault((group, term), set())
        leaders.add(site)
        self.elections += 1
        if len(leaders) > 1:
            self.disagreements.append(f"term {term} has the leaders {sorted(leaders)}")
        if self._has_one_group and len({each for each, _ in self.leaders}) > 1:
            self.disagreements.append(f"{site} leads a second group in term {term}")


class QuorumSite:
    """Implements `antiphon.core.protocol.Protocol` around `Quorum`, for the simulator's world.

    The trace shows each effective batch as a delivery of its sender's messages. A site that restarts reads
    its log again: that is not delivered again.
    """

    def __init__(
        self,
        site: Site,
        members: tuple[Site, ...],
        knobs: QuorumConfiguration,
        random: Random,
        ledger: Ledger,
        *,
        machine: Any,
        disk: SimulatedDisk | None,
        disk_ns: Nanoseconds,
        snapshot_bytes: int,
        make: Make = Quorum,
        clock: Callable[[Nanoseconds], Nanoseconds] = lambda now: now,
    ) -> None:
        """`clock` is the member's wall clock, which may be set back."""
        self._clock: Final = clock
        self._site: Final = site
        self._ledger: Final = ledger
        self._applier: Final = Applier(machine, getattr(machine, "merge", None))
        self._disk: Final = disk
        self._disk_ns: Final = disk_ns
        self._snapshot_bytes: Final = snapshot_bytes
        if disk is not None:
            disk.crash(random)
        recovered = None if disk is None else disk.recover()
        self._protocol: Final = make(site, members, knobs, random, recovered)
        if recovered is not None and recovered.snapshot is not None:
            self._applier.restore(recovered.snapshot.data)
        self._pending: dict[int, SimulatedCall] = {}
        self._tickets = 0
        self._has_ticks = False
        self._is_present = False
        self._out: list[fx.Effect] = []
        self.is_member = True

    def handle(self, now: Nanoseconds, event: Any) -> list[fx.Effect]:
        match event:
            case TimerFired(name="disk"):
                self._end_sync(now)
            case TimerFired(name="tick"):
                self._tick(now)
            case Start(incarnation=incarnation):
                self._is_present = incarnation == 0
                self._feed(now, Start(incarnation + 1))
            case Admit(bodies=bodies):
                self._admit(now, bodies)
            case Received() | TimerFired() | qp.Wish() | qp.Leave():
                self._feed(now, event)
            case Departed() | Returned():
                self._pause(now, event)
        self._look_at_size(now)
        out, self._out = self._out, []
        return out

    @property
    def protocol(self) -> Quorum:
        """The protocol of the group, or of the side, that this member is in now."""
        return self._protocol.present if isinstance(self._protocol, Sides) else self._protocol

    # Clients

    @property
    def pending(self) -> int:
        return len(self._pending)

    @property
    def state(self) -> bytes:
        """The machine's snapshot, to compare it with others."""
        return self._applier.snapshot()

    def _admit(self, now: Nanoseconds, bodies: Any) -> None:
        """A client calls. The bodies are commands, encoded."""
        if not self.is_member or (self.protocol.is_cut_off and not isinstance(self._protocol, Sides)):
            return
        ledger = self._ledger
        number = ledger.numbers.get(self._site, 0)
        ledger.numbers[self._site] = number + len(bodies)
        for place, body in enumerate(bodies):
            self._tickets += 1
            command = msgspec.msgpack.decode(body)
            call = SimulatedCall(self._site, number + place, command, ledger.now())
            ledger.calls.append(call)
            self._pending[self._tickets] = call
            self._out.append(fx.Admitted(number + place, 1, len(body)))
            self._feed(now, qp.Call(self._tickets, encode_commands([[number + place, command]])))

    def _answer(self, ticket: int, result: Any) -> None:
        call = self._pending.pop(ticket, None)
        if call is not None:
            call.end = self._ledger.now()
            call.result = str(result.error) if isinstance(result, Raised) else result

    # The protocol's effects

    def _feed(self, now: Nanoseconds, event: qp.QuorumInput) -> None:
        for effect in self._protocol.handle(now, event):
            if isinstance(effect, PASSED):
                self._out.append(effect)
            else:
                self._carry_out(now, effect)

    def _carry_out(self, now: Nanoseconds, effect: Any) -> None:
        ledger = self._ledger
        match effect:
            case qp.Store() | qp.Compact():
                self._write(effect)
            case qp.Install(snapshot=snapshot):
                ledger.installs += 1
                self._applier.restore(snapshot.data)
                self._skip_to(snapshot.index)
                self._write(effect)
            case qp.Apply(index=index, entry=entry, ticket=ticket):
                self._apply(now, index, entry, ticket)
            case qp.Unanswered(ticket=ticket):
                self._pending.pop(ticket, None)
            case qp.Led(leader=leader, term=term):
                if leader == self._site:
                    ledger.led(self._site, self.protocol.group, term)
            case qp.TakeState(index=index):
                self._feed(now, qp.Taken(index, self._applier.snapshot()))
            case qp.Merge(data=data):
                ledger.merges += 1
                assert self._applier.merge(data) is None
            case qp.Parted():
                ledger.cut_offs += 1
                self._pending.clear()
            case qp.Severed():
                ledger.cut_offs += 1
                self._pending.clear()
                self._feed(now, qp.Abandon())
            case fx.Disagreed(other=other, reason=reason):
                ledger.disagreements.append(f"{self._site} does not follow {other}. {reason}")
            case qp.Expelled():
                self.is_member = False
                self._pending.clear()

    def _apply(self, now: Nanoseconds, index: int, entry: Entry, ticket: int | None) -> None:
        if self.protocol.group:  # a side that was just dissolved is not judged to its last entry
            self._ledger.note(self._site, self.protocol.group, index, entry)
        numbers, entry = _unwrapped(entry)
        results = self._applier.apply(entry)
        is_new = self._ledger.delivered.get(self._site, 0) < index and self._protocol is self.protocol
        if entry.kind == BATCH and numbers and is_new:
            self._ledger.delivered[self._site] = index
            if not self._is_present:
                self._is_present = True
                self._out.append(fx.Present())
            self._out.append(fx.Deliver(entry.sender, numbers[0], [entry.body]))
        if ticket is not None and results:
            self._answer(ticket, results[0])
        if self._applier.wants_ticks and not self._has_ticks:
            self._has_ticks = True
            self._out.append(fx.SetTimer(TICK, TICK_NS))
        assert now >= 0

    def _skip_to(self, index: int) -> None:
        """A snapshot stands for deliveries that this site does not make."""
        if self._protocol is not self.protocol:
            return  # sides have no common order of deliveries
        if self._ledger.delivered.get(self._site, 0) < index:
            self._ledger.delivered[self._site] = index
            if self._is_present:
                self._out.append(fx.Absent())
            self._is_present = False

    def _tick(self, now: Nanoseconds) -> None:
        self._has_ticks = self._applier.wants_ticks
        if self._has_ticks:
            self._out.append(fx.SetTimer(TICK, TICK_NS))
            self._feed(now, qp.ClockTick(self._clock(now)))

    def _look_at_size(self, now: Nanoseconds) -> None:
        protocol = self.protocol
        grown = protocol.new_bytes > self._snapshot_bytes + protocol.snapshot_bytes
        if grown and protocol.commit > protocol.snapshot_index:
            self._ledger.snapshots += 1
            self._feed(now, qp.Snapshotted(self._applier.snapshot()))

    # The disk

    def _write(self, effect: qp.Store | qp.Install | qp.Compact) -> None:
        if self._disk is not None and self._disk.write(effect):
            self._disk.start_sync()
            self._out.append(fx.SetTimer(DISK, self._disk_ns))

    def _end_sync(self, now: Nanoseconds) -> None:
        assert self._disk is not None
        position = self._disk.end_sync()
        if self._disk.is_waiting:
            self._disk.start_sync()
            self._out.append(fx.SetTimer(DISK, self._disk_ns))
        if position:
            self._feed(now, qp.Stored(position))

    # Absences

    def _pause(self, now: Nanoseconds, event: Departed | Returned) -> None:
        """The process stands still: its timers are due when it goes on."""
        if isinstance(event, Departed):
            return
        for name in ("election", "ask", "heartbeat", "forward", "greet", "transfer", "late", *SIDE_TIMERS):
            self._feed(now, TimerFired(name))
        if self._disk is not None and self._disk.is_waiting:
            self._end_sync(now)
        self._has_ticks = False


def _unwrapped(entry: Entry) -> tuple[list[int], Entry]:
    """The numbers of a batch's messages in the trace, and the batch without them."""
    if entry.kind != BATCH or not entry.body:
        return [], entry
    pairs = msgspec.msgpack.decode(entry.body)
    body = encode_commands([command for _, command in pairs])
    return [number for number, _ in pairs], msgspec.structs.replace(entry, body=body)
