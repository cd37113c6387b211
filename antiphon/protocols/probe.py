"""Round trips to other members: one of our own batches in a second is timed until each member holds it."""

from typing import Final

from antiphon.core.time import NEVER_NS, SECOND_NS, Nanoseconds

PAUSE_NS: Final[Nanoseconds] = SECOND_NS
"""Pause between batches that are timed. Raising it costs the freshness of the times. A member that takes
longer than this is not timed; its lag shows it."""


class Probe:
    """The batch that is being timed. For each member its owner keeps the `serial` of the last one timed."""

    __slots__ = ("_end", "_sent_ns", "serial")

    def __init__(self) -> None:
        self.serial = 0
        self._end = 0
        self._sent_ns: Nanoseconds = -NEVER_NS

    def sent(self, now: Nanoseconds, end: int) -> None:
        """A batch goes out whose messages end before this number."""
        if now - self._sent_ns >= PAUSE_NS:
            self.serial += 1
            self._end = end
            self._sent_ns = now

    def held(self, now: Nanoseconds, serial: int, position: int) -> Nanoseconds | None:
        """A member last timed with that serial holds everything below a position: the round trip, if new."""
        if serial == self.serial or position < self._end:
            return None
        return now - self._sent_ns
