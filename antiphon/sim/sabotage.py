"""Sabotage: one site breaks one property on purpose, once, so that the audit can be seen catching it.

A saboteur stands between a site's protocol and the world and tampers with the effects. Each kind names the
property that it is meant to break; some break others along with it (a message delivered too late is out of
total order as well). Where in the run it strikes is drawn from a seed.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from antiphon.core.effects import Admitted, Deliver, Discard, Effect, Stable
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Input
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Property
from antiphon.core.time import Nanoseconds

NONE: Final = "none"
BREAKS: Final[dict[str, Property]] = {
    "forge": "integrity",
    "misaddress": "integrity",
    "duplicate": "duplicate",
    "drop": "atomicity",
    "overtake": "fifo",
    "hold": "causal",
    "swap": "total",
    "early-stable": "stability",
    "early-discard": "stability",
}
"""Each kind of sabotage and the property that it is sure to break."""
FORGER: Final = "nobody"
"""The sender of a forged message: no site of a simulation has this name."""


def check_sabotage(kind: str) -> None:
    if kind != NONE and kind not in BREAKS:
        raise UsageError(f"There is no sabotage '{kind}'.", hint=f"Choose from: none, {', '.join(BREAKS)}.")


class Saboteur:
    """A protocol object whose effects are tampered with once, after `patience` chances have passed."""

    def __init__(self, protocol: Protocol, kind: str, site: Site, members: Sequence[Site], random: Random):
        self._handle = protocol.handle
        self._site = site
        self._members = members
        self._patience = random.randint(2, 3 * len(members))
        self._held: Deliver | None = None
        self._passed = 0
        self._done = False
        tampers: dict[str, Callable[[Effect], list[Effect]]] = {
            "forge": self._forge,
            "misaddress": self._misaddress,
            "duplicate": self._duplicate,
            "drop": self._drop,
            "overtake": self._overtake,
            "hold": self._hold,
            "swap": self._swap,
            "early-stable": self._declare_early,
            "early-discard": self._discard_early,
        }
        check_sabotage(kind)
        self._tamper = tampers[kind]

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        effects = self._handle(now, event)
        if self._done:
            return effects
        return [outcome for effect in effects for outcome in self._outcomes(effect)]

    def _outcomes(self, effect: Effect) -> list[Effect]:
        """The effects that replace one effect, until the sabotage is done."""
        if self._done or (self._held is None and not self._ripe(effect)):
            return [effect]
        return self._tamper(effect)

    def _ripe(self, effect: Effect) -> bool:
        """Only deliveries and admissions are chances, and the first few are let pass."""
        if isinstance(effect, Deliver | Admitted):
            self._patience -= 1
        return self._patience < 0

    # Deliveries

    def _forge(self, effect: Effect) -> list[Effect]:
        if not isinstance(effect, Deliver):
            return [effect]
        self._done = True
        return [effect, Deliver(FORGER, 0, (b"forged",))]

    def _duplicate(self, effect: Effect) -> list[Effect]:
        if not isinstance(effect, Deliver):
            return [effect]
        self._done = True
        return [effect, effect]

    def _drop(self, effect: Effect) -> list[Effect]:
        if not isinstance(effect, Deliver):
            return [effect]
        self._done = True
        return []

    def _overtake(self, effect: Effect) -> list[Effect]:
        """Hold a delivery until the next one of the same sender has passed."""
        return self._reorder(effect, lambda held, later: held.sender == later.sender)

    def _hold(self, effect: Effect) -> list[Effect]:
        """Hold a delivery until every member has had time to react to it, and the reaction has passed."""
        return self._reorder(effect, lambda _held, _later: self._passed >= 4 * len(self._members))

    def _swap(self, effect: Effect) -> list[Effect]:
        """Deliver two neighbours of different senders the other way round."""
        if isinstance(effect, Deliver) and self._held is not None and self._held.sender == effect.sender:
            earlier, self._held = self._held, effect
            return [earlier]
        return self._reorder(effect, lambda _held, _later: True)

    def _reorder(self, effect: Effect, release: Callable[[Deliver, Deliver], bool]) -> list[Effect]:
        if not isinstance(effect, Deliver):
            return [effect]
        if self._held is None:
            self._held = effect
            return []
        self._passed += 1
        if not release(self._held, effect):
            return [effect]
        self._done = True
        return [effect, self._held]

    # Admissions and stability

    def _misaddress(self, effect: Effect) -> list[Effect]:
        """Claim that a message was not for one of the members that will deliver it."""
        if not isinstance(effect, Admitted):
            return [effect]
        self._done = True
        left_out = next(member for member in self._members if member != self._site)
        meant = frozenset(self._members) - {left_out}
        return [Admitted(effect.number, effect.count, effect.size, meant, effect.group)]

    def _declare_early(self, effect: Effect) -> list[Effect]:
        if not isinstance(effect, Admitted):
            return [effect]
        self._done = True
        return [Stable(self._site, effect.number, effect.count, effect.group), effect]

    def _discard_early(self, effect: Effect) -> list[Effect]:
        if not isinstance(effect, Admitted):
            return [effect]
        self._done = True
        return [Discard(self._site, effect.number, effect.count, effect.group), effect]
