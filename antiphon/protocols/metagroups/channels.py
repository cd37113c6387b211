"""Channels: numbered streams from a primary site to the sites below it, with a sending and a receiving end.

Source: Jia and So, section 5: a sequence number for each destination, by which a receiver puts messages in
order and detects losses. Here a primary site has one channel to all other sites of its meta-group, which can
be multicast, and one to the primary site of each child.

Acknowledgements are cumulative, and cover everything below the receiver. Two marks come back down: what may
be delivered (`ready`), and what all have delivered (`settled`).
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
    """Its number of messages."""
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
    """The sending end: the place of each entry in the primary site's order, and which receivers hold it."""

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

    def add(self, now: Nanoseconds, place: int) -> int:
        """Add the entry at this place of the order; returns its number on the channel."""
        self.moved_ns = now
        self._places.append(place)
        self.last += 1
        if not self.receivers:
            self.held = self.done = self.last
        return self.last

    def on_held(self, now: Nanoseconds, site: Site, held: int, done: int) -> bool:
        """A receiver acknowledges; False if that is nothing new, or impossible."""
        if held > self.last:
            return False
        if held <= self._held[site] and done <= self._done[site]:
            return False
        self._held[site] = max(held, self._held[site])
        self._done[site] = max(done, self._done[site])
        self.held = min(self._held.values())
        self.done = min(self._done.values())
        self.moved_ns = now
        return True

    def place_before(self, seq: int, end: int) -> int:
        """The last place such that this channel has no entry up to it beyond `seq`."""
        return end if seq >= self.last else self._places[seq + 1 - self.first] - 1

    def advance_ready(self, place: int) -> None:
        """Everything up to this place of the order is ready."""
        self.ready = self._count_up_to(self.ready, place)

    def advance_settled(self, place: int) -> None:
        """Everything up to this place of the order is settled; forget it."""
        self.settled = self._count_up_to(self.settled, place)
        while self.first <= self.settled:
            self._places.popleft()
            self.first += 1

    def _count_up_to(self, seq: int, place: int) -> int:
        """The last entry, from `seq` on, that stands at this place or before it."""
        while seq < self.last and self._places[seq + 1 - self.first] <= place:
            seq += 1
        return seq

    def place_of(self, seq: int) -> int | None:
        """The place of an entry; None if it is settled or does not exist."""
        return self._places[seq - self.first] if self.first <= seq <= self.last else None

    def note_told(self) -> None:
        """The receivers are being sent the current marks."""
        self.told_ready, self.told_settled = self.ready, self.settled

    def lagging(self) -> tuple[Site, ...]:
        """Receivers that are not known to hold everything."""
        if self.held == self.last:
            return ()
        return tuple(site for site in self.receivers if self._held[site] < self.last)


class Inlet:
    """The receiving end: puts entries in order and detects losses."""

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
        """Entries beyond the next one that are kept."""
        self._early: dict[int, Batch] = {}
        self.next_seq = 1
        self.known = 0
        """The last entry that is known to exist."""
        self.ready = 0
        self.settled = 0
        self.told_held = 0
        self.told_done = 0
        self.asked_ns: Nanoseconds = -1

    def on_entry(self, pdu: Entry | Token) -> list[Batch]:
        """An entry has come; returns what is in order now."""
        self.on_mark(pdu.seq, pdu.ready, pdu.settled)
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

    def on_mark(self, last: int, ready: int, settled: int) -> None:
        self.known = max(self.known, last)
        self.ready = max(self.ready, ready)
        self.settled = max(self.settled, settled)

    def missing(self) -> tuple[int, ...]:
        """Entries to ask for."""
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
