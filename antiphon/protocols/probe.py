"""How long others take to acknowledge: one of our own batches in a second is timed until each has it."""

from typing import Final

from antiphon.core.time import NEVER_NS, SECOND_NS, Nanoseconds

PAUSE_NS: Final[Nanoseconds] = SECOND_NS
"""How long a batch is timed before the next one is. Raising it costs how new the times are; one that takes
longer than this to acknowledge is not timed, and is seen by how far it is behind."""


class Probe:
    """The batch that is being timed. Whoever is timed remembers the `serial` of the last batch."""

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
        """One that was last timed with that serial holds everything below a position: how long that took."""
        if serial == self.serial or position < self._end:
            return None
        return now - self._sent_ns
