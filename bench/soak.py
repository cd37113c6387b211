"""Ten minutes at full speed: does memory stay flat, is anything lost, is any promise broken?

Runs `antiphon perf` and watches the memory of every process that it starts. What counts is how much the
resident memory of a process grows between the first tenth of the time (after a warm-up) and the last tenth,
medians of both; the largest growth of any process is told. Nothing is asserted.

    make soak                                          # ten minutes for each order
    python bench/soak.py --seconds 60 --order fifo
    python bench/soak.py --order total --churn kill    # one of them is killed and returns every five seconds
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

ORDERS: Final = ("fifo", "sequencer", "total")
MEMBERS: Final = 7
SIZE: Final = 1000
WARM_UP: Final = 0.1
"""The share of the time that is left to caches and buffers before anything counts."""
SAMPLES: Final = 200
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
FLAT_MB: Final = 16.0
"""What a process may grow by and still be called flat: what allocators and page tables do by themselves."""


def descendants(ancestor: int) -> dict[int, int]:
    """The resident bytes of each process that descends from one, by process."""
    parents: dict[int, int] = {}
    resident: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        process = int(status.parent.name)
        parents[process], resident[process] = int(fields[1]), int(fields[21]) * PAGE_BYTES
    family = {ancestor}
    while True:
        more = {process for process, parent in parents.items() if parent in family} - family
        if not more:
            return {process: resident[process] for process in family - {ancestor}}
        family |= more


def watch(process: subprocess.Popen[str], seconds: float) -> dict[int, list[int]]:
    """Sample the memory of all that the process starts until it ends, at most for its measured time."""
    samples: dict[int, list[int]] = {}
    ended = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < ended:
        for child, resident in descendants(process.pid).items():
            samples.setdefault(child, []).append(resident)
        time.sleep(seconds / SAMPLES)
    return samples


def growth_mb(samples: dict[int, list[int]]) -> float:
    """The largest growth of a process that was there nearly all the time."""
    longest = max((len(found) for found in samples.values()), default=0)
    grown = [0.0]
    for found in samples.values():
        if len(found) < 0.9 * longest or longest < 20:
            continue
        begin, tenth = int(WARM_UP * len(found)), len(found) // 10
        early = statistics.median(found[begin : begin + tenth])
        grown.append((statistics.median(found[-tenth:]) - early) / 1e6)
    return max(grown)


def soak(order: str, seconds: float, churn: str | None) -> dict[str, Any]:
    antiphon = Path(sys.executable).with_name("antiphon")
    command = [
        str(antiphon), "perf", "--members", str(MEMBERS), "--size", str(SIZE), "--seconds", str(seconds),
        "--order", order, "--json", *(("--churn", "1", "--churn-by", churn) if churn else ()),
    ]  # fmt: skip
    # Output goes to files: a full pipe would stop the child.
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as talked:
        with subprocess.Popen(command, stdout=said, stderr=talked, text=True) as process:
            samples = watch(process, seconds)
            process.wait()
        said.seek(0)
        talked.seek(0)
        try:
            figures: dict[str, Any] = json.loads(said.read())
        except json.JSONDecodeError:
            raise SystemExit(f"`{' '.join(command[1:])}` gave no figures: {talked.read().strip()}") from None
    return {"order": order, "seconds": seconds, "growth_mb": round(growth_mb(samples), 1), **figures}


def tell(figures: dict[str, Any]) -> None:
    memory = "flat" if figures["growth_mb"] <= FLAT_MB else "NOT flat"
    print(
        f"{figures['order']}: {figures['seconds']:g} s, {MEMBERS} members, {SIZE} bytes:"
        f" {figures['group_throughput']:,.0f} messages a second at each member\n"
        f"  memory {memory} (the most that a process grew by: {figures['growth_mb']} MB),"
        f" halted {figures['halted_share']:.2%}, {figures['lost']} lost,"
        f" {figures['violations']} promises broken"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--order", choices=ORDERS, action="append")
    parser.add_argument("--churn", choices=("kill", "stop", "leave"), help="let one come and go like that")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    for order in options.order or ORDERS:
        figures = soak(order, options.seconds, options.churn)
        if options.json:
            print(json.dumps(figures), flush=True)
        else:
            tell(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
