"""PDUs larger than a datagram: cut, put together again, and repaired fragment by fragment.

A fragment begins with the same prefix as a PDU, under the code `FRAGMENT`, with its index and the number of
fragments in place of the length. A token of eight bytes and its slice of the whole PDU, sealed or not,
follow. All slices of a PDU but the last have one size. In a group with a key the token proves that a holder
of the key made this fragment (`sealing`); without a key it is zero.

If every fifth datagram is lost, all of 42 fragments hardly ever arrive. A receiver whose PDU makes no
progress therefore asks its sender for the missing fragments, a few times with growing pauses, and the sender
keeps its last few megabytes for that.

Only fragments of members are kept: from their address, or with the right token. Unfinished PDUs are bounded
for each member and in total. Nothing here is trusted: a reassembled PDU passes the same gate as a PDU that
came whole.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import HEADER, MAGIC, MAXIMUM_BODY_BYTES, PREFIX, VERSION, Bytes, Reason
from antiphon.live.counters import Counters
from antiphon.live.sealing import TOKEN_BYTES

FRAGMENT: Final = 2
"""The code of a fragment, among the PDU codes 2 to 15, which are reserved for the transport."""
OVERHEAD_BYTES: Final = PREFIX.size + TOKEN_BYTES
"""Bytes of a fragment besides its slice."""
LEAD: Final = MAGIC + bytes((VERSION, FRAGMENT))
"""What every fragment begins with."""
SHARED: Final = slice(6, PREFIX.size)
"""The part of the prefix that all fragments of one PDU share: what follows the index."""
MOST_FRAGMENTS: Final = 640
"""Fragments of the largest PDU in the smallest datagrams."""
MAXIMUM_PDU_BYTES: Final = HEADER.size + MAXIMUM_BODY_BYTES + 64
INDICES: Final = tuple(index.to_bytes(2, "big") for index in range(MOST_FRAGMENTS))
KEPT_BYTES: Final = 4 << 20
"""Own fragmented PDUs kept for repair. Raising it costs memory; lowering it, repairs by the protocols."""
MOST_REMEMBERED: Final = 1024
"""Finished PDUs whose late fragments are recognised. Raising it costs memory."""
FIRST_PAUSE_NS: Final = 4 * MILLISECOND_NS
"""Silence after which missing fragments count as lost. Raising it costs latency, lowering it duplicates."""
UNSURE_PAUSE_NS: Final = 25 * MILLISECOND_NS
"""The same while nothing that was sent later has arrived: the sender may be slow."""
LONGEST_PAUSE_NS: Final = 64 * MILLISECOND_NS
MOST_REQUESTS: Final = 12
"""Requests in a row without an answer. If every fifth datagram is lost, one PDU in 200,000 is given up."""

NONSENSE: Final = "a fragment that makes no sense"
CROWDED: Final = "fragments of too many unfinished PDUs"
MISSING: Final = "fragments missing for too long"
LATE: Final = "a fragment of a PDU that is complete"
NOT_NEW: Final = "a fragment that is there already, or not of its PDU"
FORGED: Final = "a fragment without its token"


MOST_PARTIALS: Final = 256
"""Unfinished PDUs of one member. Raising it costs memory, as with the next two."""
MOST_PARTIAL_BYTES: Final = 16 << 20
"""Bytes that they may take together."""
MOST_BYTES: Final = 64 << 20
"""Bytes that those of all members may take together."""
PLACE_BYTES: Final = 8 + TOKEN_BYTES
"""Bytes that an unfinished PDU takes for each of its fragments before any has arrived."""

Sender = TypeVar("Sender")
"""The sender: a member, as the transport knows it."""


class Piece(NamedTuple):
    """One fragment as received."""

    boot: int
    counter: int
    place: int
    """Counted from 0."""
    total: int
    token: bytes
    body: Bytes
    pdu: bytes
    """What all fragments of one PDU share behind their index: number of fragments, group, boot, counter."""


def parse_fragment(view: memoryview, group: int) -> Piece | str:
    """A fragment of this group, or the reason why it is none. Its body is not copied."""
    if len(view) <= OVERHEAD_BYTES:
        return Reason.SHORT.value
    magic, version, _, place, other, boot, counter = PREFIX.unpack_from(view)
    if magic != MAGIC:
        return Reason.MAGIC.value
    index, count = place >> 16, place & 0xFFFF
    body_bytes = len(view) - OVERHEAD_BYTES
    if version != VERSION or other != group or not index < count or not 2 <= count <= MOST_FRAGMENTS:
        return NONSENSE
    # All slices but the last have one size, so this size gives the least total.
    if index < count - 1 and (count - 1) * body_bytes > MAXIMUM_PDU_BYTES:
        return NONSENSE
    token = bytes(view[PREFIX.size : OVERHEAD_BYTES])
    return Piece(boot, counter, index, count, token, view[OVERHEAD_BYTES:], bytes(view[SHARED]))


class Joined(NamedTuple):
    """A whole PDU whose fragments arrived together."""

    boot: int
    counter: int
    tokens: bytes
    whole: bytes


def join(view: memoryview, each: int, group: int) -> Joined | None:
    """The usual case, fast: datagrams that the kernel joined are all fragments of one PDU, in order.

    None otherwise.
    """
    last = (len(view) - 1) // each * each
    if len(view) - last <= OVERHEAD_BYTES:
        return None
    count = last // each + 1
    first = parse_fragment(view[:each], group)
    if isinstance(first, str) or first.total != count or view[3] != FRAGMENT:
        return None
    lead, tail = bytes(view[:4]), bytes(view[6 : PREFIX.size])
    tokens: list[Bytes] = []
    bodies: list[Bytes] = []
    for place, (before, index, after, token, body) in enumerate(layout(each).iter_unpack(view[:last])):
        if index != place or before != lead or after != tail:
            return None
        tokens.append(token)
        bodies.append(body)
    end = view[last:]
    if bytes(end[: PREFIX.size]) != lead + INDICES[count - 1] + tail:
        return None
    tokens.append(end[PREFIX.size : OVERHEAD_BYTES])
    bodies.append(end[OVERHEAD_BYTES:])
    return Joined(first.boot, first.counter, b"".join(tokens), b"".join(bodies))


@lru_cache(maxsize=16)
def layout(each: int) -> Struct:
    """Fragments of one size: what precedes the index, the index, the prefix's rest, the token, the slice."""
    return Struct(f"!4sH{PREFIX.size - 6}s{TOKEN_BYTES}s{each - OVERHEAD_BYTES}s")


