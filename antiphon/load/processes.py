"""Local members, a process each, that load a live group while some of them come and go.

Members are called m0, m1, …; m0 orders, where one member does. The last `churn` of them vanish and return by
turns: killed and started again, stopped and continued, or leaving and joining.
"""

import asyncio
import contextlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from antiphon.core.errors import AntiphonError, UsageError
from antiphon.core.ids import Site
from antiphon.live.limits import Limits
from antiphon.live.pieces import LARGEST_MESSAGE_BYTES, LARGEST_RECORD_BYTES
from antiphon.load.generator import STAMP, Task

ChurnBy = Literal["kill", "stop", "leave"]
Report = dict[str, Any]

START_S: Final = 0.3
"""Time from the command to the start, so that all members begin together."""
MOST_PROCESSES: Final = 256
"""Members of one measurement, a process each. Raising it costs memory: each takes some tens of megabytes."""
GRACE_S: Final = 30.0
"""How long a member may take to join, and to finish when asked to."""
LINE_BYTES: Final = 64 << 20
"""Longest report, in bytes: one line with all latencies."""


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """The members, and their load."""

    members: int = 7
    size: int = 1000
    seconds: float = 5.0
    senders: int | None = None
    rate: float = 0.0
    """Messages per second of the whole group; 0 means as many as it takes."""
    by_batch: bool = False
    """Whether messages are handed in by the batch at a rate, too."""
    destinations: int = 0
    """Members that each message goes to, drawn from the others; 0 means all."""
    groups: dict[str, tuple[Site, ...]] = {}
    """The members of each group, if there are several; then `members` is ignored."""
    order: str = "fifo"
    options: dict[str, Any] = {}
    """The options of the order."""
    network: str = "loopback"
    key: str | None = None
    insecure: bool = False
    rate_bytes_s: float | None = None
    """Bytes per second from each member to each other, at most; None leaves it to the congestion control."""
    churn: int = 0
    churn_by: ChurnBy = "kill"
    away_s: float = 2.0
    back_s: float = 3.0
    uvloop: bool = False
    strangers: bool = False
    """Whether other processes may be in the group; their messages do not count."""

    def __post_init__(self) -> None:
        if self.size < STAMP.size:
            raise UsageError(
                f"A measured message has at least {STAMP.size} bytes, for its count and its time."
            )
        largest = LARGEST_MESSAGE_BYTES if self.rate and not self.groups else LARGEST_RECORD_BYTES
        if self.size > largest:
            raise UsageError(
                f"A message of {self.size:,} bytes is too long to be measured so.",
                hint=f"Take up to {LARGEST_RECORD_BYTES:,}; with --rate, up to {LARGEST_MESSAGE_BYTES:,}.",
            )
        Limits(rate_bytes_s=self.rate_bytes_s)
        if self.senders is not None and not 1 <= self.senders <= self.members:
            raise UsageError("At least one member sends, and at most all of them do.")
        if self.groups:
            msgspec.structs.force_setattr(self, "members", len(self.sites))
            if self.destinations:
                raise UsageError("A message goes to a group or to some members, not to both.")
        if self.members < 2:
            raise UsageError("A group to measure has at least two members.")
        if self.members > MOST_PROCESSES:
            raise UsageError(
                f"{self.members:,} members would be as many processes on this machine.",
                hint=f"Take up to {MOST_PROCESSES}.",
            )
        if not 0 <= self.destinations < self.members:
            raise UsageError("A message goes to one other member at least, and at most to all of them.")
        if not 0 <= self.churn < self.members:
            raise UsageError("At least one member must stay.")
        times = (self.seconds, self.away_s, self.back_s)
        if not (all(0 < time < math.inf for time in times) and 0 <= self.rate < math.inf):
            raise UsageError("Times are positive, and a rate is not negative; neither is infinite.")

    @property
    def sites(self) -> list[Site]:
        """The members of all groups, where there are several."""
        return sorted({site for members in self.groups.values() for site in members})

    @property
    def is_selective(self) -> bool:
        """Whether messages go to some of the members only."""
        return bool(self.destinations or self.groups)

    def name(self, index: int) -> Site:
        return self.sites[index] if self.groups else f"m{index}"

    @property
    def stayers(self) -> list[Site]:
        return [self.name(index) for index in range(self.members - self.churn)]

    def task(self, index: int, group: str, trace: Path, *, again: bool, tells: bool) -> Task:
        senders = self.members if self.senders is None else self.senders
        return Task(
            group=group, name=self.name(index), members=1 if again else self.members, size=self.size,
            sends=index < senders, rate=self.rate / senders, turn=index / senders,
            by_batch=self.by_batch,
            destinations=self.destinations, groups=self.groups, order=self.order,
            options=self.options | ({"sequencer": self.name(0)} if self.order == "sequencer" else {}),
            network=self.network, key=self.key, insecure=self.insecure,
            rate_bytes_s=self.rate_bytes_s, trace=str(trace), tells=tells,
            uvloop=self.uvloop, heeds=tuple(map(self.name, range(self.members))) if self.strangers else (),
        )  # fmt: skip


