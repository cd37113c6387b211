"""Everything a protocol may ask for. The order of the list it returns is the contract."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from antiphon.core.ids import Group, Site
from antiphon.core.time import Nanoseconds

if TYPE_CHECKING:
    from antiphon.core.wire import Pdu


class Send(msgspec.Struct, frozen=True, gc=False):
    """Unicast a PDU."""

    to: Site
    pdu: "Pdu"


class Multicast(msgspec.Struct, frozen=True, gc=False):
    """Multicast a PDU to every other member, or to the sites named."""

    pdu: "Pdu"
    to: tuple[Site, ...] | None = None
    hops: int | None = None
    """Only as far as so many links away, for those who know no addresses; None sets no limit."""


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """The bodies handed in have become messages number, number+1, … of this member."""

    number: int
    count: int
    size: int
    destinations: frozenset[Site] | None = None
    group: Group | None = None


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """The bodies handed in are not taken now; `reason` is one plain sentence."""

    reason: str


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """The bodies of these messages are held here for the first time."""

    sender: Site
    number: int
    count: int = 1
    group: Group | None = None


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Hand messages number, number+1, … of a sender to the application, in that order."""

    sender: Site
    number: int
    bodies: Sequence[bytes]
    group: Group | None = None
    incarnation: int = 0
    """The incarnation of the sender that numbered them."""
    destinations: frozenset[Site] | None = None
    """To whom all of them were multicast, where senders choose; None means the whole group."""
    place: int | None = None
    """The batch's place in the one order of all messages, where the protocol keeps one."""


class Stable(msgspec.Struct, frozen=True, gc=False):
    """These messages are known to be held by every destination present."""

    sender: Site
    number: int
    count: int = 1
    group: Group | None = None


class Unstable(msgspec.Struct, frozen=True, gc=False):
    """These messages will never be told to be stable here; `reason` is one plain sentence."""

    sender: Site
    number: int
    count: int
    group: Group | None
    reason: str


class Missing(msgspec.Struct, frozen=True, gc=False):
    """These messages exist, and this member has not seen them."""

    sender: Site
    number: int
    count: int = 1


class Discard(msgspec.Struct, frozen=True, gc=False):
    """This member no longer keeps these messages for others."""

    sender: Site
    number: int
    count: int = 1
    group: Group | None = None


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    """Fire `name` after this long; a timer of that name already set is replaced."""

    name: str
    after_ns: Nanoseconds


class CancelTimer(msgspec.Struct, frozen=True, gc=False):
    """Forget a timer; one that is not set is no mistake."""

    name: str


class Absent(msgspec.Struct, frozen=True, gc=False):
    """From here on this member may miss messages: one presence spell ends."""


class Present(msgspec.Struct, frozen=True, gc=False):
    """From here on this member takes part again: the next presence spell begins."""


class Appeared(msgspec.Struct, frozen=True, gc=False):
    """Another member counts from now on: it is waited for."""

    site: Site


class Vanished(msgspec.Struct, frozen=True, gc=False):
    """Another member no longer counts; `reason` is one plain sentence."""

    site: Site
    reason: str


class Disagreed(msgspec.Struct, frozen=True, gc=False):
    """Another member's order is not ours, and `reason` says how.

    Either the promise of one order is broken; the first message that differs is named where it is known. Or
    the other keeps rules that would break it, and therefore is not let in.
    """

    other: Site
    reason: str
    sender: Site | None = None
    number: int | None = None


class Unavailable(msgspec.Struct, frozen=True, gc=False):
    """A message stands here in the order that is not delivered; `reason` is one plain sentence.

    Who sent it is told where it is known, and how many messages that is with those that follow it.
    """

    reason: str
    sender: Site | None = None
    number: int | None = None
    count: int = 1


class Joined(msgspec.Struct, frozen=True, gc=False):
    """From here on this member is one of a group's, and its messages are delivered here."""

    group: Group


class Left(msgspec.Struct, frozen=True, gc=False):
    """From here on this member is in a group no more."""

    group: Group


class Recall(msgspec.Struct, frozen=True, gc=False):
    """Read the log of what was delivered here, from a position in it on; answered by `Recalled`.

    What lies below one of the places in `have` (a sender, its incarnation, a number) is left out. So many
    bytes of bodies are wanted at most, but one batch at least; with 0 only to know how much there is. A later
    one for the same `asker` makes an earlier one void.
    """

    token: int
    position: int
    most_bytes: int
    have: tuple[tuple[Site, int, int], ...] = ()
    asker: Site | None = None


class AwaitRoom(msgspec.Struct, frozen=True, gc=False):
    """Answer with `HasRoom` as soon as the application has room for more history."""


class CaughtUp(msgspec.Struct, frozen=True, gc=False):
    """The history is over, and what is delivered from here on is live; `reason` is one plain sentence."""

    complete: bool
    """Whether everything came that the log of a member still had."""
    reason: str


Effect: TypeAlias = (
    Send
    | Multicast
    | Admitted
    | Rejected
    | Arrived
    | Deliver
    | Stable
    | Unstable
    | Missing
    | Discard
    | SetTimer
    | CancelTimer
    | Absent
    | Present
    | Appeared
    | Vanished
    | Disagreed
    | Unavailable
    | Joined
    | Left
    | Recall
    | AwaitRoom
    | CaughtUp
)
