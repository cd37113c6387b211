"""The live half: three honest members on loopback, a liar in a process of its own, and the same demands.

No member ends, no protocol raises, all deliver again within two seconds of the liar's end, the trace keeps
the order's promises for what was sent since, and no table of a member has grown without end. Times are real,
so on a busy machine a member may be late through no fault of its own: how late this process was woken
meanwhile is measured, and granted.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import antiphon
from antiphon.check.verdict import Violation
from antiphon.core.ids import MessageId, Site
from antiphon.live.events import Disagreed, Unavailable
from antiphon.live.group import Group
from antiphon.live.keys import KeyRing
from antiphon.live.messages import Batch
from antiphon.live.orders import DEFAULT_SERVICE
from antiphon.protocols.dpg.order import NUMBER_TAKEN
from antiphon.trace.files import read_trace
from tests.fuzz.containers import Holdings
from tests.fuzz.judging import After
from tests.fuzz.liar import GROUP, LIAR, SITES
from tests.fuzz.plans import MEMBER
from tests.fuzz.run import LARGER_CONTAINERS, Failed

RECOVERY_S: Final = 2.0
WAKES_GRANTED: Final = 20
"""Longest waits seen that a recovery may take beyond that: members answer one another by turns."""
JOINING_S: Final = 30.0
LYING_S: Final = 120.0
"""Time for the liar to say all it has to say, beside what its rate asks for."""
OFFER_S: Final = 0.02
LATE_S: Final = 0.01
LARGEST_CONTAINER: Final = 20_000
"""Entries of a container of a live member: some hold what passes in a second or two."""
KEY: Final = b"f" * 32


@dataclass(frozen=True, kw_only=True)
class LivePlan:
    """The parameters of one live run."""

    order: str
    service: str = DEFAULT_SERVICE
    liar: str = MEMBER
    keyed: bool = False
    seed: int = 0
    pdus: int = 5000
    rate: float = 4000.0
    recovery_s: float = RECOVERY_S
    """How long a recovery may take. The tests wait longer: they are to pass on any machine."""

    def command(self) -> str:
        service = f" --service {self.service}" if self.order == "total" else ""
        keyed = " --keyed" if self.keyed else ""
        return (
            f"python -m tests.fuzz --live --order {self.order}{service} --seed {self.seed} "
            f"--pdus {self.pdus} --liar {self.liar}{keyed}"
        )


@dataclass
class LiveOutcome:
    """What came of a live run."""

    said: int = 0
    recovered_s: float = 0.0
    granted_s: float = 0.0
    delivered_meanwhile: int = 0
    """Honest messages that an honest member delivered while the liar lied."""
    largest: int = 0
    drops: dict[str, int] = field(default_factory=dict)


class Reading:
    """What one honest member has delivered, by sender: the numbers, in order. And what it has doubted."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.heard: dict[Site, list[int]] = {}
        self.passed_over: dict[MessageId, str] = {}
        """Messages that it said not to deliver, and why."""
        self.disagreed = False
        """Whether it said that its order is not that of another honest member."""
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for item in self.group.event_batches():
            if isinstance(item, Unavailable) and item.sender is not None and item.number is not None:
                self.passed_over[MessageId(item.sender, item.number)] = item.reason
            elif isinstance(item, Disagreed):
                self.disagreed |= item.site in SITES
            elif isinstance(item, Batch):
                for message in item:
                    if message.sender != LIAR:
                        self.heard.setdefault(message.sender, []).append(message.number)

    def grants(self, message: MessageId, *, is_late: bool) -> bool:
        """Whether a message of `total` is missing here for what the liar said, and that was told."""
        reason = self.passed_over.get(message)
        return reason == NUMBER_TAKEN or (reason is not None and not is_late)


class Lateness:
    """How late this process is woken: what a busy machine takes from everyone on it."""

    def __init__(self) -> None:
        self.worst_s = 0.0
        self.task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(LATE_S)
            self.worst_s = max(self.worst_s, time.monotonic() - before - LATE_S)


async def run_live(plan: LivePlan, folder: Path) -> LiveOutcome:
    """One run; `Failed` says which demand is not met."""
    name = f"fuzz-{time.monotonic_ns()}"
    keys = KeyRing((KEY,)) if plan.keyed else None
    outcome = LiveOutcome()
    async with _members(plan, name, keys, folder) as groups:
        readings = [Reading(group) for group in groups]
        lateness = Lateness()
        sending = [asyncio.create_task(_keep_sending(group, plan)) for group in groups]
        try:
            outcome.said = await _let_lie(plan, name, readings)
            silent_ns, silent_s = time.time_ns(), time.monotonic()
            outcome.delivered_meanwhile = sum(
                len(heard) for each in readings for heard in each.heard.values()
            )
            lateness.worst_s = 0.0
            await _demand_recovery(plan, readings, outcome, silent_s, lateness)
            recovered_ns = time.time_ns()
        finally:
            for task in (*sending, lateness.task):
                task.cancel()
        for group in groups:
            _demand_health(group, outcome)
        await asyncio.gather(*(group.settle() for group in groups))
        for each in readings:
            each.task.cancel()
        await asyncio.gather(*(group.finish() for group in groups))
    _judge(folder, name, plan, After(SITES, silent_ns, recovered_ns), readings)
    return outcome


