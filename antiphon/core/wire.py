"""The wire: a fixed header, the sender's name, a msgspec body; and a gate that raises at no bytes.

A PDU travels as `HEADER` followed by its body. The header names the PDU's type by a code, the group by a hash
of its name, and the sending process by the random id it drew when it booted together with a counter that
rises with each PDU it sends. The body is the sender's site name (one byte of length, then UTF-8) and a
MessagePack array of the PDU's fields.

An unsealed PDU carries a checksum of the rest of the header and of the body's first kilobyte: it guards
against accidents in what decides how the PDU is read, while UDP's own checksum guards the rest at no cost to
us. Against forgers a group has a key: then the live runtime seals the body with the header as associated
data, the version byte has its highest bit set, and the checksum's place holds the id of the sender's key.

A PDU for one process has the bit `DIRECT` set. The boot of that process then belongs to the checksum or to
the associated data, without being sent: another process that is handed the PDU finds that it does not fit.

Versions: `OLDEST` to `VERSION` are the wire versions that this code reads; it writes `VERSION`. Greetings,
the PDUs by which processes meet (`GREETINGS`), have the same form in every version, so that two processes can
always exchange their versions. Within a version, fields may be added at the end of a PDU and kinds of PDU may
be added: older code skips what it does not know.

`parse` and `Codec.decode` return what they found or the reason why it is garbage; no bytes make them raise.
"""

import hashlib
import struct
import zlib
from collections.abc import Iterable
from enum import Enum
from typing import ClassVar, Final, TypeAlias

import msgspec

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.packing import Packed

PACKED: Final = 1
"""The MessagePack extension type of packed bodies."""
MAGIC: Final = b"An"
VERSION: Final = 2
OLDEST: Final = 2
SEALED: Final = 0x80
"""Set in the version byte of a PDU whose body is sealed under a key."""
DIRECT: Final = 0x40
"""Set in the version byte of a PDU that is for one process only."""
VERSION_MASK: Final = DIRECT - 1
GREETINGS: Final = frozenset({3, 4, 5, 7, 8})
"""Codes of the PDUs that are read in any version."""
PREFIX: Final = struct.Struct("!2sBBIQQQ")
"""Magic, version, PDU code, body length, group, boot, counter: 32 bytes."""
HEADER: Final = struct.Struct("!2sBBIQQQI")
"""The prefix and its checksum, or the key's id: 36 bytes."""
CHECKSUM: Final = struct.Struct("!I")
BOOT: Final = struct.Struct("!Q")
CHECKED_BYTES: Final = HEADER.size + 1024
"""Bytes of a PDU that the checksum covers. Raising it costs time for every PDU received."""
MAXIMUM_BODY_BYTES: Final = 320 << 10
"""Largest body of a PDU; the live runtime cuts PDUs that exceed a datagram into fragments."""
MAXIMUM_NAME_BYTES: Final = 255

Bytes: TypeAlias = bytes | bytearray | memoryview


class OversizeError(UsageError):
    """A PDU exceeds the largest size."""


