"""What a flood costs a live group: five members at half of their full speed, and a process that floods them.

For each order, without a key and with one, the full speed is measured first, as `antiphon perf` does. Then
the group is held at half of it, and another process does one of these, as fast as it can, for as long as is
measured:

- garbage: random bytes, to the group's address and to each member's own;
- replay: datagrams of the group that it has recorded, to the same places;
- stranger: well-formed nonsense from a process that has proved itself (with the key, where there is one) and
  takes no part;
- member: the same from a member of the group, under its own name.

Nonsense is drawn as the fuzzer draws it: inventions, and alterations of what was heard. Beside these stand an
idle process and one that only burns processor time, each outside of the group and as a sixth member, so that
what the flood costs is told apart from what any busy process costs. A figure is messages a second that reach
each member, the least of the members. Lost messages and broken promises are those that `antiphon perf`
counts; what the flooder itself sent is left out of both.

Ratios are taken within one repeat; the median of the repeats is printed. Nothing is asserted. Caveats: one
machine and its loopback; more processes than processors, so that a flooder takes time from the members even
where they ignore it, which the ratio to the burning process shows.

    make bench-hostile
    python bench/hostile.py --order fifo --seconds 3 --repeats 1
    python bench/hostile.py --json
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow.compute as pc

from antiphon.audit.local import audit_locally
from antiphon.live.keys import KeyRing, read_keys, write_keys
from antiphon.live.networks import Loopback
from antiphon.live.sockets import derived_endpoint, enlarge_buffers, open_network
from antiphon.load.processes import MemberProcesses, Plan, summarise
from antiphon.trace.arrow import EVENTS
from antiphon.trace.files import conform, event_parts, open_trace, read_runs, write_trace

ROOT: Final = Path(__file__).resolve().parent.parent
MEMBERS: Final = 5
SIZE: Final = 1000
ORDERS: Final = ("fifo", "total")
REPEATS: Final = 3
SECONDS: Final = 5.0
FLOODER: Final = "flooder"
OUTSIDE: Final = ("idle", "burn", "garbage", "replay", "stranger")
INSIDE: Final = ("member-idle", "member-burn", "member")
RECORDED: Final = 2000
"""Datagrams that are recorded before they are replayed, and lies that are made up before they are told."""
AT_ONCE: Final = 64
LEARNING_S: Final = 1.0
"""Time to record datagrams, or to hear PDUs that lies can be made of, after the group has begun."""

Figures = dict[str, Any]
Sent = tuple[int, int]
"""How many datagrams or PDUs, and their bytes."""
NOTHING: Final[Sent] = (0, 0)
BURN: Final = "while True: pass"


# The flooder, in a process of its own


class Mouth:
    """Says bytes to a group without being in it."""

    def __init__(self, group: str) -> None:
        opened = open_network(Loopback(), group)
        self._ears = opened.receiving
        for ear in self._ears:
            ear.setblocking(False)
            enlarge_buffers(ear, 4 << 20)
        self._speaking = opened.sending
        self._places: list[Any] = [derived_endpoint(group)]
        self.recorded: list[bytes] = []

    def learn(self, seconds: float) -> None:
        """Record what the group says, and from where."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for ear in self._ears:
                with contextlib.suppress(OSError):
                    datagram, address = ear.recvfrom(1 << 16)
                    if address not in self._places:
                        self._places.append(address)
                    if len(self.recorded) < RECORDED:
                        self.recorded.append(datagram)

    def flood(self, datagrams: list[bytes], seconds: float) -> Sent:
        end, sent, places = time.monotonic() + seconds, 0, cycle(self._places)
        size = 0
        for datagram in cycle(datagrams):
            if sent % AT_ONCE == 0 and time.monotonic() >= end:
                break
            with contextlib.suppress(OSError):
                self._speaking.sendto(datagram, next(places))
            sent += 1
            size += len(datagram)
        return sent, size


def begin() -> None:
    """Wait for the word that the group is at work."""
    print("ready", flush=True)
    sys.stdin.readline()


def flood_from_outside(kind: str, group: str, seconds: float) -> Sent:
    random = Random(1)
    if kind in ("idle", "burn"):
        begin()
        with burning(is_on=kind == "burn"):
            time.sleep(seconds)
        return NOTHING
    mouth = Mouth(group)
    begin()
    mouth.learn(LEARNING_S)
    garbage = [random.randbytes(random.randrange(1, 1400)) for _ in range(RECORDED)]
    return mouth.flood(garbage if kind == "garbage" else mouth.recorded or garbage, seconds - LEARNING_S)


@contextlib.contextmanager
def burning(*, is_on: bool) -> Iterator[None]:
    """A process that only burns processor time, and leaves a member beside it alone."""
    process = subprocess.Popen([sys.executable, "-c", BURN]) if is_on else None
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


