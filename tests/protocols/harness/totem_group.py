"""A group of Totem members driven by hand, for the tests of the single ring."""

from random import Random

from antiphon.core.effects import Effect
from antiphon.core.inputs import Admit
from antiphon.protocols.rivals.totem import Totem, TotemConfiguration
from tests.protocols.harness.staging import StagedGroup

KNOBS = TotemConfiguration()


class Group(StagedGroup[Totem]):
    """A ring: what a member says on going still travels if it says goodbye, and only then."""

    def __init__(self, size: int = 3, knobs: TotemConfiguration = KNOBS) -> None:
        super().__init__("abcdefg"[:size])
        self.knobs = knobs
        self.is_heard_out = knobs.says_goodbye
        self.assemble()

    def build(self, name: str) -> Totem:
        return Totem(name, self.names, self.knobs, Random(name))

    def admit(self, name: str, *bodies: bytes) -> list[Effect]:
        return self.give(name, Admit(bodies or (b"x",)))
