"""The one-channel broadcast medium: everyone hears one transmission at a time, in one order.

Source: Konorski, section 3.1 (the single-access LAN and its reception buffer) and section 6 (several
reception buffers, 20 in that implementation; an adapter does not hear what it transmits itself).

Assumes: an ideal access method. Transmissions are served in the order in which they were handed over and
occupy the channel for size x 8 / bandwidth; a frame is heard by every adapter `propagation_ns` after its
end.
Guarantees: the 1C service. Whatever two sites both receive they receive in the order of transmission; a
sender does not receive its own frames. A unicast, or a multicast to named sites, occupies the channel like
any other frame; the adapters that it does not name filter it out, and it takes none of their buffers.

Reception: a heard frame waits in one of the site's `buffers` until the protocol, which needs
`processing_ns` per frame and takes one after another, fetches it; fetching frees the buffer, and the PDU
reaches the protocol when its processing ends. How long that takes may depend on the site's state when it
turns to the frame: then `processing_ns` is a function of the site's index. A frame that finds every buffer
full overwrites the *oldest* waiting one. The paper describes a single buffer, where oldest and newest are the
same frame; with several we follow a ring that the adapter writes round and round. Only so does the paper's
one-bit detector stay exact: the loss then always lies just before the next frame fetched. Besides, each
adapter misses a frame with probability `miss`, and that loss lies just before the next frame heard.

Overwriting and missing are visible to the site, as the ContiguityDetector needs it: an `Arrival` has
`after_loss` set when a frame meant for that site was lost between it and the arrival before it, and
`overwritten` and `missed` count them. That the adapter notices a miss is our reading: an unnoticed one
would let the detector infer contiguity where there is none, which section 3 rules out.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.core.seeds import Seeds
from antiphon.core.time import NEVER_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.sim.network import Arrival

RECEPTION_BUFFERS: Final = 20
"""What the paper's implementation found to be enough for a miss rate well below one in a hundred."""
ETHERNET_BITS_PER_S: Final = 10_000_000
Processing = Callable[[int], Nanoseconds]
"""How long the protocol at a site, known by its index, would need for a frame now."""


class Frame:
    """One transmission: its sender, its PDU and its destinations."""

    __slots__ = ("pdu", "source", "targets")

    def __init__(self, source: int, targets: tuple[int, ...], pdu: Pdu) -> None:
        self.source = source
        self.targets = targets
        self.pdu = pdu


class Adapter:
    """A site's reception buffers and the protocol behind them."""

    __slots__ = ("head_lost", "heard", "missed", "overwritten", "processing", "tail_lost", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[Frame, bool]] = deque()
        """Each frame with whether the adapter missed one just before it."""
        self.processing = False
        self.head_lost = False
        self.tail_lost = False
        self.heard = 0
        self.overwritten = 0
        self.missed = 0


class Heard:
    """The event that a frame's end reaches the adapters."""

    __slots__ = ("frame",)

    def __init__(self, frame: Frame) -> None:
        self.frame = frame


class Medium:
    """Implements `antiphon.sim.network.Network`."""

    def __init__(
        self,
        sites: int,
        seeds: Seeds,
        *,
        bandwidth_bits_per_s: int = ETHERNET_BITS_PER_S,
        propagation_ns: Nanoseconds = 0,
        buffers: int = RECEPTION_BUFFERS,
        processing_ns: Nanoseconds | Processing = 0,
        miss: float = 0.0,
    ) -> None:
        if bandwidth_bits_per_s <= 0 or buffers < 1:
            raise UsageError("A medium needs a positive bandwidth and at least one reception buffer.")
        fixed_ns = 0 if callable(processing_ns) else processing_ns
        if propagation_ns < 0 or fixed_ns < 0 or not 0.0 <= miss <= 1.0:
            raise UsageError("A medium's times cannot be negative, and its miss rate is a probability.")
        self._bandwidth_bits_per_s = bandwidth_bits_per_s
        self._propagation_ns = propagation_ns
        self._buffers = buffers
        self._processing: Processing = processing_ns if callable(processing_ns) else lambda _: fixed_ns
        self._miss = miss
        self._random = seeds.stream("medium/miss")
        self._adapters = [Adapter() for _ in range(sites)]
        self._free_ns: Nanoseconds = 0
        self._events: list[tuple[Nanoseconds, int, Heard | Arrival]] = []
        self._scheduled = 0
        self._transmissions = 0
        self._carried: Counter[type[Pdu]] = Counter()

    # The network contract

    def send(self, now: Nanoseconds, source: int, targets: Sequence[int] | None, pdu: Pdu, size: int) -> None:
        named = range(len(self._adapters)) if targets is None else targets
        takers = tuple(target for target in named if target != source)
        if not takers:
            return
        busy_ns = round(size * 8 * SECOND_NS / self._bandwidth_bits_per_s)
        self._free_ns = max(now, self._free_ns) + busy_ns
        self._transmissions += 1
        self._carried[type(pdu)] += size
        self._schedule(self._free_ns + self._propagation_ns, Heard(Frame(source, takers, pdu)))

    def next_ns(self) -> Nanoseconds:
        return self._events[0][0] if self._events else NEVER_NS

    def advance(self, limit_ns: Nanoseconds) -> Sequence[Arrival]:
        while self.next_ns() <= limit_ns:
            now, _, event = heappop(self._events)
            if isinstance(event, Arrival):
                self._fetch(now, event.target)
                return (event,)
            for target in event.frame.targets:
                self._hear(now, target, event.frame)
        return ()

    def within(self, source: int, hops: int) -> tuple[int, ...]:
        """Everyone is one link away."""
        return tuple(site for site in range(len(self._adapters)) if site != source) if hops > 0 else ()

    def network_messages(self) -> int:
        return self._transmissions

    # What the channel and the adapters report

    def carried_bytes(self) -> Mapping[type[Pdu], int]:
        """How many bytes of each kind of PDU the channel has carried."""
        return self._carried

    def heard(self, site: int) -> int:
        """The number of frames for this site that have passed, the lost ones included."""
        return self._adapters[site].heard

    def overwritten(self, site: int) -> int:
        """How many frames this site lost because its buffers were full."""
        return self._adapters[site].overwritten

    def missed(self, site: int) -> int:
        """How many frames this site's adapter missed."""
        return self._adapters[site].missed

    # Reception

    def _hear(self, now: Nanoseconds, site: int, frame: Frame) -> None:
        adapter = self._adapters[site]
        adapter.heard += 1
        if self._miss and self._random.random() < self._miss:
            adapter.missed += 1
            adapter.tail_lost = True
            return
        if len(adapter.waiting) == self._buffers:
            adapter.waiting.popleft()
            adapter.overwritten += 1
            adapter.head_lost = True
        adapter.waiting.append((frame, adapter.tail_lost))
        adapter.tail_lost = False
        if not adapter.processing:
            self._fetch(now, site)

    def _fetch(self, now: Nanoseconds, site: int) -> None:
        """The protocol turns to the next waiting frame, which frees its buffer."""
        adapter = self._adapters[site]
        adapter.processing = bool(adapter.waiting)
        if adapter.processing:
            frame, after_miss = adapter.waiting.popleft()
            done_ns = now + self._processing(site)
            after_loss = after_miss or adapter.head_lost
            self._schedule(done_ns, Arrival(done_ns, site, frame.source, frame.pdu, after_loss))
            adapter.head_lost = False

    def _schedule(self, time_ns: Nanoseconds, event: Heard | Arrival) -> None:
        self._scheduled += 1
        heappush(self._events, (time_ns, self._scheduled, event))
