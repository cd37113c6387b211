"""A small report with something of everything, for the tests of the page and for looking at it.

`python -m tests.report.samples FOLDER` writes it.
"""

import math
import sys
from pathlib import Path

from antiphon.check.checkers import check_trace
from antiphon.check.verdict import Verdict, count_by_property
from antiphon.core.recording import PROPERTIES
from antiphon.report.diagram import layout
from antiphon.report.model import AuditReport, Site, ViolationReport
from antiphon.report.site import write_site
from antiphon.report.svg import to_svg
from antiphon.report.text import to_text
from antiphon.studies.model import Claim, Figure, Panel, Section, Series, Table
from tests.histories import history

MEMBERS = (50.0, 100.0, 200.0, 300.0, 400.0, 500.0)

BROKEN_CHOIR = """
expect: total 1
alto: !alto0 alto0 tenor0 bass0 !alto1 alto1
bass: !bass0 alto0 tenor0 bass0 alto1
soprano: tenor0 alto0 - + bass0 alto1
tenor: !tenor0 alto0 tenor0 bass0 alto1
"""

LOST_LINE = """
expect: atomicity 1
alto: !alto0 alto0 !alto1 alto1 !alto2 alto2
bass: alto0 alto2
tenor: alto0 alto1 alto2
"""


def sample_site() -> Site:
    return Site(
        title="Antiphon",
        subtitle="Many voices, one order",
        generated="Written by the tests from two small histories.",
        claims=_claims(),
        figures=(_round_times(), _hop_messages()),
        audits=(
            sample_audit("A choir that disagrees", BROKEN_CHOIR),
            sample_audit("A lost line", LOST_LINE),
            _clean(),
        ),
        sections=(_section(),),
    )


def sample_audit(title: str, text: str) -> AuditReport:
    """The audit report of one history, with a diagram for each violation."""
    events, run, _ = history(text, "rehearsal")
    violations = check_trace(events, run)
    reports = []
    for violation in violations:
        diagram = layout(events, violation)
        reports.append(ViolationReport(violation, to_svg(diagram), to_text(diagram)))
    return AuditReport(
        title=title,
        verdict=Verdict.FAIL if violations else Verdict.PASS,
        runs=1,
        sites=len({event.site for event in events}),
        sends=sum(event.kind == "send" for event in events),
        deliveries=sum(event.kind == "deliver" for event in events),
        counts=count_by_property(violations),
        promised=set(PROPERTIES),
        command="antiphon audit out/rehearsal --json",
        violations=reports,
    )


def _clean() -> AuditReport:
    counts = dict.fromkeys(PROPERTIES, 0)
    return AuditReport(
        "Fixed sequencer under loss, delay and partition",
        Verdict.PASS,
        100,
        700,
        50_000,
        350_000,
        counts,
        {"integrity", "duplicate", "fifo", "total"},
        "antiphon audit out/demo/trace",
    )


def _claims() -> list[Claim]:
    return [
        Claim(
            id="G13",
            paper="Guo",
            where="figs 5.12-5.15, table 5.2",
            statement="Messages on all hops grow as n log n under CoordP (dense).",
            theirs="n log n",
            ours="exponent 1.02 of n log n",
            interval="0.99 to 1.05 (95%)",
            verdict="reproduced",
            command="antiphon sweep coordp --only G13 --seeds 20",
        ),
        Claim(
            id="G14",
            paper="Guo",
            where="fig. 5.16",
            statement="The mean queue of CoordP grows with n.",
            theirs="grows",
            ours="grows, then levels off at n = 400",
            verdict="not reproduced",
            reason="The coordinator's link is saturated from n = 400 on, so that queues shift to the hosts.",
            command="antiphon sweep coordp --only G14",
        ),
        Claim(
            id="G17",
            paper="Guo",
            where="figs 5.19-5.21",
            statement="S_CoordP is 25 times better than CoordP at n = 500.",
            theirs="25",
        ),
        Claim(
            id="K1",
            paper="Konorski",
            where="obs. 1-3",
            statement="Linearisation keeps the graph consistent with the true order.",
            theirs="always",
            ours="0 violations in 12 000 runs",
            verdict="reproduced",
            command="antiphon sweep dpg --only K1",
        ),
        Claim(
            id="J2",
            paper="Jia & So",
            where="figs 2-4",
            statement="The worked example's meta-groups are found.",
        ),
    ]


def _round_times() -> Figure:
    def grown(factor: float) -> list[float]:
        return [factor * n for n in MEMBERS]

    panel = Panel(
        x_label="members",
        y_label="time per round (s)",
        series=(
            Series("CoordP", MEMBERS, grown(0.06), grown(0.05), grown(0.072)),
            Series("FullDist", MEMBERS, grown(0.064), grown(0.05), grown(0.08)),
            Series("Train", MEMBERS, grown(0.2), grown(0.19), grown(0.21)),
            Series("Gossip", MEMBERS, (5, 9, 18, math.nan, 40, 47)),
        ),
    )
    return Figure(
        id="tpr",
        title="Time per round, dense groups",
        caption="Fifty senders, twenty seeds; whiskers are 95% intervals.",
        panels=(panel,),
    )


def _hop_messages() -> Figure:
    panel = Panel(
        x_label="members",
        y_label="messages",
        series=(
            Series("CoordP", MEMBERS, [n * math.log2(n) for n in MEMBERS]),
            Series("FullDist", MEMBERS, [n * n for n in MEMBERS]),
            Series("Train", MEMBERS, [3 * n for n in MEMBERS]),
        ),
        log_x=True,
        log_y=True,
    )
    return Figure(
        id="hops", title="Messages on all hops", caption="Both axes are logarithmic.", panels=(panel,)
    )


def _section() -> Section:
    table = Table(
        columns=("protocol", "hop events a second", "ratio"),
        rows=(("Antiphon's kernel", "12 400 000", "62.0"), ("SimPy", "200 000", "1.0")),
        caption="CoordP round, n = 500, dense.",
    )
    return Section(
        title="Benchmarks", text="Measured on two cores.\n\nCaveats are in bench/.", tables=(table,)
    )


if __name__ == "__main__":
    print(write_site(sample_site(), Path(sys.argv[1])))
