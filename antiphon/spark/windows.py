"""One large run as Spark jobs: indexed, dealt out to windows, and judged there.

Each job reads the run's rows, from files (`audit.reading`) or from a frame. The first indexes the parts of
the sites' logs; the driver cuts the run into windows. The second deals the rows out to the windows, a few
windows to a task, and judges each by itself. If fragments of several windows are interwoven, further passes
run over the windows concerned, on rows that are kept on disk: those of the second job where the index shows
deliveries that lead back, else the rows are dealt out once more.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from antiphon.audit.judging import Judgement
from antiphon.audit.packing import Segment
from antiphon.audit.reading import ReadTask, read_segments
from antiphon.audit.runs import Request, RunReport, Sums, limits_of, note_judgement, note_problem
from antiphon.audit.windows import passes
from antiphon.audit.windows.cutting import PartIndex, cut, in_order, index_parts, leads_back
from antiphon.audit.windows.driving import JUDGED_IN_WINDOWS, Arguments, Driver
from antiphon.audit.windows.passes import Summary
from antiphon.audit.windows.planning import cell_of, facts_of, window_size
from antiphon.audit.windows.routing import Carried, Chunk, carry, route
from antiphon.audit.windows.window import Context, Window
from antiphon.core.errors import InputError
from antiphon.core.ids import Site
from antiphon.spark.session import map_in_arrow
from antiphon.trace.arrow import pa
from antiphon.trace.schema import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUNDLE: Final = 4
"""Windows to a task. Raising it costs memory in the task, lowering it time: a task costs 30 to 60 ms."""
CHUNKS_DDL: Final = "bundle int, window int, chunk binary"


class RunRows(NamedTuple):
    """The rows of one run: a frame, and what reads the segments of one of its partitions. Every job reads
    them anew."""

    frame: "DataFrame"
    segments: Callable[[Iterator[pa.RecordBatch]], Iterator[Segment]]


class LargeRun(NamedTuple):
    """A run to be judged in windows."""

    trace: int
    name: str
    size: int
    """How many rows it has."""
    rows: RunRows
    described: Callable[[], tuple[Run, bool]]
    """Its row of `runs`, and whether its promises were recorded; InputError if it has several."""


def rows_of_files(spark: "SparkSession", tasks: list[ReadTask]) -> RunRows:
    """Rows that tasks read from files."""

    def segments(batches: Iterator[pa.RecordBatch]) -> Iterator[Segment]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from read_segments(tasks[task])

    return RunRows(spark.range(0, len(tasks), 1, len(tasks)), segments)


def judge_large(large: LargeRun, request: Request, sums: Sums) -> RunReport | None:
    """Judge one run in windows. None if it must be judged in one piece: its logs' parts overlap, rows share a
    step or name domains, or a property is asked for that windows do not judge."""
    trace = request.folders[large.trace]
    sums.runs += 1
    try:
        run, promised = large.described()
        promises = run.promises if request.expect is None else request.expect
        limits = limits_of(sums, promises, request)
        if not JUDGED_IN_WINDOWS.issuperset(limits):
            return None
        logs = in_order(_index(large.rows, cell_of(large.size)))
        if logs is None:
            return None
    except InputError as error:
        return RunReport(trace, (), note_problem(sums, trace, large.name, error.sentence, request), [])
    cuts = cut(logs, window_size(len(logs)))
    context = Context(run, cuts, limits)
    with SparkRunner(context, large.rows, carry(logs), keep=leads_back(logs, cuts)) as runner:
        driver = Driver(runner)
        judgement: Judgement = driver.judge()
    verdicts = note_judgement(sums, facts_of(run, cuts, logs, driver.sends), judgement, promised, request)
    sums.summarize(trace, large.name, verdicts, request.summaries)
    return RunReport(trace, tuple(promises), verdicts, judgement.violations)


def _index(rows: RunRows, cell: int) -> list[PartIndex]:
    """The index of all parts; InputError if a task could not read its rows."""
    segments = rows.segments

    def indexed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for segment in segments(batches):
                yield _answer(index_parts(segment, cell))
        except InputError as error:
            yield _answer(error)

    answers = map_in_arrow(rows.frame, indexed, "answer binary").collect()
    parts: list[PartIndex] = []
    for answer in answers:
        found = pickle.loads(answer[0])
        if isinstance(found, InputError):
            raise found
        parts += found
    return parts


def _answer(found: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"answer": pa.array([pickle.dumps(found)], pa.binary())})


class SparkRunner:
    """Holds the rows of a run's windows as partitions; a `windows.driving.Runner`."""

    def __init__(
        self,
        context: Context,
        rows: RunRows,
        carried: dict[tuple[Site, int], Carried],
        *,
        keep: bool,
    ) -> None:
        """`keep` expects further passes: the rows that are dealt out for the first are kept for them."""
        self.context = context
        self._keep = keep
        self._rows = rows
        self._carried = carried
        self._kept: DataFrame | None = None

    def __enter__(self) -> "SparkRunner":
        return self

    def __exit__(self, *_: object) -> None:
        if self._kept is not None:
            self._kept.unpersist()

    def summaries(self) -> Iterator[tuple[int, Summary]]:
        """The first pass."""
        rows = self._stored() if self._keep else self._dealt()
        yield from self._mapped(rows, lambda window, _: passes.summarize(window), None)

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
        """Each segment's chunks, brought together by bundles of windows."""
        segments, cuts, carried = self._rows.segments, self.context.cuts, self._carried

        def dealt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for segment in segments(batches):
                for window, chunk in route(segment, cuts, carried):
                    yield _chunk_row(window, chunk)

        from pyspark.sql import functions

        chunks = map_in_arrow(self._rows.frame, dealt, CHUNKS_DDL)
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
