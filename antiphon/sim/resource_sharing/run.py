"""One run: members that want units all the time, the group below them, and the results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from antiphon.applications.resource_sharing import (
    Done,
    Granted,
    Revoked,
    Sharer,
    SharingConfiguration,
    TimedOut,
    Want,
)
from antiphon.applications.resource_sharing.sharer import Event
from antiphon.core import effects as fx
from antiphon.core.ids import MessageId, Site
from antiphon.core.inputs import Admit, Departed, Returned, TimerFired
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Kind, Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, Nanoseconds, to_seconds
from antiphon.sim import churn
from antiphon.sim.network import Network
from antiphon.sim.ordering import RETRY_NS, wire_size
from antiphon.sim.resource_sharing.disorder import Disorder, Disordered, out_of_order
from antiphon.sim.scenario import Metrics
from antiphon.sim.tap import Tap
from antiphon.sim.world import Host, World

PACE: Final = churn.Pace(calm_ns=3000 * MILLISECOND_NS, trouble_ns=1500 * MILLISECOND_NS)
"""How long absences last, and how long it is between those of one member."""
SHORTEST: Final = 0.5
LONGEST: Final = 1.5
"""How far times are drawn from their mean."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """What a group runs on: a protocol object for each site, and the network between them."""

    build: Callable[[Site], Protocol]
    network: Network
    slack_ns: Nanoseconds
    """How much later than another a member may deliver or answer a message, while members come and go."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What every member does, over and over: pause, request 1 to `need` units, operate on them."""

    units: int
    need: int
    operation_ns: Nanoseconds
    """How long an operation takes on average: from half of it to one and a half."""
    pause_ns: Nanoseconds
    horizon_ns: Nanoseconds


class Ledger:
    """The owner of each unit, as an omniscient observer sees it: finds units controlled by two members at
    once."""

    def __init__(self, units: int) -> None:
        self.double_holdings = 0
        self._holders: list[set[Site]] = [set() for _ in range(units)]
        self._held: dict[Site, frozenset[int]] = {}

    def note(self, site: Site, held: frozenset[int]) -> None:
        before = self._held.get(site, frozenset())
        if held == before:
            return
        self._held[site] = held
        for unit in before - held:
            self._holders[unit].discard(site)
        for unit in held - before:
            self.double_holdings += bool(self._holders[unit])
            self._holders[unit].add(site)


class Seat:
    """A member's application, and the user above it."""

    def __init__(self, site: Site, sharer: Sharer) -> None:
        self.site = site
        self.sharer = sharer
        self.is_away = False
        self.outbox: list[Sequence[bytes]] = []
        self.is_sending = False
        self.timers: dict[str, int] = {}
        self.spell = 0
        """Counts operations and absences: what was scheduled in an earlier one is void."""
        self.delivered: list[MessageId] = []


