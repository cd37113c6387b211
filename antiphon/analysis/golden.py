"""The best step between gossips, found by trial: the golden-ratio search and its window, offline and online.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 5.3.2, figures 5.8 and 5.9. The time
of a round over the step falls, has a flat part, and rises; part I finds a step of that part, part II how far
it goes on either side.

Deviations. The ratios are the golden ones exactly, of which the text's 0.382 and 0.618 are roundings: then
one of the two inner points of an interval is an inner point of the next, and each iteration but the first
needs one evaluation instead of two. Part II as printed compares a difference of times with e, a share. This
module follows the text's definition of e: times within (1 - e) f(s) and (1 + e) f(s) belong to the window. As
printed, the lower end may become negative, and the upper end has no limit: here both stay inside the range
that was searched.

`StepController` is the search for use in a running protocol. It searches on a logarithmic scale,
since a good step may be anything from milliseconds to a minute. It averages some rounds at each step that it
tries. It begins again after a while, or when the times leave the band of the best step because the network
has changed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.core.time import Nanoseconds

LARGER: Final = (math.sqrt(5) - 1) / 2
SMALLER: Final = 1 - LARGER
HOPELESS: Final = 2.0
"""A step is given up if one of its rounds takes this multiple of the best average. Raising it costs time."""

DRIFTS: Final = 2
"""Consecutive averages that must be off before the network counts as changed. Raising it delays that."""
NEIGHBOURHOOD: Final = math.log(3)
"""The range of a search around a good step on either side, as a factor's logarithm. Raising it costs time."""


class Memo:
    """A function that is evaluated once for each place, and the number of evaluations."""

    def __init__(self, function: Callable[[float], float]) -> None:
        self._function = function
        self._known: dict[float, float] = {}

    def __call__(self, place: float) -> float:
        if place not in self._known:
            self._known[place] = self._function(place)
        return self._known[place]

    @property
    def evaluations(self) -> int:
        return len(self._known)


@dataclass(frozen=True)
class Search:
    """What part I found."""

    step: float
    value: float
    iterations: int
    evaluations: int


@dataclass(frozen=True)
class Window:
    """What part II found: the steps from `low` to `high` are about as good as the best one."""

    low: float
    high: float
    evaluations: int
    """Evaluations, with those made before if the function was handed in as a `Memo`."""


class Interval:
    """A search in progress: the ends, and the two inner points between which the next comparison is made."""

    __slots__ = ("high", "left", "low", "right")

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high
        self.left = low + SMALLER * (high - low)
        self.right = low + LARGER * (high - low)

    def narrow(self, left_value: float, right_value: float) -> None:
        """Drop the part beyond the worse of the two; where they are equal, the smaller steps, as printed."""
        if left_value >= right_value:
            self.low, self.left = self.left, self.right
            self.right = self.low + LARGER * (self.high - self.low)
        else:
            self.high, self.right = self.right, self.left
            self.left = self.low + SMALLER * (self.high - self.low)

    @property
    def length(self) -> float:
        return self.high - self.low

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2


def golden_search(function: Callable[[float], float], least: float, most: float, tolerance: float) -> Search:
    """Part I (figure 5.8): a place near the minimum of a function that falls, then rises."""
    if not least < most:
        raise UsageError(f"There is nothing to search between {least:g} and {most:g}.")
    if tolerance <= 0:
        raise UsageError("A search to no tolerance never ends.", hint="Take a tolerance above 0.")
    known = function if isinstance(function, Memo) else Memo(function)
    interval = Interval(least, most)
    iterations = 0
    while interval.length > tolerance:
        interval.narrow(known(interval.left), known(interval.right))
        iterations += 1
    value = known(interval.middle)
    return Search(interval.middle, value, iterations, known.evaluations)


def find_window(
    function: Callable[[float], float],
    step: float,
    *,
    fluctuation: float,
    stride: float,
    least: float = 0.0,
    most: float = math.inf,
) -> Window:
    """Part II (figure 5.9): the range around `step` in which the function stays about as low.

    That is, within the share `fluctuation` of its value there. The strides double while they fit and are
    halved afterwards, down to `stride`. The ends stay above `least` and do not exceed `most`.
    """
    if fluctuation <= 0 or stride <= 0:
        raise UsageError("Both the fluctuation and the stride must be above 0.")
    known = function if isinstance(function, Memo) else Memo(function)
    best = known(step)

    def fits(place: float) -> bool:
        return least < place <= most and abs(known(place) - best) < fluctuation * best

    low, high = _walk(step, -stride, fits), _walk(step, stride, fits)
    return Window(low, high, known.evaluations)


