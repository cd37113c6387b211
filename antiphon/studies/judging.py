"""How claims are judged, for all papers. Each paper's own `judging` says how it reads the paper's words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.spark.statistics import Point
from antiphon.studies.claims import Judge, read_claims
from antiphon.studies.model import Claim, Finding, Reading
from antiphon.studies.results import Results

NEAR: Final = 0.10
"""A quoted number holds if ours is within this share of it: papers round, and read numbers off figures."""
MUCH: Final = 2.0
"""'Much' more means at least this factor."""


def judged_by(paper: str, /, **judges: Judge) -> list[Claim]:
    """Claims of a paper's table by their ids, each with the function that judges it."""
    claims = read_claims(paper)
    return [replace(claims[id_], judge=judge) for id_, judge in judges.items()]


@dataclass(frozen=True)
class Way:
    """A way to read a claim, and the function that judges it so."""

    name: str
    """What the table of readings calls it."""
    condition: str
    """The reading as a condition: 'reproduced, if …'."""
    judge: Judge
    is_fitted: bool = False
    """Whether a parameter was chosen to make the claim hold: then it is shown, and does not count."""


def under(*ways: Way) -> Judge:
    """Judge a claim under every reading: it is reproduced if all agree on that, and 'if' where some do.

    The first way is the one that the rest of the study takes.
    """

    def judge(results: Results) -> Finding:
        return _joined(ways, [Reading(way.name, _found(way, results), way.is_fitted) for way in ways])

    return judge


def _found(way: Way, results: Results) -> Finding:
    """What the runs say; a reading without its runs is not measured."""
    try:
        return way.judge(results)
    except UsageError as error:
        return Finding(ours="", holds=None, reason=error.sentence)


def _joined(ways: Sequence[Way], readings: Sequence[Reading]) -> Finding:
    pairs = zip(ways, readings, strict=True)
    counted = [(way, each.finding) for way, each in pairs if not each.is_fitted]
    known = [(way, finding) for way, finding in counted if finding.holds is not None]
    first = readings[0].finding
    shown = "; ".join(f"{each.name}: {each.finding.ours}" for each in readings if each.finding.ours)
    if not known:
        return replace(first, ours=shown, holds=None, readings=readings)
    kept = [way for way, finding in known if finding.holds]
    reasons = [finding.reason for _, finding in known if finding.reason and not finding.holds]
    return Finding(
        ours=shown,
        holds=bool(kept),
        interval=first.interval,
        reason=" ".join(dict.fromkeys(reasons)),
        condition="" if len(kept) == len(known) else " or if ".join(way.condition for way in kept),
        readings=readings,
    )


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
