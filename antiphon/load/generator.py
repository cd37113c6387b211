"""One member under load, as a process of its own: `antiphon perf` and the benchmarks start several.

    python -m antiphon.load.generator '{"group": "perf", "name": "m0", ...}'

It joins, prints `{"ready": true}` once all members are there, and waits for a line `go T` (the second of the
monotonic clock at which to begin). It sends as fast as the group takes it, or at a rate, and reads and checks
every message. On `halt` it stops sending and prints `{"quiet": true}` once nothing more comes. When
all members are quiet, `end` follows: it ends its membership by `Group.finish` and prints its report as one
JSON object. On `leave` it leaves at once.

A message's body begins with its count and the time at which it was handed in. The clock is the machine's, so
latencies between processes of one machine are true. At a rate, messages are sent one by one with `send`;
otherwise they are handed in by the batch. A function reads each batch as soon as it is delivered.
"""

import asyncio
import contextlib
import json
import os
import struct
import sys
import time
from collections.abc import Callable, Coroutine
from importlib import import_module
from itertools import cycle
from random import Random
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from antiphon.core.errors import AntiphonError
from antiphon.core.extras import lacking
from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.time import SECOND_NS
from antiphon.live.group import AT_ONCE, Group
from antiphon.live.joining import join
from antiphon.live.limits import Limits
from antiphon.live.messages import Batch, Message
from antiphon.live.orders import find_order
from antiphon.live.pieces import BATCH_BYTES, records_per_batch

STAMP: Final = struct.Struct("<QQ")
"""The count of messages that this process sent before, and the monotonic clock's nanoseconds."""
COUNT_BYTES: Final = 8
STEPS: Final = np.arange(BATCH_BYTES, dtype=np.uint64).tobytes()
"""The offsets of a batch's counts from its first count."""
BUCKET_NS: Final = 100_000_000
MOST_LATENCIES: Final = 200_000
"""Latencies kept; further ones are left out. Raising it costs memory."""
WATCHED_PER_S: Final = 100
"""Messages a second whose stability each sender awaits, at most. Raising it costs processor time."""
TELL_S: Final = 0.1
QUIET_S: Final = 0.5
"""After this silence nothing more is expected."""


class Task(msgspec.Struct, kw_only=True, frozen=True):
    """The task of one process."""

    group: str
    name: Site
    members: int
    size: int
    sends: bool
    rate: float = 0.0
    """Messages per second of this member; 0 means as many as the group takes."""
    by_batch: bool = False
    """Whether messages are handed in by the batch at a rate, too; then the rate is kept batch by batch."""
    turn: float = 0.0
    """Where in the interval between its messages this member sends, so that all members together send
    evenly."""
    destinations: int = 0
    """Members that each message goes to, drawn at random from the others; 0 means all."""
    groups: dict[str, tuple[Site, ...]] = {}
    """The members of each group, if there are several; a member sends to its own groups in turn."""
    order: str = "fifo"
    options: dict[str, Any] = {}
    """The options of the order."""
    network: str = "loopback"
    key: str | None = None
    insecure: bool = False
    rate_bytes_s: float | None = None
    """Bytes per second to each other member, at most; None leaves it to the congestion control."""
    trace: str | None = None
    heeds: tuple[Site, ...] = ()
    """The senders whose messages count; empty means all. Other senders' bodies are not checked."""
    quiet_s: float = QUIET_S
    tells: bool = False
    uvloop: bool = False


