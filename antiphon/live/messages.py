"""What an application gets: messages, batches of them, and news of who is there."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import repeat
from typing import Final, Literal, NamedTuple

import msgspec

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.packing import Destinations

PresenceKind = Literal[
    "appeared",
    "vanished",
    "restarted",
    "missed",
    "history",
    "disagreed",
    "unavailable",
    "refused",
    "left-behind",
]

StableWaiter = Callable[[Site, int, int], Awaitable[None]]
"""Waits until a sender's messages from the first number to the last are stable."""
DeliveredWaiter = Callable[[int], Awaitable[int | None]]
"""Waits until the message of this member with that number is delivered; its position."""

Body = bytes | bytearray | memoryview


def bytes_of(body: Body) -> bytes:
    """The body of a message, which no one can change any more."""
    return body if type(body) is bytes else bytes(view_of(body))


def view_of(body: Body) -> memoryview:
    """The bytes of what is to be sent, if it is bytes or something like them."""
    try:
        view = memoryview(body)
        return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
    except TypeError:
        hint = "Encode it: text.encode()." if isinstance(body, str) else "Make bytes of it first."
        raise UsageError(f"A message is bytes, not {type(body).__name__}.", hint=hint) from None


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

    `position` tells where it stands in a total order: it is the same at all members and only grows, also over
    absences, but not by one. It is None in other orders, and on what `send` returned before `delivered`.
    """

    __slots__ = (
        "_delivered", "_first", "_stable", "body", "group", "incarnation", "number", "position", "sender",
        "to",
    )  # fmt: skip

    def __init__(
        self,
        sender: Site,
        number: int,
        body: bytes,
        stable: StableWaiter,
        to: Destinations = None,
        group: Group | None = None,
        incarnation: int = 0,
        *,
        position: int | None = None,
        first: int | None = None,
        delivered: DeliveredWaiter | None = None,
    ) -> None:
        """`first` is the number of its first piece; `delivered` is given for what is not delivered yet."""
        self.sender: Final = sender
        self.incarnation: Final = incarnation
        self.number: Final = number
        self.body: Final = body
        self.to: Final = to
        self.group: Final = group
        self.position = position
        self._first = number if first is None else first
        self._stable = stable
        self._delivered = delivered

    @property
    def id(self) -> UniqueId:
        return UniqueId(self.sender, self.incarnation, self.number)

    async def stable(self) -> None:
        """Wait until every destination that counts is known to hold this message; raise if that cannot be."""
        await self._stable(self.sender, self._first, self.number)

    async def atomic(self) -> None:
        """The same in the words of causal order: wait until this message is atomically accepted."""
        await self.stable()

    async def delivered(self) -> int | None:
        """Wait until this message is delivered at its sender; its position, which is None without one order.

        Raises if it cannot be known: the member left or was absent meanwhile, or the message was passed over.
        """
        if self._delivered is not None:
            self.position = await self._delivered(self.number)
        return self.position

    def __repr__(self) -> str:
        return f"Message({self.sender}:{self.number}, {len(self.body)} bytes)"


class Batch:
    """Messages of one sender, as they travelled. Iterating gives messages; `bodies` is quick.

    Their numbers are consecutive, unless some that travelled between them were for other members. So are
    their `positions`; there are none without one order.
    """

    __slots__ = (
        "_first", "_stable", "_to", "bodies", "group", "incarnation", "numbers", "positions", "sender",
        "size",
    )  # fmt: skip

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
        *,
        positions: Sequence[int] | None = None,
        first: int | None = None,
    ) -> None:
        """`to` is for whom all of them are, or each; `first` the number of the first piece of a long one."""
        self.group: Final = group
        self.incarnation: Final = incarnation
        self.sender: Final = sender
        self.numbers: Final = numbers
        self.bodies: Final = bodies
        self.size: Final = size
        self.positions: Final = positions
        self._first = numbers[0] if first is None else first
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
        # Of a long message, which travels alone, what counts begins with its first piece.
        first = self._first if self._first != self.numbers[0] else None
        addresses = repeat(to) if to is None or isinstance(to, frozenset) else to
        positions = repeat(None) if self.positions is None else self.positions
        # Not strict: what is repeated has no end.
        for number, body, each, position in zip(
            self.numbers, self.bodies, addresses, positions, strict=False
        ):
            yield Message(
                sender, number, body, stable, each, group, incarnation, position=position, first=first
            )

    async def stable(self) -> None:
        """Wait until every destination that counts is known to hold all of these; raise if that cannot be."""
        await self._stable(self.sender, self._first, self.numbers[-1])

    def __repr__(self) -> str:
        return f"Batch({self.sender}:{self.number}, {len(self.bodies)} messages, {self.size} bytes)"


class Presence(msgspec.Struct, frozen=True):
    """A member has appeared or vanished, or has begun anew (`restarted`); or this one has missed messages.

    `history` tells that the history asked for is over, or that it cannot be kept any more. `disagreed` tells
    that another member's order is not ours, or would not be if it were let in. `unavailable` tells that a
    message of the order is not delivered here. `refused` tells why a process was not let in (it was told
    other options, speaks other versions, or has a name that is taken) or why a key file cannot be used.
    `left-behind` names a member that loses too much of what is sent to it at any useful rate.
    """

    kind: PresenceKind
    site: Site
    reason: str = ""