class Run(Tap):
    """The applications of all members, on a world."""

    def __init__(
        self,
        *,
        sites: tuple[Site, ...],
        stack: Stack,
        demand: Demand,
        sharing: SharingConfiguration,
        disorder: Disorder,
        absences: Sequence[churn.Absence],
        seeds: Seeds,
        recorder: Recorder | None,
    ) -> None:
        super().__init__(recorder)
        self._demand = demand
        self._random = seeds.stream("demand")
        self._ledger = Ledger(demand.units)
        self._operations = 0
        self._timeouts = 0
        self._revoked = 0
        self._waits_ns: list[Nanoseconds] = []
        self._used_ns = 0
        self._tokens = 0
        self._protocols = {site: Disordered(stack.build(site), site, disorder) for site in sites}
        keepers = [sites[unit % len(sites)] for unit in range(demand.units)]
        self._seats = {site: Seat(site, Sharer(site, keepers, sharing)) for site in sites}
        self._world = World(
            sites=sites,
            build=self._protocols.__getitem__,
            network=stack.network,
            size_of=wire_size,
            recorder=self,
        )
        self._world.on_deliver = self._delivered
        churn.schedule(self._world, absences)
        for absence in absences:
            seat = self._seats[absence.site]
            self._world.at(absence.begin_ns, lambda seat=seat: self._leave(seat))  # type: ignore[misc]
            self._world.at(absence.end_ns, lambda seat=seat: self._return(seat))  # type: ignore[misc]

    def run(self) -> None:
        self._world.start()
        for seat in self._seats.values():
            self._ledger.note(seat.site, seat.sharer.held())
            self._want_after(seat, self._lasting(self._demand.operation_ns))
        self._world.run(self._demand.horizon_ns)

    def metrics(self) -> Metrics:
        waits, seconds = self._waits_ns, to_seconds(self._demand.horizon_ns)
        reference = next(iter(self._protocols.values())).undisturbed
        late = out_of_order(reference, {site: seat.delivered for site, seat in self._seats.items()})
        messages = sum(host.admitted for host in self._world.hosts)
        return {
            "operations_per_s": self._operations / seconds,
            "operations": self._operations,
            "timeouts": self._timeouts,
            "wait_mean_s": to_seconds(sum(waits)) / len(waits) if waits else None,
            "wait_max_s": to_seconds(max(waits)) if waits else None,
            "use_share": self._used_ns / (self._demand.units * self._demand.horizon_ns),
            "disorder_share": len(late) / len(reference) if reference else 0.0,
            "double_holdings": self._ledger.double_holdings,
            "claims": sum(seat.sharer.claims for seat in self._seats.values()),
            "revoked": self._revoked,
            "messages": messages,
            "deliveries": sum(len(seat.delivered) for seat in self._seats.values()),
            "network_messages": self._world.network.network_messages(),
        }

    # The group

    def _delivered(self, _now: Nanoseconds, host: Host, effect: fx.Deliver) -> None:
        seat = self._seats[host.site]
        count = len(effect.bodies)
        seat.delivered += [MessageId(effect.sender, effect.number + index) for index in range(count)]
        self._give(seat, effect)

    def _send(self, seat: Seat) -> None:
        """Hand in what waits; what is refused is tried again later."""
        host = self._world.host(seat.site)
        seat.is_sending = False
        while seat.outbox:
            before = host.admitted
            self._world.admit(seat.site, seat.outbox[0])
            if host.admitted == before:
                self._send_at(seat, self._world.now + RETRY_NS)
                return
            del seat.outbox[0]

    def _send_at(self, seat: Seat, time_ns: Nanoseconds) -> None:
        # Never from within a delivery: the protocol may not be done with the event that brought it.
        if not seat.is_sending:
            seat.is_sending = True
            self._world.at(time_ns, lambda: self._send(seat))

    def on_row(self, site: Site, kind: Kind, time_ns: Nanoseconds, *_row: object) -> None:
        """A member that missed something while it thought it was present must learn it."""
        if kind == "present" and not self._seats[site].is_away:
            self._world.at(time_ns, lambda: self._begin_anew(self._seats[site]))

    # The application

    def _give(self, seat: Seat, event: Event) -> None:
        now = self._world.now
        for outcome in seat.sharer.handle(now, event):
            match outcome:
                case Admit(bodies=bodies):
                    seat.outbox.append(bodies)
                    self._send_at(seat, now)
                case fx.SetTimer(name=name, after_ns=after_ns):
                    self._set_timer(seat, name, after_ns)
                case fx.CancelTimer(name=name):
                    seat.timers.pop(name, None)
                case Granted():
                    self._operate(seat, outcome)
                case TimedOut():
                    self._timeouts += 1
                case Revoked():
                    self._revoked += 1
                    seat.spell += 1
                    self._want_after(seat, self._demand.pause_ns)
        self._ledger.note(seat.site, seat.sharer.held())

    def _set_timer(self, seat: Seat, name: str, after_ns: Nanoseconds) -> None:
        self._tokens += 1
        token = seat.timers[name] = self._tokens
        self._world.at(self._world.now + after_ns, lambda: self._fire(seat, name, token))

    def _fire(self, seat: Seat, name: str, token: int) -> None:
        if seat.timers.get(name) == token:
            del seat.timers[name]
            self._give(seat, TimerFired(name))

    # The user

    def _later(self, seat: Seat, after_ns: Nanoseconds, action: Callable[[], None]) -> None:
        """Do something unless something else comes between."""
        spell = seat.spell
        self._world.at(self._world.now + after_ns, lambda: action() if seat.spell == spell else None)

    def _lasting(self, mean_ns: Nanoseconds) -> Nanoseconds:
        return self._random.randint(round(SHORTEST * mean_ns), round(LONGEST * mean_ns))

    def _want_after(self, seat: Seat, pause_ns: Nanoseconds) -> None:
        need = self._random.randint(1, self._demand.need)
        self._later(seat, pause_ns, lambda: self._give(seat, Want(need)))

    def _operate(self, seat: Seat, granted: Granted) -> None:
        self._waits_ns.append(granted.waited_ns)
        lasting_ns = self._lasting(self._demand.operation_ns)
        self._later(seat, lasting_ns, lambda: self._finish(seat, lasting_ns * len(granted.units)))

    def _finish(self, seat: Seat, used_ns: Nanoseconds) -> None:
        self._operations += 1
        self._used_ns += used_ns
        self._give(seat, Done())
        self._want_after(seat, self._lasting(self._demand.pause_ns))

    # Absence

    def _leave(self, seat: Seat) -> None:
        seat.is_away = True
        seat.spell += 1
        seat.outbox.clear()
        self._give(seat, Departed())

    def _return(self, seat: Seat) -> None:
        seat.is_away = False
        self._begin_anew(seat)

    def _begin_anew(self, seat: Seat) -> None:
        """Everything under way is over: this member no longer knows which member has which unit."""
        if not seat.is_away:
            seat.spell += 1
            seat.outbox.clear()
            self._give(seat, Returned())
            self._want_after(seat, self._demand.pause_ns)
