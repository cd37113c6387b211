"""A group of sequencer members driven by hand, for the tests of the fixed sequencer."""

from collections import deque
from collections.abc import Iterable
from typing import Any

from antiphon.core.effects import (
    Absent,
    Admitted,
    Appeared,
    CancelTimer,
    Deliver,
    Effect,
    Multicast,
    Send,
    SetTimer,
    Vanished,
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
from antiphon.protocols.sequencer import Sequencer, SequencerConfiguration

KNOBS = SequencerConfiguration()
BOOT = 1_700_000_000_000
"""Live incarnations are milliseconds of a wall clock."""


class Group:
    """A group whose network is a queue: nothing travels until `settle`.

    Sites that are `cut` neither hear nor are heard, and those that are `deaf` to a kind of PDU miss it.
    """

    def __init__(self, size: int = 3, knobs: SequencerConfiguration = KNOBS) -> None:
        self.names = tuple("abcdefg"[:size])
        self.knobs = knobs
        self.now = 0
        self.members = {name: Sequencer(name, self.names, knobs) for name in self.names}
        self.effects: dict[str, list[Effect]] = {name: [] for name in self.names}
        self.timers: dict[tuple[str, str], int] = {}
        self.cut: set[str] = set()
        self.deaf: set[tuple[str, type[Pdu]]] = set()
        self.travelling: deque[tuple[str, str, Pdu]] = deque()
        self.admitted = dict.fromkeys(self.names, 0)
        self.incarnations = dict.fromkeys(self.names, 0)
        for name in self.names:
            self.give(name, Start())

    def give(self, name: str, event: Input) -> list[Effect]:
        effects = self.members[name].handle(self.now, event)
        self.effects[name] += effects
        for effect in effects:
            if isinstance(effect, Send):
                self.travelling.append((name, effect.to, effect.pdu))
            elif isinstance(effect, Multicast):
                self.travelling += [(name, to, effect.pdu) for to in effect.to or self.names if to != name]
            elif isinstance(effect, SetTimer):
                self.timers[name, effect.name] = self.now + effect.after_ns
            elif isinstance(effect, CancelTimer):
                self.timers.pop((name, effect.name), None)
            elif isinstance(effect, Admitted):
                self.admitted[name] += effect.count
        return effects

    def admit(self, name: str, *bodies: bytes) -> list[Effect]:
        return self.give(name, Admit(bodies or (b"x",)))

    def settle(self) -> None:
        while self.travelling:
            source, target, pdu = self.travelling.popleft()
            if (
                target in self.members
                and not self.cut & {source, target}
                and (target, type(pdu)) not in self.deaf
            ):
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

    def crash(self, name: str) -> None:
        self.cut.add(name)
        self.timers = {key: time for key, time in self.timers.items() if key[0] != name}
        self.effects[name].append(Absent())

    def restart(self, name: str) -> None:
        self.cut.discard(name)
        self.members[name] = Sequencer(name, self.names, self.knobs)
        self.incarnations[name] += 1
        self.give(name, Start(self.incarnations[name], self.admitted[name], returning=True))

    def depart(self, name: str) -> None:
        self.give(name, Departed())
        self.cut.add(name)
        self.timers = {key: time for key, time in self.timers.items() if key[0] != name}

    def come_back(self, name: str) -> None:
        self.cut.discard(name)
        self.give(name, Returned())

    def delivered(self, name: str) -> list[str]:
        return [
            f"{effect.sender}{effect.number + offset}"
            for effect in self.effects[name]
            if isinstance(effect, Deliver)
            for offset in range(len(effect.bodies))
        ]

    def kinds(self, name: str, *kinds: type) -> list[type]:
        return [type(effect) for effect in self.effects[name] if isinstance(effect, kinds)]


class OpenGroup(Group):
    """A group as live ones are: a member knows the sequencer's name and its own, and begins when it likes."""

    def __init__(self, knobs: SequencerConfiguration = KNOBS) -> None:
        super().__init__(0, knobs)

    def begin(
        self, name: str, *, incarnation: int | None = None, number: int | None = None, returning: bool = False
    ) -> None:
        """A new process: its incarnation is its wall clock unless told, its numbers go on unless told."""
        clock = BOOT + self.now // MILLISECOND_NS
        self.cut.discard(name)
        self.names = tuple(dict.fromkeys((*self.names, name)))
        self.members[name] = Sequencer(name, tuple(dict.fromkeys(("a", name))), self.knobs)
        self.effects.setdefault(name, [])
        self.admitted.setdefault(name, 0)
        self.incarnations[name] = clock if incarnation is None else incarnation
        first = self.admitted[name] if number is None else number
        self.give(name, Start(self.incarnations[name], first, returning))

    def leave(self, name: str) -> None:
        """A clean leave: what it says on going still travels."""
        self.give(name, Departed())
        self.settle()
        self.cut.add(name)
        self.timers = {key: time for key, time in self.timers.items() if key[0] != name}

    def presence(self, name: str) -> list[str]:
        """Who came (+) and went (-) in this member's eyes."""
        return [
            f"{'+' if isinstance(effect, Appeared) else '-'}{effect.site}"
            for effect in self.effects[name]
            if isinstance(effect, Appeared | Vanished)
        ]


def pdus(effects: Iterable[Effect], kind: type[Any]) -> list[Any]:
    return [
        effect.pdu
        for effect in effects
        if isinstance(effect, Send | Multicast) and isinstance(effect.pdu, kind)
    ]
