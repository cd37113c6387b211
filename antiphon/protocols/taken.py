"""Which numbers of a sender's messages were used, so that none is used twice."""

from typing import Final

MOST_RANGES: Final = 8
"""Separate ranges of numbers that are remembered of a sender. Raising it costs memory."""


class Taken:
    """The numbers of one sender that are taken, by incarnation.

    The latest `MOST_RANGES` ranges are remembered. A sender has one for each incarnation, unless it
    contradicts itself, or some of its messages were not for us.
    """

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, int]] = []
        """Incarnation, first number and end of each range."""

    def note(self, incarnation: int, first: int, end: int) -> None:
        """These numbers are taken from now on."""
        if self._ranges and self._ranges[-1][0] == incarnation and self._ranges[-1][2] == first:
            first = self._ranges.pop()[1]
        self._ranges.append((incarnation, first, end))
        del self._ranges[:-MOST_RANGES]

    def has(self, incarnation: int | None, first: int, end: int) -> bool:
        """Whether any of these numbers is taken, in that incarnation or in any."""
        return any(
            incarnation in (None, one) and first < last and begin < end for one, begin, last in self._ranges
        )
