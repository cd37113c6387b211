"""What sites would agree on is what they do agree on."""

import pytest

from antiphon.protocols.metagroups.agreed import AgreedTrees
from tests.protocols.harness.metagroups_group import KNOBS, Cluster

GROUPS = {"A": "abcdef", "B": "cdg", "X": "xyz"}


def trees_of(cluster: Cluster) -> set[tuple[int, int]]:
    view = cluster.members["a"]._member._trees.view
    assert view is not None
    return set(view.trees)


def test_the_trees_of_running_sites_are_those_foretold() -> None:
    cluster = Cluster(GROUPS)
    foretold = AgreedTrees({group: tuple(sites) for group, sites in GROUPS.items()}, KNOBS.shape)
    before = trees_of(cluster)
    cluster.pass_time(120)
    cluster.join("b", "B")
    cluster.pass_time(100)
    found = foretold.change({"A": tuple("abcdef"), "B": tuple("bcdg"), "X": tuple("xyz")})
    assert set(found.kept) == before == trees_of(cluster)
    assert not found.handed_over
    assert not found.planted
    cluster.leave("f", "A")
    cluster.pass_time(100)
    found = foretold.change({"A": tuple("abcde"), "B": tuple("bcdg"), "X": tuple("xyz")})
    after = trees_of(cluster)
    assert set(found.kept) == before & after
    assert set(found.handed_over) == before - after
    assert set(found.planted) == after - before
    assert found.planted
    assert found.kept


@pytest.mark.parametrize(
    ("site", "group"),
    [
        pytest.param("f", "B", id="a site joins"),
        pytest.param("d", "B", id="a site leaves"),
        pytest.param("a", "B", id="a primary site joins"),
        pytest.param("c", "B", id="a primary site leaves"),
        pytest.param("c", "A", id="a primary site leaves for another branch"),
    ],
)
def test_a_change_that_alters_no_tree_is_foretold(site: str, group: str) -> None:
    cluster = Cluster(GROUPS)
    members = {each: tuple(sites) for each, sites in GROUPS.items()}
    foretold, before = AgreedTrees(members, KNOBS.shape), trees_of(cluster)
    cluster.pass_time(120)
    (cluster.leave if site in members[group] else cluster.join)(site, group)
    cluster.pass_time(160)
    members[group] = tuple(sorted({*members[group]} ^ {site}))
    found = foretold.change(members)
    assert set(found.kept) == before == trees_of(cluster)
    assert (found.handed_over, found.planted) == ((), ())
    assert cluster.figure("a", "version") == 1


@pytest.mark.parametrize(
    ("joins", "kept"),
    [
        pytest.param("BC", True, id="both move it"),
        pytest.param("BD", False, id="the second makes a meta-group"),
    ],
)
def test_two_joins_of_a_site_are_foretold(joins: str, kept: bool) -> None:
    """It moves twice, or the view changes and plants the tree anew where it has moved."""
    groups = {"A": "bcdefg", "B": "bcd", "C": "bh", "D": "i", "X": "ax"}
    cluster = Cluster(groups)
    members = {each: tuple(sites) for each, sites in groups.items()}
    foretold, before = AgreedTrees(members, KNOBS.shape), trees_of(cluster)
    cluster.pass_time(120)
    for group in joins:
        cluster.join("f", group)
        members[group] += ("f",)
    cluster.pass_time(300)
    found, after = foretold.change(members), trees_of(cluster)
    assert set(found.kept) == before & after
    assert set(found.handed_over) == before - after
    assert set(found.planted) == after - before
    assert (before == after) is kept
    assert cluster.changes("f")[-2:] == [f"+{group}" for group in joins]


def test_a_leave_is_foretold_too() -> None:
    foretold = AgreedTrees({"A": ("a", "b"), "X": ("x",)}, KNOBS.shape)
    found = foretold.change({"A": ("a",), "X": ("x",)})
    assert (len(found.kept), len(found.handed_over), len(found.planted)) == (1, 1, 1)
    again = foretold.change({"A": ("a",), "X": ("x",)})
    assert (len(again.kept), again.handed_over, again.planted) == (2, (), ())
