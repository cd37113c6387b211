"""What a member counts of its own work, beside what its transport and its protocol count."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from antiphon.core.time import Nanoseconds, to_seconds

WATCHED: Final = 1024
"""Own batches timed at once; further batches are not timed. Raising it costs memory."""
BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Upper bounds of the latency histogram's buckets."""


@dataclass
class Latency:
    """A histogram of seconds."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    total_s: float = 0.0
    count: int = 0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total_s += seconds
        for place, bound in enumerate(BOUNDS_S):
            if seconds <= bound:
                self.buckets[place] += 1
                return
        self.buckets[-1] += 1


@dataclass
class Figures:
    """Plain numbers; the group's `counters` shows them by these names."""

    admitted_messages: int = 0
    delivered_messages: int = 0
    delivered_bytes: int = 0
    stable_messages: int = 0
    absences: int = 0
    slow_reader_spells: int = 0


class Watch:
    """Times this member's own batches: until they are delivered here, and until they are stable."""

    def __init__(self) -> None:
        self.delivery = Latency()
        self.stability = Latency()
        self._undelivered: deque[tuple[int, Nanoseconds]] = deque(maxlen=WATCHED)
        self._unstable: deque[tuple[int, Nanoseconds]] = deque(maxlen=WATCHED)

    def admitted(self, end: int, now: Nanoseconds) -> None:
        self._undelivered.append((end, now))
        self._unstable.append((end, now))

    def delivered(self, end: int, now: Nanoseconds) -> None:
        _settle(self._undelivered, end, now, self.delivery)

    def stable(self, end: int, now: Nanoseconds) -> None:
        _settle(self._unstable, end, now, self.stability)

    def forget(self) -> None:
        self._undelivered.clear()
        self._unstable.clear()


def _settle(waiting: deque[tuple[int, Nanoseconds]], end: int, now: Nanoseconds, latency: Latency) -> None:
    while waiting and waiting[0][0] <= end:
        _, since = waiting.popleft()
        latency.add(to_seconds(now - since))
