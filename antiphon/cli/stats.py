"""`antiphon stats TRACE…`: what a trace tells about speed, and who is slow."""

from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from cyclopts import Parameter

from antiphon.cli.audit import EMBEDDED
from antiphon.cli.console import data, print_json, say, starting_spark, status
from antiphon.core.errors import UsageError
from antiphon.core.extras import require_extra
from antiphon.report.escape import clean
from antiphon.timing.local import is_small, measure_locally
from antiphon.timing.summary import ClockModel, RunStats, Statistics
from antiphon.trace.files import open_trace

CLOCKS_SHOWN: Final = 8
"""Clocks that are printed; --json has all."""


def stats(
    path: Annotated[str, Parameter(help="a folder that holds events/ and runs/")],
    /,
    *,
    clocks: Annotated[
        ClockModel, Parameter(help="estimate the clocks' offsets from the messages, or trust the clocks")
    ] = "estimate",
    run: Annotated[str | None, Parameter(help="only the run of this name")] = None,
    report: Annotated[Path | None, Parameter(help="write a page with plots into this folder")] = None,
    engine: Annotated[
        Literal["auto", "local", "spark"],
        Parameter(help="measure in this process, on Spark, or where it takes less time"),
    ] = "auto",
    master: Annotated[str, Parameter(help="the Spark master")] = EMBEDDED,
    json: Annotated[bool, Parameter(help="print one JSON object", negative=())] = False,
) -> int:
    """Measure a trace: latencies, throughput, who was last, buffers, presence; and name who is slow.

    Offsets of the members' clocks are estimated from the messages themselves, with their uncertainty. What
    the trace has no evidence for is said.

    Example: antiphon stats out/trace --report out/stats
    """
    open_trace(path)
    found = _measured(path, clocks, engine, master)
    if run is not None:
        found = Statistics([each for each in found.runs if each.run == run])
        if not found.runs:
            raise UsageError(f"The trace has no run '{run}'.", hint="Without --run all runs are measured.")
    if json:
        print_json(msgspec.to_builtins(found))
    else:
        for each in found.runs:
            _print(each)
    if report is not None:
        require_extra("report", "The page of 'antiphon stats' needs")
        from antiphon.report.site import write_site
        from antiphon.report.timing import timing_site

        say(f"The page is {write_site(timing_site(found, path), report)}.")
    return 0


def _measured(path: str, clocks: ClockModel, engine: str, master: str) -> Statistics:
    if engine == "local" or (engine == "auto" and master == EMBEDDED and is_small([path])):
        return measure_locally([path], clocks)
    require_extra("spark", "'antiphon stats' of a large trace needs")
    from antiphon.spark.stats import stats as measure_on_spark

    with starting_spark(master) as spark, status("Measuring ..."):
        return measure_on_spark(spark, path, clocks).summary


def _print(run: RunStats) -> None:
    from rich.table import Table

    def number(value: float | None, digits: int = 3) -> str:
        return "-" if value is None else f"{value:,.{digits}g}" if value < 1000 else f"{value:,.0f}"

    facts = f"{run.sites} sites, {run.sends} sends, {run.deliveries} deliveries in {run.seconds:.3g} s"
    data.print(f"run {run.run}: {facts}; latencies in ms, medians", markup=False)
    table = Table("member", box=None, pad_edge=False)
    for name in ("per s", "in", "out", "both", "stable", "last", "behind", "kept"):
        table.add_column(name, justify="right")
    for member in run.members:
        table.add_row(
            clean(member.site), number(member.per_second), number(member.in_ms), number(member.out_ms),
            number(member.loop_ms), number(member.stable_ms), str(member.last), number(member.behind_ms),
            "-" if member.buffered_most is None else str(member.buffered_most),
        )  # fmt: skip
    data.print(table, markup=False)
    known = [
        f"{clock.site} {clock.offset_ms:+.3f} ± {clock.uncertainty_ms:.3f}"
        for clock in run.clocks
        if clock.offset_ms is not None and clock.uncertainty_ms is not None and clock.site != run.reference
    ]
    if known:
        more = "" if len(known) <= CLOCKS_SHOWN else f" and {len(known) - CLOCKS_SHOWN} more"
        shown = ", ".join(known[:CLOCKS_SHOWN])
        data.print(clean(f"clocks ahead of {run.reference}, in ms: {shown}{more}"), markup=False)
    for slow in run.slow:
        data.print(clean(slow.sentence), markup=False)
    if not run.slow and any(member.in_ms is not None for member in run.members):
        data.print("No member is slow.", markup=False)
    for sentence in run.cannot_tell:
        say(sentence)
