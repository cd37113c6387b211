"""Channels: the numbered way from a primary site to those it hands messages to, one end and the other.

Source: Jia and So, section 5 (a sequence number for each site that messages are sent to, so that a receiver
puts them in order and finds out what it lacks). Here a primary site has one channel to all other sites of its
meta-group, which can be multicast, and one to the primary site of each child.

What a receiver acknowledges is cumulative, and counts for all below it. Two marks come back down: what may be
delivered (`ready`) and what all have delivered (`settled`).
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from antiphon.core.ids import Group, Site
from antiphon.core.packing import Packed
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.pdus import MOST_MISSING, Entry, Held, Item, Token


class Batch(NamedTuple):
    """What is ordered as one: messages number, number+1, … of a sender to a group."""

    sender: Site
    incarnation: int
    number: int
    length: int
    """How many messages."""
    group: Group
    bodies: Packed | None
    """None for a token, whose bodies travel apart."""

    @property
    def item(self) -> Item:
        return Item(self.sender, self.number, self.length, self.group)


def to_members(node: int) -> int:
    """The channel to the sites of a node."""
    return 2 * node


def to_primary(node: int) -> int:
    """The channel to the primary site of a node, from that of its parent."""
    return 2 * node + 1


class Outlet:
    """The sending end: at which place of the primary's own order each entry stands, and who holds it."""

    __slots__ = (
        "_done",
        "_held",
        "_places",
        "channel",
        "done",
        "first",
        "held",
        "last",
        "moved_ns",
        "ready",
        "receivers",
        "settled",
        "told_ready",
        "told_settled",
    )

    def __init__(self, channel: int, receivers: Iterable[Site]) -> None:
        self.channel = channel
        self.receivers = tuple(receivers)
        self._held = dict.fromkeys(self.receivers, 0)
        self._done = dict.fromkeys(self.receivers, 0)
        self._places: deque[int] = deque()
        """The places of the entries from `first` on."""
        self.first = 1
        self.last = 0
        self.held = 0
        self.done = 0
        self.ready = 0
        self.settled = 0
        self.told_ready = 0
        self.told_settled = 0
        self.moved_ns: Nanoseconds = 0
        """When something was last sent or acknowledged."""

    def add(self, place: int) -> int:
        """One more entry, which stands at this place; its number on the channel."""
        self._places.append(place)
        self.last += 1
        if not self.receivers:
            self.held = self.done = self.last
        return self.last

    def acknowledge(self, site: Site, held: int, done: int) -> bool:
        """What a receiver tells; False if that is nothing new, or cannot be."""
        if site not in self._held or not done <= held <= self.last:
            return False
        if held <= self._held[site] and done <= self._done[site]:
            return False
        self._held[site] = max(held, self._held[site])
        self._done[site] = max(done, self._done[site])
        self.held = min(self._held.values())
        self.done = min(self._done.values())
        return True

    def place_before(self, seq: int, end: int) -> int:
        """Up to which place the entries up to `seq` are all that there are on this channel."""
        return end if seq >= self.last else self._places[seq + 1 - self.first] - 1

    def count_up_to(self, seq: int, place: int) -> int:
        """How far entries from `seq` on stand at or before a place."""
        while seq < self.last and self._places[seq + 1 - self.first] <= place:
            seq += 1
        return seq

    def place_of(self, seq: int) -> int | None:
        """At which place an entry stands; None if it is gone or has never been."""
        return self._places[seq - self.first] if self.first <= seq <= self.last else None

    def release(self, seq: int) -> None:
        """Forget what lies up to here."""
        while self.first <= seq:
            self._places.popleft()
            self.first += 1

    def lagging(self) -> tuple[Site, ...]:
        """Who does not hold everything, as far as is known."""
        if self.held == self.last:
            return ()
        return tuple(site for site in self.receivers if self._held[site] < self.last)


class Inlet:
    """The receiving end: puts entries in order and finds out what is lacking."""

    __slots__ = (
        "_early",
        "_reach",
        "asked_ns",
        "channel",
        "known",
        "next_seq",
        "ready",
        "settled",
        "source",
        "told_done",
        "told_held",
    )

    def __init__(self, channel: int, source: Site, reach: int) -> None:
        self.channel = channel
        self.source = source
        self._reach = reach
        """How far ahead entries are kept."""
        self._early: dict[int, Batch] = {}
        self.next_seq = 1
        self.known = 0
        """The last entry that is known to exist."""
        self.ready = 0
        self.settled = 0
        self.told_held = 0
        self.told_done = 0
        self.asked_ns: Nanoseconds = -1

    def take(self, pdu: Entry | Token) -> list[Batch]:
        """An entry has come; what can be used by now, in order."""
        self.mark(pdu.seq, pdu.ready, pdu.settled)
        if not self.next_seq <= pdu.seq < self.next_seq + self._reach:
            return []
        bodies = pdu.bodies if isinstance(pdu, Entry) else None
        count = pdu.count if isinstance(pdu, Token) else len(pdu.bodies)
        batch = Batch(pdu.sender, pdu.incarnation, pdu.number, count, pdu.group, bodies)
        if pdu.seq > self.next_seq:
            self._early[pdu.seq] = batch
            return []
        found = [batch]
        self.next_seq += 1
        while self._early and (early := self._early.pop(self.next_seq, None)) is not None:
            found.append(early)
            self.next_seq += 1
        return found

    def mark(self, last: int, ready: int, settled: int) -> None:
        self.known = max(self.known, last)
        self.ready = max(self.ready, ready)
        self.settled = max(self.settled, settled)

    def missing(self) -> tuple[int, ...]:
        """What to ask for."""
        if self.known < self.next_seq:
            return ()
        last = min(self.known, self.next_seq + self._reach - 1)
        found = []
        for seq in range(self.next_seq, last + 1):
            if seq not in self._early:
                found.append(seq)
                if len(found) == MOST_MISSING:
                    break
        return tuple(found)

    def acknowledgement(self, tree: tuple[int, int], held: int, done: int, missing: tuple[int, ...]) -> Held:
        self.told_held, self.told_done = held, done
        return Held(tree, self.channel, held, done, missing)
