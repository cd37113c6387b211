"""What happens to a member beside its messages, as `Group.events` yields it between them.

Each event stands where it belongs among the deliveries: what came before it came before, and a gap stands
between the last message before it and the first one behind it.
"""

from typing import Final, TypeAlias

import msgspec

from antiphon.core.ids import Site
from antiphon.live.messages import Message, Presence

NOT_LOST: Final = frozenset({"It left.", "It has left.", "It has begun anew."})
"""Why a member vanishes that is not lost: it has said goodbye, or is back already."""
ABSENT: Final = "This member was absent for a while."


class Missed(msgspec.Struct, frozen=True):
    """Messages are missing here.

    With a sender: exactly `count` of its messages, from `number` on. Without one: this member was absent, or
    some of a sender that is gone cannot be had, and nobody can tell which; those that can be told follow,
    each where the next message of its sender shows the gap.
    """

    sender: Site | None = None
    number: int | None = None
    count: int | None = None
    reason: str = ABSENT


class CutOff(msgspec.Struct, frozen=True):
    """From here on this member may miss messages: it is absent, or it hears nobody any more."""

    reason: str


class Appeared(msgspec.Struct, frozen=True):
    """Another member counts from now on."""

    site: Site


class Vanished(msgspec.Struct, frozen=True):
    """Another member no longer counts."""

    site: Site
    reason: str


class Restarted(msgspec.Struct, frozen=True):
    """Another member has begun anew, with an empty memory; its next message is of a later incarnation."""

    site: Site


class Disagreed(msgspec.Struct, frozen=True):
    """Another member's order is not ours; the first message that differs is named where it is known."""

    site: Site
    reason: str
    sender: Site | None = None
    number: int | None = None


class Unavailable(msgspec.Struct, frozen=True):
    """A message stands here in the order that is not delivered; it is named where it is known."""

    reason: str
    sender: Site | None = None
    number: int | None = None


class Refused(msgspec.Struct, frozen=True):
    """A process was not let in, or lets nobody in."""

    site: Site
    reason: str


class LeftBehind(msgspec.Struct, frozen=True):
    """A member loses too much of what is sent to it at any useful rate, and is not waited for."""

    site: Site
    reason: str


class CaughtUp(msgspec.Struct, frozen=True):
    """The history that was asked for is over; what follows is live."""

    complete: bool
    reason: str


class HistoryFailed(msgspec.Struct, frozen=True):
    """The log of what is delivered is damaged, or cannot be kept any more."""

    reason: str


class Unread(msgspec.Struct, frozen=True):
    """Events were left out here, since too many waited to be read; `missed` if a gap was among them."""

    count: int
    missed: bool


Happening: TypeAlias = (
    Missed
    | CutOff
    | Appeared
    | Vanished
    | Restarted
    | Disagreed
    | Unavailable
    | Refused
    | LeftBehind
    | CaughtUp
    | HistoryFailed
    | Unread
)
Event: TypeAlias = Message | Happening


def as_presence(event: Happening, own: Site) -> Presence | None:
    """The same in the words of `Group.presence`; None for what only makes sense among messages."""
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
        case Unavailable():
            return Presence("unavailable", own, sentence(event))
        case Refused(site=site, reason=reason):
            return Presence("refused", site, reason)
        case LeftBehind(site=site, reason=reason):
            return Presence("left-behind", site, reason)
        case CaughtUp(reason=reason) | HistoryFailed(reason=reason):
            return Presence("history", own, reason)
        case CutOff() | Unread():
            return None


def sentence(event: Happening) -> str:
    """What happened, for people, without the name of the member that it is about."""
    match event:
        case Missed(sender=str() as sender, number=int() as number, count=int() as count):
            last = "" if count == 1 else f" to {number + count - 1}"
            return f"Missing of '{sender}': {number}{last}."
        case Disagreed(sender=str() as sender) | Unavailable(sender=str() as sender):
            return f"{event.reason} The first message concerned: {sender}:{event.number}."
        case Appeared():
            return ""
        case Restarted():
            return "It has begun anew."
        case Unread(count=count):
            return f"{count} events were left out, since too many waited to be read."
        case _:
            return event.reason
