"""The statistics on Spark are those of the local form."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import antiphon
from antiphon.core.errors import InputError
from antiphon.timing.local import measure_locally
from antiphon.trace.files import write_trace
from antiphon.trace.schema import Event, Run
from tests.timing.simulated import SLOW, slow_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stats") / "trace"
    second = [
        Event("other", "p", 0, "send", "p", 0, 3, time_ns=5),
        Event("other", "q", 0, "deliver", "p", 0, 2, time_ns=9, attempt=2),
        Event("other", "q", 1, "absent", time_ns=10),
    ]
    write_trace(folder, [slow_run(messages=300), second], [Run("slow"), Run("other")])
    return folder


def test_spark_finds_what_one_process_finds(spark: "SparkSession", trace: Path) -> None:
    found = antiphon.stats(spark, trace)
    assert found.summary == measure_locally([trace])
    assert [slow.site for slow in found.summary.runs[1].slow] == [SLOW]
    assert found.latency.where(f"target = '{SLOW}'").count() > 0
    for frame in (found.activity, found.lateness, found.lasts, found.skew):
        assert frame.count() > 0
    found.close()


def test_a_frame_is_measured_as_well_as_a_folder(spark: "SparkSession", trace: Path) -> None:
    frame = spark.read.parquet(str(trace / "events"))
    assert antiphon.stats(spark, frame, "trust").summary == measure_locally([trace], "trust")
    bare = frame.select("run", "site", "step", "kind", "sender", "number")
    (first, *_) = antiphon.stats(spark, bare).summary.runs
    assert first.cannot_tell[0].startswith("No row has a time")
    with pytest.raises(InputError, match="The column kind is missing"):
        antiphon.stats(spark, frame.drop("kind"))
