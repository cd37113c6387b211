"""Live replicas on hosts in network namespaces: killed, stopped, cut off and rained upon; calls judged."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.audit.local import audit_locally
from antiphon.check.verdict import Verdict
from antiphon.trace.call_files import read_calls
from antiphon.trace.files import open_trace
from tests.live.hosts import Hosts, skip_unless_allowed

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
NAMES = ("a", "b", "c")
CALLS = 30
"""Calls of each member that is to go on, in each phase."""


class Story:
    """Three members on three hosts."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self.hosts = hosts
        self.folder = folder
        self.lives = dict.fromkeys(NAMES, 0)
        self.processes = {name: self.start(name) for name in NAMES}
        for name in NAMES:
            self.wait_in(name)

    def start(self, name: str) -> subprocess.Popen[bytes]:
        self.lives[name] += 1
        command = [sys.executable, "-m", "tests.replicated.live_client", name, ",".join(NAMES)]
        command += [str(self.folder), str(self.lives[name])]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return self.hosts.start(NAMES.index(name), command, stdout=subprocess.PIPE, cwd=ROOT, env=environment)

    def wait_in(self, name: str) -> None:
        output = self.processes[name].stdout
        assert output is not None
        assert output.readline() == b"in\n"

    def answered(self, name: str) -> int:
        files = (self.folder / "trace" / "calls").glob(f"{name}-*")
        return sum(file.read_bytes().count(b'"end":') for file in files)

    def go_on(self, *names: str) -> None:
        """Wait until each of these members has been answered many more calls."""
        wanted = {name: self.answered(name) + CALLS for name in names}
        until(lambda: all(self.answered(name) >= count for name, count in wanted.items()))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_the_calls_of_members_in_trouble_are_linearizable(tmp_path: Path) -> None:
    skip_unless_allowed()
    with Hosts(3) as hosts:
        story = Story(hosts, tmp_path)
        story.go_on(*NAMES)
        hosts.weather.split([[0], [1, 2]])
        story.go_on("b", "c")
        hosts.weather.heal()
        story.go_on("a")
        hosts.weather.trouble(loss=0.1, jitter_ms=2, duplication=0.1, reordering=0.1)
        story.go_on(*NAMES)
        story.processes["b"].kill()
        story.processes["b"].wait()
        story.go_on("a", "c")
        story.processes["b"] = story.start("b")
        story.wait_in("b")
        story.go_on("b")
        hosts.weather.heal()
        story.processes["c"].send_signal(signal.SIGSTOP)
        story.go_on("a", "b")
        story.processes["c"].send_signal(signal.SIGCONT)
        story.go_on(*NAMES)
        for name in NAMES:  # all at once: only their disks remember
            story.processes[name].kill()
            story.processes[name].wait()
        story.processes = {name: story.start(name) for name in NAMES}
        for name in NAMES:
            story.wait_in(name)
        story.go_on(*NAMES)
        story.processes["a"].terminate()
        output = story.processes["a"].communicate(timeout=240)[0]
        for name in ("b", "c"):
            story.processes[name].kill()

    trace = tmp_path / "trace"
    result = audit_locally([trace], expect=["linearizable"])
    assert result.verdict is Verdict.PASS, result
    calls = [call for file in open_trace(trace).calls for call in read_calls(file)]
    last = max(call.start for call in calls if (call.client, call.object) == ("a", "counter"))
    added = sum(call.operation == "add" and call.end is not None and call.end < last for call in calls)
    assert int(output.split()[-1]) >= added, "what was acknowledged is there"
    assert sum(not call.answered for call in calls) < len(calls) / 10
