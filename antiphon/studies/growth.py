"""Growth laws: which of a few simple laws a measured curve follows best."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

LAWS: Final[Mapping[str, Callable[[float], float]]] = {
    "log n": lambda n: math.log(n),
    "n": lambda n: n,
    "n log n": lambda n: n * math.log(n),
    "n^2": lambda n: n * n,
}


def misfit(law: Callable[[float], float], x: Sequence[float], y: Sequence[float]) -> float:
    """The root mean square of the logarithms' residuals under the best constant factor.

    Logarithms make every point count alike whatever its size; 0.1 means that the law is off by about 10%.
    """
    residuals = [math.log(value / law(place)) for place, value in zip(x, y, strict=True)]
    mean = sum(residuals) / len(residuals)
    return math.sqrt(sum((residual - mean) ** 2 for residual in residuals) / len(residuals))


def best_law(x: Sequence[float], y: Sequence[float]) -> tuple[str, float]:
    """The law that fits best, and its misfit."""
    misfits = {name: misfit(law, x, y) for name, law in LAWS.items()}
    name = min(misfits, key=lambda law: misfits[law])
    return name, misfits[name]
