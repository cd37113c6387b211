"""The one door to numba: functions compiled on first use and cached on disk, with their types kept.

Without numba, importing this module raises an error that names the extra.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from antiphon.core.extras import lacking

try:
    import numba
except ModuleNotFoundError:
    raise lacking("sim", "Compiled kernels, which simulate and judge at speed, need") from None

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile a function of numbers and arrays to machine code; the cache outlives the process."""
    return cast(Function, numba.njit(cache=True)(function))


def in_place(function: Function) -> Function:
    """The same for a function that only works on the arrays it is given and makes none of its own.

    It does without counting references to them, which costs two atomic operations for every array of every
    call: for small functions that hand many arrays on, more than all the rest.
    """
    return cast(Function, numba.njit(cache=True, _nrt=False)(function))


def inlined(function: Function) -> Function:
    """Like `in_place`, for a function that is inlined into each compiled function that calls it."""
    return cast(Function, numba.njit(cache=True, _nrt=False, inline="always")(function))
