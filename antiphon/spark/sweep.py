"""Sweeps: many seeded runs as Spark tasks, resumable, with one failed run a row and not the end.

A Spark task costs 30 to 60 ms of processor, so short runs are bundled into tasks of about a second; long
runs get a task each; the dearest start first. A task writes its bundle's rows to its own Parquet file
(under another name until it is whole), so what is done stays done: a sweep that was interrupted looks at the
files, skips the runs it finds there and goes on with the rest.

A run that raises becomes a row with the error and the command that replays it. A run that takes its whole
worker process down is found by running what is left one at a time, and becomes such a row too.
"""

import dataclasses
import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.core.errors import InputError, OutputError
from antiphon.sim.scenario import Metrics, replay_command
from antiphon.sim.scenarios import find_scenario
from antiphon.spark.session import map_in_arrow
from antiphon.spark.single import measure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUNDLE_S: Final = 1.0
POLL_S: Final = 0.2
DEATH: Final = "Python worker exited unexpectedly"
"""What Spark says of a worker process that died."""

RESULTS: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("scenario", pa.string(), nullable=False),
        pa.field("parameters", pa.string(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("metrics", pa.map_(pa.string(), pa.float64())),
        pa.field("error", pa.string()),
        pa.field("replay", pa.string(), nullable=False),
    ]
)
"""One row a run. Metrics that are not numbers are left out; true is 1 and false is 0."""


@dataclasses.dataclass(frozen=True)
class Job:
    """One run of a sweep."""

    scenario: str
    parameters: str
    """The scenario's parameters as canonical JSON (see `job`)."""
    seed: int

    @property
    def key(self) -> str:
        text = f"{self.scenario}\n{self.parameters}\n{self.seed}"
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def job(scenario: str, parameters: Mapping[str, Any], seed: int) -> Job:
    return Job(scenario, json.dumps(dict(parameters), sort_keys=True), seed)


@dataclasses.dataclass(frozen=True)
class Bundle:
    """The runs of one task, and what they are expected to cost."""

    jobs: tuple[Job, ...]
    cost_s: float

    @property
    def file_name(self) -> str:
        digest = hashlib.blake2b("".join(job.key for job in self.jobs).encode(), digest_size=12)
        return f"runs-{digest.hexdigest()}.parquet"


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """What a sweep came to."""

    folder: Path
    jobs: int
    resumed: int
    """How many runs were found done."""
    errors: int


Progress = Callable[[int, float], None]
"""Called with the number of runs done and the share of the expected cost that is behind us."""


def sweep(
    spark: "SparkSession",
    jobs: Sequence[Job],
    folder: Path,
    progress: Progress = lambda _done, _share: None,
) -> SweepResult:
    """Do all runs that are not done yet; results lie in `folder`, one row a run."""
    _prepare(folder)
    wanted = {job.key: job for job in jobs}
    finished = set(read_done(folder)) & set(wanted)
    bundles = plan([job for key, job in wanted.items() if key not in finished])
    watch = _Watch(folder, bundles, len(finished), progress)
    with watch:
        _run_all(spark, bundles, folder)
    errors = sum(1 for key, error in read_done(folder).items() if error and key in wanted)
    return SweepResult(folder, len(wanted), len(finished), errors)


def plan(jobs: Sequence[Job]) -> list[Bundle]:
    """Bundles of about a second, or of one long run, the dearest first."""
    costs = sorted(((_cost_s(job), job) for job in jobs), key=lambda pair: -pair[0])
    bundles: list[Bundle] = []
    gathered: list[Job] = []
    cost_s = 0.0
    for cost, job in costs:
        if gathered and cost_s + cost > BUNDLE_S:
            bundles.append(Bundle(tuple(gathered), cost_s))
            gathered, cost_s = [], 0.0
        gathered.append(job)
        cost_s += cost
    if gathered:
        bundles.append(Bundle(tuple(gathered), cost_s))
    return bundles


def _cost_s(job: Job) -> float:
    """What the scenario expects; a job that cannot even be configured costs next to nothing."""
    try:
        scenario = find_scenario(job.scenario)
        return scenario.cost_s(scenario.configure(json.loads(job.parameters)))
    except Exception:
        return 0.001


# Files


def _prepare(folder: Path) -> None:
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


