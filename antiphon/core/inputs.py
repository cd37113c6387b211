"""Everything that can happen to a protocol."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from antiphon.core.fields import Incarnation, Name, Number
from antiphon.core.ids import Group, Site

if TYPE_CHECKING:
    from antiphon.core.wire import Pdu

MOST_PAST_BYTES: Final = 1 << 20
"""Bytes of one batch of history: more than fits a PDU."""


class Start(msgspec.Struct, frozen=True, gc=False):
    """The member starts, with empty memory.

    Incarnation 0 starts together with its whole group, as simulated groups do. Any other finds a group that
    may be running already: it emits `Present` once it takes part, and `Absent` before that if it has missed
    something. Of two incarnations the greater is the later. `returning` says that a log of an earlier
    incarnation exists, whose end is already noted as an absence.

    `next_number` is the number of its next admitted message. A restarted member must not use a number again,
    so the caller remembers it. `delivered` is how far earlier incarnations have delivered each sender's
    messages, which history must not repeat; None if unknown.
    """

    incarnation: int = 0
    next_number: int = 0
    returning: bool = False
    delivered: Mapping[Site, int] | None = None


class Admit(msgspec.Struct, frozen=True, gc=False):
    """The application hands in one or more bodies, to be ordered one after another."""

    bodies: Sequence[bytes]
    destinations: frozenset[Site] | None = None
    group: Group | None = None


class Received(msgspec.Struct, frozen=True, gc=False):
    """A PDU arrived from the network."""

    sender: Site
    pdu: "Pdu"
    after_loss: bool = False
    """Whether something on its way to this member is known to be lost just before."""


class TimerFired(msgspec.Struct, frozen=True, gc=False):
    """A timer of the protocol has fired."""

    name: str


class RoundTriggered(msgspec.Struct, frozen=True, gc=False):
    """The driver asks for a round of stability detection to begin here."""


class Suspected(msgspec.Struct, frozen=True, gc=False):
    """The failure detector suspects that this site has failed."""

    site: Site


class Restored(msgspec.Struct, frozen=True, gc=False):
    """The failure detector takes back a suspicion."""

    site: Site


class Departed(msgspec.Struct, frozen=True, gc=False):
    """This member goes absent: it keeps its memory, but nothing reaches or leaves it until it returns."""

    for_good: bool = False
    """Whether it leaves, and this protocol object gets no further input."""


class Returned(msgspec.Struct, frozen=True, gc=False):
    """This member is back after an absence."""


class JoinGroup(msgspec.Struct, frozen=True, gc=False):
    """This member joins one of several groups; answered by `Joined`."""

    group: Group


class LeaveGroup(msgspec.Struct, frozen=True, gc=False):
    """This member leaves a group; answered by `Left`."""

    group: Group


class Past(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One batch of history: messages number, number+1, … of a sender's incarnation, packed."""

    sender: Name
    incarnation: Incarnation
    number: Number
    bodies: Annotated[bytes, Meta(max_length=MOST_PAST_BYTES)]


class Recalled(msgspec.Struct, frozen=True, gc=False):
    """The answer to a `Recall`: batches as they were delivered here, up to the position `following`.

    `messages` is the number of messages in the log; -1 if there is no readable log.
    """

    token: int
    messages: int
    records: tuple[Past, ...] = ()
    following: int = 0
    is_end: bool = True
    """Whether the log ended there."""


class HasRoom(msgspec.Struct, frozen=True, gc=False):
    """The application has room for more history."""


Input: TypeAlias = (
    Start
    | Admit
    | Received
    | TimerFired
    | RoundTriggered
    | Suspected
    | Restored
    | Departed
    | Returned
    | Recalled
    | HasRoom
    | JoinGroup
    | LeaveGroup
)
