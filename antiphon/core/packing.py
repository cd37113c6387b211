"""Bodies of consecutive messages in one piece of memory, with a table of their lengths.

What an application hands in at once travels, is kept and is delivered as one batch: it is packed once, goes
through protocols unopened, and a body is cut out only when somebody asks for it. On the wire a batch is a
count, the bodies' lengths and the bodies, all integers of 32 bits, little-endian. The highest bit of the
count says that the last body is unfinished: it goes on with the first body of the sender's next batch. The
next bit says that the first body continues the one before. That is how a message longer than a PDU travels;
each of its pieces has a number of its own.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, overload

COUNT: Final = struct.Struct("<I")
LENGTH_BYTES: Final = 4
UNFINISHED: Final = 1 << 31
CONTINUING: Final = 1 << 30
COUNT_MASK: Final = CONTINUING - 1


def overhead_bytes(count: int) -> int:
    """What packing adds to that many bodies."""
    return COUNT.size + LENGTH_BYTES * count


class Packed(Sequence[bytes]):
    """A batch of at least one body. Reads as a sequence of bytes; equal to any sequence of equal bodies.

    It may stand at the end of something longer, such as the datagram that brought it: then that is kept, and
    nothing is copied.
    """

    __slots__ = ("_begin", "_count", "_lengths", "continuing", "data", "size", "unfinished")

    def __init__(self, data: bytes, begin: int = 0, lengths: "array[int] | None" = None) -> None:
        """Takes a batch as it travels, from `begin` to the end; raises ValueError if it makes no sense.

        Whoever has just made it may say what the lengths are; then they need not be read and checked.
        """
        if len(data) - begin < COUNT.size:
            raise ValueError("a batch without a count")
        (head,) = COUNT.unpack_from(data, begin)
        self.data: Final = data
        self._begin: Final = begin
        self._count: Final[int] = head & COUNT_MASK
        self.unfinished: Final = head >= UNFINISHED
        self.continuing: Final = bool(head & CONTINUING)
        self.size: Final[int] = len(data) - begin - COUNT.size - LENGTH_BYTES * self._count
        self._lengths: Final = self._read_lengths() if lengths is None else lengths

    def _read_lengths(self) -> "array[int]":
        if self._count < 1 or self.size < 0:
            raise ValueError("a batch whose count does not fit it")
        lengths = array("I", self.data[self._begin + COUNT.size : len(self.data) - self.size])
        if sys.byteorder == "big":
            lengths.byteswap()
        if sum(lengths) != self.size:
            raise ValueError("a batch whose lengths do not fit it")
        return lengths

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        # All of it in C: a generator would cost more a body than cutting it out does.
        offsets = self.offsets()
        return map(self.data.__getitem__, map(slice, offsets, offsets[1:]))

    def offsets(self) -> list[int]:
        """Where in `data` each body begins, and where the last one ends: to read bodies in place."""
        return list(accumulate(self._lengths, initial=len(self.data) - self.size))

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
        place = range(self._count)[index]
        begin = len(self.data) - self.size + sum(self._lengths[:place])
        return self.data[begin : begin + self._lengths[place]]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Packed):
            return self.wire() == other.wire()
        return isinstance(other, Sequence) and len(other) == self._count and list(other) == list(self)

    def __hash__(self) -> int:
        return hash(bytes(self.wire()))

    def __repr__(self) -> str:
        return f"Packed({self._count} bodies, {self.size} bytes)"


def pack(bodies: Iterable[bytes], *, unfinished: bool = False, continuing: bool = False) -> Packed:
    """One batch of these bodies; a batch stays as it is.

    >>> list(pack([b"a", b"", b"bc"]))
    [b'a', b'', b'bc']
    """
    if isinstance(bodies, Packed):
        return bodies
    pieces = list(bodies)
    lengths = array("I", map(len, pieces))
    flags = (UNFINISHED if unfinished else 0) | (CONTINUING if continuing else 0)
    head = COUNT.pack(len(pieces) | flags)
    return Packed(b"".join([head, _little_endian(lengths), *pieces]), 0, lengths)


def pack_records(records: memoryview, size: int) -> Packed:
    """One batch of bodies of one size that lie one after another.

    >>> list(pack_records(memoryview(b"abcd"), 2))
    [b'ab', b'cd']
    """
    lengths = array("I", [size]) * (len(records) // size)
    return Packed(b"".join([COUNT.pack(len(lengths)), _little_endian(lengths), records]), 0, lengths)


def _little_endian(lengths: "array[int]") -> bytes:
    if sys.byteorder == "big":
        lengths = array("I", lengths)
        lengths.byteswap()
    return lengths.tobytes()
