"""The driver of tests/spark/test_cluster.py: jobs whose tasks wait while workers are killed.

`python -m tests.spark.cluster_job MASTER TRACE FOLDER`. Each part prints a line of JSON. A task that has
begun leaves a file in `FOLDER/PART/begun`, named by its worker process, and waits for `FOLDER/PART/go`; what
has begun before that file exists is at work when the test kills it.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql import SparkSession

from antiphon.audit.reading import Piece, ReadTask, read_pieces
from antiphon.core.errors import AntiphonError
from antiphon.spark import audit as spark_audit
from antiphon.spark.connections import run_campaign
from antiphon.spark.session import map_in_arrow, spark_session
from antiphon.studies.connections import drawing

SEEDS = range(60, 140)
"""Two tasks: each has seeds of one hundred."""


def gate(folder: str) -> None:
    """Wait in a worker until the test has killed what it wants to kill."""
    place = Path(folder)
    (place / "begun" / str(os.getpid())).touch()
    while not (place / "go").exists():
        time.sleep(0.05)


def opened(folder: Path) -> str:
    (folder / "begun").mkdir(parents=True)
    return str(folder)


def audit_through_deaths(spark: SparkSession, trace: str, folder: Path) -> dict[str, object]:
    place = opened(folder)

    def gated(task: ReadTask) -> Iterator[Piece]:
        gate(place)
        return read_pieces(task)

    with patch.object(spark_audit, "read_pieces", gated):
        return spark_audit.audit(spark, [trace], violations_to=folder / "violations").to_json()


def campaign_through_deaths(spark: SparkSession, folder: Path) -> dict[str, object]:
    place, draw = opened(folder), drawing("sequencer")

    def gated(seed: int) -> Mapping[str, Any]:
        gate(place)
        return draw(seed)

    result = run_campaign(spark, "sequencer", gated, SEEDS, folder / "runs").to_json()
    del result["runs_per_s"]
    return result


def workers(spark: SparkSession) -> dict[str, object]:
    """In how many processes the tasks run, and where they have the package from."""

    def parents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import antiphon

        list(batches)
        yield pa.RecordBatch.from_pydict({"parent": [os.getppid()], "package": [antiphon.__file__]})

    rows = map_in_arrow(spark.range(0, 8, 1, 8), parents, "parent long, package string").collect()
    return {"parents": len({row[0] for row in rows}), "packages": sorted({row[1] for row in rows})}


def audit_without_java(spark: SparkSession, trace: str, folder: Path) -> dict[str, object]:
    """The driver's own Java process is killed while tasks are at work."""
    java = spark.sparkContext._gateway.proc

    def kill() -> None:
        while not (folder / "begun").exists() or not any((folder / "begun").iterdir()):
            time.sleep(0.05)
        os.kill(java.pid, signal.SIGKILL)
        java.wait()

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        return audit_through_deaths(spark, trace, folder)
    except AntiphonError as error:
        return {"sentence": error.sentence, "hint": error.hint}
    finally:
        killing.join()
        (folder / "go").touch()


def main(master: str, trace: str, folder: Path) -> None:
    java = os.environ["SPARK_SUBMIT_OPTS"]
    settings = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": java}
    with spark_session(master, settings=settings) as spark:
        parts: list[Callable[[], dict[str, object]]] = [
            lambda: workers(spark),
            lambda: audit_through_deaths(spark, trace, folder / "audit"),
            lambda: campaign_through_deaths(spark, folder / "campaign"),
            lambda: audit_without_java(spark, trace, folder / "java"),
        ]
        for part in parts:
            print(json.dumps(part()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
