"""One large run as Spark jobs: indexed, dealt out to windows, and judged there.

Each job reads the run's files in tasks (`audit.reading`). The first indexes the parts of the sites' logs; the
driver cuts the run into windows. The second deals the rows out to the windows, a few windows to a task, and
judges each by itself. If fragments of several windows are interwoven, the rows are dealt out once more, kept
on disk, and the further passes run over the windows concerned.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antiphon.audit.judging import Judgement
from antiphon.audit.reading import ReadTask, read_segments
from antiphon.audit.runs import Request, Sums, limits_of, note_judgement, note_problem
from antiphon.audit.violations import ViolationFile
from antiphon.audit.windows import passes
from antiphon.audit.windows.cutting import PartIndex, cut, in_order, index_parts
from antiphon.audit.windows.driving import JUDGED_IN_WINDOWS, Arguments, Driver
from antiphon.audit.windows.passes import Summary
from antiphon.audit.windows.planning import cell_of, facts_of, row_of, window_size
from antiphon.audit.windows.routing import Carried, Chunk, carry, route
from antiphon.audit.windows.window import Context, Window
from antiphon.core.errors import InputError
from antiphon.core.ids import Site
from antiphon.spark.session import map_in_arrow
from antiphon.trace.arrow import pa
from antiphon.trace.files import TraceFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUNDLE: Final = 4
"""Windows to a task. Raising it costs memory in the task, lowering it time: a task costs 30 to 60 ms."""
CHUNKS_DDL: Final = "bundle int, window int, chunk binary"
FIRST_PART: Final = 1 << 20
"""Files of violations are numbered by task; those of runs judged in windows count from here."""


def judge_large(
    spark: "SparkSession",
    trace: int,
    name: str,
    files: TraceFiles,
    tasks: list[ReadTask],
    rows: int,
    request: Request,
) -> Sums | None:
    """Judge one run in windows. None if it must be judged in one piece: its logs' parts overlap, rows share a
    step or name domains, or a property is asked for that windows do not judge."""
    sums = Sums(runs=1)
    try:
        run, promised = row_of(name, files.runs)
        promises = run.promises if request.expect is None else request.expect
        limits = limits_of(sums, promises, request)
        if not JUDGED_IN_WINDOWS.issuperset(limits):
            return None
        logs = in_order(_index(spark, tasks, cell_of(rows)))
        if logs is None:
            return None
    except InputError as error:
        note_problem(sums, request.folders[trace], name, error.sentence, request)
        return sums
    cuts = cut(logs, window_size(len(logs)))
    with SparkRunner(spark, Context(run, cuts, limits), tasks, carry(logs)) as runner:
        driver = Driver(runner)
        judgement: Judgement = driver.judge()
    verdicts = note_judgement(sums, facts_of(run, cuts, logs, driver.sends), judgement, promised, request)
    sums.summarize(request.folders[trace], name, verdicts, request.summaries)
    with ViolationFile(request.violations_to, FIRST_PART + trace) as file:
        file.write(request.folders[trace], judgement.violations, promises)
    sums.output_problem = file.problem
    return sums


def _index(spark: "SparkSession", tasks: list[ReadTask], cell: int) -> list[PartIndex]:
    """The index of all parts; InputError if a task could not read its rows."""

    def indexed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield _answer(_indexed(tasks[task], cell))

    numbers = spark.range(0, len(tasks), 1, len(tasks))
    answers = map_in_arrow(numbers, indexed, "answer binary").collect()
    parts: list[PartIndex] = []
    for answer in answers:
        found = pickle.loads(answer[0])
        if isinstance(found, InputError):
            raise found
        parts += found
    return parts


def _indexed(task: ReadTask, cell: int) -> list[PartIndex] | InputError:
    try:
        return [part for segment in read_segments(task) for part in index_parts(segment, cell)]
    except InputError as error:
        return error


def _answer(found: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"answer": pa.array([pickle.dumps(found)], pa.binary())})


class SparkRunner:
    """Holds the rows of a run's windows as partitions; a `windows.driving.Runner`."""

    def __init__(
        self,
        spark: "SparkSession",
        context: Context,
        tasks: list[ReadTask],
        carried: dict[tuple[Site, int], Carried],
    ) -> None:
        self.spark = spark
        self.context = context
        self._tasks = tasks
        self._carried = carried
        self._kept: DataFrame | None = None

    def __enter__(self) -> "SparkRunner":
        return self

    def __exit__(self, *_: object) -> None:
        if self._kept is not None:
            self._kept.unpersist()

    def summaries(self) -> Iterator[tuple[int, Summary]]:
        """The first pass; its rows are dealt out and not kept."""
        yield from self._mapped(self._dealt(), lambda window, _: passes.summarize(window), None)

    def apply(self, name: str, arguments: Arguments) -> Iterator[tuple[int, Any]]:
        def given(window: Window, index: int) -> Any:
            return getattr(passes, name)(window, *arguments[index])

        yield from self._mapped(self._stored(), given, set(arguments))

    def chunks(self, windows: Iterable[int]) -> list[Chunk]:
        wanted = self._stored().where(self._stored().window.isin(list(windows))).collect()
        return [msgspec.msgpack.decode(row["chunk"], type=Chunk) for row in wanted]

    def _stored(self) -> "DataFrame":
        from pyspark import StorageLevel

        if self._kept is None:
            self._kept = self._dealt().persist(StorageLevel.DISK_ONLY)
        return self._kept

    def _dealt(self) -> "DataFrame":
        """Each row group's chunks, brought together by bundles of windows."""
        tasks, cuts, carried = self._tasks, self.context.cuts, self._carried

        def dealt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    for segment in read_segments(tasks[task]):
                        for window, chunk in route(segment, cuts, carried):
                            yield _chunk_row(window, chunk)

        from pyspark.sql import functions

        chunks = map_in_arrow(self.spark.range(0, len(tasks), 1, len(tasks)), dealt, CHUNKS_DDL)
        return chunks.repartitionById(-(-cuts.windows // BUNDLE), functions.col("bundle"))

    def _mapped(
        self, frame: "DataFrame", function: Callable[[Window, int], Any], wanted: set[int] | None
    ) -> Iterator[tuple[int, Any]]:
        context = self.context

        def mapped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            by_window: dict[int, list[bytes]] = {}
            for batch in batches:
                for _, window, chunk in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    if wanted is None or window in wanted:
                        by_window.setdefault(window, []).append(chunk)
            for window in sorted(by_window):
                chunks = [msgspec.msgpack.decode(data, type=Chunk) for data in by_window.pop(window)]
                yield _answer((window, function(Window(context, chunks), window)))

        for answer in map_in_arrow(frame, mapped, "answer binary").collect():
            yield pickle.loads(answer[0])


def _chunk_row(window: int, chunk: Chunk) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "bundle": pa.array([window // BUNDLE], pa.int32()),
            "window": pa.array([window], pa.int32()),
            "chunk": pa.array([msgspec.msgpack.encode(chunk)], pa.binary()),
        }
    )
