"""Session messages: FullDist without rounds, at a share of the data's bytes; they also measure distances.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 4.2.2, on SRM: each member multicasts
session messages that report the state of its sequence numbers, which is essentially FullDist; the bandwidth
that they take is limited to a small fraction, such as 5%, of the data's, so their rate falls as the group
grows. The text leaves the form open; that messages carry times by which members measure how far apart they
are is SRM's own (Floyd and others, 1996).

Assumes: an owner that triggers each session message when its share allows it, at every member, and reports
what is held. Nothing is assumed of the network.
Guarantees: those of `antiphon.protocols.stability.riding`, from which it differs in that rows are whole and
repeated: a row that was lost comes again with the next session message.

Distance: a session message has the time at which it left, on its sender's clock, and repeats the times of a
few others with how long ago they came here. So the one whose time is repeated knows the round trip; half of
it is the distance. Clocks need not agree.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec
from msgspec import Meta

from antiphon.core.effects import Effect, Multicast
from antiphon.core.fields import MOST_NAMES, Hash
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received, RoundTriggered
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.base import Configuration
from antiphon.protocols.stability.riding import WHOLE, Riding, encode_row

MOST_ECHOES: Final = 8
"""Others whose times a session message repeats, in turn. Raising it costs bytes, and saves time until
distances are known."""

Time: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 62)]
"""Nanoseconds on some clock, or a span of them."""


class Echo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The time in a member's last session message, by the member's place, and how long ago it came."""

    place: Annotated[int, Meta(ge=0, lt=MOST_NAMES)]
    sent_ns: Time
    held_ns: Time


class Session(Pdu, frozen=True, gc=False):
    """A whole row, the time on its sender's clock, and the times of others."""

    code: ClassVar[int] = 63
    row: Annotated[bytes, Meta(max_length=1 + WHOLE[1].size * MOST_NAMES)]
    sent_ns: Time
    echoes: Annotated[tuple[Echo, ...], Meta(max_length=MOST_ECHOES)]
    view: Hash = 0


PDUS: Final = (Session,)


class Sessions(Riding):
    """One member's part for one view."""

    __slots__ = ("_came", "_turn", "distances_ns")

    def __init__(
        self, site: Site, members: Sequence[Site], configuration: Configuration, random: Random
    ) -> None:
        super().__init__(site, members, configuration, random, rides=False)
        self._came: dict[Site, tuple[Nanoseconds, Nanoseconds]] = {}
        """The time in each member's last session message, and when that came."""
        self._turn = 0
        self.distances_ns: dict[Site, Nanoseconds] = {}
        """How long a message takes from or to each member, as far as that was measured."""

    @property
    def row_bytes(self) -> int:
        """About how long a session message is, without its header."""
        return len(self._rows) * WHOLE[0].size

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        if type(event) is Received:
            pdu = event.pdu
            if type(pdu) is not Session:
                return self._ignore()
            if pdu.view != self._view or not self.on_row(event.sender, pdu.row):
                return []
            self._measure(now, event.sender, pdu)
            return self._check()
        return self._tell(now) if type(event) is RoundTriggered else []

    def _tell(self, now: Nanoseconds) -> list[Effect]:
        held = self._held.tolist()
        whole = encode_row(held, list(enumerate(held)))
        return [Multicast(Session(whole, now, self._echoes(now), self._view)), *self._check()]

    def _echoes(self, now: Nanoseconds) -> tuple[Echo, ...]:
        """The times of those whose turn it is."""
        known = sorted(self._came, key=self._rank.__getitem__)
        if not known:
            return ()
        first = self._turn % len(known)
        self._turn = first + MOST_ECHOES
        chosen = (known[first:] + known[:first])[:MOST_ECHOES]
        return tuple(
            Echo(self._rank[site], sent_ns, now - came_ns)
            for site, (sent_ns, came_ns) in ((site, self._came[site]) for site in chosen)
        )

    def _measure(self, now: Nanoseconds, sender: Site, pdu: Session) -> None:
        self._came[sender] = (pdu.sent_ns, now)
        for echo in pdu.echoes:
            if echo.place == self._rank[self.site] and echo.sent_ns + echo.held_ns <= now:
                self.distances_ns[sender] = (now - echo.sent_ns - echo.held_ns) // 2
