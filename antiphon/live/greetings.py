"""When this process greets: a few times at first, and again if there is a process to meet."""

from typing import Final

from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds

GREETINGS: Final = 3
GREETING_PAUSE_NS: Final = 50 * MILLISECOND_NS
LONGEST_GREETING_PAUSE_NS: Final = SECOND_NS
"""Longest pause between greetings that strangers cause; the pauses double up to this. Raising it delays the
meeting with a process whose greetings were lost; lowering it lets strangers cause more traffic."""


class Greetings:
    """The greetings that are due. Those that strangers cause get rarer and rarer."""

    def __init__(self) -> None:
        self._left = GREETINGS
        self._greeted_ns: Nanoseconds = 0
        self._pause_ns = GREETING_PAUSE_NS

    @property
    def is_due(self) -> bool:
        """Whether this process still wants to greet by itself."""
        return self._left > 0

    def want(self) -> None:
        """A member is missing: greet once more."""
        self._left = self._left or 1

    def take(self, now: Nanoseconds, is_asked: bool) -> bool:
        """Whether to greet now; `is_asked` if a stranger gave the reason."""
        since = now - self._greeted_ns
        if self._left and since >= GREETING_PAUSE_NS:
            self._left -= 1
            self._pause_ns = GREETING_PAUSE_NS
        elif is_asked and since >= self._pause_ns:
            self._pause_ns = min(2 * self._pause_ns, LONGEST_GREETING_PAUSE_NS)
        else:
            return False
        self._greeted_ns = now
        return True
