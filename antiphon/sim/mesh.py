"""The one-to-one mesh: every ordered pair of sites has a channel of its own.

Sources: the high-speed one-to-one network of Tachikawa and Takizawa (section 2: keeps the order of a
channel, may lose), and the network that Jia and So assume when they count one transmission per destination
(section 6).

Assumes: channels never wait for each other. With a `bandwidth`, in bits a second, a PDU occupies its channel
for size x 8 / bandwidth, behind those before it; without one its size plays no part.
Guarantees: a PDU arrives `delay_ns` after it has left its site, plus a jitter drawn evenly from 0 to
`jitter_ns`; with `ordered` channels none overtakes another of its own channel. A multicast is one
transmission per target. Loss is not the mesh's business but a fault layer's (`antiphon.sim.layers`), as for
every network.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from antiphon.core.errors import UsageError
from antiphon.core.seeds import Seeds
from antiphon.core.time import NEVER_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.sim.network import Arrival


class Mesh:
    """Implements `antiphon.sim.network.Network`."""

    def __init__(
        self,
        sites: int,
        seeds: Seeds,
        *,
        delay_ns: Nanoseconds,
        jitter_ns: Nanoseconds = 0,
        ordered: bool = True,
        bandwidth: float | None = None,
    ) -> None:
        if delay_ns < 0 or jitter_ns < 0:
            raise UsageError("A mesh cannot have a negative delay or jitter.")
        if bandwidth is not None and bandwidth <= 0:
            raise UsageError("A channel's bandwidth must be positive.")
        self._sites = sites
        self._delay_ns = delay_ns
        self._jitter_ns = jitter_ns
        self._ordered = ordered
        self._ns_per_byte = 0.0 if bandwidth is None else 8 * SECOND_NS / bandwidth
        self._free_ns: dict[tuple[int, int], Nanoseconds] = {}
        """When each channel has taken in what was sent on it."""
        self._random = seeds.stream("mesh/jitter")
        self._under_way: list[tuple[Nanoseconds, int, Arrival]] = []
        self._latest_ns: dict[tuple[int, int], Nanoseconds] = {}
        self._transmissions = 0

    def send(self, now: Nanoseconds, source: int, targets: Sequence[int] | None, pdu: Pdu, size: int) -> None:
        everyone = range(self._sites) if targets is None else targets
        for target in everyone:
            if target != source:
                self._transmit(self._left_ns(now, source, target, size), source, target, pdu)

    def next_ns(self) -> Nanoseconds:
        return self._under_way[0][0] if self._under_way else NEVER_NS

    def advance(self, limit_ns: Nanoseconds) -> Sequence[Arrival]:
        if self.next_ns() > limit_ns:
            return ()
        return (heappop(self._under_way)[2],)

    def within(self, source: int, hops: int) -> tuple[int, ...]:
        """Everyone is one link away."""
        return tuple(site for site in range(self._sites) if site != source) if hops > 0 else ()

    def network_messages(self) -> int:
        return self._transmissions

    def _left_ns(self, now: Nanoseconds, source: int, target: int, size: int) -> Nanoseconds:
        """When the last byte of a PDU leaves its site."""
        if not self._ns_per_byte:
            return now
        start_ns = max(now, self._free_ns.get((source, target), 0))
        left_ns = self._free_ns[source, target] = start_ns + round(size * self._ns_per_byte)
        return left_ns

    def _transmit(self, left_ns: Nanoseconds, source: int, target: int, pdu: Pdu) -> None:
        time_ns = left_ns + self._delay_ns
        if self._jitter_ns:
            time_ns += self._random.randrange(self._jitter_ns + 1)
            if self._ordered:
                time_ns = max(time_ns, self._latest_ns.get((source, target), 0))
                self._latest_ns[source, target] = time_ns
        self._transmissions += 1
        # The serial number breaks ties, so that what was sent first arrives first.
        heappush(self._under_way, (time_ns, self._transmissions, Arrival(time_ns, target, source, pdu)))
