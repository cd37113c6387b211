"""Processes that know only how many they are: whatever the network does, two groups never share a process."""

from random import Random

import pytest

from antiphon.core.effects import Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.inputs import Received, Start, TimerFired
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Pdu
from antiphon.protocols.quorum import Quorum, QuorumConfiguration
from antiphon.protocols.quorum.founding import Founding
from antiphon.protocols.quorum.pdus import Found

NAMES = "abcde"
EXPECTED = 3


class Five:
    """Five processes that expect three; three of them see one another at a time, and the other two."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        knobs = QuorumConfiguration(expected=EXPECTED)
        self.processes = {name: Quorum(name, (), knobs, Random(f"{seed}{name}")) for name in NAMES}
        self.under_way: list[tuple[Site, Site, Pdu]] = []
        self.founded: set[int] = set()
        self.now = 0
        self.cell = set(NAMES[:EXPECTED])
        for name in NAMES:
            self.give(name, Start(1))

    def give(self, name: Site, event: object) -> None:
        for effect in self.processes[name].handle(self.now, event):  # type: ignore[arg-type]
            if isinstance(effect, Send):
                self.under_way.append((name, effect.to, effect.pdu))
            elif isinstance(effect, Multicast):
                self.under_way += [(name, other, effect.pdu) for other in NAMES if other != name]
                self.founded |= {effect.pdu.group} if isinstance(effect.pdu, Found) else set()

    def step(self) -> None:
        self.now += 4 * MILLISECOND_NS
        choice = self.random.random()
        if choice < 0.01:
            self.cell = set(self.random.sample(NAMES, EXPECTED))
        elif choice < 0.2:
            self.give(self.random.choice(NAMES), TimerFired("greet"))
        elif self.under_way:
            place = self.random.randrange(len(self.under_way))
            sender, receiver, pdu = self.under_way.pop(place)
            if (sender in self.cell) == (receiver in self.cell):
                self.give(receiver, Received(sender, pdu))


def most_groups(seeds: int = 40) -> int:
    found = []
    for seed in range(seeds):
        five = Five(seed)
        for _ in range(3000):
            five.step()
        found.append(len(five.founded))
    return max(found)


def test_five_that_expect_three_never_found_two_groups() -> None:
    assert most_groups() == 1


def test_an_agreement_that_does_not_bind_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def agrees(self: Founding, processes: dict[Site, int]) -> bool:
        self._agreed_to = processes
        return len(processes) == EXPECTED

    monkeypatch.setattr(Founding, "_agrees_to", agrees)
    assert most_groups() > 1


def test_processes_that_see_too_many_found_no_group() -> None:
    five = Five(1)
    five.cell = set(NAMES)
    for _ in range(1000):
        five.give(five.random.choice(NAMES), TimerFired("greet"))
        while five.under_way:
            sender, receiver, pdu = five.under_way.pop()
            five.give(receiver, Received(sender, pdu))
    assert not five.founded
    assert "expects 3 members, and 5 are there" in five.processes["a"].obstacle
