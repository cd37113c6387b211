"""A real cluster: a standalone master and two workers, each a process of its own; some are killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest

from antiphon.check.checkers import check_trace
from antiphon.check.verdict import count_by_property
from antiphon.spark.connections import connection_row
from antiphon.spark.java import java_home
from antiphon.studies.connections import drawing
from antiphon.trace.files import write_trace
from tests.spark.cluster_job import SEEDS
from tests.strategies import random_trace

pytestmark = pytest.mark.spark

RUNS = 40
ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 300.0
"""The longest that any step may take. Raising it only delays a failure."""


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

    def start_worker(self) -> None:
        self.start(
            "worker.Worker",
            "Successfully registered",
            "-c", "1", "-m", "1g", "--webui-port", str(free_port()),
            self.address,
        )  # fmt: skip

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.kill()
        for process in self._processes:
            process.communicate()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "work")
    port = cluster.address.rsplit(":", 1)[1]
    try:
        cluster.start("master.Master", "New state: ALIVE", "--port", port, "--webui-port", str(free_port()))
        for _ in range(2):
            cluster.start_worker()
        yield cluster
    finally:
        cluster.stop()


def parent_of(process: int) -> int:
    status = Path(f"/proc/{process}/stat").read_text()
    return int(status.rsplit(")", 1)[1].split()[1])


def executor_of(process: int) -> int | None:
    """The executor that a Python worker belongs to; None if it has ended."""
    try:
        while process > 1:
            if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{process}/cmdline").read_bytes():
                return process
            process = parent_of(process)
    except (FileNotFoundError, ProcessLookupError):
        pass
    return None


def executors(begun: Path) -> set[int]:
    """The executors whose tasks have begun and wait."""
    found = {executor_of(int(file.name)) for file in begun.iterdir()} if begun.exists() else set()
    return {executor for executor in found if executor is not None}


def wait_for(condition: Callable[[], bool], job: subprocess.Popen[str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert job.poll() is None, job.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.05)


def answer(job: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line that the job prints."""
    assert job.stdout is not None
    line = job.stdout.readline()
    assert line, job.communicate()[1]
    found: dict[str, Any] = json.loads(line)
    return found


def kill_in_the_middle(folder: Path, job: subprocess.Popen[str]) -> None:
    """While tasks wait at both workers: kill an executor, and once it is replaced the other's worker."""
    begun = folder / "begun"
    wait_for(lambda: len(executors(begun)) == 2, job)
    first, second = sorted(executors(begun))
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: bool(executors(begun) - {first, second}), job)
    os.kill(parent_of(second), signal.SIGKILL)
    wait_for(lambda: second not in executors(begun), job)
    (folder / "go").touch()


def test_an_executor_and_then_a_worker_are_killed(cluster: Cluster, tmp_path: Path) -> None:
    events, runs, expected = [], [], []
    for seed in range(RUNS):
        own, run = random_trace(Random(seed), f"run-{seed}")
        events.append(own)
        runs.append(run)
        expected += check_trace(own, run)
    write_trace(tmp_path / "trace", events, runs)
    job = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.cluster_job", cluster.address, tmp_path / "trace", tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        workers = answer(job)
        assert workers["parents"] == 2, "both workers took part"
        assert all("antiphon.zip" in path for path in workers["packages"]), "the package was sent along"

        kill_in_the_middle(tmp_path / "audit", job)
        result = answer(job)
        assert result["violations"] == count_by_property(expected)
        assert (result["verdict"], result["runs"]) == ("fail", RUNS)
        files = sorted((tmp_path / "audit" / "violations").iterdir())
        assert all(file.name.startswith("violations-") for file in files), "nothing is half written"
        written = [row for file in files for row in pq.read_table(file).to_pylist()]
        assert sorted((row["run"], row["property"], row["explanation"]) for row in written) == sorted(
            (violation.run, violation.property, violation.explanation) for violation in expected
        )

        cluster.start_worker()
        kill_in_the_middle(tmp_path / "campaign", job)
        campaign = answer(job)
        assert (campaign["verdict"], campaign["runs"], campaign["failed"]) == ("pass", len(SEEDS), 0)
        draw = drawing("sequencer")
        alone = [connection_row("sequencer", draw, seed) for seed in SEEDS[::20]]
        files = sorted((tmp_path / "campaign" / "runs").iterdir())
        assert all(file.suffix == ".parquet" for file in files), "nothing is half written"
        rows = {row["seed"]: row for file in files for row in pq.read_table(file).to_pylist()}
        assert sorted(rows) == list(SEEDS)
        assert all(rows[row["seed"]]["parameters"] == row["parameters"] for row in alone)
        assert all(rows[row["seed"]]["deliveries"] == row["deliveries"] for row in alone)

        ended = answer(job)
        assert list((tmp_path / "java" / "violations").iterdir()) == [], "nothing is half written"
        assert "Spark's Java process ended while it judged" in ended["sentence"]
        assert ended["hint"]
        out, err = job.communicate(timeout=PATIENCE_S)
        assert (job.returncode, out, err) == (0, "", "")
    finally:
        job.kill()
        job.communicate()
