"""A group of sequencer members driven by hand, for the tests of the fixed sequencer."""

from antiphon.core.effects import Effect
from antiphon.core.inputs import Admit, Departed, Start
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Pdu
from antiphon.protocols.sequencer import Sequencer, SequencerConfiguration
from tests.protocols.harness.staging import StagedGroup

KNOBS = SequencerConfiguration()
BOOT = 1_700_000_000_000
"""Live incarnations are milliseconds of a wall clock."""


class Group(StagedGroup[Sequencer]):
    """A group of whose members those that are `deaf` to a kind of PDU miss it."""

    def __init__(self, size: int = 3, knobs: SequencerConfiguration = KNOBS) -> None:
        super().__init__("abcdefg"[:size])
        self.knobs = knobs
        self.deaf: set[tuple[str, type[Pdu]]] = set()
        self.assemble()

    def build(self, name: str) -> Sequencer:
        return Sequencer(name, self.names, self.knobs)

    def reaches(self, source: str, target: str, pdu: Pdu) -> bool:
        is_heard = target in self.members and (target, type(pdu)) not in self.deaf
        return is_heard and super().reaches(source, target, pdu)

    def admit(self, name: str, *bodies: bytes) -> list[Effect]:
        return self.give(name, Admit(bodies or (b"x",)))

    def kinds(self, name: str, *kinds: type) -> list[type]:
        return [type(effect) for effect in self.effects[name] if isinstance(effect, kinds)]


class OpenGroup(Group):
    """A group as live ones are: a member knows the sequencer's name and its own, and begins when it likes."""

    def __init__(self, knobs: SequencerConfiguration = KNOBS) -> None:
        super().__init__(0, knobs)

    def build(self, name: str) -> Sequencer:
        return Sequencer(name, tuple(dict.fromkeys(("a", name))), self.knobs)

    def begin(
        self, name: str, *, incarnation: int | None = None, number: int | None = None, returning: bool = False
    ) -> None:
        """A new process: by default its incarnation is its wall clock, and its numbers go on."""
        clock = BOOT + self.now // MILLISECOND_NS
        self.cut.discard(name)
        self.names = tuple(dict.fromkeys((*self.names, name)))
        self.members[name] = self.build(name)
        self.effects.setdefault(name, [])
        self.admitted.setdefault(name, 0)
        self.incarnations[name] = clock if incarnation is None else incarnation
        first = self.admitted[name] if number is None else number
        self.give(name, Start(self.incarnations[name], first, returning))

    def leave(self, name: str) -> None:
        """A clean leave: what it says on going still travels."""
        self.give(name, Departed())
        self.settle()
        self.freeze(name)
