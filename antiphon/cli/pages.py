"""Report pages made from the results of studies and audits."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from antiphon.audit.result import AuditResult
from antiphon.check.verdict import Violation
from antiphon.core.ids import MessageId
from antiphon.core.recording import Property
from antiphon.report.call_diagram import CallDiagram, calls_to_svg, calls_to_text, layout_calls
from antiphon.report.diagram import Diagram, layout, layout_region
from antiphon.report.model import AuditPages, AuditReport, Case, Page, ViolationReport
from antiphon.report.region import bounded, closer_look, first_look, message_names
from antiphon.report.svg import to_svg
from antiphon.report.text import to_text
from antiphon.studies.model import Claim
from antiphon.studies.results import Results
from antiphon.studies.study import Study
from antiphon.trace.call_files import read_calls
from antiphon.trace.files import open_trace
from antiphon.trace.schema import ACCEPTED, Event
from antiphon.trace.window import Wanted, read_window


def page_of(study: Study, results: Results, claims: Sequence[Claim]) -> Page:
    """A study's page, with the paper's sections. The papers and commands of claims are on the first page."""
    judged = {claim.id: replace(claim, paper="", command="") for claim in claims}
    sections = [section.filled(results, judged) for section in study.sections]
    return Page(name=study.name, title=study.title, subtitle=study.paper, sections=sections)


def diagram_of(paths: Sequence[Path], violation: Violation) -> Diagram:
    """The space-time diagram around a violation, from just the rows that it needs."""
    # All rows of `ACCEPTED` share their step: those of the messages are enough.
    places = [(each.site, each.step) for each in violation.witness if each.site != ACCEPTED]
    messages = {MessageId(violation.sender, violation.number)}
    for witness in violation.witness:
        if witness.sender is not None and witness.number is not None:
            messages.add(MessageId(witness.sender, witness.number))
    return layout(read_window(paths, violation.run, places, messages), violation)


def calls_of(paths: Sequence[Path], violation: Violation) -> CallDiagram:
    """The calls around a violation of linearizability."""
    calls = [call for path in paths for file in open_trace(path).calls for call in read_calls(file)]
    return layout_calls(calls, violation)


def drawings(paths: Sequence[Path], violation: Violation) -> tuple[str, str]:
    """The diagram around a violation, as SVG and as text."""
    if violation.property == "linearizable":
        calls_diagram = calls_of(paths, violation)
        return calls_to_svg(calls_diagram), calls_to_text(calls_diagram)
    diagram = diagram_of(paths, violation)
    return to_svg(diagram), to_text(diagram)


Reader = Callable[[Sequence[Wanted]], list[list[Event]]]
"""Reads the rows of several windows of the traces at hand."""


CallReader = Callable[[Violation], CallDiagram]


def cases_of(
    result: AuditResult, show: int, read: Reader, read_calls: CallReader | None = None
) -> list[Case]:
    """The violations to show, `show` of each property; the rows around them are read together."""
    promised = {
        (summary.run, each.property): each.promised
        for summary in result.summaries
        for each in summary.verdicts
    }
    seen: Counter[Property] = Counter()
    shown: list[Case] = []
    for each in result.examples:
        seen[each.property] += 1
        if seen[each.property] <= show:
            known = promised.get((each.run, each.property), bool(result.broken.get(each.property)))
            shown.append(Case(each, known))
    by_calls = [case for case in shown if case.violation.property == "linearizable"]
    by_rows = [case for case in shown if case.violation.property != "linearizable"]
    first = read([first_look(case.violation) for case in by_rows])
    around = read([closer_look(case.violation, rows) for case, rows in zip(by_rows, first, strict=True)])
    drawn = [_drawn(case, rows) for case, rows in zip(by_rows, around, strict=True)]
    if read_calls is not None:
        by_calls = [replace(case, calls=read_calls(case.violation)) for case in by_calls]
    return [*drawn, *by_calls]


def _drawn(case: Case, rows: list[Event]) -> Case:
    kept, omitted = bounded(rows, case.violation)
    return replace(
        case,
        diagram=layout(rows, case.violation),
        region=layout_region(kept, case.violation),
        omitted=omitted,
        names=message_names(rows, case.violation),
    )


def audit_pages(
    result: AuditResult,
    traces: Sequence[str],
    cases: Sequence[Case],
    command: str,
    reservations: Sequence[str],
) -> AuditPages:
    """The pages of `antiphon audit --report`."""
    return AuditPages(
        traces=traces,
        verdict=result.verdict,
        engine=result.engine,
        runs=result.runs,
        sites=result.sites,
        sends=result.sends,
        deliveries=result.deliveries,
        counts=result.violations,
        broken=result.broken,
        unknown=result.unknown,
        not_judged=result.not_judged,
        summaries=result.summaries,
        cases=cases,
        command=command,
        reservations=reservations,
    )


def audit_report(
    title: str,
    result: AuditResult,
    paths: Sequence[Path],
    promised: frozenset[Property],
    command: str,
    note: str = "",
) -> AuditReport:
    """What the audit found, with diagrams for the violations that are shown."""
    shown = [ViolationReport(violation, *drawings(paths, violation)) for violation in result.examples]
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
