"""Packed bodies: the same as a list of bytes, in one piece; hostile bytes are refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.packing import COUNT, UNFINISHED, Packed, overhead_bytes, pack
from antiphon.core.wire import Codec, Garbage, Packet, Pdu

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


@given(BODIES)
def test_a_batch_travels_inside_a_pdu(bodies: list[bytes]) -> None:
    codec = Codec([Carrier])
    answer = codec.decode(codec.encode(Carrier(3, pack(bodies))))
    assert isinstance(answer, Packet)
    assert answer.pdu == Carrier(3, pack(bodies))


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
