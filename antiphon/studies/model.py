"""A study as data: the grid of runs, the figures and tables made of them and the claims judged by them.

A paper's package declares a `Study` of sections, as the paper has them. Nothing in it is tuned to a claim:
the model comes from the paper, the verdict from the runs. What is code in it looks at the runs' summaries,
or computes what the paper computes without runs: a claim's `judge`, a panel's `compute`, a table's `rows`. A
result that they need and that is not there, because its runs failed, is a `UsageError`.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from antiphon.core.errors import UsageError
from antiphon.spark.statistics import Point, Summary
from antiphon.spark.sweep import Job, job

Effort = Literal["quick", "full"]
ClaimVerdict = Literal["reproduced", "not reproduced", "not measured"]
Spread = Literal["none", "interval", "deviation"]
Where = Mapping[str, Any]
"""Which points are meant: values of parameters. A value may be a function of the point's other parameters."""


# The runs


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Every combination of the axes' values, each with its seeds."""

    scenario: str
    axes: Mapping[str, Sequence[Any]]
    seeds: Mapping[Effort, int]
    """How many seeds, counted from 0, each point gets."""
    quick: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The axes that are shorter when the study is run quickly."""
    derived: Mapping[str, Callable[[Where], Any]] = field(default_factory=dict)
    """Parameters that follow from those of the axes."""

    def jobs(self, effort: Effort) -> list[Job]:
        axes = {**self.axes, **(self.quick if effort == "quick" else {})}
        points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
        for point in points:
            point |= {name: follows(point) for name, follows in self.derived.items()}
        return [job(self.scenario, point, seed) for point in points for seed in range(self.seeds[effort])]


@dataclass(frozen=True)
class Results:
    """The summaries of a study's runs, to be asked by parameters."""

    points: Sequence[Point]
    defaults: Mapping[str, Where] = field(default_factory=dict)
    """Per scenario, the values of parameters that a grid leaves alone."""

    @cached_property
    def _known(self) -> dict[str, list[tuple[dict[str, Any], Point]]]:
        """The points by scenario, each with all of its parameters' values."""
        known: dict[str, list[tuple[dict[str, Any], Point]]] = {}
        for point in self.points:
            values = {
                "scenario": point.scenario,
                **self.defaults.get(point.scenario, {}),
                **point.parameters,
            }
            known.setdefault(point.scenario, []).append((values, point))
        return known

    def _matching(self, where: Where) -> list[tuple[dict[str, Any], Point]]:
        named = where.get("scenario")
        chosen = [self._known.get(named, [])] if named is not None else self._known.values()
        return [pair for pairs in chosen for pair in pairs if _fits(pair[0], where)]

    def matching(self, where: Where) -> list[Point]:
        """The points that have all these values."""
        return [point for _, point in self._matching(where)]

    def curve(self, where: Where, x: str, metric: str) -> list[tuple[Any, Summary]]:
        """A metric over a parameter, in order of the parameter."""
        found = [(values[x], point) for values, point in self._matching(where) if metric in point.metrics]
        if not found:
            raise UsageError(f"No run of the study has {metric} for {_words(where)}.")
        places = [place for place, _ in found]
        if len(set(places)) != len(places):
            raise UsageError(f"Several points of the study have the same {x} for {_words(where)}.")
        return sorted(((place, point.metrics[metric]) for place, point in found), key=lambda pair: pair[0])

    def means(self, where: Where, x: str, metric: str) -> dict[Any, float]:
        """The same curve's means by the parameter."""
        return {place: summary.mean for place, summary in self.curve(where, x, metric)}

    def one(self, where: Where, metric: str) -> Summary:
        """A metric at the one point that has these values."""
        found = self.matching(where)
        if len(found) != 1:
            raise UsageError(f"{len(found)} points of the study match {_words(where)}, not one.")
        if metric not in found[0].metrics:
            raise UsageError(f"No run of the study has {metric} for {_words(where)}.")
        return found[0].metrics[metric]


def _fits(values: Where, where: Where) -> bool:
    return all(
        values.get(name) == (wanted(values) if callable(wanted) else wanted) for name, wanted in where.items()
    )


def _words(where: Where) -> str:
    return " ".join(
        f"{name}={wanted.__name__ if callable(wanted) else wanted}" for name, wanted in where.items()
    )


# Figures and tables


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve as it is drawn. `dots` are single runs, drawn beside it."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    dots: Sequence[tuple[float, float]] = ()
    hue: int | None = None
    is_calculated: bool = False


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One curve of a panel: the points of the grid that have these values."""

    name: str
    where: Where
    y: str = ""
    """A metric of its own; empty for the panel's."""
    hue: int | None = None
    """A colour of its own, the same in all figures; None for one by its place."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A metric over a parameter, a curve for each choice of the others; or lines that are computed."""

    title: str = ""
    x: str = ""
    x_label: str
    y: str = ""
    y_label: str
    curves: Sequence[Curve] = ()
    compute: Callable[[Results], Sequence[Line]] | None = None
    spread: Spread = "none"
    dots: bool = False
    log_x: bool = False
    log_y: bool = False

    def lines(self, results: Results) -> list[Line]:
        """What is drawn; a curve whose runs have all failed is left out: the sweep has told of them."""
        computed = list(self.compute(results)) if self.compute is not None else []
        return computed + [self._line(curve, results) for curve in self.curves if self._has(curve, results)]

    def _has(self, curve: Curve, results: Results) -> bool:
        return any((curve.y or self.y) in point.metrics for point in results.matching(curve.where))

    def _line(self, curve: Curve, results: Results) -> Line:
        points = results.curve(curve.where, self.x, curve.y or self.y)
        ends = [_ends(summary, self.spread) for _, summary in points] if self.spread != "none" else None
        dots = [(float(x), value) for x, summary in points for value in summary.values] if self.dots else ()
        return Line(
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
    """A figure of the paper, of one panel or of several side by side."""

    id: str
    title: str
    caption: str
    panels: Sequence[Panel]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the paper, or one of our own."""

    title: str
    caption: str
    columns: Sequence[str]
    rows: Callable[[Results], Sequence[Sequence[str]]]


# Claims


@dataclass(frozen=True)
class Finding:
    """What our runs say of a claim."""

    ours: str
    holds: bool | None
    """None where the runs there are cannot decide it."""
    interval: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A fact that the paper states."""

    id: str
    where: str
    statement: str
    theirs: str
    judge: Callable[[Results], Finding]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of the paper: what it is about, what it shows and what it states."""

    title: str
    text: str = ""
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    claims: Sequence[Claim] = ()


@dataclass(frozen=True, kw_only=True)
class Study:
    """A paper's evaluation, or a part of it."""

    name: str
    paper: str
    title: str
    grids: Sequence[Grid]
    sections: Sequence[Section] = ()

    @property
    def figures(self) -> list[Figure]:
        return [figure for section in self.sections for figure in section.figures]

    @property
    def claims(self) -> list[Claim]:
        return [claim for section in self.sections for claim in section.claims]

    def jobs(self, effort: Effort) -> list[Job]:
        """Every run once, also where two grids share it."""
        return list(dict.fromkeys(job for grid in self.grids for job in grid.jobs(effort)))
