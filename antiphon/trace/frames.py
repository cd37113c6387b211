"""The format of live segments: frames with checksums that hold one site's rows in binary.

A segment is eight bytes of magic, then frames. A frame is the length of its content and its kind, then the
content, then a checksum; all integers are little-endian. `docs/trace.md` has the format in full.

A reader stops at the first frame that is short or has a wrong checksum: a killed process or a full disk left
it, and nothing after it counts. Wrong content under a correct checksum was written that way, and is an
`InputError`.
"""

import hashlib
import re
import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, Annotated, Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from antiphon.core.errors import InputError
from antiphon.core.ids import Group, Site

SUFFIX: Final = ".segment"
MAGIC: Final = b"antiseg\x01"
"""The last byte is the version of the format."""
HEAD: Final = struct.Struct("<II")
"""Length of the content, kind of frame."""
LENGTH: Final = struct.Struct("<I")
CHECKSUM: Final = struct.Struct("<I")
FRAME_BYTES: Final = HEAD.size + CHECKSUM.size
"""What a frame adds to its content."""
RESIDUE: Final = 0x2144DF1C
"""The CRC-32 of any data followed by its own CRC-32. Each frame's checksum starts from this value, so that a
run of intact frames has this CRC too: many frames are checked in one call, and one by one if that fails."""

BEGIN, DEFINITIONS, ROWS, END = 1, 2, 3, 4
"""Kinds of frames."""

ROW: Final = struct.Struct("<qqiiIHBx")
ROW_TYPE: Final = np.dtype(
    [
        ("time_ns", "<i8"),
        ("number", "<i8"),
        ("count", "<i4"),
        ("size", "<i4"),
        ("address", "<u4"),
        ("sender", "<u2"),
        ("kind", "u1"),
        ("spare", "u1"),
    ]
)
"""A row. Number and size are -1 where absent, sender and address 0; the step follows from its place."""
NONE: Final = -1

MOST_SENDERS: Final = (1 << 16) - 1
"""Names that the codes of one segment can hold."""
MOST_CONTENT_BYTES: Final = 16 << 20
"""The largest frame; a greater length counts as damage, as a wrong checksum does."""
BLOCK_BYTES: Final = 16 << 20
"""Bytes of a segment read at a time. Raising it costs memory."""

_DAMAGED_HINT: Final = "The file was damaged or is not a segment: copy it again, or move it out of events/."
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9]+")
_SAFE_LENGTH: Final = 40

Array = np.ndarray[Any, Any]
Content = TypeVar("Content")
Address = tuple[Group | None, list[Site] | None]


class Begin(msgspec.Struct, frozen=True, gc=False):
    """The first frame: the run and site of the rows, their first step, and the site's next own number.

    With `after_absence` the log before broke off, and the step before `first_step` is that absence.
    """

    run: str
    site: Site
    first_step: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
    next_number: Annotated[int, msgspec.Meta(ge=0)] = 0
    after_absence: bool = False


class Definitions(msgspec.Struct, frozen=True, gc=False):
    """Names that later rows use; codes count from 1 through all such frames of the segment."""

    senders: list[Site] = []
    addresses: list[Address] = []


class Block(NamedTuple):
    """Consecutive whole frames of a segment."""

    definitions: list[Definitions]
    rows: Array
    is_end: bool
    """Whether the closing frame was among them."""


def checksum(data: bytes | memoryview) -> int:
    """The checksum of a frame's head and content; `RESIDUE` for frames with their checksums."""
    return zlib.crc32(data, RESIDUE)


def encoded(kind: int, content: bytes) -> bytes:
    """One frame."""
    frame = HEAD.pack(len(content), kind) + content
    return frame + CHECKSUM.pack(checksum(frame))


def safe_name(name: str, *scope: str) -> str:
    """A recognisable and unique file name: letters, digits and a digest.

    >>> safe_name("alice", "orders")
    'alice-01b58db990'
    """
    readable = _UNSAFE.sub("-", name)[:_SAFE_LENGTH].strip("-") or "unnamed"
    digest = hashlib.blake2b(msgspec.json.encode([*scope, name]), digest_size=5).hexdigest()
    return f"{readable}-{digest}"


def read_begin(path: Path, file: IO[bytes]) -> Begin | None:
    """Read a segment's first frame; None if it was never written whole."""
    magic = file.read(len(MAGIC))
    if magic != MAGIC[: len(magic)]:
        if magic[:-1] == MAGIC[:-1]:
            hint = "Read it with the version of Antiphon that wrote it, or a later one."
            raise InputError(f"The segment {path} has version {magic[-1]} of the format.", hint)
        raise InputError(f"{path} is not a segment of a live trace.", _DAMAGED_HINT)
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    length, kind = HEAD.unpack(head)
    rest = file.read(min(length, MOST_CONTENT_BYTES) + CHECKSUM.size)
    if len(rest) < length + CHECKSUM.size and length <= MOST_CONTENT_BYTES:
        return None
    if kind != BEGIN or checksum(head + rest) != RESIDUE:
        raise InputError(f"The first frame of the segment {path} is damaged.", _DAMAGED_HINT)
    return _decoded(path, rest[:length], Begin)


