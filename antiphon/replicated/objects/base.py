"""What the machines of all objects have in common."""

from collections.abc import Sequence
from typing import Any, ClassVar

from antiphon.core.errors import UsageError


class ObjectMachine:
    """One object of a group: deterministic, without clock, socket or randomness.

    `apply` raises UsageError for a command that makes no sense, and changes nothing then.
    """

    merges: ClassVar[bool] = False
    """Whether the states of two sides can be merged. If not, the object needs a quorum."""
    wants_ticks: bool = False
    """Whether time could change something."""
    name: ClassVar[str]
    """What the object is, for sentences."""

    def apply(self, operation: str, arguments: Sequence[Any], caller: str) -> Any:
        """Carry out an operation of the member `caller`."""
        raise NotImplementedError

    def departed(self, member: str) -> None:
        """A member is gone, and holds nothing any more."""

    def tick(self, time_ns: int) -> None:
        """The group's clock."""

    def state(self) -> Any:
        """The whole state as plain data."""
        raise NotImplementedError

    def load(self, state: Any) -> None:
        """Replace the whole state."""
        raise NotImplementedError

    @staticmethod
    def merged(mine: Any, theirs: Any) -> Any:  # noqa: ARG004
        """One state of two sides' states. Any order, and any repetition, of merges must give the same."""
        return mine

    def unknown(self, operation: str, arguments: Sequence[Any]) -> UsageError:
        return UsageError(f"A {self.name} has no operation {operation} with {len(arguments)} arguments.")
