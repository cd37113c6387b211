"""Groups on links with a rate: three or seven members, all sending, beside Corosync and TCP fan-out.

Members run on hosts of their own (network namespaces) on a switch whose ports have a rate and a queue
(`bench/links.py`). A port carries what all others send to that host, so of N members each can deliver at most
N/(N-1) times the rate, its own messages included. A figure is Mbit/s of messages of 500 bytes delivered at
the slowest member, and the share of that most. Beside it: messages lost, members that were absent, packets
that the ports dropped. Corosync runs by multicast on the same links (by knet it breaks down), TCP fan-out
as `bench/rivals/tcp.py`. Then one message of 1 MB and one of 8 MB, and a group beside one TCP stream on the
same link.

    make bench-network                          # about half an hour; needs root and iproute2
    python bench/network.py --link 100 --members 3 --seconds 4
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from links import MIDDLE, QUICK, SLOW, Hosts, Link, reason_why_not
from rivals import corosync

from antiphon.core.errors import AntiphonError
from antiphon.load.processes import MemberProcesses, Plan, summarise

SIZE: Final = 500
LINKS: Final = {"20": SLOW, "100": MIDDLE, "1000": QUICK}
ORDERS: Final = ("fifo", "causal", "total")
LARGE: Final = (1_000_000, 8_000_000)
TCP: Final = Path(__file__).parent / "rivals" / "tcp.py"


def most_mbit_s(link: Link, members: int) -> float:
    return link.rate_bits_s / 1e6 * members / (members - 1)


def measure(hosts: Hosts, plan: Plan) -> dict[str, Any]:
    """One group on these hosts."""
    dropped = hosts.dropped()
    with tempfile.TemporaryDirectory(prefix="network-") as folder:
        try:
            reports = asyncio.run(MemberProcesses(plan, Path(folder), inside=hosts.inside).run())
        except AntiphonError as error:
            return {"failure": str(error), "dropped": hosts.dropped() - dropped}
    found = summarise(plan, reports)
    return {
        "mbit_s": round(found["group_throughput"] * plan.size * 8 / 1e6, 1),
        "lost": found["lost"],
        "absences": sum(report["counters"]["absences"] for report in reports.values()),
        "latency_ms": found["latency_ms"]["p50"],
        "dropped": hosts.dropped() - dropped,
    }


def plan(order: str, members: int, seconds: float, **options: Any) -> Plan:
    return Plan(
        members=members, size=options.pop("size", SIZE), seconds=seconds, order=order,
        network="multicast:eth0", insecure=True, **options,
    )  # fmt: skip


def measure_tcp(
    hosts: Hosts, members: int, seconds: float, *, pair: bool = False
) -> list[subprocess.Popen[str]]:
    """TCP processes on the hosts, told to begin."""
    addresses = [hosts.address(index) for index in range(members)]
    running = []
    for own in range(members):
        task = {"addresses": addresses, "own": own, "size": SIZE, "seconds": seconds, "pair": pair}
        command = [*hosts.inside(own), sys.executable, str(TCP), json.dumps(task)]
        running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for process in running:
        assert process.stdout is not None
        process.stdout.readline()
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return running


def told(processes: list[subprocess.Popen[str]]) -> list[float]:
    """Mbit/s that each TCP process got."""
    return [json.loads(process.communicate(timeout=120)[0])["bytes_s"] * 8 / 1e6 for process in processes]


def measure_corosync(link: Link, members: int, seconds: float) -> dict[str, Any]:
    try:
        corosync.install()
        with corosync.Cluster(members, shape=link.options) as cluster:
            outcome = cluster.measure(size=SIZE, seconds=seconds)
    except (corosync.UnavailableError, subprocess.TimeoutExpired) as error:
        return {"failure": str(error)}
    return {"mbit_s": round(outcome.per_s * SIZE * 8 / 1e6, 1), "lost": outcome.gaps}


def tell(row: dict[str, Any], most: float) -> None:
    share = f" ({row['mbit_s'] / most:.0%} of {most:.0f})" if "mbit_s" in row else ""
    figures = ", ".join(f"{key} {value}" for key, value in row.items() if key != "what")
    print(f"  {row['what']:34s} {figures}{share}", flush=True)


def compare(link: Link, members: int, seconds: float) -> list[dict[str, Any]]:
    """Everyone on one kind of link."""
    print(f"{link.name}, {members} members, messages of {SIZE} bytes, all sending", flush=True)
    most, rows = most_mbit_s(link, members), []

    def note(what: str, found: dict[str, Any]) -> None:
        rows.append({"link": link.name, "members": members, "what": what, **found})
        tell({"what": what, **found}, most)

    with Hosts(members, link) as hosts:
        for order in ORDERS:
            note(order, measure(hosts, plan(order, members, seconds)))
        note("TCP fan-out", {"mbit_s": round(min(told(measure_tcp(hosts, members, seconds))), 1)})
    note("Corosync, multicast", measure_corosync(link, members, seconds))
    with Hosts(members, link) as hosts:
        for size in LARGE:
            for order in ORDERS:
                took_s = 2 + 8 * 10 * size / link.rate_bits_s
                large = plan(order, members, took_s, size=size, rate=0.5 / took_s, senders=1)
                found = measure(hosts, large)
                found.pop("mbit_s", None)
                note(f"{order}, one message of {size // 1_000_000} MB", found)
        for order in ORDERS:
            stream = measure_tcp(hosts, 2, seconds + 6, pair=True)
            time.sleep(1)
            group = measure(hosts, plan(order, members, seconds, senders=1))
            note(f"{order}, one sender, beside TCP", {**group, "tcp_mbit_s": round(told(stream)[1], 1)})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--link", action="append", choices=LINKS, help="Mbit/s; may be repeated")
    parser.add_argument("--members", action="append", type=int, help="may be repeated; 3 and 7 if left out")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    reason = reason_why_not()
    if reason is not None:
        print(reason)
        return 0
    rows = [
        row
        for name in options.link or LINKS
        for members in options.members or (3, 7)
        for row in compare(LINKS[name], members, options.seconds)
    ]
    if options.json:
        print(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
