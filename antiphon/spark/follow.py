"""The audit while the group runs: Structured Streaming brings new rows to the windows of `audit.growing`.

The stream reads members' segments and Parquet files as they grow (`spark.stream`). Tasks pack the rows of a
micro-batch; this process takes them in and cuts windows, and tasks judge the windows that are closed. A
micro-batch is taken in once: the state's transaction knows its number, and Spark repeats a batch that was not
finished with the same rows. So a killed worker, or a killed job, costs the time of a batch.
"""

import json
import pickle
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antiphon.audit.growing.arrivals import Arrival, arrivals_of
from antiphon.audit.growing.audit import GrowingAudit
from antiphon.audit.growing.incremental import read_arrivals
from antiphon.audit.growing.store import Store
from antiphon.audit.growing.windows import in_process
from antiphon.audit.packing import COLUMNS
from antiphon.audit.result import AuditResult
from antiphon.audit.runs import Request, checked_request
from antiphon.check.verdict import Violation
from antiphon.core.errors import InputError
from antiphon.core.recording import PROPERTIES, Property
from antiphon.spark.session import map_in_arrow
from antiphon.spark.stream import FORMAT, positions_of, register
from antiphon.spark.tasks import is_death, is_sparks
from antiphon.trace.arrow import pa
from antiphon.trace.growth import Position, latest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

TRIGGER: Final = "1 second"
"""The least time between micro-batches. Raising it delays violations, lowering it costs time."""
BATCH_ROWS: Final = 1 << 20
"""Rows of a micro-batch, about. Raising it costs memory."""
SMALL_BYTES: Final = 1 << 20
"""Windows of fewer bytes together are judged in this process: a job costs more than they do."""
EXPLAINED: Final = 20
"""Violations of each property that are explained for each batch, unless told otherwise."""
MOST_FAILURES: Final = 12
"""Failures in a row, with no batch between them, after which a job is not started again. A machine under load
makes some: Spark gives a Python process ten seconds to start."""
PAUSE_S: Final = 0.25
MOST_PAUSE_S: Final = 10.0
"""Before a job is started again it waits, at first for the least of these times, then twice as long, and so
on up to the greatest."""
WORKER_DIED: Final = "a worker process died, probably because it ran out of memory."
_OWN_ERROR: Final = re.compile(r"antiphon\.core\.errors\.\w+: (.+)")
"""Finds in Spark's message the sentence of an error of ours."""


def follow(
    spark: "SparkSession",
    folder: str | Path,
    expect: Sequence[Property] | None = None,
    *,
    only: Sequence[Property] | None = None,
    state: str | Path | None = None,
    limit: int = EXPLAINED,
) -> "Follower":
    """Judge a trace while its group runs: `with antiphon.follow(spark, "trace") as follower`.

    `expect` overrides what the runs promised; `only` names what else to judge, instead of all seven
    properties. `state` is a folder that lets a later follower go on from here. `limit` bounds how many
    violations of each property are explained at a time.
    """
    request = checked_request([str(folder)], expect, only, limit)
    return Follower(spark, Path(folder), request, state=None if state is None else Path(state))


class SparkMapper:
    """Applies a function to some inputs in tasks, or here if they are small."""

    def __init__(self, spark: "SparkSession", small_bytes: int = SMALL_BYTES) -> None:
        self._spark = spark
        self._small_bytes = small_bytes

    def __call__(self, function: Callable[[bytes], bytes], items: Sequence[bytes]) -> list[bytes]:
        if sum(map(len, items)) < self._small_bytes:
            return in_process(function, items)
        given = list(items)

        def mapped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for at in batch.column(0).to_pylist():
                    answer = {"at": pa.array([at]), "answer": pa.array([function(given[at])], pa.binary())}
                    yield pa.RecordBatch.from_pydict(answer)

        numbers = self._spark.range(0, len(given), 1, len(given))
        answers = map_in_arrow(numbers, mapped, "at bigint, answer binary").collect()
        return [bytes(row["answer"]) for row in sorted(answers, key=lambda row: int(row["at"]))]


