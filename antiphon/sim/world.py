"""The deterministic world: one heap of events, one network, and the sites' protocol objects around them.

The world is the simulator's half of the seam that the live runtime fills with sockets and clocks: it feeds
inputs to protocol objects and carries out their effects. Events of one moment happen in the order in which
they were scheduled, heap before network, so that a run is a function of its seed.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any, ClassVar

import msgspec

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.inputs import (
    Admit,
    Departed,
    Input,
    Received,
    Restored,
    Returned,
    Start,
    Suspected,
    TimerFired,
)
from antiphon.core.packing import Destinations, Packed, consecutive
from antiphon.core.protocol import Protocol
from antiphon.core.recording import LevelRecorder, Recorder
from antiphon.core.time import NEVER_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.sim.network import Arrival, Layer, Network

Build = Callable[[Site], Protocol]
SizeOf = Callable[[Pdu], int]
Action = Callable[[], None]


class Host:
    """A site of the world: its protocol object and whether it is up and present."""

    __slots__ = ("admitted", "delivered", "handle", "incarnation", "index", "present", "site", "timers", "up")

    def __init__(self, index: int, site: Site, protocol: Protocol) -> None:
        self.index = index
        self.site = site
        self.handle = protocol.handle
        self.up = True
        self.present = True
        self.incarnation = 0
        self.admitted = 0
        self.delivered = 0
        self.timers: dict[str, int] = {}


class World:
    """Drives protocol objects through simulated time."""

    def __init__(
        self,
        *,
        sites: Sequence[Site],
        build: Build,
        network: Network,
        size_of: SizeOf,
        layers: Sequence[Layer] = (),
        recorder: Recorder | None = None,
        servers: Collection[Site] = (),
    ) -> None:
        """`servers` are the sites that are no members: they have no application and no row in the trace."""
        if len(set(sites)) != len(sites):
            raise UsageError("Two sites of a world have the same name.")
        self.now: Nanoseconds = 0
        self.network = network
        self._network_send = network.send
        self.rejections = 0
        self.on_deliver: Callable[[Nanoseconds, Host, fx.Deliver], None] | None = None
        self.on_admitted: Callable[[Nanoseconds, Host, fx.Admitted], None] | None = None
        self.on_stable: Callable[[Nanoseconds, Host, fx.Stable], None] | None = None
        self.on_level: Callable[[Nanoseconds, Host, fx.Reached], None] | None = None
        self.on_missing: Callable[[Nanoseconds, Host, fx.Missing], None] | None = None
        self.on_presence: Callable[[Nanoseconds, Host, fx.Appeared | fx.Vanished], None] | None = None
        self.on_group: Callable[[Nanoseconds, Host, fx.Joined | fx.Left], None] | None = None
        self.on_doubt: Callable[[Nanoseconds, Host, fx.Doubt], None] | None = None
        self._build = build
        self._size_of = size_of
        self._sized: Pdu | None = None
        """What was sent last, and its size: a PDU often goes to several."""
        self._size = 0
        self._layers = tuple(layers)
        self._recorder = recorder
        self._servers = frozenset(servers)
        self._heap: list[tuple[Nanoseconds, int, Host, str] | tuple[Nanoseconds, int, Action]] = []
        """Timers and actions. No two have one serial number, so that what follows it is never compared."""
        self._scheduled = 0
        self._handed_in: Sequence[bytes] = ()
        self._stopped = False
        self.hosts = [Host(index, site, build(site)) for index, site in enumerate(sites)]
        self._index = {site: index for index, site in enumerate(sites)}
        self._alone = {site: (index,) for index, site in enumerate(sites)}

    # Calls of a scenario

    def at(self, time_ns: Nanoseconds, action: Action) -> None:
        """Do something at a moment from now on."""
        if time_ns < self.now:
            raise UsageError("The world cannot schedule an action in the past.")
        self._scheduled += 1
        heappush(self._heap, (time_ns, self._scheduled, action))

    def host(self, site: Site) -> Host:
        return self.hosts[self._index[site]]

    def start(self) -> None:
        """Start every site, in order."""
        for host in self.hosts:
            self.give(host, Start())

    def give(self, host: Host, event: Input) -> None:
        """Feed an input to a site now and carry out what its protocol answers."""
        if host.up:
            for effect in host.handle(self.now, event):
                self._apply[type(effect)](self, host, effect)

    def admit(
        self,
        site: Site,
        bodies: Sequence[bytes],
        destinations: frozenset[Site] | None = None,
        group: Group | None = None,
    ) -> None:
        """The application of a site hands bodies in; an absent or crashed site has no application."""
        host = self.host(site)
        if host.present:
            self._handed_in = bodies
            self.give(host, Admit(bodies, destinations, group))

    def crash(self, site: Site) -> None:
        """The site loses its memory and its timers; the world notes its absence, since it can't itself."""
        host = self.host(site)
        if host.up:
            host.up = host.present = False
            host.timers.clear()
            if site not in self._servers:
                self._note(host, fx.Absent())

    def restart(self, site: Site) -> None:
        """A new incarnation begins with empty memory; it says itself when it is present again."""
        host = self.host(site)
        if not host.up:
            host.handle = self._build(site).handle
            host.up = host.present = True
            host.incarnation += 1
            self.give(host, Start(host.incarnation, host.admitted, returning=True))

    def depart(self, site: Site) -> None:
        """The site goes absent: it keeps its memory, but receives and sends nothing, and its timers stop."""
        host = self.host(site)
        if host.up and host.present:
            self.give(host, Departed())
            host.present = False
            host.timers.clear()

    def come_back(self, site: Site) -> None:
        host = self.host(site)
        if host.up and not host.present:
            host.present = True
            self.give(host, Returned())

    def suspect(self, site: Site, *, at: Iterable[Site] | None = None) -> None:
        """The failure detector of each site (or of some) suspects this site."""
        self._notify(Suspected(site), site, at)

    def restore(self, site: Site, *, at: Iterable[Site] | None = None) -> None:
        """The failure detector of each site (or of some) takes its suspicion back."""
        self._notify(Restored(site), site, at)

    def stop(self) -> None:
        """End the run once the current event is done; PDUs under way stay unread."""
        self._stopped = True

    def run(self, until_ns: Nanoseconds = NEVER_NS - 1) -> None:
        """Run until nothing is left to happen, until a moment, or until `stop` is called."""
        self._stopped = False
        heap, next_ns = self._heap, self.network.next_ns
        while not self._stopped:
            heap_ns = heap[0][0] if heap else NEVER_NS
            if heap_ns <= next_ns():
                if heap_ns > until_ns:
                    break
                self._next_event()
                continue
            arrivals = self.network.advance(min(heap_ns - 1, until_ns))
            if arrivals:
                self._take(arrivals)
            elif heap_ns > until_ns:
                break
        if not self._stopped and until_ns < NEVER_NS - 1:
            self.now = max(self.now, until_ns)

    # Time

    def _next_event(self) -> None:
        """An action, or a timer that has been neither cancelled nor set again."""
        event = heappop(self._heap)
        self.now = event[0]
        if len(event) == 3:
            event[2]()
            return
        _, token, host, name = event
        if host.timers.get(name) == token:
            del host.timers[name]
            for effect in host.handle(self.now, TimerFired(name)):
                self._apply[type(effect)](self, host, effect)

    def _take(self, arrivals: Sequence[Arrival]) -> None:
        """Hand over arrivals in order; events that they schedule in between happen in between."""
        heap, hosts, apply, layers = self._heap, self.hosts, self._apply, self._layers
        pdu: Pdu | None = None
        source = -1
        after_loss = False
        for arrival in arrivals:
            time_ns = arrival.time_ns
            while heap and heap[0][0] <= time_ns and not self._stopped:
                self._next_event()
                if not arrivals or arrivals[-1].time_ns < time_ns:
                    return  # the network has taken it back: a send in between may change it
            if self._stopped:
                return
            self.now = time_ns
            if layers:
                self._through_layers(arrival)
                continue
            # What `_receive` does, without the call and with one input for all receivers of the same PDU:
            # simulations spend most of their time here.
            if arrival.pdu is not pdu or arrival.source != source or arrival.after_loss != after_loss:
                pdu, source, after_loss = arrival.pdu, arrival.source, arrival.after_loss
                event = Received(hosts[source].site, pdu, after_loss)
            host = hosts[arrival.target]
            if host.present:
                for effect in host.handle(time_ns, event):
                    apply[type(effect)](self, host, effect)

    def _through_layers(self, arrival: Arrival) -> None:
        outcomes: Sequence[Arrival] = (arrival,)
        for layer in self._layers:
            if len(outcomes) == 1:  # nearly always, and then no list is needed
                outcomes = layer.apply(outcomes[0])
            else:
                outcomes = [outcome for before in outcomes for outcome in layer.apply(before)]
        for outcome in outcomes:
            if outcome.time_ns <= self.now:
                self._receive(outcome)
            else:
                self.at(outcome.time_ns, lambda late=outcome: self._receive(late))  # type: ignore[misc]

    def _receive(self, arrival: Arrival) -> None:
        host = self.hosts[arrival.target]
        if host.present:
            for effect in host.handle(
                self.now, Received(self.hosts[arrival.source].site, arrival.pdu, arrival.after_loss)
            ):
                self._apply[type(effect)](self, host, effect)

    def _notify(self, event: Input, about: Site, at: Iterable[Site] | None) -> None:
        for host in self.hosts if at is None else map(self.host, at):
            if host.present and host.site != about:
                self.give(host, event)

    # Effects

    def _send(self, host: Host, effect: fx.Send) -> None:
        pdu = effect.pdu
        if pdu is not self._sized:
            self._sized, self._size = pdu, self._size_of(pdu)
        self._network_send(self.now, host.index, self._alone[effect.to], pdu, self._size)

    def _multicast(self, host: Host, effect: fx.Multicast) -> None:
        targets: Sequence[int] | None = None
        if effect.to is not None:
            targets = [self._index[site] for site in effect.to]
        if effect.hops is not None:
            near = self.network.within(host.index, effect.hops)
            targets = near if targets is None else sorted(set(near).intersection(targets))
        self._network_send(self.now, host.index, targets, effect.pdu, self._size_of(effect.pdu))
        if effect.left is not None:
            self._set_timer(host, fx.SetTimer(effect.left, 1))

    def _set_timer(self, host: Host, effect: fx.SetTimer) -> None:
        name = effect.name
        self._scheduled += 1
        token = host.timers[name] = self._scheduled
        heappush(self._heap, (self.now + effect.after_ns, token, host, name))

    def _cancel_timer(self, host: Host, effect: fx.CancelTimer) -> None:
        host.timers.pop(effect.name, None)

    def _rejected(self, _host: Host, _effect: fx.Rejected) -> None:
        self.rejections += 1

    def _admitted(self, host: Host, effect: fx.Admitted) -> None:
        host.admitted += effect.count
        if self.on_admitted is not None:
            self.on_admitted(self.now, host, effect)
        if self._recorder is not None:
            for place, count, named in self._addresses(effect):
                destinations = None if named is None else sorted(named)
                size = (
                    effect.size if count == effect.count else sum(map(len, self._handed_in[place:][:count]))
                )
                self._recorder.record(
                    host.site, "send", self.now, host.site, effect.number + place, count,
                    effect.group, destinations, size,
                )  # fmt: skip

    def _addresses(self, effect: fx.Admitted) -> Iterable[tuple[int, int, Destinations]]:
        """The destinations of what was just admitted, run by run."""
        bodies = self._handed_in
        if type(bodies) is Packed and bodies.addresses is not None:
            return bodies.runs()
        return ((0, effect.count, effect.destinations),)

    def _deliver(self, host: Host, effect: fx.Deliver) -> None:
        bodies = effect.bodies
        if type(bodies) is Packed and bodies.addresses is not None:
            for place, count in consecutive(bodies.places_for(host.site)):
                some = bodies[place : place + count]
                self._deliver(
                    host, msgspec.structs.replace(effect, number=effect.number + place, bodies=some)
                )
            return
        host.delivered += len(effect.bodies)
        if self.on_deliver is not None:
            self.on_deliver(self.now, host, effect)
        if self._recorder is not None:
            size = sum(map(len, effect.bodies))
            self._recorder.record(
                host.site, "deliver", self.now, effect.sender, effect.number, len(effect.bodies),
                effect.group, None, size,
            )  # fmt: skip

    def _arrived(self, host: Host, effect: fx.Arrived) -> None:
        if self._recorder is not None:
            self._recorder.record(
                host.site, "receive", self.now, effect.sender, effect.number, effect.count, effect.group
            )

    def _stable(self, host: Host, effect: fx.Stable) -> None:
        if self.on_stable is not None:
            self.on_stable(self.now, host, effect)
        if self._recorder is not None:
            self._recorder.record(
                host.site, "stable", self.now, effect.sender, effect.number, effect.count, effect.group
            )

    def _unstable(self, _host: Host, _effect: fx.Unstable) -> None:
        """A trace has no row for it."""

    def _reached(self, host: Host, effect: fx.Reached) -> None:
        if self.on_level is not None:
            self.on_level(self.now, host, effect)
        if isinstance(self._recorder, LevelRecorder):
            self._recorder.reach(
                host.site, effect.level, self.now, effect.sender, effect.number, effect.count
            )

    def _missing(self, host: Host, effect: fx.Missing) -> None:
        if self.on_missing is not None:
            self.on_missing(self.now, host, effect)

    def _discard(self, host: Host, effect: fx.Discard) -> None:
        if self._recorder is not None:
            self._recorder.record(
                host.site, "discard", self.now, effect.sender, effect.number, effect.count, effect.group
            )

    def _note(self, host: Host, effect: fx.Absent | fx.Present) -> None:
        if self._recorder is not None:
            self._recorder.record(host.site, "absent" if type(effect) is fx.Absent else "present", self.now)

    def _presence(self, host: Host, effect: fx.Appeared | fx.Vanished) -> None:
        if self.on_presence is not None:
            self.on_presence(self.now, host, effect)

    def _grouped(self, host: Host, effect: fx.Joined | fx.Left) -> None:
        if self.on_group is not None:
            self.on_group(self.now, host, effect)

    def _doubt(self, host: Host, effect: fx.Doubt) -> None:
        if self.on_doubt is not None:
            self.on_doubt(self.now, host, effect)

    # Functions, not bound methods: a world that refers to itself would outlive its use until the collector
    # comes, and a sweep's next run would not find its memory free.
    _apply: ClassVar[dict[type, Callable[["World", Host, Any], None]]] = {
        fx.Send: _send,
        fx.Multicast: _multicast,
        fx.Admitted: _admitted,
        fx.Rejected: _rejected,
        fx.Arrived: _arrived,
        fx.Deliver: _deliver,
        fx.Stable: _stable,
        fx.Missing: _missing,
        fx.Discard: _discard,
        fx.SetTimer: _set_timer,
        fx.CancelTimer: _cancel_timer,
        fx.Absent: _note,
        fx.Present: _note,
        fx.Appeared: _presence,
        fx.Vanished: _presence,
        fx.Joined: _grouped,
        fx.Left: _grouped,
        fx.Disagreed: _doubt,
        fx.Forked: _doubt,
        fx.CutOff: _doubt,
        fx.Resumed: _doubt,
        fx.Unavailable: _doubt,
        fx.Unstable: _unstable,
        fx.Reached: _reached,
    }
