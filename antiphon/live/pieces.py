"""Messages longer than a PDU: cut into pieces on the way out, put together again on the way in, bounded."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from antiphon.core.ids import Site
from antiphon.core.packing import LENGTH_BYTES, Packed, overhead_bytes, pack, pack_records

BATCH_BYTES: Final = 64_900
"""A packed batch has at most this many bytes, so that with its headers it fits one datagram of 65,507."""
LARGEST_PIECE_BYTES: Final = BATCH_BYTES - overhead_bytes(1)
LARGEST_MESSAGE_BYTES: Final = 16 << 20
MOST_ORPHANS: Final = 4
"""Unfinished messages of senders that have vanished, kept in case they come back. Raising it costs memory."""


def records_per_batch(size: int) -> int:
    """How many bodies of this size fit one batch."""
    return (BATCH_BYTES - overhead_bytes(0)) // (size + LENGTH_BYTES)


def cut(body: bytes) -> Iterator[Packed]:
    """The batches, of one piece each, that carry a long body."""
    last = (len(body) - 1) // LARGEST_PIECE_BYTES
    for place in range(last + 1):
        piece = body[place * LARGEST_PIECE_BYTES : (place + 1) * LARGEST_PIECE_BYTES]
        yield pack([piece], unfinished=place < last, continuing=place > 0)


class Outgoing:
    """Bodies on their way to the protocol: collected, then packed into as few batches as will do."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes that wait, packed or not."""
        self._bodies: list[bytes] = []
        self._room = BATCH_BYTES - overhead_bytes(0)
        self._batches: deque[Packed] = deque()

    def add(self, bodies: Iterable[bytes]) -> int:
        """Take bodies; how many numbers they use."""
        numbers = 0
        for body in bodies:
            length = len(body)
            self.size += length
            numbers += 1
            self._room -= length + LENGTH_BYTES
            if self._room < 0:
                self._close()
                if length > LARGEST_PIECE_BYTES:
                    pieces = list(cut(body))
                    self._batches += pieces
                    numbers += len(pieces) - 1
                    continue
                self._room -= length + LENGTH_BYTES
            self._bodies.append(body)
        return numbers

    def add_records(self, records: memoryview, size: int) -> int:
        """Take bodies of one size that lie one after another; how many numbers they use."""
        self._close()
        share = records_per_batch(size) * size
        self._batches += (
            pack_records(records[begin : begin + share], size) for begin in range(0, len(records), share)
        )
        self.size += len(records)
        return len(records) // size

    def __bool__(self) -> bool:
        return bool(self._batches or self._bodies)

    def first(self) -> Packed:
        """The batch to go next; it stays until it is taken."""
        if not self._batches:
            self._close()
        return self._batches[0]

    def take(self) -> None:
        """The first batch is gone."""
        self.size -= self._batches.popleft().size

    def _close(self) -> None:
        if self._bodies:
            self._batches.append(pack(self._bodies))
            self._bodies = []
        self._room = BATCH_BYTES - overhead_bytes(0)


class Incoming:
    """Puts long messages together, sender by sender; at most one is under way of each."""

    def __init__(self) -> None:
        self.dropped = 0
        """Long messages that were given up: a piece was missed, or they went beyond the limit."""
        self.size = 0
        """Bytes of pieces that wait for the rest of their message."""
        self._partial: dict[Site, list[bytes]] = {}
        self._expected: dict[Site, int] = {}
        self._orphans: dict[Site, None] = {}

    def take(self, sender: Site, number: int, bodies: Packed) -> tuple[int, Packed] | None:
        """What of a batch is whole now, with the number of its first message; None if nothing is.

        A batch that carries a piece carries nothing else.
        """
        if not bodies.continuing and not bodies.unfinished and sender not in self._partial:
            return number, bodies
        pieces = self._drop(sender)
        self._orphans.pop(sender, None)
        if pieces is not None and (not bodies.continuing or self._expected[sender] != number):
            self.dropped += 1
            pieces = None
        if not bodies.continuing:
            pieces = []
        if pieces is None:
            return None  # the middle of a message whose beginning went by before we were here
        pieces.append(bodies[0])
        if not bodies.unfinished:
            return number, (pack([b"".join(pieces)]) if bodies.continuing else bodies)
        if sum(map(len, pieces)) > LARGEST_MESSAGE_BYTES:
            self.dropped += 1
            return None
        self._partial[sender], self._expected[sender] = pieces, number + len(bodies)
        self.size += sum(map(len, pieces))
        return None

    def _drop(self, sender: Site) -> list[bytes] | None:
        pieces = self._partial.pop(sender, None)
        self.size -= sum(map(len, pieces or ()))
        return pieces

    def vanish(self, sender: Site) -> None:
        """A sender is gone. It may come back and finish, so the latest few unfinished messages are kept."""
        if sender in self._partial:
            self._orphans.pop(sender, None)
            self._orphans[sender] = None
        while len(self._orphans) > MOST_ORPHANS:
            oldest = next(iter(self._orphans))
            del self._orphans[oldest]
            self.dropped += self._drop(oldest) is not None
