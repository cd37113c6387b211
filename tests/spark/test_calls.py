"""Calls on replicated objects are judged on Spark as they are judged here."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from antiphon.audit.local import audit_locally
from antiphon.check.verdict import Verdict
from antiphon.spark.audit import audit
from antiphon.spark.frames import audit as audit_frames
from antiphon.trace.files import write_trace
from antiphon.trace.schema import Run
from tests.trace.test_calls import OPEN, STALE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_calls_are_judged_on_spark_too(spark: "SparkSession", tmp_path: Path) -> None:
    good = [msgspec.structs.replace(call, run="good") for call in (*STALE[:2], OPEN)]
    runs = [Run(name, promises=("linearizable",)) for name in ("r", "good", "silent")]
    write_trace(tmp_path, [], runs, calls=[*STALE, OPEN])
    write_trace(tmp_path, [], [], calls=good, append=True)
    here, there = audit_locally([tmp_path]), audit(spark, [tmp_path])
    assert there.verdict is Verdict.FAIL
    assert there.broken_runs == ["r"]
    assert there.violations == here.violations
    assert there.examples == here.examples
    assert there.unjudgeable == ["Run silent: linearizable is unknown, because the run has no calls."]
    frames = audit_frames(spark, tmp_path)
    found = {row.run: row.verdict for row in frames.verdicts.where("property = 'linearizable'").collect()}
    assert found == {"r": "fail", "good": "pass", "silent": "unknown"}
