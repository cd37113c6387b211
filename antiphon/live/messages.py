"""What an application receives: messages, batches of them, and changes of presence."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import repeat
from typing import Final, Literal, NamedTuple
from typing import Protocol as Interface

import msgspec

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.packing import Destinations
from antiphon.live.levels import LevelWaits
from antiphon.protocols.sco.levels import Level

PresenceKind = Literal[
    "appeared",
    "vanished",
    "restarted",
    "missed",
    "history",
    "disagreed",
    "forked",
    "unavailable",
    "refused",
    "left-behind",
]


class Fate(Interface):
    """What becomes of messages: where the application waits for it."""

    @property
    def levels(self) -> LevelWaits: ...

    async def wait(self, sender: Site, first: int, last: int) -> None:
        """Wait until a sender's messages from the first number to the last are stable."""


DeliveredWaiter = Callable[[int], Awaitable[int | None]]
"""Waits until this member's message of that number is delivered; returns its position."""

Body = bytes | bytearray | memoryview


def bytes_of(body: Body) -> bytes:
    """The body of a message as immutable bytes."""
    return body if type(body) is bytes else bytes(view_of(body))


def view_of(body: Body) -> memoryview:
    """A view of the bytes to send; raises unless the body is bytes-like."""
    try:
        view = memoryview(body)
        return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
    except TypeError:
        hint = "Encode it: text.encode()." if isinstance(body, str) else "Make bytes of it first."
        raise UsageError(f"A message is bytes, not {type(body).__name__}.", hint=hint) from None


class UniqueId(NamedTuple):
    """Identifies a message within its group. Of one sender, the greater id was sent later.

    A sender with a trace continues its numbers after a restart. Without a trace they start at 0 again, and
    only the incarnation distinguishes its messages from earlier ones.
    """

    sender: Site
    incarnation: int
    number: int

    def __str__(self) -> str:
        return f"{self.sender}:{self.incarnation}:{self.number}"


class Message:
    """One message: its sender, its number among that sender's messages, its body, and its destinations.

    `incarnation` distinguishes the runs of a sender: it grows with each restart.

    A message longer than about 60,000 bytes travels in pieces with a number each; the message's own number is
    that of its last piece. `to` is None for the whole group. `group` is the group's name where a node is in
    several.

    `position` is the place in a total order. It is the same at all members and only grows, also over
    absences, but not by one. It is None in other orders, and on what `send` returned before `delivered`.

    `skipped`, on what `send` returned, are the destinations that had departed by then: the message does not
    go to them, and `to` does not name them.
    """

    __slots__ = (
        "_delivered", "_fate", "_first", "body", "group", "incarnation", "number", "position", "sender",
        "skipped", "to",
    )  # fmt: skip

    def __init__(
        self,
        sender: Site,
        number: int,
        body: bytes,
        fate: Fate,
        to: Destinations = None,
        group: Group | None = None,
        incarnation: int = 0,
        *,
        position: int | None = None,
        first: int | None = None,
        delivered: DeliveredWaiter | None = None,
        skipped: frozenset[Site] = frozenset(),
    ) -> None:
        """`first` is the number of its first piece; `delivered` is given for a message that is not delivered
        yet."""
        self.sender: Final = sender
        self.incarnation: Final = incarnation
        self.number: Final = number
        self.body: Final = body
        self.to: Final = to
        self.skipped: Final = skipped
        self.group: Final = group
        self.position = position
        self._first = number if first is None else first
        self._fate = fate
        self._delivered = delivered

    @property
    def id(self) -> UniqueId:
        return UniqueId(self.sender, self.incarnation, self.number)

    async def stable(self) -> None:
        """Wait until every destination that counts is known to hold this message; raise if that is
        impossible."""
        await self._fate.wait(self.sender, self._first, self.number)

    async def atomic(self) -> None:
        """The same under causal order's name: wait until this message is atomically accepted."""
        await self.stable()

    def level(self) -> Level:
        """The levels of acceptance that this message has reached here, in causal order with `levels=True`.

        `Level.ATOMIC in message.level()` says whether every destination is known to have it.
        """
        return self._fate.levels.level(self.sender, self._first, self.number)

    async def reached(self, level: Level | str) -> None:
        """Wait until this message has reached a level of acceptance here, such as 'atomic' or 'full'.

        Raises if that cannot be known: the member left or was absent meanwhile.
        """
        wanted = Level.of(level) if isinstance(level, str) else level
        await self._fate.levels.wait(self.sender, self._first, self.number, wanted)

    async def delivered(self) -> int | None:
        """Wait until this message is delivered at its sender. Returns its position; None without one order.

        Raises if that cannot be known: the member left or was absent meanwhile, or the message was skipped.
        """
        if self._delivered is not None:
            self.position = await self._delivered(self.number)
        return self.position

    def __repr__(self) -> str:
        return f"Message({self.sender}:{self.number}, {len(self.body)} bytes)"


class Batch:
    """Messages of one sender, as they travelled together. Iterating yields messages; `bodies` is faster.

    Their numbers are consecutive, unless messages between them were for other members. So are their
    `positions`, which are None without one order.
    """

    __slots__ = (
        "_fate", "_first", "_to", "bodies", "group", "incarnation", "numbers", "positions", "sender",
        "size",
    )  # fmt: skip

    def __init__(
        self,
        sender: Site,
        numbers: Sequence[int],
        bodies: Sequence[bytes],
        size: int,
        fate: Fate,
        to: Destinations | Sequence[Destinations] = None,
        group: Group | None = None,
        incarnation: int = 0,
        *,
        positions: Sequence[int] | None = None,
        first: int | None = None,
    ) -> None:
        """`to` are the destinations of all messages, or of each; `first` is the first piece of a long
        message."""
        self.group: Final = group
        self.incarnation: Final = incarnation
        self.sender: Final = sender
        self.numbers: Final = numbers
        self.bodies: Final = bodies
        self.size: Final = size
        self.positions: Final = positions
        self._first = numbers[0] if first is None else first
        self._fate = fate
        self._to = to

    @property
    def number(self) -> int:
        """The number of the first message."""
        return self.numbers[0]

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[Message]:
        sender, fate, to, group = self.sender, self._fate, self._to, self.group
        incarnation = self.incarnation
        # A long message travels alone; its stability begins with its first piece.
        first = self._first if self._first != self.numbers[0] else None
        addresses = repeat(to) if to is None or isinstance(to, frozenset) else to
        positions = repeat(None) if self.positions is None else self.positions
        # Not strict: `repeat` has no end.
        for number, body, each, position in zip(
            self.numbers, self.bodies, addresses, positions, strict=False
        ):
            yield Message(
                sender, number, body, fate, each, group, incarnation, position=position, first=first
            )

    async def stable(self) -> None:
        """Wait until every destination that counts is known to hold these messages; raise if that is
        impossible."""
        await self._fate.wait(self.sender, self._first, self.numbers[-1])

    def __repr__(self) -> str:
        return f"Batch({self.sender}:{self.number}, {len(self.bodies)} messages, {self.size} bytes)"


class Presence(msgspec.Struct, frozen=True):
    """A member has appeared, vanished or restarted; or this member has missed messages.

    `history`: the requested history is over, or the log can no longer be kept. `disagreed`: another member's
    order is not ours, or would not be if it were let in. `forked`: this member takes up another's order, and
    delivered some positions alone. `unavailable`: a message of the order is not
    delivered here. `refused`: a process was not let in (other options, other wire versions, or a name that is
    taken), or a key file cannot be used. `left-behind`: a member loses too much at any useful rate.
    """

    kind: PresenceKind
    site: Site
    reason: str = ""
