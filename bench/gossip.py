"""How long the 12,000 gossip runs of Guo's section 5.3.1 take, from a random hundredth of them on Spark.

Run it with `make bench-gossip`, or `python bench/gossip.py [--json] [--seed N] [--share N]`. The runs are
the study's: 200 members, 50 senders, dense and sparse, three kinds of loss, subsets of 1 to 5, steps of 1 to
20 s, 20 seeds, each until the first member has the result. Spark sweeps them on two cores, as it does for
studies; some runs with other seeds come first, uncounted, while workers start and load compiled code.

The processor time is taken inside each run, setting up included; Spark's own is not in it. Runs differ a
hundredfold, most of all with the step and the subset. So the 12,000 are ordered by what they are expected to
cost and cut into strata of 200, and two are drawn from each: the spread between the two tells how far off the
extrapolated total may be.

The rival is a simulator written by hand in C++ for the same model, without protocol objects. Its source is
not here. Its figures, from a machine of two loaded cores, are constants below: 120 processor seconds for all
runs, 319 million hops at 2.3 to 3.4 million a second. They cannot be measured again in this run; to tell the
mood of the machine, CoordP's round of `make bench-sim` is measured before and after.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from antiphon.core.recording import Recorder
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.scenarios import find_scenario
from antiphon.sim.scenarios.coordp import CoordPRound, CoordPStudy
from antiphon.sim.scenarios.gossip import SCENARIO as GOSSIP
from antiphon.spark.session import spark_session
from antiphon.spark.sweep import Job, job, sweep
from antiphon.studies.guo.grids import FIXED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARE: Final = 100
"""One of how many runs is done."""
DRAWN_PER_STRATUM: Final = 2
WARM_UP_RUNS: Final = 60
REFERENCE_S: Final = 120.0
REFERENCE_HOPS: Final = 319_000_000
REFERENCE_HOPS_PER_S: Final = (2_300_000, 3_400_000)
AIM: Final = 3.0
AT_MOST: Final = 10.0
"""How many times the reference's processor time all runs may take."""
MOOD_ROUNDS: Final = 200
SIM_BENCH_HOPS_PER_S: Final = 1_600_000
"""What CoordP's round does on the machine of docs/benchmarks.md when it is quiet."""


def timed(scenario: Scenario) -> Scenario:
    """The same scenario with a metric more: the processor time that its run took."""

    def run(configuration: Any, seed: int, recorder: Recorder | None) -> Metrics:
        began = time.process_time()
        metrics = scenario.run(configuration, seed, recorder)
        return metrics | {"processor_s": time.process_time() - began}

    return replace(scenario, run=run)


TIMED: Final = timed(GOSSIP)
NAME: Final = f"{Path(__file__).stem}:TIMED"
"""Under this name workers find the scenario, with this folder among those that Python looks in."""


@dataclass(frozen=True)
class Stratum:
    """Runs of about one cost, how many there are and which are done."""

    runs: int
    drawn: tuple[Job, ...]


def all_jobs() -> list[Job]:
    """The study's runs, the cheapest first."""
    jobs = [replace(each, scenario=NAME) for each in FIXED.jobs("full")]
    scenario = find_scenario(NAME)

    def expected(each: Job) -> tuple[float, str, int]:
        cost_s = scenario.cost_s(scenario.configure(json.loads(each.parameters)))
        return cost_s, each.parameters, each.seed

    return sorted(jobs, key=expected)


def draw(jobs: Sequence[Job], share: int, random: Random) -> list[Stratum]:
    size = DRAWN_PER_STRATUM * share
    strata = [jobs[first : first + size] for first in range(0, len(jobs), size)]
    return [Stratum(len(runs), tuple(random.sample(runs, DRAWN_PER_STRATUM))) for runs in strata]


def do_runs(spark: "SparkSession", jobs: Sequence[Job]) -> dict[str, dict[str, float]]:
    """Sweep the runs; each one's metrics by its key."""
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as folder:
        result = sweep(spark, jobs, Path(folder))
        rows = pq.read_table(folder, columns=["key", "metrics", "error"]).to_pylist()
    if result.errors:
        raise SystemExit(next(row["error"] for row in rows if row["error"]))
    return {row["key"]: dict(row["metrics"]) for row in rows}


def warm_up(spark: "SparkSession", jobs: Sequence[Job], random: Random) -> None:
    """Runs with seeds that the study does not have."""
    drawn = random.sample(jobs, WARM_UP_RUNS)
    do_runs(spark, [job(NAME, json.loads(each.parameters), 1000 + each.seed) for each in drawn])


def extrapolate(strata: Sequence[Stratum], value_of: Callable[[Job], float]) -> tuple[float, float]:
    """The total over all runs, and its standard error."""
    total = variance = 0.0
    for stratum in strata:
        values = [value_of(each) for each in stratum.drawn]
        total += stratum.runs * statistics.fmean(values)
        unseen = 1 - len(values) / stratum.runs
        variance += stratum.runs**2 * unseen * statistics.variance(values) / len(values)
    return total, math.sqrt(variance)


