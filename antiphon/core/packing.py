"""Bodies of consecutive messages in one piece of memory, with a table of their lengths.

The messages that an application hands in at once travel, are kept and are delivered as one batch. It is
packed once, passes through protocols unopened, and a body is cut out only when it is read. On the wire a
batch is a count, the bodies' lengths and the bodies, all integers of 32 bits, little-endian. The highest bit
of the count says that the last body is unfinished: it continues with the first body of the sender's next
batch. The next bit says that the first body continues the one before. That is how a message longer than a PDU
travels; each of its pieces has its own number.

The bit after that says that the messages are addressed: between the lengths and the bodies is a table,
preceded by its length, of the destination sets that occur and of the set of each message. So messages for
different members can travel together, through any protocol, and each member delivers those for its site.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import Final, NamedTuple, TypeAlias, overload

import msgspec

from antiphon.core.ids import Site

COUNT: Final = struct.Struct("<I")
LENGTH_BYTES: Final = 4
UNFINISHED: Final = 1 << 31
CONTINUING: Final = 1 << 30
ADDRESSED: Final = 1 << 29
COUNT_MASK: Final = ADDRESSED - 1
MOST_SETS: Final = 256
"""Different destination sets in one batch: the index of a set takes one byte per message."""
NAME_WEIGHT: Final = 128
"""Bytes of memory that a site's name in a set takes, roughly."""

Destinations: TypeAlias = frozenset[Site] | None
"""The destinations of a message; None means the whole group."""


class Addresses(NamedTuple):
    """The destinations of each message of a batch: an index into `sets`."""

    sets: list[Destinations]
    which: bytes

    def each(self) -> list[Destinations]:
        return [self.sets[which] for which in self.which]


def overhead_bytes(count: int) -> int:
    """Bytes that packing adds to this many bodies."""
    return COUNT.size + LENGTH_BYTES * count


class Packed(Sequence[bytes]):
    """A batch of at least one body. Reads as a sequence of bytes; equal to any sequence of equal bodies.

    It may lie at the end of a larger buffer, such as the datagram that brought it: the buffer is kept, and
    nothing is copied.
    """

    __slots__ = (
        "_begin", "_lengths", "addresses", "continuing", "data", "messages", "size", "unfinished", "weight",
    )  # fmt: skip

    def __init__(self, data: bytes, begin: int = 0, lengths: "array[int] | None" = None) -> None:
        """Parse a batch as it travels, from `begin` to the end; raises ValueError if it makes no sense.

        A caller that has just made it may pass the lengths; then they are not read and checked.
        """
        if len(data) - begin < COUNT.size:
            raise ValueError("a batch without a count")
        (head,) = COUNT.unpack_from(data, begin)
        self.data: Final = data
        self._begin: Final = begin
        self.messages: Final[int] = head & COUNT_MASK
        """The number of bodies: the same as `len`, and faster."""
        self.unfinished: Final = head >= UNFINISHED
        self.continuing: Final = bool(head & CONTINUING)
        table = begin + COUNT.size + LENGTH_BYTES * self.messages
        self.addresses: Final = _read_table(data, table, self.messages) if head & ADDRESSED else None
        """The destinations of each message, if the batch is addressed."""
        self.size: Final[int] = len(data) - table - (_table_bytes(data, table) if head & ADDRESSED else 0)
        self._lengths: Final = self._read_lengths() if lengths is None else lengths
        self.weight: Final[int] = len(data) - begin + _names_weight(self.addresses)
        """The memory that a batch counts for in a buffer: empty bodies take some, too."""

    def _read_lengths(self) -> "array[int]":
        if self.messages < 1 or self.size < 0:
            raise ValueError("a batch whose count does not fit it")
        begin = self._begin + COUNT.size
        lengths = array("I", self.data[begin : begin + LENGTH_BYTES * self.messages])
        if sys.byteorder == "big":
            lengths.byteswap()
        if sum(lengths) != self.size:
            raise ValueError("a batch whose lengths do not fit it")
        return lengths

    def __len__(self) -> int:
        return self.messages

    def __iter__(self) -> Iterator[bytes]:
        # All of it in C: a generator would cost more per body than the cut itself.
        offsets = self.offsets()
        return map(self.data.__getitem__, map(slice, offsets, offsets[1:]))

    def offsets(self) -> list[int]:
        """Where in `data` each body begins, and where the last body ends: to read bodies in place."""
        return list(accumulate(self._lengths, initial=len(self.data) - self.size))

    def places_for(self, site: Site) -> Sequence[int]:
        """The indices of the messages for a site."""
        if self.addresses is None:
            return range(self.messages)
        mine = [destinations is None or site in destinations for destinations in self.addresses.sets]
        return [place for place, which in enumerate(self.addresses.which) if mine[which]]

    def runs(self) -> Iterator[tuple[int, int, Destinations]]:
        """Runs of messages with the same destinations: the first index, the count, the destinations."""
        if self.addresses is None:
            yield 0, self.messages, None
            return
        place = 0
        for which, same in groupby(self.addresses.which):
            count = sum(1 for _ in same)
            yield place, count, self.addresses.sets[which]
            place += count

    def wire(self) -> bytes | memoryview:
        """The batch as it travels."""
        return memoryview(self.data)[self._begin :] if self._begin else self.data

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return list(self)[index]
        place = range(self.messages)[index]
        begin = len(self.data) - self.size + sum(self._lengths[:place])
        return self.data[begin : begin + self._lengths[place]]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Packed):
            return self.wire() == other.wire()
        return isinstance(other, Sequence) and len(other) == self.messages and list(other) == list(self)

    def __hash__(self) -> int:
        return hash(bytes(self.wire()))

    def __repr__(self) -> str:
        return f"Packed({self.messages} bodies, {self.size} bytes)"


