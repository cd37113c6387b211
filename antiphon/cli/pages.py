"""Report pages made from the results of studies and audits."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from antiphon.audit.result import AuditResult
from antiphon.check.verdict import Violation
from antiphon.core.ids import MessageId
from antiphon.core.recording import Property
from antiphon.report.diagram import Diagram, layout
from antiphon.report.model import AuditReport, Page, ViolationReport
from antiphon.report.svg import to_svg
from antiphon.report.text import to_text
from antiphon.studies.model import Claim
from antiphon.studies.results import Results
from antiphon.studies.study import Study
from antiphon.trace.window import read_window


def page_of(study: Study, results: Results, claims: Sequence[Claim]) -> Page:
    """A study's page, with the paper's sections. The papers and commands of claims are on the first page."""
    judged = {claim.id: replace(claim, paper="", command="") for claim in claims}
    sections = [section.filled(results, judged) for section in study.sections]
    return Page(name=study.name, title=study.title, subtitle=study.paper, sections=sections)


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
