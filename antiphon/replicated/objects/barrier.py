"""A barrier: a number of parties wait for one another, again and again."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from antiphon.core.errors import UsageError
from antiphon.replicated.objects.base import ObjectMachine
from antiphon.replicated.objects.handle import Handle, Replica


class BarrierMachine(ObjectMachine):
    """Who has arrived in this round, the round, and the requests that ended the last round."""

    name = "barrier"

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._arrived: dict[str, str] = {}
        self._passed: list[str] = []
        self._round = 0

    def apply(self, operation: str, arguments: Sequence[Any], caller: str) -> Any:
        match operation, arguments:
            case "arrive", (str(ticket),):
                return self._arrive(ticket, caller)
            case "cancel", (str(ticket),):
                if self._arrived.get(ticket) == caller:
                    del self._arrived[ticket]
                return None
        raise self.unknown(operation, arguments)

    def _arrive(self, ticket: str, caller: str) -> int:
        """The round that this request belongs to."""
        if ticket in self._passed:
            return self._round - 1
        self._arrived[ticket] = caller
        belongs_to = self._round
        if len(self._arrived) >= self._parties:
            self._passed = list(self._arrived)
            self._arrived = {}
            self._round += 1
        return belongs_to

    def departed(self, member: str) -> None:
        self._arrived = {ticket: each for ticket, each in self._arrived.items() if each != member}

    def state(self) -> Any:
        return [self._arrived, self._passed, self._round]

    def load(self, state: Any) -> None:
        self._arrived, self._passed, self._round = state

    def outcome(self, ticket: str, belongs_to: int) -> bool | None:
        """True once the round is over, None while the request waits, False if it was dropped."""
        if self._round > belongs_to:
            return True
        return None if ticket in self._arrived else False


class Barrier(Handle[BarrierMachine]):
    """A barrier for a number of parties. A party that is gone while it waits does not count."""

    def __init__(self, replica: Replica, name: str = "barrier", *, parties: int) -> None:
        if parties < 1:
            raise UsageError("A barrier has at least one party.")
        super().__init__(replica, name, f"barrier({parties})")

    async def wait(self) -> int:
        """Wait until all parties have arrived; the round, from 0."""
        async with self._ticket() as ticket:
            while True:
                arriving = self._ask_again("arrive", ticket)
                belongs_to: int = await self._recorded("arrive", (ticket,), arriving)
                passing = self._until(partial(BarrierMachine.outcome, ticket=ticket, belongs_to=belongs_to))
                if await self._recorded("pass", (ticket, belongs_to), passing):
                    return belongs_to
