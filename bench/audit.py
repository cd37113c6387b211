"""How fast the audit is, beside DuckDB and Polars doing a part of its work on the same files in the same run.

Ten sites deliver the same messages in one order, but for 100 pairs of neighbours that one site swaps. Each
site's log is one Parquet file with its send rows, as a live member writes it. The audit judges all seven
properties of every message. DuckDB and Polars judge total order alone, in the way that is quickest for them:
the first site's deliveries are the reference, every other site's are joined to it, and a window looks for
places that go down. That finds a swap only among messages that the reference site delivered, and would blame
every other site for a swap at the reference itself, so the swaps are planted elsewhere; the audit has no such
limits.

For each size the contestants take turns, and the median of the repeats counts. Then one message comes half a
run late at one site, at the middle size; then a trace of 1,000 rows is judged by the command line, from its
start to the verdict. Spark's start-up is told apart: a session is started once, warms up with a small trace,
and serves many audits.
Memory is the sum over all processes of what each holds, shared pages divided among those that share them.
Caveats: the files are read from the page cache, by all; one machine.

    make bench-audit                                            # 10^7, 10^8 and 10^9 deliveries
    python bench/audit.py --deliveries 1e6                      # a quick look
    python bench/audit.py --deliveries 1e7 1e8 --repeats 3
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.audit.windows.planning import WINDOWED_ROWS
from antiphon.core.ids import site_names
from antiphon.core.recording import PROPERTIES
from antiphon.spark import audit as spark_audit
from antiphon.spark.audit import audit
from antiphon.spark.session import spark_session
from antiphon.trace.files import parquet_options, write_trace
from antiphon.trace.schema import Run

SITES: Final = 10
SWAPS: Final = 100
SEED: Final = 1
BLOCK: Final = SITES << 16
"""Messages that are written at once: a multiple of `2 * SITES`, so that a swap lies within a block."""
ROW_GROUP: Final = 1 << 20
SMALL_ROWS: Final = 1_000
WARMING: Final = 4_000
"""Messages of the trace that warms up."""

GROWTH: Final = 1.05
LARGEST_S: Final = 360.0
LARGEST_GB: Final = 4.0
LATE: Final = 2.0
SMALL_S: Final = 1.0
"""The targets: time grows by this power of the deliveries at most; 10^9 deliveries within this time and
memory; a straggler costs this factor at most; 1,000 rows to a verdict."""

TOTAL_ORDER_SQL: Final = """
with deliveries as (
    select site, step, sender, number from read_parquet('{files}') where kind = 'deliver'
), reference as (
    select sender, number, row_number() over (order by step) as place from deliveries where site = '{site}'
), placed as (
    select deliveries.site, deliveries.step, reference.place
    from deliveries join reference using (sender, number)
), compared as (
    select place, lag(place) over (partition by site order by step) as before from placed
)
select count(*) from compared where place < before
"""


# The trace


def planted_swaps(messages: int) -> dict[int, list[int]]:
    """For each site the places whose message it swaps with the next one, all of them apart.

    Never at the reference site, and never a message of the swapping site's own, so that each swap breaks
    total and causal order exactly once.
    """
    draw = random.Random(SEED)
    swaps: dict[int, list[int]] = {site: [] for site in range(SITES)}
    for slot in draw.sample(range(messages // (2 * SITES)), SWAPS):
        site = draw.randrange(1, SITES)
        # Message i is sent by site i mod SITES; the pair (site + 1, site + 2) is of two others.
        swaps[site].append(slot * 2 * SITES + (site + 1) % SITES)
    return swaps


def straggler(site: int, messages: int) -> tuple[int, int] | None:
    """The message that the last site delivers half a run late, and the place where it does."""
    if site != SITES - 1:
        return None
    late = messages // 4 // SITES * SITES
    return late, late + messages // 2


def block_of(site: int, first: int, last: int, swaps: Any, late: tuple[int, int] | None) -> tuple[Any, Any]:
    """One stretch of a site's log: which rows are sends, and their messages. A site's send stands before the
    place of the message in the common order, so also before a swapped pair."""
    order = np.arange(first, last)
    at = swaps[(swaps >= first) & (swaps < last)] - first
    order[at], order[at + 1] = order[at + 1], order[at]
    own = np.arange(first + (site - first) % SITES, last, SITES)
    positions = own - first
    if late is not None and first <= late[0] < last:
        order = order[order != late[0]]
        positions = np.where(positions > late[0] - first, positions - 1, positions)
    if late is not None and first <= late[1] < last:
        order = np.insert(order, late[1] - first, late[0])
        positions = np.where(positions > late[1] - first, positions + 1, positions)
    is_send = np.zeros(len(order) + len(own), np.bool_)
    is_send[positions + np.arange(len(own))] = True
    log = np.empty(len(is_send), np.int64)
    log[is_send], log[~is_send] = own, order
    return is_send, log


def write_site(folder: str, site: int, messages: int, swaps: list[int], late: bool) -> None:
    """One site's log; columns without values are left out, as the schema allows."""
    names = pa.array(site_names(SITES))
    kinds = pa.array(["deliver", "send"])
    constants = {"run": pa.array(["bench"]), "site": names[site : site + 1]}
    text = pa.dictionary(pa.int8(), pa.string())
    types = {
        "run": text,
        "site": text,
        "step": pa.int64(),
        "kind": text,
        "sender": text,
        "number": pa.int64(),
    }
    schema = pa.schema(list(types.items()))
    places, moved = np.array(sorted(swaps), np.int64), straggler(site, messages) if late else None
    step = 0
    file = f"{folder}/part-{site:05d}.parquet"
    with pq.ParquetWriter(file, schema, **parquet_options(schema)) as writer:
        for first in range(0, messages, BLOCK):
            is_send, log = block_of(site, first, min(first + BLOCK, messages), places, moved)
            rows = len(log)
            zeros = np.zeros(rows, np.int8)
            columns = [
                pa.DictionaryArray.from_arrays(zeros, constants["run"]),
                pa.DictionaryArray.from_arrays(zeros, constants["site"]),
                pa.array(np.arange(step, step + rows)),
                pa.DictionaryArray.from_arrays(is_send.astype(np.int8), kinds),
                pa.DictionaryArray.from_arrays((log % SITES).astype(np.int8), names),
                pa.array(log // SITES),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=ROW_GROUP)
            step += rows


def make_trace(folder: Path, messages: int, late: bool = False) -> None:
    """A trace in which every site has a file, written by as many processes as there are cores."""
    run = Run("bench", promises=("integrity", "duplicate", "atomicity", "fifo", "causal", "total"))
    write_trace(folder, [], [run])
    swaps = planted_swaps(messages)
    work = [(str(folder / "events"), site, messages, swaps[site], late) for site in range(SITES)]
    with multiprocessing.get_context("spawn").Pool(min(os.cpu_count() or 1, SITES)) as pool:
        pool.starmap(write_site, work, chunksize=1)


# The contestants


class PeakMemory:
    """Watches how much memory this process and all that descend from it hold together, from a thread."""

    def __init__(self) -> None:
        self.peak_gb = 0.0
        self.workers_gb = 0.0
        """The most that Spark's Python workers held."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            held = {process: _held_gb(process) for process in _family()}
            workers = sum(size for process, size in held.items() if _is_worker(process))
            self.peak_gb = max(self.peak_gb, sum(held.values()))
            self.workers_gb = max(self.workers_gb, workers)


def _family() -> set[int]:
    """This process and its descendants."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(status.parent.name))
    family, queue = set[int](), [os.getpid()]
    while queue:
        process = queue.pop()
        family.add(process)
        queue += children.get(process, [])
    return family


def _held_gb(process: int) -> float:
    """What a process holds; pages that several share are divided among them."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    line = next((line for line in text.splitlines() if line.startswith("Pss:")), "Pss: 0")
    return int(line.split()[1]) / 1024**2


def _is_worker(process: int) -> bool:
    try:
        return b"pyspark.daemon" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def judge_with_duckdb(folder: Path) -> int:
    query = TOTAL_ORDER_SQL.format(files=folder / "events" / "*.parquet", site=site_names(SITES)[0])
    with duckdb.connect() as connection:
        answer = connection.execute(query).fetchone()
    assert answer is not None
    return int(answer[0])


def judge_with_polars(folder: Path) -> int:
    rows = pl.scan_parquet(str(folder / "events" / "*.parquet")).filter(pl.col("kind") == "deliver")
    deliveries = rows.select(pl.col("site", "sender").cast(pl.String), "step", "number")
    reference = deliveries.filter(pl.col("site") == site_names(SITES)[0]).sort("step")
    reference = reference.select("sender", "number").with_row_index("place")
    placed = deliveries.join(reference, on=["sender", "number"]).sort("site", "step")
    before = pl.col("place").shift(1).over("site")
    found = placed.filter(pl.col("place") < before).select(pl.len())
    return int(found.collect(engine="streaming").item())


Rivals = dict[str, Callable[[Path], int]]


def timed(judge: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    found = judge()
    return time.perf_counter() - began, found


# What is measured


def measure(
    spark: Any, deliveries: int, repeats: int, rivals: dict[str, Callable[[Path], int]]
) -> dict[str, Any]:
    """The contestants by turns over one trace; the folder is removed afterwards."""
    messages = deliveries // SITES
    with Workplace() as folder:
        made_s, _ = timed(lambda: make_trace(folder / "trace", messages))
        seconds: dict[str, list[float]] = {name: [] for name in ("audit", *rivals)}
        found: dict[str, Any] = {}
        peak_gb = workers_gb = 0.0
        for _ in range(repeats):
            with PeakMemory() as memory:
                spent, result = timed(lambda: audit(spark, [folder / "trace"]))
            peak_gb, workers_gb = max(peak_gb, memory.peak_gb), max(workers_gb, memory.workers_gb)
            seconds["audit"].append(spent)
            found["audit"] = {str(name): count for name, count in result.violations.items()}
            for name, judge in rivals.items():
                spent, found[name] = timed(lambda judge=judge: judge(folder / "trace"))  # type: ignore[misc]
                seconds[name].append(spent)
        size_gb = sum(file.stat().st_size for file in (folder / "trace" / "events").iterdir()) / 1e9
    taken = {name: statistics.median(spent) for name, spent in seconds.items()}
    return {
        "deliveries": deliveries,
        "windows": deliveries + messages >= WINDOWED_ROWS,
        "trace_gb": round(size_gb, 2),
        "trace_made_s": round(made_s, 1),
        "seconds": {name: round(spent, 2) for name, spent in taken.items()},
        "audit_first_s": round(seconds["audit"][0], 2),
        "deliveries_per_s": {name: round(deliveries / spent) for name, spent in taken.items()},
        "ratios": {name: round(taken["audit"] / taken[name], 2) for name in rivals},
        "peak_gb": round(peak_gb, 2),
        "workers_gb": round(workers_gb, 2),
        "found": found,
        "exact": found["audit"] == expected() and all(found[name] == SWAPS for name in rivals),
    }


def expected() -> dict[str, int]:
    return {**dict.fromkeys(PROPERTIES, 0), "causal": SWAPS, "total": SWAPS}


def warm_up(spark: Any) -> float:
    """Judge a small trace in one task and in windows, so that no size pays for Java's and Python's start."""
    began = time.perf_counter()
    with Workplace() as folder:
        make_trace(folder / "trace", WARMING)
        audit(spark, [folder / "trace"])
        with patch.object(spark_audit, "WINDOWED_ROWS", 1):
            audit(spark, [folder / "trace"])
    return time.perf_counter() - began


def measure_late(spark: Any, deliveries: int) -> dict[str, Any]:
    """The same run with and without a message half a run late, one after the other."""
    spent: dict[str, float] = {}
    found: dict[str, int] = {}
    for name in ("usual", "late"):
        with Workplace() as folder:
            make_trace(folder / "trace", deliveries // SITES, late=name == "late")
            spent[name], result = timed(lambda place=folder: audit(spark, [place / "trace"]))  # type: ignore[misc]
            found[name] = result.violations["total"]
    return {
        "deliveries": deliveries,
        "usual_s": round(spent["usual"], 2),
        "late_s": round(spent["late"], 2),
        "ratio": round(spent["late"] / spent["usual"], 2),
        "knots": found,
    }


def measure_small(repeats: int) -> dict[str, Any]:
    """The command line from its start to the verdict on about 1,000 rows, after a call that warms up."""
    rows = SMALL_ROWS // (SITES + 1)
    with Workplace() as folder:
        run = Run("bench", promises=("fifo", "total"))
        write_trace(folder / "trace", [], [run])
        for site in range(SITES):
            write_site(str(folder / "trace" / "events"), site, rows, [], False)
        command = [sys.executable, "-m", "antiphon", "audit", str(folder / "trace"), "--json"]
        spent = [
            timed(lambda: subprocess.run(command, check=True, capture_output=True))[0]
            for _ in range(repeats + 1)
        ][1:]
    return {"rows": rows * (SITES + 1), "seconds": round(statistics.median(spent), 2)}


class Workplace:
    """A folder that is removed at the end."""

    def __enter__(self) -> Path:
        self._folder = Path(tempfile.mkdtemp(prefix="antiphon-bench-"))
        return self._folder

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder)


def growth_of(sizes: list[dict[str, Any]]) -> list[float]:
    """By which power of the deliveries the audit's time grows, from each size to the next."""
    return [
        round(
            math.log(large["seconds"]["audit"] / small["seconds"]["audit"])
            / math.log(large["deliveries"] / small["deliveries"]),
            3,
        )
        for small, large in pairwise(sizes)
    ]


def targets(figures: dict[str, Any]) -> dict[str, bool]:
    """Which of the targets that apply to these sizes are met."""
    met = {"exact": all(size["exact"] for size in figures["sizes"])}
    met[f"1,000 rows in under {SMALL_S:g} s"] = figures["small"]["seconds"] < SMALL_S
    windowed = [size for size in figures["sizes"] if size["windows"]]
    if len(windowed) > 1:
        met[f"growth exponent at most {GROWTH}"] = max(growth_of(windowed)) <= GROWTH
    if figures["late"] is not None:
        met[f"a straggler costs at most {LATE:g} times"] = figures["late"]["ratio"] <= LATE
    for size in figures["sizes"]:
        if size["deliveries"] == 10**8 and "duckdb" in size["ratios"]:
            met["faster than DuckDB at 10^8"] = size["ratios"]["duckdb"] < 1
        if size["deliveries"] == 10**9:
            met[f"10^9 within {LARGEST_S:g} s"] = size["seconds"]["audit"] <= LARGEST_S
            met[f"10^9 within {LARGEST_GB:g} GB over all workers"] = size["workers_gb"] <= LARGEST_GB
    return met


def tell(figures: dict[str, Any]) -> None:
    print(
        f"Spark started in {figures['spark_start_s']} s, warmed up in {figures['warming_s']} s; not counted."
    )
    for size in figures["sizes"]:
        way = "in windows" if size["windows"] else "in one task"
        print(f"{size['deliveries']:,} deliveries, {SITES} sites, {SWAPS} planted swaps; judged {way}")
        print(f"  trace {size['trace_gb']} GB, written in {size['trace_made_s']} s")
        for name, spent in size["seconds"].items():
            what = "all seven properties" if name == "audit" else "total order only"
            ratio = f"   audit takes {size['ratios'][name]} times as long" if name != "audit" else ""
            rate = size["deliveries_per_s"][name]
            print(f"  {name:7} {what:21} {spent:9.2f} s {rate:13,} deliveries/s{ratio}")
        print(
            f"  first audit {size['audit_first_s']} s; memory: {size['peak_gb']} GB over all processes, "
            f"{size['workers_gb']} GB over the Python workers"
        )
        print(f"  found {'exactly what was planted' if size['exact'] else size['found']}")
    if figures["growth"]:
        print(f"time grows with the power {', '.join(map(str, figures['growth']))} of the deliveries")
    if figures["late"] is not None:
        late = figures["late"]
        print(
            f"a message half a run late, {late['deliveries']:,} deliveries: {late['late_s']} s instead of "
            f"{late['usual_s']} s, ratio {late['ratio']}; knots {late['knots']}"
        )
    small = figures["small"]
    print(f"{small['rows']:,} rows to a verdict, by the command line: {small['seconds']} s")
    for target, met in figures["targets"].items():
        print(f"  {'met   ' if met else 'MISSED'}  {target}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--deliveries", type=float, nargs="+", default=[1e7, 1e8, 1e9], metavar="N")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument(
        "--rivals-up-to", type=float, default=1e8, metavar="N", help="beyond it they need too much memory"
    )
    parser.add_argument("--no-late", action="store_true", help="leave the straggler out")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sizes = sorted(int(size) // (2 * SITES) * (2 * SITES) for size in options.deliveries)
    began = time.perf_counter()
    with spark_session(app_name="bench-audit") as spark:
        start_s = time.perf_counter() - began
        warming_s = warm_up(spark)
        rivals: Rivals = {"duckdb": judge_with_duckdb, "polars": judge_with_polars}
        found = [
            measure(spark, size, options.repeats, rivals if size <= options.rivals_up_to else {})
            for size in sizes
        ]
        middle = sizes[(len(sizes) - 1) // 2]
        late = None if options.no_late else measure_late(spark, middle)
    figures: dict[str, Any] = {
        "spark_start_s": round(start_s, 2),
        "warming_s": round(warming_s, 2),
        "cores": os.cpu_count(),
        "sizes": found,
        "growth": growth_of(found),
        "late": late,
        "small": measure_small(options.repeats),
    }
    figures["targets"] = targets(figures)
    if options.json:
        print(json.dumps(figures))
    else:
        tell(figures)
    return 0 if all(figures["targets"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
