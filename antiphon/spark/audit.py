"""The audit as a Spark job: every property of every run of a trace.

Two stages. First, tasks read the files and pack the rows into segments by run (`antiphon.audit.reading`).
Then the segments of a run meet in one task, which judges it (`antiphon.audit.runs`). Large runs are judged in
windows instead (`antiphon.spark.windows`).

The driver receives one row of sums per task, with the violations to be shown. The tasks themselves write all
violations to Parquet, if asked to. Every executor must be able to read the traces' paths, and to write that
for the violations.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.audit.memory import too_large
from antiphon.audit.reading import LargeRuns, Piece, ReadTask, plan_large, read_pieces
from antiphon.audit.result import AuditResult, sum_up
from antiphon.audit.runs import Request, Sums, judge_runs, note_problem, open_traces
from antiphon.audit.violations import ViolationFile, empty_folder, remove_unfinished, remove_violations
from antiphon.audit.windows.planning import WINDOWED_ROWS, row_of
from antiphon.core.recording import Property
from antiphon.spark.session import map_in_arrow
from antiphon.spark.tasks import explain_failure
from antiphon.spark.windows import LargeRun, judge_large, rows_of_files
from antiphon.trace.arrow import pa
from antiphon.trace.files import TraceFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIECES_PER_BATCH: Final = 1024
BYTES_PER_BATCH: Final = 16 << 20
"""A batch of the shuffle is closed at either bound. Raising them takes more memory in the task."""

FIRST_PART: Final = 1 << 20
"""Files of violations are numbered by task; those of runs judged in windows count from here."""

IN_ONE_PIECE: Final = (
    "It cannot be judged in windows: its files hold a site's rows out of order, rows share a step or name "
    "domains, or a property is asked for that windows do not judge."
)

PIECES: Final = pa.schema(
    [
        pa.field("trace", pa.int32()),
        pa.field("run", pa.string()),
        pa.field("problem", pa.string()),
        pa.field("promised", pa.binary()),
        pa.field("segment", pa.binary()),
        pa.field("calls", pa.binary()),
    ]
)
PIECES_DDL: Final = "trace int, run string, problem string, promised binary, segment binary, calls binary"


def audit(
    spark: "SparkSession",
    paths: Sequence[Path | str],
    expect: Sequence[Property] | None = None,
    limit: int = 100,
    violations_to: Path | str | None = None,
    only: Sequence[Property] | None = None,
    summaries: int = 0,
) -> AuditResult:
    """Judge all runs of these traces. Runs of different traces are different runs, whatever their names.

    `limit` bounds how many violations of each property are explained; counts are always complete. With
    `violations_to` all of them are, and go to Parquet files in that folder, which must not hold any yet.
    What is promised or expected is always judged; `only` names what else is, instead of all seven.
    `summaries` bounds for how many runs the result has all verdicts, those with broken promises first.
    """
    traces, request = open_traces(paths, expect, limit, only)
    request = request._replace(summaries=summaries)
    tasks, large = plan_large(traces, spark.sparkContext.defaultParallelism, WINDOWED_ROWS)
    if violations_to is not None:
        request = request._replace(violations_to=empty_folder(Path(violations_to)))
    try:
        result = sum_up(_judge_all(spark, traces, tasks, large, request), request, "spark")
    except Exception as error:
        remove_violations(request.violations_to)
        explained = explain_failure(error)
        if explained is None:
            raise
        raise explained from error
    remove_unfinished(request.violations_to)
    return result


def _judge_all(
    spark: "SparkSession", traces: list[TraceFiles], tasks: list[ReadTask], large: LargeRuns, request: Request
) -> list[Sums]:
    """Large runs in windows, one after another; then all others."""
    answers: dict[tuple[int, str], Sums] = {}
    for (trace, run), (rows, own) in large.items():
        described = partial(row_of, run, traces[trace].runs)
        sums = _judge_large(LargeRun(trace, run, rows, rows_of_files(spark, own), described), request)
        if sums is None:
            sums = _refused(spark, request, trace, run, rows)
        if sums is None:
            tasks = [*own, *tasks]
        else:
            answers[trace, run] = sums
    return [*answers.values(), *_judge(spark, tasks, request._replace(windowed=frozenset(answers)))]


def _judge_large(large: LargeRun, request: Request) -> Sums | None:
    """Judge a run in windows and write its violations; None if it must be judged in one piece."""
    sums = Sums()
    report = judge_large(large, request, sums)
    if report is None:
        return None
    with ViolationFile(request.violations_to, FIRST_PART + large.trace) as file:
        file.write(report.trace, report.violations, report.promises)
    sums.output_problem = file.problem
    return sums


def _refused(spark: "SparkSession", request: Request, trace: int, run: str, rows: int) -> Sums | None:
    """The answer for a run that windows cannot judge and that does not fit into one task here; None if it
    does. How much memory the workers of a cluster have is not known."""
    if not spark.sparkContext.master.startswith("local"):
        return None
    error = too_large(f"Run {run}", rows, "in one piece", "")
    if error is None:
        return None
    sums = Sums(runs=1)
    note_problem(sums, request.folders[trace], run, f"{error.sentence} {IN_ONE_PIECE}", request)
    return sums


def _judge(spark: "SparkSession", tasks: list[ReadTask], request: Request) -> list[Sums]:
    """Run the job: pack, bring each run together, judge."""
    if not tasks:
        return []

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from batches_of(read_pieces(tasks[index]))

    def judged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        sums = msgspec.msgpack.encode(judge_runs(pieces_of(batches), request, part))
        yield pa.RecordBatch.from_pydict({"sums": pa.array([sums], pa.binary())})

    pieces = map_in_arrow(spark.range(0, len(tasks), 1, len(tasks)), packed, PIECES_DDL)
    by_run: DataFrame = pieces.repartition("trace", "run").sortWithinPartitions("trace", "run")
    answers = map_in_arrow(by_run, judged, "sums binary").collect()
    return [msgspec.msgpack.decode(bytes(answer[0]), type=Sums) for answer in answers]


def batches_of(pieces: Iterator[Piece]) -> Iterator[pa.RecordBatch]:
    """Pieces as batches of the schema `PIECES`."""
    rows: list[Piece] = []
    size = 0
    for piece in pieces:
        rows.append(piece)
        size += len(piece.segment or b"") + len(piece.promised or b"") + len(piece.calls or b"")
        if len(rows) >= PIECES_PER_BATCH or size >= BYTES_PER_BATCH:
            yield _batch(rows)
            rows, size = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: list[Piece]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, PIECES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PIECES)


def pieces_of(batches: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
    """The pieces of a shuffle."""
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        yield from (Piece(*row) for row in zip(*columns, strict=True))
