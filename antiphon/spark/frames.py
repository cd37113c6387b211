"""The audit in Spark's own terms: DataFrames in, DataFrames out.

`antiphon.audit` takes a path that Spark can read, on any file system, or a DataFrame with the columns of
`events`, from whatever table it comes. Only public methods of Spark are used, so that it also works in a
session of Spark Connect. The runs are judged once, when the result is made; `verdicts` and `violations` are
views of what was kept then.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antiphon.audit.packing import COLUMNS, pack
from antiphon.audit.reading import Piece, has_own_files, plan_tasks, read_pieces
from antiphon.audit.result import AuditResult, sum_up
from antiphon.audit.runs import Request, RunReport, Sums, checked_request, open_traces, report_runs
from antiphon.audit.violations import VIOLATIONS, violations_table
from antiphon.check.verdict import Verdict
from antiphon.core.errors import InputError, OutputError
from antiphon.core.recording import Property
from antiphon.spark.audit import PIECES_DDL, batches_of, pieces_of
from antiphon.spark.session import map_in_arrow
from antiphon.spark.tasks import explain_failure
from antiphon.trace.arrow import EVENTS, RUNS, pa
from antiphon.trace.files import REQUIRED_EVENT_COLUMNS, conform, runs_of

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
CONNECT_SLOTS: Final = 16
"""Tasks planned for where the number of cores is unknown."""


class Audit:
    """The result of an audit on Spark."""

    def __init__(self, answers: "DataFrame", request: Request) -> None:
        self._answers = answers.persist()
        try:
            rows = self._answers.where("sums is not null").select("sums").collect()
        except Exception as error:
            explained = explain_failure(error)
            if explained is None:
                raise
            raise explained from error
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
    pieces = _pieces(spark, source, runs)
    answers = Audit(_answers(pieces, request), request)
    if violations_to is not None:
        _write(answers.violations, str(violations_to))
    return answers


def _write(violations: "DataFrame", folder: str) -> None:
    """Spark commits all files at once, or none."""
    try:
        violations.write.mode("errorifexists").parquet(folder)
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("pyspark", "py4j"):
            raise
        reason = str(error).strip().splitlines()[0]
        raise OutputError(f"The violations cannot be written to {folder}: {reason}") from error


def _pieces(spark: "SparkSession", source: Any, runs: "DataFrame | None") -> "DataFrame":
    """The pieces of all runs, to be brought together."""
    if isinstance(source, str | Path):
        if "://" not in str(source) and has_own_files(source):
            return _pieces_of_files(spark, source)
        events = _read(spark, f"{source}/events")
        if events is None:
            raise InputError(
                f"There is no trace at {source}: Spark finds no Parquet files in events/.",
                "A trace is a folder that holds events/ and runs/; see docs/trace.md.",
            )
        runs = _read(spark, f"{source}/runs") if runs is None else runs
        source = events
    pieces = map_in_arrow(_selected(source), _packed, PIECES_DDL)
    if runs is None:
        return pieces
    present = [name for name in RUNS.names if name in runs.columns]
    return pieces.unionAll(map_in_arrow(runs.select(*present), _promised, PIECES_DDL))


def _read(spark: "SparkSession", folder: str) -> "DataFrame | None":
    """The Parquet files below a folder, Hive's partition columns included; None if there are none."""
    try:
        return spark.read.parquet(folder)
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


def _pieces_of_files(spark: "SparkSession", folder: str | Path) -> "DataFrame":
    """Live members' logs are no Parquet: tasks read the files themselves."""
    traces, _ = open_traces([folder], None, 0)
    tasks = plan_tasks(traces, CONNECT_SLOTS)

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from batches_of(read_pieces(tasks[index]))

    return map_in_arrow(spark.range(0, len(tasks), 1, max(len(tasks), 1)), packed, PIECES_DDL)


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Events as segments of their runs."""
    yield from batches_of(piece for batch in batches for piece in _pieces_of_batch(batch))


def _pieces_of_batch(batch: pa.RecordBatch) -> Iterator[Piece]:
    encode = msgspec.msgpack.Encoder().encode
    table = pa.Table.from_batches([batch])
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


def _answers(pieces: "DataFrame", request: Request) -> "DataFrame":
    """Bring each run together and judge it."""

    def judged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sums = Sums()
        for report in report_runs(pieces_of(batches), request, sums):
            yield from _reported(report)
        yield _answer("sums", pa.array([msgspec.msgpack.encode(sums)], pa.binary()))

    by_run = pieces.repartition("trace", "run").sortWithinPartitions("trace", "run")
    return map_in_arrow(by_run, judged, ANSWERS_DDL)


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
