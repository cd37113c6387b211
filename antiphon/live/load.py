"""One member under load, as a process of its own: `antiphon perf` and the benchmarks start several.

    python -m antiphon.live.load '{"group": "perf", "name": "m0", ...}'

It joins, says `{"ready": true}` once everyone is there, waits for a line `go T` (the monotonic clock's second
at which to begin), sends as fast as the group takes it or at a rate, reads and checks every message, and on
`halt` stops sending, waits until nothing more comes, leaves, and prints what it saw as one JSON object. On
`leave` it does so at once.
A message's body begins with its count and the moment at which it was handed in; the clock is the machine's,
so latencies between processes of one machine are true.
"""

import asyncio
import contextlib
import json
import struct
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.core.errors import AntiphonError
from antiphon.core.ids import Site
from antiphon.core.time import SECOND_NS
from antiphon.live.group import Group, join

STAMP: Final = struct.Struct("<QQ")
"""How many messages this process has sent before, and the monotonic clock's nanoseconds."""
BUCKET_NS: Final = 100_000_000
MOST_LATENCIES: Final = 200_000
"""Latencies kept; beyond that every further one is left out."""
TELL_S: Final = 0.1
QUIET_S: Final = 0.5
"""Nothing has come for this long: nothing more will."""


class Task(msgspec.Struct, kw_only=True, frozen=True):
    """What one process is to do."""

    group: str
    name: Site
    members: int
    size: int
    sends: bool
    rate: float = 0.0
    """Messages a second of this member; 0 means as many as the group takes."""
    order: str = "fifo"
    sequencer: Site | None = None
    repair: str = "hybrid"
    network: str = "loopback"
    key: str | None = None
    insecure: bool = False
    trace: str | None = None
    quiet_s: float = QUIET_S
    tells: bool = False
    uvloop: bool = False


class Load:
    """What a process sends and sees."""

    def __init__(self, task: Task, group: Group) -> None:
        self._task = task
        self._group = group
        self._begun = asyncio.Event()
        self._halted = asyncio.Event()
        self._patient = True
        self._begin_ns = 0
        self._sent = 0
        self._buckets: dict[int, int] = {}
        self._latencies_ns: list[int] = []
        self._delivered: dict[Site, int] = {}
        self._expected: dict[Site, int] = {}
        self._ends: dict[Site, int] = {}
        self._holes = 0
        self._heard_ns = 0

    def begin(self, begin_s: float) -> None:
        self._begin_ns = int(begin_s * SECOND_NS)
        self._begun.set()

    def halt(self, *, patient: bool) -> None:
        """Send no more; who is patient reads on until nothing more comes."""
        self._patient = patient
        self._begun.set()
        self._halted.set()

    async def run(self) -> None:
        """Send and read from `begin` until `halt`, and then until nothing more comes."""
        reading = asyncio.create_task(self._read())
        sending = asyncio.create_task(self._send())
        telling = asyncio.create_task(self._tell())
        await asyncio.wait((reading, sending), return_when=asyncio.FIRST_COMPLETED)
        telling.cancel()
        if not sending.cancel():
            sending.result()
        if not reading.done():
            if self._patient:
                await self._until_quiet()
            await self._group.leave()
        await reading

    async def _send(self) -> None:
        await self._begun.wait()
        await asyncio.sleep(max(0.0, self._begin_ns / SECOND_NS - time.monotonic()))
        if not self._task.sends:
            await self._halted.wait()
            return
        send, rest, pack = self._group.send, bytes(self._task.size - STAMP.size), STAMP.pack
        clock, rate = time.monotonic_ns, self._task.rate
        while not self._halted.is_set():
            if rate:
                due_ns = self._begin_ns + int(self._sent * SECOND_NS / rate)
                await asyncio.sleep(max(0.0, (due_ns - clock()) / SECOND_NS))
            await send(pack(self._sent, clock()) + rest)
            self._sent += 1

    async def _read(self) -> None:
        """Every message is opened and its count checked, as the raw benchmark does with its datagrams."""
        unpack = STAMP.unpack_from
        async for batch in self._group.batches():
            sender = batch.sender
            expected = self._expected.get(sender)
            stamped_ns = 0
            for body in batch.bodies:
                number, stamped_ns = unpack(body)
                # A process that starts again counts from zero; what a restart may skip the audit judges.
                if number != expected and number and expected is not None:
                    self._holes += 1
                expected = number + 1
            assert expected is not None
            self._expected[sender] = expected
            self._note(sender, batch.number + len(batch), len(batch), stamped_ns)

    def _note(self, sender: Site, end: int, count: int, stamped_ns: int) -> None:
        now = time.monotonic_ns()
        self._heard_ns = now
        self._ends[sender] = end
        self._delivered[sender] = self._delivered.get(sender, 0) + count
        bucket = (now - self._begin_ns) // BUCKET_NS
        self._buckets[bucket] = self._buckets.get(bucket, 0) + count
        if len(self._latencies_ns) < MOST_LATENCIES and sender != self._task.name:
            self._latencies_ns.append(now - stamped_ns)

    async def _tell(self) -> None:
        """Say how it goes, for whoever draws it."""
        while self._task.tells:
            await asyncio.sleep(TELL_S)
            say({"delivered": sum(self._delivered.values()), "members": len(self._group.members)})

    async def _until_quiet(self) -> None:
        self._heard_ns = max(self._heard_ns, time.monotonic_ns())
        while time.monotonic_ns() - self._heard_ns < self._task.quiet_s * SECOND_NS:
            await asyncio.sleep(0.05)

    def report(self) -> dict[str, Any]:
        return {
            "name": self._task.name,
            "sent": self._sent,
            "delivered": self._delivered,
            "ends": self._ends,
            "holes": self._holes,
            "buckets": sorted(self._buckets.items()),
            "latencies_us": sorted(latency // 1000 for latency in self._latencies_ns),
            "counters": self._group.counters,
            "memory_kb": memory_kb(),
        }


def memory_kb() -> int:
    """What this process occupies now, as the kernel counts it; 0 where it does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0)


def say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def obey(load: Load) -> None:
    """Lines from whoever started us: `go T`, `halt`, `leave`; the end of input means leave too."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while words := (await reader.readline()).decode().split():
        if words[0] != "go":
            break
        load.begin(float(words[1]))
    load.halt(patient=words == ["halt"])


async def work(task: Task) -> None:
    group = join(
        task.group, name=task.name, order=task.order, sequencer=task.sequencer, repair=task.repair,
        network=task.network, key=task.key, insecure=task.insecure, trace=task.trace,
    )  # fmt: skip
    async with group:
        load = Load(task, group)
        obeying = asyncio.create_task(obey(load))
        await group.wait_for_members(task.members)
        say({"ready": True})
        await load.run()
        say({"report": load.report()})
        obeying.cancel()


def main() -> int:
    task = msgspec.json.decode(sys.argv[1], type=Task)
    run = asyncio.run
    with contextlib.suppress(ImportError):
        run = import_module("uvloop").run if task.uvloop else run
    try:
        run(work(task))
    except AntiphonError as error:
        say({"error": error.sentence, "hint": error.hint})
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
