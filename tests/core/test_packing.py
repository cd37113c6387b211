"""Packed bodies: the same as a list of bytes, in one piece; hostile bytes are refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.packing import (
    ADDRESSED,
    COUNT,
    NAME_WEIGHT,
    UNFINISHED,
    Packed,
    consecutive,
    overhead_bytes,
    pack,
    pack_records,
)
from antiphon.core.wire import PACKED, Codec, Garbage, Packet, Pdu, Reason

BODIES = st.lists(st.binary(max_size=40), min_size=1, max_size=20)


class Carrier(Pdu, frozen=True, gc=False):
    code = 7
    number: int
    bodies: Packed


@given(BODIES, st.booleans(), st.booleans())
def test_a_batch_reads_as_the_bodies_that_went_in(
    bodies: list[bytes], unfinished: bool, continuing: bool
) -> None:
    packed = pack(bodies, unfinished=unfinished, continuing=continuing)
    again = Packed(packed.data)
    assert list(again) == bodies
    assert again == bodies
    assert [again[place] for place in range(len(again))] == bodies
    assert again[-1] == bodies[-1]
    assert again[1:] == bodies[1:]
    assert (len(again), again.size) == (len(bodies), sum(map(len, bodies)))
    assert (again.unfinished, again.continuing) == (unfinished, continuing)
    assert len(packed.data) == again.size + overhead_bytes(len(bodies))


SETS = st.one_of(st.none(), st.frozensets(st.sampled_from("abcd"), max_size=4))


@given(st.lists(st.tuples(st.binary(max_size=40), SETS), min_size=1, max_size=20))
def test_an_addressed_batch_tells_for_whom_each_message_is(
    messages: list[tuple[bytes, frozenset[str] | None]],
) -> None:
    bodies, sets = [body for body, _ in messages], [to for _, to in messages]
    packed = Packed(b"head" + pack(bodies, addresses=sets).data, 4)
    assert list(packed) == bodies
    assert [packed[place] for place in range(len(packed))] == bodies
    assert packed.size == sum(map(len, bodies))
    assert packed.addresses is not None
    assert packed.addresses.each() == sets
    for site in "abcd":
        meant = [place for place, to in enumerate(sets) if to is None or site in to]
        assert packed.places_for(site) == meant
        assert [
            place for begin, count in consecutive(meant) for place in range(begin, begin + count)
        ] == meant
    runs = [to for _, count, to in packed.runs() for _ in range(count)]
    assert runs == sets


def test_records_can_be_for_some() -> None:
    packed = pack_records(memoryview(b"aabb"), 2, frozenset({"x"}))
    assert [*packed] == [b"aa", b"bb"]
    assert [*packed.places_for("x")] == [0, 1]
    assert [*packed.places_for("y")] == []
    assert [*pack([b"a", b"b"]).places_for("y")] == [0, 1]


@given(st.binary(max_size=40))
def test_addresses_that_make_no_sense_are_refused(table: bytes) -> None:
    head = COUNT.pack(1 | ADDRESSED) + COUNT.pack(1) + COUNT.pack(len(table)) + table + b"x"
    try:
        packed = Packed(head)
    except ValueError:
        return
    assert packed.addresses is not None
    assert len(packed.addresses.each()) == 1


@given(BODIES)
def test_a_batch_travels_inside_a_pdu(bodies: list[bytes]) -> None:
    codec = Codec([Carrier])
    answer = codec.decode(codec.encode(Carrier(3, pack(bodies))))
    assert isinstance(answer, Packet)
    assert answer.pdu == Carrier(3, pack(bodies))


def test_a_batch_weighs_what_it_takes() -> None:
    """Bodies may be empty, and destinations many: a batch takes memory all the same."""
    assert pack([b""] * 1000).weight == pack([b"", b"x" * 3996]).weight - 4 == 4004
    plain, named = pack([b"x"]), pack([b"x"], addresses=[frozenset(f"m{n}" for n in range(100))])
    assert named.weight > plain.weight + 100 * NAME_WEIGHT
    assert Packed(b"before" + plain.data, 6).weight == plain.weight


def test_packing_a_batch_again_changes_nothing() -> None:
    packed = pack([b"a"])
    assert pack(packed) is packed


def test_batches_differ_from_other_bodies_and_other_things() -> None:
    packed = pack([b"a", b"b"])
    assert packed != [b"a"]
    assert packed != [b"ab", b""]
    assert packed != 3


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01\x00",
        COUNT.pack(0),
        COUNT.pack(UNFINISHED),
        COUNT.pack(1),
        COUNT.pack(1) + COUNT.pack(2) + b"a",
        COUNT.pack(1) + COUNT.pack(2) + b"abc",
        COUNT.pack(0x3FFFFFFF) + b"x" * 100,
    ],
    ids=["nothing", "short", "none", "none unfinished", "no length", "too long", "too short", "many"],
)
def test_bytes_that_are_no_batch_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="a batch"):
        Packed(data)
    codec = Codec([Carrier])
    raw = msgspec.msgpack.encode((1, data))
    header = codec.encode(Carrier(1, pack([b"x"])))
    assert isinstance(codec.decode(header[:36] + raw), Garbage)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_batch_or_refused(data: bytes) -> None:
    try:
        packed = Packed(data)
    except ValueError:
        return
    assert sum(map(len, packed)) == packed.size


class Letter(Pdu, frozen=True, gc=False):
    """Bodies that are not at the end of their PDU."""

    code = 202
    bodies: Packed
    number: int


class Nothing(Pdu, frozen=True, gc=False):
    code = 203


SEVERAL = Codec([Carrier, Letter, Nothing])


def test_bodies_may_stand_anywhere_in_a_pdu() -> None:
    for pdu in (Letter(pack([b"one", b""]), 7), Carrier(3, pack([b"one"])), Nothing()):
        found = SEVERAL.decode(SEVERAL.encode(pdu))
        assert isinstance(found, Packet)
        assert found.pdu == pdu


def test_bodies_at_the_end_of_a_pdu_are_not_copied() -> None:
    datagram = SEVERAL.encode(Carrier(3, pack([b"one"])))
    found = SEVERAL.decode(datagram)
    assert isinstance(found, Packet)
    assert isinstance(found.pdu, Carrier)
    assert found.pdu.bodies.data is datagram


@pytest.mark.parametrize("code", [PACKED - 1, PACKED + 1])
def test_an_extension_of_another_code_is_no_batch(code: int) -> None:
    batch = msgspec.msgpack.Ext(code, pack([b"one"]).wire())
    for pdu, fields in ((Carrier, (3, batch)), (Letter, (batch, 3))):
        body = b"\x01a" + msgspec.msgpack.encode(fields)
        assert SEVERAL.decode_body(pdu.code, body) is Reason.BODY
