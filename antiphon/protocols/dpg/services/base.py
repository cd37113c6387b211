"""What a one-channel service with ContiguityDetector is to the member above it, and the member to it.

Source: Konorski, section 3. A service brings 'message' PDUs into one order '→' that is the same for all who
receive them, and tells of two messages whether one surely follows the other without anything between. It
owns whatever it says on the wire beside 'message' PDUs, and its timers, whose names begin with `PREFIX`.
It stores no bodies: the member has taken a message's body before the service hears of it.
"""

from collections.abc import Sequence
from random import Random
from typing import Final
from typing import Protocol as Interface

from antiphon.core.effects import Effect
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.dpg.pdus import Arc, Message, Report, Tag

PREFIX: Final = "service/"
"""How the names of a service's timers begin."""


class Channel(Interface):
    """The member, as its service sees it."""

    site: Site
    random: Random

    def emit(self, effect: Effect) -> None:
        """Have something done."""

    def heard(self, now: Nanoseconds, tag: Tag, *, contiguous: bool) -> None:
        """This message came next on the channel; `contiguous` if nothing was missed since the last one.

        For services that know a message's place only from the moment in which it is received.
        """

    def placed(self, now: Nanoseconds, tag: Tag, arcs: Sequence[Arc]) -> None:
        """This message's place is known, whenever it was received: these arcs, to and from it, are true.

        Each arc has this tag at one end; the other end is a tag that was heard or placed before. The body
        may be missing here: then the member asks for it.
        """

    def is_ours(self, tag: Tag) -> bool:
        """Whether a tag is one of this group's."""

    def unlocated(self) -> tuple[Message, ...]:
        """Own messages handed over that have no place yet, oldest first."""

    def is_at_origin(self) -> bool:
        """Whether nothing has been sent in this group yet, as far as anyone knows."""

    def root(self) -> Tag:
        """The latest that has its place in the member's order; `ORIGIN` if nothing has."""

    def is_ahead(self, tag: Tag) -> bool:
        """Whether a tag is known to the member and has no place in its order yet."""

    def has_sent(self, site: Site) -> bool:
        """Whether a message of this site is held here or was delivered."""

    def lately(self, now: Nanoseconds) -> frozenset[Site]:
        """Other members heard of a moment ago."""


class Service(Interface):
    """One of the services of section 3."""

    reports_ordered: bool
    """Whether reports share the ordered channel, so that what is known when a message comes precedes it."""
    hears_itself: bool
    """Whether a member learns from the service where its own messages stand."""
    pdus: tuple[type[Pdu], ...]
    """What it says on the wire beside 'message' PDUs."""

    def attach(self, channel: Channel) -> None:
        """Said once, before anything else."""

    def start(self, now: Nanoseconds, incarnation: int) -> None:
        """Begin to listen. Said again after an absence: whatever was known of the channel is void."""

    def take_part(self, now: Nanoseconds) -> None:
        """The member has found its place in the order, or begins one, and may send from here on."""

    def depart(self, now: Nanoseconds) -> None:
        """The member goes absent; last words may be emitted."""

    def stamp(self, now: Nanoseconds) -> int:
        """The stamp for a message that is handed over now; 0 if the service has none."""

    def hand_over(self, now: Nanoseconds, message: Message) -> None:
        """Multicast a message of our own."""

    def receive(
        self, now: Nanoseconds, sender: Site, message: Message, *, after_loss: bool, fresh: bool
    ) -> None:
        """Another's 'message' PDU has come; `after_loss` if we know that we missed something before it.

        `fresh` is False if this tag has come before.
        """

    def receive_report(self, now: Nanoseconds, sender: Site, report: Report, *, after_loss: bool) -> None:
        """Another's report has come, its graph not yet taken in."""

    def receive_other(self, now: Nanoseconds, sender: Site, pdu: Pdu, *, after_loss: bool) -> None:
        """Any other PDU: one of the service's own, a `Remulticast`, a `Farewell`."""

    def vanished(self, now: Nanoseconds, site: Site) -> None:
        """Another has been silent for so long that it no longer counts: nor does what it said of itself."""

    def located(self, now: Nanoseconds, tag: Tag) -> None:
        """The member has learned from a report where a message of its own stands."""

    def fire(self, now: Nanoseconds, name: str) -> None:
        """A timer of the service has run out."""

    def note(self, now: Nanoseconds) -> bytes:
        """What rides on the member's own reports."""

    def figures(self) -> dict[str, int]:
        """What a user may want to watch."""
