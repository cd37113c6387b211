"""What the tasks of an audit read, and the pieces that they make of it.

The Parquet row groups and the live members' segment files of a trace are dealt out to tasks of about equal
size. A task packs its rows into segments by run (`packing`). The rows of the `runs` table travel as pieces
too, so that nothing has to fit into the memory of one process: 100,000 runs work as well as one run of 10^8
deliveries.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from antiphon.audit.packing import Segment, pack, read_row_groups
from antiphon.core.calls import Call
from antiphon.core.errors import InputError
from antiphon.trace.arrow import pa, pq
from antiphon.trace.call_files import read_calls
from antiphon.trace.files import TraceFiles, read_runs
from antiphon.trace.frames import ROW, SUFFIX
from antiphon.trace.segment_tables import SegmentFile, segment_tables

TASK_ROWS: Final = 1 << 20
"""Rows that a task reads, about; a row group is never split. Larger tasks take more memory each."""
LARGE_TASK_ROWS: Final = 1 << 22
"""Rows that a task of a large run reads, about, `TASK_ROWS` at a time. Larger tasks leave cores idle at the
end; a task costs 30 to 60 ms."""
LEAST_TASK_ROWS: Final = 1 << 14
"""A task reads at least about this many rows. Raising it leaves cores idle on small traces."""
RUNS_FILES_PER_TASK: Final = 64


class ReadTask(NamedTuple):
    """What one task reads: row groups of event files, segment files, or whole files of the tables `runs` and
    `calls`."""

    trace: int
    events: list[tuple[str, list[int]]]
    segments: list[SegmentFile]
    runs: list[str]
    calls: tuple[str, ...] = ()


LargeRuns = dict[tuple[int, str], tuple[int, list[ReadTask]]]
"""Large runs by trace and name: how many rows each has, and the tasks that read them."""


class Piece(NamedTuple):
    """A segment of a run, the run's row in `runs`, its calls, or the problem that keeps it from being judged.

    A piece without a run is about a file: nothing can be judged, and `promised` carries the error's hint.
    """

    trace: int
    run: str | None
    problem: str | None
    promised: bytes | None
    segment: bytes | None
    calls: bytes | None = None


class _Share(NamedTuple):
    """The least that a task can read: one row group of a file, or a whole segment file."""

    trace: int
    rows: int
    path: str
    row_group: int
    segment: SegmentFile | None
    runs: tuple[str, str] | None
    """The least and the greatest name of a run in it, where the file's metadata tell."""


def plan_tasks(traces: Sequence[TraceFiles], slots: int) -> list[ReadTask]:
    """Tasks for `slots` cores, each large enough to be worth its start."""
    shares = [share for index, trace in enumerate(traces) for share in _shares(index, trace)]
    return [*_dealt(shares, slots), *_runs_tasks(traces)]


def plan_large(traces: Sequence[TraceFiles], slots: int, rows: int) -> tuple[list[ReadTask], LargeRuns]:
    """Tasks as `plan_tasks` makes them, and by themselves those of each run of at least `rows` rows, with how
    many it has.

    A run counts if the metadata tell that its row groups hold no other run.
    """
    shares = [share for index, trace in enumerate(traces) for share in _shares(index, trace)]
    alone: dict[tuple[int, str], list[_Share]] = {}
    mixed: list[_Share] = []
    for share in shares:
        if share.runs is not None and share.runs[0] == share.runs[1]:
            alone.setdefault((share.trace, share.runs[0]), []).append(share)
        else:
            mixed.append(share)
    large = {
        (trace, run): own
        for (trace, run), own in alone.items()
        if sum(share.rows for share in own) >= rows
        and not any(share.trace == trace and _may_hold(share, run) for share in mixed)
    }
    taken = {id(share) for own in large.values() for share in own}
    others = _dealt([share for share in shares if id(share) not in taken], slots)
    return [*others, *_runs_tasks(traces)], {
        key: (sum(share.rows for share in own), _dealt(own, slots, LARGE_TASK_ROWS))
        for key, own in large.items()
    }


def _may_hold(share: _Share, run: str) -> bool:
    return share.runs is None or share.runs[0] <= run <= share.runs[1]


