"""How claims are judged, for all papers. Each paper's own `judging` says how it reads the paper's words."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Final

from antiphon.spark.statistics import Point
from antiphon.studies.claims import Judge, read_claims
from antiphon.studies.model import Claim

NEAR: Final = 0.10
"""A quoted number holds if ours is within this share of it: papers round, and read numbers off figures."""
MUCH: Final = 2.0
"""'Much' more means at least this factor."""


def judged_by(paper: str, /, **judges: Judge) -> list[Claim]:
    """Claims of a paper's table by their ids, each with the function that judges it."""
    claims = read_claims(paper)
    return [replace(claims[id_], judge=judge) for id_, judge in judges.items()]


def unless(holds: bool, reason: str) -> str:
    """The reason of a finding that applies only if the claim does not hold."""
    return "" if holds else reason


def is_near(ours: float, theirs: float, share: float = NEAR) -> bool:
    return abs(ours - theirs) <= share * abs(theirs)


def rises(values: Iterable[float]) -> bool:
    return all(before < after for before, after in pairwise(values))


def falls(values: Iterable[float]) -> bool:
    return all(before > after for before, after in pairwise(values))


def total(points: Iterable[Point], metric: str) -> float:
    """The sum over all runs of all points."""
    return sum(point.metrics[metric].mean * point.metrics[metric].count for point in points)


def mean(points: Iterable[Point], metric: str) -> float:
    """The mean over points, each with equal weight."""
    values = [point.metrics[metric].mean for point in points]
    return sum(values) / len(values)


def runs(points: Iterable[Point]) -> int:
    return sum(max(summary.count for summary in point.metrics.values()) for point in points)
