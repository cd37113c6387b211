"""How long PDUs wait for a shared channel, as its members see it.

Beyond the paper: a member cannot see the queue of a full channel. But messages and reports carry their
sender's clock. The amount by which the difference to our own clock exceeds its recent least value is the time
that the PDU waited (as in LEDBAT, RFC 6817). While PDUs wait, answers and reports that are under way are not
missing: members that asked or reported again would only lengthen the queue.
"""

from typing import Final

from antiphon.core.ids import Site
from antiphon.core.time import SECOND_NS, Nanoseconds

LONGEST_NS: Final[Nanoseconds] = SECOND_NS // 4
"""The longest wait that is believed. Raising it costs a longer silence when a channel was overloaded."""
PERIOD_NS: Final[Nanoseconds] = 30 * SECOND_NS
"""A least difference of clocks counts for one or two of these. Raising it follows drifting clocks later."""
FORGETTING: Final = 32
"""With each PDU a longer wait counts less by this part. Raising it remembers bursts for longer."""
UNHEARD_NS: Final[Nanoseconds] = 1 << 64
"""Of a peer that was not heard in a period: more than any two clocks differ by."""
MOST_SITES: Final = 1024
"""Peers whose clocks are compared. Raising it costs memory."""


class ChannelQueue:
    """The wait for a shared channel; 0 where no clocks are compared."""

    __slots__ = ("_latest", "_least", "_since_ns", "wait_ns")

    def __init__(self) -> None:
        self._least: dict[Site, tuple[Nanoseconds, Nanoseconds]] = {}
        """For each peer the least difference of clocks, in this period and in the one before."""
        self._since_ns: Nanoseconds = 0
        self._latest: tuple[Site | None, Nanoseconds] = (None, 0)
        """The peer heard last, and how long its PDU waited."""
        self.wait_ns: Nanoseconds = 0

    def on_clock(self, now: Nanoseconds, site: Site, clock_ns: Nanoseconds) -> None:
        """A peer's PDU arrives. Of two peers' waits the shorter counts: a single peer may lie."""
        if now - self._since_ns > PERIOD_NS:
            least = self._least.items()
            self._least = {peer: (UNHEARD_NS, this) for peer, (this, _) in least if this < UNHEARD_NS}
            self._since_ns = now
        difference_ns = now - clock_ns
        this, before = self._least.get(site, (difference_ns, difference_ns))
        if site not in self._least and len(self._least) >= MOST_SITES:
            del self._least[next(iter(self._least))]
        self._least[site] = (min(this, difference_ns), before)
        waited_ns = min(max(0, difference_ns - min(this, before)), LONGEST_NS)
        peer, other_ns = self._latest
        if peer != site:
            fading_ns = self.wait_ns - self.wait_ns // FORGETTING
            self.wait_ns = max(min(waited_ns, other_ns), fading_ns)
        self._latest = (site, waited_ns)
