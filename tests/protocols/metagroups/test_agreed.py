"""What sites would agree on is what they do agree on."""

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


def test_a_leave_is_foretold_too() -> None:
    foretold = AgreedTrees({"A": ("a", "b"), "X": ("x",)}, KNOBS.shape)
    found = foretold.change({"A": ("a",), "X": ("x",)})
    assert (len(found.kept), len(found.handed_over), len(found.planted)) == (1, 1, 1)
    again = foretold.change({"A": ("a",), "X": ("x",)})
    assert (len(again.kept), again.handed_over, again.planted) == (2, (), ())
