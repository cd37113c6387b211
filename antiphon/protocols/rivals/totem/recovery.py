"""What a new ring has to recover from the rings before it, by the evidence on the commit token.

Source: the recovery part of the paper. Members that come from one ring exchange, on the new ring and in its
sequence, what some of them lack of the old one; when all hold all of it, they deliver it and go on.

Of the rings that the members come from, the latest on which anything was ordered is continued: its members
*continue*. All others missed something. They learn from `State` which messages of each sender have a place,
so that they send again only what has none.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from antiphon.core.effects import Effect
from antiphon.core.ids import Site
from antiphon.protocols.rivals.totem.outbox import NOTHING
from antiphon.protocols.rivals.totem.pdus import (
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
from antiphon.protocols.rivals.totem.ring import Log, Ring


class Plan(NamedTuple):
    """Which members continue which ring on a new one."""

    primary: bool
    """Whether the new ring continues the order."""
    whole: bool
    """Whether nothing of the order can be lost; it can if too many members have lost their memory."""
    latest: RingId | None
    """The ring that is continued; None if no member remembers any."""
    base: int
    continuing: tuple[Site, ...]
    low: int
    """All members that continue hold everything up to here."""


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
    """Whether no other ring can continue the order without one of the members here that remember.

    Any two sets of more than half of all members have one in common; so do sets of exactly half of them with
    the first. Members without memory do not count.
    """
    remember = [site for site, found in evidence.items() if found.ring is not None]
    tie = 2 * len(remember) == len(everyone) and everyone[0] in remember
    return tie or 2 * len(remember) > len(everyone)


class Repetition:
    """What this member has to repeat on a new ring; a `Source` of its visits."""

    __slots__ = ("_log", "_streams", "_tells", "_waiting")

    def __init__(self, log: Log, low: int, streams: Mapping[Site, int], *, tells: bool) -> None:
        """Everything in the log beyond `low`; one member also sends the `State` (`tells`)."""
        self._log = log
        self._waiting = deque(sorted(seq for seq, entry in log.entries.items() if _is_due(entry, low)))
        self._streams = streams
        self._tells = tells

    def cover(self, old_seq: int) -> None:
        """Another member has repeated this."""
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
        """The next number of each sender after everything that is held without a gap."""
        streams = dict(self._streams)
        for seq in range(self._log.delivered + 1, self._log.aru + 1):
            note(streams, self._log.entries[seq])
        return streams


class Attempt:
    """A ring whose members exchange what they lack; it is operational when all hold everything."""

    __slots__ = ("_counted", "plan", "repetition", "ring")

    def __init__(self, ring: Ring, plan: Plan, repetition: Repetition | None) -> None:
        self.ring = ring
        self.plan = plan
        self.repetition = repetition
        self._counted = False
        """Whether the token counts this member as having something left to repeat."""

    def visit(self, token: Token, configuration: TotemConfiguration, effects: list[Effect]) -> Token:
        """Repeat what some members lack; learn from the token whether everything has been repeated."""
        source = NOTHING if self.repetition is None else self.repetition
        token = self.ring.visit(token, source, configuration, effects)
        left = source.backlog() > 0
        unfinished = max(0, token.unfinished + left - self._counted)
        self._counted = left
        base = token.base
        if base == UNKNOWN and unfinished == 0 and self.ring.visits > 1:
            base = token.seq  # all were visited before, and would be counted
        self.ring.base = base
        return msgspec.structs.replace(token, unfinished=unfinished, base=base)

    def complete(self) -> bool:
        """Whether all members of the ring are known to hold everything that was repeated."""
        return UNKNOWN < self.ring.base <= self.ring.safe


def _is_due(entry: Entry, low: int) -> bool:
    return isinstance(entry, Message) and entry.seq > low


def note(streams: dict[Site, int], entry: Entry) -> None:
    """A sender's messages below this number have a place."""
    if not isinstance(entry, State):
        following = entry.number + len(entry.bodies)
        streams[entry.sender] = max(streams.get(entry.sender, 0), following)


def streams_told(log: Log, base: int) -> dict[Site, int]:
    """The next number of each sender when the new ring began, by what was repeated on it up to `base`."""
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
