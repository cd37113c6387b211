"""How numbers travel in a few bytes: bitmaps, variable-length integers, and vectors as differences.

A vector of n numbers, one for each member in the sender's table, is a byte that names its form and then:

- `PLAIN`, the paper's form: n integers of eight bytes.
- `DIFFERENCES`: a bitmap of the entries that are sent, and of each of these as many of its low bits as the
  reader needs. Entries never fall. A reader knows an earlier value of each, and the writer knows a floor that
  no reader's value lies below. If an entry is less than 2^(7g) above the floor, its low 7g bits tell the
  reader which number it is: the first one from its own value on that has these bits. Entries on the floor are
  left out, since then every reader has the same value.

With a floor of zeros, each entry that is not zero is an ordinary variable-length integer.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from antiphon.core.fields import NUMBER_LIMIT

LARGEST: Final = NUMBER_LIMIT
"""Every number of a peer is below this, so that there is always room to count on, here and on the wire."""
PLAIN: Final = 0
DIFFERENCES: Final = 1
GROUP_BITS: Final = 7
MORE: Final = 0x80
MOST_GROUPS: Final = 8
"""Groups of seven bits that hold every number below `LARGEST`. Raising it lets longer numbers in."""
ENTRY_BYTES: Final = 8


class MalformedError(ValueError):
    """Bytes of a peer that cannot be read; never leaves this package."""


def pack_bitmap(chosen: Iterable[int], length: int) -> bytes:
    """A bit for each of `length` positions, set for those chosen."""
    bits = 0
    for position in chosen:
        bits |= 1 << position
    return bits.to_bytes((length + 7) // 8, "little")


def read_bitmap(data: bytes, offset: int, length: int) -> tuple[list[int], int]:
    """The positions chosen, and where the bitmap ends."""
    end = offset + (length + 7) // 8
    bits = int.from_bytes(data[offset:end], "little")
    if end > len(data) or bits >> length:
        raise MalformedError("a bitmap that does not fit its table")
    return [position for position in range(length) if bits >> position & 1], end


def pack_numbers(numbers: Iterable[int]) -> bytes:
    """Each number in groups of seven bits, lowest first."""
    packed = bytearray()
    for number in numbers:
        _append_low_bits(packed, number, number)
    return bytes(packed)


def read_numbers(data: bytes, offset: int, count: int) -> tuple[list[int], int]:
    """That many numbers, and where they end."""
    end = offset + count
    if max(data[offset:end], default=0) < MORE and end <= len(data):
        return list(data[offset:end]), end
    numbers = []
    for _ in range(count):
        number, _, offset = _read_groups(data, offset)
        if number >= LARGEST:
            raise MalformedError("a number beyond all numbers")
        numbers.append(number)
    return numbers, offset


def pack_plain(values: Sequence[int]) -> bytes:
    """The paper's form: every entry, in eight bytes each."""
    return bytes([PLAIN]) + struct.pack(f"<{len(values)}q", *values)


def pack_differences(values: Sequence[int], floors: Sequence[int]) -> bytes:
    """The entries above the floor, for readers that know at least the floor."""
    bits = 0
    packed = bytearray()
    for position, (value, floor) in enumerate(zip(values, floors, strict=True)):
        if value > floor:
            bits |= 1 << position
            _append_low_bits(packed, value, value - floor)
    return bytes([DIFFERENCES]) + bits.to_bytes((len(values) + 7) // 8, "little") + packed


def pack_whole(values: Sequence[int]) -> bytes:
    """Every entry that is not zero, for readers that know nothing."""
    return pack_differences(values, [0] * len(values))


def read_vector(data: bytes, known: Sequence[int]) -> list[int]:
    """The entries, for a reader that knows these earlier values; raises `MalformedError`."""
    if not data:
        raise MalformedError("a vector without a form")
    if data[0] == PLAIN:
        return _read_plain(data, len(known))
    if data[0] != DIFFERENCES:
        raise MalformedError("a vector in no form that is known")
    told, offset = read_bitmap(data, 1, len(known))
    values = list(known)
    if len(data) - offset == len(told) and max(data[offset:], default=0) < MORE:
        # The usual case: one group each.
        for position, low in zip(told, data[offset:], strict=True):
            values[position] += (low - values[position]) % MORE
    else:
        for position in told:
            low, groups, offset = _read_groups(data, offset)
            values[position] += (low - values[position]) % (1 << GROUP_BITS * groups)
        if offset != len(data):
            raise MalformedError("a vector with something behind it")
    if max(values, default=0) >= LARGEST:
        raise MalformedError("a vector beyond all numbers")
    return values


def _read_plain(data: bytes, length: int) -> list[int]:
    if len(data) != 1 + ENTRY_BYTES * length:
        raise MalformedError("a vector that does not fit its table")
    values = list(struct.unpack_from(f"<{length}q", data, 1))
    if any(not 0 <= value < LARGEST for value in values):
        raise MalformedError("a vector beyond all numbers")
    return values


def _append_low_bits(packed: bytearray, value: int, above: int) -> None:
    """Append as many groups of the value's low bits as hold every number up to `above`."""
    while above >= MORE:
        packed.append(value & (MORE - 1) | MORE)
        value >>= GROUP_BITS
        above >>= GROUP_BITS
    packed.append(value & (MORE - 1))


def _read_groups(data: bytes, offset: int) -> tuple[int, int, int]:
    """A number, how many groups it has, and where it ends."""
    number = 0
    for group, byte in enumerate(data[offset : offset + MOST_GROUPS]):
        number |= (byte & (MORE - 1)) << GROUP_BITS * group
        if byte < MORE:
            return number, group + 1, offset + group + 1
    raise MalformedError("a number that does not end")
