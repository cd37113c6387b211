"""A group of FIFO members driven by hand, for the tests of reliable multicast."""

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from antiphon.core.effects import (
    Absent,
    Admitted,
    CancelTimer,
    Deliver,
    Effect,
    Multicast,
    Send,
    SetTimer,
)
from antiphon.core.inputs import (
    Admit,
    Departed,
    Input,
    Received,
    Returned,
    Start,
    TimerFired,
)
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Pdu
from antiphon.protocols.fifo import Fifo, FifoConfiguration

KNOBS = FifoConfiguration()
Drop = Callable[[str, str, Pdu], bool]


class Group:
    """A group whose network is a queue: nothing travels until `settle`, and `cut` sites hear nothing.

    Members begin together, unless `apart`: then none knows of another, as in a live group.
    """

    def __init__(self, size: int = 3, knobs: FifoConfiguration = KNOBS, *, apart: bool = False) -> None:
        self.names = tuple("abcdefgh"[:size])
        self.knobs = knobs
        self.now = 0
        self.effects: dict[str, list[Effect]] = {name: [] for name in self.names}
        self.sent: list[tuple[str, str, Pdu]] = []
        self.timers: dict[tuple[str, str], int] = {}
        self.cut: set[str] = set()
        self.drop: Drop = lambda _source, _target, _pdu: False
        self.travelling: deque[tuple[str, str, Pdu]] = deque()
        self.admitted = dict.fromkeys(self.names, 0)
        self.incarnations = dict.fromkeys(self.names, 0)
        self.members: dict[str, Fifo] = {}
        self.apart = apart
        for name in self.names:
            self.members[name] = self.build(name)
        if not apart:
            for name in self.names:
                self.give(name, Start())

    def build(self, name: str) -> Fifo:
        return Fifo(name, (name,) if self.apart else self.names, self.knobs, Random(name))

    def give(self, name: str, event: Input) -> list[Effect]:
        effects = self.members[name].handle(self.now, event)
        self.effects[name] += effects
        for effect in effects:
            if isinstance(effect, Send):
                self.travel(name, (effect.to,), effect.pdu, effect.to)
            elif isinstance(effect, Multicast):
                self.travel(name, effect.to or self.names, effect.pdu, "*")
            elif isinstance(effect, SetTimer):
                self.timers[name, effect.name] = self.now + effect.after_ns
            elif isinstance(effect, CancelTimer):
                self.timers.pop((name, effect.name), None)
            elif isinstance(effect, Admitted):
                self.admitted[name] += effect.count
        return effects

    def travel(self, source: str, targets: Iterable[str], pdu: Pdu, to: str) -> None:
        self.sent.append((source, to, pdu))
        self.travelling += [(source, target, pdu) for target in targets if target != source]

    def admit(self, name: str, *bodies: bytes) -> list[Effect]:
        return self.give(name, Admit(bodies or (b"x",)))

    def settle(self) -> None:
        while self.travelling:
            source, target, pdu = self.travelling.popleft()
            if not self.cut & {source, target} and not self.drop(source, target, pdu):
                self.give(target, Received(source, pdu))

    def pass_time(self, span_ms: float) -> None:
        """Fire every timer that runs out, in order, letting the network settle after each."""
        self.settle()
        end = self.now + round(span_ms * MILLISECOND_NS)
        while True:
            due = [(time, key) for key, time in self.timers.items() if time <= end]
            if not due:
                break
            time, key = min(due)
            self.now = max(self.now, time)
            del self.timers[key]
            self.give(key[0], TimerFired(key[1]))
            self.settle()
        self.now = end

    def start(self, name: str, *, returning: bool = False) -> None:
        """Begin, or begin anew, as a live member does."""
        self.cut.discard(name)
        self.members[name] = self.build(name)
        self.incarnations[name] += 1
        self.give(name, Start(self.incarnations[name], self.admitted[name], returning))

    def crash(self, name: str) -> None:
        self.cut.add(name)
        self.stop_timers(name)
        self.effects[name].append(Absent())

    def restart(self, name: str) -> None:
        self.start(name, returning=True)

    def depart(self, name: str) -> None:
        self.give(name, Departed())
        self.settle()
        self.cut.add(name)
        self.stop_timers(name)

    def come_back(self, name: str) -> None:
        self.cut.discard(name)
        self.give(name, Returned())

    def stop_timers(self, name: str) -> None:
        self.timers = {key: time for key, time in self.timers.items() if key[0] != name}

    def delivered(self, name: str, sender: str | None = None) -> list[str]:
        return [
            f"{effect.sender}{effect.number + offset}"
            for effect in self.effects[name]
            if isinstance(effect, Deliver) and sender in (None, effect.sender)
            for offset in range(len(effect.bodies))
        ]

    def of(self, name: str, *kinds: type[Any]) -> list[Any]:
        return [effect for effect in self.effects[name] if isinstance(effect, kinds)]

    def said(self, *kinds: type[Any]) -> list[tuple[str, str, Any]]:
        """The PDUs of these kinds, each with its sender and its receiver, '*' being all."""
        return [(source, to, pdu) for source, to, pdu in self.sent if isinstance(pdu, kinds)]
