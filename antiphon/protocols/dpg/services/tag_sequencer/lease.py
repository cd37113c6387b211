"""How long a sequencer may be silent before others replace it: its lease.

A process on a busy machine may not run for tens or hundreds of milliseconds. A fixed lease is then either
too short, and live sequencers are replaced again and again, or too long when a sequencer is gone. So the
sequencer measures how late its own timers are, and its numbers carry the lease that it needs; others respect
it. So does the sequencer: after standing still for a good part of its lease it numbers nothing before it
knows that it was not replaced.
"""

from typing import Final

from antiphon.core.time import SECOND_NS, Nanoseconds

LONGEST_NS: Final[Nanoseconds] = SECOND_NS
"""The longest lease. Raising it costs a longer halt when a sequencer on a very busy machine is gone."""
MARGIN: Final = 3
"""A lease is this multiple of the sequencer's recent standstill. Raising it costs a longer halt."""
DECAY: Final = 0.8
"""Share of a lease's surplus that is left after each quiet second. Raising it keeps leases long."""


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
        """After a longer standstill a sequencer may have been replaced."""
        return 3 * self.ns // 8

    def stood_still(self, now: Nanoseconds, still_ns: Nanoseconds) -> None:
        """A timer was late by this much."""
        wanted_ns = min(MARGIN * still_ns, LONGEST_NS) - self._shortest_ns
        if wanted_ns > self._surplus_ns:
            self._surplus_ns = wanted_ns
            self._decayed_ns = now
        elif now - self._decayed_ns >= SECOND_NS:
            self._surplus_ns = int(DECAY * self._surplus_ns)
            self._decayed_ns = now


def believed(lease_ns: int, shortest_ns: Nanoseconds) -> Nanoseconds:
    """The believable part of a lease that a peer tells."""
    return max(shortest_ns, min(lease_ns, LONGEST_NS))
