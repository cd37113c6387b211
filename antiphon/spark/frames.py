"""The audit in Spark's own terms: DataFrames in, DataFrames out.

`antiphon.audit` takes a path that Spark can read, on any file system, or a DataFrame with the columns of
`events`, from whatever table it comes. Only public methods of Spark are used, so that it also works in a
session of Spark Connect. Large runs are sorted by Spark and judged in windows, one after another; the others
in one job, each in a task. The runs are judged once, when the result is made; `verdicts` and `violations` are
views of what was kept then.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from antiphon.audit.packing import COLUMNS, SEGMENT_ROWS, Segment, pack
from antiphon.audit.reading import Piece, has_own_files, plan_large, read_pieces
from antiphon.audit.result import AuditResult, sum_up
from antiphon.audit.runs import Request, RunReport, Sums, checked_request, open_traces, report_runs
from antiphon.audit.violations import VIOLATIONS, violations_table
from antiphon.audit.windows.planning import WINDOWED_ROWS, row_among, row_of
from antiphon.check.verdict import Verdict
from antiphon.core.errors import InputError, OutputError
from antiphon.core.recording import Property
from antiphon.spark.audit import PIECES_DDL, batches_of, pieces_of
from antiphon.spark.session import map_in_arrow
from antiphon.spark.tasks import explain_failure
from antiphon.spark.windows import LargeRun, RunRows, judge_large, rows_of_files
from antiphon.trace.arrow import EVENTS, RUNS, pa
from antiphon.trace.files import REQUIRED_EVENT_COLUMNS, conform, runs_of
from antiphon.trace.schema import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERDICT_DDL: Final = (
    "struct<trace: string, run: string, property: string, promised: boolean, verdict: string, "
    "violations: bigint, reason: string>"
)
VIOLATION_DDL: Final = (
    "struct<trace: string, run: string, property: string, site: string, sender: string, number: bigint, "
    "promised: boolean, size: bigint, explanation: string, "
    "witness: array<struct<site: string, step: bigint, sender: string, number: bigint>>>"
)
ANSWERS_DDL: Final = f"sums binary, verdict {VERDICT_DDL}, violation {VIOLATION_DDL}"
"""A row is a run's verdict on a property, a violation, or the sums of a task."""
VERDICTS: Final = pa.struct(
    [
        pa.field("trace", pa.string()),
        pa.field("run", pa.string()),
        pa.field("property", pa.string()),
        pa.field("promised", pa.bool_()),
        pa.field("verdict", pa.string()),
        pa.field("violations", pa.int64()),
        pa.field("reason", pa.string()),
    ]
)
PACKED_DDL: Final = "problem string, segment binary"
CONNECT_SLOTS: Final = 16
"""Tasks planned for where the number of cores is unknown."""
TASK_ROWS: Final = 1 << 16
"""Rows of small runs for a task, about. Raising it makes fewer tasks, each of which takes more memory."""


class Audit:
    """The result of an audit on Spark."""

    def __init__(self, answers: "DataFrame", request: Request) -> None:
        self._answers = answers.persist()
        rows = self._answers.where("sums is not null").select("sums").collect()
        sums = [msgspec.msgpack.decode(bytes(row[0]), type=Sums) for row in rows]
        self.result: AuditResult = sum_up(sums, request, "spark")

    @property
    def verdict(self) -> Verdict:
        """Whether what was promised holds."""
        return self.result.verdict

    @property
    def verdicts(self) -> "DataFrame":
        """One row per run and property that was judged: the verdict, the violations and the reason."""
        return self._answers.where("verdict is not null").select("verdict.*")

    @property
    def violations(self) -> "DataFrame":
        """One row per violation, with its explanation, its witness and the size of its knot."""
        return self._answers.where("violation is not null").select("violation.*")

    def close(self) -> None:
        """Free what Spark keeps of the answers; later uses compute them again."""
        self._answers.unpersist()


def audit(
    spark: "SparkSession",
    source: "str | Path | DataFrame",
    expect: Sequence[Property] | None = None,
    *,
    runs: "DataFrame | None" = None,
    only: Sequence[Property] | None = None,
    violations_to: str | Path | None = None,
    summaries: int = 0,
) -> Audit:
    """Judge a trace on Spark, and explain every violation.

    `source` is a folder with `events/` and `runs/` on any file system that Spark reads, or a DataFrame with
    the columns of `events`; `runs` is then one with those of the table `runs`. `expect` overrides what the
    runs promised; `only` names what else to judge, instead of all seven properties. `violations_to` is a new
    folder for the violations as Parquet, on any file system that Spark writes. `summaries` bounds for
    how many runs `result.summaries` has all verdicts.
    """
    name = source if isinstance(source, str | Path) else "the DataFrame"
    request = checked_request([str(name)], expect, only)._replace(summaries=summaries)
    try:
        answers = Audit(_judged(spark, _opened(spark, source, runs), request), request)
    except Exception as error:
        explained = explain_failure(error)
        if explained is None:
            raise
        raise explained from error
    if violations_to is not None:
        _write(answers.violations, str(violations_to))
    return answers


