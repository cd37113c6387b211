"""Large membership PDUs, split into parts: the view of very many sites does not fit one PDU.

With 1,000 sites in 200 groups, names of four letters and two to four groups a site, a view takes 43 to 66 KB.
Retiring trees and the batches under way on trees that end, 24 bytes each, come on top.

A part names its whole by a hash of the contents. So if some parts are lost and the membership protocol
repeats the whole, the parts of both transmissions fit together. A sender that begins another whole gives up
the one before: at most one whole a sender is being reassembled.
"""

import hashlib
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from antiphon.core.effects import Effect, Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups.pdus import (
    PART_BYTES,
    Accept,
    AcceptChange,
    Decision,
    Install,
    Part,
    Report,
)

Large: TypeAlias = Report | Accept | AcceptChange | Install
"""A PDU that can be large."""
MOST_KEPT: Final = 1024
"""Parts of incomplete wholes, of all senders together. Raising it costs memory: 48 KB each."""


_encoder: Final = msgspec.msgpack.Encoder()
_decoders: Final = {
    kind.code: msgspec.msgpack.Decoder(kind) for kind in (Report, Accept, AcceptChange, Install)
}


def split(pdu: Large) -> list[Pdu]:
    """The PDU itself if it is small enough, else its parts."""
    data = _encoder.encode(pdu)
    if len(data) <= PART_BYTES:
        return [pdu]
    pieces = [data[begin : begin + PART_BYTES] for begin in range(0, len(data), PART_BYTES)]
    name = name_of(data)
    return [Part(pdu.code, name, place, len(pieces), piece) for place, piece in enumerate(pieces)]


def in_parts(
    pdu: Report | Accept | AcceptChange | Install, to: Site | tuple[Site, ...] | None
) -> list[Effect]:
    """The effects that send a PDU that can be large to a site, to several, or to all (None)."""
    return [Send(to, part) if isinstance(to, str) else Multicast(part, to) for part in split(pdu)]


def name_of(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=7).digest(), "big")


@lru_cache(maxsize=64)
def decision_name(decision: Decision) -> int:
    """A hash of a decision; sites in one process share it."""
    return name_of(_encoder.encode(decision))


def is_part(part: Part) -> bool:
    """Whether a part makes sense by itself."""
    return part.place < part.count and part.kind in _decoders


def reassemble(kind: int, name: int, pieces: list[bytes]) -> Pdu | None:
    """The whole, or None if the pieces make none."""
    data = b"".join(pieces)
    if name_of(data) != name:
        return None
    try:
        return _decoders[kind].decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError):
        return None


class Reassembly:
    """The parts of incomplete wholes, bounded."""

    def __init__(self) -> None:
        self._partial: dict[Site, tuple[tuple[int, int, int], dict[int, bytes]]] = {}
        """By sender, the oldest first: which whole is incomplete, and its parts by their places."""
        self.kept = 0

    def add(self, sender: Site, part: Part) -> list[bytes] | None:
        """Keep a part; all pieces in order if none is missing now."""
        whole = (part.kind, part.name, part.count)
        known = self._partial.get(sender)
        if known is None or known[0] != whole:
            self._drop(sender)
            known = self._partial[sender] = (whole, {})
        pieces = known[1]
        self.kept += part.place not in pieces
        pieces[part.place] = part.data
        if len(pieces) == part.count:
            self._drop(sender)
            return [piece for _, piece in sorted(pieces.items())]
        if self.kept > MOST_KEPT:
            self._drop(next(iter(self._partial)))
        return None

    def _drop(self, sender: Site) -> None:
        _, pieces = self._partial.pop(sender, (None, ()))
        self.kept -= len(pieces)
