"""What a new ring has to recover from the rings before it, as all its members read it from the commit token.

Source: the recovery part of the paper. Members that come from one ring exchange, on the new ring and in its
sequence, what some of them lack of the old one; when all hold all of it, they deliver it and go on.

Of the rings that the members come from, the latest on which anything was ordered is the one that goes on:
whoever was on it *continues*. All others missed something. They are told in `State` how far each sender's
messages got, so that they send again what got no place and nothing else.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from antiphon.core.effects import Effect
from antiphon.core.ids import Site
from antiphon.protocols.totem.pdus import (
    UNKNOWN,
    Entry,
    Evidence,
    Message,
    Recovered,
    RingId,
    State,
    Token,
    TotemConfiguration,
)
from antiphon.protocols.totem.ring import Log, Ring
from antiphon.protocols.totem.sending import NOTHING


class Plan(NamedTuple):
    """Who continues what on a new ring."""

    primary: bool
    """Whether the new ring goes on with the order."""
    whole: bool
    """Whether nothing of the order can be lost; else so many have lost their memory that it may be."""
    latest: RingId | None
    """The ring that is continued; None if nobody remembers any."""
    base: int
    continuing: tuple[Site, ...]
    low: int
    """All who continue hold everything up to here."""


def make_plan(everyone: tuple[Site, ...], evidence: Mapping[Site, Evidence]) -> Plan:
    rings = [found.ring for found in evidence.values() if found.ring is not None]
    latest = max(rings, default=None)
    whole = _has_quorum(everyone, evidence)
    primary = whole or len(evidence) == len(everyone)
    if latest is None:
        return Plan(primary, whole, None, 0, (), 0)
    reached: dict[Site, int] = {}
    base = 0
    for site, found in evidence.items():
        if found.ring == latest:
            reached[site] = found.aru
            base = found.base
        elif found.attempt == latest:
            reached[site] = found.attempt_aru
    return Plan(primary, whole, latest, base, tuple(reached), min(reached.values()))


def _has_quorum(everyone: tuple[Site, ...], evidence: Mapping[Site, Evidence]) -> bool:
    """Whether no other ring can have gone on, or go on, without one of those here who remember.

    More than half of all members, those without memory not counted, have one in common with any other such
    set; so has exactly half of them with the first.
    """
    remember = [site for site, found in evidence.items() if found.ring is not None]
    tie = 2 * len(remember) == len(everyone) and everyone[0] in remember
    return tie or 2 * len(remember) > len(everyone)


class Repetition:
    """What this member has to repeat on a new ring; a `Source` of its visits."""

    __slots__ = ("_log", "_streams", "_tells", "_waiting")

    def __init__(self, log: Log, low: int, streams: Mapping[Site, int], *, tells: bool) -> None:
        """All that the log holds beyond `low`; one member also `tells` the others how far streams got."""
        self._log = log
        self._waiting = deque(sorted(seq for seq, entry in log.entries.items() if _is_due(entry, low)))
        self._streams = streams
        self._tells = tells

    def cover(self, old_seq: int) -> None:
        """Another has repeated this."""
        if old_seq in self._waiting:
            self._waiting.remove(old_seq)

    def backlog(self) -> int:
        return len(self._waiting) + self._tells

    def take(self, ring: RingId, seq: int) -> Entry:
        if self._tells:
            self._tells = False
            return State(ring, seq, self._log.aru, self._prefix())
        old_seq = self._waiting.popleft()
        entry = self._log.entries[old_seq]
        assert isinstance(entry, Message)
        return Recovered(ring, seq, old_seq, entry.sender, entry.number, entry.bodies)

    def _prefix(self) -> dict[Site, int]:
        """How far streams get with all that is held without a gap."""
        streams = dict(self._streams)
        for seq in range(self._log.delivered + 1, self._log.aru + 1):
            note(streams, self._log.entries[seq])
        return streams


class Attempt:
    """A ring whose members exchange what they lack; it stands when all hold all of it."""

    __slots__ = ("_counted", "plan", "repetition", "ring")

    def __init__(self, ring: Ring, plan: Plan, repetition: Repetition | None) -> None:
        self.ring = ring
        self.plan = plan
        self.repetition = repetition
        self._counted = False
        """Whether the token counts this member as one that has something left to repeat."""

    def visit(self, token: Token, knobs: TotemConfiguration, effects: list[Effect]) -> Token:
        """Repeat what some lack; find out on the token whether all of it has been repeated."""
        source = NOTHING if self.repetition is None else self.repetition
        token = self.ring.visit(token, source, knobs, effects)
        left = source.backlog() > 0
        unfinished = max(0, token.unfinished + left - self._counted)
        self._counted = left
        base = token.base
        if base == UNKNOWN and unfinished == 0 and self.ring.visits > 1:
            base = token.seq  # everyone was visited before, and would be counted
        self.ring.base = base
        return msgspec.structs.replace(token, unfinished=unfinished, base=base)

    def complete(self) -> bool:
        """Whether all on the ring are known to hold all that was repeated."""
        return UNKNOWN < self.ring.base <= self.ring.safe


def _is_due(entry: Entry, low: int) -> bool:
    return isinstance(entry, Message) and entry.seq > low


def note(streams: dict[Site, int], entry: Entry) -> None:
    """A sender's messages have got as far as this."""
    if not isinstance(entry, State):
        following = entry.number + len(entry.bodies)
        streams[entry.sender] = max(streams.get(entry.sender, 0), following)


def streams_told(log: Log, base: int) -> dict[Site, int]:
    """How far streams got before a new ring began, from what was repeated on it up to `base`."""
    streams: dict[Site, int] = {}
    repeated: dict[int, Recovered] = {}
    reached = 0
    for seq in range(1, base + 1):
        entry = log.entries[seq]
        if isinstance(entry, State):
            streams, reached = dict(entry.streams), entry.old_seq
        elif isinstance(entry, Recovered):
            repeated[entry.old_seq] = entry
    while (following := repeated.get(reached + 1)) is not None:
        note(streams, following)
        reached += 1
    return streams
