"""The audit while the group runs: violations told soon, nothing lost over restarts and killed workers."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from antiphon.audit.local import audit_locally
from antiphon.audit.runs import Request, checked_request
from antiphon.check.verdict import Verdict, Violation
from antiphon.core.errors import InputError
from antiphon.spark.follow import Follower
from antiphon.spark.tasks import is_gone
from antiphon.trace.files import note_run
from antiphon.trace.schema import Run
from antiphon.trace.segments import SegmentRecorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DEADLINE_S = 300.0


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "this never came true"
        time.sleep(0.05)


class LiveGroup:
    """Three members that deliver everything in one order, unless told otherwise."""

    SITES = ("a", "b", "c")

    def __init__(self, folder: Path) -> None:
        note_run(folder, Run("run", promises=("atomicity", "fifo", "total")))
        self.logs = {site: SegmentRecorder(folder, "run", site) for site in self.SITES}
        self.number = 0

    def multicast(self, messages: int) -> None:
        for _ in range(messages):
            for sender in self.SITES:
                self.logs[sender].record(sender, "send", 0, sender, self.number)
            for log in self.logs.values():
                for sender in self.SITES:
                    log.record(log.site, "deliver", 0, sender, self.number)
            self.number += 1
        self.flush()

    def swap(self) -> None:
        """One member delivers two messages in another order than the others."""
        for sender in self.SITES[:2]:
            self.logs[sender].record(sender, "send", 0, sender, self.number)
        for log in self.logs.values():
            for sender in ("a", "b") if log.site != "c" else ("b", "a"):
                log.record(log.site, "deliver", 0, sender, self.number)
        for log in self.logs.values():
            log.record(log.site, "deliver", 0, "c", self.number)
        self.logs["c"].record("c", "send", 0, "c", self.number)
        self.number += 1
        self.flush()

    def flush(self) -> None:
        for log in self.logs.values():
            log.flush()

    def close(self) -> None:
        for log in self.logs.values():
            log.close()


def told(follower: Follower, seen: list[Violation]) -> list[Violation]:
    seen += follower.poll()
    return seen


def request(folder: Path) -> Request:
    return checked_request([str(folder)], None, None, 100)


def assert_as_the_audit(follower: Follower, folder: Path) -> None:
    result, whole = follower.finish(), audit_locally([folder])
    assert {**result.to_json(), "engine": ""} == {**whole.to_json(), "engine": ""}
    assert Counter(map(repr, result.examples)) == Counter(map(repr, whole.examples))


def test_a_violation_is_told_while_the_group_runs(spark: "SparkSession", tmp_path: Path) -> None:
    group = LiveGroup(tmp_path / "trace")
    group.multicast(20)
    seen: list[Violation] = []
    with Follower(spark, tmp_path / "trace", request(tmp_path), size=10) as follower:
        wait_for(lambda: not told(follower, seen) and follower.audit.rows >= 240)
        group.swap()
        group.multicast(20)
        wait_for(lambda: len(told(follower, seen)) > 0)
        assert {(each.property, each.sender) for each in seen} == {("total", "a")}
        assert follower.audit.counts["total"] == 1
        group.close()
        assert_as_the_audit(follower, tmp_path / "trace")
        assert follower.failures == 0


def test_a_restarted_job_goes_on_from_its_state(spark: "SparkSession", tmp_path: Path) -> None:
    group, state = LiveGroup(tmp_path / "trace"), tmp_path / "state"
    group.multicast(20)
    group.swap()
    seen: list[Violation] = []
    with Follower(spark, tmp_path / "trace", request(tmp_path), state=state, size=10) as follower:
        wait_for(lambda: told(follower, seen) is seen and follower.audit.rows >= 240)
    group.multicast(20)
    with Follower(spark, tmp_path / "trace", request(tmp_path), state=state) as follower:
        wait_for(lambda: told(follower, seen) is seen and follower.audit.rows >= 240)
        assert follower.audit.rows < 260, "the rows of before are not read again"
        assert_as_the_audit(follower, tmp_path / "trace")  # members are still running: their logs are open
        group.close()
    with Follower(spark, tmp_path / "trace", request(tmp_path), state=state) as follower:
        assert_as_the_audit(follower, tmp_path / "trace")


def workers() -> Iterator[int]:
    """The Python workers below this process."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = (
                    int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]),
                    (entry / "cmdline").read_bytes(),
                )
            except OSError:
                continue
    for process, (parent, command) in parents.items():
        if b"pyspark" not in command or b"java" in command:
            continue
        while parent in parents and parent != os.getpid():
            parent = parents[parent][0]
        if parent == os.getpid():
            yield process


def test_killed_workers_cost_a_batch(spark: "SparkSession", tmp_path: Path) -> None:
    group = LiveGroup(tmp_path / "trace")
    group.multicast(5)
    seen: list[Violation] = []
    with Follower(spark, tmp_path / "trace", request(tmp_path), small_bytes=0) as follower:
        wait_for(lambda: not told(follower, seen) and follower.audit.rows >= 60)
        for process in workers():
            os.kill(process, signal.SIGKILL)
        group.multicast(5)
        group.swap()
        group.multicast(5)
        wait_for(lambda: len(told(follower, seen)) > 0)
        group.close()
        assert_as_the_audit(follower, tmp_path / "trace")


def test_a_file_that_cannot_be_read_is_named(spark: "SparkSession", tmp_path: Path) -> None:
    LiveGroup(tmp_path / "trace").multicast(2)
    (tmp_path / "trace" / "events" / "bad.parquet").write_bytes(b"nothing")
    unread = pytest.raises(InputError, match=r"bad\.parquet cannot be read as Parquet")
    with Follower(spark, tmp_path / "trace", request(tmp_path)) as follower, unread:
        wait_for(lambda: bool(follower.poll()))


def test_an_empty_folder_is_waited_for(spark: "SparkSession", tmp_path: Path) -> None:
    with Follower(spark, tmp_path / "trace", request(tmp_path)) as follower:
        follower.poll()
        group = LiveGroup(tmp_path / "trace")
        group.multicast(3)
        wait_for(lambda: not follower.poll() and follower.rows > 0)
        group.close()
        assert follower.finish().verdict is Verdict.PASS


def test_an_error_without_a_text_means_that_java_is_gone() -> None:
    class SilentError(Exception):
        __module__ = "py4j.protocol"

        def __str__(self) -> str:
            raise ConnectionRefusedError

    assert is_gone(SilentError())
    assert not is_gone(ValueError("Connection refused"))
