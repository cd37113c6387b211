"""`python -m tests.fuzz`: fuzz every order, or replay one run.

    python -m tests.fuzz --order total --service lan --seed 17     one run, told in full
    python -m tests.fuzz --order causal --pdus 1000000             until this many PDUs were sent
    python -m tests.fuzz --seconds 600                             all orders by turns
    python -m tests.fuzz                                           without end
    python -m tests.fuzz --live --pdus 20000                       real groups of three on loopback

Failures go to standard output, each with the command that replays it, the rest to standard error. The exit
code is 1 if anything failed.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from antiphon.live.orders import DEFAULT_SERVICE
from tests.fuzz.arena import Tally
from tests.fuzz.live import LivePlan, play
from tests.fuzz.plans import MEMBER, ORDER_NAMES, SERVICE_NAMES, STALE, STRANGER, Plan, draw_plan
from tests.fuzz.run import Outcome, run
from tests.fuzz.shrinking import as_ranges, from_ranges, shrink, sort_of

MEMORY_BYTES: Final = 6 << 30
"""A member that allocates in proportion to a number it is told meets this limit, and raises."""
TELL_S: Final = 5.0
SHOWN: Final = 2
"""Failures of one sort and order that are told in full."""


class Campaign:
    """Many runs, and what came of them."""

    def __init__(self, *, shrinks: bool) -> None:
        self.runs: Counter[str] = Counter()
        self.tallies: dict[str, Tally] = {}
        self.failures: list[Outcome] = []
        self._sorts: Counter[tuple[str, str | None]] = Counter()
        self._shrinks = shrinks
        self._begin_s = self._told_s = time.monotonic()
        self.slowest_ms: dict[str, float] = {}
        self.milliseconds: Counter[str] = Counter()
        """That each order took."""
        self.largest: dict[str, int] = {}

    def add(self, outcome: Outcome) -> None:
        order = outcome.plan.order
        self.runs[order] += 1
        self.tallies.setdefault(order, Tally()).add(outcome.tally)
        self.slowest_ms[order] = max(self.slowest_ms.get(order, 0.0), outcome.recovered_ms)
        self.largest[order] = max(self.largest.get(order, 0), outcome.largest)
        if outcome.failure is not None:
            self.failures.append(outcome)
            sort = order, sort_of(outcome.failure)
            self._sorts[sort] += 1
            if self._sorts[sort] <= SHOWN:
                tell_failure(outcome, shrinks=self._shrinks)

    def said(self, order: str) -> int:
        return self.tallies[order].said if order in self.tallies else 0

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._begin_s

    def tell_progress(self) -> None:
        now = time.monotonic()
        if now - self._told_s >= TELL_S:
            self._told_s = now
            said = ", ".join(f"{order} {self.said(order)}" for order in self.runs)
            print(
                f"{self.elapsed_s:.0f} s: {said} PDUs; {len(self.failures)} runs of "
                f"{self.runs.total()} failed",
                file=sys.stderr, flush=True,
            )  # fmt: skip

    def summary(self) -> dict[str, Any]:
        orders = {
            order: {
                "runs": self.runs[order],
                "seconds": round(self.milliseconds[order] / 1000, 1),
                "pdus": tally.said,
                "decoded": dict(tally.decoded.most_common()),
                "refused": dict(tally.refused.most_common()),
                "decoding_raised": tally.raised,
                "slowest_recovery_ms": self.slowest_ms[order],
                "largest_container": self.largest[order],
                "failures": [
                    {"failure": outcome.failure, "command": outcome.plan.command()}
                    for outcome in self.failures
                    if outcome.plan.order == order
                ],
            }
            for order, tally in self.tallies.items()
        }
        return {"seconds": round(self.elapsed_s, 1), "orders": orders}

    @property
    def failed(self) -> bool:
        return bool(self.failures) or any(tally.raised for tally in self.tallies.values())


def tell_failure(outcome: Outcome, *, shrinks: bool) -> None:
    plan = outcome.plan
    print(f"FAILED {plan.told()}\n{outcome.story}{outcome.failure}", flush=True)
    if shrinks and outcome.lies:
        places = shrink(outcome)
        print(f"{len(places)} of {outcome.lies} lies are enough: --only {as_ranges(places)}", flush=True)
    print(plan.command(), flush=True)


def tell_summary(summary: dict[str, Any]) -> None:
    for order, found in summary["orders"].items():
        decoded, refused = sum(found["decoded"].values()), sum(found["refused"].values())
        print(
            f"{order}: {found['runs']} runs in {found['seconds']} s, {found['pdus']} PDUs "
            f"({decoded} decoded, {refused} refused), "
            f"slowest recovery {found['slowest_recovery_ms']:.0f} ms, largest container "
            f"{found['largest_container']}, {len(found['failures'])} runs failed"
        )
        print("  decoded: " + ", ".join(f"{kind} {count}" for kind, count in found["decoded"].items()))
        print("  refused: " + ", ".join(f"{reason} {count}" for reason, count in found["refused"].items()))
        for error, data in found["decoding_raised"].items():
            print(f"  FAILED: decoding raised {error} at {data[:200]}")
        sorts: dict[str | None, tuple[int, str]] = {}
        for failure in found["failures"]:
            sort = sort_of(failure["failure"])
            count, command = sorts.get(sort, (0, failure["command"]))
            sorts[sort] = count + 1, command
        for sort, (count, command) in sorts.items():
            print(f"  FAILED {count} times: {sort}…\n    {command}")
    print(f"{summary['seconds']} s")


def plans(options: argparse.Namespace, campaign: Campaign) -> Iterator[Plan]:
    """The runs asked for, order by order in turn, until enough."""
    orders = [order for order in ORDER_NAMES if not options.order or order in options.order]
    first = options.seed or 0
    count = options.runs
    if count is None and options.pdus is None and options.seconds is None and options.seed is not None:
        count = 1
    turn = 0
    while count is None or turn < count:
        open_orders = [
            order for order in orders if options.pdus is None or campaign.said(order) < options.pdus
        ]
        if not open_orders:
            return
        for order in open_orders:
            if options.seconds is not None and campaign.elapsed_s >= options.seconds:
                return
            yield draw_plan(order, first + turn, options.service)
        turn += 1


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--order", action="append", choices=ORDER_NAMES, help="this order; may be repeated")
    parser.add_argument("--service", choices=SERVICE_NAMES, help="of the total order; else drawn by the seed")
    parser.add_argument("--seed", type=int, help="the first seed; alone, the only run")
    parser.add_argument("--runs", type=int, help="runs of each order")
    parser.add_argument("--pdus", type=int, help="PDUs of liars for each order")
    parser.add_argument("--seconds", type=float, help="time for all orders together")
    parser.add_argument("--live", action="store_true", help="real groups on loopback, --pdus of each run")
    parser.add_argument("--liar", choices=(MEMBER, STRANGER, STALE), help="of live runs; else each in turn")
    parser.add_argument("--keyed", action="store_true", help="in live runs, only groups with a key")
    parser.add_argument("--rate", type=float, default=4000.0, help="PDUs a second of a live liar")
    parser.add_argument("--only", help="in a replay, tell only these lies, such as 3,17-20")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for the lies that are enough")
    parser.add_argument("--json", action="store_true", help="the summary as JSON")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    return fuzz_live(options) if options.live else fuzz(options)


def fuzz(options: argparse.Namespace) -> int:
    """Simulated runs."""
    campaign = Campaign(shrinks=not options.no_shrink and options.only is None)
    only = None if options.only is None else from_ranges(options.only)
    try:
        for plan in plans(options, campaign):
            if options.seed is not None and options.runs is None:
                print(plan.told(), file=sys.stderr)
            begin_s = time.monotonic()
            outcome = run(plan, only)
            campaign.milliseconds[plan.order] += round(1000 * (time.monotonic() - begin_s))
            campaign.add(outcome)
            campaign.tell_progress()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    summary = campaign.summary()
    if options.json:
        print(json.dumps(summary, indent=1))
    else:
        tell_summary(summary)
    return int(campaign.failed)


def live_plans(options: argparse.Namespace) -> Iterator[LivePlan]:
    """Each order or service with each kind of liar, with a key and without."""
    services = [options.service] if options.service else SERVICE_NAMES
    parts = [
        (order, service)
        for order in ORDER_NAMES
        if not options.order or order in options.order
        for service in (services if order == "total" else (DEFAULT_SERVICE,))
    ]
    first = options.seed or 0
    for seed in range(first, first + (options.runs or 1)):
        for order, service in parts:
            for liar in [options.liar] if options.liar else [MEMBER, STRANGER, STALE]:
                for keyed in (True,) if options.keyed else (False, True):
                    yield LivePlan(
                        order=order, service=service, liar=liar, keyed=keyed, seed=seed,
                        pdus=options.pdus or 5000, rate=options.rate,
                    )  # fmt: skip


def fuzz_live(options: argparse.Namespace) -> int:
    """Live runs, one after another."""
    begin_s = time.monotonic()
    rows: list[dict[str, Any]] = []
    for plan in live_plans(options):
        if options.seconds is not None and time.monotonic() - begin_s >= options.seconds:
            break
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            outcome = play(plan, Path(folder))
        row = {"command": plan.command()}
        rows.append(row | ({"failure": outcome} if isinstance(outcome, str) else asdict(outcome)))
        if isinstance(outcome, str):
            print(f"FAILED {outcome}\n{plan.command()}", flush=True)
        else:
            print(
                f"{plan.order} {plan.service} {plan.liar} {'keyed' if plan.keyed else 'keyless'}: "
                f"{outcome.said} PDUs, recovered in {outcome.recovered_s * 1000:.0f} ms, "
                f"{outcome.delivered_meanwhile} delivered meanwhile, largest container {outcome.largest}",
                file=sys.stderr, flush=True,
            )  # fmt: skip
    failed = [row for row in rows if "failure" in row]
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        said = sum(row.get("said", 0) for row in rows)
        print(f"{len(rows)} live runs, {said} PDUs, {len(failed)} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