class Liar:
    """Well-formed nonsense, made of what was heard."""

    def __init__(self, order: str) -> None:
        from antiphon.live.orders import ORDERS as PROTOCOLS
        from tests.fuzz.pdus import Forge, Repertoire

        names = [f"m{index}" for index in range(MEMBERS)]
        self.pdus = PROTOCOLS[order].pdus
        self._repertoire = Repertoire(Forge(self.pdus, Random(1), (*names, FLOODER)))

    def hear(self, pdu: Any) -> None:
        self._repertoire.observe(pdu)

    def lies(self) -> list[Any]:
        from tests.fuzz.liar import Raw
        from tests.fuzz.pdus import fits

        made = (self._repertoire.invent() for _ in range(RECORDED))
        return [Raw(code, body) for code, body in made if fits(body)]


async def lie(transport: Any, liar: Liar, seconds: float, look: Callable[[], None]) -> Sent:
    """Tell lies at full speed, and go on receiving between them, as a member does."""
    from tests.fuzz.liar import speak_raw

    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end - seconds + LEARNING_S:
        look()
        await asyncio.sleep(0.001)
    speak_raw(transport)
    sent = size = 0
    lies: Iterator[Any] = cycle(liar.lies())
    while loop.time() < end:
        for _ in range(AT_ONCE):
            raw = next(lies)
            transport.multicast(raw)
            size += len(raw.body)
        sent += AT_ONCE
        look()
        await asyncio.sleep(0)
    return sent, size


async def flood_as_stranger(order: str, group: str, keys: KeyRing | None, seconds: float) -> Sent:
    from antiphon.core.wire import Codec
    from antiphon.live.counters import Counters
    from antiphon.live.handshake import Terms
    from antiphon.live.orders import make_order
    from antiphon.live.transport import Transport
    from tests.fuzz.liar import Stranger

    liar = Liar(order)
    transport = Transport(
        site=FLOODER, group=group, codec=Codec(liar.pdus), network=Loopback(), keys=keys,
        counters=Counters(), host=Stranger(), terms=Terms(make_order(order, {}).fingerprint()),
    )  # fmt: skip

    def look() -> None:
        now = time.monotonic_ns()
        transport.tick(now)
        for _, pdu, _ in transport.receive(AT_ONCE, now=now):
            liar.hear(pdu)

    begin()
    return await lie(transport, liar, seconds, look)


async def flood_as_member(kind: str, order: str, group: str, keys: KeyRing | None, seconds: float) -> None:
    from antiphon.core.inputs import Received
    from antiphon.live.joining import join

    liar = Liar(order)
    async with join(group, name=FLOODER, order=order, key=keys) as member:
        driver: Any = member._member
        handle = driver._handle

        def listen(now: int, event: Any) -> Any:
            if type(event) is Received:
                liar.hear(event.pdu)
            return handle(now, event)

        reading = asyncio.create_task(member.for_each_batch(lambda _: None))
        await asyncio.to_thread(begin)
        sent = NOTHING
        if kind == "member":
            driver._handle = listen
            sent = await lie(driver._transport, liar, seconds, lambda: None)
        else:
            with burning(is_on=kind == "member-burn"):
                await asyncio.sleep(seconds)
        reading.cancel()
        say(sent)
        os._exit(0)  # a liar that ends does not say goodbye


def flood(kind: str, order: str, group: str, key: str, *, seconds: float) -> None:
    keys = read_keys(Path(key)) if key else None
    if kind in INSIDE:
        asyncio.run(flood_as_member(kind, order, group, keys, seconds))
    elif kind == "stranger":
        say(asyncio.run(flood_as_stranger(order, group, keys, seconds)))
    else:
        say(flood_from_outside(kind, group, seconds))


def say(sent: Sent) -> None:
    print(*sent, flush=True)


# The group, and what it keeps


class Flooder:
    """The process beside a group; it begins when the group delivers."""

    def __init__(self, kind: str, order: str, key: Path | None) -> None:
        self._kind, self._order, self._key = kind, order, key
        self._process: subprocess.Popen[str] | None = None
        self._begun = False

    def start(self, group: str, seconds: float) -> None:
        arguments = [self._kind, self._order, group, str(self._key or ""), str(seconds)]
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--flood", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def tell(self, words: dict[str, Any]) -> None:
        """The group says how it goes; the first delivery is the word to begin."""
        if words["delivered"] and not self._begun and self._process is not None:
            assert self._process.stdin is not None
            self._begun = True
            self._process.stdin.write("go\n")
            self._process.stdin.flush()

    def end(self) -> Sent:
        """What it sent; nothing if it failed, which it says itself."""
        assert self._process is not None
        try:
            said, _ = self._process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return NOTHING
        words = said.split()  # "ready", then two numbers
        return (int(words[1]), int(words[2])) if len(words) == 3 else NOTHING


