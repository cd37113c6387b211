"""Pacing: datagrams leave at the controller's rate, in small bursts, new PDUs and repairs in turn.

A token bucket fills at the rate. PDUs with bodies take tokens and wait while there are none. Other PDUs of a
protocol (reports, acknowledgements, requests) take tokens but do not wait for them. They wait only for PDUs
queued before them, which they may refer to; urgent PDUs do not wait at all. Resent fragments have their own
queue, and at most half of the rate while new PDUs wait.

Both queues are bounded. A PDU beyond the bound is counted and not sent, as if it had been lost on the way. A
member hands in nothing new while something waits (`is_clear`), so only a protocol that sends much at once
reaches the bound.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.live.congestion import Controller
from antiphon.live.members import Known
from antiphon.live.networks import Address

BURST_NS: Final[Nanoseconds] = 3 * MILLISECOND_NS
"""The burst that may leave at once, as a time at the present rate. Raising it costs queues in the network;
lowering it costs throughput on a busy machine."""
LEAST_BURST_BYTES: Final = 3_000
QUEUED_NS: Final[Nanoseconds] = SECOND_NS // 2
"""Bound of the queue, as a time at the present rate. Raising it costs latency when much is repeated."""
LEAST_QUEUED_BYTES: Final = 512 << 10
MOST_QUEUED_BYTES: Final = 8 << 20
MOST_REPAIR_BYTES: Final = 1 << 20
AGAIN_NS: Final[Nanoseconds] = 30 * MILLISECOND_NS
"""Pause before the same messages are sent to the same members again. Raising it costs latency after a second
loss; lowering it costs duplicates where round trips are long."""
MOST_REMEMBERED: Final = 2048

Datagrams: TypeAlias = Sequence[tuple[bytes | bytearray, memoryview]]
"""Pairs of head and body. All have one size; the last may be shorter."""


class Waiting(NamedTuple):
    """Datagrams of one PDU that wait for their turn."""

    counter: int
    datagrams: Datagrams
    addresses: tuple[Address, ...]
    members: tuple[Known, ...] | None
    """Their destinations; None means everyone."""
    bodies: object | None
    """The messages in them, if any: the same object when they are sent again."""


Send: TypeAlias = Callable[[Waiting], int]
"""Sends datagrams to each address; returns the bytes that each address got."""


class Pacer:
    """The queues of one member's datagrams, and the token bucket that empties them."""

    def __init__(self, controller: Controller[Known], send: Send) -> None:
        self._controller = controller
        self._send = send
        self._tokens = float(LEAST_BURST_BYTES)
        self._filled_ns: Nanoseconds = 0
        self._new: deque[Waiting] = deque()
        self._repairs: deque[Waiting] = deque()
        self._new_bytes = self._repair_bytes = 0
        self._recent: OrderedDict[tuple[int, tuple[Known, ...] | None], tuple[Nanoseconds | None, object]] = (
            OrderedDict()
        )
        """Messages that wait or left recently, by destination, with the time when they left."""
        self._lead = 0
        """Bytes that repairs are ahead of new PDUs."""

    def is_clear(self, now: Nanoseconds) -> bool:
        """Whether a new PDU may leave at once."""
        self._fill(now)
        return self._tokens > 0 and not self._new and not self._repairs

    def is_waiting(self, counter: int) -> bool:
        """Whether datagrams of a PDU still wait."""
        return any(waiting.counter == counter for queue in (self._new, self._repairs) for waiting in queue)

    def charge(self, size: int) -> None:
        """`size` bytes were sent without a queue."""
        self._tokens -= size

    def due_ns(self, now: Nanoseconds) -> Nanoseconds:
        """When there will be tokens again."""
        return now + max(0, round((1.0 - self._tokens) * SECOND_NS / self._controller.rate))

    @property
    def has_queue(self) -> bool:
        return bool(self._new or self._repairs)

    def is_under_way(self, now: Nanoseconds, waiting: Waiting) -> bool:
        """Whether the same messages already wait for the same members, or left a moment ago."""
        if waiting.bodies is None:
            return False
        known = self._recent.get((id(waiting.bodies), waiting.members))
        return known is not None and (known[0] is None or now - known[0] < AGAIN_NS)

    def _remember(self, waiting: Waiting) -> None:
        """These messages wait now."""
        if waiting.bodies is not None:
            key = (id(waiting.bodies), waiting.members)
            self._recent.pop(key, None)
            self._recent[key] = (None, waiting.bodies)
            if len(self._recent) > MOST_REMEMBERED:
                self._recent.popitem(last=False)

    def forget(self, now: Nanoseconds) -> None:
        """Release messages that left long enough ago: they may be large."""
        while self._recent:
            key, (left_ns, _) = next(iter(self._recent.items()))
            if left_ns is None or now - left_ns < AGAIN_NS:
                return
            del self._recent[key]

    def add(self, waiting: Waiting, *, is_repair: bool = False) -> bool:
        """Queue a PDU. Returns whether there was room."""
        size = _size(waiting.datagrams)
        if is_repair:
            if self._repair_bytes + size > MOST_REPAIR_BYTES:
                return False
            self._repairs.append(waiting)
            self._repair_bytes += size
        else:
            most = min(
                MOST_QUEUED_BYTES, max(LEAST_QUEUED_BYTES, self._controller.rate * QUEUED_NS / SECOND_NS)
            )
            if self._new_bytes + size > most:
                return False
            self._new.append(waiting)
            self._new_bytes += size
        self._remember(waiting)
        return True

    def drain(self, now: Nanoseconds) -> None:
        """Send what the rate allows."""
        self._fill(now)
        while self._tokens > 0 and (self._new or self._repairs):
            is_repair = bool(self._repairs) and (not self._new or self._lead <= 0)
            queue = self._repairs if is_repair else self._new
            waiting = queue.popleft()
            some, rest = self._split(waiting.datagrams)
            if rest:
                queue.appendleft(waiting._replace(datagrams=rest))
            elif waiting.bodies is not None:
                key = (id(waiting.bodies), waiting.members)
                if key in self._recent:
                    self._recent[key] = (now, waiting.bodies)
            size = _size(some)
            if is_repair:
                self._repair_bytes -= size
                self._lead += size
            else:
                self._new_bytes -= size
                self._lead = max(0, self._lead - size)
            self._tokens -= self._send(waiting._replace(datagrams=some))

    def _split(self, datagrams: Datagrams) -> tuple[Datagrams, Datagrams]:
        """The datagrams that there are tokens for, at least the first, and the rest."""
        each = len(datagrams[0][0]) + len(datagrams[0][1])
        count = max(1, int(self._tokens // each))
        return datagrams[:count], datagrams[count:]

    def _fill(self, now: Nanoseconds) -> None:
        rate = self._controller.rate
        most = max(LEAST_BURST_BYTES, rate * BURST_NS / SECOND_NS)
        self._tokens = min(most, self._tokens + (now - self._filled_ns) * rate / SECOND_NS)
        self._filled_ns = now


def _size(datagrams: Datagrams) -> int:
    return sum(len(head) + len(body) for head, body in datagrams)