class MemberProcess:
    """One member's process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.ready = asyncio.Event()
        self.quiet = asyncio.Event()
        self.report: Report | None = None
        self.error: AntiphonError | None = None
        self.reading: asyncio.Task[None] | None = None

    async def read(self, tell: Callable[[dict[str, Any]], None] | None) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            with contextlib.suppress(json.JSONDecodeError):
                words = json.loads(line)
                if "report" in words:
                    self.report = words["report"]
                elif "error" in words:
                    self.error = AntiphonError(words["error"], words["hint"])
                elif "ready" in words:
                    self.ready.set()
                elif "quiet" in words:
                    self.quiet.set()
                elif tell is not None:
                    tell(words)
        self.ready.set()
        self.quiet.set()

    def order(self, line: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self.process.stdin.write(line.encode() + b"\n")

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def finish(self) -> None:
        assert self.reading is not None
        await asyncio.shield(self.reading)  # the waiting task may be cancelled; reading continues
        await self.process.wait()


class MemberProcesses:
    """Starts the members, runs the load, and gathers their reports."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        tell: Callable[[dict[str, Any]], None] | None = None,
        inside: Callable[[int], list[str]] = lambda _: [],
    ) -> None:
        """`inside` is the prefix of a member's command, where its host is not ours."""
        self._inside = inside
        self._plan = plan
        self._folder = folder
        self._tell = tell
        self.group: Final = f"perf-{os.getpid()}-{time.monotonic_ns()}"
        self._processes: dict[int, MemberProcess] = {}
        self._begin_s = 0.0

    async def run(self) -> dict[Site, Report]:
        """The report of each member that was there at the end."""
        plan = self._plan
        try:
            for index in range(plan.members):
                await self._launch(index)
            for member in self._processes.values():
                await self._until_ready(member)
            self._begin_s = time.monotonic() + START_S
            for member in self._processes.values():
                member.order(f"go {self._begin_s}")
            churning = [
                asyncio.create_task(self._churn(index, place))
                for place, index in enumerate(range(plan.members - plan.churn, plan.members))
            ]
            await asyncio.sleep(START_S + plan.seconds)
            for task in churning:
                task.cancel()
            await asyncio.gather(*churning, return_exceptions=True)
            return await self._gather()
        finally:
            await self._dismiss()

    async def _launch(self, index: int, *, again: bool = False) -> MemberProcess:
        task = self._plan.task(
            index, self.group, self._folder, again=again, tells=index == 0 and self._tell is not None
        )
        process = await asyncio.create_subprocess_exec(
            *self._inside(index), sys.executable, "-m", "antiphon.load.generator",
            msgspec.json.encode(task).decode(),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE_BYTES,
            start_new_session=True,  # an interrupt at the terminal is for us to pass on
        )  # fmt: skip
        member = self._processes[index] = MemberProcess(process)
        member.reading = asyncio.create_task(member.read(self._tell))
        return member

    async def _until_ready(self, member: MemberProcess) -> None:
        try:
            await asyncio.wait_for(member.ready.wait(), GRACE_S)
        except TimeoutError:
            raise AntiphonError("The members did not find each other.", "Is the network right?") from None
        if member.error is not None:
            raise member.error

    async def _churn(self, index: int, place: int) -> None:
        """One member vanishes and returns, again and again; several take turns."""
        plan = self._plan
        period_s = plan.away_s + plan.back_s
        await asyncio.sleep(START_S + plan.back_s + place * period_s / max(1, plan.churn))
        while time.monotonic() + plan.away_s < self._begin_s + plan.seconds:
            await self._vanish(index)
            await asyncio.sleep(plan.away_s)
            await self._return(index)
            await asyncio.sleep(plan.back_s)

    async def _vanish(self, index: int) -> None:
        member = self._processes[index]
        if self._plan.churn_by == "stop":
            member.signal(signal.SIGSTOP)
        elif self._plan.churn_by == "kill":
            member.signal(signal.SIGKILL)
        else:
            member.order("leave")
        if self._plan.churn_by != "stop":
            await member.finish()

    async def _return(self, index: int) -> None:
        if self._plan.churn_by == "stop":
            self._processes[index].signal(signal.SIGCONT)
            return
        member = await self._launch(index, again=True)
        await self._until_ready(member)
        member.order(f"go {self._begin_s}")

    async def _gather(self) -> dict[Site, Report]:
        for member in self._processes.values():
            member.signal(signal.SIGCONT)
            member.order("halt")
        # A member may end only when no other lacks a message that it alone can resend.
        await _in_time(member.quiet.wait() for member in self._processes.values())
        for member in self._processes.values():
            member.order("end")
        await _in_time(member.finish() for member in self._processes.values())
        reports: dict[Site, Report] = {}
        for index, member in self._processes.items():
            if member.error is not None:
                raise member.error
            if member.report is not None:
                reports[self._plan.name(index)] = member.report
        missing = [name for name in self._plan.stayers if name not in reports]
        if missing:
            raise AntiphonError(f"The member {missing[0]} ended without a report.")
        return reports

    async def _dismiss(self) -> None:
        for member in self._processes.values():
            if member.process.returncode is None:
                member.signal(signal.SIGCONT)
                member.signal(signal.SIGKILL)
                await member.process.wait()
            if member.reading is not None:
                member.reading.cancel()


