"""Live replicas without a quorum, on hosts in network namespaces: both sides of a partition go on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.trace.call_files import read_calls
from antiphon.trace.files import open_trace
from tests.live.hosts import Hosts, skip_unless_allowed
from tests.replicated.test_live_faults import NAMES, ROOT, until

pytestmark = pytest.mark.live
ADDED = 20
"""Items that each member adds in each phase."""


def answered(folder: Path, name: str) -> int:
    files = (folder / "trace" / "calls").glob(f"{name}-*")
    return sum(file.read_bytes().count(b'"end":') for file in files)


def go_on(folder: Path) -> None:
    """Wait until every member has added many more items."""
    wanted = {name: answered(folder, name) + ADDED for name in NAMES}
    until(lambda: all(answered(folder, name) >= count for name, count in wanted.items()))


def test_both_sides_go_on_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    skip_unless_allowed()

    def start(place: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.replicated.sides_client", NAMES[place], str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return hosts.start(place, command, stdout=subprocess.PIPE, cwd=ROOT, env=environment)

    with Hosts(3) as hosts:
        processes = [start(place) for place in range(3)]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"in\n"
        go_on(tmp_path)
        hosts.weather.split([[0], [1, 2]])
        go_on(tmp_path)
        hosts.weather.heal()
        go_on(tmp_path)
        for process in processes:
            process.terminate()
        held = [set(process.stdout.readline().decode().split()) for process in processes if process.stdout]
        for process in processes:
            process.kill()
    calls = [call for file in open_trace(tmp_path / "trace").calls for call in read_calls(file)]
    added = {call.arguments[0] for call in calls if call.operation == "add" and call.answered}
    assert len(added) >= 9 * ADDED
    for each in held:
        assert added <= each
