"""How Jia and So's claims are judged.

- A number that a formula gives holds if ours is within 10% of it. Of messages, ours may also be up to two
  lower: what the text's sites send to themselves.
- 'Usually' means for more than half of the groups, at every kind and size that was run.
- 'Fewer' and 'shorter' hold if they do, or nothing differs, at every kind and size; 'considerably' means by
  half at least.
- What is proved holds if there is no exception in all runs.
- A claim about many points names the worst of them.
"""

from collections.abc import Iterable
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.spark.statistics import Point
from antiphon.studies.model import Results, Where

NEAR: Final = 0.10
SENT_TO_ITSELF: Final = 2.0
USUALLY: Final = 0.5


def is_near(ours: float, theirs: float) -> bool:
    return abs(ours - theirs) <= NEAR * abs(theirs)


def costs(ours: float, theirs: float) -> bool:
    """Whether messages are as many as a formula says, but for those that a site sends to itself."""
    return is_near(ours, theirs) or theirs - SENT_TO_ITSELF <= ours <= theirs


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
    return sum(max(summary.count for summary in point.metrics.values()) for point in points)


def mean(points: Iterable[Point], metric: str) -> float:
    """The mean over points, each counting alike."""
    values = [point.metrics[metric].mean for point in points]
    return sum(values) / len(values)