Tokens: TypeAlias = Callable[[int, int], bytes]
"""A function of a PDU's counter and its number of fragments that returns their tokens."""


def no_tokens(_counter: int, count: int) -> bytes:
    """The tokens without a key."""
    return bytes(TOKEN_BYTES * count)


def count_of(size: int, datagram_bytes: int) -> int:
    """The number of fragments of a PDU of that size."""
    return -(-size // (datagram_bytes - OVERHEAD_BYTES))


def cut(
    pdu: bytes, datagram_bytes: int, group: int, boot: int, counter: int, tokens: Tokens = no_tokens
) -> list[tuple[bytes, memoryview]]:
    """The fragments of a PDU, each a head and a slice."""
    slice_bytes = datagram_bytes - OVERHEAD_BYTES
    count = count_of(len(pdu), datagram_bytes)
    assert 2 <= count <= MOST_FRAGMENTS
    view = memoryview(pdu)
    head = PREFIX.pack(MAGIC, VERSION, FRAGMENT, count, group, boot, counter)
    before, after = head[:4], head[6:]
    stream = tokens(counter, count)
    return [
        (
            before + INDICES[index] + after + stream[index * TOKEN_BYTES : (index + 1) * TOKEN_BYTES],
            view[index * slice_bytes : (index + 1) * slice_bytes],
        )
        for index in range(count)
    ]


class Partial(Generic[Sender]):
    """A PDU of which some fragments have arrived."""

    __slots__ = (
        "counter",
        "held_bytes",
        "missing",
        "pause_ns",
        "pdu",
        "pieces",
        "progress_ns",
        "requests",
        "sender",
        "tokens",
    )

    def __init__(self, sender: Sender, piece: Piece, tokens: bytes, now: Nanoseconds) -> None:
        self.sender: Final = sender
        self.counter: Final = piece.counter
        self.pdu: Final = piece.pdu
        self.tokens: Final = tokens
        self.pieces: list[Bytes | None] = [None] * piece.total
        self.missing = piece.total
        self.held_bytes = piece.total * PLACE_BYTES
        self.progress_ns = now
        self.pause_ns = FIRST_PAUSE_NS
        self.requests = 0

    def lacks(self, piece: Piece) -> bool:
        """Whether a fragment is new and belongs to this PDU."""
        if piece.total != len(self.pieces) or self.pieces[piece.place] is not None:
            return False
        return has_token(piece, self.tokens)

    def lacks_next(self, view: memoryview) -> int | None:
        """The index of a fragment with this PDU's prefix, if it is new; read without parsing it."""
        place = view[4] << 8 | view[5]
        if place >= len(self.pieces) or self.pieces[place] is not None or view[:4] != LEAD:
            return None
        begin = place * TOKEN_BYTES
        token = self.tokens[begin : begin + TOKEN_BYTES]
        return place if view[PREFIX.size : OVERHEAD_BYTES] == token and len(view) > OVERHEAD_BYTES else None

    def fill(self, place: int, body: Bytes, now: Nanoseconds) -> None:
        """Add a missing fragment."""
        self.pieces[place] = body
        self.missing -= 1
        self.held_bytes += len(body)
        self.progress_ns = now
        self.pause_ns = FIRST_PAUSE_NS
        self.requests = 0

    def bitmap(self) -> bytes:
        """Which fragments are missing: bit i of the number, little-endian, is fragment i."""
        number = sum(1 << index for index, piece in enumerate(self.pieces) if piece is None)
        return number.to_bytes((len(self.pieces) + 7) // 8, "little")

    def is_due(self, now: Nanoseconds, *, is_passed: bool) -> bool:
        """Whether to ask for fragments: soon if something sent after this PDU has arrived."""
        pause_ns = self.pause_ns if is_passed else max(self.pause_ns, UNSURE_PAUSE_NS)
        return now - self.progress_ns >= pause_ns


def missing_indices(bitmap: bytes) -> list[int]:
    number = int.from_bytes(bitmap[: MOST_FRAGMENTS // 8], "little")
    return [index for index in range(number.bit_length()) if number >> index & 1]


def has_token(piece: Piece, tokens: bytes) -> bool:
    """Whether a fragment has the token of its index."""
    begin = piece.place * TOKEN_BYTES
    return tokens[begin : begin + TOKEN_BYTES] == piece.token


@dataclass
class Shelf(Generic[Sender]):
    """The unfinished PDUs of one member, oldest first, by counter."""

    partials: OrderedDict[int, Partial[Sender]]
    held_bytes: int = 0

    def drop(self, counter: int) -> int:
        """Forget a partial PDU. Returns how many bytes that frees."""
        freed = self.partials.pop(counter).held_bytes
        self.held_bytes -= freed
        return freed


class Reassembly(Generic[Sender]):
    """All unfinished PDUs at one member. The caller hands in fragments of members only."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._shelves: dict[Sender, Shelf[Sender]] = {}
        self._done: OrderedDict[tuple[Sender, int], None] = OrderedDict()
        self._newest: dict[Sender, int] = {}
        """For each member, the PDU of its latest fragment."""
        self._under_way: dict[bytes, Partial[Sender]] = {}
        """All unfinished PDUs, by the prefix that their fragments share."""
        self.held_bytes = 0

    def is_late(self, sender: Sender, counter: int) -> bool:
        """Whether the PDU is complete already."""
        self._newest[sender] = max(counter, self._newest.get(sender, 0))
        late = (sender, counter) in self._done
        if late:
            self._counters.drop(LATE)
        return late

    def find(self, sender: Sender, counter: int) -> Partial[Sender] | None:
        """The unfinished PDU that a fragment may belong to."""
        shelf = self._shelves.get(sender)
        return None if shelf is None else shelf.partials.get(counter)

    def begin(self, sender: Sender, piece: Piece, tokens: bytes, now: Nanoseconds) -> Partial[Sender]:
        """Begin a PDU with its first fragment."""
        shelf = self._shelves.get(sender)
        if shelf is not None and len(shelf.partials) >= MOST_PARTIALS:
            self._push_out(sender)
        shelf = self._shelves.setdefault(sender, Shelf(OrderedDict()))
        partial = shelf.partials[piece.counter] = Partial(sender, piece, tokens, now)
        self._under_way.setdefault(piece.pdu, partial)
        shelf.held_bytes += partial.held_bytes
        self.held_bytes += partial.held_bytes
        return partial

    def under_way(self, view: memoryview) -> Partial[Sender] | None:
        """The usual case, fast: the unfinished PDU whose fragment came before this one.

        Without a key, two processes may claim one boot: compare the address.
        """
        return self._under_way.get(bytes(view[SHARED]))

    def take(self, partial: Partial[Sender], piece: Piece, now: Nanoseconds) -> bytes | None:
        """Add a fragment if it is new. Returns the whole PDU if nothing is missing now."""
        if not partial.lacks(piece):
            self._counters.drop(NOT_NEW)
            return None
        return self.add(partial, piece.place, piece.body, now)

    def add(self, partial: Partial[Sender], place: int, body: Bytes, now: Nanoseconds) -> bytes | None:
        """Add a missing fragment. Returns the whole PDU if nothing is missing now."""
        partial.fill(place, body, now)
        sender, size = partial.sender, len(body)
        shelf = self._shelves[sender]
        shelf.held_bytes += size
        self.held_bytes += size
        if not partial.missing:
            self.finish(sender, partial.counter)
            return b"".join(partial.pieces)  # type: ignore[arg-type]  # none is missing
        self._make_room(sender)
        return None

    def _make_room(self, sender: Sender) -> None:
        while sender in self._shelves and self._shelves[sender].held_bytes > MOST_PARTIAL_BYTES:
            self._push_out(sender)
        while self.held_bytes > MOST_BYTES:
            self._push_out(max(self._shelves, key=lambda each: self._shelves[each].held_bytes))

    def finish(self, sender: Sender, counter: int) -> None:
        """A PDU is complete: its late fragments do not begin another."""
        self._counters.reassembled += 1
        self._remove(sender, counter)
        self._done[sender, counter] = None
        if len(self._done) > MOST_REMEMBERED:
            self._done.popitem(last=False)

    def has_partials(self) -> bool:
        return bool(self._shelves)

    def tick(self, now: Nanoseconds, is_member: Callable[[Sender], bool]) -> Iterator[Partial[Sender]]:
        """Forget PDUs that will not be finished. Returns the fragments to ask for again."""
        self._newest = {sender: counter for sender, counter in self._newest.items() if is_member(sender)}
        for sender in [sender for sender in self._shelves if not is_member(sender)]:
            for counter in list(self._shelves[sender].partials):
                self._give_up(sender, counter, MISSING)
        partials = [each for shelf in self._shelves.values() for each in shelf.partials.values()]
        for partial in partials:
            if not partial.is_due(now, is_passed=partial.counter < self._newest.get(partial.sender, 0)):
                continue
            if partial.requests >= MOST_REQUESTS:
                self._give_up(partial.sender, partial.counter, MISSING)
                continue
            partial.requests += 1
            partial.progress_ns = now
            partial.pause_ns = min(2 * partial.pause_ns, LONGEST_PAUSE_NS)
            yield partial

    def _push_out(self, sender: Sender) -> None:
        self._give_up(sender, next(iter(self._shelves[sender].partials)), CROWDED)

    def _give_up(self, sender: Sender, counter: int, reason: str) -> None:
        self._remove(sender, counter)
        self._counters.lose(reason)

    def _remove(self, sender: Sender, counter: int) -> None:
        """Forget a partial PDU, if there is one."""
        shelf = self._shelves.get(sender)
        if shelf is not None and counter in shelf.partials:
            partial = shelf.partials[counter]
            if self._under_way.get(partial.pdu) is partial:
                del self._under_way[partial.pdu]
            self.held_bytes -= shelf.drop(counter)
            if not shelf.partials:
                del self._shelves[sender]


class Kept:
    """Own fragmented PDUs, the newest few megabytes, each with the function for its tokens."""

    def __init__(self) -> None:
        self._pdus: OrderedDict[int, tuple[bytes, Tokens]] = OrderedDict()
        self.held_bytes = 0

    def add(self, counter: int, pdu: bytes, tokens: Tokens = no_tokens) -> None:
        self._pdus[counter] = (pdu, tokens)
        self.held_bytes += len(pdu)
        while self.held_bytes > KEPT_BYTES:
            self.held_bytes -= len(self._pdus.popitem(last=False)[1][0])

    def get(self, counter: int) -> tuple[bytes, Tokens] | None:
        return self._pdus.get(counter)
