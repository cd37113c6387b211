"""What a growing trace has gained: new rows of its segments, and Parquet files that were added.

A reader keeps a position for each file: bytes and rows of a segment, row groups of a Parquet file. `latest`
moves positions on to what is there now, and `stretches` names the rows between two sets of positions. Both
look only at what was added; a segment's names are remembered from call to call.

A member's log that breaks off has no closing frame. Whether it will go on is unknown while the trace grows,
so the absence that this implies is told by `open_logs`, and is no row of a stretch. The absence before a
later segment, whose first frame says so, is one.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from antiphon.core.errors import InputError
from antiphon.core.ids import Site
from antiphon.trace.arrow import EVENTS, pa, pq
from antiphon.trace.files import REQUIRED_EVENT_COLUMNS, conform, require_columns, trace_files
from antiphon.trace.frames import (
    BLOCK_BYTES,
    SUFFIX,
    Begin,
    block_of,
    read_begin,
    require_defined,
    whole_frames,
)
from antiphon.trace.segment_tables import Names, absence, lengths, rows_table

MANY: Final = 1 << 62
"""More rows than a trace holds: no limit."""


class Position(msgspec.Struct, frozen=True):
    """How far a file has been read."""

    at: int = 0
    """Bytes of a segment, or row groups of a Parquet file."""
    rows: int = 0
    over: bool = False
    """Whether nothing can follow: a segment's closing frame, or all of a Parquet file, has been read."""
    run: str = ""
    """The run and the site of a segment's log, and the step of the segment's first row."""
    site: Site = ""
    first_step: int = 0


Positions = Mapping[str, Position]
"""How far each file has been read, by its path below `events/`."""
UNREAD: Final = Position()


class Stretch(msgspec.Struct, frozen=True):
    """Rows of one file between two positions, with the names that a segment's rows use."""

    path: Path
    start: Position
    end: Position
    begin: Begin | None = None
    """The first frame of a segment; None for a Parquet file."""
    names: Names | None = None


class _Scan:
    """A segment, as far as its frames have been looked at."""

    def __init__(self, path: Path, begin: Begin, after: int) -> None:
        self.path = path
        self.begin = begin
        self.position = Position(after, 0, False, begin.run, begin.site, begin.first_step)
        self.names = Names()

    def advance(self, size: int, rows: int) -> Position:
        """Go on to the last whole frame below `size`, or by about `rows` rows."""
        most = self.position.rows + rows
        with self.path.open("rb") as file:
            while not self.position.over and self.position.rows < most:
                file.seek(self.position.at)
                data = file.read(min(BLOCK_BYTES, max(size - self.position.at, 0)))
                if not self._take(data, most - self.position.rows):
                    break
        return self.position

    def _take(self, data: bytes, rows: int) -> bool:
        frames = whole_frames(data)
        count = frames.within(rows)
        if not count:
            return False
        used = int(frames.ends[count - 1])
        block = block_of(self.path, data[:used])
        self.names.add(block)
        require_defined(self.path, block.rows, len(self.names.senders), len(self.names.addresses) - 1)
        self.position = msgspec.structs.replace(
            self.position,
            at=self.position.at + used,
            rows=self.position.rows + len(block.rows),
            over=block.is_end,
        )
        return True


_scans: dict[Path, _Scan] = {}
"""Segments that this process has looked at; their names are not read again."""