def read_blocks(path: Path, file: IO[bytes], size: int | None = None) -> Iterator[Block]:
    """The frames after the first, in a file of `size` bytes, up to the first that is not whole."""
    left = None if size is None else max(size - file.tell(), 0)
    pending = b""
    senders = addresses = 0
    while True:
        wanted = BLOCK_BYTES if left is None else min(BLOCK_BYTES, left)
        fresh = file.read(wanted)
        if not fresh:
            return
        left = None if left is None else left - len(fresh)
        data = pending + fresh
        block, used, is_over = _block(path, data)
        senders += sum(len(definitions.senders) for definitions in block.definitions)
        addresses += sum(len(definitions.addresses) for definitions in block.definitions)
        require_defined(path, block.rows, senders, addresses)
        yield block
        if is_over:
            return
        pending = data[used:]


class Frames(NamedTuple):
    """Whole frames at the start of some bytes: where each ends, and the rows up to there."""

    ends: Array
    rows: Array

    def within(self, rows: int) -> int:
        """How many of the frames hold at most `rows` rows together; 1 or more, if there are any."""
        return max(int(np.searchsorted(self.rows, rows, "right")), min(len(self.ends), 1))


def whole_frames(data: bytes) -> Frames:
    """The frames at the start of some bytes, up to the first that is not whole."""
    edges, _ = _edges(data)
    whole = _count_whole(memoryview(data), edges)
    starts, ends = np.array(edges[:whole], np.int64), np.array(edges[1 : whole + 1], np.int64)
    kinds = _at(data, starts + LENGTH.size, np.dtype("<u4"))
    rows = np.where(kinds == ROWS, (ends - starts - FRAME_BYTES) // ROW.size, 0)
    return Frames(ends, np.cumsum(rows))


def block_of(path: Path, data: bytes) -> Block:
    """The whole frames that some bytes consist of."""
    return _block(path, data)[0]


def _block(path: Path, data: bytes) -> tuple[Block, int, bool]:
    """The whole frames at the start of some bytes, their length, and whether the log ends with them."""
    edges, is_over = _edges(data)
    whole = _count_whole(memoryview(data), edges)
    is_over |= whole < len(edges) - 1
    starts, ends = np.array(edges[:whole], np.int64), np.array(edges[1 : whole + 1], np.int64)
    kinds = _at(data, starts + LENGTH.size, np.dtype("<u4"))
    others = np.flatnonzero((kinds != ROWS) & (kinds != DEFINITIONS))
    is_end = len(others) > 0
    if is_end:
        _require_end(path, int(kinds[others[0]]))
        starts, ends, kinds = starts[: others[0]], ends[: others[0]], kinds[: others[0]]
    defining = kinds == DEFINITIONS
    begins, ends = starts + HEAD.size, ends - CHECKSUM.size
    contents = zip(begins[defining].tolist(), ends[defining].tolist(), strict=True)
    definitions = [_decoded(path, data[begin:end], Definitions) for begin, end in contents]
    rows = _rows(path, data, begins[~defining], ends[~defining])
    return Block(definitions, rows, is_end), edges[whole], is_over or is_end


def _edges(data: bytes) -> tuple[list[int], bool]:
    """Where frames begin and the last one ends, by length alone; and whether a length is too great."""
    edges, at, last = [0], 0, len(data) - FRAME_BYTES
    unpack, most = LENGTH.unpack_from, MOST_CONTENT_BYTES
    while at <= last:
        (length,) = unpack(data, at)
        at += length + FRAME_BYTES
        if length > most:
            return edges, True
        edges.append(at)
    if at > len(data):
        edges.pop()
    return edges, False


def _count_whole(view: memoryview, edges: list[int]) -> int:
    """How many of these frames precede the first one with a wrong checksum."""
    if checksum(view[: edges[-1]]) == RESIDUE:
        return len(edges) - 1
    wrong = (
        place for place, (begin, end) in enumerate(pairwise(edges)) if checksum(view[begin:end]) != RESIDUE
    )
    return next(wrong)


def _require_end(path: Path, kind: int) -> None:
    if kind != END:
        raise InputError(f"The segment {path} has a frame of the unknown kind {kind}.", _DAMAGED_HINT)


def _at(data: bytes, places: Array, kind: "np.dtype[Any]") -> Array:
    """Values of one type at any places, aligned or not."""
    if not len(places):
        return np.empty(0, kind)
    everywhere: Array = np.ndarray((len(data) - kind.itemsize + 1,), kind, data, strides=(1,))
    return everywhere[places]


def _rows(path: Path, data: bytes, begins: Array, ends: Array) -> Array:
    """All rows between these places, in one array."""
    counts, rest = np.divmod(ends - begins, ROW.size)
    if rest.any():
        raise InputError(f"The segment {path} has a frame that does not hold whole rows.", _DAMAGED_HINT)
    before = np.repeat(np.cumsum(counts) - counts, counts)
    places = np.repeat(begins, counts) + (np.arange(len(before)) - before) * ROW.size
    return _at(data, places, ROW_TYPE)


def require_defined(path: Path, rows: Array, senders: int, addresses: int) -> None:
    """Codes must have been defined."""
    for name, most in (("sender", senders), ("address", addresses)):
        used = int(rows[name].max(initial=0))
        if used > most:
            raise InputError(f"The segment {path} does not define the {name} {used}.", _DAMAGED_HINT)


def _decoded(path: Path, content: bytes, kind: type[Content]) -> Content:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        sentence = f"The segment {path} has a frame that is no {kind.__name__}: {error}."
        raise InputError(sentence, _DAMAGED_HINT) from error
