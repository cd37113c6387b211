"""Sweeps: many seeded runs as Spark tasks, resumable; a failed run is a row and does not end the sweep.

Short runs are bundled into tasks of about a second; long runs get a task each; the most expensive start
first. Finished runs are kept (see `tasks`): an interrupted sweep reads the files, skips the runs it finds
there and does the rest.

A run that raises becomes a row with the error and the command that replays it. So does a run that kills its
worker process.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from antiphon.core.errors import InputError
from antiphon.sim.scenario import Metrics, replay_command
from antiphon.sim.scenarios import find_scenario
from antiphon.simulation import measure
from antiphon.spark.tasks import DIED, Progress, Watch, prepare, run_all, write_whole
from antiphon.trace.arrow import pa, pq

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUNDLE_S: Final = 1.0
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
"""One row per run. Metrics that are not numbers are left out; true is 1 and false is 0."""


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
    """The runs of one task, and their expected cost."""

    jobs: tuple[Job, ...]
    cost_s: float

    @property
    def file_name(self) -> str:
        digest = hashlib.blake2b("".join(job.key for job in self.jobs).encode(), digest_size=12)
        return f"runs-{digest.hexdigest()}.parquet"

    @property
    def runs(self) -> int:
        return len(self.jobs)

    def do(self, folder: Path) -> None:
        write_rows(folder / self.file_name, [result_row(job) for job in self.jobs])

    def split(self) -> "list[Bundle]":
        return [Bundle((job,), _cost_s(job)) for job in self.jobs]

    def record_death(self, folder: Path) -> None:
        write_rows(folder / self.file_name, [blank_row(self.jobs[0]) | {"error": DIED}])


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """The result of a sweep."""

    folder: Path
    jobs: int
    resumed: int
    """Runs that were done before."""
    errors: int


def sweep(
    spark: "SparkSession",
    jobs: Sequence[Job],
    folder: Path,
    progress: Progress = lambda _done, _share: None,
) -> SweepResult:
    """Do all runs that are not done yet; `folder` holds the results, one row per run."""
    prepare(folder)
    wanted = {job.key: job for job in jobs}
    finished = set(read_done(folder)) & set(wanted)
    bundles = plan([job for key, job in wanted.items() if key not in finished])
    with Watch(folder, bundles, len(finished), progress):
        run_all(spark, bundles, folder)
    errors = sum(1 for key, error in read_done(folder).items() if error and key in wanted)
    return SweepResult(folder, len(wanted), len(finished), errors)


def plan(jobs: Sequence[Job]) -> list[Bundle]:
    """Bundles of about a second, or of one long run, the most expensive first."""
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
    """The scenario's estimate; a job that cannot be configured costs almost nothing."""
    try:
        scenario = find_scenario(job.scenario)
        return scenario.cost_s(scenario.configure(json.loads(job.parameters)))
    except Exception:
        return 0.001


# Files


def read_done(folder: Path) -> dict[str, str | None]:
    """The runs with results in a folder, each with its error, if any."""
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
    write_whole(path, rows, RESULTS)


# Runs


def result_row(job: Job) -> dict[str, Any]:
    """Do one run; an exception in it becomes part of the result."""
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