@contextlib.asynccontextmanager
async def _members(
    plan: LivePlan, name: str, keys: KeyRing | None, folder: Path
) -> AsyncIterator[list[Group]]:
    options: dict[str, Any] = {"order": plan.order, "key": keys, "trace": folder, "network": "loopback"}
    if plan.order == "sequencer":
        options["sequencer"] = SITES[0]
    if plan.order == "total":
        options["service"] = plan.service
    async with contextlib.AsyncExitStack() as stack:
        made = [antiphon.join(name, name=site, **options) for site in SITES]
        groups = await asyncio.gather(*(stack.enter_async_context(group) for group in made))
        await asyncio.gather(*(group.wait_for_members(len(SITES)) for group in groups))
        if plan.order == "total-across":
            await asyncio.gather(*(group.enter(GROUP) for group in groups))
        yield list(groups)


async def _keep_sending(group: Group, plan: LivePlan) -> None:
    within = GROUP if plan.order == "total-across" else None
    while True:
        await group.send(f"from {group.name}".encode(), group=within)
        await asyncio.sleep(OFFER_S)


async def _let_lie(plan: LivePlan, name: str, readings: list[Reading]) -> int:
    """Start the liar, have it say all that it has to say, and wait until it is gone."""
    arguments = [name, plan.order, plan.service, str(plan.seed), str(plan.pdus), str(plan.rate), plan.liar]
    if plan.keyed:
        arguments.append(KEY.hex())
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fuzz.liar", *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        ready = await asyncio.wait_for(process.stdout.readline(), JOINING_S)
        if ready != b"ready\n":
            raise Failed("the liar could not join")
        for each in readings:
            each.heard.clear()
        process.stdin.write(b"go\n")
        told = await asyncio.wait_for(process.stdout.readline(), plan.pdus / plan.rate + LYING_S)
        await process.wait()
        return int(told)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _demand_recovery(
    plan: LivePlan, readings: list[Reading], outcome: LiveOutcome, silent_s: float, lateness: Lateness
) -> None:
    """Everyone delivers something of everyone that was sent after the silence."""
    first = {each.group.name: each.group._outbox.next_number for each in readings}

    def missing() -> list[str]:
        return [
            f"{each.group.name} of {sender}"
            for each in readings
            for sender, number in first.items()
            if max(each.heard.get(sender, [-1])) < number
        ]

    def granted_s() -> float:
        return plan.recovery_s + WAKES_GRANTED * lateness.worst_s

    while missing():
        for each in readings:
            if each.group._lifecycle.is_out:
                raise Failed(f"{each.group.name} has ended: {each.group._lifecycle.error!r}")
        if time.monotonic() - silent_s > granted_s():
            raise Failed(f"{granted_s():.1f} s after the silence, nothing delivered by: {missing()}")
        await asyncio.sleep(OFFER_S)
    outcome.recovered_s = time.monotonic() - silent_s
    outcome.granted_s = granted_s()


def _demand_health(group: Group, outcome: LiveOutcome) -> None:
    for poison in group.poison:
        raise Failed(f"{group.name} could not handle {poison.kind} of {poison.sender}: {poison.error}")
    if group._lifecycle.is_out:
        raise Failed(f"{group.name} has ended: {group._lifecycle.error!r}")
    held = Holdings(group)
    outcome.largest = max(outcome.largest, *held.largest.values())
    for path, size in held.above(LARGEST_CONTAINER, LARGER_CONTAINERS).items():
        raise Failed(f"{group.name} holds {size} entries in {path}")
    for reason, count in group.counters["drops"].items():
        outcome.drops[reason] = outcome.drops.get(reason, 0) + count


def _judge(folder: Path, name: str, plan: LivePlan, after: After, readings: list[Reading]) -> None:
    trace = read_trace(folder)
    for run in trace.runs:
        if run.run == name:
            for violation in after.broken(trace.events, run):
                if plan.order != "total" or not _is_granted(violation, after, readings):
                    raise Failed(f"{violation.property} is broken: {violation.explanation}")


def _is_granted(violation: Violation, after: After, readings: list[Reading]) -> bool:
    """As in simulated runs of the quasi-agreed order: see `Performance._is_granted`."""
    if violation.property == "total":
        return any(each.disagreed for each in readings)
    if violation.property != "atomicity":
        return False
    assert violation.sender is not None
    assert violation.number is not None
    message = MessageId(violation.sender, violation.number)
    return any(
        each.group.name == violation.site and each.grants(message, is_late=after.is_late(message))
        for each in readings
    )


def play(plan: LivePlan, folder: Path) -> LiveOutcome | str:
    """Run a plan; its outcome, or what failed."""
    try:
        return asyncio.run(run_live(plan, folder))
    except Failed as error:
        return str(error)
