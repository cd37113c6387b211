"""PDUs larger than a datagram: cut, put together again, and repaired fragment by fragment.

A fragment begins with the same prefix as a PDU, under the code `FRAGMENT`, with its index and the number of
fragments in the place of the length; then follows its slice of the whole PDU, sealed or not. All slices of a
PDU but the last have one size.

Of 42 fragments hardly ever all arrive where every fifth datagram is lost. A receiver whose PDU makes no
progress therefore asks its sender for what is missing, a few times with growing pauses, and the sender keeps
its last few megabytes for that.

What is unfinished is bounded for each source address and altogether. Addresses from which a member has spoken
have room of their own, so that strangers can push out only strangers. Nothing here is trusted: a PDU that was
put together goes through the same gate as one that came whole.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import HEADER, MAGIC, MAXIMUM_BODY_BYTES, PREFIX, VERSION, Bytes, Reason
from antiphon.live.counters import Counters
from antiphon.live.networks import Address

FRAGMENT: Final = 2
"""The code of a fragment, among the PDU codes 2 to 15 that are the transport's own."""
MOST_FRAGMENTS: Final = 640
"""A PDU of the largest size in datagrams of the smallest."""
MAXIMUM_PDU_BYTES: Final = HEADER.size + MAXIMUM_BODY_BYTES + 64
INDICES: Final = tuple(index.to_bytes(2, "big") for index in range(MOST_FRAGMENTS))
KEPT_BYTES: Final = 4 << 20
"""Own fragmented PDUs kept for repair. Raising it costs memory; lowering it, repairs by the protocols."""
MOST_REMEMBERED: Final = 1024
"""Finished PDUs whose late fragments are recognised."""
FIRST_PAUSE_NS: Final = 4 * MILLISECOND_NS
"""Silence after which what is missing counts as lost. Raising it costs latency, lowering it duplicates."""
LONGEST_PAUSE_NS: Final = 64 * MILLISECOND_NS
MOST_REQUESTS: Final = 12
"""In a row without an answer: where every fifth datagram is lost, one PDU in 200,000 is given up."""
STRANGER_PATIENCE_NS: Final = 200 * MILLISECOND_NS

NONSENSE: Final = "a fragment that makes no sense"
CROWDED: Final = "fragments of too many unfinished PDUs"
MISSING: Final = "fragments missing for too long"
LATE: Final = "a fragment of a PDU that is complete"


class Quota(NamedTuple):
    """Room for what is unfinished."""

    addresses: int
    partials: int
    """For each address."""
    partial_bytes: int
    """For each address."""
    total_bytes: int


FOR_MEMBERS: Final = Quota(1024, 256, 16 << 20, 64 << 20)
FOR_STRANGERS: Final = Quota(16, 4, 512 << 10, 4 << 20)


class Piece(NamedTuple):
    """One fragment as received."""

    boot: int
    counter: int
    place: int
    """Counted from 0."""
    total: int
    body: Bytes


def parse_fragment(view: memoryview, group: int) -> Piece | str:
    """A fragment of this group, or why it is none. Its body stays where it is."""
    if len(view) <= PREFIX.size:
        return Reason.SHORT.value
    magic, version, _, place, other, boot, counter = PREFIX.unpack_from(view)
    if magic != MAGIC:
        return Reason.MAGIC.value
    index, count = place >> 16, place & 0xFFFF
    body_bytes = len(view) - PREFIX.size
    if version != VERSION or other != group or not index < count or not 2 <= count <= MOST_FRAGMENTS:
        return NONSENSE
    # All but the last have one size, so that size already says how much it will be at least.
    if index < count - 1 and (count - 1) * body_bytes > MAXIMUM_PDU_BYTES:
        return NONSENSE
    return Piece(boot, counter, index, count, view[PREFIX.size :])


def join(view: memoryview, each: int, group: int) -> tuple[int, int, bytes] | None:
    """The usual case at once: datagrams that the kernel joined are all fragments of one PDU, in order.

    Answers with its boot, its counter and the whole; None if they are anything else.
    """
    last = (len(view) - 1) // each * each
    if each <= PREFIX.size or len(view) - last <= PREFIX.size:
        return None
    count = last // each + 1
    first = parse_fragment(view[:each], group)
    if isinstance(first, str) or first.total != count or view[3] != FRAGMENT:
        return None
    lead, tail = bytes(view[:4]), bytes(view[6 : PREFIX.size])
    bodies: list[Bytes] = []
    for place, (before, index, after, body) in enumerate(layout(each).iter_unpack(view[:last])):
        if index != place or before != lead or after != tail:
            return None
        bodies.append(body)
    end = view[last:]
    if bytes(end[: PREFIX.size]) != lead + INDICES[count - 1] + tail:
        return None
    bodies.append(end[PREFIX.size :])
    return first.boot, first.counter, b"".join(bodies)


