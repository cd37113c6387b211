"""A set of plain data."""

from collections.abc import Sequence
from typing import Any, ClassVar

from antiphon.core.values import Value, canonical, decoded
from antiphon.replicated.objects.base import ObjectMachine
from antiphon.replicated.objects.handle import Handle, Replica


class SetMachine(ObjectMachine):
    """The items in the order in which they were added, by their canonical form."""

    name = "set"

    def __init__(self) -> None:
        self._items: dict[bytes, None] = {}

    def apply(self, operation: str, arguments: Sequence[Any], caller: str) -> Any:  # noqa: ARG002
        match operation, arguments:
            case "add", (item,):
                key = canonical(item)
                is_new = key not in self._items
                self._items[key] = None
                return is_new
            case "remove", (item,):
                found = self.contains(item)
                self._items.pop(canonical(item), None)
                return found
            case "contains", (item,):
                return self.contains(item)
        raise self.unknown(operation, arguments)

    def state(self) -> Any:
        return list(self._items)

    merges: ClassVar[bool] = True

    @staticmethod
    def merged(mine: Any, theirs: Any) -> Any:
        """What either side has. An item that one side removed is back if the other has it."""
        return sorted({*mine, *theirs})

    def load(self, state: Any) -> None:
        self._items = dict.fromkeys(state)

    def contains(self, item: Value) -> bool:
        return canonical(item) in self._items

    def items(self) -> list[Any]:
        return [decoded(item) for item in self._items]


class Set(Handle[SetMachine]):
    """A replicated set."""

    def __init__(self, replica: Replica, name: str = "set") -> None:
        super().__init__(replica, name, "set")

    async def add(self, item: Value) -> bool:
        """Add an item; whether it is new."""
        is_new: bool = await self._recorded("add", (item,), self._ask("add", item))
        return is_new

    async def remove(self, item: Value) -> bool:
        """Remove an item; whether it was there."""
        found: bool = await self._recorded("remove", (item,), self._ask("remove", item))
        return found

    async def contains(self, item: Value) -> bool:
        """Whether an item is there, at some moment during this call."""
        work = self._read_latest(lambda machine: machine.contains(item))
        return await self._recorded("contains", (item,), work)

    async def items(self) -> list[Any]:
        """All items in the order in which they were added, at some moment during this call."""
        return await self._read_latest(lambda machine: machine.items())
