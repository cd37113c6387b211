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


def overhead_bytes(count: int) -> int:
    """What packing adds to that many bodies."""
    return COUNT.size + LENGTH_BYTES * count


class Packed(Sequence[bytes]):
    """A batch of at least one body. Reads as a sequence of bytes; equal to any sequence of equal bodies."""

    __slots__ = ("_count", "_lengths", "continuing", "data", "size", "unfinished")

    def __init__(self, data: bytes) -> None:
        """Takes a batch as it travels; raises ValueError if it makes no sense."""
        if len(data) < COUNT.size:
            raise ValueError("a batch without a count")
        (head,) = COUNT.unpack_from(data)
        self.data: Final = data
        self._count: Final[int] = head & ~(UNFINISHED | CONTINUING)
        self.unfinished: Final = bool(head & UNFINISHED)
        self.continuing: Final = bool(head & CONTINUING)
        self.size: Final = len(data) - overhead_bytes(self._count)
        if self._count < 1 or self.size < 0:
            raise ValueError("a batch whose count does not fit it")
        self._lengths = array("I", data[COUNT.size : -self.size or None])
        if sys.byteorder == "big":
            self._lengths.byteswap()
        if sum(self._lengths) != self.size:
            raise ValueError("a batch whose lengths do not fit it")

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        # All of it in C: a generator would cost more a body than cutting it out does.
        offsets = list(accumulate(self._lengths, initial=overhead_bytes(self._count)))
        return map(self.data.__getitem__, map(slice, offsets, offsets[1:]))

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return list(self)[index]
        place = range(self._count)[index]
        begin = overhead_bytes(self._count) + sum(self._lengths[:place])
        return self.data[begin : begin + self._lengths[place]]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Packed):
            return self.data == other.data
        return isinstance(other, Sequence) and len(other) == self._count and list(other) == list(self)

    def __hash__(self) -> int:
        return hash(self.data)

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
    if sys.byteorder == "big":
        lengths.byteswap()
    flags = (UNFINISHED if unfinished else 0) | (CONTINUING if continuing else 0)
    head = COUNT.pack(len(pieces) | flags)
    return Packed(b"".join([head, lengths.tobytes(), *pieces]))
