"""Sweeps: bundles, resuming, failures as rows, and runs that take their process down."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pyarrow.parquet as pq
import pytest

from antiphon.core.errors import InputError, OutputError
from antiphon.core.recording import Recorder
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.spark.statistics import student_975, summarise
from antiphon.spark.sweep import BUNDLE_S, Job, job, plan, read_done, result_row, sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Moody:
    """A scenario that fails, dies or works as it is told."""

    mood: Annotated[str, "fine, raises or dies"] = "fine"
    cost: Annotated[float, "what it claims to cost"] = 0.1


def moody(configuration: Moody, seed: int, recorder: Recorder | None) -> Metrics:
    if configuration.mood == "raises":
        raise ValueError("a bad day")
    if configuration.mood == "dies":
        os._exit(3)
    return {"seed_squared": seed * seed, "finished": True, "note": "not a number", "nothing": None}


SCENARIO = Scenario(
    name=f"{__name__}:SCENARIO",
    summary="",
    example="",
    configuration=Moody,
    run=moody,
    promises=(),
    cost_s=lambda configuration: configuration.cost,
)


def moody_job(seed: int, **parameters: object) -> Job:
    return job(SCENARIO.name, parameters, seed)


def test_short_runs_share_a_task_and_long_ones_start_first() -> None:
    bundles = plan([moody_job(seed, cost=0.3) for seed in range(9)] + [moody_job(0, cost=60.0)])
    assert [len(bundle.jobs) for bundle in bundles] == [1, 3, 3, 3]
    assert bundles[0].cost_s == 60.0
    assert all(bundle.cost_s <= BUNDLE_S for bundle in bundles[1:])


def test_a_plan_loses_nothing() -> None:
    jobs = [moody_job(seed, cost=seed / 7) for seed in range(50)]
    assert {job for bundle in plan(jobs) for job in bundle.jobs} == set(jobs)
    assert plan([]) == []


def test_a_run_that_raises_becomes_a_row_with_its_replay_command() -> None:
    row = result_row(moody_job(4, mood="raises"))
    assert row["error"] == "ValueError: a bad day"
    assert row["replay"] == f"antiphon simulate {SCENARIO.name} --mood raises --seed 4"
    assert row["metrics"] is None


def test_a_run_that_cannot_be_configured_becomes_a_row_too() -> None:
    assert "no parameter 'colour'" in result_row(moody_job(1, colour="red"))["error"]
    assert "cannot be loaded" in result_row(job("no.such.module:S", {}, 0))["error"]


@pytest.mark.spark
def test_a_sweep_does_all_runs_and_resumes(spark: "SparkSession", tmp_path: Path) -> None:
    told: list[tuple[int, float]] = []
    jobs = [moody_job(seed) for seed in range(30)]
    first = sweep(spark, jobs[:20], tmp_path)
    assert (first.jobs, first.resumed, first.errors) == (20, 0, 0)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    second = sweep(spark, jobs, tmp_path, lambda done, share: told.append((done, share)))
    assert (second.jobs, second.resumed, second.errors) == (30, 20, 0)
    assert set(read_done(tmp_path)) == {job.key for job in jobs}
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    assert told[0] == (20, 0.0)
    assert told[-1] == (30, 1.0)
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.spark
def test_one_failed_run_is_a_row_and_not_the_end(spark: "SparkSession", tmp_path: Path) -> None:
    outcome = sweep(spark, [moody_job(0, mood="raises"), moody_job(1)], tmp_path)
    assert (outcome.jobs, outcome.errors) == (2, 1)


@pytest.mark.spark
def test_a_run_that_kills_its_worker_is_found_and_noted(spark: "SparkSession", tmp_path: Path) -> None:
    jobs = [moody_job(seed) for seed in range(5)] + [moody_job(9, mood="dies")]
    outcome = sweep(spark, jobs, tmp_path)
    assert (outcome.jobs, outcome.errors) == (6, 1)
    assert read_done(tmp_path)[jobs[-1].key] == "The worker process died."


@pytest.mark.spark
def test_summaries_are_means_with_intervals(spark: "SparkSession", tmp_path: Path) -> None:
    sweep(spark, [moody_job(seed) for seed in range(3)] + [moody_job(8, mood="raises")], tmp_path)
    (point,) = summarise(spark, tmp_path)
    squares = point.metrics["seed_squared"]
    assert (squares.count, squares.least, squares.most) == (3, 0, 4)
    assert squares.values == (0.0, 1.0, 4.0)
    assert squares.mean == pytest.approx(5 / 3)
    assert squares.high - squares.mean == pytest.approx(student_975(2) * squares.deviation / 3**0.5)
    assert point.metrics["finished"].mean == 1.0
    assert set(point.metrics) == {"seed_squared", "finished"}


@pytest.mark.spark
def test_a_folder_that_cannot_be_written_is_told(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        sweep(spark, [moody_job(0)], tmp_path / "file" / "below")


def test_a_foreign_file_among_the_results_is_told(tmp_path: Path) -> None:
    (tmp_path / "runs-foreign.parquet").write_bytes(b"not Parquet")
    with pytest.raises(InputError, match="not a sweep's result file"):
        read_done(tmp_path)


def test_what_is_written_can_be_read_by_anyone(tmp_path: Path) -> None:
    from antiphon.spark.sweep import write_rows

    write_rows(tmp_path / "runs-x.parquet", [result_row(moody_job(2))])
    (row,) = pq.read_table(tmp_path / "runs-x.parquet").to_pylist()
    assert dict(row["metrics"]) == {"seed_squared": 4.0, "finished": 1.0}
