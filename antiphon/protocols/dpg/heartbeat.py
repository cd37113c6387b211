"""When a member reports: one report cycle for the whole group rather than one for each member.

Source: Konorski, section 4.4. A member that hears a report delays its own, so the group sends one report a
cycle, however many members it has. The delay is waived if the reporter lacks something. Beyond the paper it
is also waived for lost messages, else a member that lacks one may never report it. Each waiting time has a
random part, else all members that waive would report at once. Where reports take more than their share of the
traffic the cycle is stretched and nothing is waived: on a full channel, reports about messages that are late
because of reports would feed on themselves.
"""

from random import Random
from typing import Final

from antiphon.core.time import NEVER_NS, Nanoseconds

BREATH: Final = 0.05
"""The share of a cycle that passes at least before a report is answered. Raising it costs latency."""
SHARE: Final = 0.2
"""The part of the traffic that reports may take (the paper's section 6)."""
ALLOWANCE: Final = 1024
"""Bytes of reports in a cycle that never count as too much. Raising it costs bandwidth in a quiet group."""
MEMORY_CYCLES: Final = 8
"""Cycles of traffic over which the share is measured. Raising it makes it adapt later."""
LONGEST_STRETCH: Final = 2.0
"""A cycle is stretched by no more than this. Raising it costs latency when something was missed."""


class ReportShare:
    """The share of reports in recent traffic, and the factor by which it stretches the cycle."""

    __slots__ = ("_cycle_ns", "_looked_ns", "_messages", "_reports", "stretch")

    def __init__(self, cycle_ns: Nanoseconds) -> None:
        self._cycle_ns: Final = cycle_ns
        self._messages = 0.0
        self._reports = 0.0
        self._looked_ns: Nanoseconds = 0
        self.stretch = 1.0

    def message(self, size: int) -> None:
        """A message of this size was sent or received."""
        self._messages += size

    def report(self, now: Nanoseconds, size: int) -> None:
        """A report of this size was sent or received."""
        fading = 0.5 ** ((now - self._looked_ns) / (MEMORY_CYCLES * self._cycle_ns))
        self._looked_ns = now
        self._messages *= fading
        self._reports = self._reports * fading + size
        fair = SHARE * self._messages + MEMORY_CYCLES * ALLOWANCE
        self.stretch = min(max(1.0, self._reports / fair), LONGEST_STRETCH)


class ReportHeartbeat:
    """When the next report is due."""

    __slots__ = ("_cycle_ns", "_idle_ns", "_random", "next_ns", "share")

    def __init__(self, cycle_ns: Nanoseconds, idle_ns: Nanoseconds, random: Random) -> None:
        self._cycle_ns: Final = cycle_ns
        self._idle_ns: Final = idle_ns
        self._random = random
        self.next_ns: Nanoseconds = NEVER_NS
        self.share: Final = ReportShare(cycle_ns)

    def begin(self, now: Nanoseconds) -> None:
        self.next_ns = now + self._up_to_a_cycle()

    def due(self, now: Nanoseconds) -> bool:
        return now >= self.next_ns

    def reported(self, now: Nanoseconds, *, busy: bool) -> None:
        """This member has reported; `busy` if there is or will be more to report."""
        self.next_ns = now + self._pause(busy=busy)

    def on_report(self, now: Nanoseconds, *, waive: bool, busy: bool) -> None:
        """Another member has reported; `waive` if it lacks something that is known here."""
        if waive:
            soon_ns = now + round(BREATH * self.share.stretch * self._cycle_ns) + self._up_to_a_cycle()
            self.next_ns = min(self.next_ns, soon_ns)
        else:
            self.next_ns = now + self._pause(busy=busy)

    def stir(self, now: Nanoseconds) -> None:
        """There is or will be something to report: an idle pause ends."""
        self.next_ns = min(self.next_ns, now + self._pause(busy=True))

    def urge(self, now: Nanoseconds) -> None:
        """There is something to report soon."""
        self.next_ns = min(self.next_ns, now + self._up_to_a_cycle())

    def _pause(self, *, busy: bool) -> Nanoseconds:
        cycle_ns = self.share.stretch * self._cycle_ns if busy else self._idle_ns
        return round(cycle_ns * (1 + self._random.random()))

    def _up_to_a_cycle(self) -> Nanoseconds:
        return round(self.share.stretch * self._cycle_ns * self._random.random())
