"""The bounds of fields and of batches: what lies at a bound is read, what lies beyond it is refused."""

from typing import Any

import msgspec
import pytest

from antiphon.core.errors import UsageError
from antiphon.core.fields import (
    INCARNATION_LIMIT,
    LONGEST_NAME,
    MOST_NAMES,
    NUMBER_LIMIT,
    Hash,
    Incarnation,
    IncarnationOrNone,
    Name,
    Names,
    Number,
    NumberOrNone,
)
from antiphon.core.packing import MOST_SETS, Packed, pack
from antiphon.core.wire import HEADER, MAXIMUM_BODY_BYTES, Codec, OversizeError, Pdu
from antiphon.live.handshake import Boot, Version

BOUNDS: list[tuple[Any, list[Any], list[Any]]] = [
    (Number, [0, NUMBER_LIMIT - 1], [-1, NUMBER_LIMIT]),
    (NumberOrNone, [-1, 0, NUMBER_LIMIT - 1], [-2, NUMBER_LIMIT]),
    (Incarnation, [0, INCARNATION_LIMIT - 1], [-1, INCARNATION_LIMIT]),
    (IncarnationOrNone, [-1, 0, INCARNATION_LIMIT - 1], [-2, INCARNATION_LIMIT]),
    (Hash, [0, (1 << 63) - 1], [-1, 1 << 63]),
    (Name, ["a", "a" * LONGEST_NAME], ["", "a" * (LONGEST_NAME + 1)]),
    (Names, [("a",) * MOST_NAMES], [("a",) * (MOST_NAMES + 1)]),
    (Boot, [0, (1 << 64) - 1], [-1]),
    (Version, [0, 63], [-1, 64]),
]


@pytest.mark.parametrize(("kind", "within", "beyond"), BOUNDS)
def test_a_field_takes_what_is_within_its_bounds(kind: Any, within: list[Any], beyond: list[Any]) -> None:
    for value in within:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind) == value
    for value in beyond:
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind)


def kind_of(code: int) -> type[Pdu]:
    return type("Probe", (Pdu,), {"code": code, "__annotations__": {"body": bytes}}, frozen=True)


def test_codes_of_pdus_are_one_byte_and_not_zero() -> None:
    for code in (1, 2, 254, 255):
        assert Codec([kind_of(code)]).kinds[0].code == code
    for code in (0, 256):
        with pytest.raises(UsageError, match="not from 1 to 255"):
            Codec([kind_of(code)])


def test_a_body_may_be_as_large_as_the_maximum_and_no_larger() -> None:
    kind = kind_of(1)
    codec = Codec([kind])
    empty = len(codec.encode(kind(bytes(100_000)), sender="a")) - HEADER.size - 100_000
    assert codec.encode(kind(bytes(MAXIMUM_BODY_BYTES - empty)), sender="a")
    with pytest.raises(OversizeError):
        codec.encode(kind(bytes(MAXIMUM_BODY_BYTES - empty + 1)), sender="a")


@pytest.mark.parametrize("fields", [3, 15, 16, 70_000])
def test_the_number_of_fields_is_read_however_it_is_written(fields: int) -> None:
    codec = Codec([kind_of(1)])
    body = b"\x01a" + msgspec.msgpack.encode([b"x", *[0] * (fields - 1)])
    assert codec.has_later_fields(1, body)
    assert not codec.has_later_fields(1, b"\x01a" + msgspec.msgpack.encode([b"x"]))
    # The longest way to write it, for one field, and for none.
    assert not codec.has_later_fields(1, b"\x01a\xdd\x00\x00\x00\x01\xc4\x01x")
    assert codec.has_later_fields(1, b"\x01a\xdd\x00\x00\x00\x02\xc4\x01x\x00")
    assert not codec.has_later_fields(1, b"\x01a\xdc\x00\x01\xc4\x01x")


def test_a_batch_needs_a_count_and_at_least_one_message() -> None:
    whole = pack([b""])
    assert list(Packed(whole.data)) == [b""]
    for data in (b"", whole.data[:3], bytes(4), whole.data[:-1]):
        with pytest.raises(ValueError, match="a batch"):
            Packed(data)


def test_a_batch_has_destinations_for_each_message_and_no_others() -> None:
    names = [frozenset({f"m{index}"}) for index in range(MOST_SETS)]
    full = pack([b"x"] * MOST_SETS, addresses=names)
    assert Packed(full.data).addresses is not None
    few = pack([b"x", b"y"], addresses=[frozenset({"a"}), frozenset({"b"})]).data
    # The table's last bytes are the place of each message's set, 0 and 1.
    place = few.rindex(b"\x00\x01")
    for wrong in (b"\x00\x02", b"\x02\x00", b"\x00\xff"):
        with pytest.raises(ValueError, match="addresses do not fit"):
            Packed(few[:place] + wrong + few[place + 2 :])
