"""The audit: every property of every run of a trace, judged as one Spark job.

Two stages. First, Parquet row groups and the live members' files are tasks: each reads its rows, packs them
into segments by run, and sends those to where their run is judged (`packing`). Then each run's segments meet
in one task, which lays them out as flat arrays (`log`) and runs the compiled kernels over them (`judging`).
The rows of the `runs` table take the same way, so that nothing has to fit into the driver: 100,000 runs are
as welcome as one of 10^8 deliveries. Runs come sorted within a task and are grouped there, so that a small
run costs no batch and no call of its own.

What reaches the driver is one row of sums per task and as many violations as are to be shown. All of them can
be written to Parquet by the tasks themselves. The paths must be readable, and that for the violations
writable, from wherever the tasks run.

A promise is made per run. The verdict is `fail` if any run breaks one of its own promises (or one of those
expected instead); else `unknown` if a run could not be judged or nobody recorded what it promised; else
`pass`.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from antiphon.check.verdict import Verdict, Violation
from antiphon.core.errors import InputError, OutputError, UsageError
from antiphon.core.ids import Site
from antiphon.core.recording import PROMISABLE, PROPERTIES, Property
from antiphon.spark.judging import Judgement, judge
from antiphon.spark.log import Log, build_log
from antiphon.spark.packing import Segment, pack, read_row_groups
from antiphon.spark.session import map_in_arrow
from antiphon.trace.arrow import pa, pq
from antiphon.trace.files import TraceFiles, open_trace, read_runs
from antiphon.trace.frames import ROW
from antiphon.trace.schema import Run
from antiphon.trace.segment_tables import SegmentFile, segment_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK_ROWS: Final = 1 << 20
"""Row groups are put together into tasks of about so many rows; a row group is never split."""
LEAST_TASK_ROWS: Final = 1 << 14
RUNS_FILES_PER_TASK: Final = 64
SEGMENTS_PER_BATCH: Final = 1024
BYTES_PER_BATCH: Final = 16 << 20
TROUBLES_TOLD: Final = 20
VIOLATIONS_PER_FILE_BATCH: Final = 10_000

PIECES: Final = pa.schema(
    [
        pa.field("trace", pa.int32()),
        pa.field("run", pa.string()),
        pa.field("trouble", pa.string()),
        pa.field("promised", pa.binary()),
        pa.field("segment", pa.binary()),
    ]
)
PIECES_DDL: Final = "trace int, run string, trouble string, promised binary, segment binary"

VIOLATIONS: Final = pa.schema(
    [
        pa.field("trace", pa.string()),
        pa.field("run", pa.string()),
        pa.field("property", pa.string()),
        pa.field("site", pa.string()),
        pa.field("sender", pa.string()),
        pa.field("number", pa.int64()),
        pa.field("promised", pa.bool_()),
        pa.field("explanation", pa.string()),
        pa.field(
            "witness",
            pa.list_(
                pa.struct(
                    [
                        pa.field("site", pa.string()),
                        pa.field("step", pa.int64()),
                        pa.field("sender", pa.string()),
                        pa.field("number", pa.int64()),
                    ]
                )
            ),
        ),
    ]
)
"""The table of violations that an audit can write."""


class AuditResult(msgspec.Struct, frozen=True):
    """What an audit found. Sends and deliveries count messages; sites count distinct names."""

    verdict: Verdict
    runs: int
    sites: int
    sends: int
    deliveries: int
    violations: dict[Property, int]
    """Of the properties that are always judged, and of those that were promised or expected."""
    examples: list[Violation]
    """The first violations of each property, broken promises before others."""
    broken: dict[Property, int]
    """How many of the violations break a promise of their run."""
    broken_runs: list[str]
    """Some of the runs that break a promise, by name."""
    broken_run_count: int
    unpromised: int
    """How many runs have no recorded promises, where none were expected instead."""
    unjudgeable: list[str]
    """Sentences about runs that could not be judged, or cannot pass; as many as are worth reading."""
    unjudgeable_count: int

    def to_json(self) -> dict[str, object]:
        """The figures that `antiphon audit --json` prints."""
        return {
            "verdict": self.verdict.value,
            "runs": self.runs,
            "sites": self.sites,
            "sends": self.sends,
            "deliveries": self.deliveries,
            "violations": dict(self.violations),
        }


class Sums(msgspec.Struct):
    """What one judging task found, summed up."""

    runs: int = 0
    sites: set[Site] = msgspec.field(default_factory=set)
    sends: int = 0
    deliveries: int = 0
    counts: dict[Property, int] = msgspec.field(default_factory=lambda: dict.fromkeys(PROPERTIES, 0))
    broken: dict[Property, int] = msgspec.field(default_factory=lambda: dict.fromkeys(PROMISABLE, 0))
    broken_runs: list[str] = msgspec.field(default_factory=list)
    broken_run_count: int = 0
    unpromised: int = 0
    troubles: list[str] = msgspec.field(default_factory=list)
    trouble_count: int = 0
    file_trouble: tuple[str, str | None] | None = None
    output_trouble: str | None = None
    examples: dict[Property, list[tuple[bool, Violation]]] = msgspec.field(
        default_factory=lambda: {name: [] for name in PROMISABLE}
    )
    """Violations to be shown, each with whether it breaks a promise; those that do come first."""

    def note(self, trouble: str) -> None:
        """Something keeps a run from being judged, or from passing."""
        self.trouble_count += 1
        if len(self.troubles) < TROUBLES_TOLD:
            self.troubles.append(trouble)

    def room(self, name: Property, limit: int, promised: bool) -> int:
        """How many more violations of a property are worth telling."""
        held = self.examples[name]
        return limit - sum(1 for example in held if example[0] or not promised)

    def show(self, violation: Violation, limit: int, promised: bool) -> None:
        held = self.examples[violation.property]
        held.append((promised, violation))
        if promised:
            held.sort(key=lambda example: not example[0])
        del held[limit:]


class _Task(NamedTuple):
    """What one packing task reads: row groups of event files, live members' files, or whole files of runs."""

    trace: int
    events: list[tuple[str, list[int]]]
    segments: list[SegmentFile]
    runs: list[str]


