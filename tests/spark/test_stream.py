"""A growing trace as a stream: each row once, over restarts from a checkpoint."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from antiphon.core.errors import InputError, UsageError
from antiphon.spark.stream import FORMAT, register, stream_reader
from antiphon.trace.files import read_trace, write_trace
from antiphon.trace.schema import Event, Run
from antiphon.trace.segments import SegmentRecorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def drain(spark: "SparkSession", trace: Path, work: Path) -> None:
    """Append everything new to Parquet files, and stop."""
    events = spark.readStream.format(FORMAT).option("rows", 3).load(str(trace))
    query = events.writeStream.format("parquet").option("checkpointLocation", str(work / "checkpoint"))
    query.trigger(availableNow=True).start(str(work / "out")).awaitTermination()


def test_a_stream_goes_on_where_its_checkpoint_stopped(spark: "SparkSession", tmp_path: Path) -> None:
    register(spark)
    trace = tmp_path / "trace"
    alice = SegmentRecorder(trace, "run", "alice")
    alice.record("alice", "send", 1, number=0, destinations=["bob", "alice"])
    alice.record("alice", "deliver", 2, "alice", 0)
    alice.flush()
    drain(spark, trace, tmp_path)
    for number in range(1, 6):
        alice.record("alice", "deliver", 3, "bob", number)
        alice.flush()
    alice.close()
    write_trace(trace, [[Event("run", "bob", 0, "deliver", "alice", 0)]], [Run("run")], append=True)
    drain(spark, trace, tmp_path)
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("site", "step").collect()
    wanted = sorted(read_trace(trace).events, key=lambda event: (event.site, event.step))
    assert [(row["site"], row["step"], row["sender"], row["number"]) for row in rows] == [
        (event.site, event.step, event.sender, event.number) for event in wanted
    ]
    assert rows[0]["destinations"] == ["bob", "alice"]


def test_options_are_checked() -> None:
    with pytest.raises(InputError, match="Which trace"):
        stream_reader({})
    with pytest.raises(UsageError, match="rows is 'many'"):
        stream_reader({"path": "x", "rows": "many"})
