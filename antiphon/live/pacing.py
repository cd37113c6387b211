"""When datagrams leave: at the controller's rate, in small bursts, repairs besides what is new.

A token bucket fills at the rate. What has bodies takes tokens and waits while there are none. What a protocol
has to say besides (reports, acknowledgements, requests) takes tokens as well but waits for none; it only
waits for what was said before it, since it may speak of that. Fragments that are sent again have a queue
of their own and at most half of what is sent while something new waits.

Both queues are bounded: what comes beyond is not sent, and counted, as if it had been lost on the way. A
member hands in nothing new while something waits (`is_clear`), so that only protocols that say much at once
can get there.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.live.congestion import Controller
from antiphon.live.members import Known
from antiphon.live.networks import Address

BURST_NS: Final[Nanoseconds] = 3 * MILLISECOND_NS
"""What may leave at once, as a time at the present rate. Raising it costs queues on the way; lowering it,
throughput where the machine is busy."""
LEAST_BURST_BYTES: Final = 3_000
QUEUED_NS: Final[Nanoseconds] = SECOND_NS // 2
"""What may wait, as a time at the present rate. Raising it costs latency when a protocol repeats much."""
LEAST_QUEUED_BYTES: Final = 512 << 10
MOST_QUEUED_BYTES: Final = 8 << 20
MOST_REPAIR_BYTES: Final = 1 << 20
AGAIN_NS: Final[Nanoseconds] = 30 * MILLISECOND_NS
"""What has left is not sent to the same members again for so long. Raising it costs latency when it is lost
again; lowering it, duplicates where the way is long."""
MOST_REMEMBERED: Final = 2048

Datagrams: TypeAlias = Sequence[tuple[bytes | bytearray, memoryview]]
"""Each a head and a body; all of one size but for the last, which may be shorter."""


class Waiting(NamedTuple):
    """Datagrams of one PDU that wait for their turn."""

    counter: int
    datagrams: Datagrams
    addresses: tuple[Address, ...]
    members: tuple[Known, ...] | None
    """Whom they are for; None means everyone."""
    bodies: object | None
    """What they carry, if that is messages: the same object when it is sent again."""


Send: TypeAlias = Callable[[Waiting], int]
"""Sends datagrams to each address; answers how many bytes each of them got."""


class Pacer:
    """One member's way out."""

    def __init__(self, controller: Controller[Known], send: Send) -> None:
        self._controller = controller
        self._send = send
        self._tokens = float(LEAST_BURST_BYTES)
        self._filled_ns: Nanoseconds = 0
        self._new: deque[Waiting] = deque()
        self._repairs: deque[Waiting] = deque()
        self._new_bytes = self._repair_bytes = 0
        self._lately: OrderedDict[tuple[int, tuple[Known, ...] | None], tuple[Nanoseconds | None, object]] = (
            OrderedDict()
        )
        """Messages that wait or have left lately: for whom, and when they left."""
        self._lead = 0
        """By how many bytes repairs are ahead of what is new."""

    def is_clear(self, now: Nanoseconds) -> bool:
        """Whether something new may leave at once."""
        self._fill(now)
        return self._tokens > 0 and not self._new and not self._repairs

    def is_waiting(self, counter: int) -> bool:
        """Whether some of a PDU has yet to leave."""
        return any(waiting.counter == counter for queue in (self._new, self._repairs) for waiting in queue)

    def charge(self, size: int) -> None:
        """So many bytes have left."""
        self._tokens -= size

    def due_ns(self, now: Nanoseconds) -> Nanoseconds:
        """When there will be tokens again."""
        return now + max(0, round((1.0 - self._tokens) * SECOND_NS / self._controller.rate))

    @property
    def has_queue(self) -> bool:
        return bool(self._new or self._repairs)

    def is_under_way(self, now: Nanoseconds, waiting: Waiting) -> bool:
        """Whether the same messages wait for the same members already, or have left a moment ago."""
        if waiting.bodies is None:
            return False
        known = self._lately.get((id(waiting.bodies), waiting.members))
        return known is not None and (known[0] is None or now - known[0] < AGAIN_NS)

    def _remember(self, waiting: Waiting) -> None:
        """These messages wait from now on."""
        if waiting.bodies is not None:
            key = (id(waiting.bodies), waiting.members)
            self._lately.pop(key, None)
            self._lately[key] = (None, waiting.bodies)
            if len(self._lately) > MOST_REMEMBERED:
                self._lately.popitem(last=False)

    def forget(self, now: Nanoseconds) -> None:
        """Let go of messages that have left long enough ago: they may be large."""
        while self._lately:
            key, (left_ns, _) = next(iter(self._lately.items()))
            if left_ns is None or now - left_ns < AGAIN_NS:
                return
            del self._lately[key]

    def add(self, waiting: Waiting, *, is_repair: bool = False) -> bool:
        """Queue a PDU; whether there was room."""
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
                if key in self._lately:
                    self._lately[key] = (now, waiting.bodies)
            size = _size(some)
            if is_repair:
                self._repair_bytes -= size
                self._lead += size
            else:
                self._new_bytes -= size
                self._lead = max(0, self._lead - size)
            self._tokens -= self._send(waiting._replace(datagrams=some))

    def _split(self, datagrams: Datagrams) -> tuple[Datagrams, Datagrams]:
        """As many as there are tokens for, one at least, and the rest."""
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
