"""A group whose members never change, driven by hand: for the tests of SCO's rivals."""

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from antiphon.core.effects import (
    CancelTimer,
    Deliver,
    Effect,
    Multicast,
    Rejected,
    Send,
    SetTimer,
    Stable,
)
from antiphon.core.inputs import Admit, Departed, Input, Received, Returned, Start, TimerFired
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Pdu

Build = Callable[[str, tuple[str, ...]], Any]
MOST_STEPS = 100_000
"""PDUs that may travel at one moment: more means that the group never comes to rest."""


class Group:
    """A group whose network is a queue: nothing travels until `settle`.

    `lost` says of a PDU, with its sender and receiver, whether it is lost; `held` whether it stays under way.
    Members that are `away` neither hear nor are heard.
    """

    def __init__(self, build: Build, size: int = 3) -> None:
        self.names = tuple("abcdefgh"[:size])
        self.now = 0
        self.effects: dict[str, list[Effect]] = {name: [] for name in self.names}
        self.timers: dict[tuple[str, str], int] = {}
        self.away: set[str] = set()
        self.lost: Callable[[str, str, Pdu], bool] = lambda _source, _target, _pdu: False
        self.held: Callable[[str, str, Pdu], bool] = lambda _source, _target, _pdu: False
        self.travelling: deque[tuple[str, str, Pdu]] = deque()
        self.sent: Counter[str] = Counter()
        """Copies sent of each kind of PDU."""
        self.members = {name: build(name, self.names) for name in self.names}
        for name in self.names:
            self.give(name, Start())

    def give(self, name: str, event: Input) -> list[Effect]:
        effects: list[Effect] = self.members[name].handle(self.now, event)
        self.effects[name] += effects
        for effect in effects:
            if isinstance(effect, Send):
                self._transmit(name, (effect.to,), effect.pdu)
            elif isinstance(effect, Multicast):
                self._transmit(name, self.names if effect.to is None else effect.to, effect.pdu)
            elif isinstance(effect, SetTimer):
                self.timers[name, effect.name] = self.now + effect.after_ns
            elif isinstance(effect, CancelTimer):
                self.timers.pop((name, effect.name), None)
        return effects

    def _transmit(self, source: str, targets: tuple[str, ...], pdu: Pdu) -> None:
        for target in targets:
            if target != source:
                self.sent[type(pdu).__name__] += 1
                self.travelling.append((source, target, pdu))

    def send(self, name: str, to: str | None = None, *bodies: bytes) -> list[Effect]:
        """Hand in one batch, to members named by their letters or to all."""
        destinations = None if to is None else frozenset(to)
        return self.give(name, Admit(bodies or (b"x",), destinations))

    def settle(self) -> None:
        """Let everything arrive that may."""
        kept: list[tuple[str, str, Pdu]] = []
        for _ in range(MOST_STEPS):
            if not self.travelling:
                self.travelling += kept
                return
            source, target, pdu = self.travelling.popleft()
            if self.held(source, target, pdu):
                kept.append((source, target, pdu))
            elif not self.away & {source, target} and not self.lost(source, target, pdu):
                self.give(target, Received(source, pdu))
        raise AssertionError("the group does not come to rest")

    def pass_time(self, span_ms: float) -> None:
        """Fire every timer that runs out, in order, letting the network settle after each."""
        self.settle()
        end = self.now + round(span_ms * MILLISECOND_NS)
        while due := [(time, key) for key, time in self.timers.items() if time <= end]:
            time, key = min(due)
            self.now = max(self.now, time)
            del self.timers[key]
            self.give(key[0], TimerFired(key[1]))
            self.settle()
        self.now = end

    def depart(self, name: str) -> None:
        self.give(name, Departed())
        self.away.add(name)
        self.timers = {key: time for key, time in self.timers.items() if key[0] != name}

    def come_back(self, name: str) -> None:
        self.away.discard(name)
        self.give(name, Returned())

    def delivered(self, name: str) -> list[str]:
        return self._told(name, Deliver)

    def stable(self, name: str) -> list[str]:
        return self._told(name, Stable)

    def rejected(self, name: str) -> int:
        return sum(isinstance(effect, Rejected) for effect in self.effects[name])

    def _told(self, name: str, kind: type[Any]) -> list[str]:
        return [
            f"{effect.sender}{effect.number + offset}"
            for effect in self.effects[name]
            if isinstance(effect, kind)
            for offset in range(effect.count if isinstance(effect, Stable) else len(effect.bodies))
        ]

    def figure(self, name: str, what: str) -> int:
        return int(self.members[name].figures()[what])
