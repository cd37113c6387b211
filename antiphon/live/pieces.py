"""Messages longer than a PDU: cut into pieces on the way out, put together again on the way in, bounded."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from antiphon.core.ids import Group, Site
from antiphon.core.packing import (
    LENGTH_BYTES,
    MOST_SETS,
    Destinations,
    Packed,
    overhead_bytes,
    pack,
    pack_records,
)

BATCH_BYTES: Final = 261_200
"""A packed batch has at most this many bytes, so that with its headers it fits four datagrams of 65,507.

What a batch costs beside its bytes is shared by more messages the larger it is.
"""
SMALL_BATCH_BYTES: Final = 64_900
"""The same for one such datagram: the most where a receiver's buffer is small."""
LARGEST_RECORD_BYTES: Final = SMALL_BATCH_BYTES - overhead_bytes(1)
LARGEST_MESSAGE_BYTES: Final = 16 << 20
ADDRESS_BYTES: Final = 16
"""What a table of addresses takes at most beside the names and a byte a message."""
NAME_BYTES: Final = 5
"""What a name or a list of names takes at most beside its characters."""
MIXING: Final = 3
"""Messages for different members travel together while that is at most so many times the traffic."""
MOST_ORPHANS: Final = 4
"""Unfinished messages of senders that have vanished, kept in case they come back. Raising it costs memory."""
LEAST_PIECE_BYTES: Final = 64
"""What a piece counts for at least: empty ones take memory, too."""
MOST_UNFINISHED: Final = 1024
"""Senders with an unfinished message; beyond that the one that was not added to for longest is given up."""
MOST_UNFINISHED_BYTES: Final = 1 << 30
"""The same for all of their pieces together. Raising it costs memory."""


def records_per_batch(size: int, batch_bytes: int, addressed_to: Destinations = None) -> int:
    """How many bodies of this size fit one batch."""
    room = batch_bytes - overhead_bytes(0)
    if addressed_to is None:
        return room // (size + LENGTH_BYTES)
    return (room - ADDRESS_BYTES - names_bytes(addressed_to)) // (size + LENGTH_BYTES + 1)


def cut(body: bytes, batch_bytes: int, addressed_to: Destinations = None) -> Iterator[Packed]:
    """The batches, of one piece each, that carry a long body."""
    addresses = None if addressed_to is None else [addressed_to]
    taken = 0 if addressed_to is None else ADDRESS_BYTES + names_bytes(addressed_to) + 1
    most = batch_bytes - overhead_bytes(1) - taken
    last = (len(body) - 1) // most
    for place in range(last + 1):
        piece = body[place * most : (place + 1) * most]
        yield pack([piece], unfinished=place < last, continuing=place > 0, addresses=addresses)


def names_bytes(destinations: frozenset[Site]) -> int:
    """What the names of destinations take at most."""
    return NAME_BYTES + sum(len(site.encode()) + NAME_BYTES for site in destinations)


class Parcel(NamedTuple):
    """A batch on its way to the protocol, to whom it goes as a whole, and to which group."""

    bodies: Packed
    destinations: Destinations = None
    group: Group | None = None


