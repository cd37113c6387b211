"""The host of a stability protocol: each view has an object of the protocol of its own.

A view whose members go and return has the same number again, and PDUs of its first time may still be under
way. So the object of a view is kept when the view ends, and goes on when it returns. A fresh object would
count its rounds anew, take an old result for that of a round under way, and the group would wait for ever.

The object's timers run under a prefix, its PDUs go out as this protocol's, and what it finds is handed back.
The same host serves stability detection, which asks for the least that members hold, and error detection,
which asks for the most that any member has seen.
"""

from collections.abc import Sequence
from typing import Final

from antiphon.core.effects import CancelTimer, Effect, Missing, Multicast, SetTimer, Stable
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received, RoundTriggered, TimerFired
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.group import Group
from antiphon.protocols.fifo.streams import Stream
from antiphon.protocols.stability import Layer, Setting, StabilityProtocol
from antiphon.protocols.stability.base import Objective
from antiphon.protocols.stability.round_trips import RoundTrips
from antiphon.protocols.stability.tuning import UNTUNED, Tuning

MOST_PAST_VIEWS: Final = 32
"""Past views whose objects are kept. Raising it costs memory: some counts for each member."""
LONGEST_ROUND: Final = 64
"""A round is given up after the time of this many repetitions or steps, whichever is longer. Raising it costs
memory: a round that never ends delays the next one."""


class LayerHost:
    """Holds the protocol's object of the current view."""

    def __init__(
        self,
        context: Context,
        group: Group,
        protocol: StabilityProtocol,
        prefix: str,
        objective: Objective,
        mark: int = 0,
        tuning: Tuning = UNTUNED,
    ) -> None:
        self._context = context
        self._group = group
        self._protocol = protocol
        self._prefix = prefix
        self._objective = objective
        self._tuning = tuning
        self._mark = mark
        """Distinguishes this host's PDUs: they carry the view's number with these bits flipped."""
        self._timers: set[str] = set()
        self._past: dict[int, tuple[Layer, set[str], Nanoseconds]] = {}
        """The objects of past views, the timers that ran, and when the view ended."""
        self._round_began_ns: Nanoseconds = 0
        """When the round under way began, as far as this member knows."""
        self.layer: Layer | None = None
        self._trips = RoundTrips()
        self._rounds_before = 0
        self.view = -1

    @property
    def coordinates(self) -> bool:
        """Whether this member triggers rounds."""
        return self.layer is not None and self.layer.coordinator == self._context.site

    @property
    def under_way(self) -> bool:
        return self.layer is not None and self.layer.under_way

    def is_busy(self, now: Nanoseconds) -> bool:
        """Whether a round is under way that may still end; a liar's PDU may have made it endless."""
        pause_ns = max(self._context.configuration.stability_repeat_ns, self._tuning.step_ns or 0)
        longest_ns = LONGEST_ROUND * pause_ns + self._tuning.scatter_ns
        return self.under_way and now - self._round_began_ns < longest_ns

    @property
    def rounds(self) -> int:
        """Rounds whose result was first computed here, in all views so far."""
        return self._rounds_before + (0 if self.layer is None else self.layer.rounds_finished)

    def on_view(self, now: Nanoseconds, held: Sequence[int], found: Sequence[int]) -> None:
        """Begin a new view with what is held and what was found before, or go on in a view that returns."""
        self._context.effects += [CancelTimer(name) for name in sorted(self._timers)]
        self._end_view(now)
        self.view = self._group.view.number ^ self._mark
        layer, timers, ended_ns = self._past.pop(self.view, (None, set(), now))
        recent = now - ended_ns <= self._context.configuration.forget_after_ns
        if layer is not None and recent and layer.can_hold(held):
            self.layer, self._timers, self._round_began_ns = layer, timers, now
            self._rounds_before -= layer.rounds_finished
            self._context.effects += [SetTimer(name, 1) for name in sorted(timers)]
            return
        self.layer = self._make()
        self.layer.begin(held, found)

    def _end_view(self, now: Nanoseconds) -> None:
        """Keep the object of the view that ends."""
        if self.layer is not None:
            self._rounds_before += self.layer.rounds_finished
            self._past[self.view] = (self.layer, self._timers, now)
            if len(self._past) > MOST_PAST_VIEWS:
                del self._past[next(iter(self._past))]
        self.layer, self._timers = None, set()

    def _make(self) -> Layer:
        configuration = self._context.configuration
        setting = Setting(
            site=self._context.site,
            members=self._group.view.sites,
            view=self.view,
            objective=self._objective,
            repeat_ns=configuration.stability_repeat_ns,
            round_ns=self._group.pace.round_ns,
            random=self._context.random,
            steady=True,
            tuning=self._tuning,
        )
        layer = self._protocol.make(setting)
        layer.trips = self._trips
        return layer

    def trigger(self, now: Nanoseconds, held: Sequence[int]) -> list[Stable | Missing]:
        """Begin a round; one that is still under way is given up."""
        if self.layer is not None and self.under_way:
            self.layer.abandon()
        return self._forward(now, RoundTriggered(), held)

    def on_pdu(self, now: Nanoseconds, sender: Site, pdu: Pdu, held: Sequence[int]) -> list[Stable | Missing]:
        if type(pdu) not in self._protocol.pdus:
            self._context.ignore()  # its sender uses another stability protocol
            return []
        return self._forward(now, Received(sender, pdu), held)

    def fire(self, now: Nanoseconds, name: str, held: Sequence[int]) -> list[Stable | Missing]:
        self._timers.discard(name)
        return self._forward(now, TimerFired(name.removeprefix(self._prefix)), held)

    def _forward(self, now: Nanoseconds, event: Input, held: Sequence[int]) -> list[Stable | Missing]:
        """Let the object handle an input, and carry out its effects; what it found."""
        layer = self.layer
        if layer is None:
            return []
        if not layer.can_hold(held):
            # A sender has corrected what it said, so that less is seen of its messages than before.
            self._rounds_before += layer.rounds_finished
            layer = self.layer = self._make()
            layer.begin(held, held if self._objective is Objective.GREATEST else [0] * len(held))
        layer.hold_all(held)
        ignored, before = layer.ignored, (layer.under_way, layer.rounds_finished)
        found: list[Stable | Missing] = []
        for effect in layer.handle(now, event):
            if isinstance(effect, Stable | Missing):
                found.append(effect)
            else:
                self._carry_out(effect)
        self._context.counts["ignored"] += layer.ignored - ignored
        if before != (layer.under_way, layer.rounds_finished):
            self._round_began_ns = now
        return found

    def _carry_out(self, effect: Effect) -> None:
        emit = self._context.emit
        match effect:
            case SetTimer(name=name, after_ns=after_ns):
                self._timers.add(self._prefix + name)
                emit(SetTimer(self._prefix + name, after_ns))
            case CancelTimer(name=name):
                self._timers.discard(self._prefix + name)
                emit(CancelTimer(self._prefix + name))
            case Multicast() if self._group.is_alone():
                pass  # there is no other member
            case _:
                emit(effect)

    def stream_of(self, found: Stable | Missing) -> Stream:
        view = self._group.view
        return view.streams[view.sites.index(found.sender)]
