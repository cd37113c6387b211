"""Whom the sequencer knows, who of them counts, and what follows from that: the slowest, the witness."""

from collections.abc import Iterable
from typing import NamedTuple

from antiphon.core.effects import Appeared, Effect, Vanished
from antiphon.core.fields import LONGEST_NAME
from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sequencer.log import Log
from antiphon.protocols.sequencer.pdus import (
    LATEST_HEARSAY,
    MOST_MEMBERS,
    MOST_NAME_BYTES,
    MOST_REASONS,
    NO_POSITION,
    NOBODY,
    SequencerConfiguration,
    name_bytes,
)

FORGET_AFTER = 50
"""Whoever was silent this many times as long as it takes not to count is forgotten."""
LONGEST_LEAP = 1 << 20
"""Milliseconds by which the next incarnation of a member may lie beyond `LATEST_HEARSAY`, or beyond the last
one if that lies there already."""
QUEUED_WINDOWS = 16
"""The requests of all members that wait for a place are at most this many order windows."""


class Grant(NamedTuple):
    """Where a member was let in, so that a repeated join gets the same answer."""

    key: tuple[int, int]
    position: int
    kept: bool
    whole: bool
    streams: dict[Site, int]


class Member:
    """What the sequencer knows of one member, itself included."""

    __slots__ = (
        "acknowledged",
        "asked",
        "counted",
        "grant",
        "heard_ns",
        "in_line",
        "key",
        "lagging",
        "left",
        "pending",
        "probed",
        "progress_ns",
        "round_trip_ns",
        "since",
        "site",
        "suspected",
        "told_ns",
    )

    def __init__(self, site: Site, now: Nanoseconds = 0) -> None:
        self.site = site
        self.key = (0, 0)
        """Its incarnation, and its latest attempt to take part."""
        self.since = 0
        """Where it was let in: what lies before that it never held."""
        self.acknowledged = NO_POSITION
        self.heard_ns = now
        self.progress_ns = now
        self.told_ns = now
        self.counted = self.suspected = self.left = self.lagging = False
        self.asked = 0
        """Positions that it has asked for again."""
        self.probed = 0
        """The serial of the position by which it was last timed, and how long that took."""
        self.round_trip_ns: Nanoseconds | None = None
        self.grant: Grant | None = None
        self.pending: dict[int, Packed] = {}
        """Its requests, by number, that have no place yet."""
        self.in_line = False
        """Whether it stands in line for a place."""

    def may_begin(self, incarnation: int) -> bool:
        """Whether its next incarnation can be this one: however often it begins, numbers must not run out."""
        return incarnation <= max(self.key[0], LATEST_HEARSAY) + LONGEST_LEAP