def read_done(folder: Path) -> dict[str, str | None]:
    """The runs that a folder has results of, each with its error, if any."""
    done: dict[str, str | None] = {}
    for path in sorted(folder.glob("runs-*.parquet")):
        try:
            table = pq.read_table(path, columns=["key", "error"])
        except (OSError, pa.ArrowInvalid, KeyError) as error:
            raise InputError(
                f"{path} is not a sweep's result file.", hint="Move it away; its runs will be done again."
            ) from error
        done.update(zip(table["key"].to_pylist(), table["error"].to_pylist(), strict=True))
    return done


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write a result file so that it is there whole or not at all."""
    temporary = path.with_suffix(".partial")
    pq.write_table(pa.Table.from_pylist(rows, schema=RESULTS), temporary)
    temporary.rename(path)


# Runs


def result_row(job: Job) -> dict[str, Any]:
    """Do one run; whatever goes wrong in it is part of the result."""
    row = blank_row(job)
    try:
        scenario = find_scenario(job.scenario)
        configuration = scenario.configure(json.loads(job.parameters))
        row["metrics"] = numbers(measure(scenario, configuration, job.seed))
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"
    return row


def blank_row(job: Job) -> dict[str, Any]:
    """The row of a run that has not been done."""
    row: dict[str, Any] = dict.fromkeys(RESULTS.names)
    row |= {"key": job.key, "scenario": job.scenario, "parameters": job.parameters, "seed": job.seed}
    row["replay"] = replay_command(job.scenario, json.loads(job.parameters), job.seed)
    return row


def numbers(metrics: Metrics) -> list[tuple[str, float]]:
    return [(name, float(value)) for name, value in metrics.items() if isinstance(value, (int, float))]


def _run_all(spark: "SparkSession", bundles: list[Bundle], folder: Path) -> None:
    if not bundles:
        return
    try:
        _run_on_spark(spark, bundles, folder)
    except Exception as error:
        if not _is_death(error):
            raise
        _run_one_at_a_time(spark, bundles, folder)


def _run_one_at_a_time(spark: "SparkSession", bundles: list[Bundle], folder: Path) -> None:
    """After a worker died: find the run that kills it, and note it as its result."""
    done = read_done(folder)
    for job in (job for bundle in bundles for job in bundle.jobs if job.key not in done):
        single = Bundle((job,), _cost_s(job))
        try:
            _run_on_spark(spark, [single], folder)
        except Exception as error:
            if not _is_death(error):
                raise
            dead = blank_row(job) | {"error": "The worker process died."}
            write_rows(folder / single.file_name, [dead])


def _is_death(error: Exception) -> bool:
    """Whether a worker process died, as opposed to everything else that can go wrong."""
    return type(error).__module__.split(".")[0] in ("py4j", "pyspark") and DEATH in str(error)


def _run_on_spark(spark: "SparkSession", bundles: list[Bundle], folder: Path) -> None:
    """One task a bundle, in order; each leaves its file and answers only with what kept it from doing so."""
    target = folder.resolve()

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                trouble = run_bundle(bundles[index], target)
                yield pa.RecordBatch.from_pydict({"trouble": pa.array([trouble], pa.string())})

    tasks = spark.range(0, len(bundles), 1, len(bundles))
    answers = map_in_arrow(tasks, work, "trouble string")
    for row in answers.where("trouble IS NOT NULL").limit(1).collect():
        raise OutputError(
            f"The results cannot be written to {folder}: {row.trouble}.",
            hint="What was written is kept; make room, and the same command goes on from there.",
        )


def run_bundle(bundle: Bundle, folder: Path) -> str | None:
    """Do a bundle's runs and write their file; answers with what kept it from being written."""
    rows = [result_row(job) for job in bundle.jobs]
    try:
        write_rows(folder / bundle.file_name, rows)
    except OSError as error:
        return error.strerror or str(error)
    return None


class _Watch:
    """Tells a progress bar what the result files show, while Spark keeps the caller waiting."""

    def __init__(self, folder: Path, bundles: list[Bundle], resumed: int, progress: Progress) -> None:
        self._folder = folder
        self._bundles = {bundle.file_name: bundle for bundle in bundles}
        self._cost_s = sum(bundle.cost_s for bundle in bundles) or 1.0
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
        done = [bundle for name, bundle in self._bundles.items() if name in there]
        runs = self._resumed + sum(len(bundle.jobs) for bundle in done)
        share = sum(bundle.cost_s for bundle in done) / self._cost_s if self._bundles else 1.0
        self._progress(runs, share)
