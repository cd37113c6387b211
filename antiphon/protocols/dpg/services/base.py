"""The interface between a member and its one-channel service with ContiguityDetector.

Source: Konorski, section 3. A service brings 'message' PDUs into one order '→', the same for all members that
receive them. It tells of two messages whether the second surely follows the first with nothing between. It
owns its own PDUs beside 'message' PDUs, and its timers, whose names begin with `PREFIX`. It stores no bodies:
the member has stored a message's body before the service receives it. What a service finds out about the
order it returns as placements, and the member applies them when the service is done.
"""

from collections.abc import Sequence
from random import Random
from typing import Final, TypeAlias
from typing import Protocol as Interface

import msgspec

from antiphon.core.effects import Effect
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.dpg.pdus import Arc, Message, Report, Tag

PREFIX: Final = "service/"
"""The prefix of the names of a service's timers."""


class Next(msgspec.Struct, frozen=True, gc=False):
    """A message came next on the channel; `contiguous` if nothing was missed since the message before.

    For services that know a message's place only from the moment in which it is received.
    """

    tag: Tag
    contiguous: bool


class Placement(msgspec.Struct, frozen=True, gc=False):
    """A message's place is known, whenever it was received: these arcs, to and from it, are true.

    Each arc has this tag at one end; the other end is a tag that was placed before. The member may lack the
    body: then it asks for it.
    """

    tag: Tag
    arcs: Sequence[Arc]


Placements: TypeAlias = Sequence[Next | Placement]
"""What a service has found out about the order of messages, in the order in which it found it out."""


class MemberView(Interface):
    """The member, as its service sees it: what it may ask, and how it emits effects."""

    site: Site
    random: Random

    def emit(self, effect: Effect) -> None:
        """Emit an effect."""

    def is_ours(self, tag: Tag) -> bool:
        """Whether a tag belongs to this group."""

    def unlocated(self) -> tuple[Message, ...]:
        """Own messages handed over that have no place yet, oldest first."""

    def is_at_origin(self) -> bool:
        """Whether nothing is known to have been sent in this group yet."""

    def root(self) -> Tag:
        """The latest placed message of the member's order; `ORIGIN` if there is none."""

    def is_ahead(self, tag: Tag) -> bool:
        """Whether a tag is known to the member and has no place in its order yet."""

    def is_behind(self, tag: Tag, latest: Tag) -> bool:
        """Whether a tag got its place in the member's order, or was passed over, before this later one."""

    def has_sent(self, site: Site) -> bool:
        """Whether a message of this site is held here or was delivered."""

    def lately(self, now: Nanoseconds) -> frozenset[Site]:
        """The peers heard recently."""


class Service(Interface):
    """A one-channel service of section 3."""

    reports_ordered: bool
    """Whether reports share the ordered channel: then what is known when a message arrives precedes it."""
    hears_itself: bool
    """Whether a member learns from the service where its own messages stand."""
    pdus: tuple[type[Pdu], ...]
    """Its own PDUs, beside 'message' PDUs."""

    def attach(self, member: MemberView) -> None:
        """Called once, before anything else."""

    def start(self, now: Nanoseconds, incarnation: int) -> None:
        """Begin to listen. Called again after an absence: what was known of the channel is void."""

    def take_part(self, now: Nanoseconds) -> None:
        """The member has found its place in the order, or begins an order, and may send from here on."""

    def depart(self, now: Nanoseconds) -> Placements:
        """The member leaves; last PDUs may be emitted."""

    def stamp(self, now: Nanoseconds) -> int:
        """The stamp for a message that is handed over now; 0 if the service has none."""

    def hand_over(self, now: Nanoseconds, message: Message) -> None:
        """Multicast a message of our own."""

    def on_message(
        self, now: Nanoseconds, sender: Site, message: Message, *, after_loss: bool, fresh: bool
    ) -> Placements:
        """A peer's 'message' PDU has arrived; `after_loss` if something was missed before it.

        `fresh` is False if this tag has come before.
        """

    def on_report(self, now: Nanoseconds, sender: Site, report: Report, *, after_loss: bool) -> Placements:
        """A peer's report has arrived; it is not merged yet."""

    def on_other_pdu(self, now: Nanoseconds, sender: Site, pdu: Pdu, *, after_loss: bool) -> Placements:
        """Any other PDU: of the service itself, a `Remulticast`, a `Farewell`."""

    def on_vanished(self, now: Nanoseconds, site: Site) -> None:
        """A peer has been silent for too long: neither it nor its claims count any more."""

    def on_located(self, now: Nanoseconds, tag: Tag) -> None:
        """The member has learned the place of an own message from a report."""

    def on_timer(self, now: Nanoseconds, name: str) -> Placements:
        """A timer of the service has run out."""

    def note(self, now: Nanoseconds) -> bytes:
        """The service's note in the member's reports."""

    def figures(self) -> dict[str, int]:
        """Figures for users to watch."""
