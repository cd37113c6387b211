"""Sites of overlapping groups driven by hand, for the tests of meta-groups."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

from antiphon.check.checkers import check_trace
from antiphon.core.effects import (
    Absent,
    Admitted,
    Arrived,
    CancelTimer,
    Deliver,
    Effect,
    Joined,
    Left,
    Multicast,
    Present,
    Rejected,
    Send,
    SetTimer,
    Stable,
)
from antiphon.core.inputs import (
    Admit,
    Departed,
    Input,
    JoinGroup,
    LeaveGroup,
    Received,
    Returned,
    Start,
    TimerFired,
)
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups import PROMISES, MetaGroups, MetaGroupsConfiguration
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Run

KNOBS = MetaGroupsConfiguration(acknowledge_ns=0)
MOST_STEPS = 100_000
"""PDUs that may travel at one moment: more means that sites answer one another for ever."""


class Cluster:
    """Sites whose network is a queue: nothing travels until `settle`.

    `lost` says of a PDU, with its sender and receiver, whether it is lost. Sites that are `cut` neither hear
    nor are heard. What sites do is recorded as the simulator does it, so that `judge` can audit it.
    """

    def __init__(
        self,
        groups: Mapping[str, str],
        knobs: MetaGroupsConfiguration = KNOBS,
        others: str = "",
        *,
        begun: bool = True,
    ) -> None:
        """`groups` names the sites of each group by one letter each."""
        self.membership = {group: tuple(sites) for group, sites in groups.items()}
        self.names = sorted({*others, *"".join(groups.values())})
        self.knobs = knobs
        self.now = 0
        self.recorder = MemoryRecorder("r")
        self.effects: dict[str, list[Effect]] = {name: [] for name in self.names}
        self.timers: dict[tuple[str, str], int] = {}
        self.cut: set[str] = set()
        self.lost: Callable[[str, str, Pdu], bool] = lambda _source, _target, _pdu: False
        self.travelling: deque[tuple[str, str, Pdu]] = deque()
        self.steps = 0
        self.admitted = dict.fromkeys(self.names, 0)
        self.incarnations = dict.fromkeys(self.names, 0)
        self.sites: dict[str, MetaGroups] = {}
        if begun:
            for name in self.names:
                self.sites[name] = self._build(name)
                self.give(name, Start())

    def _build(self, name: str) -> MetaGroups:
        return MetaGroups(name, self.membership, self.knobs, Random(name), others=self.names)

    # What happens to sites

    def give(self, name: str, event: Input) -> list[Effect]:
        effects = self.sites[name].handle(self.now, event)
        self.effects[name] += effects
        for effect in effects:
            self._carry_out(name, effect)
        return effects

    def _carry_out(self, name: str, effect: Effect) -> None:
        record = self.recorder.record
        match effect:
            case Send(to=to, pdu=pdu):
                self.travelling.append((name, to, pdu))
            case Multicast(pdu=pdu, to=to):
                targets = [other for other in self.sites if other != name] if to is None else to
                self.travelling += [(name, target, pdu) for target in targets]
            case SetTimer(name=timer, after_ns=after_ns):
                self.timers[name, timer] = self.now + after_ns
            case CancelTimer(name=timer):
                self.timers.pop((name, timer), None)
            case Admitted(number=number, count=count, group=group, destinations=destinations):
                self.admitted[name] += count
                record(name, "send", self.now, name, number, count, group, sorted(destinations or ()), 1)
            case Deliver(sender=sender, number=number, bodies=bodies, group=group):
                record(name, "deliver", self.now, sender, number, len(bodies), group)
            case Arrived(sender=sender, number=number, count=count, group=group):
                record(name, "receive", self.now, sender, number, count, group)
            case Stable(sender=sender, number=number, count=count, group=group):
                record(name, "stable", self.now, sender, number, count, group)
            case Absent():
                record(name, "absent", self.now)
            case Present():
                record(name, "present", self.now)

    def admit(self, name: str, group: str, *bodies: bytes) -> list[Effect]:
        return self.give(name, Admit(bodies or (b"x",), group=group))

    def join(self, name: str, group: str) -> list[Effect]:
        return self.give(name, JoinGroup(group))

    def leave(self, name: str, group: str) -> list[Effect]:
        return self.give(name, LeaveGroup(group))

    def step(self) -> None:
        source, target, pdu = self.travelling.popleft()
        self.steps += 1
        if not self.cut & {source, target} and not self.lost(source, target, pdu):
            self.give(target, Received(source, pdu))

    def settle(self) -> None:
        for _ in range(MOST_STEPS):
            if not self.travelling:
                return
            self.step()
        raise AssertionError("the sites do not come to rest")

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
        """The site does nothing any more, and does not know it."""
        self.cut.add(name)
        self.timers = {key: time for key, time in self.timers.items() if key[0] != name}

    def crash(self, name: str) -> None:
        self.freeze(name)
        self._carry_out(name, Absent())

    def restart(self, name: str) -> None:
        self.begin(name, returning=True)

    def begin(self, name: str, *, returning: bool = False) -> None:
        """A site begins without memory and finds the others itself."""
        self.cut.discard(name)
        self.sites[name] = self._build(name)
        self.incarnations[name] += 1
        self.give(name, Start(self.incarnations[name], self.admitted[name], returning=returning))

    def depart(self, name: str) -> None:
        self.give(name, Departed())
        self.freeze(name)

    def come_back(self, name: str) -> None:
        self.cut.discard(name)
        self.give(name, Returned())

    # What came of it

    def delivered(self, name: str) -> list[str]:
        """Sender, number and group of each message, such as a0A."""
        return [
            f"{effect.sender}{effect.number + offset}{effect.group}"
            for effect in self.effects[name]
            if isinstance(effect, Deliver)
            for offset in range(len(effect.bodies))
        ]

    def spells(self, name: str) -> str:
        """What a site says of its own presence: - and + in turn."""
        signs = {Absent: "-", Present: "+"}
        return "".join(signs.get(type(effect), "") for effect in self.effects[name])

    def changes(self, name: str) -> list[str]:
        """Deliveries, joins (+A) and leaves (-A) of a site, in order."""
        found = []
        for effect in self.effects[name]:
            if isinstance(effect, Joined | Left):
                found.append(f"{'+' if isinstance(effect, Joined) else '-'}{effect.group}")
            elif isinstance(effect, Deliver):
                found.append(f"{effect.sender}{effect.number}")
        return found

    def refused(self, name: str) -> int:
        return sum(isinstance(effect, Rejected) for effect in self.effects[name])

    def figure(self, name: str, what: str) -> int:
        return self.sites[name].figures()[what]

    def judge(self) -> None:
        """All promises hold in what was recorded."""
        run = Run(run="r", protocol="metagroups", promises=PROMISES)
        broken = check_trace(self.recorder.events(), run, PROMISES)
        assert not broken, broken[0].explanation


def pdus(effects: Iterable[Effect], kind: type[Any]) -> list[Any]:
    return [
        effect.pdu
        for effect in effects
        if isinstance(effect, Send | Multicast) and isinstance(effect.pdu, kind)
    ]
