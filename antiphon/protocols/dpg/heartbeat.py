"""When a member reports: one report cycle for the whole group rather than one for each member.

Source: Konorski, section 4.4. A member that hears a report delays its own, so the group sends one report a
cycle, however many members it has. The delay is waived if the reporter lacks something. Beyond the paper it
is also waived for lost messages, else a member that lacks one may never report it.

Members take turns: those that follow the latest reporter in the order of names wait least, each a slot longer
than the one before. The others' waiting times have a random part from a truncated exponential distribution
(Nonnenmacher and Biersack, 1998): however large the group is, few draw so early that they report before they
hear each other. Uniform waiting times would let their number grow with the group.

Where reports take more than their share of the traffic the cycle is stretched and nothing is waived: on a
full channel, reports about messages that are late because of reports would feed on themselves. On a shared
channel slots are stretched while PDUs wait for it: members that do not hear each other's reports in time
would all report.
"""

from math import expm1, log, log1p
from random import Random
from typing import Final

from antiphon.core.time import NEVER_NS, Nanoseconds
from antiphon.protocols.dpg.channel_queue import ChannelQueue

BREATH: Final = 0.05
"""The share of a cycle that passes at least before a report is answered. Raising it costs latency."""
SHARE: Final = 0.2
"""The part of the traffic that reports may take (the paper's section 6)."""
ALLOWANCE: Final = 1024
"""Bytes of reports in a cycle that never count as too much. Raising it costs bandwidth in a quiet group."""
MEMORY_CYCLES: Final = 8
"""Cycles of traffic over which the share is measured. Raising it makes it adapt later."""
LONGEST_STRETCH: Final = 4.0
"""A cycle is stretched by no more than this. Raising it costs latency when something was missed."""
FIRST: Final = 3
"""Members that have a slot of their own. Raising it costs time when the members whose turn it is are gone."""
SLOTS: Final = 6
"""Slots in a cycle."""


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
    """When the next report is due.

    A pause has two parts, both kept in cycles: if the cycle is stretched while a member waits, its pause is
    as well. The second part is its turn, whose slots last at least as long as PDUs wait for the channel.
    """

    __slots__ = (
        "_cycle_ns",
        "_cycles",
        "_idle",
        "_is_hurried",
        "_queue",
        "_random",
        "_since_ns",
        "_turn",
        "members",
        "rank",
        "share",
    )  # fmt: skip

    def __init__(
        self, cycle_ns: Nanoseconds, idle_ns: Nanoseconds, random: Random, queue: ChannelQueue
    ) -> None:
        self._cycle_ns: Final = cycle_ns
        self._queue: Final = queue
        self._idle: Final = idle_ns / cycle_ns
        self._random = random
        self.members = 1
        """The size of the group, as far as it is known."""
        self.rank = FIRST
        """How many members' turns come before ours."""
        self._since_ns: Nanoseconds = NEVER_NS
        self._cycles = 0.0
        """Cycles from then on until the group's next report."""
        self._turn = 0.0
        """Cycles from then on until this member's."""
        self._is_hurried = False
        """Whether a shortened pause was drawn already. To draw again and again would shorten it further."""
        self.share: Final = ReportShare(cycle_ns)

    @property
    def next_ns(self) -> Nanoseconds:
        """When the next report is due, as things are."""
        return self._due_ns(self._since_ns, self._cycles, self._turn)

    def begin(self, now: Nanoseconds) -> None:
        self._set(now, 0.0)

    def due(self, now: Nanoseconds) -> bool:
        return now >= self.next_ns

    def reported(self, now: Nanoseconds, *, busy: bool) -> None:
        """This member has reported; `busy` if there is or will be more to report."""
        self._wait(now, busy=busy)

    def on_report(self, now: Nanoseconds, *, waive: bool, busy: bool, answered: bool = True) -> None:
        """Another member has reported; `waive` if it lacks something that is known here.

        `answered` is False if an earlier reporter still lacks something that this one does not tell.
        """
        if waive and self._is_hurried and not answered:
            return
        if waive and not self._is_too_much():
            self._set(now, BREATH)
            self._is_hurried = True
        else:
            self._wait(now, busy=busy)

    def stir(self, now: Nanoseconds) -> None:
        """There is or will be something to report: an idle pause ends."""
        self._set_sooner(now, 1.0)

    def urge(self, now: Nanoseconds) -> None:
        """There is something to report soon."""
        if self._is_too_much():
            self.stir(now)
        else:
            self._hurry(now)

    def _wait(self, now: Nanoseconds, *, busy: bool) -> None:
        self._set(now, 1.0 if busy else self._idle)
        self._is_hurried = False

    def _hurry(self, now: Nanoseconds) -> None:
        if not self._is_hurried:
            self._is_hurried = True
            self._set_sooner(now, 0.0)

    def _set(self, now: Nanoseconds, cycles: float) -> None:
        self._since_ns, self._cycles, self._turn = now, cycles, self._draw_turn(cycles)

    def _set_sooner(self, now: Nanoseconds, cycles: float) -> None:
        turn = self._draw_turn(cycles)
        if self._due_ns(now, cycles, turn) < self.next_ns:
            self._since_ns, self._cycles, self._turn = now, cycles, turn

    def _due_ns(self, since_ns: Nanoseconds, cycles: float, turn: float) -> Nanoseconds:
        cycle_ns = self.share.stretch * self._cycle_ns
        return since_ns + round(cycles * cycle_ns + turn * max(cycle_ns, SLOTS * self._queue.wait_ns))

    def _is_too_much(self) -> bool:
        """Whether reports take more than their share, or the channel is full."""
        return self.share.stretch > 1.0 or SLOTS * self._queue.wait_ns > self._cycle_ns

    def _draw_turn(self, cycles: float) -> float:
        """How long to wait for others, in cycles: up to one, or up to as long as the pause itself."""
        slots = self.rank if self.rank < FIRST else FIRST + (SLOTS - FIRST) * self._spread()
        return slots / SLOTS * max(1.0, cycles)

    def _spread(self) -> float:
        """From 0 to 1. The more members there are, the fewer of them draw early."""
        rate = log(self.members) + 1
        return log1p(self._random.random() * expm1(rate)) / rate
