"""The one door to numba: functions compiled on first use and cached on disk, with their types kept."""

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile a function of numbers and arrays to machine code; the cache outlives the process."""
    return cast(Function, numba.njit(cache=True)(function))
