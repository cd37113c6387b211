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
"""Bytes of one batch of history: more than a PDU has room for."""


class Start(msgspec.Struct, frozen=True, gc=False):
    """The member begins, with empty memory.

    Incarnation 0 begins together with its whole group, as simulated groups do. Any other finds a group that
    may have gone on without it: it emits `Present` once it takes part, and `Absent` before that if it has
    missed something. The greater of two incarnations is the later one. `returning` says that a log of an
    earlier incarnation exists and has its end noted as an absence already.

    `next_number` is the number that its next admitted message gets; a restarted member must not use a
    number again, so whoever restarts it remembers. `delivered` tells how far earlier incarnations have
    delivered each sender's messages, which history must not bring again; None if that is not known.
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
    """A PDU came from the network."""

    sender: Site
    pdu: "Pdu"
    after_loss: bool = False
    """Whether this member can tell that something on its way to it was lost just before."""


class TimerFired(msgspec.Struct, frozen=True, gc=False):
    """A timer that the protocol set has run out."""

    name: str


class RoundTriggered(msgspec.Struct, frozen=True, gc=False):
    """Someone wants a round of stability detection to begin here."""


class Suspected(msgspec.Struct, frozen=True, gc=False):
    """The failure detector holds that this site is gone."""

    site: Site


class Restored(msgspec.Struct, frozen=True, gc=False):
    """The failure detector takes back a suspicion."""

    site: Site


class Departed(msgspec.Struct, frozen=True, gc=False):
    """This member goes absent: its memory lives on, but nothing reaches or leaves it until it returns."""


class Returned(msgspec.Struct, frozen=True, gc=False):
    """This member is back after an absence."""


class JoinGroup(msgspec.Struct, frozen=True, gc=False):
    """This member wants to be in one more of several groups; answered by `Joined`."""

    group: Group


class LeaveGroup(msgspec.Struct, frozen=True, gc=False):
    """This member no longer wants to be in a group; answered by `Left`."""

    group: Group


class Past(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One batch of history: messages number, number+1, … of a sender's incarnation, packed."""

    sender: Name
    incarnation: Incarnation
    number: Number
    bodies: Annotated[bytes, Meta(max_length=MOST_PAST_BYTES)]


class Recalled(msgspec.Struct, frozen=True, gc=False):
    """What a `Recall` has found: batches as they were delivered here, up to the position `following`.

    `messages` tells how many the log has in all; -1 says that there is no log that could be read.
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
