"""When messages are stable, and so no longer kept: the seam to a stability protocol, and what it leaves over.

The messages of members that count are the stability protocol's business. Those of members that are gone are
not: what everyone who counts says in its status is enough for them, since they grow no more.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final
from typing import Protocol as Interface

from antiphon.core.effects import (
    CancelTimer,
    Deliver,
    Discard,
    Effect,
    Multicast,
    SetTimer,
    Stable,
)
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received, RoundTriggered, TimerFired
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.fifo.pdus import FifoConfiguration
from antiphon.protocols.fifo.state import Peer, State, View
from antiphon.protocols.fifo.streams import Stream
from antiphon.protocols.stability.base import Configuration, Repetition
from antiphon.protocols.stability.coordp import CoordP

ROUND: Final = "round"
LAYER: Final = "stability/"
"""What the stability protocol's own timers are called here."""


class StabilityLayer(Interface):
    """What a stability protocol has to be, for one view, to decide here what is released.

    Members and senders are the same sites, in the view's order. It is told what is held just before each
    input that may make it speak. It answers with PDUs of its own, timers of its own, and `Stable` for what
    every member of the view holds; it never takes that back.
    """

    @property
    def coordinator(self) -> Site:
        """Where a round is triggered."""

    @property
    def under_way(self) -> bool:
        """Whether a round triggered here has not ended yet."""

    def hold_all(self, counts: Sequence[int]) -> None:
        """How many messages of each sender are held here, counted from 0 without a gap; never fewer."""

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]: ...


MakeLayer = Callable[[Site, View, Sequence[int], FifoConfiguration, Random], StabilityLayer]


def make_coordp(
    site: Site, view: View, stable: Sequence[int], configuration: FifoConfiguration, random: Random
) -> StabilityLayer:
    """CoordP among the members of a view, beginning with what they hold and know to be stable."""
    first_ns = configuration.stability_repeat_ns
    knobs = Configuration(repetition=Repetition(first_ns=first_ns, longest_ns=8 * first_ns), view=view.number)
    layer = CoordP(site, view.sites, view.sites, knobs, random)
    layer.begin(view.held(), stable)
    return layer


