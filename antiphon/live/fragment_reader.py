"""Fragments of members to whole PDUs: who sent a fragment, and whether a holder of the key made it.

`fragments` puts PDUs together. This decides what may get there.
"""

from antiphon.core.time import Nanoseconds
from antiphon.live.challenges import UNPROVEN
from antiphon.live.counters import Counters
from antiphon.live.fragments import (
    FORGED,
    OVERHEAD_BYTES,
    Joined,
    Partial,
    Piece,
    Reassembly,
    no_tokens,
    parse_fragment,
)
from antiphon.live.gate import Gate
from antiphon.live.members import Known
from antiphon.live.networks import Address
from antiphon.live.sealing import GENERATION_BITS, TOKEN_BYTES, Seals


class FragmentReader:
    """Takes the fragments that arrive at one member. Each whole PDU is returned once."""

    def __init__(self, *, group: int, boot: int, gate: Gate, seals: Seals | None, counters: Counters) -> None:
        self._group = group
        self._boot = boot
        self._gate = gate
        self._seals = seals
        self._counters = counters
        self.reassembly: Reassembly[Known] = Reassembly(counters)

    def take_joined(self, joined: Joined, address: Address, size: int) -> bytes | None:
        """All fragments of a PDU, which arrived together. Returns the PDU, or None if it is dropped."""
        known = self._sender_of(joined.boot, joined.counter, address, size)
        if known is None:
            return None
        count = len(joined.tokens) // TOKEN_BYTES
        tokens = self._tokens_of(known, joined.counter, count, joined.tokens[:TOKEN_BYTES], 0)
        if tokens is None:
            return None
        if tokens != joined.tokens:
            self._counters.drop(FORGED)
            return None
        self.reassembly.finish(known, joined.counter)
        return joined.whole

    def take(self, view: memoryview, address: Address, now: Nanoseconds) -> bytes | None:
        """One fragment, in memory that stays. Returns the PDU if this completes it."""
        partial = self.reassembly.under_way(view)
        if partial is not None and partial.sender.address == address:
            place = partial.lacks_next(view)
            if place is not None:
                partial.sender.received_bytes += len(view)
                return self.reassembly.add(partial, place, view[OVERHEAD_BYTES:], now)
        return self._take_any(view, address, now)

    def _take_any(self, view: memoryview, address: Address, now: Nanoseconds) -> bytes | None:
        piece = parse_fragment(view, self._group)
        if isinstance(piece, str):
            self._counters.drop(piece)
            return None
        known = self._sender_of(piece.boot, piece.counter, address, len(view))
        if known is None:
            return None
        partial = self.reassembly.find(known, piece.counter) or self._begin(known, piece, now)
        return None if partial is None else self.reassembly.take(partial, piece, now)

    def _sender_of(self, boot: int, counter: int, address: Address, size: int) -> Known | None:
        """The member that sent a fragment; None if it is not a member, or if the PDU is complete."""
        if boot == self._boot:
            return None
        known = self._gate.known(boot, address)
        if known is None:
            self._counters.drop(UNPROVEN)
            return None
        known.received_bytes += size
        return None if self.reassembly.is_late(known, counter) else known

    def _begin(self, known: Known, piece: Piece, now: Nanoseconds) -> Partial[Known] | None:
        """Begin a PDU with its first fragment, if a holder of the key made that."""
        tokens = self._tokens_of(known, piece.counter, piece.total, piece.token, piece.place)
        return None if tokens is None else self.reassembly.begin(known, piece, tokens, now)

    def _tokens_of(self, known: Known, counter: int, count: int, token: bytes, place: int) -> bytes | None:
        """The tokens of a PDU's fragments; None unless `token` is the right token at `place`."""
        if self._seals is None:
            return no_tokens(counter, count)
        usual = known.window.top >> GENERATION_BITS
        generation = counter >> GENERATION_BITS
        if usual - 1 <= generation <= usual + 1:
            # The member may have switched to another key of the ring.
            for seal in self._seals.every(known.boot, generation):
                tokens = seal.tokens(counter, count)
                if tokens[place * TOKEN_BYTES : (place + 1) * TOKEN_BYTES] == token:
                    return tokens
        self._counters.drop(FORGED)
        return None
