"""The page of `antiphon stats`: who is slow, since when, and what that costs the others."""

import math
from collections.abc import Mapping, Sequence

from antiphon.report.model import Page, Site
from antiphon.studies.model import Figure, Panel, Section, Series, Table
from antiphon.timing.summary import Latency, RunStats, Statistics

RUNS_SHOWN = 12
"""Runs with a part of their own; the others are in the table of runs. Raising it makes the page longer."""
CURVES_SHOWN = 8
"""Members with a curve of their own: the slowest ones. A figure has eight colours."""
PAIRS_SHOWN = 20
"""Rows of the table of latencies, the slowest first."""


def timing_site(found: Statistics, path: str) -> Site:
    """The report: the first page has the answer, and each run a page of its own if there are several."""
    shown = sorted(found.runs, key=_urgency)[:RUNS_SHOWN]
    command = f"antiphon stats {path}"
    if len(found.runs) == 1:
        return Site(title="Who is slow?", subtitle=f"run {shown[0].run}", generated=f"Made by {command}.",
                    sections=_sections(shown[0]))  # fmt: skip
    pages = [
        Page(f"run-{place}", f"Run {run.run}", "Who is slow?", _sections(run))
        for place, run in enumerate(shown)
    ]
    return Site(
        title="Who is slow?", subtitle=f"{len(found.runs)} runs", generated=f"Made by {command}.",
        sections=[Section(title="Runs", tables=[_runs(found.runs)])], pages=pages,
    )  # fmt: skip


def _urgency(run: RunStats) -> tuple[float, str]:
    """Runs with the slowest members first."""
    return -max((each.latency_ms / each.others_ms for each in run.slow), default=0.0), run.run


def _runs(runs: Sequence[RunStats]) -> Table:
    rows = [
        [run.run, f"{run.seconds:.3g}", str(run.sites), str(run.deliveries),
         ", ".join(each.site for each in run.slow) or "-"]
        for run in sorted(runs, key=_urgency)
    ]  # fmt: skip
    return Table(columns=["run", "seconds", "sites", "deliveries", "slow"], rows=rows)


def _sections(run: RunStats) -> list[Section]:
    answer = [each.sentence for each in run.slow] or ["No member is slow."]
    facts = (
        f"{run.sites} sites sent {run.sends} messages and delivered {run.deliveries} in {run.seconds:.3g} s."
    )
    if run.skew is not None:
        facts += (
            f" From a message's first delivery to its last, {run.skew.p50_ms:.3g} ms passed in half of the "
            f"cases, and at most {run.skew.p99_ms:.3g} ms in 99 of 100."
        )
    sections = [
        Section(title="Who is slow, and since when", text="\n\n".join([*answer, facts]),
                figures=_latency_figure(run)),
        Section(title="What it costs", tables=[_members(run)], figures=_cost_figures(run)),
        Section(title="Latencies and clocks", text=CLOCKS, tables=[_clocks(run), *_latencies(run)]),
    ]  # fmt: skip
    if run.cannot_tell:
        sections.append(Section(title="What this trace cannot tell", text="\n\n".join(run.cannot_tell)))
    return sections


CLOCKS = (
    "Offsets of clocks are estimated from the messages: no message arrives before it was sent. A one-way "
    "latency is uncertain by as much as the offset; a round trip is not."
)


def _latency_figure(run: RunStats) -> list[Figure]:
    """The slowest members' latencies over time."""
    worst = sorted(run.over_time.latency_ms, key=lambda site: -_most(run.over_time.latency_ms[site]))
    if not worst:
        return []
    series = _curves(run, run.over_time.latency_ms, sorted(worst[:CURVES_SHOWN]))
    return [
        Figure(
            id="Figure 1", title="Latency over time",
            caption="Mean latency of what each member receives, by the time of the send.",
            panels=[Panel(x_label="time (s)", y_label="latency (ms)", log_y=True, series=series)],
        )
    ]  # fmt: skip


def _cost_figures(run: RunStats) -> list[Figure]:
    over = run.over_time
    panels = []
    for values, label in ((over.deliveries, "deliveries a second"), (over.buffered, "messages kept")):
        sites = sorted(values)[:CURVES_SHOWN]
        if sites:
            panels.append(
                Panel(title=label, x_label="time (s)", y_label=label, series=_curves(run, values, sites))
            )
    if not panels:
        return []
    return [
        Figure(
            id="Figure 2", title="Throughput and buffers over time",
            caption="Deliveries of each member, and messages that it keeps until they are stable.",
            panels=panels,
        )
    ]  # fmt: skip


def _curves(
    run: RunStats, values: Mapping[str, Sequence[float | None]], sites: Sequence[str]
) -> list[Series]:
    hues = {member.site: place for place, member in enumerate(run.members)}
    return [
        Series(
            name=site, x=run.over_time.seconds,
            y=[math.nan if value is None else float(value) for value in values[site]], hue=hues[site] % 8,
        )
        for site in sites
    ]  # fmt: skip


def _most(values: Sequence[float | None]) -> float:
    return max((value for value in values if value is not None), default=0.0)


def _members(run: RunStats) -> Table:
    columns = ["member", "deliveries/s", "in (ms)", "out (ms)", "round trip (ms)", "stable (ms)"]
    columns += ["times last", "behind (ms)", "most kept", "redelivered", "present", "absences"]
    rows = [
        [
            member.site, _figure(member.per_second), _figure(member.in_ms), _figure(member.out_ms),
            _figure(member.loop_ms), _figure(member.stable_ms), str(member.last), _figure(member.behind_ms),
            _figure(member.buffered_most), str(member.redelivered),
            "-" if member.present_share is None else f"{member.present_share:.1%}", str(member.absences),
        ]
        for member in sorted(run.members, key=lambda each: (-each.last * each.behind_ms, each.site))
    ]  # fmt: skip
    caption = "Medians. 'behind': how much later than all others, where the member was the last to deliver."
    return Table(title="Members", caption=caption, columns=columns, rows=rows)


def _clocks(run: RunStats) -> Table:
    rows = [[clock.site, _figure(clock.offset_ms), _figure(clock.uncertainty_ms)] for clock in run.clocks]
    caption = "All clocks were taken as equal." if not rows else f"Compared with {run.reference}."
    columns = ["member", "ahead by (ms)", "uncertain by (ms)"]
    return Table(title="Clocks", caption=caption, columns=columns, rows=rows)


def _latencies(run: RunStats) -> list[Table]:
    tables = []
    for kind in ("receive", "deliver", "stable"):
        own = [each for each in run.latency if each.kind == kind]
        if own:
            slowest = sorted(own, key=lambda each: -each.p50_ms)[:PAIRS_SHOWN]
            title = f"From send to {kind}"
            caption = "" if len(slowest) == len(own) else f"The slowest {len(slowest)} of {len(own)} pairs."
            columns = ["from", "to", "messages", "median (ms)", "99% (ms)", "mean (ms)", "uncertain by (ms)"]
            tables.append(
                Table(title=title, caption=caption, columns=columns, rows=[_pair(each) for each in slowest])
            )
    return tables


def _pair(latency: Latency) -> list[str]:
    return [
        latency.source, latency.target, str(latency.messages), _figure(latency.p50_ms),
        _figure(latency.p99_ms), _figure(latency.mean_ms), _figure(latency.uncertainty_ms),
    ]  # fmt: skip


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
