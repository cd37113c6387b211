"""How fast a live group is: seven processes on this machine, all sending, beside raw UDP and Corosync.

These are measured one after the other, at 64, 1000 and 8000 bytes, and all of it five times over, so that a
machine that slows down slows all of them:

- raw UDP in Python with offload (`bench/rivals/raw_udp.py`): the ceiling of what Python can move;
- Antiphon, first in first out, without a key and with one;
- Antiphon, total order by a fixed sequencer, without a key;
- Antiphon, total order that does not care who is there, on its default service, without a key;
- Antiphon, 1000 bytes to 3 of the 6 others, drawn for each message, first in first out and in causal order;
- Antiphon, 1000 bytes to one of four groups that overlap little or much: one order across them by trees of
  meta-groups, with bodies on the trees or directly from their senders, and by one sequencer for all, who
  multicasts to everyone; deliveries of all members are added;
- Corosync, tuned and as installed (`bench/rivals/corosync.py`): total order in C, the rival of both.

Ours is what `antiphon perf` measures: applications in processes of their own, a trace of everything, and the
checkers over it. A figure is messages a second that reach each member, the least of the members; a member's
own messages count, everywhere. Then latency, at 100 messages of 1000 bytes a second from the whole group, our
members on uvloop; and, once, what the total order's members that stay see of one of seven that is killed,
stopped or leaves every five seconds and returns.

Only ratios mean anything, and each is taken within one repeat; the median and the extremes of the repeats
are printed, then the targets with 'reached' or 'not reached'. Nothing is asserted. Caveats: one machine and
its loopback (Corosync: its bridge, at the same datagram size); more processes than processors, so what a
member spends another one lacks; Corosync needs two processes a member, ours one.

    make bench-live                     # about half an hour; use a quiet machine
    python bench/live.py --quick        # one short repeat
    python bench/live.py --json
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from rivals import corosync, raw_udp

MEMBERS: Final = 7
SIZES: Final = (64, 1000, 8000)
TARGET_SIZE: Final = 1000
REPEATS: Final = 5
SECONDS: Final = 5.0
QUICK_SECONDS: Final = 2.0
LATENCY_RATE: Final = 100
"""Messages a second of the whole group when latency is measured."""
PATIENCE_S: Final = 300.0
"""How long one measurement may take beyond its own time: starting, and the checkers at the end."""

CHURN_S: Final = 20.0
"""How long the total order is watched while members come and go."""

RAW, FIFO, SEALED, SEQUENCER, COROSYNC = "raw", "fifo", "fifo-key", "sequencer", "corosync"
TOTAL, TOTAL_LAN, COROSYNC_DEFAULT = "total", "total-lan", "corosync-default"
FIFO_TO_SOME, CAUSAL_TO_SOME = "fifo-to-some", "causal-to-some"
ACROSS, ACROSS_DIRECT, CENTRAL = "across", "across-direct", "central"
"""Messages to one of several groups: by trees of meta-groups, with bodies on the trees or directly to all
members, and by one sequencer for all."""
FEW_IN_COMMON: Final[dict[str, tuple[str, ...]]] = {
    "A": ("m0", "m1"),
    "B": ("m2", "m3"),
    "C": ("m4", "m5"),
    "D": ("m5", "m6"),
}
MANY_IN_COMMON: Final[dict[str, tuple[str, ...]]] = {
    "A": ("m0", "m1", "m2", "m3"),
    "B": ("m2", "m3", "m4", "m5"),
    "C": ("m0", "m4", "m5", "m6"),
    "D": ("m0", "m1", "m2", "m6"),
}
LAYOUTS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "mostly disjoint": FEW_IN_COMMON,
    "much overlapping": MANY_IN_COMMON,
}
CHOSEN: Final = 3
"""Destinations of a message where they are chosen."""
WORDS: Final = {
    RAW: "raw UDP, Python, offload",
    FIFO: "Antiphon FIFO",
    SEALED: "Antiphon FIFO, with a key",
    SEQUENCER: "Antiphon sequencer",
    TOTAL: "Antiphon total",
    TOTAL_LAN: "Antiphon total, service lan",
    ACROSS: "Antiphon total-across",
    ACROSS_DIRECT: "the same, bodies direct",
    CENTRAL: "Antiphon, one sequencer",
    FIFO_TO_SOME: f"Antiphon FIFO, to {CHOSEN} each",
    CAUSAL_TO_SOME: f"Antiphon causal, to {CHOSEN} each",
    COROSYNC: "Corosync, tuned",
    COROSYNC_DEFAULT: "Corosync, as installed",
}

Figures = dict[str, float]


class SkippedError(Exception):
    """One of them cannot be measured here; the sentence says why."""


@dataclass(frozen=True)
class Target:
    """A ratio at some size and what it is to reach."""

    words: str
    over: str
    under: str
    least: float
    size: int = TARGET_SIZE


TARGETS: Final = (
    Target("FIFO at least a third of raw Python", FIFO, RAW, 1 / 3),
    Target("sequencer order at least Corosync's throughput", SEQUENCER, COROSYNC, 1.0),
    Target("a key costs at most 25%", SEALED, FIFO, 0.75),
    Target("causal order at least half of FIFO to the same destinations", CAUSAL_TO_SOME, FIFO_TO_SOME, 0.5),
    *(
        Target(f"total order at least {aim}Corosync's throughput, {size} bytes", TOTAL, COROSYNC, least, size)
        for size in SIZES
        for aim, least in (("", 1.0), ("twice ", 2.0))
    ),
)
ACROSS_TARGET: Final = 1.0
"""The trees' deliveries over those by one sequencer."""
LATENCY_TARGET_MS: Final = 1.0
LATENCY_TARGET_RATIO: Final = 2.0
"""The total order's p50, with the service that allows it, over Corosync's."""


