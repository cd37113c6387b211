"""Growth laws: which of a few simple laws a measured curve follows best, and how well.

A law is tried in two forms. *Proportional*: y = c law(n), judged by the residuals of the logarithms, so that
every point has equal weight. *With an offset*: y = a + b law(n), for curves with a fixed part, such as the
steps of an epidemic; the residuals are then relative to the curve's mean. A power law's exponent gives the
steepness of a curve without any candidate law.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

LAWS: Final[Mapping[str, Callable[[float], float]]] = {
    "constant": lambda _: 1.0,
    "log n": lambda n: math.log(n),
    "n": lambda n: n,
    "n log n": lambda n: n * math.log(n),
    "n^2": lambda n: n * n,
}


def misfit(law: Callable[[float], float], x: Sequence[float], y: Sequence[float]) -> float:
    """The root mean square of the logarithms' residuals under the best constant factor.

    0.1 means that the law is off by about 10%.
    """
    residuals = [math.log(value / law(place)) for place, value in zip(x, y, strict=True)]
    mean = sum(residuals) / len(residuals)
    return math.sqrt(sum((residual - mean) ** 2 for residual in residuals) / len(residuals))


def best_law(x: Sequence[float], y: Sequence[float]) -> tuple[str, float]:
    """The law that fits best in proportion, and its misfit."""
    misfits = {name: misfit(law, x, y) for name, law in LAWS.items()}
    name = min(misfits, key=lambda law: misfits[law])
    return name, misfits[name]


@dataclass(frozen=True)
class Fit:
    """y = offset + factor law(n); the misfit is the root mean square residual as a share of the mean."""

    law: str
    offset: float
    factor: float
    misfit: float


def fit_with_offset(name: str, x: Sequence[float], y: Sequence[float]) -> Fit:
    """The least squares of y = a + b law(n)."""
    places = [LAWS[name](place) for place in x]
    offset, factor = _straight(places, y)
    squares = [(value - offset - factor * place) ** 2 for place, value in zip(places, y, strict=True)]
    mean = sum(y) / len(y)
    return Fit(name, offset, factor, math.sqrt(sum(squares) / len(squares)) / abs(mean) if mean else 0.0)


def best_fit_with_offset(x: Sequence[float], y: Sequence[float]) -> Fit:
    """The law that fits best with an offset; the constant needs none and is left out."""
    return min(
        (fit_with_offset(name, x, y) for name in LAWS if name != "constant"), key=lambda fit: fit.misfit
    )


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """The power of n that fits best: the slope of the logarithms."""
    return _straight([math.log(place) for place in x], [math.log(value) for value in y])[1]


def _straight(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Offset and slope of the least-squares line; slope 0 if all x are equal."""
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((place - mean_x) ** 2 for place in x)
    if spread == 0:
        return mean_y, 0.0
    slope = sum((place - mean_x) * (value - mean_y) for place, value in zip(x, y, strict=True)) / spread
    return mean_y - slope * mean_x, slope
