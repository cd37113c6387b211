"""Rows that ride: FullDist without rounds; each row travels on other messages, as far as it changed.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 4.2.2 and chapter 7, which names the
techniques (piggy-backing on data, sending only what changed) and leaves their form open.
A member's row has how many messages of each sender it holds. Each member keeps the last row of every member;
what lies below the least of a column is stable. The owner lets a row ride on each multicast of its own;
a member that has multicast nothing for a round's time, and whose row has changed, multicasts the row alone.

Assumes: an owner that triggers a check now and then at every member, reports what is held, and passes on
whole rows now and then (`on_whole_row`), as FIFO's statuses do. Nothing is assumed of the network.
Guarantees: a member declares stable only what it holds itself and what every member has reported, in this
view, to hold (checker: stability); nothing declared is taken back.

A row has counts, never differences, and the greater of two counts is the later one. So a late or repeated row
does no harm, and a lost one costs time only, until the count changes again or a whole row comes. Each change
travels twice, in two consecutive rows, which makes that rare. A row travels whole where that is shorter, and
with 4 bytes a count where they suffice.
"""

import struct
from array import array
from collections.abc import Iterable, Sequence
from random import Random
from typing import Annotated, ClassVar, Final

import numpy as np
from msgspec import Meta

from antiphon.core.effects import Effect, Multicast
from antiphon.core.fields import MOST_NAMES, Hash
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received, RoundTriggered
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.base import Configuration, Stability

WHOLE: Final = (struct.Struct("<I"), struct.Struct("<q"))
"""A count of a whole row: narrow, or wide."""
CHANGED: Final = (struct.Struct("<HI"), struct.Struct("<Hq"))
"""A place in the row and the count there."""
NARROW: Final = 1 << 32
WIDE_FORM: Final = 1
CHANGED_FORM: Final = 2
"""Bits of a row's first byte, which has its form."""


class LoneRow(Pdu, frozen=True, gc=False):
    """The changes of its sender's row, in a PDU of their own."""

    code: ClassVar[int] = 59
    row: Annotated[bytes, Meta(max_length=1 + CHANGED[1].size * MOST_NAMES)]
    view: Hash = 0


PDUS: Final = (LoneRow,)


class Riding(Stability):
    """One member's part for one view; members and senders are the same sites."""

    __slots__ = ("_rides", "_rode", "_rows", "_sent", "_sent_before")

    def __init__(
        self,
        site: Site,
        members: Sequence[Site],
        configuration: Configuration,
        random: Random,
        *,
        rides: bool = True,
    ) -> None:
        super().__init__(site, members, members, configuration, random)
        self._rides = rides
        """Whether rows ride on the owner's messages; otherwise each is multicast by itself."""
        self._rode = False
        self._rows = [array("q", bytes(self._array_bytes)) for _ in members]
        self._sent = [0] * len(members)
        self._sent_before = self._sent

    @property
    def coordinator(self) -> Site:
        """Each member checks for itself."""
        return self.site

    @property
    def under_way(self) -> bool:
        return False

    def abandon(self) -> None:
        """No-op: there are no rounds."""

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:  # noqa: ARG002
        if type(event) is Received:
            pdu = event.pdu
            if type(pdu) is not LoneRow:
                return self._ignore()
            if pdu.view != self._view or not self.on_row(event.sender, pdu.row):
                return []
            return self._check()
        return self._on_trigger() if type(event) is RoundTriggered else []

    # Sending rows

    def row(self, held: Sequence[int]) -> bytes:
        """The row that a multicast of ours carries."""
        before, self._sent_before, self._sent = self._sent_before, self._sent, list(held)
        self._rode = True
        changes = [(place, count) for place, count in enumerate(held) if count != before[place]]
        return encode_row(held, changes)

    @property
    def rides(self) -> bool:
        return self._rides

    def _on_trigger(self) -> list[Effect]:
        """Check what is stable, and multicast our row if no message of ours has carried it."""
        held, has_ridden = self._held.tolist(), self._rode and self._rides
        effects: list[Effect] = []
        if not has_ridden and held != self._sent:
            effects.append(Multicast(LoneRow(self.row(held), self._view)))
        self._rode = False
        return effects + self._check()

    # Receiving rows

    def on_row(self, site: Site, row: bytes) -> bool:
        """A row, or its changes; whether it makes sense."""
        entries = decode_row(row, len(self._rows))
        if entries is None or not self._is_other(site):
            self._ignore()
            return False
        self._note(site, entries)
        return True

    def on_whole_row(self, site: Site, held: Iterable[tuple[Site, int]]) -> None:
        """What a member holds of each sender, in any order."""
        if self._is_other(site):
            places = self._place
            self._note(site, [(places[sender], count) for sender, count in held if sender in places])

    def held_by(self, site: Site) -> int:
        """How many of our own messages a member has reported to hold."""
        return self._rows[self._rank[site]][self._place[self.site]] if self._is_other(site) else 0

    def _is_other(self, site: Site) -> bool:
        return site in self._rank and site != self.site

    def _note(self, site: Site, entries: Iterable[tuple[int, int]]) -> None:
        row = self._rows[self._rank[site]]
        for place, count in entries:
            if count > row[place]:
                row[place] = count

    def _check(self) -> list[Effect]:
        """Declare what is below the least of each column."""
        self._rows[self._rank[self.site]] = array("q", self._held.tolist())
        size = len(self._rows)
        least = np.frombuffer(b"".join(self._rows), np.int64).reshape(size, size).min(axis=0)
        found = self._declare(least)
        self.rounds_finished += bool(found)
        return found


def encode_row(held: Sequence[int], changes: Sequence[tuple[int, int]]) -> bytes:
    """A row, or its changes if they are shorter."""
    wide = max(held) >= NARROW
    whole, changed = WHOLE[wide], CHANGED[wide]
    if len(changes) * changed.size < len(held) * whole.size:
        body = b"".join([changed.pack(place, count) for place, count in changes])
        return bytes([CHANGED_FORM | wide]) + body
    return bytes([int(wide)]) + b"".join([whole.pack(count) for count in held])


def decode_row(row: bytes, size: int) -> list[tuple[int, int]] | None:
    """The places and counts of a row of `size` counts; None if it makes no sense."""
    form = row[0] if row else -1
    if not 0 <= form <= CHANGED_FORM | WIDE_FORM:
        return None
    wide = form & WIDE_FORM
    body = memoryview(row)[1:]
    if not form & CHANGED_FORM:
        if len(body) != size * WHOLE[wide].size:
            return None
        return [(place, count) for place, (count,) in enumerate(WHOLE[wide].iter_unpack(body))]
    if len(body) % CHANGED[wide].size:
        return None
    entries: list[tuple[int, int]] = list(CHANGED[wide].iter_unpack(body))
    return entries if all(place < size for place, _ in entries) else None
