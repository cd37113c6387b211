"""The seat of a stability protocol in a member: for each view an object of its own sits there.

A view whose members go and return has the same number again, and PDUs of its first time may still be under
way. So an object that was left with its view is taken up with it: one that began to count its rounds anew
would take an old result for that of a round under way, and the group would wait for it for ever.

Its timers run under a prefix of their own, its PDUs go out as ours, and what it finds is handed back. The
same seat serves stability, which asks for the least of what members hold, and error detection, which asks for
the furthest that anyone has seen.
"""

from collections.abc import Sequence
from typing import Final

from antiphon.core.effects import CancelTimer, Effect, Missing, Multicast, SetTimer, Stable
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received, RoundTriggered, TimerFired
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.fifo.state import State
from antiphon.protocols.fifo.streams import Stream
from antiphon.protocols.stability import Layer, Setting, StabilityProtocol
from antiphon.protocols.stability.base import Objective

MOST_LEFT: Final = 32
"""Views whose objects are kept in case they return. Raising it costs memory: some counts for each member."""

LONGEST_ROUND: Final = 64
"""A round that takes so many times the pause before a PDU is repeated is given up for another."""


class Seat:
    """Holds the protocol's object of the view at hand."""

    def __init__(
        self, state: State, protocol: StabilityProtocol, prefix: str, objective: Objective, mark: int = 0
    ) -> None:
        self._state = state
        self._protocol = protocol
        self._prefix = prefix
        self._objective = objective
        self._mark = mark
        """Makes of the view's number that which PDUs of this seat carry."""
        self._timers: set[str] = set()
        self._left: dict[int, tuple[Layer, set[str], Nanoseconds]] = {}
        """The objects of earlier views, the timers that ran, and when the view ended."""
        self._began_ns: Nanoseconds = 0
        """When the round that is under way began, as far as we know."""
        self.layer: Layer | None = None
        self._rounds_before = 0
        self.view = -1

    @property
    def coordinates(self) -> bool:
        """Whether rounds are to be triggered here."""
        return self.layer is not None and self.layer.coordinator == self._state.site

    @property
    def under_way(self) -> bool:
        return self.layer is not None and self.layer.under_way

    def is_busy(self, now: Nanoseconds) -> bool:
        """Whether a round is under way that may still end; what a liar said may keep one from it."""
        longest_ns = LONGEST_ROUND * self._state.configuration.stability_repeat_ns
        return self.under_way and now - self._began_ns < longest_ns

    @property
    def rounds(self) -> int:
        """Rounds whose result was first computed here, in all views so far."""
        return self._rounds_before + (0 if self.layer is None else self.layer.rounds_finished)

    def renew(self, now: Nanoseconds, held: Sequence[int], found: Sequence[int]) -> None:
        """A new view: begin with what is held in it, and with what was found before; or go on in it."""
        state = self._state
        state.effects += [CancelTimer(name) for name in sorted(self._timers)]
        self._leave(now)
        self.view = state.view.number ^ self._mark
        layer, timers, left_ns = self._left.pop(self.view, (None, set(), now))
        recent = now - left_ns <= state.configuration.forget_after_ns
        if layer is not None and recent and layer.can_hold(held):
            self.layer, self._timers, self._began_ns = layer, timers, now
            self._rounds_before -= layer.rounds_finished
            state.effects += [SetTimer(name, 1) for name in sorted(timers)]
            return
        self.layer = self._make()
        self.layer.begin(held, found)

    def _leave(self, now: Nanoseconds) -> None:
        """Keep the object of the view that ends."""
        if self.layer is not None:
            self._rounds_before += self.layer.rounds_finished
            self._left[self.view] = (self.layer, self._timers, now)
            if len(self._left) > MOST_LEFT:
                del self._left[next(iter(self._left))]
        self.layer, self._timers = None, set()

    def _make(self) -> Layer:
        state = self._state
        setting = Setting(
            site=state.site,
            members=state.view.sites,
            view=self.view,
            objective=self._objective,
            repeat_ns=state.configuration.stability_repeat_ns,
            round_ns=state.configuration.round_ns,
            random=state.random,
            steady=True,
        )
        return self._protocol.make(setting)

    def trigger(self, now: Nanoseconds, held: Sequence[int]) -> list[Stable | Missing]:
        """Begin a round, in the place of one that never ends if there is such a one."""
        if self.layer is not None and self.under_way:
            self.layer.abandon()
        return self.forward(now, RoundTriggered(), held)

    def receive(
        self, now: Nanoseconds, sender: Site, pdu: Pdu, held: Sequence[int]
    ) -> list[Stable | Missing]:
        if type(pdu) not in self._protocol.pdus:
            self._state.ignore()  # whoever sent it uses another protocol than we do
            return []
        return self.forward(now, Received(sender, pdu), held)

    def fire(self, now: Nanoseconds, name: str, held: Sequence[int]) -> list[Stable | Missing]:
        self._timers.discard(name)
        return self.forward(now, TimerFired(name.removeprefix(self._prefix)), held)

    def forward(self, now: Nanoseconds, event: Input, held: Sequence[int]) -> list[Stable | Missing]:
        """Let the protocol handle an input, and carry out what it wants in our terms; what it found."""
        layer = self.layer
        if layer is None:
            return []
        if not layer.can_hold(held):
            # A sender has taken back what it said, so that less is seen of its messages than before.
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
        self._state.counts["ignored"] += layer.ignored - ignored
        if before != (layer.under_way, layer.rounds_finished):
            self._began_ns = now
        return found

    def _carry_out(self, effect: Effect) -> None:
        state = self._state
        match effect:
            case SetTimer(name=name, after_ns=after_ns):
                self._timers.add(self._prefix + name)
                state.effects.append(SetTimer(self._prefix + name, after_ns))
            case CancelTimer(name=name):
                self._timers.discard(self._prefix + name)
                state.effects.append(CancelTimer(self._prefix + name))
            case Multicast() if state.alone():
                pass  # there is nobody to tell
            case _:
                state.effects.append(effect)

    def stream_of(self, found: Stable | Missing) -> Stream:
        view = self._state.view
        return view.streams[view.sites.index(found.sender)]
