"""A leader among the members of a group: a lock that is held for as long as its holder is there."""

from collections.abc import AsyncIterator
from typing import NamedTuple

from antiphon.core.errors import UsageError
from antiphon.replicated.objects.handle import Replica
from antiphon.replicated.objects.lock import PermitHandle, PermitMachine


class Leadership(NamedTuple):
    """A member that leads, and the term in which it does: a number that grows with every change."""

    member: str
    term: int


def _leadership(machine: PermitMachine) -> Leadership | None:
    holders = machine.holders()
    return Leadership(holders[0].member, holders[0].token) if holders else None


class Leader(PermitHandle):
    """An election: `async with leader as term:` leads for a block, and the next in line follows.

    A term is a fencing token.
    """

    def __init__(self, replica: Replica, name: str = "leader") -> None:
        super().__init__(replica, name, "leader")
        self._term: int | None = None

    async def campaign(self) -> int:
        """Wait until this member leads; its term."""
        if self._term is not None and self.leads:
            raise UsageError(f"This handle of {self.name} leads already.", "Resign first.")
        self._term = await self._permit("campaign")
        return self._term

    async def resign(self) -> bool:
        """Give up the lead; False if another member leads already."""
        term, self._term = self._term, None
        if term is None:
            return False
        done: bool = await self._recorded("resign", (term,), self._ask("release", term))
        return done

    @property
    def leads(self) -> bool:
        """Whether this handle leads, as far as this replica knows. A replica that reaches no majority does
        not know, so the answer is False."""
        term = self._term
        if term is None or self._replica.is_cut_off:
            return False
        return self._read(lambda machine: machine.is_held(term))

    async def deposed(self) -> None:
        """Wait until this handle has lost the lead, or until this replica reaches no majority."""
        if self._term is not None:
            await self._not_held(self._term, PermitMachine.is_held)

    async def current(self) -> Leadership | None:
        """The leader, at some moment during this call; None if there is none."""
        return await self._recorded("current", (), self._read_latest(_leadership))

    async def watch(self) -> AsyncIterator[Leadership | None]:
        """The leader now, and after every change."""
        last = self._read(_leadership)
        yield last
        while True:
            previous = last

            def changed(
                machine: PermitMachine, known: Leadership | None = previous
            ) -> list[Leadership | None] | None:
                found = _leadership(machine)
                return None if found == known else [found]

            (last,) = await self._until(changed)
            yield last

    async def __aenter__(self) -> int:
        return await self.campaign()

    async def __aexit__(self, *_: object) -> None:
        await self.resign()
