"""A counter that several members add to."""

from collections.abc import Sequence
from typing import Any

from antiphon.core.errors import UsageError
from antiphon.replicated.objects.base import ObjectMachine
from antiphon.replicated.objects.handle import Handle, Replica

LIMIT = 2**63
"""A sum stays below this, and at or above its negative: that is what every replica can store."""


class CounterMachine(ObjectMachine):
    """The sum."""

    name = "counter"

    def __init__(self) -> None:
        self.sum = 0

    def apply(self, operation: str, arguments: Sequence[Any], caller: str) -> Any:  # noqa: ARG002
        match operation, arguments:
            case "get", ():
                return self.sum
            case "add", (int(amount),):
                if not -LIMIT <= self.sum + amount < LIMIT:
                    raise UsageError("A counter's sum must fit into 64 bits.")
                self.sum += amount
                return self.sum
        raise self.unknown(operation, arguments)

    def state(self) -> Any:
        return self.sum

    def load(self, state: Any) -> None:
        self.sum = state


class Counter(Handle[CounterMachine]):
    """A replicated counter."""

    def __init__(self, replica: Replica, name: str = "counter") -> None:
        super().__init__(replica, name, "counter")

    async def add(self, amount: int = 1) -> int:
        """Add an amount, which may be negative; the sum."""
        found: int = await self._recorded("add", (amount,), self._ask("add", amount))
        return found

    async def get(self) -> int:
        """The sum, at some moment during this call."""
        return await self._recorded("get", (), self._read_latest(lambda machine: machine.sum))

    def peek(self) -> int:
        """The sum that this replica has: at once, and perhaps out of date."""
        return self._read(lambda machine: machine.sum)
