"""Offsets from messages alone: inside their stated uncertainty, and unknown where messages do not tell."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.timing.clocks import Clocks, Offset


@given(
    st.dictionaries(st.sampled_from("abcde"), st.integers(-(10**12), 10**12), min_size=2),
    st.dictionaries(
        st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde")), st.integers(0, 10**9), min_size=1
    ),
)
def test_the_true_offset_is_never_outside(
    offsets: dict[str, int], delays: dict[tuple[str, str], int]
) -> None:
    least = {
        (source, target): offsets[target] - offsets[source] + delay
        for (source, target), delay in delays.items()
        if source in offsets and target in offsets and source != target
    }
    clocks = Clocks(sorted(offsets), least)
    assert clocks.unsteady == ()
    for source in offsets:
        for target in offsets:
            found = clocks.between(source, target)
            if found is not None:
                truth = offsets[target] - offsets[source]
                assert abs(found.offset_ns - truth) <= found.uncertainty_ns + 1
            else:
                assert source != target


def test_a_path_tells_where_no_message_goes_directly() -> None:
    clocks = Clocks("abc", {("a", "b"): 10, ("b", "a"): 10, ("b", "c"): 110, ("c", "b"): -90})
    assert clocks.between("a", "c") == Offset(100, 20)
    assert clocks.between("a", "a") == Offset(0, 0)


def test_one_way_tells_nothing_and_a_clock_that_was_set_is_named() -> None:
    assert Clocks("ab", {("a", "b"): 10}).between("a", "b") is None
    jumped = Clocks("abc", {("a", "b"): -50, ("b", "a"): 10, ("a", "c"): 5, ("c", "a"): 5})
    assert {"a", "b"} <= set(jumped.unsteady)
    assert jumped.between("a", "b") is None
