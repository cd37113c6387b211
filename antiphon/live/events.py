"""What happens to a member beside its messages, as `Group.events` yields it between them.

Each event stands in its place among the deliveries. A gap stands between the last message before it and the
first message after it.
"""

from typing import Final, TypeAlias

import msgspec

from antiphon.core.ids import Site
from antiphon.live.messages import Message, Presence

NOT_LOST: Final = frozenset({"It left.", "It has left.", "It has begun anew."})
"""Reasons to vanish of a member that is not lost: it has left, or is back already."""
ABSENT: Final = "This member was absent for a while."


class Missed(msgspec.Struct, frozen=True):
    """Messages are missing here.

    With a sender: exactly `count` of its messages, from `number` on. Without a sender: this member was
    absent, or messages of a departed sender are lost, and which is unknown. Gaps that can be known follow,
    each where the next message of its sender shows it.
    """

    sender: Site | None = None
    number: int | None = None
    count: int | None = None
    reason: str = ABSENT


class CutOff(msgspec.Struct, frozen=True):
    """From here on this member may miss messages, or its deliveries wait for a quorum.

    It is absent, it receives nothing from the others, or fewer members than the quorum are connected.
    """

    reason: str


class Resumed(msgspec.Struct, frozen=True):
    """Deliveries that waited for a quorum go on, and nothing was missed."""


class Appeared(msgspec.Struct, frozen=True):
    """Another member counts from now on."""

    site: Site


class Vanished(msgspec.Struct, frozen=True):
    """Another member no longer counts."""

    site: Site
    reason: str


class Restarted(msgspec.Struct, frozen=True):
    """Another member has restarted with an empty memory. Its next message is of a later incarnation."""

    site: Site


class Disagreed(msgspec.Struct, frozen=True):
    """Another member's order is not ours. The first message that differs is named if it is known.

    `position` is the position in our order from which on they differ, if it is known.
    """

    site: Site
    reason: str
    sender: Site | None = None
    number: int | None = None
    position: int | None = None


class Forked(msgspec.Struct, frozen=True):
    """This member gives up its own order and goes on with that of `site`.

    What it delivered at the positions from `first` to `last` may be missing there, or stand elsewhere: those
    messages are to be reconciled. Before `first` both orders are the same.
    """

    site: Site
    first: int
    last: int


class Unavailable(msgspec.Struct, frozen=True):
    """A message of the order is not delivered here. It is named if it is known."""

    reason: str
    sender: Site | None = None
    number: int | None = None


class Refused(msgspec.Struct, frozen=True):
    """A process was refused, or refuses this member."""

    site: Site
    reason: str


class LeftBehind(msgspec.Struct, frozen=True):
    """A member loses too much at any useful rate. The group does not wait for it."""

    site: Site
    reason: str


class CaughtUp(msgspec.Struct, frozen=True):
    """The requested history is over; live messages follow."""

    complete: bool
    reason: str


class HistoryFailed(msgspec.Struct, frozen=True):
    """The log of deliveries is damaged, or can no longer be kept."""

    reason: str


class Unread(msgspec.Struct, frozen=True):
    """Events were left out here, because too many waited to be read; `missed` if a gap was among them."""

    count: int
    missed: bool


Happening: TypeAlias = (
    Missed
    | CutOff
    | Resumed
    | Appeared
    | Vanished
    | Restarted
    | Disagreed
    | Forked
    | Unavailable
    | Refused
    | LeftBehind
    | CaughtUp
    | HistoryFailed
    | Unread
)
Event: TypeAlias = Message | Happening


def as_presence(event: Happening, own: Site) -> Presence | None:
    """The event as `Group.presence` yields it; None for events that only make sense among messages."""
    match event:
        case Appeared(site=site):
            return Presence("appeared", site)
        case Vanished(site=site, reason=reason):
            return Presence("vanished", site, reason)
        case Restarted(site=site):
            return Presence("restarted", site, "It has begun anew.")
        case Missed():
            return Presence("missed", own, sentence(event))
        case Disagreed(site=site):
            return Presence("disagreed", site, sentence(event))
        case Forked(site=site):
            return Presence("forked", site, sentence(event))
        case Unavailable():
            return Presence("unavailable", own, sentence(event))
        case Refused(site=site, reason=reason):
            return Presence("refused", site, reason)
        case LeftBehind(site=site, reason=reason):
            return Presence("left-behind", site, reason)
        case CaughtUp(reason=reason) | HistoryFailed(reason=reason):
            return Presence("history", own, reason)
        case CutOff() | Resumed() | Unread():
            return None


def sentence(event: Happening) -> str:
    """The event as a sentence for people, without the name of the member that it is about."""
    match event:
        case Missed(sender=str() as sender, number=int() as number, count=int() as count):
            last = "" if count == 1 else f" to {number + count - 1}"
            return f"Missing of '{sender}': {number}{last}."
        case Disagreed(sender=str() as sender) | Unavailable(sender=str() as sender):
            return f"{event.reason} The first message concerned: {sender}:{event.number}."
        case Forked(first=first, last=last):
            return f"This member goes on with its order. Delivered alone: positions {first} to {last}."
        case Appeared():
            return ""
        case Resumed():
            return "Enough members are connected again."
        case Restarted():
            return "It has begun anew."
        case Unread(count=count):
            return f"{count} events were left out, since too many waited to be read."
        case _:
            return event.reason
