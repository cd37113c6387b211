"""Which of a liar's lies a failure needs: fewer and fewer are told, as long as the run still fails."""

import re
import time
from collections.abc import Callable, Collection
from typing import Final

from tests.fuzz.arena import Wrap
from tests.fuzz.plans import Plan
from tests.fuzz.run import Outcome, run

Fails = Callable[[Collection[int]], bool]
BUDGET_S: Final = 20.0
"""Time that shrinking one failure may take. Raising it costs time, and leaves fewer lies."""


def shrink(outcome: Outcome, budget_s: float = BUDGET_S, wrap: Wrap | None = None) -> list[int]:
    """Places of lies that are enough for a plan to fail, as few as were found in time."""
    plan: Plan = outcome.plan
    end_s = time.monotonic() + budget_s
    kind = sort_of(outcome.failure)
    return smaller(
        list(range(outcome.lies)),
        lambda places: sort_of(run(plan, frozenset(places), wrap).failure) == kind,
        lambda: time.monotonic() >= end_s,
    )


def sort_of(failure: str | None) -> str | None:
    """What failures of one sort have in common: how they begin, whichever member it is."""
    if failure is None:
        return None
    return re.sub(r"\bm\d+\b", "a member", failure.partition(":")[0].partition("(")[0])[:80]


def smaller(places: list[int], fails: Fails, is_over: Callable[[], bool]) -> list[int]:
    """Leave out part after part, by halves at first, as long as what is left fails (delta debugging).

    >>> smaller(list(range(100)), lambda places: {3, 70} <= set(places), lambda: False)
    [3, 70]
    """
    parts = 2
    while len(places) > 1 and not is_over():
        size = -(-len(places) // parts)
        for begin in range(0, len(places), size):
            rest = places[:begin] + places[begin + size :]
            if is_over():
                return places
            if fails(rest):
                places, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(places), 2 * parts)
    return places


def as_ranges(places: Collection[int]) -> str:
    """Places as a command line names them.

    >>> as_ranges([1, 2, 3, 7])
    '1-3,7'
    """
    told: list[str] = []
    ordered = sorted(places)
    begin = 0
    for place, number in enumerate(ordered):
        if place + 1 == len(ordered) or ordered[place + 1] != number + 1:
            first = ordered[begin]
            told.append(str(first) if first == number else f"{first}-{number}")
            begin = place + 1
    return ",".join(told)


def from_ranges(told: str) -> frozenset[int]:
    """The inverse.

    >>> sorted(from_ranges("1-3,7"))
    [1, 2, 3, 7]
    """
    places: set[int] = set()
    for part in told.split(","):
        first, _, last = part.partition("-")
        places.update(range(int(first), int(last or first) + 1))
    return frozenset(places)
