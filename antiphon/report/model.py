"""A report as plain data: its pages, and the audits that it shows. Claims, figures, tables and sections are
those of the studies (`antiphon.studies.model`).

`antiphon.report.site` turns a report into HTML pages, `antiphon.report.audit_pages` those of an audit. Texts
are plain text, never HTML: the pages escape everything. The time of writing is passed in as text, so that
equal inputs give equal pages.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from antiphon.check.verdict import RunSummary, Verdict, Violation
from antiphon.core.ids import MessageId
from antiphon.core.recording import Property
from antiphon.report.call_diagram import CallDiagram
from antiphon.report.diagram import Diagram
from antiphon.studies.model import Claim, Figure, Section


@dataclass(frozen=True)
class ViolationReport:
    """One violation with the two forms of its space-time diagram (`to_svg`, `to_text`)."""

    violation: Violation
    diagram_svg: str
    diagram_text: str


@dataclass(frozen=True)
class AuditReport:
    """The audit's result for one trace. `counts` has all properties; `promised` the promised ones.

    `violations` may hold fewer violations than `counts` counts: the page gives the total.
    """

    title: str
    verdict: Verdict
    runs: int
    sites: int
    sends: int
    deliveries: int
    counts: Mapping[Property, int]
    promised: Set[Property]
    command: str
    violations: Sequence[ViolationReport] = ()
    note: str = ""


@dataclass(frozen=True)
class Page:
    """A page after the first. `name` is its file's name without the suffix: letters, digits, dashes."""

    name: str
    title: str
    subtitle: str = ""
    sections: Sequence[Section] = ()


@dataclass(frozen=True)
class Site:
    """A whole report. `generated` says in words when and from what it was made."""

    title: str = "Antiphon"
    subtitle: str = "Many voices, one order"
    generated: str = ""
    claims: Sequence[Claim] = ()
    figures: Sequence[Figure] = ()
    audits: Sequence[AuditReport] = ()
    sections: Sequence[Section] = ()
    pages: Sequence[Page] = ()


@dataclass(frozen=True)
class Case:
    """One violation with what its page shows. Without diagrams, the page has the argument alone."""

    violation: Violation
    promised: bool
    diagram: Diagram | None = None
    """The rows of the argument."""
    region: Diagram | None = None
    """The rows around it, for the explorer."""
    calls: CallDiagram | None = None
    """The calls of the argument, where it rests on calls."""
    omitted: int = 0
    """Members with rows in the region that it leaves out."""
    names: Mapping[MessageId, str] = field(default_factory=dict)
    """What the messages are called in their own system."""


@dataclass(frozen=True)
class AuditPages:
    """An audit's result as pages of its own: the verdicts, and a page for each violation shown."""

    traces: Sequence[str]
    verdict: Verdict
    engine: str
    runs: int
    sites: int
    sends: int
    deliveries: int
    counts: Mapping[Property, int]
    broken: Mapping[Property, int]
    unknown: Mapping[Property, int]
    not_judged: Mapping[Property, int]
    summaries: Sequence[RunSummary]
    cases: Sequence[Case]
    command: str
    reservations: Sequence[str] = ()
    """Sentences about what could not be judged."""
