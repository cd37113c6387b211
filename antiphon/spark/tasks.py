"""Work done in Spark tasks, each of which leaves one file: what is done stays done.

A task costs 30 to 60 ms of processor, so whoever makes `Work` puts runs together until it lasts about a
second. A task writes its rows to a Parquet file of its own, under another name until it is whole. Nothing
but that comes back, so that neither the driver's memory nor an interruption matters.

What takes its whole worker process down ends the Spark job. Then what is left is done in halves: the half in
which it dies again is halved once more, until one run is left to be blamed, and its row says so.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from typing import Protocol as Interface

from antiphon.core.errors import OutputError
from antiphon.spark.session import map_in_arrow
from antiphon.trace.arrow import pa, pq

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S: Final = 0.2
DEATH: Final = "Python worker exited unexpectedly"
"""What Spark says of a worker process that died."""
UNWRITTEN: Final = re.compile(r"OutputError: (.+)")
"""How what kept a task from writing its file stands in what Spark says."""
DIED: Final = "The worker process died."
"""What the row of the run to blame for it says."""

Progress = Callable[[int, float], None]
"""Called with the number of runs done and the share of the expected cost that is behind us."""


class Work(Interface):
    """What one task does. It travels to the task, and so must be small and picklable."""

    @property
    def file_name(self) -> str: ...

    @property
    def runs(self) -> int: ...

    @property
    def cost_s(self) -> float: ...

    def do(self, folder: Path) -> None:
        """Do the runs and write their file; whatever goes wrong in a run is part of its row."""

    def apart(self) -> "Sequence[Work]":
        """The same runs, one by one."""

    def bury(self, folder: Path) -> None:
        """Write the file of a single run that has taken its process down."""


def prepare(folder: Path) -> None:
    """See to it that results can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OutputError(
            f"The results cannot be written to {folder}: {error.strerror}.",
            hint="Choose another folder with --out.",
        ) from error


def write_whole(path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    """Write a result file so that it is there whole or not at all."""
    temporary = path.with_suffix(".partial")
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), temporary)
    temporary.rename(path)


def run_all(spark: "SparkSession", works: Sequence[Work], folder: Path) -> None:
    """Do everything whose file is not there yet, whatever dies of it."""
    left = [work for work in works if not (folder / work.file_name).exists()]
    if not left:
        return
    try:
        _run_on_spark(spark, left, folder)
    except Exception as error:
        if not _is_death(error):
            raise
        _run_divided(spark, left, folder)


def _run_divided(spark: "SparkSession", works: list[Work], folder: Path) -> None:
    """After a worker died: do what is left in parts, down to the run that kills it."""
    left = [work for work in works if not (folder / work.file_name).exists()]
    if len(left) > 1:
        run_all(spark, left[: len(left) // 2], folder)
        run_all(spark, left[len(left) // 2 :], folder)
    elif left and left[0].runs > 1:
        run_all(spark, left[0].apart(), folder)
    elif left:
        left[0].bury(folder)


def _is_death(error: Exception) -> bool:
    """Whether a worker process died, as opposed to everything else that can go wrong."""
    return type(error).__module__.split(".")[0] in ("py4j", "pyspark") and DEATH in str(error)


def _run_on_spark(spark: "SparkSession", works: list[Work], folder: Path) -> None:
    """One job, with a task for each, in order; nothing comes back from them but their files."""
    target = folder.resolve()

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                _do(works[index], target)
            yield pa.RecordBatch.from_pydict({"nothing": pa.array([], pa.int8())})

    tasks = spark.range(0, len(works), 1, len(works))
    try:
        map_in_arrow(tasks, work, "nothing byte").collect()
    except Exception as error:
        unwritten = UNWRITTEN.search(str(error))
        if unwritten is None:
            raise
        raise OutputError(
            f"The results cannot be written to {folder}: {unwritten[1]}.",
            hint="What was written is kept; make room, and the same command goes on from there.",
        ) from error


def _do(work: Work, folder: Path) -> None:
    """A file that cannot be written ends the whole job, which is told by what Spark says of it."""
    try:
        work.do(folder)
    except OSError as error:
        raise OutputError(f"{error.strerror or error}") from error


class Watch:
    """Tells a progress bar what the result files show, while Spark keeps the caller waiting."""

    def __init__(self, folder: Path, works: Sequence[Work], resumed: int, progress: Progress) -> None:
        self._folder = folder
        self._works = {work.file_name: work for work in works}
        self._cost_s = sum(work.cost_s for work in works) or 1.0
        self._resumed = resumed
        self._progress = progress
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        self._tell()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._tell()

    def _look(self) -> None:
        while not self._over.wait(POLL_S):
            self._tell()

    def _tell(self) -> None:
        there = {path.name for path in self._folder.glob("runs-*.parquet")}
        done = [work for name, work in self._works.items() if name in there]
        runs = self._resumed + sum(work.runs for work in done)
        share = sum(work.cost_s for work in done) / self._cost_s if self._works else 1.0
        self._progress(runs, share)