def measure(plan: Plan, kind: str | None = None) -> Figures:
    """One run of the group, beside a flooder of some kind or beside nothing."""
    with tempfile.TemporaryDirectory(prefix="antiphon-hostile-") as temporary:
        folder = Path(temporary) / "trace"
        flooder = Flooder(kind or "idle", plan.order, None if plan.key is None else Path(plan.key))
        processes = MemberProcesses(plan, folder, flooder.tell)
        if kind is not None:
            flooder.start(processes.group, plan.seconds)
        try:
            reports = asyncio.run(processes.run())
        finally:
            sent, size = flooder.end() if kind is not None else NOTHING
        found = summarise(plan, reports)
        return {
            "per_s": found["group_throughput"], "p50_ms": found["latency_ms"]["p50"],
            "halted": found["halted_share"], "lost": found["lost"], "violations": violations(folder),
            "flooded_per_s": round(sent / plan.seconds, 1),
            "flooded_mb_per_s": round(size / plan.seconds / 1e6, 1),
        }  # fmt: skip


def violations(folder: Path) -> int:
    """Broken promises about what the members sent: a flooder keeps no log by which it could be judged."""
    opened = open_trace(folder)
    honest = folder.with_name("honest")
    parts = (conform(file, part, EVENTS) for file, part in event_parts(opened))
    told = (part.filter(pc.fill_null(pc.not_equal(part.column("sender"), FLOODER), True)) for part in parts)
    write_trace(honest, told, [run for file in opened.runs for run, _ in read_runs(file)])
    return sum(audit_locally([honest], limit=0).broken.values())


def compare(order: str, key: Path | None, seconds: float) -> list[Figures]:
    """Everything for one order, with a key or without one."""
    plan = Plan(
        members=MEMBERS, size=SIZE, seconds=seconds, order=order,
        key=None if key is None else str(key), strangers=True,
    )  # fmt: skip
    full = measure(plan)["per_s"]
    half = {
        **{name: getattr(plan, name) for name in plan.__struct_fields__},
        "rate": full / 2,
        "by_batch": True,
    }
    rows = []
    for kinds in (OUTSIDE, INSIDE):
        found = {kind: measure(Plan(**half), kind) for kind in kinds}
        idle, burning = (found[kind]["per_s"] for kind in kinds[:2])
        rows += [
            {
                "order": order, "keyed": key is not None, "flooder": kind, "full_per_s": full, **figures,
                "to_idle": round(figures["per_s"] / idle, 3) if idle else None,
                "to_burn": round(figures["per_s"] / burning, 3) if burning else None,
            }
            for kind, figures in found.items()
        ]  # fmt: skip
    return rows


def median_rows(repeats: list[list[Figures]]) -> list[Figures]:
    """The median of each figure over the repeats; of lost messages and violations the sum."""
    merged = []
    for rows in zip(*repeats, strict=True):
        row = dict(rows[0])
        for name in (
            "full_per_s",
            "per_s",
            "p50_ms",
            "halted",
            "flooded_per_s",
            "flooded_mb_per_s",
            "to_idle",
            "to_burn",
        ):
            values = [each[name] for each in rows if each[name] is not None]
            row[name] = statistics.median(values) if values else None
        for name in ("lost", "violations"):
            row[name] = sum(each[name] for each in rows)
        merged.append(row)
    return merged


def tell(rows: list[Figures]) -> None:
    first = rows[0]
    secured = "with a key" if first["keyed"] else "without a key"
    print(f"\n{first['order']}, {secured}: half of {first['full_per_s']:,.0f} messages a second")
    print(f"  {'flooder':<12} {'messages/s':>11} {'to idle':>8} {'to burn':>8} {'p50 ms':>8} {'halted':>7}"
          f" {'lost':>6} {'broken':>7} {'flood/s':>9} {'MB/s':>6}")  # fmt: skip
    for row in rows:
        p50 = "" if row["p50_ms"] is None else f"{row['p50_ms']:.2f}"
        print(
            f"  {row['flooder']:<12} {row['per_s']:>11,.0f} {row['to_idle']:>8.1%} {row['to_burn']:>8.1%}"
            f" {p50:>8} {row['halted']:>7.1%} {row['lost']:>6} {row['violations']:>7}"
            f" {row['flooded_per_s']:>9,.0f} {row['flooded_mb_per_s']:>6.1f}"
        )


def main() -> int:
    if sys.argv[1:2] == ["--flood"]:
        flood(*sys.argv[2:6], seconds=float(sys.argv[6]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--order", choices=ORDERS, action="append", help="fifo or total; both by default")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each run is measured")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="antiphon-hostile-key-") as temporary:
        key = Path(temporary) / "group.key"
        write_keys(key, KeyRing.generate())
        for order in options.order or ORDERS:
            for chosen in (None, key):
                rows = median_rows([compare(order, chosen, options.seconds) for _ in range(options.repeats)])
                if options.json:
                    for row in rows:
                        print(json.dumps(row), flush=True)
                else:
                    tell(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
