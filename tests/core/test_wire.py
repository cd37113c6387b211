"""The wire codec: what we send comes back, and nothing that anyone else sends gets past the gate."""

import struct
import zlib
from typing import ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.errors import UsageError
from antiphon.core.wire import (
    HEADER,
    MAGIC,
    MAXIMUM_BODY_BYTES,
    VERSION,
    Codec,
    Garbage,
    Packet,
    Pdu,
    Reason,
    group_hash,
)


class Note(Pdu, frozen=True):
    code: ClassVar[int] = 7
    number: int
    text: str
    bodies: list[bytes]


class Other(Pdu, frozen=True):
    code: ClassVar[int] = 8
    number: int


CODEC = Codec([Note, Other])
NOTES = st.builds(
    Note,
    number=st.integers(-(2**63), 2**63 - 1),
    text=st.text(max_size=20),
    bodies=st.lists(st.binary(max_size=50), max_size=5),
)
SIXTY_FOUR_BITS = st.integers(0, 2**64 - 1)


def reason(datagram: bytes) -> Reason | None:
    answer = CODEC.decode(datagram)
    return answer.reason if isinstance(answer, Garbage) else None


def seal(code: int, body: bytes, *, version: int = VERSION, length: int | None = None) -> bytes:
    """A datagram with a right checksum around whatever body an attacker likes."""
    size = len(body) if length is None else length
    head = HEADER.pack(MAGIC, version, code, size, 0, 0, 0, 0)[:-4]
    return head + struct.pack("!I", zlib.crc32(body, zlib.crc32(head))) + body


@given(NOTES, SIXTY_FOUR_BITS, SIXTY_FOUR_BITS, SIXTY_FOUR_BITS)
def test_what_is_encoded_is_decoded(pdu: Note, group: int, boot: int, counter: int) -> None:
    assert CODEC.decode(CODEC.encode(pdu, group, boot, counter)) == Packet(group, boot, counter, pdu)


@given(st.binary(max_size=200))
def test_random_bytes_never_raise(datagram: bytes) -> None:
    assert isinstance(CODEC.decode(datagram), Garbage)


@given(st.sampled_from([7, 8]), st.binary(max_size=200))
def test_hostile_bodies_under_a_right_checksum_never_raise(code: int, body: bytes) -> None:
    answer = CODEC.decode(seal(code, body))
    assert isinstance(answer, Packet) or answer.reason is Reason.BODY


@given(NOTES, st.data())
def test_any_flipped_bit_is_noticed(pdu: Note, data: st.DataObject) -> None:
    datagram = bytearray(CODEC.encode(pdu, 1, 2, 3))
    bit = data.draw(st.integers(0, len(datagram) * 8 - 1))
    datagram[bit // 8] ^= 1 << bit % 8
    assert isinstance(CODEC.decode(datagram), Garbage)


@given(NOTES, st.data())
def test_any_truncation_is_noticed(pdu: Note, data: st.DataObject) -> None:
    datagram = CODEC.encode(pdu)
    assert isinstance(CODEC.decode(datagram[: data.draw(st.integers(0, len(datagram) - 1))]), Garbage)


@pytest.mark.parametrize(
    ("datagram", "expected"),
    [
        (b"", Reason.SHORT),
        (b"\0" * 100, Reason.MAGIC),
        (seal(7, b"", version=9), Reason.VERSION),
        (seal(99, b""), Reason.KIND),
        (seal(7, b"abc", length=2), Reason.LENGTH),
        (seal(7, b"abc")[:-1] + b"x", Reason.CHECKSUM),
        (seal(8, msgspec.msgpack.encode(["not a number"])), Reason.BODY),
        (seal(8, msgspec.msgpack.encode([2**64 - 1]) + b"more"), Reason.BODY),
        (seal(7, b"\x91" * 60_000), Reason.BODY),
        (seal(7, msgspec.msgpack.encode([1, None, []])), Reason.BODY),
    ],
)
def test_the_gate_says_why(datagram: bytes, expected: Reason) -> None:
    assert reason(datagram) is expected


def test_a_codec_refuses_codes_that_clash_or_do_not_fit() -> None:
    class Clash(Pdu, frozen=True):
        code: ClassVar[int] = 7

    class Outside(Pdu, frozen=True):
        code: ClassVar[int] = 300

    with pytest.raises(UsageError, match="so has another PDU"):
        Codec([Note, Clash])
    with pytest.raises(UsageError, match="not from 1 to 255"):
        Codec([Outside])


def test_encoding_refuses_foreign_and_oversized_pdus() -> None:
    class Foreign(Pdu, frozen=True):
        code: ClassVar[int] = 9

    with pytest.raises(UsageError, match="not a PDU of this codec"):
        CODEC.encode(Foreign())
    with pytest.raises(UsageError, match="does not fit a datagram"):
        CODEC.encode(Note(0, "", [b"x" * (MAXIMUM_BODY_BYTES + 1)]))


def test_a_group_is_known_by_the_same_hash_everywhere() -> None:
    assert group_hash("orders") == 0xD5ACEBE867B47F4D
    assert group_hash("orders") != group_hash("order")
