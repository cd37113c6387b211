"""The audit reads live members' segments as they are, and finds what the pure checkers find in them."""

import os
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from antiphon.check.checkers import check_all
from antiphon.check.verdict import Verdict, count_by_property
from antiphon.cli.pages import diagram_of
from antiphon.core.errors import InputError
from antiphon.core.recording import PROPERTIES
from antiphon.report.text import to_text
from antiphon.spark.audit import audit
from antiphon.trace.files import note_run, read_trace, write_trace
from antiphon.trace.frames import MAGIC, ROWS, encoded
from antiphon.trace.schema import Event, Run
from antiphon.trace.segments import SegmentRecorder
from tests.spark.test_audit import key, keys_written
from tests.strategies import random_trace
from tests.trace.test_frames import NAMED, row, segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def record(recorder: SegmentRecorder, log: list[Event]) -> None:
    for event in log:
        count, named = event.count or 1, event.destinations
        recorder.record(
            event.site, event.kind, 0, event.sender, event.number, count, event.group, named, event.size
        )


def write_live(folder: Path, rng: Random, log: list[Event]) -> None:
    """One site's log in segments that roll over; often it crashes, sometimes in a write, and returns."""
    cut = rng.choice((0, len(log), len(log) // 2))
    for spell in (log[:cut], log[cut:]):
        recorder = SegmentRecorder(folder, log[0].run, log[0].site, segment_bytes=rng.choice((400, 1 << 20)))
        for event in spell:
            record(recorder, [event])
            if rng.random() < 0.3:
                recorder.flush()
        if rng.random() < 0.5:
            recorder.close()
            continue
        recorder.flush()
        recorder._release()
        if rng.random() < 0.5:
            last = max((folder / "events").glob("*.segment"), key=lambda path: path.stat().st_mtime_ns)
            with last.open("ab") as file:
                file.write(encoded(ROWS, row())[: rng.randrange(1, 44)])


def test_random_runs_of_live_members_and_simulated_ones(spark: "SparkSession", tmp_path: Path) -> None:
    rng, folder = Random(4), tmp_path / "trace"
    for seed in range(40):
        events, run = random_trace(Random(seed), f"run-{seed}")
        logs: dict[str, list[Event]] = {}
        for event in sorted(events, key=lambda event: event.step):
            logs.setdefault(event.site, []).append(event)
        live = [site for site in sorted(logs) if rng.random() < 0.7]
        for site in live:
            write_live(folder, rng, logs[site])
        rest = [event for event in events if event.site not in live]
        write_trace(folder, [rest] if rest else [], [], append=True)
        note_run(folder, run)
    trace = read_trace(folder)
    expected = [violation for found in check_all(trace).values() for violation in found]
    result = audit(spark, [folder], violations_to=tmp_path / "violations")
    assert keys_written(tmp_path / "violations") == sorted(map(key, expected), key=repr)
    assert result.violations == count_by_property(expected)
    assert min(result.violations.values()) > 0
    assert result.runs == 40
    assert result.deliveries == sum(event.count or 1 for event in trace.events if event.kind == "deliver")
    assert all("the run has no rows" in sentence for sentence in result.unjudgeable)


def group_of_two(folder: Path, swapped: bool) -> list[SegmentRecorder]:
    """Two members deliver 100 messages in one order, except perhaps for one swap; no member has left yet."""
    recorders = [SegmentRecorder(folder, "live", site) for site in ("a", "b")]
    order = list(range(100))
    for recorder in recorders:
        recorder.record(recorder.site, "present", 0)
    for number in order:
        recorders[0].record("a", "send", 0, "a", number)
        recorders[0].record("a", "deliver", 0, "a", number)
    if swapped:
        order[40], order[41] = order[41], order[40]
    for number in order:
        recorders[1].record("b", "deliver", 0, "a", number)
    for recorder in recorders:
        recorder.flush()
    note_run(folder, Run("live", "fifo", ("integrity", "duplicate", "atomicity", "fifo", "total")))
    return recorders


@pytest.mark.parametrize("swapped", [False, True])
def test_a_group_is_audited_while_it_runs(spark: "SparkSession", tmp_path: Path, swapped: bool) -> None:
    recorders = group_of_two(tmp_path, swapped)
    result = audit(spark, [tmp_path])
    assert result.verdict is (Verdict.FAIL if swapped else Verdict.PASS)
    assert (result.sites, result.sends, result.deliveries) == (2, 100, 200)
    assert result.violations == {
        **dict.fromkeys(PROPERTIES, 0),
        "fifo": swapped,
        "causal": swapped,
        "total": swapped,
    }
    if swapped:
        assert "deliver a:41" in to_text(diagram_of([tmp_path], result.examples[0]))
    for recorder in recorders:
        recorder.close()


def test_a_log_that_lost_its_middle_cannot_pass(spark: "SparkSession", tmp_path: Path) -> None:
    recorder = SegmentRecorder(tmp_path, "live", "a", segment_bytes=1)
    for number in range(4):
        recorder.record("a", "send", 0, "a", number)
        recorder.flush()
    recorder.close()
    files = sorted((tmp_path / "events").iterdir())
    os.truncate(files[1], files[1].stat().st_size - 1)
    note_run(tmp_path, Run("live", promises=("fifo",)))
    result = audit(spark, [tmp_path])
    assert result.verdict is Verdict.UNKNOWN
    reason = "step 1 is missing from the log of site a"
    assert result.unjudgeable == [f"Run live: fifo is unknown, because {reason}."]


def test_impossible_rows_are_told_as_those_of_parquet_are(spark: "SparkSession", tmp_path: Path) -> None:
    segment(tmp_path, NAMED, encoded(ROWS, row() + row(kind=9)))
    result = audit(spark, [tmp_path])
    assert result.verdict is Verdict.UNKNOWN
    assert result.unjudgeable == ["Run run cannot be judged: in the row of site a, step 1, its kind is '9'."]


def test_damaged_segments_are_input_errors(spark: "SparkSession", tmp_path: Path) -> None:
    segment(tmp_path / "frame", encoded(ROWS, row()[:-1]))
    with pytest.raises(InputError, match=r"a\.segment has a frame that does not hold whole rows") as info:
        audit(spark, [tmp_path / "frame"])
    assert info.value.hint
    segment(tmp_path / "magic", magic=MAGIC[::-1])
    with pytest.raises(InputError, match="is not a segment"):
        audit(spark, [tmp_path / "magic"])


def test_members_that_have_hardly_begun_have_done_nothing(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "a.segment").write_bytes(MAGIC[:3])
    result = audit(spark, [tmp_path])
    assert (result.verdict, result.runs) == (Verdict.UNKNOWN, 0), "nothing shows that anything was kept"