class _Share(NamedTuple):
    """The least that a task can read: one row group of a file, or the whole of a live member's file."""

    trace: int
    rows: int
    path: str
    row_group: int
    segment: SegmentFile | None


class _Question(NamedTuple):
    """What every judging task has to know."""

    traces: list[str]
    expect: tuple[Property, ...] | None
    limit: int
    violations_to: str | None


def audit(
    spark: "SparkSession",
    paths: Sequence[Path | str],
    expect: Sequence[Property] | None = None,
    limit: int = 100,
    violations_to: Path | str | None = None,
) -> AuditResult:
    """Judge all runs of these traces. Runs of different traces are different runs, whatever their names.

    `limit` bounds how many violations of each property are put into words; counts are always whole. With
    `violations_to` all of them are, and go to Parquet files in that folder, which must not hold any yet.
    """
    traces = _open(paths, expect, limit)
    tasks = _tasks(traces, spark.sparkContext.defaultParallelism)
    target = None if violations_to is None else _empty_folder(Path(violations_to))
    question = _question(traces, expect, limit, target)
    return _result(_ask(spark, tasks, question), question)


def audit_here(
    paths: Sequence[Path | str], expect: Sequence[Property] | None = None, limit: int = 100
) -> AuditResult:
    """The same judgement in this process, without Spark: for traces that one core judges soon enough."""
    traces = _open(paths, expect, limit)
    question = _question(traces, expect, limit, None)
    pieces = [piece for task in _tasks(traces, 1) for piece in _packed_rows(task)]
    pieces.sort(key=lambda piece: (piece.trace, piece.run or ""))
    return _result([_judge_task(iter(pieces), question)], question)


