"""When a member reports: one report cycle for the whole group rather than one for each member.

Source: Konorski, section 4.4. Whoever hears another's report puts off its own, so that one report a cycle is
sent however many members there are. It need not if the other was seen to lack something. Beyond the paper the
delay is also waived for lost messages, without which whoever lacks one may never get the word, and each
waiting time has a random part: else those who waive would all speak at once.
"""

from random import Random
from typing import Final

from antiphon.core.time import NEVER_NS, Nanoseconds

BREATH: Final = 0.05
"""The share of a cycle that passes at least before a report is answered."""


class ReportHeartbeat:
    """Tells when the next report is due."""

    __slots__ = ("_cycle_ns", "_idle_ns", "_random", "next_ns")

    def __init__(self, cycle_ns: Nanoseconds, idle_ns: Nanoseconds, random: Random) -> None:
        self._cycle_ns: Final = cycle_ns
        self._idle_ns: Final = idle_ns
        self._random = random
        self.next_ns: Nanoseconds = NEVER_NS

    def begin(self, now: Nanoseconds) -> None:
        self.next_ns = now + self._up_to_a_cycle()

    def due(self, now: Nanoseconds) -> bool:
        return now >= self.next_ns

    def reported(self, now: Nanoseconds, *, busy: bool) -> None:
        """We have reported; `busy` if there is or will be more to tell."""
        self.next_ns = now + self._pause(busy)

    def heard(self, now: Nanoseconds, *, waive: bool, busy: bool) -> None:
        """Another has reported; `waive` if it lacks something that we can tell."""
        if waive:
            soon_ns = now + round(BREATH * self._cycle_ns) + self._up_to_a_cycle()
            self.next_ns = min(self.next_ns, soon_ns)
        else:
            self.next_ns = now + self._pause(busy)

    def urge(self, now: Nanoseconds) -> None:
        """There is something to say."""
        self.next_ns = min(self.next_ns, now + self._up_to_a_cycle())

    def _pause(self, busy: bool) -> Nanoseconds:
        return round((self._cycle_ns if busy else self._idle_ns) * (1 + self._random.random()))

    def _up_to_a_cycle(self) -> Nanoseconds:
        return round(self._cycle_ns * self._random.random())
