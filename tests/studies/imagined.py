"""Results of runs that were never made: what a study would see if its metrics followed a rule of ours."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from antiphon.spark.statistics import Point, Summary
from antiphon.studies.reproduce import defaults_of
from antiphon.studies.results import Results
from antiphon.studies.study import Effort, Study

Rule = Callable[[Mapping[str, Any]], Mapping[str, float]]


class AnyMetric(dict[str, Summary]):
    """Whatever metric is asked for has a value: that of the rule, or the one for all others."""

    def __init__(self, found: Mapping[str, float], otherwise: float) -> None:
        # Every run has at least one metric that it tells itself.
        known = {"finished": otherwise, **found}
        super().__init__({name: one_value(float(value)) for name, value in known.items()})
        self._otherwise = one_value(otherwise)

    def __missing__(self, name: str) -> Summary:
        return self._otherwise

    def __contains__(self, name: object) -> bool:
        return True

    def get(self, name: str, default: Any = None) -> Any:
        return self[name]


def one_value(value: float, count: int = 20) -> Summary:
    return Summary(count, value, 0.0, value, value, value, value, (value,) * count)


def imagine(study: Study, effort: Effort, rule: Rule = lambda _: {}, otherwise: float = 1.0) -> Results:
    """Every point of the study's grids, with the metrics that the rule gives and `otherwise` for the rest."""
    defaults = defaults_of(study)
    points = []
    for scenario, parameters in dict.fromkeys((job.scenario, job.parameters) for job in study.jobs(effort)):
        given = json.loads(parameters)
        found = rule({"scenario": scenario, **defaults[scenario], **given})
        points.append(Point(scenario, given, AnyMetric(found, otherwise)))
    return Results(points, defaults)
