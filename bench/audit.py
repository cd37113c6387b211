"""How fast the audit is, beside DuckDB doing a part of its work on the same files in the same run.

Ten sites deliver 1,000,000 messages each, in one order but for 100 pairs of neighbours that one site swaps.
Each site's log is one Parquet file as `write_trace` makes it, with the send rows. The audit judges all seven
properties of every message. DuckDB judges total order alone, in the way that is quickest for it: the first
site's deliveries are the reference, every other site's are joined to it, and a window looks for places that
go down. That finds a swap only among messages that the reference site delivered, and would blame every other
site for a swap at the reference itself, so the swaps are planted elsewhere; the audit has no such limits.

The two alternate, and the median of the repeats counts. Spark's start-up is told apart: a session is started
once and serves many audits. Caveats: the files are read from the page cache, by both; one machine.

    make bench-audit                         # 10 sites x 1,000,000 messages
    python bench/audit.py --large            # and ten times as many, to see that time grows linearly
    python bench/audit.py --messages 50000   # a quick look
"""

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.core.ids import site_names
from antiphon.spark.audit import audit
from antiphon.spark.session import spark_session
from antiphon.trace.arrow import EVENTS
from antiphon.trace.files import write_trace
from antiphon.trace.schema import Run

SITES: Final = 10
SWAPS: Final = 100
SEED: Final = 1
ROWS_PER_WRITE: Final = 1 << 20

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


