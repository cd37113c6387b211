"""The wire: a fixed header, then a msgspec body; a gate that hostile bytes never raise past.

A datagram is `HEADER` followed by the body, a MessagePack array of the PDU's fields. The header names the
PDU's type by a code, the group by a hash of its name, and the sender by the random id it drew when it
booted together with a counter that rises with each PDU it sends. A checksum covers the rest of the header
and the body; it guards against accidents. Against forgers a group has a key, and the live runtime seals the
body under it with the same header as associated data.

`Codec.decode` answers with a `Packet` or with `Garbage` and the reason; it raises nothing, whatever the
bytes.
"""

import hashlib
import struct
import zlib
from collections.abc import Iterable
from enum import Enum
from typing import ClassVar, Final

import msgspec

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group
from antiphon.core.packing import Packed

MAGIC: Final = b"An"
VERSION: Final = 1
HEADER: Final = struct.Struct("!2sBBIQQQI")
"""Magic, version, PDU code, body length, group, boot, counter, checksum: 36 bytes."""
CHECKSUM: Final = struct.Struct("!I")
MAXIMUM_BODY_BYTES: Final = 65_507 - HEADER.size
"""What one UDP datagram over IPv4 can carry beyond our header."""


class Pdu(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all protocol data units. A subclass sets `code`, unique among the PDUs of its codec."""

    code: ClassVar[int] = 0


class Reason(Enum):
    """Why a datagram was dropped at the gate."""

    SHORT = "shorter than a header"
    MAGIC = "not ours: wrong magic"
    VERSION = "another version of the wire format"
    KIND = "unknown kind of PDU"
    LENGTH = "body length differs from what the header says"
    CHECKSUM = "checksum does not match"
    BODY = "body does not fit its kind of PDU"


class Packet(msgspec.Struct, frozen=True, gc=False):
    """A datagram that came through the gate."""

    group: int
    boot: int
    counter: int
    pdu: Pdu


class Garbage(msgspec.Struct, frozen=True, gc=False):
    """A datagram that did not."""

    reason: Reason


def group_hash(group: Group) -> int:
    """The 64 bits that stand for a group's name in the header."""
    return int.from_bytes(hashlib.blake2b(group.encode(), digest_size=8).digest(), "big")


def _data(value: object) -> bytes:
    """What msgspec cannot encode by itself: packed bodies."""
    if isinstance(value, Packed):
        return value.data
    raise NotImplementedError(f"{type(value).__name__} has no form on the wire")


def _unpack(kind: type, value: object) -> Packed:
    if kind is Packed and isinstance(value, bytes):
        return Packed(value)
    raise ValueError("not packed bodies")


class Codec:
    """Encodes and decodes the PDUs of one protocol stack."""

    def __init__(self, kinds: Iterable[type[Pdu]]) -> None:
        self._decoders: dict[int, msgspec.msgpack.Decoder[Pdu]] = {}
        for kind in kinds:
            if not 1 <= kind.code <= 255:
                raise UsageError(f"{kind.__name__} has the PDU code {kind.code}, which is not from 1 to 255.")
            if kind.code in self._decoders:
                raise UsageError(f"{kind.__name__} has the PDU code {kind.code}, but so has another PDU.")
            self._decoders[kind.code] = msgspec.msgpack.Decoder(kind, dec_hook=_unpack)
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_data)

    def encode(self, pdu: Pdu, group: int = 0, boot: int = 0, counter: int = 0) -> bytes:
        if pdu.code not in self._decoders:
            raise UsageError(f"{type(pdu).__name__} is not a PDU of this codec.")
        body = self._encoder.encode(pdu)
        if len(body) > MAXIMUM_BODY_BYTES:
            raise UsageError(
                f"A {type(pdu).__name__} of {len(body)} bytes does not fit a datagram.",
                hint=f"A body may have {MAXIMUM_BODY_BYTES} bytes; send less at a time.",
            )
        header = HEADER.pack(MAGIC, VERSION, pdu.code, len(body), group, boot, counter, 0)
        checksum = zlib.crc32(body, zlib.crc32(header[: -CHECKSUM.size]))
        return header[: -CHECKSUM.size] + CHECKSUM.pack(checksum) + body

    def decode(self, datagram: bytes | bytearray | memoryview) -> Packet | Garbage:
        view = memoryview(datagram)
        if len(view) < HEADER.size:
            return Garbage(Reason.SHORT)
        magic, version, code, length, group, boot, counter, checksum = HEADER.unpack_from(view)
        if magic != MAGIC:
            return Garbage(Reason.MAGIC)
        if version != VERSION:
            return Garbage(Reason.VERSION)
        decoder = self._decoders.get(code)
        if decoder is None:
            return Garbage(Reason.KIND)
        body = view[HEADER.size :]
        if len(body) != length:
            return Garbage(Reason.LENGTH)
        if zlib.crc32(body, zlib.crc32(view[: HEADER.size - CHECKSUM.size])) != checksum:
            return Garbage(Reason.CHECKSUM)
        try:
            pdu = decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError):
            return Garbage(Reason.BODY)
        return Packet(group, boot, counter, pdu)
