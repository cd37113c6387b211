"""Replicated objects beside PySyncObj: sets a second, latency, the first call after a kill, state transfer.

Each member is a process; all of them write at the same time, and each keeps 1, 10 or 100 sets under way. The
first call after the leader was killed is made at once at a survivor. For the transfer, a member is killed and
comes back without a store while another one writes: how fast the state came, and at which share of its pace
the writer went on.

Ratios are ours to PySyncObj's, on this machine, in this run. Everything shares the machine's processors, so
figures of seven processes on two processors show the scheduler as much as the protocols.

    python bench/replicated.py                         # about five minutes
    python bench/replicated.py --members 3 --seconds 1 --megabytes 5 --json
"""

import argparse
import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
from rivals import pysyncobj

import antiphon

HERE: Final = Path(__file__)
OUTSTANDING: Final = (1, 10, 100)
SYSTEMS: Final = ("antiphon", "default", "tuned")
CHUNK: Final = 100_000
"""Bytes of one value of the state that is transferred."""
LINK_BYTES: Final = 64_000
SETTLE_S: Final = 1.5


class Table:
    """The machine: a map."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def apply(self, command: Any) -> None:
        key, value = command
        self.values[key] = value

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.values)

    def restore(self, data: bytes) -> None:
        self.values = msgspec.msgpack.decode(data)


# One member of ours: a process that answers commands on stdin


async def serve(group: str, name: str, members: list[str], store: str | None) -> None:
    limits = antiphon.Limits(join_s=60)
    began_s = time.monotonic()
    async with antiphon.replicate(
        group, Table(), name=name, members=set(members), store=store, limits=limits
    ) as shop:
        ready_s = time.monotonic() - began_s
        answer({"ready": True, "after_s": ready_s})
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            command = json.loads(line)
            match command["do"]:
                case "load":
                    answer(await load(shop, command["outstanding"], command["seconds"]))
                case "leader":
                    answer({"leader": shop.leader})
                case "first":
                    answer(await first(shop))
                case "fill":
                    await fill(shop, command["megabytes"])
                    answer({"filled": True})


async def load(shop: antiphon.Replicated[Table], outstanding: int, seconds: float) -> dict[str, Any]:
    end_s = time.monotonic() + seconds
    latencies: list[float] = []

    async def write(number: int) -> None:
        key = f"k{number}"
        while (begun_s := time.monotonic()) < end_s:
            await shop.call([key, number])
            latencies.append(time.monotonic() - begun_s)

    await asyncio.gather(*(write(number) for number in range(outstanding)))
    return pysyncobj.summary(latencies)


async def first(shop: antiphon.Replicated[Table]) -> dict[str, Any]:
    while True:
        try:
            await shop.call(["first", 1])
            return {"time_s": time.monotonic()}
        except antiphon.CutOffError:
            await asyncio.sleep(0.01)


async def fill(shop: antiphon.Replicated[Table], megabytes: int) -> None:
    for number in range(megabytes * 1_000_000 // CHUNK):
        await shop.call([f"big{number}", bytes(CHUNK)])


def answer(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


# The processes


class Process:
    """One member of some system."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def tell(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("A member has ended.")
        found: dict[str, Any] = json.loads(line)
        return found

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def commands(system: str, count: int) -> dict[str, list[str]]:
    """The command that starts each member, by the name under which the system knows it."""
    if system == "antiphon":
        names = [f"m{number}" for number in range(count)]
        group = f"bench-{time.monotonic_ns()}"
        return {name: [sys.executable, str(HERE), "--serve", group, name, *names] for name in names}
    addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
    program = [sys.executable, str(Path(pysyncobj.__file__)), system]
    return {own: [*program, own, *(each for each in addresses if each != own)] for own in addresses}


@contextmanager
def members(system: str, count: int) -> Iterator[dict[str, Process]]:
    started = {name: Process(command) for name, command in commands(system, count).items()}
    try:
        for each in started.values():
            each.answer()
        time.sleep(SETTLE_S)
        yield started
    finally:
        for each in started.values():
            each.kill()


def rates(group: dict[str, Process], seconds: float) -> Iterator[dict[str, Any]]:
    for outstanding in OUTSTANDING:
        for each in group.values():
            each.tell(do="load", outstanding=outstanding, seconds=seconds)
        answers = [each.answer() for each in group.values()]
        latencies = sorted(value for each in answers for value in each["latencies"])
        yield {
            "outstanding": outstanding,
            "sets_s": round(sum(each["count"] for each in answers) / seconds),
            "p50_ms": _share(latencies, 0.5),
            "p99_ms": _share(latencies, 0.99),
        }


def _share(latencies: list[float], share: float) -> float | None:
    if not latencies:
        return None
    return round(1000 * latencies[min(len(latencies) - 1, int(share * len(latencies)))], 3)


def after_kill(group: dict[str, Process]) -> float | None:
    """Milliseconds until the first call succeeds after the leader was killed."""
    asked = next(iter(group.values()))
    asked.tell(do="leader")
    leader = asked.answer()["leader"]
    if leader not in group:
        return None
    survivor = next(each for name, each in group.items() if name != leader)
    killed_s = time.monotonic()
    group[leader].kill()
    survivor.tell(do="first")
    answered_s: float = survivor.answer()["time_s"]
    return round(1000 * (answered_s - killed_s), 1)


