"""`antiphon.audit`: paths and DataFrames in, a verdict and DataFrames out."""

import os
import signal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import antiphon
from antiphon.check.checkers import check_trace
from antiphon.check.verdict import Verdict, count_by_property
from antiphon.core.errors import InputError, OutputError, UsageError
from antiphon.core.recording import PROPERTIES
from antiphon.trace.arrow import EVENTS, events_table, pq
from antiphon.trace.files import note_run, write_trace
from antiphon.trace.schema import Event, Run
from antiphon.trace.segments import SegmentRecorder
from tests.histories import history
from tests.strategies import as_imported, random_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
RUNS = 40


def audit(*arguments: Any, **options: Any) -> antiphon.Audit:
    return antiphon.audit(*arguments, **options)  # type: ignore[operator, no-any-return]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[list[Event], Run]]]:
    """A trace of many runs, half of them as other systems log them."""
    folder = tmp_path_factory.mktemp("frames") / "trace"
    traces = []
    for seed in range(RUNS):
        rng = Random(seed)
        events, run = random_trace(rng, f"run-{seed}")
        traces.append((as_imported(rng, events) if seed % 2 else events, run))
    write_trace(folder, [events for events, _ in traces], [run for _, run in traces])
    return folder, traces


def test_a_path_is_judged_as_the_checkers_do(
    spark: "SparkSession", many: tuple[Path, list[tuple[list[Event], Run]]]
) -> None:
    folder, traces = many
    found = audit(spark, f"file://{folder}")
    expected = [violation for events, run in traces for violation in check_trace(events, run)]
    assert found.verdict is Verdict.FAIL
    assert found.result.violations == count_by_property(expected)
    rows = found.violations.collect()
    assert sorted((row.run, row.explanation, row.size) for row in rows) == sorted(
        (violation.run, violation.explanation, violation.size) for violation in expected
    )
    verdicts = {(row.run, row.property): row for row in found.verdicts.collect()}
    assert len(verdicts) == RUNS * len(PROPERTIES)
    for _, run in traces:
        for name in PROPERTIES:
            broken = sum(each.run == run.run and each.property == name for each in expected)
            row = verdicts[run.run, name]
            assert (row.violations, row.promised) == (broken, name in run.promises)
            assert (row.verdict == "fail") == (broken > 0)
            assert (row.verdict == "unknown") == (row.reason is not None) or row.verdict == "fail"
    found.close()


def test_a_dataframe_is_judged_with_and_without_runs(spark: "SparkSession", tmp_path: Path) -> None:
    events, run, _ = history("a: !a0 a0 b0\nb: !b0 b0 a0")
    write_trace(tmp_path / "t", [events], [run])
    frame = spark.read.parquet(str(tmp_path / "t" / "events"))
    assert audit(spark, frame).verdict is Verdict.UNKNOWN
    assert audit(spark, frame, ["fifo"]).verdict is Verdict.PASS
    found = audit(spark, frame, runs=spark.read.parquet(str(tmp_path / "t" / "runs")))
    assert found.verdict is Verdict.FAIL
    (row,) = found.violations.collect()
    assert (row.property, row.size, row.promised) == ("total", 2, True)
    only = audit(spark, frame, ["fifo"], only=["total"])
    assert set(only.result.not_judged) == set(PROPERTIES) - {"fifo", "total"}


def test_hive_partitions_are_columns(spark: "SparkSession", tmp_path: Path) -> None:
    events, _, _ = history("a: !a0 a0 b0\nb: !b0 b0 a0")
    for name in ("x", "y"):
        folder = tmp_path / "events" / f"run={name}"
        folder.mkdir(parents=True)
        pq.write_table(events_table(events).drop_columns(["run"]), folder / "part.parquet")
    found = audit(spark, tmp_path, ["total"])
    assert sorted(row.run for row in found.violations.collect()) == ["x", "y"]


def test_a_small_trace_takes_few_tasks(spark: "SparkSession", tmp_path: Path) -> None:
    """However many partitions a session's shuffles have."""
    events, run, _ = history("a: !a0 a0")
    write_trace(tmp_path / "t", [events], [run])
    assert audit(spark, tmp_path / "t").verdicts.rdd.getNumPartitions() <= 2


def test_segments_of_live_members_are_read(spark: "SparkSession", tmp_path: Path) -> None:
    recorder = SegmentRecorder(tmp_path, "live", "a")
    recorder.record("a", "send", 0, "a", 0)
    recorder.record("a", "deliver", 0, "a", 0)
    recorder.close()
    note_run(tmp_path, Run("live", promises=PROPERTIES))
    found = audit(spark, tmp_path)
    assert (found.verdict, found.result.deliveries) == (Verdict.PASS, 1)


def test_violations_go_where_spark_writes(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    events, run, _ = history("a: !a0 a0 b0\nb: !b0 b0 a0")
    write_trace(tmp_path / "t", [events], [run])
    audit(spark, tmp_path / "t", violations_to=f"file://{tmp_path}/v")
    assert pq.read_table(tmp_path / "v").num_rows == 1
    with pytest.raises(OutputError, match="cannot be written"):
        audit(spark, tmp_path / "t", violations_to=f"file://{tmp_path}/v")
    with pytest.raises(OutputError, match="cannot be written to nowhere://x/v"):
        audit(spark, tmp_path / "t", violations_to="nowhere://x/v")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t", "v"]


def test_what_cannot_be_judged_is_said(spark: "SparkSession", tmp_path: Path) -> None:
    events, run, _ = history("a: !a0 a0")
    write_trace(tmp_path / "t", [events], [run])
    frame = spark.read.parquet(str(tmp_path / "t" / "events"))
    with pytest.raises(InputError, match="The column number is missing"):
        audit(spark, frame.drop("number"))
    with pytest.raises(InputError, match="The column step of the events is of type double"):
        audit(spark, frame.withColumn("step", frame["step"].cast("double")))
    with pytest.raises(InputError, match="There is no trace at"):
        audit(spark, tmp_path / "nothing")
    with pytest.raises(InputError, match="kind of the events has rows without a value"):
        audit(spark, frame.selectExpr("run", "site", "step", "string(null) as kind", "sender", "number"))
    with pytest.raises(UsageError, match="no property"):
        audit(spark, frame, ["order"])


def test_a_worker_that_dies_is_one_sentence(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, run, _ = history("a: !a0 a0")
    write_trace(tmp_path / "t", [events], [run])

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr("antiphon.spark.frames.report_runs", die)
    with pytest.raises(InputError, match="A worker process died while it judged"):
        audit(spark, tmp_path / "t", violations_to=f"file://{tmp_path}/v")
    assert not (tmp_path / "v").exists()


def test_further_columns_and_other_integers_are_accepted(spark: "SparkSession", tmp_path: Path) -> None:
    events, run, _ = history("a: !a0 a0")
    write_trace(tmp_path / "t", [events], [run])
    frame = spark.read.parquet(str(tmp_path / "t" / "events"))
    narrow = frame.selectExpr("run", "site", "int(step) as step", "kind", "sender", "int(number) as number")
    found = audit(spark, narrow.withColumn("colour", frame["run"]), ["fifo", "total"])
    assert (found.verdict, found.result.deliveries) == (Verdict.PASS, 1)
    assert set(narrow.columns) < set(EVENTS.names)
