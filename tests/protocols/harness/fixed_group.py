"""A group whose members never change, driven by hand: for the tests of SCO's rivals."""

from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

from antiphon.core.effects import Effect, Rejected
from antiphon.core.wire import Pdu
from tests.protocols.harness.staging import StagedGroup

Build = Callable[[str, tuple[str, ...]], Any]


class Group(StagedGroup[Any]):
    """A group of any protocol. `held` says of a PDU whether it stays under way, and then it is not lost."""

    def __init__(self, build: Build, size: int = 3) -> None:
        super().__init__("abcdefgh"[:size])
        self._build = build
        self.held: Callable[[str, str, Pdu], bool] = lambda _source, _target, _pdu: False
        self._kept: list[tuple[str, str, Pdu]] = []
        self.sent: Counter[str] = Counter()
        """Copies sent of each kind of PDU."""
        self.assemble()

    def build(self, name: str) -> Any:
        return self._build(name, self.names)

    def carry_out(self, name: str, effect: Effect) -> None:
        before = len(self.travelling)
        super().carry_out(name, effect)
        self.sent.update(type(pdu).__name__ for _, _, pdu in islice(self.travelling, before, None))

    def step(self) -> None:
        if self.held(*self.travelling[0]):
            self._kept.append(self.travelling.popleft())
        else:
            super().step()

    def settle(self) -> None:
        """Let everything arrive that may."""
        super().settle()
        self.travelling += self._kept
        self._kept.clear()

    def rejected(self, name: str) -> int:
        return sum(isinstance(effect, Rejected) for effect in self.effects[name])
