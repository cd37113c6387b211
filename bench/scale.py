"""What control costs as a group grows: simulated up to a thousand members, and live up to sixty.

Run it with `make bench-scale`, or `python bench/scale.py [--json] [--only simulated|live] [--sizes 7,30]`.

Simulated: each order at ten messages a second of the whole group, with stability forms that `fifo` offers. A
figure is what one member sends and receives a second beside the messages' bodies, on average and at the
busiest member, and the time until a sender knows that its message is stable. `fifo` with the structured forms
should stay within a factor of two from 30 members on. The simulated detection time is 250 ms, half of a live
group's default, so signs of life cost twice what they cost live. A run that does not end in time says so.

Live: members on loopback, a process each, idle (a message every ten seconds) and at ten messages a second.
The figures are those of `antiphon perf`, the busiest member's. Corosync, where it is installed, idles beside
it with seven members. Run it on a quiet machine: processor shares and halts measure everything else, too.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

from rivals.corosync import Cluster, UnavailableError, install

SIMULATED: Final = (7, 30, 100, 300, 1000)
LIVE: Final = (7, 15, 30, 60)
RATE: Final = 10
SIMULATED_S: Final = 10
LIVE_S: Final = 10
LONGEST_S: Final = 900
SUBJECTS: Final = (
    ("fifo", ("--stability", "coordp")),
    ("fifo", ("--stability", "s-coordp")),
    ("fifo", ("--stability", "s-gossip")),
    ("sequencer", ()),
    ("sco", ()),
    ("dpg", ()),
)
SHOWN: Final = ("control_bytes_s", "busiest_control_bytes_s", "stability_s", "latency_s", "finished")
ORDERS: Final = (
    ("fifo", ()),
    ("fifo", ("--stability", "s-coordp")),
    ("causal", ()),
    ("total", ()),
)


def run(*words: str) -> dict[str, Any]:
    """What a command prints as JSON, or why it does not."""
    command = [sys.executable, "-m", "antiphon", *words, "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"did not end in {LONGEST_S} s"}
    if not done.stdout.strip():
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "printed nothing"}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def simulated(sizes: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    for order, options in SUBJECTS:
        for size in sizes:
            load = ("--members", str(size), "--rate", str(RATE), "--messages", str(RATE * SIMULATED_S))
            figures = run("simulate", order, *load, *options)
            shown = {name: figures[name] for name in (*SHOWN, "error") if name in figures}
            yield {"order": " ".join((order, *options[1:])), "members": size} | shown


def live(sizes: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    for order, options in ORDERS:
        for size in sizes:
            for rate in (0.1, RATE):
                load = (
                    "--members",
                    str(size),
                    "--rate",
                    str(rate),
                    "--seconds",
                    str(LIVE_S),
                    "--size",
                    "100",
                )
                figures = run("perf", "--order", order, *load, *options)
                yield {"order": " ".join((order, *options[1:])), "members": size, "rate": rate} | figures


def corosync_idle(members: int) -> dict[str, Any]:
    """The processor share of a daemon that has nothing to do."""
    row: dict[str, Any] = {"order": "corosync", "members": members, "rate": 0}
    try:
        install()
        with Cluster(members, tuned=False) as cluster:
            return row | {"processor_share": cluster.idle_share(LIVE_S)}
    except UnavailableError as error:
        return row | {"error": str(error)}


def show(row: dict[str, Any]) -> None:
    words = [f"{row['order']:<16}", f"{row['members']:>5} members"]
    words += [f"{name}={value}" for name, value in row.items() if name not in ("order", "members")]
    print("  ".join(words), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--only", choices=("simulated", "live"))
    parser.add_argument("--sizes", help="members, separated by commas")
    arguments = parser.parse_args()
    sizes = tuple(map(int, arguments.sizes.split(","))) if arguments.sizes else None
    rows: list[Iterator[dict[str, Any]]] = []
    if arguments.only != "live":
        rows.append(simulated(sizes or SIMULATED))
    if arguments.only != "simulated":
        rows += [live(sizes or LIVE), iter([corosync_idle(7)])]
    for part in rows:
        for row in part:
            print(json.dumps(row), flush=True) if arguments.json else show(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
