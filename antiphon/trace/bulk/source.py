"""Log files in pieces of whole lines, so that tasks can share a file and no task needs much memory."""

import codecs
import gzip
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import numpy as np

from antiphon.trace.adapters.importing import LONGEST_LINE, decoded, unreadable
from antiphon.trace.adapters.record import BadLine

PIECE_BYTES: Final = 32 << 20
"""Bytes of a piece. Raising it takes memory: a task needs about six times as much."""


class Stretch(NamedTuple):
    """A part of a file for one task, from a byte to another; no end means all of it, also if packed."""

    file: int
    begin: int = 0
    end: int | None = None


class Piece(NamedTuple):
    """Whole lines, in UTF-8, with their line ends; `refused` are lines that are no text."""

    data: bytes
    numbers: "np.ndarray[Any, np.dtype[np.int64]]"
    """The number of each line of `data`, counted from 1 at the beginning of the piece."""
    lines: int
    """Lines of the piece, the refused ones included."""
    refused: list[BadLine]


def stretches(files: Sequence[Path], is_whole: Sequence[bool]) -> list[Stretch]:
    """The files in parts; `is_whole` keeps a file in one, since its lines depend on those before."""
    found = list[Stretch]()
    for index, file in enumerate(files):
        size = file.stat().st_size
        if is_whole[index] or not file.is_file() or _is_packed(file) or size <= PIECE_BYTES:
            found.append(Stretch(index))
        else:
            bounds = [*range(0, size, PIECE_BYTES), size]
            found.extend(Stretch(index, *pair) for pair in pairwise(bounds))
    return found


def pieces(file: Path, stretch: Stretch, most: int = PIECE_BYTES, is_any: bool = False) -> Iterator[Piece]:
    """The lines that begin in the stretch; of a whole file in pieces of about `most` bytes.

    If `is_any`, bytes that are no text get a sign that stands for them.
    """
    try:
        with file.open("rb") as plain:
            if stretch.end is None:
                stream = gzip.GzipFile(fileobj=plain) if _is_packed(file) else plain
                yield from _all_pieces(stream, most, is_any)
            else:
                yield _piece(_part(plain, stretch.begin, stretch.end), stretch.begin == 0, is_any)
    except (OSError, EOFError) as error:
        raise unreadable(file, error) from error


def _is_packed(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


def _all_pieces(stream: IO[bytes] | gzip.GzipFile, most: int, is_any: bool) -> Iterator[Piece]:
    is_first = True
    while data := stream.read(most):
        yield _piece(data + _rest_of_line(stream, data), is_first, is_any)
        is_first = False


def _part(stream: IO[bytes], begin: int, end: int) -> bytes:
    """The lines that begin at or after `begin` and before `end`."""
    if begin:
        stream.seek(begin - 1)
        while (skipped := stream.readline(LONGEST_LINE)) and not skipped.endswith(b"\n"):
            pass
    if stream.tell() >= end:
        return b""
    data = stream.read(end - stream.tell())
    return data + _rest_of_line(stream, data)


def _rest_of_line(stream: IO[bytes] | gzip.GzipFile, data: bytes) -> bytes:
    """What follows until the line's end; of a line that is too long, no more than shows it."""
    if data.endswith(b"\n"):
        return b""
    rest = stream.readline(LONGEST_LINE)
    if rest.endswith(b"\n"):
        return rest
    while (skipped := stream.readline(LONGEST_LINE)) and not skipped.endswith(b"\n"):
        pass
    return rest + b"\n"


def _piece(data: bytes, is_first: bool, is_any: bool) -> Piece:
    if is_first:
        data = data.removeprefix(codecs.BOM_UTF8)
    if data and not data.endswith(b"\n"):
        data += b"\n"
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    if is_any and not _is_text(data):
        data = data.decode("utf-8", "replace").encode()
    starts = line_starts(data)
    lengths = np.diff(starts)
    count = len(lengths)
    numbers = np.arange(1, count + 1)
    if (not count or lengths.max() < LONGEST_LINE) and _is_text(data):
        return Piece(data, numbers, count, [])
    refused: list[BadLine] = []
    kept, kept_numbers = list[bytes](), list[int]()
    for number, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=False), 1):
        line = data[start : start + min(length, LONGEST_LINE)]
        if decoded(line, number, refused) is not None:
            kept.append(line)
            kept_numbers.append(number)
    return Piece(b"".join(kept), np.array(kept_numbers, np.int64), count, refused)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def line_starts(data: bytes) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Where each line begins, and where the last one ends."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    return np.concatenate([np.zeros(1, np.int64), ends + 1])
