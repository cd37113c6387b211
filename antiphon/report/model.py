"""What a report shows, as plain data: claims, figures, audits, tables, and pages of their own for studies.

Whoever has results fills these in; `antiphon.report.site` turns them into pages. Texts are plain text, never
HTML: the pages escape everything. The time of writing is passed in as text, so that equal inputs give
equal pages.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final, Literal

from antiphon.check.verdict import Verdict, Violation
from antiphon.core.recording import Property

ClaimVerdict = Literal["reproduced", "not reproduced", "not measured"]
CLAIM_VERDICTS: Final[tuple[ClaimVerdict, ...]] = ("reproduced", "not reproduced", "not measured")


@dataclass(frozen=True)
class Claim:
    """One fact that a paper states, beside what we measured. Texts that do not apply are empty."""

    id: str
    paper: str
    where: str
    statement: str
    theirs: str = ""
    ours: str = ""
    interval: str = ""
    verdict: ClaimVerdict = "not measured"
    reason: str = ""
    command: str = ""


@dataclass(frozen=True)
class Series:
    """One curve. `low` and `high`, when given, are the ends of each point's interval; `dots` are single runs.

    A value that was not measured is NaN: the curve has a gap there, and the table a dash.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    dots: Sequence[tuple[float, float]] = ()
    hue: int | None = None
    """Which of the page's colours; by the curve's place if None, so that figures may differ in it."""
    is_calculated: bool = False
    """Whether it was worked out on paper: then it is a dashed line, so that what was measured stands out."""


@dataclass(frozen=True)
class FigureData:
    """The curves of one figure and what its axes mean, units included in the labels."""

    id: str
    title: str
    caption: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Plate:
    """A figure of several panels side by side; a panel's title follows its letter."""

    id: str
    title: str
    caption: str
    panels: Sequence[FigureData]


@dataclass(frozen=True)
class ViolationReport:
    """One violation with the two forms of its space-time diagram (`to_svg`, `to_text`)."""

    violation: Violation
    diagram_svg: str
    diagram_text: str


@dataclass(frozen=True)
class AuditReport:
    """What the audit said of one trace. `counts` has all properties; `promised` those that were promised.

    `violations` may show fewer than `counts` counts: the page says how many there are in all.
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
class Table:
    """An extra table; cells are shown as they are, and a column of numbers is set to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A heading, a few paragraphs (blank lines part them), tables, claims and figures."""

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    claims: Sequence[Claim] = ()
    figures: Sequence[FigureData | Plate] = ()


@dataclass(frozen=True)
class Page:
    """A page beside the first one. `name` is its file's name without the ending: letters, digits, dashes."""

    name: str
    title: str
    subtitle: str = ""
    sections: Sequence[Section] = ()


@dataclass(frozen=True)
class Site:
    """A whole report. `generated` says when and from what it was made, in words."""

    title: str = "Antiphon"
    subtitle: str = "Many voices, one order"
    generated: str = ""
    claims: Sequence[Claim] = ()
    figures: Sequence[FigureData | Plate] = ()
    audits: Sequence[AuditReport] = ()
    sections: Sequence[Section] = ()
    pages: Sequence[Page] = ()
