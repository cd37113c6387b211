"""The one door to numba: functions compiled on first use and cached on disk, with their types kept.

Without numba, declaring such a function raises an error that names the extra.
"""

import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

from antiphon.core.extras import lacking

Function = TypeVar("Function", bound=Callable[..., object])

_may_be_plain = False
_plain = False
"""Whether functions declared from now on stay plain Python."""


def allow_plain() -> None:
    """Say that this process does one thing and ends, so that `leave_plain` may have an effect."""
    global _may_be_plain
    _may_be_plain = True


def leave_plain() -> None:
    """Leave functions that are declared from now on as they are: there is little to do with them.

    Loading the compiler and the compiled code takes most of a second. Without effect if numba is loaded
    already, or if the process may have more to do.
    """
    global _plain
    _plain = _may_be_plain and "numba" not in sys.modules


def _compiled(function: Function, **options: Any) -> Function:
    if _plain:
        return function
    try:
        import numba
    except ModuleNotFoundError:
        raise lacking("sim", "Compiled kernels, which simulate and judge at speed, need") from None
    return cast(Function, numba.njit(cache=True, **options)(function))


def compiled(function: Function) -> Function:
    """Compile a function of numbers and arrays to machine code; the cache outlives the process."""
    return _compiled(function)


def in_place(function: Function) -> Function:
    """The same for a function that only works on the arrays it is given and makes none of its own.

    It does without counting references to them, which costs two atomic operations for every array of every
    call: for small functions that hand many arrays on, more than all the rest.
    """
    return _compiled(function, _nrt=False)


def inlined(function: Function) -> Function:
    """Like `in_place`, for a function that is inlined into each compiled function that calls it."""
    return _compiled(function, _nrt=False, inline="always")
