"""Reasons why processes were refused: counted by sentence, and shown to people at a bounded rate."""

from collections import OrderedDict
from typing import Final

MOST_KEPT: Final = 32
"""Sentences kept, the latest ones."""
PER_SECOND: Final = 8
"""New sentences shown per second. Raising it lets strangers crowd out other events."""
AGAIN_S: Final = 60.0
"""Pause before the same sentence is shown again."""


class Refusals:
    """The latest reasons, each with its count."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._told_s: dict[str, float] = {}
        self._second = 0.0
        self._left = PER_SECOND

    def note(self, reason: str, now_s: float) -> bool:
        """Count a reason. Returns whether it should be shown now."""
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