class Release:
    """Triggers rounds, declares what is stable, and lets it go."""

    def __init__(self, state: State, make_layer: MakeLayer = make_coordp) -> None:
        self._state = state
        self._make_layer = make_layer
        self._layer: StabilityLayer | None = None
        self.wakeful = False
        """Whether new messages must set the round's timer: here is the coordinator, and it is not set."""
        self.fresh_bytes = 0
        """What has come since a round last began."""

    # Rounds

    def new_view(self, now: Nanoseconds) -> None:
        state = self._state
        view = state.view
        stable = [min(stream.stable, stream.expected) for stream in view.streams]
        if self._layer is not None:
            state.effects += (CancelTimer(f"{LAYER}ask"), CancelTimer(f"{LAYER}acknowledge"))
        self._layer = self._make_layer(state.site, view, stable, state.configuration, state.random)
        self._doze()
        self.stir(now)

    def stir(self, now: Nanoseconds) -> None:
        """Look whether something is to be found out, whatever brought it about."""
        if self.wakeful and self._unstable():
            self.wake(now)

    def wake(self, now: Nanoseconds) -> None:
        """Something is to be found out: see to it that a round comes."""
        self.wakeful = False
        self._state.arm(now, ROUND, self._state.configuration.round_ns)

    def hurry(self, now: Nanoseconds) -> None:
        """So much has come that the next round should not wait."""
        self.fresh_bytes = 0
        if self._layer is not None and self._coordinates() and not self._layer.under_way:
            self._forward(now, RoundTriggered())

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        """A PDU of the layer's own; one of another view does not concern it."""
        self._forward(now, Received(sender, pdu))

    def fire(self, now: Nanoseconds, name: str) -> None:
        if name != ROUND:
            self._forward(now, TimerFired(name.removeprefix(LAYER)))
        elif self._layer is not None and self._coordinates():
            if self._unstable():
                if not self._layer.under_way:
                    self._forward(now, RoundTriggered())
                self.wake(now)
            self._doze()

    def _doze(self) -> None:
        self.wakeful = self._coordinates() and ROUND not in self._state.armed

    def _coordinates(self) -> bool:
        return self._layer is not None and self._layer.coordinator == self._state.site

    def _unstable(self) -> bool:
        return any(stream.expected > stream.stable for stream in self._state.view.streams)

    def _forward(self, now: Nanoseconds, event: Input) -> None:
        """Let the layer handle an input, and carry out what it wants in our terms."""
        state, layer = self._state, self._layer
        if layer is None:
            return
        if type(event) is RoundTriggered:
            self.fresh_bytes = 0
            state.counts["rounds"] += 1
        layer.hold_all(state.view.held())
        for effect in layer.handle(now, event):
            match effect:
                case SetTimer(name=name, after_ns=after_ns):
                    state.effects.append(SetTimer(LAYER + name, after_ns))
                case CancelTimer(name=name):
                    state.effects.append(CancelTimer(LAYER + name))
                case Stable(sender=sender, number=number, count=count):
                    self.release(self._stream_of(sender), number + count)
                case Multicast() if state.alone():
                    pass  # there is nobody to tell
                case _:
                    state.effects.append(effect)

    def _stream_of(self, site: Site) -> Stream:
        return self._state.view.streams[self._state.view.sites.index(site)]

    # Letting go

    def release(self, stream: Stream, position: int) -> None:
        """Everyone who counts holds everything below a position: say so, and keep it no longer."""
        position = min(position, stream.expected)
        if position <= stream.stable:
            return
        state = self._state
        if stream is state.own:
            self.deliver_own(position)
        state.declared = True
        begin, stream.stable = max(stream.stable, stream.since), position
        if position > begin:
            state.tell(Stable(stream.site, begin, position - begin))
        number, count = stream.release(position)
        if count:
            state.tell(Discard(stream.site, number, count))
        if state.uncounted:
            self._mark_left_out(stream)

    def deliver_own(self, position: int) -> None:
        """Deliver our own messages below a position."""
        state, own = self._state, self._state.own
        while own.delivered < position:
            bodies = own.kept[own.delivered]
            state.tell(Deliver(own.site, own.delivered, bodies))
            own.delivered += len(bodies)

    def _mark_left_out(self, stream: Stream) -> None:
        """Whoever does not count and did not hold this must begin a new spell before he counts again."""
        for peer in self._state.uncounted:
            extent = peer.extents.get(stream.site)
            known = extent is not None and extent.incarnation == stream.incarnation
            if not known or (extent is not None and extent.held < stream.stable):
                peer.left_out = max(peer.left_out, peer.spell)

    # Those who are gone

    def settle_accounts(self) -> None:
        """Find what is stable of those who do not count, and of earlier incarnations."""
        counted = list(self._state.counted())
        if not all(peer.extents for peer in counted):
            return
        for peer in self._state.uncounted:
            if peer.stream.begun and peer.successor is None and peer.stream.stable < peer.stream.expected:
                self.release(peer.stream, self._least_held(peer.stream, counted))
        for peer in self._state.peers.values():
            if peer.past is not None and self._all_beyond(peer.past, counted):
                self.release(peer.past, peer.past.expected)
                peer.past = None

    def _least_held(self, stream: Stream, counted: list[Peer]) -> int:
        """What all who count and follow the stream hold."""
        least = stream.expected
        for peer in counted:
            extent = peer.extents.get(stream.site)
            if extent is not None and extent.incarnation == stream.incarnation and extent.held >= 0:
                least = min(least, extent.held)
        return least

    def _all_beyond(self, past: Stream, counted: list[Peer]) -> bool:
        for peer in counted:
            extent = peer.extents.get(past.site)
            if peer.site != past.site and extent is not None and extent.incarnation <= past.incarnation:
                return False
        return True