def transfer(count: int, megabytes: int) -> dict[str, Any]:
    """A member comes back without its state while another one writes."""
    with members("antiphon", count) as group:
        names = list(group)
        writer = group[names[0]]
        writer.tell(do="fill", megabytes=megabytes)
        writer.answer()
        writer.tell(do="load", outstanding=10, seconds=2.0)
        before = writer.answer()["count"] / 2.0
        leaver = group[names[-1]]
        leaver.kill()
        time.sleep(SETTLE_S)
        writer.tell(do="load", outstanding=10, seconds=2.0)
        without = writer.answer()["count"] / 2.0
        writer.tell(do="load", outstanding=10, seconds=3.0)
        begun_s = time.monotonic()
        group[names[-1]] = back = Process(list(leaver.process.args))  # type: ignore[arg-type]
        ready = back.answer()
        took_s = time.monotonic() - begun_s
        during = writer.answer()["count"] / 3.0
        return {
            "megabytes": megabytes,
            "started_s": round(took_s, 2),
            "transferred_s": round(ready["after_s"], 2),
            "megabytes_s": round(megabytes / ready["after_s"], 1),
            "pace_before": round(before),
            "pace_share": round(during / max(1.0, min(before, without)), 2),
        }


def link_rate(megabytes: int = 200) -> float:
    """Megabytes a second that datagrams of this size reach over loopback, sent and read by one process."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver, ExitStack() as stack:
        sender = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        receiver.bind(("127.0.0.1", 0))
        body, count = bytes(LINK_BYTES), megabytes * 1_000_000 // LINK_BYTES
        begun_s = time.monotonic()
        for _ in range(count):
            sender.sendto(body, receiver.getsockname())
            receiver.recv(LINK_BYTES)
        return count * LINK_BYTES / 1e6 / (time.monotonic() - begun_s)


def measure(
    systems: Sequence[str], counts: Sequence[int], seconds: float, repeats: int, megabytes: int
) -> Iterator[dict[str, Any]]:
    for count in counts:
        for system in systems:
            kills = []
            for repeat in range(repeats):
                say(f"{system}, {count} members, {repeat + 1} of {repeats}")
                with members(system, count) as group:
                    for row in rates(group, seconds):
                        yield {"system": system, "members": count, **row}
                    kills.append(after_kill(group))
            found = [each for each in kills if each is not None]
            yield {"system": system, "members": count, "after_kill_ms": median(found) if found else None}
    if "antiphon" not in systems or not megabytes:
        return
    say(f"a transfer of {megabytes} MB")
    yield {"system": "antiphon", "members": 3, "link_mb_s": round(link_rate(), 1), **transfer(3, megabytes)}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def print_tables(found: list[dict[str, Any]]) -> None:
    loads = [row for row in found if "outstanding" in row]
    heads = ("members", "outstanding", "system", "sets/s", "p50 ms", "p99 ms", "ratio")
    print("{:>7} {:>11} {:>9} {:>8} {:>8} {:>8} {:>7}".format(*heads))
    for count in dict.fromkeys(row["members"] for row in loads):
        for outstanding in OUTSTANDING:
            ours = _median(loads, "antiphon", count, outstanding, "sets_s")
            for system in dict.fromkeys(row["system"] for row in loads):
                rate, p50, p99 = (
                    _median(loads, system, count, outstanding, name)
                    for name in ("sets_s", "p50_ms", "p99_ms")
                )
                ratio = f"{ours / rate:.1f}" if rate and ours and system != "antiphon" else ""
                print(
                    f"{count:>7} {outstanding:>11} {system:>9} {rate or 0:>8,.0f} {p50 or 0:>8.2f} "
                    f"{p99 or 0:>8.2f} {ratio:>7}"
                )
    for row in found:
        if "after_kill_ms" in row:
            print(
                f"{row['system']}, {row['members']} members: first set {row['after_kill_ms']} ms after a kill"
            )
        elif "megabytes" in row:
            rate, link = row["megabytes_s"], row["link_mb_s"]
            print(
                f"{row['megabytes']} MB transferred at {rate} MB/s (loopback: {link} MB/s), "
                f"{row['transferred_s']} s after the start; calls went on at {row['pace_share']:.0%} "
                f"of {row['pace_before']} a second"
            )


def _median(rows: list[dict[str, Any]], system: str, count: int, outstanding: int, name: str) -> float | None:
    values = [
        row[name]
        for row in rows
        if (row["system"], row["members"], row["outstanding"]) == (system, count, outstanding) and row[name]
    ]
    return median(values) if values else None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, nargs="+", default=[3, 5, 7])
    parser.add_argument("--seconds", type=float, default=3.0, help="of each load")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=100, help="of the state that is transferred")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        group, name, *names = options.serve
        asyncio.run(serve(group, name, names, None))
        return 0
    try:
        pysyncobj.require()
    except pysyncobj.UnavailableError as error:
        say(str(error))
        return 2
    found = []
    for row in measure(options.systems, options.members, options.seconds, options.repeats, options.megabytes):
        found.append(row)
        if options.json:
            print(json.dumps(row), flush=True)
    if not options.json:
        print_tables(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
