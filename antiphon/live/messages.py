"""What an application gets: messages, batches of them, and news of who is there."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Literal

import msgspec

from antiphon.core.ids import MessageId, Site
from antiphon.core.packing import Packed

PresenceKind = Literal["appeared", "vanished", "missed", "history", "disagreed", "unavailable"]

StableWaiter = Callable[[Site, int], Awaitable[None]]


class Message:
    """One message: who sent it, its count among that sender's messages, and its body.

    A message longer than about 60,000 bytes travels in pieces that count one each; its own number is then
    that of its last piece.
    """

    __slots__ = ("_stable", "body", "number", "sender")

    def __init__(self, sender: Site, number: int, body: bytes, stable: StableWaiter) -> None:
        self.sender: Final = sender
        self.number: Final = number
        self.body: Final = body
        self._stable = stable

    @property
    def id(self) -> MessageId:
        return MessageId(self.sender, self.number)

    async def stable(self) -> None:
        """Wait until every member that counts is known to hold this message."""
        await self._stable(self.sender, self.number)

    def __repr__(self) -> str:
        return f"Message({self.sender}:{self.number}, {len(self.body)} bytes)"


class Batch:
    """Consecutive messages of one sender, as they travelled. Iterating gives messages; `bodies` is quick."""

    __slots__ = ("_stable", "bodies", "number", "sender", "size")

    def __init__(self, sender: Site, number: int, bodies: Packed, stable: StableWaiter) -> None:
        self.sender: Final = sender
        self.number: Final = number
        self.bodies: Final = bodies
        self.size: Final = bodies.size
        self._stable = stable

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[Message]:
        sender, stable = self.sender, self._stable
        for number, body in enumerate(self.bodies, self.number):
            yield Message(sender, number, body, stable)

    async def stable(self) -> None:
        """Wait until every member that counts is known to hold all of these."""
        await self._stable(self.sender, self.number + len(self.bodies) - 1)

    def __repr__(self) -> str:
        return f"Batch({self.sender}:{self.number}, {len(self.bodies)} messages, {self.size} bytes)"


class Presence(msgspec.Struct, frozen=True):
    """A member has appeared or vanished; or this one has missed messages while it was away.

    `history` tells that the history asked for is over, or that it cannot be kept any more. `disagreed` tells
    that another member's order is not ours, `unavailable` that a message of the order is not delivered here.
    """

    kind: PresenceKind
    site: Site
    reason: str = ""
