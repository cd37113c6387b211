"""How Konorski's claims are judged.

- A quoted number holds if ours is within 10% of it; 'over' holds if ours is above, 'within' if it is not.
- 'About' means within half of it, up or down: the paper's ad-hoc figures are round.
- 'Well below' means at most half; 'rarely' at most one time in twenty.
- 'One message in many thousands' means at most one in 2000.
- Counts of broken order are sums over all runs, without exception.
"""

from typing import Final

from antiphon.spark.statistics import Point
from antiphon.studies.judging import runs, total
from antiphon.studies.results import Results, Where

ABOUT: Final = 0.5
MANY_THOUSANDS: Final = 2000


def is_about(ours: float, theirs: float) -> bool:
    return abs(ours - theirs) <= ABOUT * theirs


def per_ten_thousand(points: list[Point]) -> float:
    """Violated messages in ten thousand deliveries."""
    return 10_000 * total(points, "violated") / max(1.0, total(points, "deliveries"))


def unfinished(points: list[Point]) -> int:
    """Runs that did not finish."""
    return round(runs(points) - total(points, "finished"))


def best(results: Results, where: Where, metric: str = "busy_throughput") -> Point:
    """The point with most of a metric, of those that match and keep the order, or of all if none does."""
    points = results.found(where)
    sound = [point for point in points if per_ten_thousand([point]) * MANY_THOUSANDS <= 10_000]
    return max(sound or points, key=lambda point: point.metrics[metric].mean)
