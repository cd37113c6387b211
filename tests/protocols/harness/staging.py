"""A group of members driven by hand: the stage on which tests of single protocols play.

Nothing here is random, and everything happens in the order in which members ask for it, so that the same
test gives the same run each time.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar
from typing import Protocol as Interface

from antiphon.core.effects import (
    Absent,
    Admitted,
    Appeared,
    CancelTimer,
    Deliver,
    Effect,
    Multicast,
    Present,
    Send,
    SetTimer,
    Stable,
    Vanished,
)
from antiphon.core.inputs import Admit, Departed, Input, Received, Returned, Start, TimerFired
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Pdu

MOST_STEPS = 100_000
"""PDUs that may travel at one moment: more means that the group never comes to rest."""


class Played(Interface):
    """A protocol that counts what it does."""

    def handle(self, now: int, event: Input, /) -> list[Effect]: ...

    def figures(self) -> dict[str, int]: ...


Member = TypeVar("Member", bound=Played)


class StagedGroup(Generic[Member]):
    """A group whose network is a queue: nothing travels until `settle`.

    `lost` says of a PDU, with its sender and receiver, whether it is lost. Members that are `cut` neither
    hear nor are heard. A harness says how a member is built and calls `assemble`; what it sees otherwise it
    says in `carry_out`, `reaches` and `arrive`.
    """

    is_heard_out = False
    """Whether what a member says on going still travels."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self.now = 0
        self.members: dict[str, Member] = {}
        self.effects: dict[str, list[Effect]] = {name: [] for name in self.names}
        self.timers: dict[tuple[str, str], int] = {}
        self.cut: set[str] = set()
        self.lost: Callable[[str, str, Pdu], bool] = lambda _source, _target, _pdu: False
        self.travelling: deque[tuple[str, str, Pdu]] = deque()
        self.admitted = dict.fromkeys(self.names, 0)
        self.incarnations = dict.fromkeys(self.names, 0)

    def build(self, name: str) -> Member:
        """A member as it is before anything has happened to it."""
        raise NotImplementedError

    def assemble(self) -> None:
        """All are there before the first of them begins."""
        self.members = {name: self.build(name) for name in self.names}
        for name in self.names:
            self.give(name, Start())

    # What happens to members

    def give(self, name: str, event: Input) -> list[Effect]:
        effects = self.members[name].handle(self.now, event)
        self.effects[name] += effects
        for effect in effects:
            self.carry_out(name, effect)
        return effects

    def carry_out(self, name: str, effect: Effect) -> None:
        if isinstance(effect, Send):
            self.travelling.append((name, effect.to, effect.pdu))
        elif isinstance(effect, Multicast):
            targets = self.members if effect.to is None else effect.to
            self.travelling += [(name, target, effect.pdu) for target in targets if target != name]
            if effect.left is not None:
                self.timers[name, effect.left] = self.now + 1
        elif isinstance(effect, SetTimer):
            self.timers[name, effect.name] = self.now + effect.after_ns
        elif isinstance(effect, CancelTimer):
            self.timers.pop((name, effect.name), None)
        elif isinstance(effect, Admitted):
            self.admitted[name] += effect.count

    def send(self, name: str, to: str | None = None, *bodies: bytes) -> list[Effect]:
        """Hand in one batch, to the members whose names stand in `to`; to all without."""
        return self.give(name, Admit(bodies or (b"x",), None if to is None else frozenset(to)))

    def step(self) -> None:
        source, target, pdu = self.travelling.popleft()
        if self.reaches(source, target, pdu):
            self.arrive(source, target, pdu)

    def reaches(self, source: str, target: str, pdu: Pdu) -> bool:
        return not self.cut & {source, target} and not self.lost(source, target, pdu)

    def arrive(self, source: str, target: str, pdu: Pdu) -> None:
        self.give(target, Received(source, pdu))

    def settle(self) -> None:
        for _ in range(MOST_STEPS):
            if not self.travelling:
                return
            self.step()
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

    def freeze(self, name: str) -> None:
        """The member does nothing any more, and does not know it."""
        self.cut.add(name)
        self.timers = {key: time for key, time in self.timers.items() if key[0] != name}

    def crash(self, name: str) -> None:
        self.freeze(name)
        self.effects[name].append(Absent())

    def restart(self, name: str) -> None:
        self.cut.discard(name)
        self.incarnations[name] += 1
        self.members[name] = self.build(name)
        self.give(name, Start(self.incarnations[name], self.admitted[name], returning=True))

    def depart(self, name: str) -> None:
        self.give(name, Departed())
        if self.is_heard_out:
            self.settle()
        self.freeze(name)

    def come_back(self, name: str) -> None:
        self.cut.discard(name)
        self.give(name, Returned())

    # What came of it

    def delivered(self, name: str) -> list[str]:
        return [
            f"{effect.sender}{effect.number + offset}"
            for effect in self.effects[name]
            if isinstance(effect, Deliver)
            for offset in range(len(effect.bodies))
        ]

    def stable(self, name: str) -> list[str]:
        return [
            f"{effect.sender}{effect.number + offset}"
            for effect in self.effects[name]
            if isinstance(effect, Stable)
            for offset in range(effect.count)
        ]

    def spells(self, name: str) -> str:
        """What a member says of its own presence: - and + in turn."""
        signs = {Absent: "-", Present: "+"}
        return "".join(signs.get(type(effect), "") for effect in self.effects[name])

    def presence(self, name: str) -> list[str]:
        """Who came (+) and went (-) in this member's eyes."""
        return [
            f"{'+' if isinstance(effect, Appeared) else '-'}{effect.site}"
            for effect in self.effects[name]
            if isinstance(effect, Appeared | Vanished)
        ]

    def figure(self, name: str, what: str) -> int:
        return self.members[name].figures()[what]


def pdus(effects: Iterable[Effect], kind: type[Any]) -> list[Any]:
    return [
        effect.pdu
        for effect in effects
        if isinstance(effect, Send | Multicast) and isinstance(effect.pdu, kind)
    ]
