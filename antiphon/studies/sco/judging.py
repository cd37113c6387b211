"""How the claims of the SCO paper are judged.

- A quoted number holds if ours is within 10% of it.
- 'Much' means at least twice; 'not much' less than that.
- 'Smaller than 20%' and '50% smaller' are taken at their word.
- An order or a trend holds if it does at every point that was run.
- A claim about many points names the worst of them.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

from antiphon.analysis.control_schemes import Scheme, Traffic
from antiphon.core.errors import UsageError
from antiphon.spark.statistics import Point
from antiphon.studies.model import Results, Where
from antiphon.studies.sco.settings import SCENARIOS, UNIT_MS, parameters

NEAR: Final = 0.10
MUCH: Final = 2.0
SMALL: Final = 0.20
HALF: Final = 0.50


def is_near(ours: float, theirs: float) -> bool:
    return abs(ours - theirs) <= NEAR * abs(theirs)


def falls(values: Iterable[float]) -> bool:
    return all(before > after for before, after in pairwise(values))


def rises(values: Iterable[float]) -> bool:
    return all(before < after for before, after in pairwise(values))


def found(results: Results, where: Where) -> list[Point]:
    """The points that match; there must be some."""
    points = results.matching(where)
    if not points:
        raise UsageError(f"No run of the study matches {dict(where)}.")
    return points


def total(points: Iterable[Point], metric: str) -> float:
    """The sum over all runs of all points."""
    return sum(point.metrics[metric].mean * point.metrics[metric].count for point in points)


def runs(points: Iterable[Point]) -> int:
    return sum(point.metrics["finished"].count for point in points)


def where(scheme: Scheme, group: Traffic, loss: float = 0.0, **more: Any) -> dict[str, Any]:
    """Which runs are a group's."""
    return {"scenario": SCENARIOS[scheme], **parameters(scheme, group, loss), **more}


def there(results: Results, scheme: Scheme, group: Traffic, loss: float = 0.0) -> bool:
    return bool(results.matching(where(scheme, group, loss)))


def _one(results: Results, scheme: Scheme, group: Traffic, loss: float) -> Point:
    (point,) = found(results, where(scheme, group, loss))
    return point


def controls(results: Results, scheme: Scheme, group: Traffic, loss: float = 0.0) -> float:
    """Control messages for each message of an application."""
    point = _one(results, scheme, group, loss)
    return point.metrics["control_messages"].mean / point.metrics["admitted"].mean


def messages(results: Results, scheme: Scheme, group: Traffic, loss: float = 0.0) -> float:
    """All that crosses the network for each message of an application."""
    point = _one(results, scheme, group, loss)
    crossing = point.metrics["data_messages"].mean + point.metrics["control_messages"].mean
    return crossing / point.metrics["admitted"].mean


def delay(results: Results, scheme: Scheme, group: Traffic, loss: float = 0.0) -> float:
    """Units of time until a destination has fully accepted a message."""
    return 1000.0 * _one(results, scheme, group, loss).metrics["acceptance_s"].mean / UNIT_MS
