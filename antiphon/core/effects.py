"""Everything that a protocol may ask for. The order of the list that it returns is the contract."""

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
    """Send at most this many links far, for protocols that know no addresses; None sets no limit."""
    left: str | None = None
    """The name of a timer that fires once the PDU has left this host, which pacing may delay."""


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
    """The destinations of all of them, where senders choose; None means the whole group."""
    place: int | None = None
    """The batch's place in the total order, where the protocol keeps one."""


class Stable(msgspec.Struct, frozen=True, gc=False):
    """These messages are known to be held by every destination present."""

    sender: Site
    number: int
    count: int = 1
    group: Group | None = None


class Unstable(msgspec.Struct, frozen=True, gc=False):
    """These messages will never become stable here; `reason` is one plain sentence."""

    sender: Site
    number: int
    count: int
    group: Group | None
    reason: str


class Reached(msgspec.Struct, frozen=True, gc=False):
    """These messages have reached a level of acceptance here; only where levels are watched."""

    sender: Site
    number: int
    count: int
    level: str


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
    """Cancel a timer; a timer that is not set is ignored."""

    name: str


class Absent(msgspec.Struct, frozen=True, gc=False):
    """From here on this member may miss messages: one presence spell ends."""


class Present(msgspec.Struct, frozen=True, gc=False):
    """From here on this member takes part again: the next presence spell begins."""


class Appeared(msgspec.Struct, frozen=True, gc=False):
    """Another member counts from now on: the group waits for it."""

    site: Site


class Vanished(msgspec.Struct, frozen=True, gc=False):
    """Another member no longer counts; `reason` is one plain sentence."""

    site: Site
    reason: str


class Disagreed(msgspec.Struct, frozen=True, gc=False):
    """Another member's order is not ours, and `reason` says how.

    Either the total order is broken, and the first message that differs is named if it is known. Or the other
    member keeps rules that would break the order, and is refused.
    """

    other: Site
    reason: str
    sender: Site | None = None
    number: int | None = None
    place: int | None = None
    """The place in our order from which on the orders differ, if it is known."""


class Forked(msgspec.Struct, frozen=True, gc=False):
    """This member gives up its own order and goes on with another member's.

    What it delivered at the places from `first` to `last` may be missing in that order, or stand elsewhere in
    it. Before `first` both orders are the same.
    """

    other: Site
    first: int
    last: int


class CutOff(msgspec.Struct, frozen=True, gc=False):
    """Deliveries wait from here on; `reason` is one plain sentence. Nothing is missed by that."""

    reason: str


class Resumed(msgspec.Struct, frozen=True, gc=False):
    """Deliveries that waited since `CutOff` go on."""


class Unavailable(msgspec.Struct, frozen=True, gc=False):
    """A message of the order is not delivered here; `reason` is one plain sentence.

    Its sender is given if it is known, and the number of messages, with those that follow it.
    """

    reason: str
    sender: Site | None = None
    number: int | None = None
    count: int = 1


class Joined(msgspec.Struct, frozen=True, gc=False):
    """From here on this member is in a group, and the group's messages are delivered here."""

    group: Group


class Left(msgspec.Struct, frozen=True, gc=False):
    """From here on this member is no longer in a group."""

    group: Group


class Recall(msgspec.Struct, frozen=True, gc=False):
    """Read the log of what was delivered here, from a position on; answered by `Recalled`.

    Messages below one of the places in `have` (a sender, its incarnation, a number) are left out. At most
    `size` bytes of bodies are wanted, but at least one batch; 0 only asks how much there is. A later request
    for the same `asker` cancels an earlier one.
    """

    token: int
    position: int
    most_bytes: int
    have: tuple[tuple[Site, int, int], ...] = ()
    asker: Site | None = None


class AwaitRoom(msgspec.Struct, frozen=True, gc=False):
    """Answer with `HasRoom` as soon as the application has room for more history."""


class CaughtUp(msgspec.Struct, frozen=True, gc=False):
    """The history is over, and later deliveries are live; `reason` is one plain sentence."""

    complete: bool
    """Whether everything came that a member's log still had."""
    reason: str


Doubt: TypeAlias = Disagreed | Forked | CutOff | Resumed | Unavailable
"""What a member tells of an order that is not agreed on, or waits."""
Effect: TypeAlias = (
    Send
    | Multicast
    | Admitted
    | Rejected
    | Arrived
    | Deliver
    | Stable
    | Unstable
    | Reached
    | Missing
    | Discard
    | SetTimer
    | CancelTimer
    | Absent
    | Present
    | Appeared
    | Vanished
    | Disagreed
    | Forked
    | CutOff
    | Resumed
    | Unavailable
    | Joined
    | Left
    | Recall
    | AwaitRoom
    | CaughtUp
)
