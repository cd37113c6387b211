"""Logical trees: how they are built, walked and refused."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.errors import UsageError
from antiphon.protocols.stability.hierarchy import NOBODY, Hierarchy


def children(hierarchy: Hierarchy, site: str) -> list[str]:
    return [hierarchy.walk[place] for place in hierarchy.children(hierarchy.place[site])]


def test_a_complete_tree_is_filled_level_by_level() -> None:
    hierarchy = Hierarchy.complete("abcdefg", 3)
    assert children(hierarchy, "a") == ["b", "c", "d"]
    assert children(hierarchy, "b") == ["e", "f", "g"]
    assert children(hierarchy, "c") == []
    assert hierarchy.walk == tuple("abefgcd")
    assert hierarchy.height == 2


def test_a_complete_tree_has_the_size_of_section_4_3() -> None:
    """With b = 3 and p = 3: n = 1 + 3 + 9 + 27."""
    hierarchy = Hierarchy.complete([f"s{index}" for index in range(40)], 3)
    assert hierarchy.height == 3
    assert {len(list(hierarchy.children(place))) for place in range(40)} == {0, 3}


def test_the_root_may_head_the_first_of_two_levels_sub_groups() -> None:
    hierarchy = Hierarchy.two_level([f"s{index}" for index in range(150)], 50)
    assert len(children(hierarchy, "s0")) == 49 + 2
    assert len(children(hierarchy, "s50")) == len(children(hierarchy, "s100")) == 49
    assert children(hierarchy, "s0")[-2:] == ["s50", "s100"]
    assert hierarchy.height == 2


def test_or_all_heads_are_below_the_root() -> None:
    hierarchy = Hierarchy.two_level_below([f"s{index}" for index in range(151)], 50)
    assert children(hierarchy, "s0") == ["s1", "s51", "s101"]
    assert len(children(hierarchy, "s1")) == len(children(hierarchy, "s101")) == 49


def test_siblings_know_their_elders() -> None:
    hierarchy = Hierarchy.from_parents("abcdef", [NOBODY, 0, 0, 1, 1, 0])
    assert hierarchy.walk == tuple("abdecf")
    assert [hierarchy.elder[hierarchy.place[site]] for site in "abdecf"] == [-1, -1, -1, 2, 1, 4]
    assert list(hierarchy.ancestors(hierarchy.place["e"])) == [1, 0]


@given(st.data())
@settings(max_examples=100)
def test_sub_trees_are_unbroken_ranges_of_the_walk(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 30))
    parents = [NOBODY, *(data.draw(st.integers(0, index - 1)) for index in range(1, size))]
    members = [f"s{index}" for index in range(size)]
    hierarchy = Hierarchy.from_parents(members, parents)
    for index, site in enumerate(members):
        place = hierarchy.place[site]
        below = {site} | {other for other in members if place in hierarchy.ancestors(hierarchy.place[other])}
        assert set(hierarchy.walk[place : hierarchy.end(place)]) == below
        assert children(hierarchy, site) == [
            members[child] for child in range(size) if parents[child] == index
        ]


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: Hierarchy.from_parents("ab", [NOBODY]),
        lambda: Hierarchy.from_parents("aa", [NOBODY, 0]),
        lambda: Hierarchy.from_parents("ab", [NOBODY, NOBODY]),
        lambda: Hierarchy.from_parents("ab", [0, 0]),
        lambda: Hierarchy.from_parents("ab", [NOBODY, 7]),
        lambda: Hierarchy.from_parents("abc", [NOBODY, 2, 1]),
        lambda: Hierarchy.complete("abc", 0),
        lambda: Hierarchy.two_level("abc", 1),
        lambda: Hierarchy.two_level_below("abc", 1),
    ],
)
def test_what_is_no_tree_is_refused(misuse: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        misuse()
