"""From results to a report: studies and audits in the report's terms."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from antiphon.check.verdict import Violation
from antiphon.core.errors import UsageError
from antiphon.core.ids import MessageId
from antiphon.core.recording import Property
from antiphon.report.diagram import Diagram, layout
from antiphon.report.model import (
    AuditReport,
    Claim,
    FigureData,
    Page,
    Plate,
    Section,
    Series,
    Table,
    ViolationReport,
)
from antiphon.report.svg import to_svg
from antiphon.report.text import to_text
from antiphon.spark.audit import AuditResult
from antiphon.studies.model import Figure, Panel, Results, Study
from antiphon.studies.model import Table as StudyTable
from antiphon.studies.reproduce import JudgedClaim, scoreboard
from antiphon.trace.window import read_window


def claim_rows(claims: Sequence[JudgedClaim]) -> list[Claim]:
    return [
        Claim(verdict=judged.verdict, **{key: value for key, value in row.items() if key != "verdict"})
        for judged, row in zip(claims, scoreboard(claims), strict=True)
    ]


def page_of(study: Study, results: Results, claims: Sequence[JudgedClaim]) -> Page:
    """A study's page: its sections as the paper has them. The claims' paper and command are on the first."""
    judged = claim_rows([one for one in claims if one.study is study])
    rows = {row.id: replace(row, paper="", command="") for row in judged}
    sections = [
        Section(
            title=section.title,
            text=section.text,
            tables=[table for table in (_table(table, results) for table in section.tables) if table],
            claims=[rows[claim.id] for claim in section.claims if claim.id in rows],
            figures=[_figure(figure, results) for figure in section.figures],
        )
        for section in study.sections
    ]
    return Page(name=study.name, title=study.title, subtitle=study.paper, sections=sections)


def _figure(figure: Figure, results: Results) -> FigureData | Plate:
    title = f"{figure.id}: {figure.title}"
    panels = [_panel(figure, panel, results) for panel in figure.panels]
    if len(panels) > 1:
        return Plate(figure.id, title, figure.caption, panels)
    return replace(panels[0], title=title)


def _panel(figure: Figure, panel: Panel, results: Results) -> FigureData:
    return FigureData(
        id=figure.id,
        title=panel.title,
        caption=figure.caption,
        x_label=panel.x_label,
        y_label=panel.y_label,
        series=[
            Series(line.name, line.x, line.y, line.low, line.high, line.dots, line.hue, line.is_calculated)
            for line in panel.lines(results)
        ],
        log_x=panel.log_x,
        log_y=panel.log_y,
    )


def _table(table: StudyTable, results: Results) -> Table | None:
    """A table whose runs have failed is left out; the sweep has told of them."""
    try:
        return Table(table.columns, table.rows(results), table.title, table.caption)
    except UsageError:
        return None


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
