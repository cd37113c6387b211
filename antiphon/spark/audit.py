"""The audit as a Spark job: every property of every run of a trace.

Two stages. First, tasks read the files and pack the rows into segments by run (`antiphon.audit.reading`).
Then the segments of a run meet in one task, which judges it (`antiphon.audit.runs`).

The driver receives one row of sums per task, with the violations to be shown. The tasks themselves write all
violations to Parquet, if asked to. Every executor must be able to read the traces' paths, and to write that
for the violations.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.audit.reading import Piece, ReadTask, plan_tasks, read_pieces
from antiphon.audit.result import AuditResult, sum_up
from antiphon.audit.runs import Request, Sums, judge_runs, open_traces
from antiphon.core.errors import OutputError
from antiphon.core.recording import Property
from antiphon.spark.session import map_in_arrow
from antiphon.trace.arrow import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIECES_PER_BATCH: Final = 1024
BYTES_PER_BATCH: Final = 16 << 20
"""A batch of the shuffle is closed at either bound. Raising them takes more memory in the task."""

PIECES: Final = pa.schema(
    [
        pa.field("trace", pa.int32()),
        pa.field("run", pa.string()),
        pa.field("problem", pa.string()),
        pa.field("promised", pa.binary()),
        pa.field("segment", pa.binary()),
    ]
)
PIECES_DDL: Final = "trace int, run string, problem string, promised binary, segment binary"


def audit(
    spark: "SparkSession",
    paths: Sequence[Path | str],
    expect: Sequence[Property] | None = None,
    limit: int = 100,
    violations_to: Path | str | None = None,
) -> AuditResult:
    """Judge all runs of these traces. Runs of different traces are different runs, whatever their names.

    `limit` bounds how many violations of each property are explained; counts are always complete. With
    `violations_to` all of them are, and go to Parquet files in that folder, which must not hold any yet.
    """
    traces, request = open_traces(paths, expect, limit)
    tasks = plan_tasks(traces, spark.sparkContext.defaultParallelism)
    if violations_to is not None:
        request = request._replace(violations_to=_empty_folder(Path(violations_to)))
    return sum_up(_judge(spark, tasks, request), request)


def _empty_folder(folder: Path) -> str:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if next(folder.glob("*.parquet"), None) is not None:
            raise OutputError(f"The folder {folder} already holds Parquet files.", "Choose another folder.")
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"The violations cannot be written to {folder}: {reason}.") from error
    return str(folder.resolve())


def _judge(spark: "SparkSession", tasks: list[ReadTask], request: Request) -> list[Sums]:
    """Run the job: pack, bring each run together, judge."""
    if not tasks:
        return []

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from _batches(read_pieces(tasks[index]))

    def judged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        sums = msgspec.msgpack.encode(judge_runs(_pieces(batches), request, part))
        yield pa.RecordBatch.from_pydict({"sums": pa.array([sums], pa.binary())})

    pieces = map_in_arrow(spark.range(0, len(tasks), 1, len(tasks)), packed, PIECES_DDL)
    by_run: DataFrame = pieces.repartition("trace", "run").sortWithinPartitions("trace", "run")
    answers = map_in_arrow(by_run, judged, "sums binary").collect()
    return [msgspec.msgpack.decode(bytes(answer[0]), type=Sums) for answer in answers]


def _batches(pieces: Iterator[Piece]) -> Iterator[pa.RecordBatch]:
    rows: list[Piece] = []
    size = 0
    for piece in pieces:
        rows.append(piece)
        size += len(piece.segment or b"") + len(piece.promised or b"")
        if len(rows) >= PIECES_PER_BATCH or size >= BYTES_PER_BATCH:
            yield _batch(rows)
            rows, size = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: list[Piece]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, PIECES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PIECES)


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        yield from (Piece(*row) for row in zip(*columns, strict=True))