class Outgoing:
    """Bodies on their way to the protocol: collected, then packed into as few batches as will do.

    Messages for different members travel together. Most protocols multicast to all anyway. One that sends to
    the destinations only (`selective`) sends a batch to all that any of its messages is for, so that messages
    are put together only while that costs less than a few times what each by itself would.
    """

    def __init__(self, batch_bytes: int = BATCH_BYTES, *, selective: bool = False) -> None:
        self.size = 0
        """Bytes that wait, packed or not, with what the length of each takes: empty bodies count, too."""
        self._batch_bytes = batch_bytes
        self._most_room = batch_bytes - overhead_bytes(0)
        self._selective = selective
        self._group: Group | None = None
        """The group that the open batch goes to, where there are several."""
        self._parcels: deque[Parcel] = deque()
        self._open()

    def _open(self) -> None:
        self._bodies: list[bytes] = []
        self._addresses: list[Destinations] = []
        self._sets: set[Destinations] = set()
        self._union: set[Site] = set()
        self._room = self._most_room
        self._apart = 0
        """Bytes times destinations if each message went by itself."""
        self._together = 0
        """Bytes in all."""

    def limit(self, batch_bytes: int) -> None:
        """From the next batch on, none is larger than this."""
        self._batch_bytes = batch_bytes
        self._most_room = batch_bytes - overhead_bytes(0)

    def add(self, bodies: Iterable[bytes], to: Destinations = None, group: Group | None = None) -> int:
        """Take bodies; how many numbers they use."""
        if group != self._group:
            self._close()
            self._group = group
        numbers = 0
        for body in bodies:
            self.size += len(body) + LENGTH_BYTES
            if not self._fits(len(body), to):
                self._close()
                if not self._fits(len(body), to):
                    numbers += self._cut(body, to)
                    continue
            numbers += 1
            self._bodies.append(body)
            self._addresses.append(to)
        return numbers

    def _fits(self, length: int, to: Destinations) -> bool:
        """Whether the open batch takes one more message; then room is made for it."""
        room = self._room - length - LENGTH_BYTES
        if to is not None or self._sets:
            room -= self._room_for_address(length, to)
        if room < 0:
            return False
        self._room = room
        if to is not None:
            self._sets.add(to)
            self._union |= to
            self._together += length
            self._apart += length * len(to)
        return True

    def _room_for_address(self, length: int, to: Destinations) -> int:
        """What naming its destinations takes; more than there is if it should not travel with the others."""
        taken = 1
        if not self._sets:
            taken += ADDRESS_BYTES + len(self._bodies)
        if to is None or to in self._sets:
            return taken
        if len(self._sets) == MOST_SETS - 1:
            return self._batch_bytes
        if self._selective and self._bodies:
            together = (self._together + length) * len(self._union | to)
            if together > MIXING * (self._apart + length * len(to)):
                return self._batch_bytes
        return taken + names_bytes(to)

    def _cut(self, body: bytes, to: Destinations) -> int:
        """A body that fits no batch, piece by piece; how many."""
        named, whole = (None, to) if self._selective else (to, None)
        pieces = [Parcel(piece, whole, self._group) for piece in cut(body, self._batch_bytes, named)]
        self._parcels += pieces
        self.size += LENGTH_BYTES * (len(pieces) - 1)
        return len(pieces)

    def add_records(
        self, records: memoryview, size: int, to: Destinations = None, group: Group | None = None
    ) -> int:
        """Take bodies of one size that lie one after another; how many numbers they use.

        What fills no batch is taken body by body, so that it travels with what comes before and after it.
        """
        named, whole = (None, to) if self._selective else (to, None)
        share = records_per_batch(size, self._batch_bytes, named) * size
        full = len(records) // share * share
        if full:
            self._close()
            self._group = group
            self._parcels += (
                Parcel(pack_records(records[begin : begin + share], size, named), whole, group)
                for begin in range(0, full, share)
            )
            self.size += full + LENGTH_BYTES * (full // size)
        rest = records[full:]
        bodies = (bytes(rest[begin : begin + size]) for begin in range(0, len(rest), size))
        return full // size + self.add(bodies, to, group)

    def __bool__(self) -> bool:
        return bool(self._parcels or self._bodies)

    def first(self) -> Parcel:
        """The batch to go next; it stays until it is taken."""
        if not self._parcels:
            self._close()
        return self._parcels[0]

    def take(self) -> None:
        """The first batch is gone."""
        bodies = self._parcels.popleft().bodies
        self.size -= bodies.size + LENGTH_BYTES * bodies.messages

    def _close(self) -> None:
        if self._bodies:
            self._parcels.append(self._packed())
        self._open()

    def _packed(self) -> Parcel:
        if not self._sets:
            return Parcel(pack(self._bodies), None, self._group)
        if not self._selective:
            return Parcel(pack(self._bodies, addresses=self._addresses), None, self._group)
        addresses = self._addresses if len(self._sets) > 1 else None
        return Parcel(pack(self._bodies, addresses=addresses), frozenset(self._union), self._group)


class Partial(NamedTuple):
    """An unfinished message."""

    pieces: list[bytes]
    size: int
    expected: int
    """The number of the next piece."""
    first: int
    """The number of the first one."""


class Incoming:
    """Puts long messages together, sender by sender; at most one is under way of each."""

    def __init__(self) -> None:
        self.dropped = 0
        """Long messages that were given up: a piece was missed, or they went beyond the limit."""
        self.size = 0
        """Bytes of pieces that wait for the rest of their message."""
        self._partial: dict[Site, Partial] = {}
        """The one that was added to last comes last."""
        self._orphans: dict[Site, None] = {}

    def take(self, sender: Site, number: int, bodies: Packed) -> tuple[int, Packed] | None:
        """What of a batch is whole now, with the number of the first piece of it; None if nothing is.

        A batch that carries a piece carries nothing else.
        """
        if not bodies.continuing and not bodies.unfinished and sender not in self._partial:
            return number, bodies
        known = self._drop(sender)
        if known is not None and (not bodies.continuing or known.expected != number):
            self.dropped += 1
            known = None
        if not bodies.continuing:
            known = Partial([], 0, number, number)
        if known is None:
            return None  # the middle of a message whose beginning went by before we were here
        known.pieces.append(bodies[0])
        if not bodies.unfinished:
            return known.first, (pack([b"".join(known.pieces)]) if bodies.continuing else bodies)
        size = known.size + max(len(bodies[0]), LEAST_PIECE_BYTES)
        if size > LARGEST_MESSAGE_BYTES:
            self.dropped += 1
            return None
        self._keep(sender, Partial(known.pieces, size, number + len(bodies), known.first))
        return None

    def _keep(self, sender: Site, partial: Partial) -> None:
        self._partial[sender] = partial
        self.size += partial.size
        while len(self._partial) > MOST_UNFINISHED or self.size > MOST_UNFINISHED_BYTES:
            self._give_up(next(iter(self._partial)))

    def _drop(self, sender: Site) -> Partial | None:
        self._orphans.pop(sender, None)
        partial = self._partial.pop(sender, None)
        if partial is not None:
            self.size -= partial.size
        return partial

    def _give_up(self, sender: Site) -> None:
        self.dropped += self._drop(sender) is not None

    def vanish(self, sender: Site) -> None:
        """A sender is gone. It may come back and finish, so the latest few unfinished messages are kept."""
        if sender in self._partial:
            self._orphans.pop(sender, None)
            self._orphans[sender] = None
        while len(self._orphans) > MOST_ORPHANS:
            self._give_up(next(iter(self._orphans)))