def _open(paths: Sequence[Path | str], expect: Sequence[Property] | None, limit: int) -> list[TraceFiles]:
    unknown = sorted(set(expect or ()) - set(PROMISABLE))
    if unknown:
        raise UsageError(f"{unknown[0]!r} is no property.", f"The properties are {', '.join(PROMISABLE)}.")
    if not paths or limit < 0:
        raise UsageError("An audit needs at least one trace and a limit that is not negative.")
    return [open_trace(path) for path in paths]


def _question(
    traces: Sequence[TraceFiles], expect: Sequence[Property] | None, limit: int, target: str | None
) -> _Question:
    folders = [str(trace.folder) for trace in traces]
    return _Question(folders, None if expect is None else tuple(expect), limit, target)


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


def _tasks(traces: Sequence[TraceFiles], slots: int) -> list[_Task]:
    """Shares put together by their row counts, big enough to be worth a task."""
    shares = [share for index, trace in enumerate(traces) for share in _shares(index, trace)]
    size = min(max(sum(share.rows for share in shares) // (2 * slots), LEAST_TASK_ROWS), TASK_ROWS)
    tasks: list[_Task] = []
    filled = size
    for share in shares:
        if filled + share.rows // 2 >= size or tasks[-1].trace != share.trace:
            tasks.append(_Task(share.trace, [], [], []))
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
        tasks += [_Task(index, [], [], files[begin : begin + RUNS_FILES_PER_TASK]) for begin in begins]
    return tasks


def _shares(index: int, trace: TraceFiles) -> Iterator[_Share]:
    """Row counts of Parquet are in the footers; those of live files follow from their lengths."""
    for file in trace.events:
        metadata = pq.read_metadata(file)
        for group in range(metadata.num_row_groups):
            yield _Share(index, metadata.row_group(group).num_rows, str(file.resolve()), group, None)
    for segment in trace.segments:
        resolved = msgspec.structs.replace(segment, path=segment.path.resolve())
        yield _Share(index, segment.size // ROW.size, "", 0, resolved)


def _ask(spark: "SparkSession", tasks: list[_Task], question: _Question) -> list[Sums]:
    """Run the job: pack, bring each run together, judge."""
    if not tasks:
        return []

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from _pack_task(tasks[index])

    def judged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sums = msgspec.msgpack.encode(_judge_task(_pieces(batches), question))
        yield pa.RecordBatch.from_pydict({"sums": pa.array([sums], pa.binary())})

    pieces = map_in_arrow(spark.range(0, len(tasks), 1, len(tasks)), packed, PIECES_DDL)
    by_run: DataFrame = pieces.repartition("trace", "run").sortWithinPartitions("trace", "run")
    answers = map_in_arrow(by_run, judged, "sums binary").collect()
    return [msgspec.msgpack.decode(bytes(answer[0]), type=Sums) for answer in answers]


# Packing, in the tasks


class _Piece(NamedTuple):
    """One row of the shuffle: a segment of a run, its row in `runs`, or what is wrong."""

    trace: int
    run: str | None
    trouble: str | None
    promised: bytes | None
    segment: bytes | None


def _pack_task(task: _Task) -> Iterator[pa.RecordBatch]:
    rows: list[_Piece] = []
    size = 0
    for row in _packed_rows(task):
        rows.append(row)
        size += len(row.segment or b"") + len(row.promised or b"")
        if len(rows) >= SEGMENTS_PER_BATCH or size >= BYTES_PER_BATCH:
            yield _pieces_batch(rows)
            rows, size = [], 0
    if rows:
        yield _pieces_batch(rows)


def _pieces_batch(rows: list[_Piece]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, PIECES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PIECES)


def _packed_rows(task: _Task) -> Iterator[_Piece]:
    encode = msgspec.msgpack.Encoder().encode
    try:
        for table in _tables(task):
            for piece in pack(table):
                segment = None if piece.segment is None else encode(piece.segment)
                yield _Piece(task.trace, piece.run, piece.trouble, None, segment)
        for path in task.runs:
            for run, promised in read_runs(Path(path)):
                yield _Piece(task.trace, run.run, None, encode((run, promised)), None)
    except InputError as error:
        # No run's fault: the whole audit ends with this sentence. A row without a run carries it.
        yield _Piece(task.trace, None, error.sentence, encode(error.hint), None)


def _tables(task: _Task) -> Iterator[pa.Table]:
    for path, row_groups in task.events:
        yield read_row_groups(Path(path), row_groups)
    for segment in task.segments:
        yield from segment_tables(segment)


# Judging, in the tasks


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[_Piece]:
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        yield from (_Piece(*row) for row in zip(*columns, strict=True))


def _judge_task(pieces: Iterator[_Piece], question: _Question) -> Sums:
    sums = Sums()
    with _ViolationFile(question) as file:
        for (trace, run), own in groupby(pieces, key=lambda piece: (piece.trace, piece.run)):
            if run is None:
                # Several files may be torn; the first one is named.
                first = min(own, key=lambda piece: piece.trouble or "")
                hint = None if first.promised is None else msgspec.msgpack.decode(first.promised)
                sums.file_trouble = (first.trouble or "", hint)
                continue
            _judge_run(trace, run, own, question, sums, file)
    sums.output_trouble = file.trouble
    return sums


def _judge_run(
    trace: int, name: str, pieces: Iterable[_Piece], question: _Question, sums: Sums, file: "_ViolationFile"
) -> None:
    sums.runs += 1
    try:
        run, promised, segments = _gathered(name, pieces)
        promises = run.promises if question.expect is None else question.expect
        log, judgement = _judged(run, segments, _worth_telling(sums, promises, question))
    except InputError as error:
        sums.note(error.sentence)
        return
    hole = log.first_hole()
    if hole is not None:
        sums.note(hole)
    if question.expect is None and not promised:
        sums.unpromised += 1
    _add(sums, log, judgement, promises, question.limit)
    file.write(question.traces[trace], judgement.violations, promises)


def _judged(run: Run, segments: list[Segment], limits: dict[Property, int | None]) -> tuple[Log, Judgement]:
    """Batches are judged as wholes, which is far less work, unless each violation is to be told."""
    if None not in limits.values():
        log = build_log(run, segments, by_batch=True)
        judgement = judge(log, limits)
        if judgement.exact:
            return log, judgement
    log = build_log(run, segments)
    return log, judge(log, limits)


def _gathered(name: str, pieces: Iterable[_Piece]) -> tuple[Run, bool, list[Segment]]:
    """A run's row in `runs`, if there is one, and its segments; InputError if it cannot be judged."""
    run, promised, rows = Run(name), False, 0
    segments: list[Segment] = []
    trouble: str | None = None
    for piece in pieces:
        trouble = trouble or piece.trouble
        if piece.promised is not None:
            run, promised = msgspec.msgpack.decode(piece.promised, type=tuple[Run, bool])
            rows += 1
        if piece.segment is not None:
            segments.append(msgspec.msgpack.decode(piece.segment, type=Segment))
    if rows > 1:
        trouble = f"Run {name} cannot be judged: it has {rows} rows in runs/."
    if trouble is not None:
        raise InputError(trouble)
    return run, promised, segments


def _add(sums: Sums, log: Log, judgement: Judgement, promises: Sequence[Property], limit: int) -> None:
    sums.sites.update(log.sites[: log.logged])
    sums.sends += log.sends
    sums.deliveries += log.deliveries
    for name, count in judgement.counts.items():
        sums.counts[name] = sums.counts.get(name, 0) + count
    broken = [name for name in promises if judgement.counts[name]]
    for name in broken:
        sums.broken[name] += judgement.counts[name]
    if broken:
        sums.broken_run_count += 1
        if len(sums.broken_runs) < limit:
            sums.broken_runs.append(log.run.run)
    for violation in judgement.violations:
        promised = violation.property in promises
        if sums.room(violation.property, limit, promised) > 0:
            sums.show(violation, limit, promised)


def _worth_telling(
    sums: Sums, promises: Sequence[Property], question: _Question
) -> dict[Property, int | None]:
    """How many violations of each property to put into words: all, if they are to be written."""
    judged = [name for name in PROMISABLE if name in PROPERTIES or name in promises]
    if question.violations_to is not None:
        return dict.fromkeys(judged)
    return {name: sums.room(name, question.limit, name in promises) for name in judged}


class _ViolationFile:
    """The Parquet file of one task, begun with its first violation and named once it is whole."""

    def __init__(self, question: _Question) -> None:
        self._folder = None if question.violations_to is None else Path(question.violations_to)
        self._writer: Any = None
        self._hidden = Path()
        self.trouble: str | None = None

    def __enter__(self) -> "_ViolationFile":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._writer is None:
            return
        try:
            self._writer.close()
            if kind is None and self.trouble is None:
                self._hidden.rename(self._hidden.with_name(self._hidden.name[1:]))
        except OSError as error:
            self.trouble = self.trouble or error.strerror or str(error)
        finally:
            self._hidden.unlink(missing_ok=True)

    def write(self, trace: str, violations: Iterable[Violation], promises: Sequence[Property]) -> None:
        if self._folder is None or self.trouble is not None:
            return
        rows = iter(violations)
        try:
            while batch := list(islice(rows, VIOLATIONS_PER_FILE_BATCH)):
                if self._writer is None:
                    self._open(self._folder)
                self._writer.write_table(violations_table(batch, trace, promises))
        except OSError as error:
            self.trouble = error.strerror or str(error)

    def _open(self, folder: Path) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        self._hidden = folder / f".violations-{part:05d}.parquet"
        self._writer = pq.ParquetWriter(self._hidden, VIOLATIONS, compression="zstd")


def violations_table(violations: Sequence[Violation], trace: str, promises: Sequence[Property]) -> pa.Table:
    """Violations of one trace as rows; `promised` says whether the property was promised by that run."""
    rows = [
        {
            **msgspec.to_builtins(violation),
            "trace": trace,
            "promised": violation.property in promises,
        }
        for violation in violations
    ]
    return pa.Table.from_pylist(rows, schema=VIOLATIONS)


# The sum of it, in the driver


def _result(answers: Sequence[Sums], question: _Question) -> AuditResult:
    for answer in answers:
        if answer.file_trouble is not None:
            raise InputError(*answer.file_trouble)
        if answer.output_trouble is not None:
            raise OutputError(
                f"The violations cannot be written to {question.violations_to}: {answer.output_trouble}."
            )
    judged = [
        name for name in PROMISABLE if name in PROPERTIES or any(name in sums.counts for sums in answers)
    ]
    broken = {name: sum(answer.broken[name] for answer in answers) for name in judged}
    unpromised = sum(answer.unpromised for answer in answers)
    troubles = sum(answer.trouble_count for answer in answers)
    every = Sums()
    for name in judged:
        for promised, violation in (example for answer in answers for example in answer.examples[name]):
            every.show(violation, question.limit, promised)
    examples = [example for name in judged for example in every.examples[name]]
    examples.sort(key=lambda example: not example[0])
    return AuditResult(
        verdict=_verdict(any(broken.values()), troubles + unpromised),
        runs=sum(answer.runs for answer in answers),
        sites=len(set().union(*(answer.sites for answer in answers))),
        sends=sum(answer.sends for answer in answers),
        deliveries=sum(answer.deliveries for answer in answers),
        violations={name: sum(answer.counts.get(name, 0) for answer in answers) for name in judged},
        examples=[violation for _, violation in examples],
        broken=broken,
        broken_runs=sorted(run for answer in answers for run in answer.broken_runs)[: question.limit],
        broken_run_count=sum(answer.broken_run_count for answer in answers),
        unpromised=unpromised,
        unjudgeable=sorted(text for answer in answers for text in answer.troubles)[:TROUBLES_TOLD],
        unjudgeable_count=troubles,
    )


def _verdict(is_broken: bool, unclear: int) -> Verdict:
    if is_broken:
        return Verdict.FAIL
    return Verdict.UNKNOWN if unclear else Verdict.PASS
