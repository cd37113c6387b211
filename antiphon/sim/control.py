"""What members handle: PDUs, and the bytes beside the messages' bodies, by the member that they pass."""

from collections.abc import Callable, Sequence

from antiphon.core.packing import Packed
from antiphon.core.time import Nanoseconds, to_seconds
from antiphon.core.wire import Pdu
from antiphon.sim.network import Arrival, Network
from antiphon.sim.scenario import Metrics


class MeteredNetwork:
    """A network whose PDUs and control bytes are counted; implements `antiphon.sim.network.Network`.

    A member is charged for what it sends, once if it multicasts, and for what is sent to it.
    """

    def __init__(self, network: Network, members: int, size_of: Callable[[Pdu], int]) -> None:
        self._network = network
        self._size_of = size_of
        self._bytes = [0] * members
        self._sent = [0] * members
        self._received = [0] * members
        self.next_ns = network.next_ns
        self.within = network.within
        self.network_messages = network.network_messages

    def send(self, now: Nanoseconds, source: int, targets: Sequence[int] | None, pdu: Pdu, size: int) -> None:
        overhead = self._size_of(pdu) - _body_bytes(pdu)
        self._bytes[source] += overhead
        self._sent[source] += 1
        for target in range(len(self._bytes)) if targets is None else targets:
            if target != source:
                self._bytes[target] += overhead
                self._received[target] += 1
        self._network.send(now, source, targets, pdu, size)

    def advance(self, limit_ns: Nanoseconds) -> Sequence[Arrival]:
        return self._network.advance(limit_ns)

    def metrics(self, span_ns: Nanoseconds, senders: int) -> Metrics:
        """Control bytes a second of a member on average, and of the busiest one; PDUs that members handle.

        PDUs are those that a sender sends, and that are sent to it, on average over the first members, which
        send; and the sum of both for any member.
        """
        span_s = max(1e-9, to_seconds(span_ns))
        return {
            "sender_sent": round(sum(self._sent[:senders]) / senders, 1),
            "sender_received": round(sum(self._received[:senders]) / senders, 1),
            "member_handled": round((sum(self._sent) + sum(self._received)) / len(self._bytes), 1),
            "control_bytes_s": round(sum(self._bytes) / len(self._bytes) / span_s),
            "busiest_control_bytes_s": round(max(self._bytes) / span_s),
        }


def _body_bytes(pdu: Pdu) -> int:
    bodies = getattr(pdu, "bodies", ())
    return bodies.size if isinstance(bodies, Packed) else sum(map(len, bodies))
