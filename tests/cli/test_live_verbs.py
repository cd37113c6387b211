"""`antiphon node` and `antiphon perf` as a user sees them: real processes, real sockets."""

import asyncio
import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from queue import Queue
from typing import IO, Any

import msgspec
import pytest

from antiphon.cli import node as cli_node
from antiphon.cli.console import Sparkline, print_error, say
from antiphon.cli.main import run
from antiphon.live.joining import join
from antiphon.live.limits import Limits
from antiphon.live.messages import Message, Presence
from antiphon.live.waits import StabilityWaits
from antiphon.load import generator
from antiphon.load.processes import MemberProcesses, Plan, buckets, summarise
from antiphon.report.escape import argument_lines
from antiphon.trace.files import read_trace

pytestmark = pytest.mark.slow

DEADLINE_S = 120.0
_groups = count()


class Node:
    """An `antiphon node` process; its output is read by a thread, so that no line keeps the test waiting."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "antiphon.cli.main", "node", *arguments]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self._lines: Queue[str] = Queue()
        assert self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line.rstrip("\n"))

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        return self._lines.get(timeout=DEADLINE_S)

    def end(self) -> tuple[int, str]:
        """Close the input; the exit code and what was said on stderr."""
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        self.process.stdin.close()
        code = self.process.wait(DEADLINE_S)
        return code, self.process.stderr.read()


@contextlib.contextmanager
def nodes(*members: list[str]) -> Iterator[list[Node]]:
    started = [Node(*arguments) for arguments in members]
    try:
        yield started
    finally:
        for node in started:
            node.process.kill()
            node.process.wait()


def a_group() -> str:
    return f"cli-{os.getpid()}-{next(_groups)}"


def test_lines_go_in_and_deliveries_come_out(tmp_path: Path) -> None:
    group, trace = a_group(), str(tmp_path / "trace")
    with nodes([group, "--name", "a", "--json", "--trace", trace]) as (a,):
        a.say("first")
        assert json.loads(a.hear()) == {"sender": "a", "number": 0, "body": "first"}
        with nodes([group, "--name", "b", "--trace", trace]) as (b,):
            appeared = json.loads(a.hear())
            assert (appeared["presence"], appeared["site"]) == ("appeared", "b")
            b.say("hello all")
            assert json.loads(a.hear()) == {"sender": "b", "number": 0, "body": "hello all"}
            while b.hear() != "b 0 hello all":
                pass
            code, said = b.end()
            assert code == 0
            assert "a appeared" in said
        vanished = json.loads(a.hear())
        assert (vanished["presence"], vanished["site"]) == ("vanished", "b")
        assert a.end()[0] == 0


def test_a_node_shows_its_log_from_a_level_on() -> None:
    group = a_group()
    members = [[group, "--name", "a", "--json", "--log", "info"], [group, "--name", "b", "--json"]]
    with nodes(*members) as (a, b):
        assert json.loads(a.hear())["site"] == "b"
        assert json.loads(b.hear())["site"] == "a"
        code, said = a.end()
        assert code == 0
        assert f"INFO a in {group}: joined, with the order 'fifo'." in said
        assert f"INFO a in {group}: appeared: b." in said
        assert b.end() == (0, "")


def test_a_node_can_be_in_several_groups() -> None:
    cluster, across = a_group(), ["--order", "total-across", "--causal"]
    first = [cluster, "--name", "a", *across, "--groups", "A,B", "--json"]
    second = [cluster, "--name", "b", *across, "--groups", "B"]
    with nodes(first) as (a,):
        a.say("to the first of its groups")
        words = {"group": "A", "sender": "a", "number": 0, "body": "to the first of its groups"}
        assert json.loads(a.hear()) == words
        with nodes(second) as (b,):
            assert json.loads(a.hear())["presence"] == "appeared"
            b.say("to B")
            assert json.loads(a.hear()) == {"group": "B", "sender": "b", "number": 0, "body": "to B"}
            b.say("@A groups are open")
            assert json.loads(a.hear())["group"] == "A"
            a.say("@B an answer")
            assert [b.hear(), b.hear()] == ["B b 0 to B", "B a 1 an answer"]
            b.say("@" + "x" * 65 + " no name")
            b.say("more")
            assert b.hear() == "B b 2 more"
            code, told = b.end()
            assert code == 0
            assert "no name for a group" in told


def test_a_line_can_be_addressed() -> None:
    group = a_group()
    with nodes([group, "--name", "a", "--addressed", "--json"], [group, "--name", "b", "--json"]) as (a, b):
        assert json.loads(a.hear())["site"] == "b"
        assert json.loads(b.hear())["site"] == "a"
        a.say("@a own words")
        a.say("@zoe not heard")
        a.say("@b,a both")
        a.say("all")
        heard = [json.loads(a.hear()) for _ in range(3)]
        assert [(one["number"], one["body"], one.get("to")) for one in heard] == [
            (0, "own words", ["a"]), (1, "both", ["a", "b"]), (2, "all", None)
        ]  # fmt: skip
        assert [json.loads(b.hear())["body"] for _ in range(2)] == ["both", "all"]
        code, told = a.end()
        assert code == 0
        assert "'zoe' is not a member" in told


def test_a_signal_ends_a_node_with_a_clean_leave() -> None:
    group = a_group()
    with nodes([group, "--name", "a", "--json"], [group, "--name", "b", "--json"]) as (a, b):
        assert json.loads(a.hear())["site"] == "b"
        assert json.loads(b.hear())["site"] == "a"
        a.process.send_signal(signal.SIGTERM)
        assert a.process.wait(DEADLINE_S) == 0
        vanished = json.loads(b.hear())
        assert vanished["presence"] == "vanished"
        assert "left" in vanished["reason"]


@pytest.mark.parametrize(("number", "finished"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_a_signal_while_joining_ends_a_node_at_once(number: signal.Signals, finished: bool) -> None:
    async def body() -> None:
        limits = Limits(join_s=10 * DEADLINE_S)
        group = join(a_group(), name="a", order="sequencer", sequencer="nobody", limits=limits)
        serving = asyncio.create_task(cli_node.Node(group, addressed=False, json=True).serve(None))
        while group._member is None:
            await asyncio.sleep(0.001)
        os.kill(os.getpid(), number)
        assert await asyncio.wait_for(serving, DEADLINE_S) is finished

    asyncio.run(body())


def test_an_interrupt_while_joining_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def interrupted(_: object, __: object) -> bool:
        return False

    monkeypatch.setattr(cli_node.Node, "serve", interrupted)
    assert run(["node", a_group(), "--name", "a"]) == 130
    assert capfd.readouterr() == ("", "Interrupted.\n")


def test_an_interrupted_perf_says_no_more_than_that() -> None:
    """As from a terminal: the interrupt goes to the whole process group."""
    command = [sys.executable, "-m", "antiphon.cli.main", "perf", "--members", "3", "--seconds", "600"]
    pipe = subprocess.PIPE
    perf = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    assert perf.stderr is not None
    assert perf.stderr.readline() == "3 members send for 600 s ...\n"
    children = Path(f"/proc/{perf.pid}/task/{perf.pid}/children")
    while len(children.read_text().split()) < 3 and perf.poll() is None:
        time.sleep(0.001)
    os.killpg(perf.pid, signal.SIGINT)
    assert perf.communicate(timeout=DEADLINE_S) == ("", "Interrupted.\n")
    assert perf.returncode == 130


EVIL = "e\x1b[2J\u202e 7\n"
"""Clears the screen, turns the line around, and begins another."""


def test_nothing_of_a_peers_reaches_the_terminal_raw(capfd: pytest.CaptureFixture[str]) -> None:
    stable = StabilityWaits()
    line = cli_node._shown_line(Message(EVIL, 3, b"a\tb\x1b]0;c\x07\xff\n", stable, None, EVIL))
    name = "e\\u001b[2J\\u202e\\u00207\\u000a"
    assert line.decode() == f"{name} {name} 3 a\tb\\u001b]0;c\\u0007\\xff\\u000a\n"
    line = cli_node._text_line(Message(EVIL, 3, b"raw\x1b", stable))
    assert line == f"{name} 3 ".encode() + b"raw\x1b\n"
    assert argument_lines(f"Let {EVIL} be. But no.") == ["Let e\\u001b[2J\\u202e 7\\u000a be.", "But no."]
    say(cli_node._sentence(Presence("vanished", EVIL, f"[bold]{EVIL}")))
    print_error(EVIL, EVIL)
    said = capfd.readouterr().err
    assert said.splitlines() == [
        "e\\u001b[2J\\u202e 7\\u000a vanished: [bold]e\\u001b[2J\\u202e 7\\u000a",
        "error: e\\u001b[2J\\u202e 7\\u000a",
        "hint: e\\u001b[2J\\u202e 7\\u000a",
    ]


@pytest.mark.parametrize(("terminal", "shown"), [(True, b"a 0 x\\u001b[2J"), (False, b"a 0 x\x1b[2J")])
def test_a_node_escapes_bodies_on_a_terminal_only(terminal: bool, shown: bytes) -> None:
    ours, theirs = pty.openpty() if terminal else os.pipe()
    command = [sys.executable, "-m", "antiphon.cli.main", "node", a_group(), "--name", "a"]
    node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    assert node.stdin is not None
    node.stdin.write(b"x\x1b[2J\n")
    node.stdin.flush()
    heard = b""
    while not heard.endswith(b"\n"):
        heard += os.read(ours, 1000)
    assert heard.rstrip() == shown
    node.communicate(timeout=DEADLINE_S)
    os.close(ours)
    assert node.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["node", "g", "--name", "two words"], "is no name"),
        (["node", "g", "--name", "\udce9"], "is no name"),
        (["node", "g", "--name", "e\u0301"], "Write it with composed characters"),
        (["node", "e\u0301"], "is no name for a group"),
        (["node", "g\x1b"], "is no name for a group"),
        (["node", "g", "--order", "sequencer", "--sequencer", "two words"], "is no name for a member"),
        (["perf", "--seconds", "nan"], "Times are positive"),
        (["perf", "--rate-bytes-s", "10"], "32,000 bytes a second at least"),
        (["node", "g", "--rate-bytes-s", "nan"], "32,000 bytes a second at least"),
        (["perf", "--seconds", "inf"], "Times are positive"),
        (["perf", "--rate", "nan"], "Times are positive"),
        (["perf", "--size", "64893"], "with --rate, up to 16,777,216"),
        (["perf", "--size", "99999999999", "--rate", "1"], "too long to be measured so"),
        (["simulate", ":b"], "cannot be loaded"),
        (["simulate", "..:x"], "cannot be loaded"),
        (
            [
                "advise",
                "--members",
                "1" + "0" * 30,
                "--senders",
                "1",
                "--bandwidth",
                "1",
                "--rate",
                "1",
                "--buffer",
                "1",
            ],
            "Take a million at most",
        ),
        (["node", "g", "--order", "chaos"], "There is no order 'chaos'"),
        (["node", "g", "--order", "sequencer"], "member that orders"),
        (["node", "g", "--network", "multicast:nowhere0", "--insecure"], "no interface 'nowhere0'"),
        (["node", "g", "--network", "peers:10.0.0.1:7400"], "needs a key"),
        (["node", "g", "--key", "no-such-file"], "no-such-file"),
        (["node", "g", "--queue", "0"], "at least one megabyte"),
        (["node", "g", "--stability", "trian"], "Did you mean 'train'?"),
        (["node", "g", "--trigger", "adaptive", "--repair", "request"], "any, hybrid, distance"),
        (["perf", "--piggyback", "--stability", "gossip"], "Choose fulldist"),
        (["perf", "--order", "sequencer", "--stability", "train"], "has no option stability="),
        (["node", "g", "--order", "total-across"], "Name some: --groups A,B"),
        (["node", "g", "--groups", "A"], "knows one group"),
        (["node", "g", "--order", "total-across", "--groups", "A,,B"], "no name for a group"),
        (["node", "g", "--order", "total-across", "--groups", "A", "--addressed"], "Leave --addressed out"),
        (["node", "g", "--causal"], "order='causal'"),
        (["perf", "--bodies", "direct"], "choose order='total-across'"),
        (["perf", "--order", "total-across"], "--groups FILE"),
        (["node"], "GROUP"),
        (["perf", "--members", "1"], "at least two members"),
        (["perf", "--members", "257"], "257 members would be as many processes on this machine"),
        (["perf", "--size", "3"], "at least 16 bytes"),
        (["perf", "--churn", "7"], "must stay"),
        (["perf", "--service", "lan"], "has no option service="),
        (["perf", "--churn-by", "wish"], "wish"),
    ],
)
def test_mistakes_get_a_sentence_and_a_hint(
    arguments: list[str], complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    said = capfd.readouterr()
    assert complaint in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


@pytest.mark.parametrize("order", ["fifo", "sequencer"])
def test_perf_prints_the_contracts_figures(order: str, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["perf", "--members", "3", "--seconds", "1.5", "--rate", "600", "--order", order, "--json"]
    assert run(arguments) == 0
    (line,) = capfd.readouterr().out.splitlines()
    figures = json.loads(line)
    assert set(figures) == {
        "group_throughput", "latency_ms", "stability_ms", "halted_share", "lost", "processor_share",
        "control_bytes_s", "violations",
    }  # fmt: skip
    assert 0 < figures["stability_ms"]["p50"] <= figures["stability_ms"]["p99"]
    assert figures["group_throughput"] > 100
    assert 0 < figures["latency_ms"]["p50"] <= figures["latency_ms"]["p99"]
    assert (figures["lost"], figures["violations"]) == (0, 0)


def test_perf_gives_its_members_the_options_of_the_order(tmp_path: Path) -> None:
    options = {"stability": "train", "errors": "gossip", "trigger": "adaptive"}
    assert Plan(options=options).task(0, "g", tmp_path, again=False, tells=False).options == options
    task = Plan(order="sequencer").task(1, "g", tmp_path, again=False, tells=False)
    assert task.options == {"sequencer": "m0"}


def test_a_crew_keeps_a_rate_by_the_batch_and_heeds_no_strangers(tmp_path: Path) -> None:
    plan = Plan(members=2, size=5000, seconds=1.5, rate=2000, by_batch=True, strangers=True)
    processes = MemberProcesses(plan, tmp_path / "trace")

    async def body() -> dict[str, Any]:
        async with join(processes.group, name="stranger") as stranger:

            async def chatter() -> None:
                while True:
                    await stranger.send(b"too short")
                    await asyncio.sleep(0.02)

            reading = asyncio.create_task(stranger.for_each_batch(lambda _: None))
            sending = asyncio.create_task(chatter())
            try:
                return await processes.run()
            finally:
                reading.cancel()
                sending.cancel()

    reports = asyncio.run(body())
    assert {name: set(report["delivered"]) for name, report in reports.items()} == {
        "m0": {"m0", "m1"}, "m1": {"m0", "m1"}
    }  # fmt: skip
    assert summarise(plan, reports)["lost"] == 0
    assert 0 < reports["m0"]["sent"] <= 2000


def test_perf_runs_on_uvloop_too(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["perf", "--members", "2", "--seconds", "1", "--rate", "200", "--uvloop", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["lost"] == 0


@pytest.mark.parametrize("by", ["kill", "stop", "leave"])
def test_perf_lets_members_vanish_and_return(
    by: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace"
    arguments = [
        "perf", "--members", "3", "--seconds", "3", "--rate", "300", "--churn", "1", "--churn-by", by,
        "--away", "0.8", "--back", "0.5", "--trace", str(trace),
    ]  # fmt: skip
    assert run(arguments) == 0
    assert "0  violations" in capfd.readouterr().out
    assert list((trace / "events").glob("m2*.segment"))


def test_perf_lets_members_of_several_groups_vanish_and_return(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    groups = tmp_path / "groups.csv"
    groups.write_text("A,m0\nA,m1\nB,m1\nB,m2\n")
    arguments = [
        "perf", "--order", "total-across", "--causal", "--groups", str(groups), "--seconds", "2.5",
        "--rate", "60", "--churn", "1", "--away", "0.8", "--back", "0.5", "--json",
        "--trace", str(tmp_path / "trace"),
    ]  # fmt: skip
    assert run(arguments) == 0
    figures = json.loads(capfd.readouterr().out)
    assert figures["deliveries_per_s"] > 0
    assert (figures["lost"], figures["violations"]) == (0, 0)
    (told,) = read_trace(tmp_path / "trace").runs
    assert "causal" in told.promises


@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        ("<&-", 0, ""),
        ("</dev/null >&-", 0, ""),
        ("</dev/null 2>&-", 0, ""),
        (">/dev/full", 2, "error: Something could not be read or written: No space left on device."),
        ("</dev/zero", 2, "error: A message of 16777219 bytes is too long."),
    ],
)
def test_streams_that_are_closed_full_or_endless_are_no_mistake_of_ours(
    redirected: str, code: int, said: str
) -> None:
    command = f"echo hello | {sys.executable} -m antiphon.cli.main node {a_group()} --name a {redirected}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr.partition("\n")[0]) == (code, said)


def test_a_member_that_fails_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(_: object) -> None:
        raise ValueError("nonsense")

    task = Plan().task(0, "g", tmp_path, again=False, tells=False)
    monkeypatch.setattr(generator, "work", broken)
    monkeypatch.setattr("sys.argv", ["generator", msgspec.json.encode(task).decode()])
    assert generator.main() == 2
    told = capfd.readouterr()
    assert "ValueError: nonsense" in json.loads(told.out)["error"]
    assert told.err == ""


def a_report(sent: int, delivered: dict[str, int], per_bucket: list[int]) -> dict[str, Any]:
    return {
        "sent": sent, "delivered": delivered, "holes": 0, "latencies_us": [1000, 3000],
        "stabilities_us": [sent * 1000], "buckets": list(enumerate(per_bucket)),
        "span_s": 2.0, "processor_s": sent / 1000, "bytes": 1_000_000,
    }  # fmt: skip


def test_the_figures_count_what_stayers_miss_and_when_they_halt() -> None:
    plan = Plan(members=3, seconds=2.0, churn=1)
    whole = a_report(100, {"m0": 100, "m1": 90, "m2": 30}, [0] * 5 + [10] * 15)
    short = a_report(90, {"m0": 98, "m1": 90, "m2": 33}, [0] * 5 + [10] * 12 + [0] * 3)
    figures = summarise(plan, {"m0": whole, "m1": short})
    assert figures["lost"] == 2 + 3
    assert figures["halted_share"] == 0.1
    assert figures["group_throughput"] == 80.0
    assert figures["latency_ms"] == {"p50": 1.0, "p99": 3.0}
    assert figures["stability_ms"] == {"p50": 90.0, "p99": 90.0}
    assert figures["processor_share"] == 0.05
    assert figures["control_bytes_s"] == (1_000_000 - 1000 * 220) / 2
    assert len(buckets(plan, whole)) == 15


def test_the_sparkline_draws_rates_and_who_is_there(capfd: pytest.CaptureFixture[str]) -> None:
    with Sparkline("rate", "members", step_s=0.5) as line:
        for total, there in ((100, 7), (150, 7), (150, 6), (200, 7)):
            line.add(total, there)
    drawn = capfd.readouterr().err.splitlines()
    assert drawn == ["rate █ █ up to 100", "members 767"]


def test_a_member_of_perf_that_waits_for_others_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    plan = Plan(members=2, seconds=1.0)
    task = plan.task(0, f"alone-{os.getpid()}", tmp_path, again=False, tells=False)
    command = [sys.executable, "-m", "antiphon.load.generator", msgspec.json.encode(task).decode()]
    ended = subprocess.run(command, input="", capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "")
