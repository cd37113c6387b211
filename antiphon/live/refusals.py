"""Why processes were not let in: counted by sentence, and told to people only so often."""

from collections import OrderedDict
from typing import Final

MOST_KEPT: Final = 32
"""Sentences that are kept, those that came last."""
PER_SECOND: Final = 8
"""New sentences that are told in a second. Raising it lets strangers crowd out other news."""
AGAIN_S: Final = 60.0
"""The same sentence is told again after so long."""


class Refusals:
    """The latest reasons, each with how often it was met."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._told_s: dict[str, float] = {}
        self._second = 0.0
        self._left = PER_SECOND

    def note(self, reason: str, now_s: float) -> bool:
        """Count a reason; whether it is time to tell it."""
        self._counts[reason] = self._counts.pop(reason, 0) + 1
        while len(self._counts) > MOST_KEPT:
            self._told_s.pop(self._counts.popitem(last=False)[0], None)
        if now_s - self._told_s.get(reason, -AGAIN_S) < AGAIN_S:
            return False
        if now_s - self._second >= 1:
            self._second, self._left = now_s, PER_SECOND
        self._left -= 1
        if self._left < 0:
            return False
        self._told_s[reason] = now_s
        return True

    def counts(self) -> dict[str, int]:
        return dict(self._counts)