class Load:
    """What a process sends and receives."""

    def __init__(self, task: Task, group: Group) -> None:
        self._task = task
        self._group = group
        self._begun = asyncio.Event()
        self._halted = asyncio.Event()
        self._ended = asyncio.Event()
        self._leaves = False
        self._begin_ns = 0
        self._sent = 0
        self._addressed: dict[Site, int] = {}
        """The number of messages sent to each set of destinations, where they do not go to all."""
        self._buckets: dict[int, int] = {}
        self._latencies_ns: list[int] = []
        self._stabilities_ns: list[int] = []
        self._watching: set[asyncio.Task[None]] = set()
        self._delivered: dict[Site, int] = {}
        self._expected: dict[Site, int] = {}
        self._holes = 0
        self._heard_ns = 0
        self._costs_before: tuple[float, float, int] = (0.0, 0.0, 0)
        """Time, processor time and bytes on the network when the load began."""

    def begin(self, begin_s: float) -> None:
        self._begin_ns = int(begin_s * SECOND_NS)
        self._costs_before = self._costs()
        self._begun.set()

    def halt(self) -> None:
        """Stop sending."""
        self._begun.set()
        self._halted.set()

    def end(self, *, leaves: bool) -> None:
        self._leaves = leaves
        self.halt()
        self._ended.set()

    async def run(self) -> None:
        """Send and read from `begin` until `halt`, then read until `end`."""
        reading = asyncio.create_task(self._group.for_each_batch(self._read))
        sending = asyncio.create_task(self._send())
        reporting = asyncio.create_task(self._report_progress())
        await asyncio.wait((reading, sending), return_when=asyncio.FIRST_COMPLETED)
        reporting.cancel()
        if not sending.cancel():
            sending.result()
        if not reading.done():
            await self._until_quiet()
            await self._ended.wait()
            await (self._group.leave() if self._leaves else self._group.finish())
        await reading
        for watching in self._watching:
            watching.cancel()

    async def _send(self) -> None:
        await self._begun.wait()
        await asyncio.sleep(max(0.0, self._begin_ns / SECOND_NS - time.monotonic()))
        if not self._task.sends:
            await self._halted.wait()
        elif self._task.groups:
            await self._send_to_groups()
        elif self._task.destinations:
            await self._send_to_some()
        elif self._task.rate and not self._task.by_batch:
            await self._send_at_rate(self._task.rate)
        else:
            await self._send_to_all()

    async def _send_at_rate(self, rate: float) -> None:
        rest = bytes(self._task.size - STAMP.size)
        while await self._until_due(rate):
            self._sent += 1
            sent_ns = time.monotonic_ns()
            self._watch(await self._group.send(STAMP.pack(self._sent - 1, sent_ns) + rest), sent_ns)

    def _watch(self, message: Message, sent_ns: int) -> None:
        """Await the stability of one message in so many, whatever became of those before."""
        if self._sent % max(1, round(self._task.rate / WATCHED_PER_S)) == 0:
            watching = asyncio.create_task(self._await_stability(message, sent_ns))
            self._watching.add(watching)
            watching.add_done_callback(self._watching.discard)

    async def _await_stability(self, message: Message, sent_ns: int) -> None:
        # A member that was absent, or has left, cannot know it any more.
        with contextlib.suppress(AntiphonError):
            await message.stable()
            self._stabilities_ns.append(time.monotonic_ns() - sent_ns)

    async def _send_to_all(self) -> None:
        burst = records_per_batch(self._task.size, self._group.batch_bytes)
        records, counts, stamps = self._records(burst)
        while await self._until_due(self._task.rate):
            counts[:] = np.arange(self._sent, self._sent + burst)
            stamps[:] = time.monotonic_ns()
            self._sent += burst
            await self._group.send_records(records, self._task.size)

    async def _until_due(self, rate: float) -> bool:
        """Wait until the next message is due, at once without a rate; False if the load ends first."""
        if rate:
            due_ns = self._begin_ns + int((self._sent + self._task.turn) * SECOND_NS / rate)
            pause_s = (due_ns - time.monotonic_ns()) / SECOND_NS
            if pause_s > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._halted.wait(), pause_s)
        return not self._halted.is_set()

    async def _send_to_groups(self) -> None:
        """Send a batch to each of our groups in turn; an order with one group sends to their members."""
        group, task, several = self._group, self._task, find_order(self._task.order).several
        everyone = frozenset(site for members in task.groups.values() for site in members)
        named = None if several else everyone
        burst = 1 if task.rate else records_per_batch(task.size, group.batch_bytes, named)
        records, counts, stamps = self._records(burst)
        for name, members in cycle(own_groups(task).items()):
            if not await self._until_due(task.rate):
                return
            counts[:] = np.arange(self._sent, self._sent + burst)
            stamps[:] = time.monotonic_ns()
            self._sent += burst
            for site in members:
                self._addressed[site] = self._addressed.get(site, 0) + burst
            if several:
                await group.send_records(records, task.size, group=name)
            else:
                await group.send_records(records, task.size, to=group.members & frozenset(members))

    async def _send_to_some(self) -> None:
        """Send each message by itself, to members drawn anew."""
        group, random = self._group, Random()
        rate, count = self._task.rate, self._task.destinations
        rest = bytes(self._task.size - STAMP.size)
        while await self._until_due(rate):
            others = sorted(group.members - {self._task.name})
            if not others:
                await asyncio.sleep(TELL_S)
                continue
            for _ in range(1 if rate else AT_ONCE):
                to = frozenset(random.sample(others, min(count, len(others))))
                if not to <= group.members:
                    break  # a member vanished while we waited
                # Counted first, so that no delivery comes before its count.
                for site in to:
                    self._addressed[site] = self._addressed.get(site, 0) + 1
                self._sent += 1
                await group.send(STAMP.pack(self._sent - 1, time.monotonic_ns()) + rest, to=to)

    def _records(self, count: int) -> tuple[bytearray, NDArray[np.uint64], NDArray[np.uint64]]:
        """A buffer of messages, and the offsets of their counts and times."""
        size = self._task.size
        records = bytearray(count * size)
        counts, stamps = (np.ndarray(count, "<u8", records, at, (size,)) for at in (0, COUNT_BYTES))
        return records, counts, stamps

    def _read(self, batch: Batch) -> None:
        """Read and check every message's count, in place, as the raw benchmark does."""
        if self._task.heeds and batch.sender not in self._task.heeds:
            return
        bodies = batch.bodies
        if self._task.destinations or not isinstance(bodies, Packed):
            self._read_some(batch)
            return
        size, sender, count, data = self._task.size, batch.sender, bodies.messages, bodies.data
        begin = len(data) - batch.size
        whole = batch.size == count * size
        if whole:
            first, _ = STAMP.unpack_from(data, begin)
            if count > 1:
                counts: NDArray[np.uint64] = np.ndarray(count, "<u8", data, begin, (size,))
                whole = (counts - counts[0]).tobytes() == STEPS[: COUNT_BYTES * count]
            # A restarted process counts from zero; the audit judges what a restart may skip.
            following = self._expected.get(sender, first)
            whole = whole and (first in (0, following) or (bool(self._task.groups) and first > following))
            self._expected[sender] = first + count
        self._holes += not whole
        _, stamped_ns = STAMP.unpack_from(data, len(data) - size)
        self._note(sender, count, stamped_ns)

    def _read_some(self, batch: Batch) -> None:
        """Counts ascend, but need not be consecutive: other members got the messages in between."""
        sender, before = batch.sender, self._expected.get(batch.sender, 0) - 1
        stamped_ns = 0
        for body in batch.bodies:
            count, stamped_ns = STAMP.unpack_from(body)
            # A restarted process counts from zero.
            self._holes += len(body) != self._task.size or count == before
            before = count
        self._expected[sender] = before + 1
        self._note(sender, len(batch), stamped_ns)

    def _note(self, sender: Site, count: int, stamped_ns: int) -> None:
        now = time.monotonic_ns()
        self._heard_ns = now
        self._delivered[sender] = self._delivered.get(sender, 0) + count
        bucket = (now - self._begin_ns) // BUCKET_NS
        self._buckets[bucket] = self._buckets.get(bucket, 0) + count
        if len(self._latencies_ns) < MOST_LATENCIES and sender != self._task.name:
            self._latencies_ns.append(now - stamped_ns)

    async def _report_progress(self) -> None:
        """Report the progress, for a chart."""
        while self._task.tells:
            await asyncio.sleep(TELL_S)
            say({"delivered": sum(self._delivered.values()), "members": len(self._group.members)})

    async def _until_quiet(self) -> None:
        """Wait until every member holds what this member sent and nothing has come for a while."""
        if not self._ended.is_set():
            await self._group.settle()
        self._heard_ns = max(self._heard_ns, time.monotonic_ns())
        while time.monotonic_ns() - self._heard_ns < self._task.quiet_s * SECOND_NS:
            if self._ended.is_set():
                return
            await asyncio.sleep(0.05)
        say({"quiet": True})

    def _costs(self) -> tuple[float, float, int]:
        counters = self._group.counters
        carried = counters["bytes_sent"] + counters["bytes_received"]
        return time.monotonic(), time.process_time(), carried

    def report(self) -> dict[str, Any]:
        span_s, processor_s, carried = (
            now - before for now, before in zip(self._costs(), self._costs_before, strict=True)
        )
        return {
            "span_s": span_s,
            "processor_s": processor_s,
            "bytes": carried,
            "sent": self._sent,
            "addressed": self._addressed,
            "delivered": self._delivered,
            "holes": self._holes,
            "counters": self._group.counters,
            "buckets": sorted(self._buckets.items()),
            "latencies_us": sorted(latency // 1000 for latency in self._latencies_ns),
            "stabilities_us": sorted(stability // 1000 for stability in self._stabilities_ns),
        }


def own_groups(task: Task) -> dict[str, tuple[Site, ...]]:
    return {name: members for name, members in task.groups.items() if task.name in members}


def say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def obey(load: Load) -> None:
    """Lines of the parent process: `go T`, `halt`, `end`, `leave`; the end of input means leave, too."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while words := (await reader.readline()).decode().split():
        if words[0] == "go":
            load.begin(float(words[1]))
        elif words[0] == "halt":
            load.halt()
        else:
            break
    load.end(leaves=words != ["end"])


async def work(task: Task) -> None:
    group = join(
        task.group, name=task.name, order=task.order, network=task.network, key=task.key,
        insecure=task.insecure, trace=task.trace, limits=Limits(rate_bytes_s=task.rate_bytes_s),
        **task.options,
    )  # fmt: skip
    async with group:
        load = Load(task, group)
        obeying = asyncio.create_task(obey(load))
        meeting = asyncio.create_task(group.wait_for_members(task.members))
        await asyncio.wait((meeting, obeying), return_when=asyncio.FIRST_COMPLETED)
        if not meeting.done():
            meeting.cancel()  # the parent process is gone
            return
        await meeting
        if find_order(task.order).several:
            for name in own_groups(task):
                await group.enter(name)
        say({"ready": True})
        await load.run()
        say({"report": load.report()})
        obeying.cancel()


def runner(*, uvloop: bool) -> Callable[[Coroutine[Any, Any, None]], None]:
    """The runner of the event loop."""
    if not uvloop:
        return asyncio.run
    try:
        found: Callable[[Coroutine[Any, Any, None]], None] = import_module("uvloop").run
    except ModuleNotFoundError:
        raise lacking("uvloop", "Members that run on uvloop need") from None
    return found


def main() -> int:
    task = msgspec.json.decode(sys.argv[1], type=Task)
    try:
        runner(uvloop=task.uvloop)(work(task))
    except AntiphonError as error:
        say({"error": error.sentence, "hint": error.hint})
        return 2
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if os.environ.get("ANTIPHON_DEBUG"):
            raise
        told = f"This is a mistake of Antiphon's own: {type(error).__name__}: {error}"
        say({"error": told, "hint": "ANTIPHON_DEBUG=1 shows where it happened; please report it."})
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