class Follower:
    """Follows a growing trace until `finish`. Use it as a context manager."""

    def __init__(
        self,
        spark: "SparkSession",
        folder: Path,
        request: Request,
        *,
        state: Path | None = None,
        size: int | None = None,
        small_bytes: int = SMALL_BYTES,
    ) -> None:
        """Without a folder for the state, it lies in a temporary one."""
        self._spark = spark
        self._folder = folder.resolve()
        self._own = Path(tempfile.mkdtemp(prefix="antiphon-follow-")) if state is None else None
        self._state = self._own or state or Path()
        self._store = Store(self._state)
        self._mapper = SparkMapper(spark, small_bytes)
        self.audit: Final = GrowingAudit(
            self._folder, self._store, request, self._mapper, size=size, source="audit --follow"
        )
        self.rows = 0
        """Rows taken in since the start."""
        self.counts: dict[Property, int] = dict.fromkeys(PROPERTIES, 0)
        """Violations found since the start, promised or not."""
        self._busy_since: float | None = None
        self._oldest: float | None = None
        self.batches = 0
        """Micro-batches taken in since the start."""
        self.failures = 0
        """Times that the job failed and was started again."""
        self._failures_in_a_row = 0
        self._again_at: float | None = None
        self._lock = threading.Lock()
        self._news: list[Violation] = []
        self._query: StreamingQuery | None = None

    def __enter__(self) -> "Follower":
        register(self._spark)
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._store.close()
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)

    # The job

    def _start(self) -> None:
        rows = self._spark.readStream.format(FORMAT).option("rows", BATCH_ROWS).load(str(self._folder))
        self._query = (
            rows.select(*COLUMNS)
            .writeStream.foreachBatch(self._absorb)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(processingTime=TRIGGER)
            .start()
        )

    @property
    def _checkpoint(self) -> Path:
        return self._state.resolve() / "checkpoint"

    def _absorb(self, frame: "DataFrame", batch: int) -> None:
        """Take in a micro-batch; Spark calls this.

        Spark looks through the message of an error here with a pattern that overflows its stack if the
        message is long, as that of a failed job is. So the message is cut short.
        """
        try:
            self._take_in(frame, batch)
        except Exception as error:
            if not is_sparks(error):
                raise
            own = _OWN_ERROR.search(str(error))
            if own is not None:
                raise InputError(own[1]) from None
            raise RuntimeError(WORKER_DIED if is_death(error) else _first_line(str(error))) from None

    def _take_in(self, frame: "DataFrame", batch: int) -> None:
        cell = self.audit.cell
        self._busy_since = time.monotonic()

        def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for arrival in arrivals_of(batches, cell):
                yield pa.RecordBatch.from_pydict({"arrival": pa.array([pickle.dumps(arrival)], pa.binary())})

        found = map_in_arrow(frame, packed, "arrival binary").collect()
        arrivals: list[Arrival] = [pickle.loads(row[0]) for row in found]
        with self._lock:
            self._news += self.audit.absorb(arrivals, batch, self._positions(batch))
            self._note_figures()
            self.batches += 1
            self._failures_in_a_row = 0
            self._busy_since = None

    def _note_figures(self) -> None:
        """Keep figures for other threads: the audit itself is changed meanwhile."""
        self.rows, self._oldest = self.audit.rows, self.audit.oldest
        self.counts = {**self.counts, **self.audit.counts}

    @property
    def is_busy(self) -> bool:
        """Whether rows that were read wait to be judged."""
        return self._busy_since is not None or self._oldest is not None

    def has_unread(self) -> bool:
        """Whether the trace holds rows that were not taken in."""
        with self._lock:
            known = self.audit.positions
        return latest(self._folder, known) != known

    @property
    def lag_s(self) -> float:
        """For how long the oldest rows that were read have not been judged."""
        times = [when for when in (self._busy_since, self._oldest) if when is not None]
        return time.monotonic() - min(times) if times else 0.0

    def _positions(self, batch: int) -> dict[str, Position]:
        """The positions behind a micro-batch: Spark notes them before it begins with the batch."""
        noted = (self._checkpoint / "offsets" / str(batch)).read_text().splitlines()
        return positions_of(json.loads(noted[-1]))

    def _stop(self) -> None:
        if self._query is None:
            return
        query, self._query = self._query, None
        query.stop()  # waits for a batch that is being taken in, so the lock must be free

    # What the caller asks for

    @property
    def is_reading(self) -> bool:
        """Whether the job has started and looks for rows."""
        return self._query is not None and self._query.status["message"].startswith("Waiting")

    def poll(self) -> list[Violation]:
        """Violations found since the last call. A job that has failed is started again."""
        self._revive()
        with self._lock:
            self._news += self.audit.tick()
            self._note_figures()
            news, self._news = self._news, []
        return news

    def _revive(self) -> None:
        """Start the job again some time after it has failed."""
        assert self._query is not None, "poll comes before finish"
        failure: Exception | None = self._query.exception()
        if failure is None:
            return
        if self._again_at is None:
            self._note_failure(failure)
        if self._again_at is not None and time.monotonic() >= self._again_at:
            try:
                self._start()
                self._again_at = None
            except Exception as error:
                if not is_sparks(error):
                    raise
                self._note_failure(error)  # a killed worker can end the start of its successor, too

    def _note_failure(self, failure: Exception) -> None:
        """Count a failure; an error if it is one of ours, or one too many."""
        message = str(failure)
        own = _OWN_ERROR.search(message)
        if own is not None:
            raise InputError(own[1]) from failure
        self.failures += 1
        self._failures_in_a_row += 1
        self._busy_since = None
        self._again_at = time.monotonic() + min(PAUSE_S * 2**self._failures_in_a_row, MOST_PAUSE_S)
        if self._failures_in_a_row > MOST_FAILURES:
            raise InputError(
                f"The audit failed {self._failures_in_a_row} times in a row: "
                f"{WORKER_DIED if WORKER_DIED in message else _first_line(message)}",
                "Give the machine time or memory, or judge less with --only. The state is kept: the same "
                "command goes on.",
            ) from failure

    def finish(self) -> AuditResult:
        """Stop, and judge all rows that the trace holds now."""
        self._stop()
        known = self.audit.positions
        now = latest(self._folder, known)
        rest = read_arrivals(self._folder, known, now, self._mapper, self.audit.cell)
        return self.audit.verdict("spark", rest, now)


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason was given"])[0]
