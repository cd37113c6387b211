"""The summaries of a study's runs, looked up by parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from antiphon.core.errors import UsageError
from antiphon.spark.statistics import Point, Summary

Where = Mapping[str, Any]
"""A selection of points: values of parameters. A value may be a function of the point's other parameters."""


@dataclass(frozen=True)
class Results:
    """Every point of a study. A result that is missing, because its runs failed, is a `UsageError`."""

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

    def found(self, where: Where) -> list[Point]:
        """The points that have all these values; there must be some."""
        points = self.matching(where)
        if not points:
            raise UsageError(f"No run of the study matches {dict(where)}.")
        return points

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