def _dealt(shares: Sequence[_Share], slots: int, most: int = TASK_ROWS) -> list[ReadTask]:
    """Neighbouring shares of one trace, in tasks of about equal size and at most about `most` rows."""
    size = min(max(sum(share.rows for share in shares) // (2 * slots), LEAST_TASK_ROWS), most)
    tasks: list[ReadTask] = []
    filled, together = size, 0
    for share in shares:
        if filled + share.rows // 2 >= size or tasks[-1].trace != share.trace:
            tasks.append(ReadTask(share.trace, [], [], []))
            filled = 0
        filled += share.rows
        if share.segment is not None:
            tasks[-1].segments.append(share.segment)
            continue
        events = tasks[-1].events
        if not events or events[-1][0] != share.path or together + share.rows // 2 >= TASK_ROWS:
            events.append((share.path, []))
            together = 0
        together += share.rows
        tasks[-1].events[-1][1].append(share.row_group)
    return tasks


def _runs_tasks(traces: Sequence[TraceFiles]) -> list[ReadTask]:
    tasks = []
    for index, trace in enumerate(traces):
        files = [str(file.resolve()) for file in trace.runs]
        begins = range(0, len(files), RUNS_FILES_PER_TASK)
        tasks += [ReadTask(index, [], [], files[begin : begin + RUNS_FILES_PER_TASK]) for begin in begins]
        tasks += [ReadTask(index, [], [], [], (str(file.resolve()),)) for file in trace.calls]
    return tasks


def has_own_files(folder: Path | str) -> bool:
    """Whether a local trace holds what only we read: segments of live members, or calls."""
    place = Path(folder)
    return (place / "calls").is_dir() or next((place / "events").rglob(f"*{SUFFIX}"), None) is not None


def row_count(traces: Sequence[TraceFiles]) -> int:
    """The rows of these traces, by their files' metadata alone."""
    return sum(share.rows for index, trace in enumerate(traces) for share in _shares(index, trace))


def _shares(index: int, trace: TraceFiles) -> Iterator[_Share]:
    """Parquet footers hold the row counts; those of segment files follow from their lengths."""
    for file in trace.events:
        metadata = pq.read_metadata(file)
        for group in range(metadata.num_row_groups):
            found = metadata.row_group(group)
            yield _Share(index, found.num_rows, str(file.resolve()), group, None, _run_names(found))
    for segment in trace.segments:
        resolved = msgspec.structs.replace(segment, path=segment.path.resolve())
        yield _Share(index, segment.size // ROW.size, "", 0, resolved, (segment.begin.run,) * 2)


def _run_names(row_group: pq.RowGroupMetaData) -> tuple[str, str] | None:
    columns = (row_group.column(index) for index in range(row_group.num_columns))
    statistics = next((column.statistics for column in columns if column.path_in_schema == "run"), None)
    if statistics is None or not statistics.has_min_max or not isinstance(statistics.min, str):
        return None
    return statistics.min, statistics.max


def read_pieces(task: ReadTask) -> Iterator[Piece]:
    """Read and pack everything that a task has to read."""
    encode = msgspec.msgpack.Encoder().encode
    try:
        for table in _tables(task):
            for packed in pack(table):
                segment = None if packed.segment is None else encode(packed.segment)
                yield Piece(task.trace, packed.run, packed.problem, None, segment)
        for path in task.runs:
            for run, promised in read_runs(Path(path)):
                yield Piece(task.trace, run.run, None, encode((run, promised)), None)
        for path in task.calls:
            by_run: dict[str, list[Call]] = {}
            for call in read_calls(Path(path)):
                by_run.setdefault(call.run, []).append(call)
            for name, calls in by_run.items():
                yield Piece(task.trace, name, None, None, None, encode(calls))
    except InputError as error:
        yield Piece(task.trace, None, error.sentence, encode(error.hint), None)


def read_segments(task: ReadTask) -> Iterator[Segment]:
    """The rows of a task that reads one run, packed; InputError if they cannot be judged."""
    for table in _tables(task):
        for packed in pack(table):
            if packed.problem is not None:
                raise InputError(packed.problem)
            if packed.segment is not None:
                yield packed.segment


def _tables(task: ReadTask) -> Iterator[pa.Table]:
    for path, row_groups in task.events:
        yield read_row_groups(Path(path), row_groups)
    for segment in task.segments:
        yield from segment_tables(segment)
