"""From results to a report: studies and audits in the report's terms."""

from collections.abc import Sequence
from pathlib import Path

from antiphon.check.verdict import Violation
from antiphon.core.ids import MessageId
from antiphon.core.recording import Property
from antiphon.report.diagram import Diagram, layout
from antiphon.report.model import AuditReport, Claim, FigureData, Series, ViolationReport
from antiphon.report.svg import to_svg
from antiphon.report.text import to_text
from antiphon.spark.audit import AuditResult
from antiphon.studies.model import Curve, Figure, Results, Study
from antiphon.studies.reproduce import JudgedClaim, scoreboard
from antiphon.trace.window import read_window


def claim_rows(claims: Sequence[JudgedClaim]) -> list[Claim]:
    return [
        Claim(verdict=judged.verdict, **{key: value for key, value in row.items() if key != "verdict"})
        for judged, row in zip(claims, scoreboard(claims), strict=True)
    ]


def figures_of(study: Study, results: Results) -> list[FigureData]:
    return [
        FigureData(
            id=f"{study.name}-{figure.id}",
            title=figure.title,
            caption=figure.caption,
            x_label=figure.x_label,
            y_label=figure.y_label,
            # A curve whose runs have all failed is left out; the sweep has told of them.
            series=[
                _series(figure, curve, results) for curve in figure.curves if results.matching(curve.where)
            ],
            log_x=figure.log_x,
            log_y=figure.log_y,
        )
        for figure in study.figures
    ]


def _series(figure: Figure, curve: Curve, results: Results) -> Series:
    points = results.curve(curve.where, figure.x, figure.y)
    return Series(
        name=curve.name,
        x=[float(x) for x, _ in points],
        y=[summary.mean for _, summary in points],
        low=[summary.low for _, summary in points],
        high=[summary.high for _, summary in points],
    )


def diagram_of(paths: Sequence[Path], violation: Violation) -> Diagram:
    """The space-time diagram around a violation, from just the rows that it needs."""
    places = [(witness.site, witness.step) for witness in violation.witness]
    messages = {MessageId(violation.sender, violation.number)}
    for witness in violation.witness:
        if witness.sender is not None and witness.number is not None:
            messages.add(MessageId(witness.sender, witness.number))
    return layout(read_window(paths, violation.run, places, messages), violation)


def audit_report(
    title: str,
    result: AuditResult,
    paths: Sequence[Path],
    promised: frozenset[Property],
    command: str,
    note: str = "",
) -> AuditReport:
    """What the audit found, with diagrams for the violations that are shown."""
    shown = []
    for violation in result.examples:
        diagram = diagram_of(paths, violation)
        shown.append(ViolationReport(violation, to_svg(diagram), to_text(diagram)))
    return AuditReport(
        title=title,
        verdict=result.verdict,
        runs=result.runs,
        sites=result.sites,
        sends=result.sends,
        deliveries=result.deliveries,
        counts=result.violations,
        promised=promised,
        command=command,
        violations=shown,
        note=note,
    )
