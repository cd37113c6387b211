"""Messages longer than a PDU: cut into pieces by the sender, put together by the receiver, bounded."""

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
"""Largest packed batch: with its headers it fits four datagrams of 65,507 bytes.

Raising it spreads the cost of a batch over more messages, and costs latency.
"""
SMALL_BATCH_BYTES: Final = 64_900
"""The same for one such datagram: the largest batch where a receiver's buffer is small."""
LARGEST_RECORD_BYTES: Final = SMALL_BATCH_BYTES - overhead_bytes(1)
LARGEST_MESSAGE_BYTES: Final = 16 << 20
ADDRESS_BYTES: Final = 16
"""Largest size of a table of addresses, without the names and one byte per message."""
NAME_BYTES: Final = 5
"""Largest overhead of a name or of a list of names, without its characters."""
MIXING: Final = 3
"""Messages for different members share a batch while that multiplies the traffic by at most this."""
MOST_ORPHANS: Final = 4
"""Unfinished messages of departed senders, kept in case they return. Raising it costs memory."""
LEAST_PIECE_BYTES: Final = 64
"""Bytes that a piece counts for at least: empty pieces take memory, too."""
MOST_UNFINISHED: Final = 1024
"""Senders with an unfinished message. Beyond that the least recently extended message is given up."""
MOST_UNFINISHED_BYTES: Final = 1 << 30
"""Bytes of all unfinished messages together. Raising it costs memory."""


def records_per_batch(size: int, batch_bytes: int, addressed_to: Destinations = None) -> int:
    """The number of bodies of this size that fit one batch."""
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
    """The largest size of the destinations' names."""
    return NAME_BYTES + sum(len(site.encode()) + NAME_BYTES for site in destinations)


class Parcel(NamedTuple):
    """A batch for the protocol, its destinations as a whole, and its group."""

    bodies: Packed
    destinations: Destinations = None
    group: Group | None = None


class Outgoing:
    """Bodies on their way to the protocol: collected, then packed into as few batches as possible.

    Messages for different members travel together, since most protocols multicast to all anyway. A
    `selective` protocol sends a batch to every destination of any of its messages, so messages are combined
    only while that costs no more than a small multiple of sending each by itself.
    """

    def __init__(self, batch_bytes: int = BATCH_BYTES, *, selective: bool = False) -> None:
        self.size = 0
        """Bytes that wait, packed or not, with their length fields: empty bodies count, too."""
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
        """Bytes times destinations if each message travelled by itself."""
        self._together = 0
        """Bytes in total."""

    def limit(self, batch_bytes: int) -> None:
        """Limit the size of later batches."""
        self._batch_bytes = batch_bytes
        self._most_room = batch_bytes - overhead_bytes(0)

    def add(self, bodies: Iterable[bytes], to: Destinations = None, group: Group | None = None) -> int:
        """Add bodies. Returns how many numbers they use."""
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
        """Whether the open batch takes one more message; if so, room is reserved for it."""
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
        """Bytes that naming its destinations takes; more than there are if it should travel separately."""
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
        """Add a body that fits no batch, piece by piece. Returns the number of pieces."""
        named, whole = (None, to) if self._selective else (to, None)
        pieces = [Parcel(piece, whole, self._group) for piece in cut(body, self._batch_bytes, named)]
        self._parcels += pieces
        self.size += LENGTH_BYTES * (len(pieces) - 1)
        return len(pieces)

    def add_records(
        self, records: memoryview, size: int, to: Destinations = None, group: Group | None = None
    ) -> int:
        """Add bodies of one size that lie one after another. Returns how many numbers they use.

        What does not fill a batch is added body by body, so that it travels with its neighbours.
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
        """The next batch; it stays until `take`."""
        if not self._parcels:
            self._close()
        return self._parcels[0]

    def take(self) -> None:
        """Remove the first batch."""
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
    """The number of the first piece."""


class Incoming:
    """Puts long messages together, one at a time for each sender."""

    def __init__(self) -> None:
        self.dropped = 0
        """Long messages that were given up: a piece was missed, or they exceeded the limit."""
        self.size = 0
        """Bytes of pieces that wait for the rest of their message."""
        self._partial: dict[Site, Partial] = {}
        """Ordered by the last addition, the latest at the end."""
        self._orphans: dict[Site, None] = {}

    def take(self, sender: Site, number: int, bodies: Packed) -> tuple[int, Packed] | None:
        """The complete messages of a batch and the number of their first piece; None if there are none.

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
            return None  # the middle of a message that began before we were here
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
        """A sender is gone. It may return and finish, so the latest few unfinished messages are kept."""
        if sender in self._partial:
            self._orphans.pop(sender, None)
            self._orphans[sender] = None
        while len(self._orphans) > MOST_ORPHANS:
            self._give_up(next(iter(self._orphans)))
