"""What a PDU weighs on the wire: its encoded length, header and sender's name included."""

from collections.abc import Callable, Iterable
from typing import Final

from antiphon.core.wire import HEADER, Codec, Pdu, name_bytes

SENDER: Final = name_bytes("s00")
"""The sender's name in every PDU of a simulated site, near enough."""


def encoded_size(pdus: Iterable[type[Pdu]]) -> Callable[[Pdu], int]:
    """A function that weighs these PDUs by encoding them."""
    codec, first = Codec(pdus), HEADER.size + len(SENDER)

    def size(pdu: Pdu) -> int:
        buffer = bytearray()
        codec.encode_into(pdu, buffer, 0)
        return first + len(buffer)

    return size
