"""The wire codec: what we send comes back, and nothing that anyone else sends gets past the gate."""

import struct
import zlib
from typing import ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.errors import UsageError
from antiphon.core.wire import (
    CHECKED_BYTES,
    DIRECT,
    GREETINGS,
    HEADER,
    MAGIC,
    MAXIMUM_BODY_BYTES,
    MAXIMUM_NAME_BYTES,
    OLDEST,
    SEALED,
    VERSION,
    Codec,
    Garbage,
    Head,
    Packet,
    Pdu,
    Reason,
    group_hash,
    name_bytes,
    parse,
)


class Note(Pdu, frozen=True):
    code: ClassVar[int] = 107
    number: int
    text: str
    bodies: list[bytes]


class Other(Pdu, frozen=True):
    code: ClassVar[int] = 108
    number: int


CODEC = Codec([Note, Other])
NOTES = st.builds(
    Note,
    number=st.integers(-(2**63), 2**63 - 1),
    text=st.text(max_size=20),
    bodies=st.lists(st.binary(max_size=50), max_size=5),
)
NAMES = st.text(min_size=1, max_size=60)
SIXTY_FOUR_BITS = st.integers(0, 2**64 - 1)


def reason(datagram: bytes) -> Reason | None:
    answer = CODEC.decode(datagram)
    return answer.reason if isinstance(answer, Garbage) else None


def dressed(
    code: int, fields: bytes, *, name: bytes = b"\x01s", version: int = VERSION, length: int | None = None
) -> bytes:
    """A datagram with a right checksum around whatever body an attacker likes."""
    body = name + fields
    size = len(body) if length is None else length
    head = HEADER.pack(MAGIC, version, code, size, 0, 0, 0, 0)[:-4]
    checked = body[: CHECKED_BYTES - HEADER.size]
    return head + struct.pack("!I", zlib.crc32(checked, zlib.crc32(head))) + body


@given(NOTES, SIXTY_FOUR_BITS, SIXTY_FOUR_BITS, SIXTY_FOUR_BITS, NAMES)
def test_what_is_encoded_is_decoded(pdu: Note, group: int, boot: int, counter: int, sender: str) -> None:
    datagram = CODEC.encode(pdu, group, boot, counter, sender)
    assert CODEC.decode(datagram) == Packet(group, boot, counter, sender, pdu)


@given(NOTES, SIXTY_FOUR_BITS, SIXTY_FOUR_BITS)
def test_what_is_for_one_process_is_garbage_to_all_others(pdu: Note, to: int, other: int) -> None:
    datagram = CODEC.encode(pdu, 1, 2, 3, "s", to)
    assert datagram[2] == VERSION | DIRECT
    assert CODEC.decode(datagram, to) == Packet(1, 2, 3, "s", pdu)
    assert isinstance(CODEC.decode(datagram), Garbage)
    if other != to:
        assert CODEC.decode(datagram, other) == Garbage(Reason.CHECKSUM)
    assert CODEC.decode(CODEC.encode(pdu, 1, 2, 3, "s"), other) == Packet(1, 2, 3, "s", pdu)


@given(st.lists(NOTES, min_size=1, max_size=5), NAMES)
def test_one_buffer_serves_for_many(pdus: list[Note], sender: str) -> None:
    buffer = bytearray(HEADER.size) + name_bytes(sender)
    offset = len(buffer)
    for pdu in pdus:
        CODEC.encode_into(pdu, buffer, offset)
        assert CODEC.decode_body(pdu.code, memoryview(buffer)[HEADER.size :]) == (sender, pdu, False)


@given(st.binary(max_size=200))
def test_random_bytes_never_raise(datagram: bytes) -> None:
    assert isinstance(CODEC.decode(datagram), Garbage)


@given(st.sampled_from([107, 108]), st.binary(max_size=200))
def test_hostile_bodies_under_a_right_checksum_never_raise(code: int, body: bytes) -> None:
    for name in (b"", b"\x01s", b"\xff"):
        answer = CODEC.decode(dressed(code, body, name=name))
        assert isinstance(answer, Packet) or answer.reason is Reason.BODY


