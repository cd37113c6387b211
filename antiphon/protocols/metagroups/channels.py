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
    moves: int = 0
    """The moves that its sender knew when it admitted it."""

    @property
    def item(self) -> Item:
        return Item(self.sender, self.number, self.length, self.group, self.moves)


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
        "leaving",
        "left",
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
        """The sites that get the next entry."""
        self.leaving: dict[Site, int] = {}
        """Sites that have moved away, with the last entry that is for each."""
        self.left: dict[Site, int] = {}
        """The same of sites for which that entry is settled."""
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
            self._recount()
        return self.last

    def on_held(self, now: Nanoseconds, site: Site, held: int, done: int) -> bool:
        """A receiver acknowledges; False if that is nothing new, or impossible."""
        if held > self.leaving.get(site, self.last):
            return False
        if held <= self._held[site] and done <= self._done[site]:
            return False
        self._held[site] = max(held, self._held[site])
        self._done[site] = max(done, self._done[site])
        self._recount()
        self.moved_ns = now
        return True

    def _recount(self) -> None:
        """What all hold and have delivered; a site that leaves counts up to its last entry."""
        self.held, self.done = self._least(self._held), self._least(self._done)

    def _least(self, counts: dict[Site, int]) -> int:
        if not self.leaving:
            return min(counts.values(), default=self.last)
        limits = self.leaving
        return min(
            (count for site, count in counts.items() if site not in limits or count < limits[site]),
            default=self.last,
        )

    # Sites that move

    def enter(self, now: Nanoseconds, site: Site) -> int:
        """A site gets all entries from the next one on; the last one before that."""
        self.left.pop(site, None)
        self.receivers = (*self.receivers, site)
        self._held[site] = self._done[site] = self.last
        self.moved_ns = now
        return self.last

    def leave(self, now: Nanoseconds, site: Site) -> int:
        """A site gets no entries after the last one; its number."""
        self.receivers = tuple(other for other in self.receivers if other != site)
        self.leaving[site] = self.last
        self._forget_left()
        self._recount()
        self.moved_ns = now
        return self.last

    def _forget_left(self) -> list[Site]:
        found = [site for site, limit in self.leaving.items() if limit <= self.settled]
        for site in found:
            self.left[site] = self.leaving.pop(site)
            del self._held[site], self._done[site]
        return found

    def bounds(self, site: Site) -> tuple[int, int, int]:
        """The last entry, and both marks, as far as they concern a site."""
        limit = self.left.get(site, self.leaving.get(site, self.last))
        return min(self.last, limit), min(self.ready, limit), min(self.settled, limit)

    def place_before(self, seq: int, end: int) -> int:
        """The last place such that this channel has no entry up to it beyond `seq`."""
        return end if seq >= self.last else self._places[seq + 1 - self.first] - 1

    def advance_ready(self, place: int) -> None:
        """Everything up to this place of the order is ready."""
        self.ready = self._count_up_to(self.ready, place)

    def advance_settled(self, place: int) -> list[Site]:
        """Everything up to this place of the order is settled; forget it. Returns the sites that have left
        by now."""
        self.settled = self._count_up_to(self.settled, place)
        while self.first <= self.settled:
            self._places.popleft()
            self.first += 1
        return self._forget_left() if self.leaving else []

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

    def __init__(self, channel: int, source: Site, reach: int, after: int = 0) -> None:
        """The first entry is the one with the number `after` + 1."""
        self.channel = channel
        self.source = source
        self._reach = reach
        """Entries beyond the next one that are kept."""
        self._early: dict[int, Batch] = {}
        self.next_seq = after + 1
        self.known = after
        """The last entry that is known to exist."""
        self.ready = after
        self.settled = after
        self.told_held = after
        self.told_done = after
        self.asked_ns: Nanoseconds = -1

    def on_entry(self, pdu: Entry | Token) -> list[Batch]:
        """An entry has come; returns what is in order now."""
        self.on_mark(pdu.seq, pdu.ready, pdu.settled)
        if not self.next_seq <= pdu.seq < self.next_seq + self._reach:
            return []
        name = (pdu.sender, pdu.incarnation, pdu.number)
        batch = (
            Batch(*name, len(pdu.bodies), pdu.group, pdu.bodies, pdu.moves)
            if isinstance(pdu, Entry)
            else Batch(*name, pdu.count, pdu.group, None)
        )
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