@lru_cache(maxsize=16)
def layout(each: int) -> Struct:
    """Fragments of one size: what stands before the index, the index, the rest of the prefix, the slice."""
    return Struct(f"!4sH{PREFIX.size - 6}s{each - PREFIX.size}s")


def cut(
    pdu: bytes, datagram_bytes: int, group: int, boot: int, counter: int
) -> list[tuple[bytes, memoryview]]:
    """The fragments of a PDU, each a prefix and a slice."""
    slice_bytes = datagram_bytes - PREFIX.size
    count = -(-len(pdu) // slice_bytes)
    assert 2 <= count <= MOST_FRAGMENTS
    view = memoryview(pdu)
    head = PREFIX.pack(MAGIC, VERSION, FRAGMENT, count, group, boot, counter)
    before, after = head[:4], head[6:]
    return [
        (before + INDICES[index] + after, view[index * slice_bytes : (index + 1) * slice_bytes])
        for index in range(count)
    ]


class Partial:
    """A PDU of which some fragments have come."""

    __slots__ = (
        "address",
        "boot",
        "counter",
        "held_bytes",
        "missing",
        "pause_ns",
        "pieces",
        "progress_ns",
        "requests",
    )

    def __init__(self, address: Address, piece: Piece, now: Nanoseconds) -> None:
        self.address: Final = address
        self.boot: Final = piece.boot
        self.counter: Final = piece.counter
        self.pieces: list[Bytes | None] = [None] * piece.total
        self.missing = piece.total
        self.held_bytes = 0
        self.progress_ns = now
        self.pause_ns = FIRST_PAUSE_NS
        self.requests = 0

    def fill(self, piece: Piece, now: Nanoseconds) -> bool:
        """Take a fragment in; whether it is news."""
        if piece.total != len(self.pieces) or self.pieces[piece.place] is not None:
            return False
        self.pieces[piece.place] = piece.body
        self.missing -= 1
        self.held_bytes += len(piece.body)
        self.progress_ns = now
        self.pause_ns = FIRST_PAUSE_NS
        self.requests = 0
        return True

    def bitmap(self) -> bytes:
        """Which fragments are missing: bit i of the number, little-endian, is fragment i."""
        number = sum(1 << index for index, piece in enumerate(self.pieces) if piece is None)
        return number.to_bytes((len(self.pieces) + 7) // 8, "little")

    def is_due(self, now: Nanoseconds) -> bool:
        return now - self.progress_ns >= self.pause_ns


def missing_indices(bitmap: bytes) -> list[int]:
    number = int.from_bytes(bitmap[: MOST_FRAGMENTS // 8], "little")
    return [index for index in range(number.bit_length()) if number >> index & 1]


@dataclass
class Shelf:
    """What is unfinished from one address, oldest first."""

    partials: OrderedDict[tuple[int, int], Partial]
    held_bytes: int = 0

    def drop(self, key: tuple[int, int]) -> int:
        """Forget a partial; how many bytes that frees."""
        freed = self.partials.pop(key).held_bytes
        self.held_bytes -= freed
        return freed


class Cabinet:
    """Shelves for one kind of senders, within a quota."""

    def __init__(self, quota: Quota, give_up: Callable[[str], None]) -> None:
        """`give_up` is told why something will not be finished."""
        self.quota: Final = quota
        self.shelves: OrderedDict[Address, Shelf] = OrderedDict()
        self.held_bytes = 0
        self.give_up: Final = give_up

    def partial(self, address: Address, piece: Piece, now: Nanoseconds) -> Partial:
        """The partial that a fragment belongs to, a new one if need be."""
        shelf = self.shelves.get(address)
        if shelf is None:
            if len(self.shelves) >= self.quota.addresses:
                self._clear(next(iter(self.shelves)))
            shelf = self.shelves[address] = Shelf(OrderedDict())
        key = (piece.boot, piece.counter)
        found = shelf.partials.get(key)
        if found is None:
            if len(shelf.partials) >= self.quota.partials:
                self._push_out(shelf)
            found = shelf.partials[key] = Partial(address, piece, now)
        return found

    def grow(self, partial: Partial, added: int) -> None:
        """Account for a fragment that was taken in, and make room for it."""
        shelf = self.shelves[partial.address]
        shelf.held_bytes += added
        self.held_bytes += added
        while shelf.held_bytes > self.quota.partial_bytes:
            self._push_out(shelf)
        while self.held_bytes > self.quota.total_bytes:
            self._push_out(max(self.shelves.values(), key=lambda each: each.held_bytes))

    def remove(self, address: Address, boot: int, counter: int) -> None:
        """Forget a partial, if there is one."""
        shelf = self.shelves.get(address)
        if shelf is not None and (boot, counter) in shelf.partials:
            self.held_bytes -= shelf.drop((boot, counter))
            if not shelf.partials:
                del self.shelves[address]

    def partials(self) -> list[Partial]:
        return [partial for shelf in self.shelves.values() for partial in shelf.partials.values()]

    def _push_out(self, shelf: Shelf) -> None:
        self.held_bytes -= shelf.drop(next(iter(shelf.partials)))
        self.give_up(CROWDED)

    def _clear(self, address: Address) -> None:
        shelf = self.shelves.pop(address)
        self.held_bytes -= shelf.held_bytes
        self.give_up(CROWDED)


class Reassembly:
    """Everything unfinished at one member."""

    def __init__(self, is_member: Callable[[Address], bool], counters: Counters) -> None:
        self._is_member = is_member
        self._counters = counters
        self.members: Final = Cabinet(FOR_MEMBERS, counters.lose)
        self.strangers: Final = Cabinet(FOR_STRANGERS, counters.drop)
        self._done: OrderedDict[tuple[Address, int, int], None] = OrderedDict()

    def is_late(self, address: Address, boot: int, counter: int) -> bool:
        """Whether the PDU is complete already."""
        late = (address, boot, counter) in self._done
        if late:
            self._counters.drop(LATE)
        return late

    def take(self, address: Address, piece: Piece, now: Nanoseconds) -> bytes | None:
        """Take a fragment in; the whole PDU if it was the last one missing."""
        if self.is_late(address, piece.boot, piece.counter):
            return None
        cabinet = self.members if self._is_member(address) else self.strangers
        partial = cabinet.partial(address, piece, now)
        if not partial.fill(piece, now):
            return None
        cabinet.grow(partial, len(piece.body))
        if partial.missing:
            return None
        cabinet.remove(address, piece.boot, piece.counter)
        self.finish(address, piece.boot, piece.counter)
        return b"".join(body for body in partial.pieces if body is not None)

    def finish(self, address: Address, boot: int, counter: int) -> None:
        """A PDU is complete: late fragments of it are not the beginning of another."""
        self._counters.reassembled += 1
        if self._is_member(address):
            self.members.remove(address, boot, counter)
            self._done[address, boot, counter] = None
            if len(self._done) > MOST_REMEMBERED:
                self._done.popitem(last=False)

    def has_partials(self) -> bool:
        return bool(self.members.shelves or self.strangers.shelves)

    def tick(self, now: Nanoseconds) -> Iterator[Partial]:
        """Forget what will not be finished, and answer with what to ask for again."""
        for partial in self.strangers.partials():
            if now - partial.progress_ns >= STRANGER_PATIENCE_NS:
                self._give_up(self.strangers, partial)
        for partial in self.members.partials():
            if not partial.is_due(now):
                continue
            if partial.requests >= MOST_REQUESTS:
                self._give_up(self.members, partial)
                continue
            partial.requests += 1
            partial.progress_ns = now
            partial.pause_ns = min(2 * partial.pause_ns, LONGEST_PAUSE_NS)
            yield partial

    def _give_up(self, cabinet: Cabinet, partial: Partial) -> None:
        cabinet.remove(partial.address, partial.boot, partial.counter)
        cabinet.give_up(MISSING)


class Kept:
    """Own fragmented PDUs, the newest few megabytes of them."""

    def __init__(self) -> None:
        self._pdus: OrderedDict[int, bytes] = OrderedDict()
        self.held_bytes = 0

    def add(self, counter: int, pdu: bytes) -> None:
        self._pdus[counter] = pdu
        self.held_bytes += len(pdu)
        while self.held_bytes > KEPT_BYTES:
            self.held_bytes -= len(self._pdus.popitem(last=False)[1])

    def get(self, counter: int) -> bytes | None:
        return self._pdus.get(counter)