class Pdu(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all protocol data units. A subclass sets `code`, unique among the PDUs of its codec."""

    code: ClassVar[int] = 0
    urgent: ClassVar[bool] = False
    """Whether it overtakes PDUs that pacing holds back. It must be small, and refer to none of them."""


class Reason(Enum):
    """Why a datagram was dropped at the gate."""

    SHORT = "shorter than a header"
    MAGIC = "not ours: wrong magic"
    VERSION = "another version of the wire format"
    SEALED = "sealed, and there is no key"
    KIND = "unknown kind of PDU"
    LENGTH = "body length differs from what the header says"
    CHECKSUM = "checksum does not match"
    BODY = "body does not fit its kind of PDU"


class Head(msgspec.Struct, frozen=True, gc=False):
    """A header that makes sense by itself and fits the length of what follows it."""

    sealed: bool
    direct: bool
    code: int
    group: int
    boot: int
    counter: int
    checksum: int


class Packet(msgspec.Struct, frozen=True, gc=False):
    """A PDU that was decoded."""

    group: int
    boot: int
    counter: int
    sender: Site
    pdu: Pdu


class Garbage(msgspec.Struct, frozen=True, gc=False):
    """A datagram that was dropped."""

    reason: Reason


def group_hash(group: Group) -> int:
    """The 64 bits in the header that identify a group's name."""
    return int.from_bytes(hashlib.blake2b(group.encode(), digest_size=8).digest(), "big")


def name_bytes(site: Site) -> bytes:
    """A site's name in the form that begins every body."""
    encoded = site.encode()
    if not 0 < len(encoded) <= MAXIMUM_NAME_BYTES:
        raise UsageError(
            f"A name of {len(encoded)} bytes does not fit a PDU.",
            hint=f"A member's name has 1 to {MAXIMUM_NAME_BYTES} bytes in UTF-8.",
        )
    return bytes([len(encoded)]) + encoded


def parse(view: memoryview) -> Head | Reason:
    """The header of a PDU, or the reason why it is none."""
    if len(view) < HEADER.size:
        return Reason.SHORT
    magic, version, code, length, group, boot, counter, checksum = HEADER.unpack_from(view)
    if magic != MAGIC:
        return Reason.MAGIC
    if not OLDEST <= version & VERSION_MASK <= VERSION and code not in GREETINGS:
        return Reason.VERSION
    if len(view) != HEADER.size + length:
        return Reason.LENGTH
    return Head(version >= SEALED, bool(version & DIRECT), code, group, boot, counter, checksum)


def stamp(buffer: bytearray, code: int, group: int, boot: int, counter: int, to: int | None = None) -> None:
    """Write the header of an unsealed PDU whose body is in the buffer already.

    `to` is the boot of the only process that the PDU is for.
    """
    version = VERSION if to is None else VERSION | DIRECT
    PREFIX.pack_into(buffer, 0, MAGIC, version, code, len(buffer) - HEADER.size, group, boot, counter)
    CHECKSUM.pack_into(buffer, PREFIX.size, checksum(memoryview(buffer), to))


def checksum(view: memoryview, to: int | None = None) -> int:
    """The checksum of an unsealed PDU: over the rest of its header, its `to` and the beginning of its
    body."""
    head = zlib.crc32(view[: PREFIX.size])
    if to is not None:
        head = zlib.crc32(BOOT.pack(to), head)
    return zlib.crc32(view[HEADER.size : CHECKED_BYTES], head)


def _extension(value: object) -> msgspec.msgpack.Ext:
    """Encode packed bodies, which msgspec cannot encode by itself."""
    if isinstance(value, Packed):
        return msgspec.msgpack.Ext(PACKED, value.wire())
    raise NotImplementedError(f"{type(value).__name__} has no form on the wire")


def _packed(code: int, view: memoryview) -> Packed:
    """Decode packed bodies."""
    if code != PACKED:
        raise ValueError("an extension that is not ours")
    return Packed(bytes(view))


def _packed_at_the_end(code: int, view: memoryview) -> Packed:
    """Decode packed bodies that end where their PDU ends, without a copy."""
    whole = view.obj
    if code != PACKED or type(whole) is not bytes:
        return _packed(code, view)
    return Packed(whole, len(whole) - len(view))


def _no_packed(_kind: type, value: object) -> Packed:
    """Packed bodies must be an extension: refuse anything else in their place."""
    if isinstance(value, Packed):
        return value
    raise ValueError("not packed bodies")


class Codec:
    """Encodes and decodes the PDUs of one protocol stack."""

    def __init__(self, kinds: Iterable[type[Pdu]]) -> None:
        self.kinds: Final = tuple(kinds)
        self._decoders: dict[int, msgspec.msgpack.Decoder[Pdu]] = {}
        self._later: dict[int, msgspec.msgpack.Decoder[Pdu]] = {}
        """For PDUs with more fields than we know: in these, bodies are not at the end."""
        self._fields: dict[int, int] = {}
        for kind in self.kinds:
            if not 1 <= kind.code <= 255:
                raise UsageError(f"{kind.__name__} has the PDU code {kind.code}, which is not from 1 to 255.")
            if kind.code in self._decoders:
                raise UsageError(f"{kind.__name__} has the PDU code {kind.code}, but so has another PDU.")
            fields = msgspec.structs.fields(kind)
            at_end = _packed_at_the_end if fields and fields[-1].type is Packed else _packed
            self._decoders[kind.code] = msgspec.msgpack.Decoder(kind, dec_hook=_no_packed, ext_hook=at_end)
            self._later[kind.code] = msgspec.msgpack.Decoder(kind, dec_hook=_no_packed, ext_hook=_packed)
            self._fields[kind.code] = len(fields)
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_extension)

    def encode(
        self,
        pdu: Pdu,
        group: int = 0,
        boot: int = 0,
        counter: int = 0,
        sender: Site = "someone",
        to: int | None = None,
    ) -> bytes:
        """A whole unsealed PDU, for everyone or for the process of one boot."""
        buffer = bytearray(HEADER.size) + name_bytes(sender)
        self.encode_into(pdu, buffer, len(buffer))
        stamp(buffer, pdu.code, group, boot, counter, to)
        return bytes(buffer)

    def encode_into(self, pdu: Pdu, buffer: bytearray, offset: int) -> None:
        """Write a PDU's fields at `offset`, after the header's room and the sender's name.

        The buffer then ends where they end. The bytes before them stay: a sender may use one buffer again and
        again.
        """
        if pdu.code not in self._decoders:
            raise UsageError(f"{type(pdu).__name__} is not a PDU of this codec.")
        self._encoder.encode_into(pdu, buffer, offset)
        if len(buffer) - HEADER.size > MAXIMUM_BODY_BYTES:
            size = len(buffer) - HEADER.size
            raise OversizeError(
                f"A {type(pdu).__name__} of {size} bytes does not fit a PDU.",
                hint=f"A body may have {MAXIMUM_BODY_BYTES} bytes; send less at a time.",
            )

    def decode(self, datagram: Bytes, boot: int | None = None) -> Packet | Garbage:
        """A whole unsealed PDU, read by the process of a boot; or the reason why it is none."""
        view = memoryview(datagram)
        head = parse(view)
        if isinstance(head, Reason):
            return Garbage(head)
        if head.sealed:
            return Garbage(Reason.SEALED)
        if head.code not in self._decoders:
            return Garbage(Reason.KIND)
        if checksum(view, boot if head.direct else None) != head.checksum:
            return Garbage(Reason.CHECKSUM)
        found = self.decode_body(head.code, view[HEADER.size :])
        if isinstance(found, Reason):
            return Garbage(found)
        return Packet(head.group, head.boot, head.counter, *found[:2])

    def decode_body(self, code: int, body: Bytes) -> tuple[Site, Pdu, bool] | Reason:
        """The sender's name, the PDU and whether it has fields of a later version; or why it is garbage."""
        if code not in self._decoders:
            return Reason.KIND
        view = memoryview(body)
        if not view or not 0 < view[0] < len(view) - 1:
            return Reason.BODY
        end = 1 + view[0]
        is_later = self.has_later_fields(code, view)
        decoder = (self._later if is_later else self._decoders)[code]
        try:
            return str(view[1:end], "utf-8"), decoder.decode(view[end:]), is_later
        except Exception:
            # Any exception of a hook or a decoder: no bytes of a peer may end a member.
            return Reason.BODY

    def has_later_fields(self, code: int, body: Bytes) -> bool:
        """Whether an opened body, behind its name, has more fields than we know: a later version's."""
        begin = 1 + body[0]
        kind = body[begin]
        # MessagePack writes the length of an array into its first byte, or into the two or four bytes after
        # it.
        if kind & 0xF0 == 0x90:
            count = kind & 0x0F
        else:
            count = int.from_bytes(body[begin + 1 : begin + (5 if kind == 0xDD else 3)], "big")
        return count > self._fields[code]
