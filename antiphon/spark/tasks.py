"""Work done in Spark tasks, each of which leaves one file: finished work is kept.

A task costs 30 to 60 ms of processor, so `Work` should bundle runs until it lasts about a second. A task
writes its rows to its own Parquet file, under another name until the file is complete. Nothing else is
returned, so neither the driver's memory nor an interruption matters.

A run that kills its worker process ends the Spark job. Then the rest is done in halves: the half that dies
again is halved once more, until one run is left, and its row says that it killed the worker.
"""

import re
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from typing import Protocol as Interface

from antiphon.core.errors import InputError, OutputError
from antiphon.spark.session import map_in_arrow
from antiphon.trace.arrow import pa, pq

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S: Final = 0.2
DEATHS: Final = ("Python worker exited unexpectedly", "ExecutorLostFailure")
"""Spark's messages about a worker process that died."""
MEMORY: Final = re.compile(
    r"\bMemoryError|OutOfMemoryError|Java heap space|unable to allocate", re.IGNORECASE
)
"""Python's and Java's messages about memory that ended."""
GONE: Final = re.compile(
    r"Answer from Java side is empty|Connection (refused|reset)|error while (sending|receiving)|"
    r"does not exist in the JVM"
)
"""Messages of the bridge to Java about a Java process that ended."""
UNWRITTEN: Final = re.compile(r"OutputError: (.+)")
"""Finds in Spark's message why a task could not write its file."""
DIED: Final = "The worker process died."
"""The error in the row of the run that killed its worker."""

UNFINISHED: Final = ".partial"
"""How the names of files end that are being written."""

Progress = Callable[[int, float], None]
"""Called with the number of runs done and their share of the expected cost."""


class Work(Interface):
    """The work of one task. It travels to the task, so it must be small and picklable."""

    @property
    def file_name(self) -> str: ...

    @property
    def runs(self) -> int: ...

    @property
    def cost_s(self) -> float: ...

    def do(self, folder: Path) -> None:
        """Do the runs and write their file; an exception in a run becomes part of its row."""

    def split(self) -> "Sequence[Work]":
        """The same runs, one by one."""

    def record_death(self, folder: Path) -> None:
        """Write the file of a single run that killed its process."""


def prepare(folder: Path) -> None:
    """Create the folder and check that results can be written to it."""
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
    """Write a result file that appears complete or not at all.

    Until it is complete its name is its own: on a cluster, an attempt that is believed dead may still write
    while the next attempt does.
    """
    temporary = path.with_name(f"{path.stem}-{secrets.token_hex(4)}{UNFINISHED}")
    try:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), temporary)
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


def run_all(spark: "SparkSession", works: Sequence[Work], folder: Path) -> None:
    """Do all work whose file is not there yet, even if workers die."""
    _run(spark, works, folder)
    for leftover in folder.glob(f"*{UNFINISHED}"):
        leftover.unlink(missing_ok=True)


def _run(spark: "SparkSession", works: Sequence[Work], folder: Path) -> None:
    left = [work for work in works if not (folder / work.file_name).exists()]
    if not left:
        return
    try:
        _run_on_spark(spark, left, folder)
    except Exception as error:
        if not is_death(error):
            raise
        _run_divided(spark, left, folder)


def _run_divided(spark: "SparkSession", works: list[Work], folder: Path) -> None:
    """After a worker died: do the rest in halves, down to the run that kills it."""
    left = [work for work in works if not (folder / work.file_name).exists()]
    if len(left) > 1:
        _run(spark, left[: len(left) // 2], folder)
        _run(spark, left[len(left) // 2 :], folder)
    elif left and left[0].runs > 1:
        _run(spark, left[0].split(), folder)
    elif left:
        left[0].record_death(folder)


def is_sparks(error: Exception) -> bool:
    """Whether this error comes from Spark."""
    return type(error).__module__.split(".")[0] in ("py4j", "pyspark")


def is_death(error: Exception) -> bool:
    """Whether this error is the death of a worker process."""
    return is_sparks(error) and any(words in str(error) for words in DEATHS)


def is_gone(error: Exception) -> bool:
    """Whether this error shows that Spark's Java process has ended."""
    if not is_sparks(error):
        return isinstance(error, ConnectionError)
    try:
        return bool(GONE.search(str(error)))
    except Exception:
        return True  # the text of an error is asked from Java


def explain_failure(error: Exception) -> InputError | None:
    """What to do about a job that ended for want of memory or of a process; None for any other error."""
    if is_sparks(error) and MEMORY.search(str(error)):
        what = "A worker ran out of memory while it judged."
    elif is_death(error):
        what = "A worker process died while it judged: it probably ran out of memory."
    elif is_gone(error):
        what = "Spark's Java process ended while it judged: it probably ran out of memory."
    else:
        return None
    return InputError(
        f"{what} Nothing was written.",
        "Judge less with --only, use fewer cores with --master 'local[1]', or a Spark with more memory for "
        "each worker.",
    )


def _run_on_spark(spark: "SparkSession", works: list[Work], folder: Path) -> None:
    """One job with a task per work, in order; tasks return nothing but their files."""
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
            hint="Finished runs are kept; make room, and the same command continues from there.",
        ) from error


def _do(work: Work, folder: Path) -> None:
    """A file that cannot be written ends the whole job; Spark's message carries the reason."""
    try:
        work.do(folder)
    except OSError as error:
        raise OutputError(f"{error.strerror or error}") from error


class Watch:
    """Updates a progress bar from the result files while Spark blocks the caller."""

    def __init__(self, folder: Path, works: Sequence[Work], resumed: int, progress: Progress) -> None:
        self._folder = folder
        self._works = {work.file_name: work for work in works}
        self._cost_s = sum(work.cost_s for work in works) or 1.0
        self._resumed = resumed
        self._progress = progress
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        self._update()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._update()

    def _look(self) -> None:
        while not self._over.wait(POLL_S):
            self._update()

    def _update(self) -> None:
        there = {path.name for path in self._folder.glob("runs-*.parquet")}
        done = [work for name, work in self._works.items() if name in there]
        runs = self._resumed + sum(work.runs for work in done)
        share = sum(work.cost_s for work in done) / self._cost_s if self._works else 1.0
        self._progress(runs, share)