class PeakMemory:
    """Watches how much memory this process and all that descend from it hold together, from a thread."""

    def __init__(self) -> None:
        self.peak_gb = 0.0
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
            self.peak_gb = max(self.peak_gb, self._resident_gb())

    def _resident_gb(self) -> float:
        """The sum over the family; pages that forked processes share are counted more than once."""
        parents, resident = {}, {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = status.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            process = int(status.parent.name)
            parents[process], resident[process] = int(fields[1]), int(fields[21])
        family = {os.getpid()}
        for process in sorted(parents):
            if parents[process] in family:
                family.add(process)
        return sum(resident.get(process, 0) for process in family) * os.sysconf("SC_PAGE_SIZE") / 1024**3


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


def site_log(site: int, messages: int, swaps: list[int]) -> tuple[Any, Any]:
    """The kinds and messages of one site's log: each of its sends stands before that message's delivery."""
    order = np.arange(messages)
    at = np.array(swaps, np.int64)
    order[at], order[at + 1] = at + 1, at
    own = np.arange(site, messages, SITES)
    # The send goes before the place of the message in the common order, so also before a swapped pair.
    sent_before = np.zeros(messages, np.int64)
    sent_before[own] = 1
    places = np.arange(messages) + np.cumsum(sent_before)
    log = np.empty(messages + len(own), np.int64)
    is_send = np.ones(len(log), np.bool_)
    is_send[places] = False
    log[places] = order
    log[is_send] = own
    return is_send, log


def write_site(folder: Path, site: int, messages: int, swaps: list[int]) -> None:
    names = site_names(SITES)
    is_send, log = site_log(site, messages, swaps)
    kinds, senders = pa.array(["deliver", "send"]), pa.array(names)
    strings = [field.name for field in EVENTS if field.type == pa.string()]
    with pq.ParquetWriter(
        folder / f"part-{site:05d}.parquet", EVENTS, compression="zstd", use_dictionary=strings
    ) as writer:
        for begin in range(0, len(log), ROWS_PER_WRITE):
            part = log[begin : begin + ROWS_PER_WRITE]
            rows = len(part)
            columns = {
                "run": pa.repeat("bench", rows),
                "site": pa.repeat(names[site], rows),
                "step": pa.array(np.arange(begin, begin + rows)),
                "kind": kinds.take(pa.array(is_send[begin : begin + rows].astype(np.int8))),
                "sender": senders.take(pa.array(part % SITES)),
                "number": pa.array(part // SITES),
            }
            arrays = [columns.get(field.name, pa.nulls(rows, field.type)) for field in EVENTS]
            writer.write_table(pa.Table.from_arrays(arrays, schema=EVENTS))


def make_trace(folder: Path, messages: int) -> None:
    run = Run("bench", promises=("integrity", "duplicate", "atomicity", "fifo", "causal", "total"))
    write_trace(folder, [], [run])
    swaps = planted_swaps(messages)
    for site in range(SITES):
        write_site(folder / "events", site, messages, swaps[site])


def time_duckdb(folder: Path) -> tuple[float, int]:
    began = time.perf_counter()
    query = TOTAL_ORDER_SQL.format(files=folder / "events" / "*.parquet", site=site_names(SITES)[0])
    with duckdb.connect() as connection:
        answer = connection.execute(query).fetchone()
    assert answer is not None
    return time.perf_counter() - began, int(answer[0])


def time_audit(spark: Any, folder: Path) -> tuple[float, dict[str, int]]:
    began = time.perf_counter()
    result = audit(spark, [folder])
    return time.perf_counter() - began, {str(name): count for name, count in result.violations.items()}


def measure(spark: Any, messages: int, repeats: int) -> dict[str, Any]:
    """Alternate the two over one trace; the folder is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="antiphon-bench-"))
    try:
        make_trace(folder / "trace", messages)
        ours, theirs = [], []
        peak_gb = 0.0
        for _ in range(repeats):
            with PeakMemory() as memory:
                seconds, violations = time_audit(spark, folder / "trace")
            peak_gb = max(peak_gb, memory.peak_gb)
            ours.append(seconds)
            seconds, found = time_duckdb(folder / "trace")
            theirs.append(seconds)
    finally:
        shutil.rmtree(folder)
    deliveries = SITES * messages
    audit_s, duckdb_s = statistics.median(ours), statistics.median(theirs)
    return {
        "deliveries": deliveries,
        "audit_s": round(audit_s, 2),
        "audit_first_s": round(ours[0], 2),
        "duckdb_s": round(duckdb_s, 2),
        "audit_deliveries_per_s": round(deliveries / audit_s),
        "duckdb_deliveries_per_s": round(deliveries / duckdb_s),
        "ratio": round(audit_s / duckdb_s, 2),
        "audit_peak_gb": round(peak_gb, 1),
        "planted": SWAPS,
        "audit_found": violations,
        "duckdb_found": found,
        "exact": found == SWAPS and violations == _expected(),
    }


def _expected() -> dict[str, int]:
    found = dict.fromkeys(("integrity", "duplicate", "atomicity", "fifo", "causal", "total", "stability"), 0)
    return {**found, "causal": SWAPS, "total": SWAPS}


def tell(figures: dict[str, Any]) -> None:
    print(f"{figures['deliveries']:,} deliveries, {SITES} sites, {SWAPS} planted swaps")
    print(
        f"  audit, all seven properties   {figures['audit_s']:8.2f} s "
        f"{figures['audit_deliveries_per_s']:12,} deliveries/s   (first, with warming up: "
        f"{figures['audit_first_s']} s)"
    )
    print(
        f"  DuckDB, total order only      {figures['duckdb_s']:8.2f} s "
        f"{figures['duckdb_deliveries_per_s']:12,} deliveries/s"
    )
    print(
        f"  ratio {figures['ratio']} (target: at most 3); audit's memory, all processes together: at most "
        f"{figures['audit_peak_gb']} GB"
    )
    found = figures["audit_found"]
    print(
        f"  found: audit {found['total']} of total and {found['causal']} of causal order, DuckDB "
        f"{figures['duckdb_found']}; {'exactly those planted' if figures['exact'] else 'NOT those planted'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="also at ten times the size, once")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    began = time.perf_counter()
    with spark_session(app_name="bench-audit") as spark:
        start_s = time.perf_counter() - began
        all_figures = [measure(spark, options.messages, options.repeats)]
        if options.large:
            all_figures.append(measure(spark, 10 * options.messages, 1))
    growth = all_figures[-1]["audit_s"] / all_figures[0]["audit_s"] if options.large else None
    if options.json:
        print(json.dumps({"spark_start_s": round(start_s, 2), "sizes": all_figures, "growth": growth}))
    else:
        print(f"Spark started in {start_s:.1f} s, not counted below.")
        for figures in all_figures:
            tell(figures)
        if growth is not None:
            print(f"ten times the deliveries took {growth:.1f} times as long (linear: 10, at most 13)")
    good = all(figures["exact"] and figures["ratio"] <= 3 for figures in all_figures[:1])
    return 0 if good and (growth is None or growth <= 13) else 1


if __name__ == "__main__":
    sys.exit(main())