def mood() -> float:
    """Hops per processor second of CoordP's round, set-up left out, as `make bench-sim` has it."""
    times: list[float] = []
    hops = 0
    for _ in range(MOOD_ROUNDS):
        simulated = CoordPRound(CoordPStudy(members=500, senders=50, until="first"), seed=1)
        began = time.process_time()
        simulated.run()
        times.append(time.process_time() - began)
        hops = simulated.network.network_messages()
    return hops / statistics.median(times)


def measure(master: str, share: int, seed: int) -> dict[str, Any]:
    random = Random(seed)
    jobs = all_jobs()
    strata = draw(jobs, share, random)
    drawn = [each for stratum in strata for each in stratum.drawn]
    mood_before = mood()
    with spark_session(master, app_name="bench-gossip") as spark:
        warm_up(spark, jobs, random)
        began = time.perf_counter()
        done = do_runs(spark, drawn)
        wall_s = time.perf_counter() - began
    used_s = sum(run["processor_s"] for run in done.values())
    hops = sum(run["hop_messages"] for run in done.values())
    total_s, error_s = extrapolate(strata, lambda each: done[each.key]["processor_s"])
    total_hops, error_hops = extrapolate(strata, lambda each: done[each.key]["hop_messages"])
    return {
        "seed": seed,
        "runs": len(drawn),
        "of": len(jobs),
        "unfinished": sum(1 for run in done.values() if not run["finished"]),
        "wall_s": wall_s,
        "runs_per_s": len(drawn) / wall_s,
        "processor_s": used_s,
        "hop_messages": int(hops),
        "hops_per_processor_s": hops / used_s,
        "total_processor_s": total_s,
        "total_processor_s_error": error_s,
        "total_hop_messages": total_hops,
        "total_hop_messages_error": error_hops,
        "total_wall_s": len(jobs) * wall_s / len(drawn),
        "reference_processor_s": REFERENCE_S,
        "ratio": total_s / REFERENCE_S,
        "coordp_hops_per_s": {"before": mood_before, "after": mood()},
    }


def table(figures: dict[str, Any]) -> str:
    slow, fast = REFERENCE_HOPS_PER_S
    ratio, moods = figures["ratio"], figures["coordp_hops_per_s"]
    error_s, error_hops = figures["total_processor_s_error"], figures["total_hop_messages_error"]
    verdict = "reached" if ratio <= AIM else "not reached"
    lines = (
        ("runs a second, on two cores", f"{figures['runs_per_s']:.1f}", f"{figures['wall_s']:.1f} s in all"),
        ("processor seconds", f"{figures['processor_s']:.2f}", f"{figures['unfinished']} runs unfinished"),
        ("hops", f"{figures['hop_messages']:,}", ""),
        (
            "hops a processor second",
            f"{figures['hops_per_processor_s']:,.0f}",
            f"the reference: {slow:,} to {fast:,}",
        ),
        (
            "all runs: processor seconds",
            f"{figures['total_processor_s']:.0f}",
            f"standard error {error_s:.0f}; {figures['total_wall_s']:.0f} s of waiting at this pace",
        ),
        (
            "all runs: million hops",
            f"{figures['total_hop_messages'] / 1e6:.0f}",
            f"standard error {error_hops / 1e6:.0f}; the reference: {REFERENCE_HOPS / 1e6:.0f}",
        ),
        (
            "ratio to the reference",
            f"{ratio:.2f}",
            f"its {REFERENCE_S:.0f} s are from another day; the aim is {AIM:.0f}: {verdict}",
        ),
        (
            "mood: CoordP's hops a second",
            f"{moods['before']:,.0f}",
            f"{moods['after']:,.0f} afterwards; about {SIM_BENCH_HOPS_PER_S:,} when the machine is quiet",
        ),
    )
    head = f"Gossip, n=200, m=50: {figures['runs']} of the {figures['of']:,} runs, seed {figures['seed']}"
    return "\n".join([head, *(f"  {words:<28} {value:>12}  {more}".rstrip() for words, value, more in lines)])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seed", type=int, default=1, help="which runs are drawn (default 1)")
    parser.add_argument("--share", type=int, default=SHARE, help="do one in this many runs (default 100)")
    parser.add_argument("--master", default="local[2]", help="Spark master (default local[2])")
    options = parser.parse_args()
    # Spark's workers inherit this: they must find this module to find the scenario that it times.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).resolve().parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    figures = measure(options.master, options.share, options.seed)
    print(json.dumps(figures) if options.json else table(figures))
    return 0 if figures["ratio"] <= AT_MOST else 1


if __name__ == "__main__":
    sys.exit(main())
