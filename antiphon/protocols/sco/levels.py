"""The acceptance levels of section 2.2, as one member knows them of one message.

A level is a set of flags, since figure 2 is no chain: full implies causally atomic, which implies causal and
continuously atomic; the latter implies continuous and atomic, causal implies continuous, and both continuous
and atomic imply simple. What precedes a message means what precedes it among those addressed to this member.
"""

from collections import OrderedDict
from enum import Flag, auto
from typing import TYPE_CHECKING, Final, Self

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site

if TYPE_CHECKING:
    from antiphon.protocols.sco.peer import Batch

MOST_REMEMBERED: Final = 4096
"""Fully accepted batches that are remembered if `observe` is on. Raising it costs memory."""


class Level(Flag):
    """What a member knows of a message that is addressed to it."""

    SIMPLE = auto()
    """It has come."""
    CONTINUOUS = auto()
    """Everything that its sender sent here before it has come too."""
    CAUSAL = auto()
    """Everything that precedes it has come too."""
    ATOMIC = auto()
    """Every destination is known to have it."""
    CONTINUOUSLY_ATOMIC = auto()
    """Everything that its sender sent here before it is atomic too."""
    CAUSALLY_ATOMIC = auto()
    """Everything that precedes it is atomic too."""
    FULL = auto()
    """It can be delivered to the application in causal order."""

    @property
    def label(self) -> str:
        """Its name in words, such as causally-atomic; of several levels, their names."""
        return ", ".join((level.name or "").lower().replace("_", "-") for level in self)

    @classmethod
    def of(cls, label: str) -> Self:
        """The level of that name.

        >>> Level.of("causally-atomic").label
        'causally-atomic'
        """
        for level in cls:
            if level.label == label:
                return level
        raise UsageError(
            f"There is no level of acceptance '{label}'.",
            hint=f"There are: {', '.join(level.label for level in cls)}.",
        )


LEVELS: Final = tuple(Level)
ALL_LEVELS: Final = Level(sum(level.value for level in LEVELS))
IMPLIED: Final[dict[Level, Level]] = {
    Level.CONTINUOUS: Level.SIMPLE,
    Level.CAUSAL: Level.CONTINUOUS,
    Level.ATOMIC: Level.SIMPLE,
    Level.CONTINUOUSLY_ATOMIC: Level.CONTINUOUS | Level.ATOMIC,
    Level.CAUSALLY_ATOMIC: Level.CAUSAL | Level.CONTINUOUSLY_ATOMIC,
    Level.FULL: Level.CAUSALLY_ATOMIC,
}
"""Figure 2: the levels that each level implies directly."""


class Remembered:
    """The latest fully accepted batches if `observe` is on; nothing otherwise."""

    def __init__(self, observes: bool) -> None:
        self._observes = observes
        self._batches: OrderedDict[tuple[Site, int], Batch] = OrderedDict()
        self._news: list[Batch] = []

    def news(self) -> list["Batch"]:
        """Those added since this was last asked."""
        found, self._news = self._news, []
        return found

    def add(self, batch: "Batch") -> None:
        if self._observes:
            self._news.append(batch)
            self._batches[batch.sender.site, batch.number] = batch
            if len(self._batches) > MOST_REMEMBERED:
                self._batches.popitem(last=False)

    def find(self, sender: Site, number: int) -> "Batch | None":
        for (site, first), batch in self._batches.items():
            if site == sender and first <= number < batch.end:
                return batch
        return None
