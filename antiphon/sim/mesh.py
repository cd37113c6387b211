"""The one-to-one mesh: every ordered pair of sites has a channel of its own.

Sources: the high-speed one-to-one network of Tachikawa and Takizawa (section 2: keeps the order of a
channel, may lose), and the network that Jia and So assume when they count one transmission per destination
(section 6).

Assumes: channels never wait for each other and have no bandwidth limit, so a PDU's size plays no part.
Guarantees: a PDU arrives `delay_ns` after it was sent, plus a jitter drawn evenly from 0 to `jitter_ns`;
with `ordered` channels none overtakes another of its own channel. A multicast is one transmission per
target. Loss is not the mesh's business but a fault layer's (`antiphon.sim.layers`), as for every network.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from antiphon.core.errors import UsageError
from antiphon.core.seeds import Seeds
from antiphon.core.time import NEVER_NS, Nanoseconds
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
    ) -> None:
        if delay_ns < 0 or jitter_ns < 0:
            raise UsageError("A mesh cannot have a negative delay or jitter.")
        self._sites = sites
        self._delay_ns = delay_ns
        self._jitter_ns = jitter_ns
        self._ordered = ordered
        self._random = seeds.stream("mesh/jitter")
        self._under_way: list[tuple[Nanoseconds, int, Arrival]] = []
        self._latest_ns: dict[tuple[int, int], Nanoseconds] = {}
        self._transmissions = 0

    def send(self, now: Nanoseconds, source: int, targets: Sequence[int] | None, pdu: Pdu, size: int) -> None:  # noqa: ARG002
        everyone = range(self._sites) if targets is None else targets
        for target in everyone:
            if target != source:
                self._transmit(now, source, target, pdu)

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

    def _transmit(self, now: Nanoseconds, source: int, target: int, pdu: Pdu) -> None:
        time_ns = now + self._delay_ns
        if self._jitter_ns:
            time_ns += self._random.randrange(self._jitter_ns + 1)
            if self._ordered:
                time_ns = max(time_ns, self._latest_ns.get((source, target), 0))
                self._latest_ns[source, target] = time_ns
        self._transmissions += 1
        # The serial number breaks ties, so that what was sent first arrives first.
        heappush(self._under_way, (time_ns, self._transmissions, Arrival(time_ns, target, source, pdu)))
