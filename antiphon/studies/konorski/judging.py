"""How Konorski's claims are judged.

- A quoted number holds if ours is within 10% of it; 'over' holds if ours is above, 'within' if it is not.
- 'About' means within half of it, up or down: the text's ad-hoc figures are round.
- 'Well below' means at most half; 'rarely' at most one time in twenty.
- 'One message in many thousands' means at most one in 2000.
- Counts of broken order are sums over all runs, and no run may be left out.
"""

from collections.abc import Iterable
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.spark.statistics import Point
from antiphon.studies.model import Results, Where

ABOUT: Final = 0.5
MANY_THOUSANDS: Final = 2000


def is_about(ours: float, theirs: float) -> bool:
    return abs(ours - theirs) <= ABOUT * theirs


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


def per_ten_thousand(points: list[Point]) -> float:
    """Violated messages in ten thousand deliveries."""
    return 10_000 * total(points, "violated") / max(1.0, total(points, "deliveries"))


def unfinished(points: list[Point]) -> int:
    """Runs that did not come to their end."""
    return round(runs(points) - total(points, "finished"))


def best(results: Results, where: Where, metric: str = "busy_throughput") -> Point:
    """Of the points that match and keep the order, or of all if none does, the one with most of a metric."""
    points = found(results, where)
    sound = [point for point in points if per_ten_thousand([point]) * MANY_THOUSANDS <= 10_000]
    return max(sound or points, key=lambda point: point.metrics[metric].mean)
