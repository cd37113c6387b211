"""A study as data: the grid of runs, the figures drawn of them and the claims judged by them.

A paper's module declares a `Study`. Nothing in it is tuned to a claim: the model comes from the paper, the
verdict from the runs. A claim's `judge` is the one piece of code: it looks at the summaries and says what we
found. A result that it needs and that is not there, because its runs failed, is a `UsageError`.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from antiphon.core.errors import UsageError
from antiphon.spark.statistics import Point, Summary
from antiphon.spark.sweep import Job, job

Effort = Literal["quick", "full"]
ClaimVerdict = Literal["reproduced", "not reproduced", "not measured"]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Every combination of the axes' values, each with its seeds."""

    scenario: str
    axes: Mapping[str, Sequence[Any]]
    seeds: Mapping[Effort, int]
    """How many seeds, counted from 0, each point gets."""

    def jobs(self, effort: Effort) -> list[Job]:
        combinations = itertools.product(*self.axes.values())
        return [
            job(self.scenario, dict(zip(self.axes, values, strict=True)), seed)
            for values in combinations
            for seed in range(self.seeds[effort])
        ]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One curve of a figure: the points of the grid that have these values."""

    name: str
    where: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of the paper: a metric over a parameter, a curve for each choice of the others."""

    id: str
    title: str
    caption: str
    x: str
    x_label: str
    y: str
    y_label: str
    curves: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False


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
    judge: Callable[["Results"], Finding]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A paper's evaluation."""

    name: str
    paper: str
    title: str
    grids: Sequence[Grid]
    figures: Sequence[Figure] = ()
    claims: Sequence[Claim] = ()

    def jobs(self, effort: Effort) -> list[Job]:
        return [job for grid in self.grids for job in grid.jobs(effort)]


@dataclass(frozen=True)
class Results:
    """The summaries of a study's runs, to be asked by parameters."""

    points: Sequence[Point]
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Per scenario, the values of parameters that a grid leaves alone."""

    def matching(self, where: Mapping[str, Any]) -> list[Point]:
        """The points that have all these values."""
        return [point for point in self.points if where.items() <= self._values(point).items()]

    def curve(self, where: Mapping[str, Any], x: str, metric: str) -> list[tuple[Any, Summary]]:
        """A metric over a parameter, in order of the parameter."""
        points = [point for point in self.matching(where) if metric in point.metrics]
        if not points:
            raise UsageError(f"No run of the study has {metric} for {dict(where)}.")
        return sorted(
            ((self._values(point)[x], point.metrics[metric]) for point in points), key=lambda pair: pair[0]
        )

    def one(self, where: Mapping[str, Any], metric: str) -> Summary:
        """A metric at the one point that has these values."""
        found = self.matching(where)
        if len(found) != 1:
            raise UsageError(f"{len(found)} points of the study match {dict(where)}, not one.")
        return found[0].metrics[metric]

    def _values(self, point: Point) -> dict[str, Any]:
        return {"scenario": point.scenario, **self.defaults.get(point.scenario, {}), **point.parameters}
