"""A report as plain data: its pages, and the audits that it shows. Claims, figures, tables and sections are
those of the studies (`antiphon.studies.model`).

`antiphon.report.site` turns a report into HTML pages. Texts are plain text, never HTML: the pages escape
everything. The time of writing is passed in as text, so that equal inputs give equal pages.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from antiphon.check.verdict import Verdict, Violation
from antiphon.core.recording import Property
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
