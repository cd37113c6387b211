"""How long a sequencer may be silent before others replace it: as long as it itself stands still at times.

A process on a busy machine may not get to run for tens or hundreds of milliseconds. A fixed patience is then
either too short, and sequencers that live are replaced again and again, or too long when one is gone. So the
sequencer watches how late its own timers are, and tells with its numbers how much patience it needs; others
keep to that. It stands by it too: after standing still for a good part of the lease it numbers nothing before
it knows that it has not been replaced.
"""

from typing import Final

from antiphon.core.time import SECOND_NS, Nanoseconds

LONGEST_NS: Final[Nanoseconds] = SECOND_NS
"""No lease is longer. Raising it costs a longer halt when a sequencer on a very busy machine is gone."""
MARGIN: Final = 3
"""A lease is so many times as long as its sequencer lately stood still."""
DECAY: Final = 0.8
"""What is left of a lease's surplus after each second without a reason for it."""


class Lease:
    """One sequencer's lease, as it sets it."""

    def __init__(self, shortest_ns: Nanoseconds) -> None:
        self._shortest_ns = shortest_ns
        self._surplus_ns: Nanoseconds = 0
        self._decayed_ns: Nanoseconds = 0

    @property
    def ns(self) -> Nanoseconds:
        return self._shortest_ns + self._surplus_ns

    @property
    def stall_ns(self) -> Nanoseconds:
        """Whoever has stood still for longer may have been replaced soon."""
        return 3 * self.ns // 8

    def stood_still(self, now: Nanoseconds, still_ns: Nanoseconds) -> None:
        """A timer was so late."""
        wanted_ns = min(MARGIN * still_ns, LONGEST_NS) - self._shortest_ns
        if wanted_ns > self._surplus_ns:
            self._surplus_ns = wanted_ns
            self._decayed_ns = now
        elif now - self._decayed_ns >= SECOND_NS:
            self._surplus_ns = int(DECAY * self._surplus_ns)
            self._decayed_ns = now


def believed(lease_ns: int, shortest_ns: Nanoseconds) -> Nanoseconds:
    """A lease as another tells it."""
    return max(shortest_ns, min(lease_ns, LONGEST_NS))
