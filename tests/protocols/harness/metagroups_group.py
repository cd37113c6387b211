"""Sites of overlapping groups driven by hand, for the tests of meta-groups."""

from collections.abc import Mapping
from random import Random

from antiphon.check.checkers import check_trace
from antiphon.core.effects import (
    Absent,
    Admitted,
    Arrived,
    Deliver,
    Effect,
    Joined,
    Left,
    Present,
    Rejected,
    Stable,
)
from antiphon.core.inputs import Admit, JoinGroup, LeaveGroup, Start
from antiphon.protocols.metagroups import PROMISES, MetaGroups, MetaGroupsConfiguration
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Run
from tests.protocols.harness.staging import StagedGroup

KNOBS = MetaGroupsConfiguration(acknowledge_ns=0)


class Cluster(StagedGroup[MetaGroups]):
    """Sites of several groups. What they do is recorded as the simulator does it: `judge` audits it."""

    def __init__(
        self,
        groups: Mapping[str, str],
        knobs: MetaGroupsConfiguration = KNOBS,
        others: str = "",
        *,
        begun: bool = True,
    ) -> None:
        """`groups` names the sites of each group by one letter each."""
        super().__init__(sorted({*others, *"".join(groups.values())}))
        self.membership = {group: tuple(sites) for group, sites in groups.items()}
        self.knobs = knobs
        self.recorder = MemoryRecorder("r")
        self.steps = 0
        if begun:
            self.assemble()

    def build(self, name: str) -> MetaGroups:
        return MetaGroups(name, self.membership, self.knobs, Random(name), others=self.names)

    # What happens to sites

    def carry_out(self, name: str, effect: Effect) -> None:
        super().carry_out(name, effect)
        record = self.recorder.record
        match effect:
            case Admitted(number=number, count=count, group=group, destinations=destinations):
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
        self.steps += 1
        super().step()

    def crash(self, name: str) -> None:
        self.freeze(name)
        self.carry_out(name, Absent())

    def begin(self, name: str) -> None:
        """A site begins without memory and finds the others itself."""
        self.members[name] = self.build(name)
        self.incarnations[name] += 1
        self.give(name, Start(self.incarnations[name], self.admitted[name]))

    # What came of it

    def delivered(self, name: str) -> list[str]:
        """Sender, number and group of each message, such as a0A."""
        return [
            f"{effect.sender}{effect.number + offset}{effect.group}"
            for effect in self.effects[name]
            if isinstance(effect, Deliver)
            for offset in range(len(effect.bodies))
        ]

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

    def judge(self) -> None:
        """All promises hold in what was recorded."""
        run = Run(run="r", protocol="metagroups", promises=PROMISES)
        broken = check_trace(self.recorder.events(), run, PROMISES)
        assert not broken, broken[0].explanation
