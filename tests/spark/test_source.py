"""Traces as a data source: the same rows as the reader's, filters pushed down, files that appear whole."""

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from antiphon.spark.source import FilteringReader, register
from antiphon.trace.arrow import EVENTS, events_table, pa, pq
from antiphon.trace.batches import expanded
from antiphon.trace.files import events_of, read_trace, write_trace
from antiphon.trace.schema import Event, Run
from antiphon.trace.segments import SegmentRecorder
from tests.strategies import random_trace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three random runs in Parquet, and a live member's segment with batches."""
    folder = tmp_path_factory.mktemp("source") / "trace"
    drawn = [random_trace(Random(seed), f"run-{seed}") for seed in range(3)]
    write_trace(folder, [events for events, _ in drawn], [run for _, run in drawn])
    recorder = SegmentRecorder(folder, "live", "alice")
    recorder.record("alice", "send", 5, "alice", 0, 3, size=10)
    recorder.record("alice", "deliver", 6, "alice", 0, 3)
    recorder.close()
    return folder


@pytest.fixture
def events(spark: "SparkSession", trace: Path) -> "DataFrame":
    register(spark)
    return spark.read.format("antiphon").load(str(trace))


def told(frame: "DataFrame") -> list[str]:
    return sorted(repr([row[name] for name in EVENTS.names]) for row in frame.collect())


def expected(events: list[Event]) -> list[str]:
    rows = events_table(events).to_pylist()
    return sorted(repr([row[name] for name in EVENTS.names]) for row in rows)


def test_all_rows_of_files_and_segments_are_read(events: "DataFrame", trace: Path) -> None:
    assert told(events) == expected(read_trace(trace).events)


def test_queries_of_one_frame_do_not_filter_one_another(events: "DataFrame") -> None:
    """Spark keeps what one query pushed down for the frame's next ones."""
    count = events.count()
    sends, deliveries = events.where("kind = 'send'"), events.where("kind = 'deliver'")
    sent, delivered = sends.count(), deliveries.count()
    assert 0 < sent < sent + delivered < count
    assert events.count() == count
    assert sends.union(deliveries).count() == sent + delivered


def test_filters_are_applied_where_the_file_is_read(spark: "SparkSession", trace: Path) -> None:
    register(spark)
    events = spark.read.format("antiphon").option("pushdown", "true").load(str(trace))
    wanted = [
        event
        for event in read_trace(trace).events
        if event.run == "run-1"
        and event.kind in ("send", "deliver")
        and event.step > 2
        and event.size is None
    ]
    assert wanted
    chosen = events.where("run = 'run-1' AND kind IN ('send', 'deliver') AND step > 2 AND size IS NULL")
    assert told(chosen) == expected(wanted)


def test_a_reader_takes_the_filters_that_it_can_apply(trace: Path) -> None:
    reader = FilteringReader(str(trace), expand=False)
    taken = [EqualTo(("run",), "run-1"), In(("kind",), ("send",)), GreaterThan(("step",), 2)]
    left = [EqualTo(("sender",), "a"), EqualTo(("run", "x"), "a")]
    assert list(reader.pushFilters([*taken, *left])) == left
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert rows
    assert all((row["run"], row["kind"]) == ("run-1", "send") and row["step"] > 2 for row in rows)


def test_what_filters_rule_out_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups by their statistics, segments by their first frames."""
    (tmp_path / "events").mkdir()
    rows = [Event("one", "a", step, "present") for step in range(40)]
    pq.write_table(events_table(rows), tmp_path / "events" / "part.parquet", row_group_size=10)
    for name in ("a", "b"):
        recorder = SegmentRecorder(tmp_path, "one", name)
        recorder.record(name, "send", 5, name, 0)
        recorder.close()
    read = list[int]()
    whole = pq.ParquetFile.read_row_group

    def noted(file: pq.ParquetFile, index: int, **options: object) -> pa.Table:
        read.append(index)
        return whole(file, index, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", noted)

    def chosen(*filters: Filter) -> tuple[list[int], int, int]:
        """The row groups and the number of segments that were read, and of rows that were found."""
        read.clear()
        reader = FilteringReader(str(tmp_path), expand=False)
        assert list(reader.pushFilters(list(filters))) == []
        parts = reader.partitions()
        rows = sum(batch.num_rows for part in parts for batch in reader.read(part))
        return [*read], len(parts) - 1, rows

    step, site = ("step",), ("site",)
    assert chosen() == ([0, 1, 2, 3], 2, 42)
    assert chosen(GreaterThanOrEqual(step, 18), LessThan(step, 20)) == ([1], 2, 2)
    assert chosen(GreaterThan(step, 19), LessThanOrEqual(step, 20)) == ([2], 2, 1)
    assert chosen(In(step, (39,))) == ([3], 2, 1)
    assert chosen(EqualTo(site, "b")) == ([], 1, 1)
    assert chosen(EqualTo(("kind",), "send")) == ([], 2, 2)
    assert chosen(EqualTo(("run",), "other")) == ([], 0, 0)


def test_batches_are_expanded_on_request(spark: "SparkSession", trace: Path) -> None:
    register(spark)
    rows = spark.read.format("antiphon").option("expand", "true").load(str(trace)).where("run = 'live'")
    assert sorted((row.kind, row.number, row["count"]) for row in rows.collect()) == [
        (kind, number, None) for kind in ("deliver", "send") for number in range(3)
    ]
    present = events_table([Event("r", "a", 0, "present"), Event("r", "a", 1, "send", "a", 4, 2)])
    assert [event.number for event in events_of(expanded(present))] == [None, 4, 5]


def test_a_frame_is_written_as_a_trace(spark: "SparkSession", events: "DataFrame", tmp_path: Path) -> None:
    write_trace(tmp_path / "copy", [], [Run("run-1")])
    events.where("run = 'run-1'").drop("message_id", "attempt").write.format("antiphon").mode("append").save(
        str(tmp_path / "copy")
    )
    copied = read_trace(tmp_path / "copy").events
    assert expected(copied) == told(events.where("run = 'run-1'"))
    assert not list((tmp_path / "copy" / "events").glob(".part*"))


def test_a_trace_is_a_stream_too(spark: "SparkSession", trace: Path, tmp_path: Path) -> None:
    register(spark)
    events = spark.readStream.format("antiphon").load(str(trace)).where("run <> 'live'")
    query = events.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    wanted = [event for event in read_trace(trace).events if event.run != "live"]
    assert told(spark.read.parquet(str(tmp_path / "out"))) == expected(wanted)


def test_mistakes_get_a_sentence(spark: "SparkSession", events: "DataFrame", tmp_path: Path) -> None:
    with pytest.raises(Exception, match="There is no trace at"):
        spark.read.format("antiphon").load(str(tmp_path / "none")).collect()
    with pytest.raises(Exception, match="Which trace"):
        spark.read.format("antiphon").load().collect()
    with pytest.raises(Exception, match="The column step is missing"):
        events.drop("step").write.format("antiphon").mode("append").save(str(tmp_path / "x"))
    with pytest.raises(Exception, match="never overwritten"):
        events.write.format("antiphon").mode("overwrite").save(str(tmp_path / "x"))