async def _in_time(work: Iterable[Awaitable[Any]]) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*work), GRACE_S)


# Results


def summarise(plan: Plan, reports: dict[Site, Report]) -> dict[str, Any]:
    """The figures of `antiphon perf`, all but the violations."""
    stayed = [reports[name] for name in plan.stayers]
    rates = [_throughput(plan, report) for report in stayed]
    return {
        "group_throughput": round(min(rates), 1),
        # Where members get different messages, the least of them means little: report the sum, too.
        **({"deliveries_per_s": round(sum(rates), 1)} if plan.is_selective else {}),
        "latency_ms": _percentiles_ms(stayed, "latencies_us"),
        "stability_ms": _percentiles_ms(stayed, "stabilities_us"),
        "halted_share": round(_halted_share(plan, stayed), 4),
        "lost": _lost(plan, reports),
        "processor_share": round(max(_processor_share(report) for report in stayed), 5),
        "control_bytes_s": round(max(_control_bytes_s(plan, report) for report in stayed)),
    }


def buckets(plan: Plan, report: Report) -> list[int]:
    """Messages delivered in each whole 100 ms of the time measured; the first half second is warm-up."""
    counts: dict[int, int] = dict(report["buckets"])
    last = int(plan.seconds * 10)
    first = min(5, last - 1)
    return [counts.get(bucket, 0) for bucket in range(first, last)]


def _throughput(plan: Plan, report: Report) -> float:
    counts = buckets(plan, report)
    return sum(counts) / (len(counts) / 10)


def _percentiles_ms(reports: list[Report], name: str) -> dict[str, float | None]:
    ordered = sorted(value for report in reports for value in report[name])
    return {
        name: ordered[int(share * (len(ordered) - 1))] / 1000 if ordered else None
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }


def _halted_share(plan: Plan, stayed: list[Report]) -> float:
    halted = total = 0
    for report in stayed:
        counts = buckets(plan, report)
        median = sorted(counts)[len(counts) // 2]
        halted += sum(count < median / 10 for count in counts)
        total += len(counts)
    return halted / total


def _processor_share(report: Report) -> float:
    return float(report["processor_s"] / max(1e-9, report["span_s"]))


def _control_bytes_s(plan: Plan, report: Report) -> float:
    """Bytes a second that a member sent and received beside the messages' bodies."""
    bodies = plan.size * sum(report["delivered"].values())
    return float(max(0, report["bytes"] - bodies) / max(1e-9, report["span_s"]))


def _lost(plan: Plan, reports: dict[Site, Report]) -> int:
    """Messages missing at members that stayed: all of a stayer's, and of the others those that any got."""
    stayed = {name: reports[name] for name in plan.stayers}
    lost = 0
    for sender in {name for report in stayed.values() for name in report["delivered"]}:
        got = {name: report["delivered"].get(sender, 0) for name, report in stayed.items()}
        most = 0 if plan.is_selective else max(got.values())
        for name, count in got.items():
            due: int = most
            if sender in stayed:
                due = (
                    stayed[sender]["addressed"].get(name, 0) if plan.is_selective else stayed[sender]["sent"]
                )
            lost += max(0, due - count)
    holes: int = sum(report["holes"] for report in stayed.values() if not plan.churn)
    return lost + holes
