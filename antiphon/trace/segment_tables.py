"""Segments of live members read as tables of events, even while they are being written.

A trace that is still being written is read as it was at one moment, as nearly as files allow: all lengths are
taken within a few microseconds, and nothing behind them is read. Members log a send before anyone can receive
the message, so no delivery of that moment lacks its send, unless a message crossed the network meanwhile.

A log that breaks off ends in an absence that was not recorded. The `absent` row is added here: behind the
last segment of a log if it has no closing frame, or before a later segment whose first frame says so.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from antiphon.core.errors import InputError
from antiphon.core.ids import Site
from antiphon.core.recording import KINDS
from antiphon.trace.arrow import EVENTS, events_table, pa
from antiphon.trace.frames import FRAME_BYTES, MAGIC, NONE, Address, Begin, Block, read_begin, read_blocks
from antiphon.trace.schema import Event

LENGTH_READINGS: Final = 5
"""Readings of all lengths; the quickest one counts."""

_HINT: Final = "The segments of a trace must be readable; see docs/trace.md."
_ALL_CODES: Final = [*KINDS, *map(str, range(len(KINDS), 256))]
"""A code of no kind gets its number as a name, so that the row is refused with that number."""


class SegmentFile(msgspec.Struct, frozen=True):
    """A segment of a trace: its first frame, the bytes to read, and whether it is the last of its log."""

    path: Path
    begin: Begin
    size: int
    is_last: bool


def open_segments(paths: Sequence[Path]) -> tuple[SegmentFile, ...]:
    """Read the first frame of each segment; segments without one are left out."""
    begins = {path: _begin(path) for path in paths}
    found = {path: begin for path, begin in begins.items() if begin is not None}
    sizes = lengths(list(found))
    _require_distinct(found, sizes)
    last = _last_of_each_log(found)
    return tuple(SegmentFile(path, begin, sizes[path], path in last) for path, begin in found.items())


def _begin(path: Path) -> Begin | None:
    try:
        with path.open("rb") as file:
            return read_begin(path, file)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"The segment {path} cannot be read: {error.strerror or error}.", _HINT)


def lengths(paths: Sequence[Path]) -> dict[Path, int]:
    """The lengths of all files, taken as close together as possible."""
    readings: list[tuple[int, list[int]]] = []
    for _ in range(LENGTH_READINGS):
        began = time.perf_counter_ns()
        try:
            sizes = [os.stat(path).st_size for path in paths]  # noqa: PTH116 (this must be quick)
        except OSError as error:
            raise _unreadable(Path(error.filename), error) from error
        readings.append((time.perf_counter_ns() - began, sizes))
    return dict(zip(paths, min(readings)[1], strict=True))


def _require_distinct(begins: Mapping[Path, Begin], sizes: Mapping[Path, int]) -> None:
    """Two segments with rows that begin with the same step are one segment and its copy."""
    known: dict[tuple[str, Site, int], Path] = {}
    for path, begin in begins.items():
        if sizes[path] <= len(MAGIC) + FRAME_BYTES + len(msgspec.json.encode(begin)):
            continue
        other = known.setdefault((begin.run, begin.site, begin.first_step), path)
        if other != path:
            where = f"step {begin.first_step} of site {begin.site} in run {begin.run}"
            hint = "One of them is probably a copy: move it out of events/."
            raise InputError(f"The segments {other} and {path} both begin with {where}.", hint)


def _last_of_each_log(begins: Mapping[Path, Begin]) -> set[Path]:
    ordered = sorted(begins, key=lambda path: (begins[path].first_step, path))
    return set({(begins[path].run, begins[path].site): path for path in ordered}.values())


def segment_tables(segment: SegmentFile) -> Iterator[pa.Table]:
    """A segment's rows in parts, texts dictionary-encoded, with the absences that the segment implies.

    Columns that would be all null are left out.
    """
    step, is_end = segment.begin.first_step, False
    if segment.begin.after_absence:
        yield absence(segment.begin, step - 1)
    names = Names()
    try:
        with segment.path.open("rb") as file:
            read_begin(segment.path, file)
            for block in read_blocks(segment.path, file, segment.size):
                names.add(block)
                if len(block.rows):
                    yield rows_table(segment.begin, block.rows, step, names)
                step, is_end = step + len(block.rows), block.is_end
    except OSError as error:
        raise _unreadable(segment.path, error) from error
    if segment.is_last and not is_end:
        yield absence(segment.begin, step)


def absence(begin: Begin, step: int) -> pa.Table:
    """The row of an absence that no member recorded."""
    return events_table([Event(begin.run, begin.site, step, "absent")])


class Names:
    """The names behind a segment's codes, as far as it has been read."""

    def __init__(self) -> None:
        self.senders: list[Site] = []
        self.addresses: list[Address] = [(None, None)]

    def add(self, block: Block) -> None:
        for definitions in block.definitions:
            self.senders += definitions.senders
            self.addresses += definitions.addresses


def rows_table(begin: Begin, rows: "np.ndarray[Any, Any]", first_step: int, names: Names) -> pa.Table:
    """Rows of a segment as a table, from their first step on; columns of nulls are left out."""
    count = len(rows)
    same = np.zeros(count, np.int32)
    columns = {
        "run": _texts(same, [begin.run]),
        "site": _texts(same, [begin.site]),
        "step": pa.array(np.arange(first_step, first_step + count)),
        "kind": _texts(rows["kind"], _ALL_CODES),
        "sender": _texts(rows["sender"].astype(np.int32) - 1, names.senders, rows["sender"] == 0),
        "number": _integers(rows["number"], NONE),
        "count": _integers(rows["count"], 1),
        "size": _integers(rows["size"], NONE),
        "time_ns": pa.array(np.ascontiguousarray(rows["time_ns"])),
    }
    if rows["address"].any():
        addresses = pa.array(rows["address"].astype(np.int32))
        groups = pa.array([group for group, _ in names.addresses], pa.string())
        columns["group"] = groups.dictionary_encode().take(addresses)
        listed = pa.array([sites for _, sites in names.addresses], EVENTS.field("destinations").type)
        if listed.null_count < len(listed):
            columns["destinations"] = listed.take(addresses)
    return pa.table(columns)


def _texts(codes: Any, names: Sequence[str], is_null: Any = None) -> pa.DictionaryArray:
    indices = pa.array(codes.astype(np.int32), mask=is_null)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))


def _integers(values: Any, null: int) -> pa.Array:
    values = np.ascontiguousarray(values)
    return pa.array(values, mask=values == null)
