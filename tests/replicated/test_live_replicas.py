"""Replicas as processes on real sockets and disks: killed, stopped, and started again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import asyncio, json, sys
import antiphon

class Table:
    def __init__(self): self.values = {}
    def apply(self, command):
        key, value = command
        self.values[key] = value
        return len(self.values)
    def snapshot(self): return json.dumps(self.values).encode()
    def restore(self, data): self.values = json.loads(data)

async def main(group, name, store, options):
    limits = antiphon.Limits(join_s=60)
    shop = antiphon.replicate(group, Table(), name=name, store=store, limits=limits, **options)
    async with shop:
        print(json.dumps("ready"), flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            command = json.loads(line)
            try:
                if command == "leader": found = shop.leader
                elif command == "values":
                    await shop.sync()
                    found = shop.read(lambda table: table.values)
                else: found = await shop.call(command)
            except antiphon.CutOffError as error:
                found = {"cut off": error.uncertain}
            print(json.dumps(found), flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3] or None, json.loads(sys.argv[4])))
"""


class Replica:
    """One process."""

    def __init__(self, group: str, name: str, store: Path | None, options: dict[str, Any]) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, group, name, str(store or ""), json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"{self.name} has ended"
        return json.loads(line)

    def ask(self, command: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


Start = Callable[..., dict[str, Replica]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    group = f"live-{os.getpid()}-{time.monotonic_ns()}"
    started: list[Replica] = []

    def begin(*names: str, stores: bool = True, **options: Any) -> dict[str, Replica]:
        options = options or {"members": ["a", "b", "c"]}
        replicas = {
            name: Replica(group, name, tmp_path / name if stores else None, options) for name in names
        }
        started.extend(replicas.values())
        for replica in replicas.values():
            assert replica.answer() == "ready"
        return replicas

    yield begin
    for replica in started:
        if replica.process.poll() is None:
            replica.kill()
        for pipe in (replica.process.stdin, replica.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.mark.slow
def test_what_was_acknowledged_survives_kills_of_the_leader_and_of_all(start: Start) -> None:
    replicas = start("a", "b", "c")
    for number in range(10):
        assert replicas["abc"[number % 3]].ask([f"k{number}", number]) == number + 1
    leader = replicas["a"].ask("leader")
    replicas[leader].kill()
    survivor = next(replica for name, replica in replicas.items() if name != leader)
    assert survivor.ask(["after", "the kill"]) == 11
    replicas |= start(leader)
    expected = {f"k{number}": number for number in range(10)} | {"after": "the kill"}
    assert replicas[leader].ask("values") == expected
    for replica in replicas.values():
        replica.kill()
    replicas = start("a", "b", "c")
    assert replicas["b"].ask("values") == expected


@pytest.mark.slow
def test_a_leader_that_was_stopped_follows_when_it_goes_on(start: Start) -> None:
    replicas = start("a", "b", "c")
    replicas["a"].ask(["x", 1])
    leader = replicas["a"].ask("leader")
    os.kill(replicas[leader].process.pid, signal.SIGSTOP)
    survivor = next(replica for name, replica in replicas.items() if name != leader)
    assert survivor.ask(["x", 2]) == 1
    os.kill(replicas[leader].process.pid, signal.SIGCONT)
    found = replicas[leader].ask("values")
    while found == {"cut off": True} or found == {"cut off": False}:
        found = replicas[leader].ask("values")
    assert found == {"x": 2}


@pytest.mark.slow
def test_a_majority_founds_the_group_and_the_third_takes_up_its_state(start: Start) -> None:
    replicas = start("b", "c")
    assert replicas["b"].ask(["x", 1]) == 1
    replicas |= start("a")
    assert replicas["a"].ask("values") == {"x": 1}
    replicas["b"].kill()
    assert replicas["c"].ask(["y", 2]) == 2


@pytest.mark.slow
def test_processes_that_know_only_their_number_form_a_group(start: Start) -> None:
    replicas = start("x", "y", "z", stores=False, expected=3)
    assert replicas["z"].ask(["x", 1]) == 1
    replicas["x"].kill()
    replicas |= start("x", stores=False, expected=3)
    assert replicas["x"].ask("values") == {"x": 1}