def latest(folder: Path, known: Positions, rows: int = MANY) -> dict[str, Position]:
    """Positions at what a trace holds now, or about `rows` rows beyond those known."""
    events = folder / "events"
    found = dict(known)
    files = trace_files(folder)
    unread = [path for path in files.parquet if not _position(known, events, path).over]
    growing = [path for path in files.segments if not _position(known, events, path).over]
    sizes = lengths(growing)
    share = max(rows // max(len(growing) + bool(unread), 1), 1)
    for path in growing:
        position = _advanced(path, _position(known, events, path), sizes[path], share)
        if position is not None:
            found[str(path.relative_to(events))] = position
    left = share
    for path in unread:
        if left <= 0:
            break
        before = _position(known, events, path)
        found[str(path.relative_to(events))] = position = _further(path, before, left)
        left -= position.rows - before.rows
    return found


def _position(known: Positions, events: Path, path: Path) -> Position:
    return known.get(str(path.relative_to(events)), UNREAD)


def _advanced(path: Path, known: Position, size: int, rows: int) -> Position | None:
    """A segment's new position; None if it has no whole first frame yet."""
    if size < known.at:
        raise InputError(
            f"The segment {path} has {size} bytes, fewer than were read of it before.",
            "Segments only grow: was the trace replaced? Start again with a new folder for the state.",
        )
    if size == known.at:
        return known
    if path in _scans and _scans[path].position.at > known.at:
        # Positions were taken back, as after a restart from a checkpoint: look at these frames again.
        del _scans[path]
    scan = _scan(path, known)
    if scan is None:
        return None
    return scan.advance(size, rows)


def _scan(path: Path, known: Position) -> _Scan | None:
    """What is known of a segment, brought to this position at least."""
    scan = _scans.get(path)
    if scan is None:
        with path.open("rb") as file:
            begin = read_begin(path, file)
            if begin is None:
                return None
            scan = _scans[path] = _Scan(path, begin, file.tell())
    if scan.position.at < known.at:
        scan.advance(known.at, MANY)
    return scan


def _further(path: Path, known: Position, rows: int) -> Position:
    """Further row groups of a Parquet file: as many as hold about `rows` rows."""
    if known == UNREAD:
        require_columns(path, EVENTS, REQUIRED_EVENT_COLUMNS)
    metadata = pq.read_metadata(path)
    at, taken = known.at, 0
    while at < metadata.num_row_groups and taken < rows:
        taken += metadata.row_group(at).num_rows
        at += 1
    return Position(at, known.rows + taken, over=at == metadata.num_row_groups)


def stretches(folder: Path, start: Positions, end: Positions) -> list[Stretch]:
    """The rows between two sets of positions, file by file."""
    found = []
    for name, until in end.items():
        since, path = start.get(name, UNREAD), folder / "events" / name
        if since == until:
            continue
        if path.suffix == SUFFIX:
            scan = _scan(path, until)
            assert scan is not None, "a position beyond the first frame was taken"
            found.append(Stretch(path, since, until, scan.begin, scan.names))
        else:
            found.append(Stretch(path, since, until))
    return found


def read_stretch(stretch: Stretch) -> Iterator[pa.Table]:
    """The rows of a stretch, in parts."""
    if stretch.begin is None or stretch.names is None:
        parquet = pq.ParquetFile(stretch.path)
        present = [name for name in EVENTS.names if name in parquet.schema_arrow.names]
        for group in range(stretch.start.at, stretch.end.at):
            yield conform(stretch.path, parquet.read_row_group(group, columns=present), EVENTS)
        return
    if not stretch.start.at and stretch.begin.after_absence:
        yield absence(stretch.begin, stretch.begin.first_step - 1)
    yield from _segment_rows(stretch, stretch.begin, stretch.names)


def _segment_rows(stretch: Stretch, begin: Begin, names: Names) -> Iterator[pa.Table]:
    step = begin.first_step + stretch.start.rows
    with stretch.path.open("rb") as file:
        if stretch.start.at:
            file.seek(stretch.start.at)
        else:
            read_begin(stretch.path, file)
        while (at := file.tell()) < stretch.end.at:
            data = file.read(min(BLOCK_BYTES, stretch.end.at - at))
            used = int(whole_frames(data).ends[-1])
            rows = block_of(stretch.path, data[:used]).rows
            if len(rows):
                yield rows_table(begin, rows, step, names)
            step += len(rows)
            file.seek(at + used)


def open_logs(positions: Positions) -> dict[tuple[str, Site], int]:
    """The logs that break off at these positions, by run and site: each with the step of its absence."""
    last: dict[tuple[str, Site], tuple[int, str, Position]] = {}
    for name, position in positions.items():
        if name.endswith(SUFFIX):
            key, found = (position.run, position.site), (position.first_step, name, position)
            last[key] = max(last.get(key, found), found, key=lambda each: each[:2])
    return {key: first + position.rows for key, (first, _, position) in last.items() if not position.over}