def consecutive(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Places in ascending order as stretches without gaps: the first, and how many.

    >>> list(consecutive([0, 1, 4, 6, 7]))
    [(0, 2), (4, 1), (6, 2)]
    """
    if isinstance(places, range):
        yield places.start, len(places)
        return
    begin = count = 0
    for place in places:
        if count and place == begin + count:
            count += 1
            continue
        if count:
            yield begin, count
        begin, count = place, 1
    if count:
        yield begin, count


def _names_weight(addresses: Addresses | None) -> int:
    if addresses is None:
        return 0
    return NAME_WEIGHT * sum(len(destinations) for destinations in addresses.sets if destinations)


def _table_bytes(data: bytes, begin: int) -> int:
    (length,) = COUNT.unpack_from(data, begin)
    return COUNT.size + int(length)


def _read_table(data: bytes, begin: int, count: int) -> Addresses:
    """ValueError if the table of addresses makes no sense."""
    try:
        table = data[begin + COUNT.size : begin + _table_bytes(data, begin)]
        addresses = msgspec.msgpack.decode(table, type=Addresses)
    except (struct.error, msgspec.MsgspecError) as error:
        raise ValueError("a batch whose addresses cannot be read") from error
    sets, which = addresses
    if len(which) != count or len(sets) > MOST_SETS or max(which) >= len(sets):
        raise ValueError("a batch whose addresses do not fit it")
    return addresses


def _table(addresses: Sequence[Destinations]) -> bytes:
    """The table of addresses as it travels, its length before it."""
    places: dict[Destinations, int] = {}
    which = bytes([places.setdefault(destinations, len(places)) for destinations in addresses])
    sets = [None if destinations is None else sorted(destinations) for destinations in places]
    table = msgspec.msgpack.encode((sets, which))
    return COUNT.pack(len(table)) + table


def pack(
    bodies: Iterable[bytes],
    *,
    unfinished: bool = False,
    continuing: bool = False,
    addresses: Sequence[Destinations] | None = None,
) -> Packed:
    """One batch of these bodies, perhaps each with its own destinations; a batch stays as it is.

    >>> list(pack([b"a", b"", b"bc"]))
    [b'a', b'', b'bc']
    """
    if type(bodies) is Packed:
        return bodies
    pieces = list(bodies)
    lengths = array("I", map(len, pieces))
    flags = (UNFINISHED if unfinished else 0) | (CONTINUING if continuing else 0)
    if addresses is not None:
        return _pack(lengths, flags | ADDRESSED, [_table(addresses), *pieces])
    return _pack(lengths, flags, pieces)


def pack_records(records: memoryview, size: int, addressed_to: Destinations = None) -> Packed:
    """One batch of bodies of one size that lie one after another, for all members or for some.

    >>> list(pack_records(memoryview(b"abcd"), 2))
    [b'ab', b'cd']
    """
    lengths = array("I", [size]) * (len(records) // size)
    if addressed_to is not None:
        return _pack(lengths, ADDRESSED, [_table([addressed_to] * len(lengths)), records])
    return _pack(lengths, 0, [records])


def _pack(lengths: "array[int]", flags: int, pieces: Sequence[bytes | memoryview]) -> Packed:
    head = COUNT.pack(len(lengths) | flags)
    return Packed(b"".join([head, _little_endian(lengths), *pieces]), 0, lengths)


def _little_endian(lengths: "array[int]") -> bytes:
    if sys.byteorder == "big":
        lengths = array("I", lengths)
        lengths.byteswap()
    return lengths.tobytes()
