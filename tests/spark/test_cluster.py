"""The audit on a real cluster: a standalone master and two workers, each a process of its own."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyspark
import pytest

from antiphon.check.checkers import check_trace
from antiphon.check.verdict import count_by_property
from antiphon.spark.java import java_home
from antiphon.trace.files import write_trace
from tests.strategies import random_trace

pytestmark = pytest.mark.spark

RUNS = 40
JOB = """
import json, os, sys
from antiphon.spark.audit import audit
from antiphon.spark.session import map_in_arrow, spark_session
import pyarrow as pa

def parents(batches):
    import antiphon
    list(batches)
    yield pa.RecordBatch.from_pydict({"parent": [os.getppid()], "package": [antiphon.__file__]})

java = os.environ["SPARK_SUBMIT_OPTS"]
settings = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": java}
with spark_session(sys.argv[1], settings=settings) as spark:
    result = audit(spark, [sys.argv[2]])
    rows = map_in_arrow(spark.range(0, 8, 1, 8), parents, "parent long, package string").collect()
    print(json.dumps([result.to_json(), len({row[0] for row in rows}), sorted({row[1] for row in rows})]))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """Starts Spark's own processes, and stops them at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[str]] = []
        self.address = f"spark://127.0.0.1:{free_port()}"

    def start(self, kind: str, said: str, *arguments: str) -> None:
        """Start a process and wait until it has logged what it says when it is ready."""
        home = Path(pyspark.__file__).parent
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(java_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(self._folder),
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_JAVA_OPTS": os.environ["SPARK_SUBMIT_OPTS"],
        }
        process = subprocess.Popen(
            [
                home / "bin" / "spark-class",
                f"org.apache.spark.deploy.{kind}",
                "--host",
                "127.0.0.1",
                *arguments,
            ],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        assert process.stderr is not None
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            if said in line:
                return
        raise AssertionError("".join(lines))

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.communicate()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "work")
    port = cluster.address.rsplit(":", 1)[1]
    try:
        cluster.start("master.Master", "New state: ALIVE", "--port", port, "--webui-port", str(free_port()))
        for _ in range(2):
            web = ["--webui-port", str(free_port())]
            cluster.start(
                "worker.Worker", "Successfully registered", "-c", "1", "-m", "1g", *web, cluster.address
            )
        yield cluster
    finally:
        cluster.stop()


def test_an_audit_on_two_workers(cluster: Cluster, tmp_path: Path) -> None:
    events, runs, expected = [], [], []
    for seed in range(RUNS):
        own, run = random_trace(Random(seed), f"run-{seed}")
        events.append(own)
        runs.append(run)
        expected += check_trace(own, run)
    write_trace(tmp_path / "trace", events, runs)
    done = subprocess.run(
        [sys.executable, "-c", JOB, cluster.address, str(tmp_path / "trace")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stderr == ""
    result, parents, packages = json.loads(done.stdout)
    assert result["violations"] == count_by_property(expected)
    assert (result["verdict"], result["runs"]) == ("fail", RUNS)
    assert parents == 2, "both workers took part"
    assert all("antiphon.zip" in path for path in packages), "the package was sent along"
