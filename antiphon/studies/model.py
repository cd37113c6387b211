"""The model of what a study declares and a report shows: claims, figures, tables and sections.

A study declares each of them with the function that computes it from the results of its runs: a claim's
`judge`, a panel's or a table's `compute`. `judged`, `drawn` and `filled` return the same element with its
values. A report shows values; it needs no functions. Texts are plain text: the report's pages escape them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from antiphon.core.errors import UsageError
from antiphon.spark.statistics import Summary
from antiphon.studies.results import Results, Where

ClaimVerdict = Literal["reproduced", "reproduced, if", "not reproduced", "not measured"]
CLAIM_VERDICTS: Final[tuple[ClaimVerdict, ...]] = (
    "reproduced",
    "reproduced, if",
    "not reproduced",
    "not measured",
)
Spread = Literal["none", "interval", "deviation"]


# Claims


@dataclass(frozen=True)
class Finding:
    """What the runs say about a claim."""

    ours: str
    holds: bool | None
    """None where the runs cannot decide it."""
    interval: str = ""
    reason: str = ""
    condition: str = ""
    """The reading of the paper under which a claim holds, where another reading decides otherwise."""
    readings: Sequence["Reading"] = ()
    """What the runs say under each reading, where there are several."""

    @property
    def verdict(self) -> ClaimVerdict:
        if self.holds is None:
            return "not measured"
        if not self.holds:
            return "not reproduced"
        return "reproduced, if" if self.condition else "reproduced"


@dataclass(frozen=True)
class Reading:
    """One way to read a claim, with what the runs say about it then."""

    name: str
    finding: Finding
    is_fitted: bool = False
    """Whether a parameter was chosen to make the claim hold: then it is no evidence, and does not count."""

    @property
    def verdict(self) -> str:
        """A word for the table of readings."""
        if self.is_fitted:
            return "fitted"
        return {True: "holds", False: "does not", None: "not measured"}[self.finding.holds]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A fact that a paper states, beside what we measured. Texts that do not apply are empty."""

    id: str
    where: str
    statement: str
    theirs: str = ""
    judge: Callable[[Results], Finding] | None = None
    paper: str = ""
    ours: str = ""
    interval: str = ""
    verdict: ClaimVerdict = "not measured"
    condition: str = ""
    readings: Sequence[Reading] = ()
    reason: str = ""
    command: str = ""

    def judged(self, results: Results, paper: str = "", command: str = "") -> "Claim":
        """The claim with its verdict; `command` repeats the runs."""
        finding = self._finding(results)
        return replace(
            self,
            paper=paper,
            ours=finding.ours,
            interval=finding.interval,
            verdict=finding.verdict,
            condition=finding.condition if finding.holds else "",
            readings=finding.readings,
            reason=finding.reason,
            command=command,
        )

    def _finding(self, results: Results) -> Finding:
        """What the runs say; where runs that the claim needs have failed, that."""
        if self.judge is None:
            return Finding(ours="", holds=None)
        try:
            return self.judge(results)
        except UsageError as error:
            reason = f"The runs that it needs are not there. {error.sentence}"
        except (LookupError, ArithmeticError, ValueError) as error:
            # A group size is missing, or a divisor is 0: the sweep goes on without this claim.
            reason = f"The runs that there are cannot be judged: {error!r}."
        return Finding(ours="", holds=None, reason=reason)

    def to_json(self) -> dict[str, str]:
        """The claim as a row of the scoreboard."""
        return {
            "id": self.id,
            "paper": self.paper,
            "where": self.where,
            "statement": self.statement,
            "theirs": self.theirs,
            "ours": self.ours,
            "interval": self.interval,
            "verdict": self.verdict,
            "condition": self.condition,
            "readings": "; ".join(f"{each.name}: {each.verdict}" for each in self.readings),
            "reason": self.reason,
            "command": self.command,
        }


# Figures


@dataclass(frozen=True)
class Series:
    """One curve. `low` and `high`, if given, are the ends of each point's interval; `dots` are single runs.

    A value that was not measured is NaN: the curve has a gap there, and the table a dash.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    dots: Sequence[tuple[float, float]] = ()
    hue: int | None = None
    """The number of a colour, the same in all figures; None for a colour by the curve's position."""
    is_calculated: bool = False
    """Whether it was calculated, not measured: then it is drawn as a dashed line."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The points of the grid that make one curve of a panel."""

    name: str
    where: Where
    y: str = ""
    """The metric; empty for the panel's."""
    hue: int | None = None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A metric over a parameter, with a curve for each choice of the others; or series that are computed.

    Labels include the units.
    """

    title: str = ""
    x: str = ""
    x_label: str
    y: str = ""
    y_label: str
    curves: Sequence[Curve] = ()
    compute: Callable[[Results], Sequence[Series]] | None = None
    spread: Spread = "none"
    dots: bool = False
    log_x: bool = False
    log_y: bool = False
    series: Sequence[Series] = ()

    def drawn(self, results: Results) -> "Panel":
        """The panel with its series. A curve without runs is left out: the sweep has reported that."""
        computed = list(self.compute(results)) if self.compute is not None else []
        curves = [self._series(curve, results) for curve in self.curves if self._has(curve, results)]
        return replace(self, series=[*computed, *curves])

    def _has(self, curve: Curve, results: Results) -> bool:
        return any((curve.y or self.y) in point.metrics for point in results.matching(curve.where))

    def _series(self, curve: Curve, results: Results) -> Series:
        points = results.curve(curve.where, self.x, curve.y or self.y)
        ends = [_ends(summary, self.spread) for _, summary in points] if self.spread != "none" else None
        dots = [(float(x), value) for x, summary in points for value in summary.values] if self.dots else ()
        return Series(
            name=curve.name,
            x=[float(x) for x, _ in points],
            y=[summary.mean for _, summary in points],
            low=[low for low, _ in ends] if ends else None,
            high=[high for _, high in ends] if ends else None,
            dots=dots,
            hue=curve.hue,
        )


def _ends(summary: Summary, spread: Spread) -> tuple[float, float]:
    if spread == "interval":
        return summary.low, summary.high
    return summary.mean - summary.deviation, summary.mean + summary.deviation


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of one panel, or of several side by side."""

    id: str
    title: str
    caption: str
    panels: Sequence[Panel]

    def drawn(self, results: Results) -> "Figure":
        return replace(self, panels=[panel.drawn(results) for panel in self.panels])


# Tables and sections


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table; a column of numbers is aligned to the right."""

    title: str = ""
    caption: str = ""
    columns: Sequence[str]
    compute: Callable[[Results], Sequence[Sequence[str]]] | None = None
    rows: Sequence[Sequence[str]] = ()

    def filled(self, results: Results) -> "Table":
        return self if self.compute is None else replace(self, rows=self.compute(results))


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, paragraphs (separated by blank lines), figures, tables and claims."""

    title: str
    text: str = ""
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    claims: Sequence[Claim] = ()

    def filled(self, results: Results, claims: Mapping[str, Claim]) -> "Section":
        """The section with all values; `claims` are the judged ones by id."""
        return replace(
            self,
            figures=[figure.drawn(results) for figure in self.figures],
            tables=list(_filled(self.tables, results)),
            claims=[claims[claim.id] for claim in self.claims if claim.id in claims],
        )


def _filled(tables: Sequence[Table], results: Results) -> Iterator[Table]:
    """The tables with their rows. A table without its runs is left out: the sweep has reported that."""
    for table in tables:
        try:
            yield table.filled(results)
        except UsageError:
            continue
