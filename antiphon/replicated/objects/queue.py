"""A queue of work: each item is taken by one member, and waits again if that member is gone before it
confirms."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from antiphon.core.values import Value, canonical, decoded
from antiphon.replicated.objects.base import ObjectMachine
from antiphon.replicated.objects.handle import Handle, Replica


class QueueMachine(ObjectMachine):
    """What waits, by number; what was taken, with its taker and its request; and the next number."""

    name = "queue"

    def __init__(self) -> None:
        self._waiting: dict[int, bytes] = {}
        self._taken: dict[int, tuple[str, str, bytes]] = {}
        self._next = 0

    def apply(self, operation: str, arguments: Sequence[Any], caller: str) -> Any:
        match operation, arguments:
            case "put", (item,):
                number, self._next = self._next, self._next + 1
                self._waiting[number] = canonical(item)
                return number
            case "take", (str(ticket),):
                return self._take(ticket, caller)
            case "cancel", (str(ticket),):
                self._return([number for number, each in self._taken.items() if each[:2] == (caller, ticket)])
                return None
            case "confirm", (int(number),):
                if number not in self._taken or self._taken[number][0] != caller:
                    return False
                del self._taken[number]
                return True
            case "give_back", (int(number),):
                if number not in self._taken or self._taken[number][0] != caller:
                    return False
                self._return([number])
                return True
        raise self.unknown(operation, arguments)

    def _take(self, ticket: str, caller: str) -> list[Any] | None:
        known = self.item_of(ticket)
        if known is not None or not self._waiting:
            return known
        number = next(iter(self._waiting))
        item = self._waiting.pop(number)
        self._taken[number] = (caller, ticket, item)
        return [number, decoded(item)]

    def _return(self, numbers: list[int]) -> None:
        if numbers:
            back = {number: self._taken.pop(number)[2] for number in numbers}
            self._waiting = dict(sorted({**self._waiting, **back}.items()))

    def departed(self, member: str) -> None:
        self._return([number for number, each in self._taken.items() if each[0] == member])

    def state(self) -> Any:
        taken = [[number, *each] for number, each in self._taken.items()]
        return [list(self._waiting.items()), taken, self._next]

    def load(self, state: Any) -> None:
        waiting, taken, self._next = state
        self._waiting = dict(waiting)
        self._taken = {number: (taker, ticket, item) for number, taker, ticket, item in taken}

    # What this replica does alone

    def item_of(self, ticket: str) -> list[Any] | None:
        """What a request has taken."""
        found = next((n for n, each in self._taken.items() if each[1] == ticket), None)
        return None if found is None else [found, decoded(self._taken[found][2])]

    def has_items(self) -> bool | None:
        return True if self._waiting else None

    def size(self) -> tuple[int, int]:
        """How many items wait, and how many are taken."""
        return len(self._waiting), len(self._taken)


class Item:
    """An item that this member has taken. Confirm it once the work is done."""

    def __init__(self, queue: "Queue", number: int, value: Any) -> None:
        self._queue = queue
        self.number = number
        self.value = value

    def __repr__(self) -> str:
        return f"Item({self.number}, {self.value!r})"

    async def confirm(self) -> bool:
        """The work is done; False if the item was given to another member meanwhile."""
        return await self._queue._confirm(self.number)

    async def give_back(self) -> bool:
        """The work is not done: the item waits again, in front."""
        return await self._queue._give_back(self.number)

    async def __aenter__(self) -> Any:
        return self.value

    async def __aexit__(self, kind: object, *_: object) -> None:
        await (self.confirm() if kind is None else self.give_back())


class Queue(Handle[QueueMachine]):
    """A replicated queue.

    `async for item in queue: async with item as value: …` confirms each item after its block, and gives it
    back if the block raises.
    """

    def __init__(self, replica: Replica, name: str = "queue") -> None:
        super().__init__(replica, name, "queue")

    async def put(self, value: Value) -> int:
        """Add an item at the end; its number."""
        number: int = await self._recorded("put", (value,), self._ask("put", value))
        return number

    async def take(self) -> Item:
        """Wait for an item, and take it."""
        while True:
            found = await self.try_take()
            if found is not None:
                return found
            await self._until(lambda machine: machine.has_items())

    async def try_take(self) -> Item | None:
        """Take the first item if there is any."""
        found = await self._recorded("take", (), self._take())
        return None if found is None else Item(self, *found)

    async def _take(self) -> Any:
        async with self._ticket() as ticket:
            return await self._ask_again("take", ticket)

    async def size(self) -> tuple[int, int]:
        """How many items wait, and how many are taken and not confirmed."""
        return await self._recorded("size", (), self._read_latest(lambda machine: machine.size()))

    async def __aiter__(self) -> AsyncIterator[Item]:
        while True:
            yield await self.take()

    async def _confirm(self, number: int) -> bool:
        done: bool = await self._recorded("confirm", (number,), self._ask("confirm", number))
        return done

    async def _give_back(self, number: int) -> bool:
        done: bool = await self._recorded("give_back", (number,), self._ask("give_back", number))
        return done
