"""Locks and semaphores with fencing tokens.

A permit is held by one request of one member, and has a token: a number that grows with every permit that is
given. A resource that keeps the greatest token it has seen, and refuses smaller ones, is safe from a holder
that was believed to be gone and is not. Permits of a member that is gone are given to those that wait, in the
order in which they asked.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from antiphon.core.errors import AntiphonError, UsageError
from antiphon.replicated.objects.base import ObjectMachine
from antiphon.replicated.objects.handle import Handle, Replica


class LockLostError(AntiphonError):
    """A lock was taken away while it was held: the group believed that the holder is gone."""


class Permit(NamedTuple):
    """A permit that is held."""

    member: str
    ticket: str
    token: int


class PermitMachine(ObjectMachine):
    """Who holds permits, who waits, and the greatest token."""

    name = "lock"

    def __init__(self, permits: int) -> None:
        self._permits = permits
        self._held: dict[str, Permit] = {}
        self._waiting: dict[str, str] = {}
        self._greatest = 0

    def apply(self, operation: str, arguments: Sequence[Any], caller: str) -> Any:
        match operation, arguments:
            case "acquire", (str(ticket), bool(waits)):
                return self._acquire(ticket, caller, waits)
            case "release", (int(token),):
                return self._release(token, caller)
            case "cancel", (str(ticket),):
                self._cancel(ticket, caller)
                return None
        raise self.unknown(operation, arguments)

    def _acquire(self, ticket: str, caller: str, waits: bool) -> int | None:
        known = self._held.get(ticket)
        if known is not None:
            return known.token
        if ticket not in self._waiting and (waits or len(self._held) < self._permits):
            self._waiting[ticket] = caller
        self._grant()
        held = self._held.get(ticket)
        return None if held is None else held.token

    def _grant(self) -> None:
        while self._waiting and len(self._held) < self._permits:
            ticket = next(iter(self._waiting))
            self._greatest += 1
            self._held[ticket] = Permit(self._waiting.pop(ticket), ticket, self._greatest)

    def _release(self, token: int, caller: str) -> bool:
        found = next((p for p in self._held.values() if (p.token, p.member) == (token, caller)), None)
        if found is None:
            return False
        del self._held[found.ticket]
        self._grant()
        return True

    def _cancel(self, ticket: str, caller: str) -> None:
        if self._waiting.get(ticket) == caller:
            del self._waiting[ticket]
        held = self._held.get(ticket)
        if held is not None and held.member == caller:
            del self._held[ticket]
            self._grant()

    def departed(self, member: str) -> None:
        self._waiting = {ticket: each for ticket, each in self._waiting.items() if each != member}
        self._held = {ticket: each for ticket, each in self._held.items() if each.member != member}
        self._grant()

    def state(self) -> Any:
        return [[list(permit) for permit in self._held.values()], self._waiting, self._greatest]

    def load(self, state: Any) -> None:
        held, self._waiting, self._greatest = state
        self._held = {permit.ticket: permit for permit in (Permit(*row) for row in held)}

    # What this replica does alone

    def token_of(self, ticket: str) -> int | None:
        """The token of a request; None while it waits, and 0 if it is not known."""
        held = self._held.get(ticket)
        if held is not None:
            return held.token
        return None if ticket in self._waiting else 0

    def is_held(self, token: int) -> bool:
        return any(permit.token == token for permit in self._held.values())

    def holders(self) -> list[Permit]:
        return list(self._held.values())


class RequestDroppedError(Exception):
    """The group believed that this member was gone, and dropped its request."""


class PermitHandle(Handle[PermitMachine]):
    """An object of which a member holds a permit."""

    async def _permit(self, operation: str) -> int:
        """Wait for a permit; its token. Each request is a call of its own in the record: one that was dropped
        may have held a permit meanwhile."""
        async with self._ticket() as ticket:
            while True:
                with suppress(RequestDroppedError):
                    return await self._recorded(operation, (), self._request(ticket))

    async def _request(self, ticket: str) -> int:
        token: int | None = await self._ask_again("acquire", ticket, True)
        if token is None:
            token = await self._until(lambda machine: machine.token_of(ticket))
        if not token:
            raise RequestDroppedError
        return token


class Semaphore(PermitHandle):
    """A number of permits that the members of a group share."""

    def __init__(self, replica: Replica, name: str = "semaphore", *, permits: int) -> None:
        if permits < 1:
            raise UsageError("A semaphore has at least one permit.")
        super().__init__(replica, name, f"semaphore({permits})")
        self._prepare()

    def _prepare(self) -> None:
        self._entered: list[int] = []

    async def acquire(self, *, timeout: float | None = None) -> int:
        """Wait for a permit; its token. TimeoutError if that takes too long, and nothing is held then."""
        async with asyncio.timeout(timeout):
            return await self._permit("acquire")

    async def try_acquire(self) -> int | None:
        """The token of a permit if one is free now, else None."""
        return await self._recorded("try_acquire", (), self._try_acquire())

    async def _try_acquire(self) -> int | None:
        async with self._ticket() as ticket:
            token: int | None = await self._ask_again("acquire", ticket, False)
            return token

    async def release(self, token: int) -> bool:
        """Give a permit back; False if it was lost before."""
        done: bool = await self._recorded("release", (token,), self._ask("release", token))
        return done

    def holds(self, token: int) -> bool:
        """Whether the permit with this token is held, as far as this replica knows. A replica that reaches no
        majority does not know, so the answer is False."""
        return not self._replica.is_cut_off and self._read(lambda machine: machine.is_held(token))

    async def lost(self, token: int) -> None:
        """Wait until the permit with this token is not held any more, or until this replica reaches no
        majority: then it may be."""
        await self._not_held(token, PermitMachine.is_held)

    async def __aenter__(self) -> int:
        token = await self.acquire()
        self._entered.append(token)
        return token

    async def __aexit__(self, kind: object, *_: object) -> None:
        token = self._entered.pop()
        if not await self.release(token) and kind is None:
            raise LockLostError(
                f"The {self.kind} {self.name} was lost while it was held: the group believed that this "
                "member was gone.",
                "Let the resource refuse tokens that are smaller than the greatest it has seen.",
            )


class Lock(Semaphore):
    """A lock that the members of a group share.

    `async with lock as token:` holds it for a block. The token is for the resource that it guards.
    """

    def __init__(self, replica: Replica, name: str = "lock") -> None:
        Handle.__init__(self, replica, name, "lock")
        self._prepare()
