"""Large runs on Spark, judged in windows: the same result as in one task, and as the pure checkers give."""

import shutil
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from pyarrow.parquet import read_table
from pyarrow.parquet import write_table as write_parquet
from pyspark.sql import SparkSession

from antiphon.audit import memory, reading
from antiphon.audit.reading import plan_large
from antiphon.audit.result import AuditResult
from antiphon.audit.runs import Request, RunReport, Sums
from antiphon.audit.windows import planning
from antiphon.check.checkers import check_trace
from antiphon.check.verdict import Verdict, count_by_property
from antiphon.core.errors import InputError
from antiphon.core.recording import PROPERTIES
from antiphon.spark import audit as spark_audit
from antiphon.spark import frames, windows
from antiphon.spark.windows import LargeRun
from antiphon.trace.files import note_run, open_trace, write_trace
from antiphon.trace.schema import Event, Run
from antiphon.trace.segments import SegmentRecorder
from tests.strategies import random_trace

pytestmark = pytest.mark.spark


@pytest.fixture
def tiny_windows(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every run is judged in windows of a few messages; the list names those that were, as they come."""
    judged: list[str] = []
    whole = windows.judge_large

    def noted(large: LargeRun, request: Request, sums: Sums) -> RunReport | None:
        report = whole(large, request, sums)
        if report is not None:
            judged.append(large.name)
        return report

    for module in (spark_audit, frames):
        monkeypatch.setattr(module, "judge_large", noted)
        monkeypatch.setattr(module, "WINDOWED_ROWS", 1)
    monkeypatch.setattr(planning, "LEAST_SIZE", 4)
    monkeypatch.setattr(planning, "MESSAGE_SITES", 1)
    monkeypatch.setattr(planning, "LEAST_CELL", 1)
    return judged


def by_site(events: list[Event]) -> list[list[Event]]:
    """One table for each site, in order of step, as a member would write it."""
    sites = sorted({event.site for event in events})
    ordered = sorted(events, key=lambda event: event.step)
    return [[event for event in ordered if event.site == site] for site in sites]


def traced(folder: Path, events: list[Event], run: Run) -> Path:
    write_trace(folder, by_site(events), [run])
    return folder


def figures(result: AuditResult) -> dict[str, object]:
    return result.to_json()


def test_a_large_run_is_judged_in_windows(
    spark: SparkSession, tmp_path: Path, tiny_windows: list[str]
) -> None:
    events, run = random_trace(Random(5), "large", "planted", 5, 80)
    folder = traced(tmp_path / "trace", events, run)
    expected = check_trace(events, run)
    result = spark_audit.audit(spark, [folder], limit=10_000)
    assert tiny_windows == ["large"]
    assert expected
    assert result.violations == count_by_property(expected)
    assert Counter(map(repr, result.examples)) == Counter(map(repr, expected))
    assert result.runs == 1


def test_the_same_figures_as_in_one_task(
    spark: SparkSession, tmp_path: Path, tiny_windows: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    events, run = random_trace(Random(8), "large", "planted", 5, 60)
    folder = traced(tmp_path / "trace", events, run)
    in_windows = spark_audit.audit(spark, [folder])
    monkeypatch.setattr(spark_audit, "WINDOWED_ROWS", 10**9)
    assert figures(spark_audit.audit(spark, [folder])) == figures(in_windows)
    assert tiny_windows == ["large"]


def test_all_violations_are_written(spark: SparkSession, tmp_path: Path, tiny_windows: list[str]) -> None:
    events, run = random_trace(Random(5), "large", "planted", 5, 80)
    folder = traced(tmp_path / "trace", events, run)
    spark_audit.audit(spark, [folder], violations_to=tmp_path / "violations")
    written = spark.read.parquet(str(tmp_path / "violations"))
    assert tiny_windows == ["large"]
    assert written.count() == len(check_trace(events, run))


def test_runs_in_windows_beside_runs_in_one_task(
    spark: SparkSession, tmp_path: Path, tiny_windows: list[str]
) -> None:
    """Row groups that hold two runs are judged the usual way; a run of its own goes to windows."""
    first, first_run = random_trace(Random(1), "a", "planted", 4, 30)
    second, second_run = random_trace(Random(2), "b", "planted", 4, 30)
    alone, alone_run = random_trace(Random(3), "c", "planted", 4, 30)
    write_trace(tmp_path / "t", [[*first, *second], *by_site(alone)], [first_run, second_run, alone_run])
    result = spark_audit.audit(spark, [tmp_path / "t"])
    expected: Counter[str] = Counter()
    for events, run in ((first, first_run), (second, second_run), (alone, alone_run)):
        expected.update(count_by_property(check_trace(events, run)))
    assert tiny_windows == ["c"]
    assert {name: result.violations[name] for name in PROPERTIES} == {
        name: expected[name] for name in PROPERTIES
    }
    assert result.runs == 3


def test_rows_of_one_step_are_judged_in_one_task(
    spark: SparkSession, tmp_path: Path, tiny_windows: list[str]
) -> None:
    events = [
        Event("run", "a", 0, "send", "a", 0),
        Event("run", "a", 0, "send", "a", 1),
        Event("run", "b", 0, "deliver", "a", 1),
        Event("run", "b", 1, "deliver", "a", 0),
    ]
    folder = traced(tmp_path / "trace", events, Run("run", promises=("fifo",)))
    result = spark_audit.audit(spark, [folder])
    assert tiny_windows == []
    assert result.violations["fifo"] == 1


def test_a_flawed_row_is_told(spark: SparkSession, tmp_path: Path, tiny_windows: list[str]) -> None:
    events = [Event("run", "a", 0, "send", "a", 0), Event("run", "a", 1, "deliver", None, 0)]
    folder = traced(tmp_path / "trace", events, Run("run", promises=("fifo",)))
    result = spark_audit.audit(spark, [folder])
    with pytest.raises(InputError) as pure:
        check_trace(events, Run("run"))
    assert result.unjudgeable == [pure.value.sentence]
    assert result.runs == 1
    assert tiny_windows == ["run"]


def test_a_run_that_windows_cannot_judge_and_memory_cannot_hold_is_unknown(
    spark: SparkSession, tmp_path: Path, tiny_windows: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that share a step must be judged in one piece. The other run is judged all the same."""
    shared = [Event("shared", "a", step // 2, "deliver", "b", step) for step in range(100)]
    kept = [Event("kept", "a", step, "deliver", "b", step) for step in range(10)]
    promises = [Run(name, promises=("fifo",)) for name in ("shared", "kept")]
    write_trace(tmp_path / "t", [shared, kept], promises)
    monkeypatch.setattr(memory, "memory_bytes", lambda: 99 * memory.ROW_BYTES)
    result = spark_audit.audit(spark, [tmp_path / "t"], summaries=10)
    assert tiny_windows == ["kept"]
    assert (result.verdict.value, result.runs) == ("unknown", 2)
    (sentence,) = result.unjudgeable
    assert sentence.startswith("Run shared has 100 rows: judged in one piece, it takes at least")
    assert "cannot be judged in windows" in sentence
    assert [summary.run for summary in result.summaries] == ["shared", "kept"]


@pytest.mark.parametrize("given", ["frame", "path"])
def test_large_runs_of_a_frame_are_judged_in_windows(
    spark: SparkSession, tmp_path: Path, tiny_windows: list[str], given: str
) -> None:
    """Rows may come in any order: Spark sorts them. A run whose rows share a step is judged in one task."""
    rng = Random(11)
    traces = [random_trace(rng, name, "planted", 5, 60) for name in ("first", "second")]
    shared = [Event("shared", "a", step // 2, "deliver", "b", step) for step in range(10)]
    runs = [*(run for _, run in traces), Run("shared", promises=("fifo",))]
    rows = [event for events, _ in traces for event in events]
    rng.shuffle(rows)
    write_trace(tmp_path / "trace", [[*rows, *shared]], runs)
    if given == "path":
        found = frames.audit(spark, f"file://{tmp_path}/trace")
    else:
        table, rest = (spark.read.parquet(f"{tmp_path}/trace/{name}") for name in ("events", "runs"))
        found = frames.audit(spark, table.repartition(3), runs=rest)
    expected = [violation for events, run in traces for violation in check_trace(events, run)]
    assert expected
    assert tiny_windows == ["first", "second"]
    assert found.result.runs == 3
    assert found.result.violations == count_by_property(expected)
    told = Counter((row.run, row.property, row.explanation) for row in found.violations.collect())
    assert told == Counter((each.run, each.property, each.explanation) for each in expected)
    verdicts = {(row.run, row.property): row.violations for row in found.verdicts.collect()}
    assert len(verdicts) == 3 * len(PROPERTIES)
    found.close()


def test_a_large_run_of_live_members_is_judged_in_windows(
    spark: SparkSession, tmp_path: Path, tiny_windows: list[str]
) -> None:
    recorder = SegmentRecorder(tmp_path, "live", "a")
    for number in range(20):
        recorder.record("a", "send", 0, "a", number)
        recorder.record("a", "deliver", 0, "a", number)
    recorder.close()
    note_run(tmp_path, Run("live", promises=PROPERTIES))
    found = frames.audit(spark, tmp_path)
    assert tiny_windows == ["live"]
    assert (found.verdict, found.result.deliveries) == (Verdict.PASS, 20)


def test_a_task_of_a_large_run_reads_a_bounded_number_of_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [Event("run", "a", step, "deliver", "b", step) for step in range(80)]
    write_trace(tmp_path, [events[first : first + 10] for first in range(0, 80, 10)], [Run("run")])
    whole = read_table(tmp_path / "events")
    shutil.rmtree(tmp_path / "events")
    (tmp_path / "events").mkdir()
    write_parquet(whole, tmp_path / "events" / "part.parquet", row_group_size=10)
    for name, rows in (("TASK_ROWS", 20), ("LARGE_TASK_ROWS", 40), ("LEAST_TASK_ROWS", 1)):
        monkeypatch.setattr(reading, name, rows)
    _, large = plan_large([open_trace(tmp_path)], 1, 1)
    ((rows_of_run, tasks),) = large.values()
    assert rows_of_run == 80
    groups = [[groups for _, groups in task.events] for task in tasks]
    assert groups == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
