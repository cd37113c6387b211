"""A study as data: the grids of runs, and the sections with the figures, tables and claims made from them.

A paper's package declares a `Study` with sections like the paper's own. Nothing in it is tuned to a claim:
the model comes from the paper, the verdict from the runs.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from antiphon.spark.sweep import Job, job
from antiphon.studies.model import Claim, Figure, Section
from antiphon.studies.results import Where

Effort = Literal["quick", "full"]


def fixed(values: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    """Axes of one value each."""
    return {name: (value,) for name, value in values.items()}


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