class Members:
    """The table, bounded; changes of who counts come out as effects."""

    def __init__(self, log: Log, configuration: SequencerConfiguration) -> None:
        self.known: dict[Site, Member] = {}
        self.counted: dict[Site, Member] = {}
        self.slowest = 0
        """The least position of those who count; without meaning while nobody does."""
        self.held = 0
        """What lies below this is held by one more member than us, or by nobody else who counts for ever."""
        self.witness: Site = NOBODY
        self.version = 0
        """Rises whenever who counts has changed."""
        self.gone: dict[Site, str] = {}
        self._log = log
        self._configuration = configuration
        self._bytes = 0
        self._queued = 0

    def begin(self, sites: Iterable[Site], now: Nanoseconds, *, together: bool) -> None:
        """Meet those that are known from the start; if all begin together, they count."""
        for site in sites:
            member = self.meet(now, site)
            if member is not None and together:
                member.acknowledged = 0
                member.counted = True
                self.counted[site] = member
        self._weigh()

    def meet(self, now: Nanoseconds, site: Site) -> Member | None:
        """The member of this name, known from now on; None if it has no room here, or none on the wire."""
        member = self.known.get(site)
        if member is None and not 0 < len(site) <= LONGEST_NAME:
            return None
        if member is None:
            while not self._has_room(site):
                if not self._forget_one():
                    return None
            member = self.known[site] = Member(site, now)
            self._bytes += name_bytes(site)
        return member

    def forgive(self, now: Nanoseconds) -> None:
        """Nobody's silence counts: it was we who did not listen."""
        for member in self.known.values():
            member.heard_ns = member.progress_ns = now

    def suspects(self) -> list[Site]:
        return [member.site for member in self.known.values() if member.suspected or member.left]

    # Requests

    def enqueue(self, member: Member, number: int, bodies: Packed, *, always: bool) -> None:
        """Keep a request until its turn; what finds no room is dropped, since it will be asked after."""
        if always or self.room(member):
            self._queued += number not in member.pending
            member.pending[number] = bodies

    def room(self, member: Member) -> int:
        """How many more requests of this member are kept."""
        knobs = self._configuration
        everyone = QUEUED_WINDOWS * knobs.order_window - self._queued
        return max(0, min(knobs.window - len(member.pending), everyone))

    def dequeue(self, member: Member, number: int) -> Packed | None:
        bodies = member.pending.pop(number, None)
        self._queued -= bodies is not None
        return bodies

    def clear_queue(self, member: Member) -> None:
        self._queued -= len(member.pending)
        member.pending.clear()

    # Who counts

    def advance(self, member: Member, position: int) -> None:
        """A member that counts holds more."""
        before, member.acknowledged = member.acknowledged, position
        if position > self.held and member.since <= self._log.delivered:
            self.held = position
        if before == self.slowest:
            self.slowest = min([other.acknowledged for other in self.counted.values()])

    def count(self, member: Member) -> list[Effect]:
        """It counts from now on, at the position that it has."""
        effects: list[Effect] = []
        if not member.counted:
            member.counted = True
            self.counted[member.site] = member
            self.gone.pop(member.site, None)
            self.version += 1
            effects.append(Appeared(member.site))
        self._weigh()
        return effects

    def dismiss(self, member: Member, reason: str) -> list[Effect]:
        """It no longer counts."""
        if not member.counted:
            return []
        member.counted = False
        del self.counted[member.site]
        self.version += 1
        self.gone[member.site] = reason
        if len(self.gone) > MOST_REASONS:
            del self.gone[next(iter(self.gone))]
        self._weigh()
        return [Vanished(member.site, reason)]

    def look(self, now: Nanoseconds) -> list[Effect]:
        """Dismiss who is silent or stuck, forget who has been silent for long."""
        knobs = self._configuration
        effects: list[Effect] = []
        forgotten: list[Member] = []
        for member in self.known.values():
            silent_ns = now - member.heard_ns
            if member.acknowledged == self._log.position:
                member.progress_ns = now
                member.lagging = False
            if not member.counted:
                if silent_ns >= FORGET_AFTER * knobs.suspect_after_ns and not member.in_line:
                    forgotten.append(member)
            elif silent_ns >= knobs.suspect_after_ns:
                effects += self.dismiss(member, "It has been silent for too long.")
            elif now - member.progress_ns >= knobs.lag_ns:
                member.lagging = True
                effects += self.dismiss(member, "It speaks, but has not got on for too long.")
        for member in forgotten:
            self._forget(member)
        return effects

    def _weigh(self) -> None:
        """Find the slowest; the witness stays as long as it counts, then the most advanced follows it."""
        counted = self.counted.values()
        if not counted:
            self.witness = NOBODY
            return
        self.slowest = min(member.acknowledged for member in counted)
        # What came before all who count were let in none of them will ever hold.
        self.held = max(self._log.delivered, min(member.since for member in counted))
        for member in counted:
            if member.since <= self.held < member.acknowledged:
                self.held = member.acknowledged
        if self.witness not in self.counted:
            self.witness = max(counted, key=lambda member: member.acknowledged).site

    def _has_room(self, site: Site) -> bool:
        return len(self.known) < MOST_MEMBERS and self._bytes + name_bytes(site) <= MOST_NAME_BYTES

    def _forget(self, member: Member) -> None:
        self.clear_queue(member)
        del self.known[member.site]
        self._bytes -= name_bytes(member.site)

    def _forget_one(self) -> bool:
        """Make room: whoever does not count and was silent longest goes first."""
        idle = [member for member in self.known.values() if not member.counted and not member.in_line]
        if not idle:
            return False
        self._forget(min(idle, key=lambda member: member.heard_ns))
        return True
