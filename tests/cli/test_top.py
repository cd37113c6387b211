"""`antiphon top` as a user sees it: on a terminal, into a pipe, and where no member is."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from antiphon.cli.main import run
from antiphon.cli.top import MEETING_S
from tests.cli.test_live_verbs import a_group, nodes

pytestmark = pytest.mark.slow

DEADLINE_S = 120.0


@contextlib.contextmanager
def a_terminal(*arguments: str) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """`antiphon top` on a terminal of its own, and the other end of it."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    command = [sys.executable, "-m", "antiphon.cli.main", "top", *arguments]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, *words: str) -> str:
    """What the terminal shows until it has shown all of these words."""
    shown, end_s = "", time.monotonic() + DEADLINE_S
    while not all(word in shown for word in words):
        assert time.monotonic() < end_s, shown[-2000:]
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                shown += os.read(terminal, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                break
    return shown


def test_a_terminal_shows_all_members_until_it_is_interrupted() -> None:
    group = a_group()
    with nodes([group, "--name", "alice", "--json"], [group, "--name", "bob", "--json"]) as (alice, bob):
        assert json.loads(alice.hear())["site"] == "bob"
        assert json.loads(bob.hear())["site"] == "alice"
        with a_terminal(group, "--every", "0.3") as (process, terminal):
            shown = read_until(terminal, "alice", "bob", "2 members answer (fifo)", "waits for")
            assert "\x1b[?1049h" in shown, "it has the screen for itself"
            alice.say("hello")
            process.send_signal(signal.SIGINT)
            rest = read_until(terminal, "\x1b[?1049l")
            assert "Traceback" not in shown + rest
            assert process.wait(DEADLINE_S) == 0
        assert json.loads(alice.hear())["body"] == "hello"


def test_a_pipe_gets_a_table_or_a_json_object_for_each_look(capsys: pytest.CaptureFixture[str]) -> None:
    group = a_group()
    with nodes([group, "--name", "alice", "--json"]) as (alice,):
        alice.say("one")
        assert json.loads(alice.hear())["body"] == "one"
        assert run(["top", group, "--json", "--every", "0.5", "--seconds", "2"]) == 0
        looks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        figures = looks[-1]["members"]["alice"]
        assert looks[-1]["group"] == group
        assert (figures["order"], figures["members"], figures["refusals"]) == ("fifo", 1, 0)
        assert figures["sent_per_s"] == 0
        assert run(["top", group, "--seconds", "1"]) == 0
        said = capsys.readouterr().out
        assert "alice" in said
        assert "1 members answer (fifo)" in said


def test_a_group_without_members_is_told_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    begin_s = time.monotonic()
    assert run(["top", a_group()]) == 2
    assert time.monotonic() - begin_s < MEETING_S + DEADLINE_S
    said = capsys.readouterr()
    assert said.out == ""
    assert "No member of" in said.err
    assert "hint:" in said.err


@pytest.mark.parametrize("wrong", [["--every", "0.1"], ["--seconds", "-1"], ["--every", "inf"]])
def test_times_that_make_no_sense_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", "g", *wrong]) == 2
    assert "0.3 s at least" in capsys.readouterr().err
