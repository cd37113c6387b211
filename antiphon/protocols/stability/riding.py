"""Rows that ride: FullDist without rounds, each row told on what is sent anyway, as far as it changed.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 4.2.2 and chapter 7, which names the
techniques (piggy-backing on data, sending only what changed) and leaves their form open.
A member's row says how many messages of each sender it holds. Everyone keeps the last row heard of everyone,
and what lies below the least of a column is stable. The owner lets a row ride on each multicast of its own;
a member that has multicast nothing for a round's time, and whose row has changed, multicasts the row alone.

Assumes: an owner that triggers a look every so often at every member, says what is held, and tells whole rows
now and then (`hear_whole`): FIFO's statuses, heartbeats as they are, do. Nothing is assumed of the network.
Guarantees: a member declares stable only what it holds itself and what every member has said, in this view,
that it holds (checker: stability); nothing declared is taken back.

What is told of a sender is the count itself, never a difference, and the greater of two counts is the later
one: so a row that is lost, late or repeated does no harm, and one that is lost costs time only, until the
count changes again or a whole row comes. Each change is told twice, in two rows one after the other, which
makes that rare. A row is told whole where that is shorter, and with 4 bytes a count where they suffice.
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
"""Bits of a row's first byte, which tells its form."""


class LoneRow(Pdu, frozen=True, gc=False):
    """What its sender holds, as far as it changed: a row that rides on nothing."""

    code: ClassVar[int] = 59
    row: Annotated[bytes, Meta(max_length=1 + CHANGED[1].size * MOST_NAMES)]
    view: Hash = 0


PDUS: Final = (LoneRow,)


class Riding(Stability):
    """One member's part for one view; members and senders are the same sites."""

    __slots__ = ("_rides", "_rode", "_rows", "_told", "_told_before")

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
        self._told = [0] * len(members)
        self._told_before = self._told

    @property
    def coordinator(self) -> Site:
        """Everyone looks for himself."""
        return self.site

    @property
    def under_way(self) -> bool:
        return False

    def abandon(self) -> None:
        """Nothing: there are no rounds."""

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:  # noqa: ARG002
        if type(event) is Received:
            pdu = event.pdu
            if type(pdu) is not LoneRow:
                return self._ignore()
            if pdu.view != self._view or not self.hear(event.sender, pdu.row):
                return []
            return self._look()
        return self._on_trigger() if type(event) is RoundTriggered else []

    # Telling

    def row(self, held: Sequence[int]) -> bytes:
        """What a multicast of ours is to carry; everyone who receives it knows our row."""
        before, self._told_before, self._told = self._told_before, self._told, list(held)
        self._rode = True
        changes = [(place, count) for place, count in enumerate(held) if count != before[place]]
        return encode_row(held, changes)

    @property
    def rides(self) -> bool:
        return self._rides

    def _on_trigger(self) -> list[Effect]:
        """Look what is stable, and tell our row if nothing of ours told it lately."""
        held, told = self._held.tolist(), self._rode and self._rides
        effects: list[Effect] = []
        if not told and held != self._told:
            effects.append(Multicast(LoneRow(self.row(held), self._view)))
        self._rode = False
        return effects + self._look()

    # Hearing

    def hear(self, site: Site, row: bytes) -> bool:
        """A row, or what changed of it; whether it makes sense."""
        entries = decode_row(row, len(self._rows))
        if entries is None or not self._hears(site):
            self._ignore()
            return False
        self._note(site, entries)
        return True

    def hear_whole(self, site: Site, held: Iterable[tuple[Site, int]]) -> None:
        """What a member says of each sender, in whatever order."""
        if self._hears(site):
            places = self._place
            self._note(site, [(places[sender], count) for sender, count in held if sender in places])

    def held_by(self, site: Site) -> int:
        """How many of our own messages a member has said that it holds."""
        return self._rows[self._rank[site]][self._place[self.site]] if self._hears(site) else 0

    def _hears(self, site: Site) -> bool:
        return site in self._rank and site != self.site

    def _note(self, site: Site, entries: Iterable[tuple[int, int]]) -> None:
        row = self._rows[self._rank[site]]
        for place, count in entries:
            if count > row[place]:
                row[place] = count

    def _look(self) -> list[Effect]:
        """Declare what is below the least of each column."""
        self._rows[self._rank[self.site]] = array("q", self._held.tolist())
        size = len(self._rows)
        least = np.frombuffer(b"".join(self._rows), np.int64).reshape(size, size).min(axis=0)
        found = self._declare(least)
        self.rounds_finished += bool(found)
        return found


def encode_row(held: Sequence[int], changes: Sequence[tuple[int, int]]) -> bytes:
    """A row, or what changed of it if that is shorter."""
    wide = max(held) >= NARROW
    whole, changed = WHOLE[wide], CHANGED[wide]
    if len(changes) * changed.size < len(held) * whole.size:
        body = b"".join([changed.pack(place, count) for place, count in changes])
        return bytes([CHANGED_FORM | wide]) + body
    return bytes([int(wide)]) + b"".join([whole.pack(count) for count in held])


def decode_row(row: bytes, size: int) -> list[tuple[int, int]] | None:
    """The places and counts of a row of so many; None if it is none."""
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