def _write(violations: "DataFrame", folder: str) -> None:
    """Spark commits all files at once, or none."""
    try:
        violations.write.mode("error").parquet(folder)
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("pyspark", "py4j"):
            raise
        reason = str(error).strip().splitlines()[0]
        raise OutputError(f"The violations cannot be written to {folder}: {reason}") from error


class _Source(NamedTuple):
    """What is to be judged."""

    large: list[LargeRun]
    tasks: int
    """How many tasks bring the other runs together and judge them."""
    pieces: Callable[[Collection[str]], "DataFrame"]
    """The pieces of all runs but those named, to be brought together."""


def _opened(spark: "SparkSession", source: Any, runs: "DataFrame | None") -> _Source:
    if isinstance(source, str | Path):
        if "://" not in str(source) and has_own_files(source):
            return _source_of_files(spark, source)
        events = _read(spark, f"{source}/events")
        if events is None:
            raise InputError(
                f"There is no trace at {source}: Spark finds no Parquet files in events/.",
                "A trace is a folder that holds events/ and runs/; see docs/trace.md.",
            )
        runs = _read(spark, f"{source}/runs") if runs is None else runs
        source = events
    if runs is not None:
        runs = runs.select(*(name for name in RUNS.names if name in runs.columns))
    return _source_of_frames(_selected(source), runs)


