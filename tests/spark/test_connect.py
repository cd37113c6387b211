"""The audit in a session of Spark Connect: a real server, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.spark.java import java_home
from antiphon.trace.files import write_trace
from tests.histories import history

pytestmark = pytest.mark.spark
pytest.importorskip("grpc", reason="Spark Connect needs antiphon[connect]")

JOB = """
import json, sys
from pyspark.sql import SparkSession
import antiphon
spark = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false").getOrCreate()
assert "connect" in type(spark).__module__
by_path = antiphon.audit(spark, sys.argv[1])
by_frame = antiphon.audit(spark, spark.read.parquet(sys.argv[1] + "/events"), ["fifo"])
rows = [row.asDict() for row in by_path.violations.select("property", "size", "promised").collect()]
verdicts = {row.property: row.verdict for row in by_path.verdicts.collect()}
parts = sys.argv[1] + "-parts"
spark.read.parquet(sys.argv[1] + "/events").write.partitionBy("site").parquet(parts + "/events")
by_parts = antiphon.audit(spark, parts, ["total"], violations_to=parts + "/found")
found = spark.read.parquet(parts + "/found").count()
try:
    antiphon.audit(spark, parts + "/found")
except antiphon.InputError as error:
    missing = str(error)
told = [by_path.verdict.value, by_frame.verdict.value, by_parts.verdict.value, found, missing]
print(json.dumps([*told, rows, verdicts]))
spark.stop()
"""


def test_an_audit_over_spark_connect(tmp_path: Path) -> None:
    events, run, _ = history("a: !a0 a0 b0\nb: !b0 b0 a0")
    write_trace(tmp_path / "t", [events], [run])
    environment = os.environ | {
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, "-c", JOB, str(tmp_path / "t")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *told, missing, rows, verdicts = json.loads(done.stdout.splitlines()[-1])
    assert told == ["fail", "pass", "fail", 1], "by path, by frame, by partitions without runs/; written"
    assert "There is no trace at" in missing
    assert rows == [{"property": "total", "size": 2, "promised": True}]
    assert verdicts["total"] == "fail"
    assert {verdict for name, verdict in verdicts.items() if name != "total"} == {"pass"}