def measure_raw(size: int, seconds: float) -> Figures:
    outcome = raw_udp.measure(members=MEMBERS, size=size, seconds=seconds)
    return {"per_s": outcome.per_s, "lost": outcome.lost}


def measure_corosync(size: int, seconds: float, rate: float = 0.0, *, tuned: bool = True) -> Figures:
    """A cluster of its own each time, so that idle daemons never take from what the others are given."""
    try:
        with corosync.Cluster(MEMBERS, tuned=tuned) as cluster:
            outcome = cluster.measure(size=size, seconds=seconds, rate=rate)
    except corosync.UnavailableError as reason:
        raise SkippedError(str(reason)) from reason
    figures: Figures = {
        "per_s": outcome.per_s,
        "lost": outcome.gaps,
        "violations": 0 if outcome.one_order else 1,
    }
    if outcome.latencies_us:
        found = outcome.latencies_us
        figures["p50_ms"] = found[len(found) // 2] / 1000
        figures["p99_ms"] = found[len(found) * 99 // 100] / 1000
    return figures


def measure_ours(order: str, size: int, seconds: float, *options: str) -> Figures:
    """One run of `antiphon perf`, as a user would start it."""
    antiphon = Path(sys.executable).with_name("antiphon")
    command = [
        str(antiphon), "perf", "--members", str(MEMBERS), "--size", str(size), "--seconds", str(seconds),
        "--order", order, "--json", *options,
    ]  # fmt: skip
    told = figures_of(command, seconds + PATIENCE_S)
    latency = told["latency_ms"]
    return {
        "per_s": told["group_throughput"],
        "deliveries_per_s": told.get("deliveries_per_s", 0.0),
        "lost": told["lost"],
        "violations": told["violations"],
        "p50_ms": latency["p50"],
        "p99_ms": latency["p99"],
        "halted_share": told["halted_share"],
    }


def measure_in_groups(order: str, file: Path, options: Sequence[str], size: int, seconds: float) -> Figures:
    return measure_ours(order, size, seconds, "--groups", str(file), *options)


def figures_of(command: Sequence[str], patience_s: float) -> dict[str, Any]:
    """The JSON object that a command prints; if it prints none, what it says is wrong."""
    name = " ".join(["antiphon", *command[1:]])
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SkippedError(f"`{name}` is skipped: {error}.") from error
    try:
        told: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError as error:
        said = [line for line in done.stderr.splitlines() if line.startswith("error:")]
        why = said[0] if said else f"it ended with code {done.returncode}"
        raise SkippedError(f"`{name}` is skipped, since it gave no figures: {why}") from error
    return told


class Bench:
    """Measures, remembers what could not be measured, and tells what came of it."""

    def __init__(self, key: Path, repeats: int, seconds: float) -> None:
        self._repeats = repeats
        self._seconds = seconds
        self._contestants: dict[str, Callable[[int, float], Figures]] = {
            RAW: measure_raw,
            FIFO: lambda size, seconds: measure_ours("fifo", size, seconds),
            SEALED: lambda size, seconds: measure_ours("fifo", size, seconds, "--key", str(key)),
            SEQUENCER: lambda size, seconds: measure_ours("sequencer", size, seconds),
            TOTAL: lambda size, seconds: measure_ours("total", size, seconds),
            COROSYNC: measure_corosync,
            COROSYNC_DEFAULT: lambda size, seconds: measure_corosync(size, seconds, tuned=False),
        }
        some = ("--destinations", str(CHOSEN))
        self._at_target_size: dict[str, Callable[[int, float], Figures]] = {
            FIFO_TO_SOME: lambda size, seconds: measure_ours("fifo", size, seconds, *some),
            CAUSAL_TO_SOME: lambda size, seconds: measure_ours("causal", size, seconds, *some),
        }
        self.churn: dict[str, list[Figures]] = {}
        self.skipped: dict[str, str] = {}
        self.throughput: dict[int, dict[str, list[Figures]]] = {size: {} for size in SIZES}
        self.latency: dict[str, list[Figures]] = {}
        self.across: dict[str, dict[str, list[Figures]]] = {layout: {} for layout in LAYOUTS}
        self._key = key

    def run(self) -> None:
        try:
            corosync.install()
        except corosync.UnavailableError as reason:
            self.skipped[COROSYNC] = self.skipped[COROSYNC_DEFAULT] = str(reason)
        for repeat in range(self._repeats):
            for size in SIZES:
                contestants = self._contestants | (self._at_target_size if size == TARGET_SIZE else {})
                for name, measure in contestants.items():
                    talk(f"repeat {repeat + 1} of {self._repeats}: {size} bytes, {WORDS[name]}")
                    self._try(self.throughput[size], name, measure, size)
            self._run_across(repeat)
            self._run_latency(repeat)
        self._run_churn()

    def _run_across(self, repeat: int) -> None:
        for layout, groups in LAYOUTS.items():
            file = self._key.with_name(f"{layout.replace(' ', '-')}.csv")
            file.write_text("".join(f"{group},{site}\n" for group in groups for site in groups[group]))
            for name, order, *options in (
                (ACROSS, "total-across"),
                (ACROSS_DIRECT, "total-across", "--bodies", "direct"),
                (CENTRAL, "sequencer"),
            ):
                talk(f"repeat {repeat + 1} of {self._repeats}: {layout} groups, {WORDS[name]}")
                measure = partial(measure_in_groups, order, file, options)
                self._try(self.across[layout], name, measure, TARGET_SIZE)

    def _run_churn(self) -> None:
        for how in ("kill", "stop", "leave"):
            talk(f"churn, one of {MEMBERS} by turns: {how}")
            options = ("--churn", "1", "--churn-by", how)
            try:
                self.churn[how] = [measure_ours("total", TARGET_SIZE, CHURN_S, *options)]
            except SkippedError as reason:
                self.skipped[f"churn by {how}"] = str(reason)

    def _run_latency(self, repeat: int) -> None:
        rate = ("--rate", str(LATENCY_RATE), "--uvloop")
        contestants: dict[str, Callable[[int, float], Figures]] = {
            FIFO: lambda size, seconds: measure_ours("fifo", size, seconds, *rate),
            SEQUENCER: lambda size, seconds: measure_ours("sequencer", size, seconds, *rate),
            TOTAL: lambda size, seconds: measure_ours("total", size, seconds, *rate),
            TOTAL_LAN: lambda size, seconds: measure_ours("total", size, seconds, *rate, "--service", "lan"),
            COROSYNC: lambda size, seconds: measure_corosync(size, seconds, LATENCY_RATE),
        }
        for name, measure in contestants.items():
            talk(f"repeat {repeat + 1} of {self._repeats}: latency, {WORDS[name]}")
            self._try(self.latency, name, measure, TARGET_SIZE)

    def _try(
        self,
        into: dict[str, list[Figures]],
        name: str,
        measure: Callable[[int, float], Figures],
        size: int,
    ) -> None:
        if name in self.skipped:
            return
        try:
            into.setdefault(name, []).append(measure(size, self._seconds))
        except SkippedError as reason:
            self.skipped[name] = str(reason)
            talk(str(reason))

    def figures(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {
            "members": MEMBERS,
            "repeats": self._repeats,
            "seconds": self._seconds,
            "throughput_per_s": {
                str(size): {name: spread_of(runs, "per_s") for name, runs in by_name.items() if runs}
                for size, by_name in self.throughput.items()
            },
            "groups_deliveries_per_s": {
                layout: {name: spread_of(runs, "deliveries_per_s") for name, runs in by_name.items() if runs}
                for layout, by_name in self.across.items()
            },
            "latency_ms": {
                name: {key: spread_of(runs, f"{key}_ms") for key in ("p50", "p99")}
                for name, runs in self.latency.items()
                if runs
            },
            "lost": self._sum("lost"),
            "violations": self._sum("violations"),
            "churn": {how: runs[0] for how, runs in self.churn.items()},
            "targets": [
                *map(self._judge, TARGETS),
                *(self._judge_across(layout, name) for layout in LAYOUTS for name in (ACROSS, ACROSS_DIRECT)),
                self._judge_latency(),
                self._judge_total_latency(),
                *(self._judge_churn(how, runs[0]) for how, runs in self.churn.items()),
            ],
            "skipped": self.skipped,
        }

    def _sum(self, key: str) -> dict[str, float]:
        """How many messages were lost, or promises broken, over all runs."""
        totals: dict[str, float] = {}
        for by_name in (*self.throughput.values(), *self.across.values(), self.latency):
            for name, runs in by_name.items():
                totals[name] = totals.get(name, 0) + sum(run.get(key, 0) for run in runs)
        return totals

    def _judge(self, target: Target) -> dict[str, Any]:
        runs = self.throughput[target.size]
        over, under = runs.get(target.over, []), runs.get(target.under, [])
        ratios = [a["per_s"] / b["per_s"] for a, b in zip(over, under, strict=False) if b["per_s"]]
        if not ratios:
            return {"target": target.words, "verdict": "not measured"}
        ratio = spread(ratios)
        verdict = "reached" if ratio["median"] >= target.least else "not reached"
        return {"target": target.words, "ratio": ratio, "least": target.least, "verdict": verdict}

    def _judge_across(self, layout: str, by: str) -> dict[str, Any]:
        how = " with direct bodies" if by == ACROSS_DIRECT else ""
        words = f"one order across {layout} groups{how} at least as fast as by one sequencer"
        over, under = (self.across[layout].get(name, []) for name in (by, CENTRAL))
        ratios = [a["deliveries_per_s"] / b["deliveries_per_s"] for a, b in zip(over, under, strict=False)]
        if not ratios:
            return {"target": words, "verdict": "not measured"}
        ratio = spread(ratios)
        verdict = "reached" if ratio["median"] >= ACROSS_TARGET else "not reached"
        return {"target": words, "ratio": ratio, "least": ACROSS_TARGET, "verdict": verdict}

    def _judge_latency(self) -> dict[str, Any]:
        words = f"FIFO's p50 under {LATENCY_TARGET_MS:g} ms at {LATENCY_RATE} messages a second"
        runs = self.latency.get(FIFO)
        if not runs:
            return {"target": words, "verdict": "not measured"}
        found = spread_of(runs, "p50_ms")
        verdict = "reached" if found["median"] < LATENCY_TARGET_MS else "not reached"
        return {"target": words, "p50_ms": found, "verdict": verdict}

    def _judge_total_latency(self) -> dict[str, Any]:
        words = f"total order's p50 (service lan) within {LATENCY_TARGET_RATIO:g} times Corosync's"
        over, under = self.latency.get(TOTAL_LAN, []), self.latency.get(COROSYNC, [])
        ratios = [a["p50_ms"] / b["p50_ms"] for a, b in zip(over, under, strict=False)]
        if not ratios:
            return {"target": words, "verdict": "not measured"}
        ratio = spread(ratios)
        verdict = "reached" if ratio["median"] <= LATENCY_TARGET_RATIO else "not reached"
        return {"target": words, "ratio": ratio, "verdict": verdict}

    @staticmethod
    def _judge_churn(how: str, figures: Figures) -> dict[str, Any]:
        words = f"no 100 ms below a tenth of the median when one is away by {how}"
        share = figures["halted_share"]
        verdict = "reached" if share == 0 and not figures["lost"] else "not reached"
        return {"target": words, "halted_share": share, "verdict": verdict}


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def spread_of(runs: Sequence[Figures], key: str) -> dict[str, float]:
    return spread([run[key] for run in runs])


def talk(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def shown(found: dict[str, float], pattern: str) -> str:
    median, least, most = (format(found[key], pattern) for key in ("median", "least", "most"))
    return f"{median:>10}  ({least} to {most})"


def table(figures: dict[str, Any]) -> str:
    lines = [
        f"{figures['members']} members, all sending; messages a second at each member, own included;"
        f" median of {figures['repeats']} (least to most)"
    ]
    for size, by_name in figures["throughput_per_s"].items():
        lines.append(f"{size} bytes")
        lines += [f"  {WORDS[name]:<28}{shown(found, ',.0f')}" for name, found in by_name.items()]
    for layout, by_name in figures["groups_deliveries_per_s"].items():
        lines.append(f"{layout} groups, {TARGET_SIZE} bytes: deliveries a second of all members together")
        lines += [f"  {WORDS[name]:<28}{shown(found, ',.0f')}" for name, found in by_name.items()]
    lines.append(f"latency in ms, {LATENCY_RATE} messages a second of {TARGET_SIZE} bytes, ours on uvloop")
    for name, found in figures["latency_ms"].items():
        lines.append(
            f"  {WORDS[name]:<28}p50 {shown(found['p50'], '.2f')}   p99 {shown(found['p99'], '.2f')}"
        )
    for key, words in (("lost", "messages lost"), ("violations", "promises broken")):
        guilty = {name: count for name, count in figures[key].items() if count}
        told = ", ".join(f"{WORDS[name]} {count:,.0f}" for name, count in guilty.items())
        lines.append(f"{words}: {told or 'none'}")
    for how, found in figures["churn"].items():
        lines.append(
            f"total order, one of {MEMBERS} away by {how}: {found['per_s']:,.0f} messages a second,"
            f" halted {found['halted_share']:.2%}, lost {found['lost']}, violations {found['violations']}"
        )
    lines.append(f"targets, at {TARGET_SIZE} bytes unless another size is named")
    for target in figures["targets"]:
        found = target.get("ratio") or target.get("p50_ms")
        measured = f": {shown(found, '.2f').strip()}" if found else ""
        lines.append(f"  {target['target']}{measured}: {target['verdict']}")
    lines += figures["skipped"].values()
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short repeat")
    parser.add_argument("--repeats", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=None, help="how long each measurement lasts")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    repeats = options.repeats or (1 if options.quick else REPEATS)
    seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as folder:
        key = Path(folder) / "group.key"
        antiphon = Path(sys.executable).with_name("antiphon")
        subprocess.run([str(antiphon), "keygen", str(key)], check=False, capture_output=True)
        bench = Bench(key, repeats, seconds)
        bench.run()
    figures = bench.figures()
    print(json.dumps(figures) if options.json else table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