def _source_of_frames(events: "DataFrame", runs: "DataFrame | None") -> _Source:
    from pyspark.sql import functions

    counted = events.groupBy("run").agg(functions.count("*").alias("size"))
    is_large = f"size >= {WINDOWED_ROWS} and run is not null"
    (sums,) = counted.selectExpr(
        "count(*) as runs",
        "sum(size) as rows",
        f"collect_list(struct(run, size)) filter (where {is_large}) as large",
    ).collect()
    large = [
        LargeRun(0, name, rows, _sorted_rows(events, name, rows), partial(_described, name, runs))
        for name, rows in sorted((each["run"], each["size"]) for each in sums["large"])
    ]

    def pieces(without: Collection[str]) -> "DataFrame":
        left = events
        if without:
            left = events.where(events["run"].isNull() | ~events["run"].isin(list(without)))
        found = map_in_arrow(left, _packed, PIECES_DDL)
        return found if runs is None else found.unionAll(map_in_arrow(runs, _promised, PIECES_DDL))

    tasks = min(2 * sums["runs"], max((sums["rows"] or 0) // TASK_ROWS, CONNECT_SLOTS))
    return _Source(large, max(tasks, 1), pieces)


def _sorted_rows(events: "DataFrame", run: str, rows: int) -> RunRows:
    """The rows of a run as segments in which each site's log stands in order, kept on disk."""
    from pyspark import StorageLevel

    own = events.where(events["run"] == run)
    parts = max(rows // SEGMENT_ROWS, 1)
    ordered = own.repartitionByRange(parts, "site", "step").sortWithinPartitions("site", "step")
    return RunRows(
        map_in_arrow(ordered, _packed_in_order, PACKED_DDL).persist(StorageLevel.DISK_ONLY), _unpacked
    )


def _packed_in_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As few segments as their size allows, each with the problem that it stands for, if any."""
    for table in _tables(batches):
        for piece in _pieces_of_table(table):
            columns = [pa.array([piece.problem], pa.string()), pa.array([piece.segment], pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, ["problem", "segment"])


def _tables(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Neighbouring batches as tables of about as many rows as a segment may have."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= SEGMENT_ROWS:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[Segment]:
    for batch in batches:
        for problem, segment in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if problem is not None:
                raise InputError(problem)
            yield msgspec.msgpack.decode(segment, type=Segment)


def _described(name: str, runs: "DataFrame | None") -> tuple[Run, bool]:
    """A run's row of `runs`, and whether its promises were recorded."""
    if runs is None:
        return Run(name), False
    found = conform(Path("runs"), runs.where(runs["run"] == name).toArrow(), RUNS)
    return row_among(name, runs_of(Path("runs"), found))


def _source_of_files(spark: "SparkSession", folder: str | Path) -> _Source:
    """Live members' logs are no Parquet: tasks read the files themselves."""
    traces, _ = open_traces([folder], None, 0)
    tasks, found = plan_large(traces, CONNECT_SLOTS, WINDOWED_ROWS)
    large = [
        LargeRun(0, name, rows, rows_of_files(spark, own), partial(row_of, name, traces[0].runs))
        for (_, name), (rows, own) in found.items()
    ]

    def pieces(without: Collection[str]) -> "DataFrame":
        left = [
            *tasks,
            *(task for (_, name), (_, own) in found.items() if name not in without for task in own),
        ]

        def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    yield from batches_of(read_pieces(left[index]))

        return map_in_arrow(spark.range(0, len(left), 1, max(len(left), 1)), packed, PIECES_DDL)

    return _Source(large, 2 * CONNECT_SLOTS, pieces)


def _read(spark: "SparkSession", folder: str) -> "DataFrame | None":
    """The Parquet files below a folder, Hive's partition columns included; None if there are none."""
    try:
        found = spark.read.parquet(folder)
        # Spark Connect looks for the files only when it is asked for the columns.
        return found if found.columns else None
    except Exception as error:
        missing = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
        if any(word in str(error) for word in missing):
            return None
        raise


def _selected(events: "DataFrame") -> "DataFrame":
    """The columns that a verdict needs, in the types of the schema; InputError if they do not fit."""
    types = {name.lower(): kind for name, kind in events.dtypes}
    for name in REQUIRED_EVENT_COLUMNS:
        if name not in types:
            hint = f"Every trace needs {', '.join(REQUIRED_EVENT_COLUMNS)}; see docs/trace.md."
            raise InputError(f"The column {name} is missing from the events.", hint)
    whole = ("tinyint", "smallint", "int", "bigint")
    for name in ("step", "number", "count"):
        if types.get(name, "bigint") not in (*whole, "void"):
            raise InputError(f"The column {name} of the events is of type {types[name]}, not bigint.")
    casts = {"destinations": "array<string>", "step": "bigint", "number": "bigint", "count": "int"}
    present = [name for name in COLUMNS if name in types]
    return events.select(*(events[name].cast(casts.get(name, "string")).alias(name) for name in present))


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Events as segments of their runs."""
    tables = (pa.Table.from_batches([batch]) for batch in batches)
    yield from batches_of(piece for table in tables for piece in _pieces_of_table(table))


def _pieces_of_table(table: pa.Table) -> Iterator[Piece]:
    encode = msgspec.msgpack.Encoder().encode
    for name in ("run", "site", "step", "kind"):
        if table.column(name).null_count:
            sentence = f"The column {name} of the events has rows without a value."
            yield Piece(0, None, sentence, None, None)
            return
    wanted = pa.schema([EVENTS.field(name) for name in table.column_names])
    for packed in pack(table.cast(wanted)):
        segment = None if packed.segment is None else encode(packed.segment)
        yield Piece(0, packed.run, packed.problem, None, segment)


def _promised(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of the table `runs` as pieces."""
    encode = msgspec.msgpack.Encoder().encode
    for batch in batches:
        table = conform(Path("runs"), pa.Table.from_batches([batch]), RUNS)
        try:
            rows = runs_of(Path("runs"), table)
            yield from batches_of(
                Piece(0, run.run, None, encode((run, promised)), None) for run, promised in rows
            )
        except InputError as error:
            yield from batches_of(iter([Piece(0, None, error.sentence, encode(error.hint), None)]))


def _judged(spark: "SparkSession", source: _Source, request: Request) -> "DataFrame":
    """The answers on all runs: large ones in windows, then the others, each brought together in a task."""
    told: list[pa.RecordBatch] = []
    windowed: set[str] = set()
    for large in source.large:
        sums = Sums()
        try:
            report = judge_large(large, request, sums)
        finally:
            large.rows.frame.unpersist()
        if report is not None:
            windowed.add(large.name)
            told += [*_reported(report), _summed(sums)]
    request = request._replace(windowed=frozenset((0, name) for name in windowed))
    answers = _answers(source.pieces(windowed), source.tasks, request)
    return answers.unionAll(_held(spark, told)) if told else answers


def _held(spark: "SparkSession", batches: list[pa.RecordBatch]) -> "DataFrame":
    """Answers that the driver has, as a frame."""

    def held(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    return map_in_arrow(spark.range(0, 1, 1, 1), held, ANSWERS_DDL)


def _answers(pieces: "DataFrame", tasks: int, request: Request) -> "DataFrame":
    """Bring each run together and judge it."""

    def judged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sums = Sums()
        for report in report_runs(pieces_of(batches), request, sums):
            yield from _reported(report)
        yield _summed(sums)

    by_run = pieces.repartition(tasks, "trace", "run").sortWithinPartitions("trace", "run")
    return map_in_arrow(by_run, judged, ANSWERS_DDL)


def _summed(sums: Sums) -> pa.RecordBatch:
    return _answer("sums", pa.array([msgspec.msgpack.encode(sums)], pa.binary()))


def _reported(report: RunReport) -> Iterator[pa.RecordBatch]:
    verdicts = [{"trace": report.trace, **msgspec.to_builtins(each)} for each in report.verdicts]
    if verdicts:
        yield _answer("verdict", pa.array(verdicts, VERDICTS))
    if report.violations:
        table = violations_table(report.violations, report.trace, report.promises)
        yield _answer("violation", table.to_struct_array().combine_chunks())


def _answer(name: str, rows: Any) -> pa.RecordBatch:
    """A batch of answers in which only one column has values."""
    types = {"sums": pa.binary(), "verdict": VERDICTS, "violation": pa.struct(list(VIOLATIONS))}
    columns = [rows if each == name else pa.nulls(len(rows), kind) for each, kind in types.items()]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(types.items())))
