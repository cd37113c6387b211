"""How vectors travel: what is written can be read, and malformed bytes raise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocols.sco.vectors import (
    LARGEST,
    MalformedError,
    pack_bitmap,
    pack_differences,
    pack_numbers,
    pack_plain,
    pack_whole,
    read_bitmap,
    read_numbers,
    read_vector,
)

numbers = st.one_of(st.integers(0, 300), st.integers(0, LARGEST - 1))


@st.composite
def told(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    """A vector, what its writer knows that all readers have, and what one of them has."""
    values = draw(st.lists(numbers, max_size=20))
    known = [draw(st.integers(max(0, value - draw(numbers)), value)) for value in values]
    floors = [draw(st.integers(max(0, one - draw(numbers)), one)) for one in known]
    # What is not told has not changed, for any reader.
    known = [
        value if value == floor else one for value, floor, one in zip(values, floors, known, strict=True)
    ]
    return values, floors, known


@given(told())
def test_differences_are_read_by_every_reader_that_has_the_floor(case: tuple[list[int], ...]) -> None:
    values, floors, known = case
    assert read_vector(pack_differences(values, floors), known) == values


@given(st.lists(numbers, max_size=20))
def test_plain_and_whole_vectors_are_read_by_anyone(values: list[int]) -> None:
    nothing = [0] * len(values)
    assert read_vector(pack_plain(values), nothing) == values
    assert read_vector(pack_whole(values), nothing) == values


@given(st.lists(numbers, max_size=20), st.binary(max_size=3))
def test_numbers_end_where_they_end(values: list[int], behind: bytes) -> None:
    packed = pack_numbers(values)
    assert read_numbers(packed + behind, 0, len(values)) == (values, len(packed))


@given(st.integers(0, 40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, max(0, n - 1))))))
def test_bitmaps_are_read(case: tuple[int, set[int]]) -> None:
    length, chosen = case
    chosen = {one for one in chosen if one < length}
    assert read_bitmap(pack_bitmap(chosen, length), 0, length) == (sorted(chosen), (length + 7) // 8)


@given(st.binary(max_size=40), st.lists(numbers, max_size=12))
def test_whatever_the_bytes_nothing_but_malformed_is_raised(data: bytes, known: list[int]) -> None:
    try:
        values = read_vector(data, known)
    except MalformedError:
        return
    assert len(values) == len(known)
    assert all(0 <= value < LARGEST for value in values)


@pytest.mark.parametrize(
    ("data", "known"),
    [
        (b"", [0]),
        (b"\x02\x00", [0]),
        (b"\x00\x01", [0]),
        (b"\x01\x02\x05", [0]),
        (b"\x01\x01", [0]),
        (b"\x01\x01\x80", [0]),
        (b"\x01\x01\x85", [0]),
        (b"\x01\x01\x05\x05", [0]),
        (b"\x01\x01" + b"\xff" * 9, [0]),
        (b"\x01\x01" + b"\xff" * 8 + b"\x7f", [0]),
        (pack_plain([LARGEST]), [0]),
        (pack_whole([LARGEST]), [0]),
        (b"\x01\x01" + bytes([LARGEST & 0x7F]), [LARGEST - 1]),
        (pack_plain([-1]), [0]),
    ],
)
def test_bytes_that_cannot_be_read(data: bytes, known: list[int]) -> None:
    with pytest.raises(MalformedError):
        read_vector(data, known)


@pytest.mark.parametrize(("data", "length"), [(b"", 1), (b"\x01", 9), (b"\x08", 3), (b"\x01\x02", 9)])
def test_bitmaps_that_do_not_fit(data: bytes, length: int) -> None:
    with pytest.raises(MalformedError):
        read_bitmap(data, 0, length)


@pytest.mark.parametrize(
    ("data", "count"),
    [(b"", 1), (b"\x01", 2), (b"\x81", 1), (b"\x80\x01", 2), (pack_numbers([1, LARGEST]), 2)],
)
def test_numbers_that_cannot_be_read(data: bytes, count: int) -> None:
    with pytest.raises(MalformedError):
        read_numbers(data, 0, count)


def test_numbers_at_the_limits_are_read() -> None:
    values = [0, 127, 128, LARGEST - 1]
    assert read_numbers(pack_numbers(values), 0, 4)[0] == values
    assert read_numbers(pack_numbers([128]), 0, 1) == ([128], 2)
    assert read_vector(pack_plain(values), [0] * 4) == values
    assert read_vector(pack_whole(values), [0] * 4) == values


def test_what_a_vector_takes() -> None:
    values = [1000 + position for position in range(100)]
    assert len(pack_plain(values)) == 1 + 8 * 100
    assert len(pack_whole(values)) == 1 + 13 + 2 * 100
    assert len(pack_differences(values, [value - 100 for value in values])) == 1 + 13 + 100
    assert len(pack_differences(values, values)) == 1 + 13
