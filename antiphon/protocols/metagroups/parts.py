"""Large words of the council, cut into parts: the table of very many sites fits no single PDU.

With 1,000 sites in 200 groups, names of four letters and two to four groups a site, a table takes 43 to 66
KB; what was under way on trees that end, 24 bytes for each batch, and what trees hand over come on top.

A part says by what name the whole goes, which follows from its contents. So if some parts are lost and all is
said again, as the council does until it is answered, the parts of both times make one whole. A site that says
something else meanwhile is not heard to the end with the first: at most one whole a sender is in the making.
"""

import hashlib
from typing import Final

import msgspec

from antiphon.core.effects import Effect, Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups.pdus import PART_BYTES, Accept, Install, Part, Report

MOST_KEPT: Final = 1024
"""Parts, from all senders together, of wholes that are in the making."""


_encoder: Final = msgspec.msgpack.Encoder()
_decoders: Final = {kind.code: msgspec.msgpack.Decoder(kind) for kind in (Report, Accept, Install)}


def cut(pdu: Report | Accept | Install) -> list[Pdu]:
    """The PDU itself if it is small enough, else its parts."""
    data = _encoder.encode(pdu)
    if len(data) <= PART_BYTES:
        return [pdu]
    pieces = [data[begin : begin + PART_BYTES] for begin in range(0, len(data), PART_BYTES)]
    name = name_of(data)
    return [Part(pdu.code, name, place, len(pieces), piece) for place, piece in enumerate(pieces)]


def said(pdu: Report | Accept | Install, to: Site | tuple[Site, ...] | None) -> list[Effect]:
    """What sends one of the PDUs that can be large; to everybody if nobody is named."""
    return [Send(to, part) if isinstance(to, str) else Multicast(part, to) for part in cut(pdu)]


def name_of(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=7).digest(), "big")


def is_part(part: Part) -> bool:
    """Whether a part makes sense by itself."""
    return part.place < part.count and part.kind in _decoders


def put_together(kind: int, name: int, pieces: list[bytes]) -> Pdu | None:
    """The whole, or None if its pieces make none."""
    data = b"".join(pieces)
    if name_of(data) != name:
        return None
    try:
        return _decoders[kind].decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError):
        return None


class Parts:
    """What has come of wholes that are not complete, bounded."""

    def __init__(self) -> None:
        self._made: dict[Site, tuple[tuple[int, int, int], dict[int, bytes]]] = {}
        """By sender, the oldest first: which whole is in the making, and its parts by their places."""
        self.kept = 0

    def take(self, sender: Site, part: Part) -> list[bytes] | None:
        """One more part; all pieces in order if none is missing now."""
        whole = (part.kind, part.name, part.count)
        known = self._made.get(sender)
        if known is None or known[0] != whole:
            self._drop(sender)
            known = self._made[sender] = (whole, {})
        pieces = known[1]
        self.kept += part.place not in pieces
        pieces[part.place] = part.data
        if len(pieces) == part.count:
            self._drop(sender)
            return [piece for _, piece in sorted(pieces.items())]
        if self.kept > MOST_KEPT:
            self._drop(next(iter(self._made)))
        return None

    def _drop(self, sender: Site) -> None:
        _, pieces = self._made.pop(sender, (None, ()))
        self.kept -= len(pieces)
