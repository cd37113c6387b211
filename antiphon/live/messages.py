"""What an application gets: messages, batches of them, and news of who is there."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from antiphon.core.ids import Group, Site
from antiphon.core.packing import Destinations

PresenceKind = Literal[
    "appeared", "vanished", "restarted", "missed", "history", "disagreed", "unavailable", "refused"
]

StableWaiter = Callable[[Site, int], Awaitable[None]]


class UniqueId(NamedTuple):
    """What no two messages of a group share. Of one sender, the greater was sent later.

    A sender with a trace goes on counting when it is started again; one without begins at 0 again, and only
    its incarnation tells its messages from earlier ones.
    """

    sender: Site
    incarnation: int
    number: int

    def __str__(self) -> str:
        return f"{self.sender}:{self.incarnation}:{self.number}"


class Message:
    """One message: who sent it, its count among that sender's messages, its body, and to whom it went.

    `incarnation` tells lives of a sender apart: it rises when the sender is started again, or begins anew.

    A message longer than about 60,000 bytes travels in pieces that count one each; its own number is then
    that of its last piece. `to` is None when it went to the whole group. `group` is the group's name where a
    node is in several.
    """

    __slots__ = ("_stable", "body", "group", "incarnation", "number", "sender", "to")

    def __init__(
        self,
        sender: Site,
        number: int,
        body: bytes,
        stable: StableWaiter,
        to: Destinations = None,
        group: Group | None = None,
        incarnation: int = 0,
    ) -> None:
        self.sender: Final = sender
        self.incarnation: Final = incarnation
        self.number: Final = number
        self.body: Final = body
        self.to: Final = to
        self.group: Final = group
        self._stable = stable

    @property
    def id(self) -> UniqueId:
        return UniqueId(self.sender, self.incarnation, self.number)

    async def stable(self) -> None:
        """Wait until every destination that counts is known to hold this message."""
        await self._stable(self.sender, self.number)

    async def atomic(self) -> None:
        """The same in the words of causal order: wait until this message is atomically accepted."""
        await self._stable(self.sender, self.number)

    def __repr__(self) -> str:
        return f"Message({self.sender}:{self.number}, {len(self.body)} bytes)"


class Batch:
    """Messages of one sender, as they travelled. Iterating gives messages; `bodies` is quick.

    Their numbers are consecutive, unless some that travelled between them were for other members.
    """

    __slots__ = ("_stable", "_to", "bodies", "group", "incarnation", "numbers", "sender", "size")

    def __init__(
        self,
        sender: Site,
        numbers: Sequence[int],
        bodies: Sequence[bytes],
        size: int,
        stable: StableWaiter,
        to: Destinations | Sequence[Destinations] = None,
        group: Group | None = None,
        incarnation: int = 0,
    ) -> None:
        """`to` is for whom all of them are, or each."""
        self.group: Final = group
        self.incarnation: Final = incarnation
        self.sender: Final = sender
        self.numbers: Final = numbers
        self.bodies: Final = bodies
        self.size: Final = size
        self._stable = stable
        self._to = to

    @property
    def number(self) -> int:
        """The first message's."""
        return self.numbers[0]

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[Message]:
        sender, stable, to, group = self.sender, self._stable, self._to, self.group
        incarnation = self.incarnation
        if to is None or isinstance(to, frozenset):
            for number, body in zip(self.numbers, self.bodies, strict=True):
                yield Message(sender, number, body, stable, to, group, incarnation)
            return
        for number, body, each in zip(self.numbers, self.bodies, to, strict=True):
            yield Message(sender, number, body, stable, each, group, incarnation)

    async def stable(self) -> None:
        """Wait until every destination that counts is known to hold all of these."""
        await self._stable(self.sender, self.numbers[-1])

    def __repr__(self) -> str:
        return f"Batch({self.sender}:{self.number}, {len(self.bodies)} messages, {self.size} bytes)"


class Presence(msgspec.Struct, frozen=True):
    """A member has appeared or vanished, or has begun anew (`restarted`); or this one has missed messages.

    `history` tells that the history asked for is over, or that it cannot be kept any more. `disagreed` tells
    that another member's order is not ours, or would not be if it were let in. `unavailable` tells that a
    message of the order is not delivered here. `refused` tells why a process was not let in (it was told
    other options, speaks other versions, or has a name that is taken) or why a key file cannot be used.
    """

    kind: PresenceKind
    site: Site
    reason: str = ""
