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

from antiphon.audit.packing import pack, read_row_groups
from antiphon.core.errors import InputError
from antiphon.trace.arrow import pa, pq
from antiphon.trace.files import TraceFiles, read_runs
from antiphon.trace.frames import ROW
from antiphon.trace.segment_tables import SegmentFile, segment_tables

TASK_ROWS: Final = 1 << 20
"""Rows that a task reads, about; a row group is never split. Larger tasks take more memory each."""
LEAST_TASK_ROWS: Final = 1 << 14
"""A task reads at least about this many rows. Raising it leaves cores idle on small traces."""
RUNS_FILES_PER_TASK: Final = 64


class ReadTask(NamedTuple):
    """What one task reads: row groups of event files, segment files, or whole files of the `runs` table."""

    trace: int
    events: list[tuple[str, list[int]]]
    segments: list[SegmentFile]
    runs: list[str]


class Piece(NamedTuple):
    """A segment of a run, the run's row in `runs`, or the problem that keeps it from being judged.

    A piece without a run is about a file: nothing can be judged, and `promised` carries the error's hint.
    """

    trace: int
    run: str | None
    problem: str | None
    promised: bytes | None
    segment: bytes | None


class _Share(NamedTuple):
    """The least that a task can read: one row group of a file, or a whole segment file."""

    trace: int
    rows: int
    path: str
    row_group: int
    segment: SegmentFile | None


def plan_tasks(traces: Sequence[TraceFiles], slots: int) -> list[ReadTask]:
    """Tasks for `slots` cores, each large enough to be worth its start."""
    shares = [share for index, trace in enumerate(traces) for share in _shares(index, trace)]
    size = min(max(sum(share.rows for share in shares) // (2 * slots), LEAST_TASK_ROWS), TASK_ROWS)
    tasks: list[ReadTask] = []
    filled = size
    for share in shares:
        if filled + share.rows // 2 >= size or tasks[-1].trace != share.trace:
            tasks.append(ReadTask(share.trace, [], [], []))
            filled = 0
        filled += share.rows
        if share.segment is not None:
            tasks[-1].segments.append(share.segment)
            continue
        if not tasks[-1].events or tasks[-1].events[-1][0] != share.path:
            tasks[-1].events.append((share.path, []))
        tasks[-1].events[-1][1].append(share.row_group)
    for index, trace in enumerate(traces):
        files = [str(file.resolve()) for file in trace.runs]
        begins = range(0, len(files), RUNS_FILES_PER_TASK)
        tasks += [ReadTask(index, [], [], files[begin : begin + RUNS_FILES_PER_TASK]) for begin in begins]
    return tasks


def _shares(index: int, trace: TraceFiles) -> Iterator[_Share]:
    """Parquet footers hold the row counts; those of segment files follow from their lengths."""
    for file in trace.events:
        metadata = pq.read_metadata(file)
        for group in range(metadata.num_row_groups):
            yield _Share(index, metadata.row_group(group).num_rows, str(file.resolve()), group, None)
    for segment in trace.segments:
        resolved = msgspec.structs.replace(segment, path=segment.path.resolve())
        yield _Share(index, segment.size // ROW.size, "", 0, resolved)


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
    except InputError as error:
        yield Piece(task.trace, None, error.sentence, encode(error.hint), None)


def _tables(task: ReadTask) -> Iterator[pa.Table]:
    for path, row_groups in task.events:
        yield read_row_groups(Path(path), row_groups)
    for segment in task.segments:
        yield from segment_tables(segment)
