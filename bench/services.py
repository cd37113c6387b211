"""Which one-channel service keeps its order: each of the three under load on this machine, quiet and busy.

Seven members, a process each, all sending as fast as the group takes it, then at 100 messages a second; on a
machine of its own, and beside processes that keep every processor busy. For each the throughput, the latency,
what was lost, and what the checkers find in the trace: that decides which service is the default.

    python bench/services.py            # about five minutes
    python bench/services.py --json
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

SERVICES: Final = ("sequencer", "bounded-delay", "lan")
MEMBERS: Final = 7
REPEATS: Final = 3
SECONDS: Final = 5.0
RATE: Final = 100
BURNERS_PER_PROCESSOR: Final = 2


@contextmanager
def busy_machine(is_busy: bool) -> Iterator[None]:
    """With processes beside ours that never rest, if asked for."""
    count = BURNERS_PER_PROCESSOR * (os.cpu_count() or 1) if is_busy else 0
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def measure(service: str, rate: int) -> dict[str, Any]:
    antiphon = Path(sys.executable).with_name("antiphon")
    command = [
        str(antiphon), "perf", "--members", str(MEMBERS), "--seconds", str(SECONDS), "--order", "total",
        "--service", service, "--rate", str(rate), "--json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def rows(repeats: int) -> Iterator[dict[str, Any]]:
    for is_busy in (False, True):
        with busy_machine(is_busy):
            for rate in (0, RATE):
                for service in SERVICES:
                    print(
                        f"{service}, {'busy' if is_busy else 'quiet'}, {rate}/s", file=sys.stderr, flush=True
                    )
                    runs = [measure(service, rate) for _ in range(repeats)]
                    yield {
                        "service": service,
                        "machine": "busy" if is_busy else "quiet",
                        "rate": rate,
                        "throughput": sorted(run["group_throughput"] for run in runs)[repeats // 2],
                        "p50_ms": sorted(run["latency_ms"]["p50"] for run in runs)[repeats // 2],
                        "lost": sum(run["lost"] for run in runs),
                        "violations": sum(run["violations"] for run in runs),
                    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    for row in rows(options.repeats):
        if options.json:
            print(json.dumps(row), flush=True)
            continue
        load = f"{row['rate']}/s" if row["rate"] else "all it takes"
        print(
            f"{row['machine']:<6}{load:<14}{row['service']:<14}{row['throughput']:>10,.0f} messages/s"
            f"   p50 {row['p50_ms']:>8.2f} ms   lost {row['lost']}   violations {row['violations']}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
