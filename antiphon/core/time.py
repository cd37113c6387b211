"""Time is an integer of nanoseconds, always passed in, never read."""

from typing import Final, TypeAlias

Nanoseconds: TypeAlias = int

MILLISECOND_NS: Final = 1_000_000
SECOND_NS: Final = 1_000_000_000
NEVER_NS: Final = (1 << 63) - 1
"""Later than everything: the largest time that fits a signed 64-bit integer."""


def from_seconds(seconds: float) -> Nanoseconds:
    """The nearest whole number of nanoseconds.

    >>> from_seconds(0.0015)
    1500000
    """
    return round(seconds * SECOND_NS)


def to_seconds(time_ns: Nanoseconds) -> float:
    return time_ns / SECOND_NS
