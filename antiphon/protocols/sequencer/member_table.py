"""The members that the sequencer knows, the view, and what follows from it: the slowest, the witness."""

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
from antiphon.protocols.taken import Taken

FORGET_AFTER = 50
"""Multiple of `suspect_after_ns` after which a silent member is forgotten. Raising it costs memory."""
LONGEST_LEAP = 1 << 20
"""Milliseconds by which the next incarnation of a member may exceed `LATEST_HEARSAY`, or the last one if that
exceeds it already. Raising it costs incarnations that a liar can use up."""
QUEUED_WINDOWS = 16
"""Order windows of requests of all members that may wait for a place. Raising it costs memory."""


class Grant(NamedTuple):
    """How a member was let in; a repeated join gets the same answer."""

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
        "grant",
        "heard_ns",
        "in_line",
        "in_view",
        "key",
        "lagging",
        "left",
        "pending",
        "placed",
        "probed",
        "progress_ns",
        "repeated_ns",
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
        """The position at which it was let in: it never held what lies before."""
        self.acknowledged = NO_POSITION
        self.heard_ns = now
        self.progress_ns = now
        self.told_ns = now
        self.repeated_ns = now
        """When entries without a receipt were last repeated to it."""
        self.in_view = self.suspected = self.left = self.lagging = False
        self.asked = 0
        """Positions that it has asked for again."""
        self.probed = 0
        """The serial of the probe by which its round trip was last measured."""
        self.round_trip_ns: Nanoseconds | None = None
        self.grant: Grant | None = None
        self.pending: dict[int, Packed] = {}
        """Its requests, by number, that have no place yet."""
        self.placed = Taken()
        self.in_line = False
        """Whether it is queued for its turn."""

    def may_begin(self, incarnation: int) -> bool:
        """Whether its next incarnation can be this one: a liar must not use up the numbers."""
        return incarnation <= max(self.key[0], LATEST_HEARSAY) + LONGEST_LEAP


class MemberTable:
    """A bounded table; changes of the view are returned as effects."""

    def __init__(self, log: Log, configuration: SequencerConfiguration) -> None:
        self.known: dict[Site, Member] = {}
        self.view: dict[Site, Member] = {}
        self.slowest = 0
        """The least position in the view; meaningless while the view is empty."""
        self.held = 0
        """Below this position each entry is held by one more member, or can be held by none of the view."""
        self.witness: Site = NOBODY
        self.version = 0
        """Rises with every change of the view."""
        self.exclusions: dict[Site, str] = {}
        """Why members left the view, the latest ones."""
        self._log = log
        self._configuration = configuration
        self._bytes = 0
        self._queued = 0

    def begin(self, sites: Iterable[Site], now: Nanoseconds, *, together: bool) -> None:
        """Meet the members that are known from the start; if all begin together, they are in the view."""
        for site in sites:
            member = self.meet(now, site)
            if member is not None and together:
                member.acknowledged = 0
                member.in_view = True
                self.view[site] = member
        self._recompute()

    def meet(self, now: Nanoseconds, site: Site) -> Member | None:
        """The member of this name, known from now on; None if there is no room for it."""
        member = self.known.get(site)
        if member is None and not 0 < len(site) <= LONGEST_NAME:
            return None
        if member is None:
            while not self._has_room(site):
                if not self._make_room():
                    return None
            member = self.known[site] = Member(site, now)
            self._bytes += name_bytes(site)
        return member

    def excuse_all(self, now: Nanoseconds) -> None:
        """No member's silence counts against it: we did not listen ourselves."""
        for member in self.known.values():
            member.heard_ns = member.progress_ns = now

    def suspects(self) -> list[Site]:
        return [member.site for member in self.known.values() if member.suspected or member.left]

    # Requests

    def enqueue(self, member: Member, number: int, bodies: Packed, *, always: bool) -> None:
        """Keep a request until its turn; without room it is dropped, since its sender will ask after it."""
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

    # The view

    def advance(self, member: Member, position: int) -> None:
        """A member of the view holds more."""
        before, member.acknowledged = member.acknowledged, position
        if member.since <= self._log.delivered:
            self.held = max(self.held, position)
        if before == self.slowest:
            self.slowest = min([other.acknowledged for other in self.view.values()])

    def include(self, member: Member) -> list[Effect]:
        """It is in the view from now on, at the position that it has."""
        effects: list[Effect] = []
        if not member.in_view:
            member.in_view = True
            self.view[member.site] = member
            self.exclusions.pop(member.site, None)
            self.version += 1
            effects.append(Appeared(member.site))
        self._recompute()
        return effects

    def exclude(self, member: Member, reason: str) -> list[Effect]:
        """It leaves the view."""
        if not member.in_view:
            return []
        member.in_view = False
        del self.view[member.site]
        self.version += 1
        self.exclusions[member.site] = reason
        if len(self.exclusions) > MOST_REASONS:
            del self.exclusions[next(iter(self.exclusions))]
        self._recompute()
        return [Vanished(member.site, reason)]

    def check(self, now: Nanoseconds) -> list[Effect]:
        """Exclude members that are silent or stuck, forget those that have been silent for long."""
        knobs = self._configuration
        effects: list[Effect] = []
        forgotten: list[Member] = []
        for member in self.known.values():
            silent_ns = now - member.heard_ns
            if member.acknowledged == self._log.position:
                member.progress_ns = now
                member.lagging = False
            if not member.in_view:
                if silent_ns >= FORGET_AFTER * knobs.suspect_after_ns and not member.in_line:
                    forgotten.append(member)
            elif silent_ns >= knobs.suspect_after_ns:
                effects += self.exclude(member, "It has been silent for too long.")
            elif now - member.progress_ns >= knobs.lag_ns:
                member.lagging = True
                effects += self.exclude(member, "It speaks, but has not got on for too long.")
        for member in forgotten:
            self._forget(member)
        return effects

    def _recompute(self) -> None:
        """Find the slowest; if the witness has left the view, the most advanced member succeeds it."""
        members = self.view.values()
        if not members:
            self.witness = NOBODY
            return
        self.slowest = min(member.acknowledged for member in members)
        # What came before all members of the view were let in none of them will ever hold.
        self.held = max(self._log.delivered, min(member.since for member in members))
        for member in members:
            if member.since <= self.held < member.acknowledged:
                self.held = member.acknowledged
        if self.witness not in self.view:
            self.witness = max(members, key=lambda member: member.acknowledged).site

    def _has_room(self, site: Site) -> bool:
        return len(self.known) < MOST_MEMBERS and self._bytes + name_bytes(site) <= MOST_NAME_BYTES

    def _forget(self, member: Member) -> None:
        self.clear_queue(member)
        del self.known[member.site]
        self._bytes -= name_bytes(member.site)

    def _make_room(self) -> bool:
        """Forget the member outside the view that was silent longest; False if there is none."""
        idle = [member for member in self.known.values() if not member.in_view and not member.in_line]
        if not idle:
            return False
        self._forget(min(idle, key=lambda member: member.heard_ns))
        return True