@given(NOTES, st.data())
def test_any_flipped_bit_is_noticed(pdu: Note, data: st.DataObject) -> None:
    datagram = bytearray(CODEC.encode(pdu, 1, 2, 3))
    bit = data.draw(st.integers(0, len(datagram) * 8 - 1))
    datagram[bit // 8] ^= 1 << bit % 8
    assert isinstance(CODEC.decode(datagram), Garbage)


@given(st.integers(2_000, 60_000), st.data())
@settings(max_examples=50)
def test_a_flipped_bit_far_in_never_raises_and_near_the_front_is_noticed(
    size: int, data: st.DataObject
) -> None:
    datagram = bytearray(CODEC.encode(Note(1, "", [b"x" * size]), 1, 2, 3))
    bit = data.draw(st.integers(0, CHECKED_BYTES * 8 - 1) | st.integers(0, len(datagram) * 8 - 1))
    datagram[bit // 8] ^= 1 << bit % 8
    answer = CODEC.decode(datagram)
    assert isinstance(answer, Garbage) or bit // 8 >= CHECKED_BYTES


@given(NOTES, st.data())
def test_any_truncation_is_noticed(pdu: Note, data: st.DataObject) -> None:
    datagram = CODEC.encode(pdu)
    assert isinstance(CODEC.decode(datagram[: data.draw(st.integers(0, len(datagram) - 1))]), Garbage)


@pytest.mark.parametrize(
    ("datagram", "expected"),
    [
        (b"", Reason.SHORT),
        (b"\0" * 100, Reason.MAGIC),
        (dressed(107, b"", version=9), Reason.VERSION),
        (dressed(107, b"", version=OLDEST - 1), Reason.VERSION),
        (dressed(min(GREETINGS), b"", version=9), Reason.KIND),
        (dressed(99, b""), Reason.KIND),
        (dressed(107, b"abc", length=2), Reason.LENGTH),
        (dressed(107, b"abc")[:-1] + b"x", Reason.CHECKSUM),
        (dressed(108, msgspec.msgpack.encode(["not a number"])), Reason.BODY),
        (dressed(108, msgspec.msgpack.encode([2**64 - 1]) + b"more"), Reason.BODY),
        (dressed(107, b"\x91" * 60_000), Reason.BODY),
        (dressed(108, b"\x91\x01", version=VERSION | SEALED), Reason.SEALED),
        (dressed(108, b"\x91\x01", name=b""), Reason.BODY),
        (dressed(108, b"\x91\x01", name=b"\x00"), Reason.BODY),
        (dressed(108, b"\x91\x01", name=b"\x09s"), Reason.BODY),
        (dressed(108, b"\x91\x01", name=b"\x02\xc3\x28"), Reason.BODY),
        (dressed(108, b"", name=b"\x01s"), Reason.BODY),
        (dressed(107, msgspec.msgpack.encode([1, None, []])), Reason.BODY),
    ],
)
def test_the_gate_says_why(datagram: bytes, expected: Reason) -> None:
    assert reason(datagram) is expected


def test_a_codec_refuses_codes_that_clash_or_do_not_fit() -> None:
    class Clash(Pdu, frozen=True):
        code: ClassVar[int] = 107

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
    with pytest.raises(UsageError, match="does not fit a PDU"):
        CODEC.encode(Note(0, "", [b"x" * (MAXIMUM_BODY_BYTES + 1)]))


def test_a_group_is_known_by_the_same_hash_everywhere() -> None:
    assert group_hash("orders") == 0xD5ACEBE867B47F4D
    assert group_hash("orders") != group_hash("order")


@pytest.mark.parametrize("name", ["", "x" * 256, "ü" * 128])
def test_names_that_do_not_fit_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="does not fit a PDU"):
        CODEC.encode(Other(1), sender=name)


def test_the_longest_name_fits() -> None:
    sender = "x" * MAXIMUM_NAME_BYTES
    assert CODEC.decode(CODEC.encode(Other(1), sender=sender)) == Packet(0, 0, 0, sender, Other(1))


def test_a_greeting_of_any_version_is_sealed_if_its_bit_says_so() -> None:
    for version in (0, VERSION):
        greeting = HEADER.pack(MAGIC, SEALED | version, min(GREETINGS), 0, 0, 0, 0, 0)
        head = parse(memoryview(greeting))
        assert isinstance(head, Head)
        assert head.sealed
