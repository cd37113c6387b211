"""`antiphon kv` and `antiphon lock` as a user sees them, with live replicas on loopback."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli import kv
from antiphon.cli.lock import TAKEN
from antiphon.cli.main import run
from antiphon.live.events import CutOff, Refused
from antiphon.replicated.events import LeaderChanged, Restored, StoreFailed, StoreRecovered

# All in one process: they share two replicas.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("objects")]

GROUP = f"shop{os.getpid()}"
HERE = ("--group", GROUP)
Capture = pytest.CaptureFixture[str]


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "antiphon", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen[str], word: str) -> str:
    """The line of stderr that has a word in it."""
    assert process.stderr is not None
    for line in process.stderr:
        if word in line:
            return line
    raise AssertionError(f"the process ended without '{word}'")


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, subprocess.Popen[str]]]:
    folder = tmp_path_factory.mktemp("runtime")
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        names = ("a", "b")
        started = {
            name: start("kv", "serve", GROUP, "--name", name, "--members", ",".join(names)) for name in names
        }
        try:
            for process in started.values():
                wait_for(process, "ready")
            yield started
        finally:
            for process in started.values():
                process.terminate()
            for process in started.values():
                process.communicate(timeout=60)


def says(capsys: Capture, *tokens: str) -> tuple[int, str, str]:
    code = run([*tokens, *HERE])
    out, err = capsys.readouterr()
    return code, out, " ".join(err.split())


@pytest.mark.usefixtures("replicas")
def test_a_value_is_set_and_got(capsys: Capture) -> None:
    assert says(capsys, "kv", "set", "apple", "3") == (0, "", "")
    assert says(capsys, "kv", "get", "apple") == (0, "3\n", "")
    assert says(capsys, "kv", "get", "pear") == (1, "", "pear has no value.")
    assert says(capsys, "kv", "set", "apple", "4", "--if", "9")[::2] == (
        1,
        "apple has another value; nothing was changed.",
    )
    assert says(capsys, "kv", "set", "apple", "4", "--if", "3")[0] == 0
    assert says(capsys, "kv", "set", "apple", "5", "--if-absent")[0] == 1
    assert says(capsys, "kv", "set", "pear", "a b", "--if-absent", "--expiry", "600")[0] == 0
    assert says(capsys, "kv", "list")[1] == "apple 4\npear a b\n"
    assert json.loads(says(capsys, "kv", "list", "--json", "--prefix", "p")[1]) == {"pear": "a b"}
    assert json.loads(says(capsys, "kv", "get", "apple", "--json")[1]) == {"key": "apple", "value": "4"}
    assert says(capsys, "kv", "delete", "apple")[0] == 0
    assert says(capsys, "kv", "delete", "apple") == (1, "", "apple has no value.")


@pytest.mark.usefixtures("replicas")
def test_a_value_steers_no_terminal_and_reaches_a_pipe_as_it_is(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(capsys, "kv", "set", "odd\x1b", "a\x1b[2J\rb")
    assert says(capsys, "kv", "get", "odd\x1b")[1] == "a\x1b[2J\rb\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert says(capsys, "kv", "get", "odd\x1b")[1] == "a\\u001b[2J\\u000db\n"
    assert says(capsys, "kv", "list", "--prefix", "odd")[1] == "odd\\u001b a\\u001b[2J\\u000db\n"
    assert says(capsys, "kv", "delete", "odd\x1b")[0] == 0


@pytest.mark.usefixtures("replicas")
def test_a_watch_prints_changes_as_they_happen(capsys: Capture) -> None:
    watching = start("kv", "watch", "--prefix", "w", "--count", "3", *HERE)
    wait_for(watching, "Watching")
    says(capsys, "kv", "set", "w1", "1")
    says(capsys, "kv", "set", "other", "1")
    says(capsys, "kv", "set", "w2", "2")
    says(capsys, "kv", "delete", "w1")
    out, _ = watching.communicate(timeout=60)
    assert (watching.returncode, out) == (0, "w1 1\nw2 2\nw1\n")


@pytest.mark.usefixtures("replicas")
def test_a_command_runs_under_a_lock(capfd: Capture) -> None:
    def held(*command: str) -> tuple[int, str]:
        code = run(["lock", "till", *HERE, "--", *command])
        return code, capfd.readouterr().out

    code, first = held("sh", "-c", "echo $ANTIPHON_TOKEN; exit 7")
    assert code == 7
    code, second = held("sh", "-c", "echo $ANTIPHON_TOKEN; kill -9 $$")
    assert code == 128 + signal.SIGKILL
    assert int(second) > int(first)


@pytest.mark.usefixtures("replicas")
def test_a_lock_that_is_taken_is_waited_for_and_freed_by_a_kill(tmp_path: Path) -> None:
    marker = tmp_path / "in"
    script = f"echo $ANTIPHON_TOKEN > {marker}.part; mv {marker}.part {marker}; exec sleep 600"
    holder = start("lock", "door", *HERE, "--", "sh", "-c", script)
    try:
        while not marker.exists():
            assert holder.poll() is None, holder.communicate()
        assert run(["lock", "door", *HERE, "--timeout", "0", "--", "true"]) == TAKEN
        assert run(["lock", "door", *HERE, "--timeout", "0.1", "--", "true"]) == TAKEN
        waiting = start("lock", "door", *HERE, "--", "sh", "-c", "echo $ANTIPHON_TOKEN")
        holder.kill()
        out, _ = waiting.communicate(timeout=60)
    finally:
        holder.kill()
        holder.communicate()  # ends once the command has closed its output: it does not outlive its holder
    assert int(out) > int(marker.read_text())


def test_a_replica_says_what_keeps_calls_waiting(capsys: Capture) -> None:
    class Member:
        async def events(self) -> AsyncIterator[Any]:
            for event in (
                StoreFailed("The store cannot be written: No space left on device."), LeaderChanged("a"),
                StoreRecovered(), CutOff("'a' does not reach a majority of 'shop'."), Restored(),
                Refused("b", "give it another\x1b name."),
            ):  # fmt: skip
                yield event

    asyncio.run(kv._tell(Member()))
    assert capsys.readouterr().err.splitlines() == [
        "The store cannot be written: No space left on device. Calls wait until it can.",
        "The store can be written again.",
        "'a' does not reach a majority of 'shop'.",
        "A majority is in contact again.",
        "b: give it another\\u001b name.",
    ]


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        (["kv", "set", "x", "1", "--if", "0", "--if-absent"], "A key has a value or it has none."),
        (["kv", "set", "x", "1", "--expiry", "0"], "An expiry is a number of seconds above 0."),
        (["kv", "watch", "x", "--prefix", "y"], "A watch is of one key or of a prefix."),
        (["kv", "get", "x", "--group", "nowhere"], "There is no replica of the group nowhere"),
        (["kv", "get", "x", "--at", "/no/such"], "There is no replica at /no/such."),
        (["kv", "get", "x", "--group", "e\u0301"], "Write it with composed characters"),
        (["kv", "serve", "g", "--name", "z", "--members", "a,b"], "are no list of different names"),
        (["kv", "frob"], "frob"),
        (["lock", "till"], "antiphon lock --help"),
        (["lock", "till", "--", "/no/such/program"], "There is no command '/no/such/program'."),
    ],
)
def test_bad_input_gets_a_sentence(capsys: Capture, tokens: list[str], sentence: str) -> None:
    assert run(tokens) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_a_lock_is_lost_with_its_replica(replicas: dict[str, subprocess.Popen[str]], tmp_path: Path) -> None:
    """Last, since the group has no majority afterwards: it fails closed."""
    marker = tmp_path / "in"
    script = f"touch {marker}; exec sleep 600"
    holder = start("lock", "gate", *HERE, "--", "sh", "-c", script)
    while not marker.exists():
        assert holder.poll() is None, holder.communicate()
    replicas["a"].kill()
    _, err = holder.communicate(timeout=60)
    assert holder.returncode == 128 + signal.SIGTERM
    assert "The lock gate is lost" in " ".join(err.split())
    code = run(["kv", "set", "x", "1", *HERE])
    assert code == 2, "one of two members is no majority"


def test_replicas_that_know_only_their_number_form_a_group(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    folder = tmp_path_factory.mktemp("runtime")  # short, since a socket's path is
    folder.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    group = f"counted{os.getpid()}"
    started = [start("kv", "serve", group, "--name", name, "--expected", "2") for name in ("x", "y")]
    try:
        for process in started:
            wait_for(process, "ready")
        assert run(["kv", "set", "apple", "3", "--group", group]) == 0
        assert run(["kv", "serve", group, "--name", "z", "--expected", "2", "--members", "x,z"]) == 2
        assert "by its members or by their number" in capsys.readouterr().err
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.communicate(timeout=60)
