"""A member's own messages: numbered when they are admitted, kept until it has delivered them."""

from collections import deque
from typing import Final

from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.protocols.rivals.totem.pdus import Entry, Message, RingId


class Outbox:
    """Own batches by number; a `Source` of the visits of a ring that orders."""

    __slots__ = ("_capacity", "_next_number", "_site", "_to_send", "_waiting")

    def __init__(self, site: Site, capacity: int) -> None:
        self._site = site
        self._capacity = capacity
        self._waiting: dict[int, Packed] = {}
        self._to_send: deque[int] = deque()
        self._next_number = 0

    def begin(self, next_number: int) -> None:
        self._next_number = next_number

    def full(self) -> bool:
        return len(self._waiting) >= self._capacity

    def admit(self, bodies: Packed) -> int:
        number = self._next_number
        self._next_number += len(bodies)
        self._waiting[number] = bodies
        self._to_send.append(number)
        return number

    def settle(self, number: int) -> None:
        """Everything below this number was delivered."""
        while self._waiting and (oldest := next(iter(self._waiting))) < number:
            del self._waiting[oldest]
        # Only if another process has sent messages under this name is any of them still to be sent.
        while self._to_send and self._to_send[0] < number:
            self._to_send.popleft()

    def begin_ring(self) -> None:
        """Send on the new ring what the earlier one did not deliver."""
        self._to_send = deque(self._waiting)

    def backlog(self) -> int:
        return len(self._to_send)

    def take(self, ring: RingId, seq: int) -> Entry:
        number = self._to_send.popleft()
        return Message(ring, seq, self._site, number, self._waiting[number])


class Nothing:
    """The `Source` of a ring that does not order."""

    def backlog(self) -> int:
        return 0

    def take(self, ring: RingId, seq: int) -> Entry:
        raise AssertionError(f"nothing waits for {seq} of {ring}")


NOTHING: Final = Nothing()