def _walk(place: float, stride: float, fits: Callable[[float], bool]) -> float:
    """Go on by doubling strides while they fit, then by halving ones."""
    factor = 1
    while fits(place + factor * stride):
        place += factor * stride
        factor *= 2
    factor //= 2
    while factor >= 1 and fits(place + factor * stride):
        place += factor * stride
        factor //= 2
    return place


class StepController:
    """Proposes the step of a running gossip from the durations of its rounds.

    Use `step_ns` in each round and report its duration by `round_took`. While it searches, each of about a
    dozen steps is tried for some rounds; afterwards the best is kept. After `hold_rounds` its neighbourhood
    is searched again; when two averages in a row, each of as many rounds as were tried at each step, are
    off by more than the share `fluctuation`, the whole range is.

    rounds_per_point: raising it makes noise matter less and the search longer.
    tolerance: the factor between the ends of the interval at which the search stops.
    hold_rounds: raising it delays the detection of changes that durations do not show: a network that has
        become faster shows only if the step does not dominate the time.
    """

    __slots__ = (
        "_best", "_drifts", "_fluctuation", "_hold_rounds", "_interval", "_least", "_left", "_most", "_right",
        "_rounds_held", "_rounds_per_point", "_samples", "_tolerance", "_trying", "searches",
    )  # fmt: skip

    def __init__(
        self,
        least_ns: Nanoseconds,
        most_ns: Nanoseconds,
        *,
        rounds_per_point: int = 3,
        tolerance: float = 1.25,
        fluctuation: float = 0.25,
        hold_rounds: int = 500,
    ) -> None:
        if not 0 < least_ns < most_ns:
            raise UsageError("The least step must be above 0 and below the most.")
        if rounds_per_point < 1 or hold_rounds < 1:
            raise UsageError("Rounds are counted from 1.")
        if tolerance <= 1 or fluctuation <= 0:
            raise UsageError("The tolerance must be above 1 and the fluctuation above 0.")
        self._least, self._most = math.log(least_ns), math.log(most_ns)
        self._rounds_per_point = rounds_per_point
        self._tolerance = math.log(tolerance)
        self._fluctuation = fluctuation
        self._hold_rounds = hold_rounds
        self.searches = 0
        """Searches begun so far."""
        self._begin(self._least, self._most)

    @property
    def step_ns(self) -> Nanoseconds:
        """The step to use in the next round."""
        return round(math.exp(self._trying))

    @property
    def is_searching(self) -> bool:
        return self._interval is not None

    def round_took(self, duration_ns: Nanoseconds) -> None:
        """Report the duration of a round with the proposed step."""
        if duration_ns < 0:
            raise UsageError("No round takes less than no time.")
        self._samples.append(duration_ns)
        if len(self._samples) < self._rounds_per_point and not self._is_hopeless(duration_ns):
            return
        average = sum(self._samples) / len(self._samples)
        self._samples.clear()
        if self._interval is None:
            self._watch(average)
        else:
            self._note(self._interval, average)

    def _begin(self, low: float, high: float) -> None:
        self.searches += 1
        self._interval: Interval | None = Interval(low, high)
        self._left: float | None = None
        self._right: float | None = None
        self._best: float | None = None
        self._rounds_held = self._drifts = 0
        self._samples: list[Nanoseconds] = []
        self._try_next(self._interval)

    def _is_hopeless(self, duration_ns: Nanoseconds) -> bool:
        return self.is_searching and self._best is not None and duration_ns > HOPELESS * self._best

    def _note(self, interval: Interval, average: float) -> None:
        """The step on trial has its average: try the next, or narrow the interval."""
        self._best = average if self._best is None else min(self._best, average)
        if self._trying == interval.left:
            self._left = average
        else:
            self._right = average
        if self._left is not None and self._right is not None:
            keeps_right = self._left >= self._right
            interval.narrow(self._left, self._right)
            # The better of the two inner points is the other inner point of what is left.
            self._left, self._right = (self._right, None) if keeps_right else (None, self._left)
        self._try_next(interval)

    def _try_next(self, interval: Interval) -> None:
        if interval.length <= self._tolerance:
            self._trying = interval.middle
            self._interval = None
            self._best = None
        else:
            self._trying = interval.left if self._left is None else interval.right

    def _watch(self, average: float) -> None:
        """The search is over: later averages are compared with its first one."""
        self._rounds_held += self._rounds_per_point
        if self._best is None:
            self._best = average
            return
        drifted = abs(average - self._best) > self._fluctuation * self._best
        self._drifts = self._drifts + 1 if drifted else 0
        if self._drifts == DRIFTS:
            self._begin(self._least, self._most)
        elif self._rounds_held >= self._hold_rounds:
            low, high = self._trying - NEIGHBOURHOOD, self._trying + NEIGHBOURHOOD
            self._begin(max(low, self._least), min(high, self._most))
