"""How often a member speaks, by the size of its view: what it sends and receives for control stays bounded.

A small group is one in which each member can exchange signs of life with every other one
(`FifoConfiguration.neighbours`). There control costs little, and the configured times hold. In a larger group
a status, a row of counts or a round of stability has an entry for each member, so its period grows with the
size; a status goes from each member to each, so its period grows with the square.
"""

from typing import Final

from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.protocols.fifo.pdus import FifoConfiguration

TICKS: Final = 5
"""Signs of life in `suspect_after_ns`. Raising it costs PDUs, and saves questions to silent members."""
ROUND_NS: Final = 3 * MILLISECOND_NS
"""Pause between rounds for each member of a large view: a round moves about 24 bytes for each member past
each member, so rounds cost some 8 kB a second. Raising it costs time to stability."""
STATUS_NS: Final = 4_000
"""Pause between statuses for each pair of members, while something is unsettled: some 8 MB a second at most.
Raising it costs time to agree on a view."""
QUIET_STATUS_NS: Final = 30 * MILLISECOND_NS
"""The same while nothing happens: some 1 kB a second. Raising it costs time to notice what everything else
has missed."""
QUIET: Final = 32
"""A small group's pause between statuses grows to this multiple of `heartbeat_ns`. Raising it costs the
same."""
SESSION_NS: Final = 20 * MILLISECOND_NS
"""Pause between a member's multicast signs of life for each member of a large view: fifty arrive a second.
Raising it costs time to find a group again after a long partition."""
ACKNOWLEDGED_ROUNDS: Final = 4
"""Rounds that should have made a message stable before a member that is late acknowledges it. Raising it
costs throughput after losses."""
LAG_ROUNDS: Final = 6
"""Rounds without progress after which a member of a large view lags. Raising it costs a longer halt."""


class Pace:
    """The times of one view."""

    __slots__ = (
        "acknowledge_ns", "announce_ns", "is_large", "is_late", "lag_ns", "quiet_status_ns", "round_ns",
        "session_ns", "status_ns", "tick_ns",
    )  # fmt: skip

    def __init__(self, configuration: FifoConfiguration, members: int) -> None:
        self.is_large = members - 1 > configuration.neighbours
        paced_ns = members * ROUND_NS if self.is_large else 0
        self.tick_ns: Nanoseconds = max(1, configuration.suspect_after_ns // TICKS)
        """Pause between signs of life."""
        self.session_ns: Nanoseconds = members * SESSION_NS if self.is_large else 0
        """Pause between those that are multicast."""
        self.round_ns: Nanoseconds = max(configuration.round_ns, paced_ns)
        """Least pause between rounds of stability."""
        pairs = members * members
        self.status_ns: Nanoseconds = max(configuration.heartbeat_ns, pairs * STATUS_NS)
        """Pause between statuses while something is unsettled."""
        self.quiet_status_ns: Nanoseconds = max(QUIET * configuration.heartbeat_ns, pairs * QUIET_STATUS_NS)
        """The pause to which it grows."""
        conduct = configuration.conduct
        wanted = self.is_large or conduct.acknowledgements == "late"
        self.is_late = wanted and configuration.repair != "acknowledge"
        """Whether stability takes the place of acknowledgements."""
        self.acknowledge_ns: Nanoseconds = (
            ACKNOWLEDGED_ROUNDS * self.round_ns if self.is_late else configuration.acknowledge_ns
        )
        """The longest delay of an acknowledgement that nothing carries."""
        longest_ns = conduct.announce_most_ns or configuration.heartbeat_ns
        self.announce_ns: Nanoseconds = max(longest_ns, paced_ns)
        """The pause to which that between announcements of a stream's end grows."""
        self.lag_ns: Nanoseconds = max(configuration.lag_ns, LAG_ROUNDS * paced_ns)
        """How long a live member may make no progress."""
