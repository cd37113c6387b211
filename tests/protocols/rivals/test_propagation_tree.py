"""The propagation tree: how it is built, what it costs, and that it orders across groups."""

from random import Random
from typing import Any

import pytest

from antiphon.check.checkers import check_trace
from antiphon.core.effects import Deliver, Send
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Received, Start
from antiphon.core.packing import pack
from antiphon.protocols.overlapping import GroupsConfiguration
from antiphon.protocols.rivals.propagation_tree import (
    PDUS,
    PROMISES,
    Propagation,
    PropagationTree,
    Request,
    Tree,
    build_tree,
)
from antiphon.protocols.rivals.propagation_tree.tree import site_loads
from antiphon.trace.schema import Run
from tests.protocols.harness.overlapping_group import FIGURE_2, HOP_NS, Overlapping, cost, faulty

KNOBS = GroupsConfiguration()
BATCH = pack([b"x"])
CHAIN = {"A": ("ab", "a"), "B": ("ab", "bc", "b"), "C": ("bc", "cd"), "D": ("cd", "d")}


def drawn(seed: int, sites: int = 8, groups: int = 5) -> dict[str, tuple[str, ...]]:
    random = Random(seed)
    names = [f"s{index}" for index in range(sites)]
    return {
        f"G{index}": tuple(sorted(random.sample(names, random.randint(1, sites)))) for index in range(groups)
    }


def above(tree: Tree, site: str) -> list[str]:
    """A site and all those above it."""
    found = [site]
    while (parent := tree.parent[found[-1]]) is not None:
        found.append(parent)
    return found


def test_the_site_in_most_groups_is_the_root_and_primary_of_all_its_groups() -> None:
    tree = build_tree(FIGURE_2)
    assert tree.parent["abc"] is None
    assert tree.primary == {"A": "abc", "B": "abc", "C": "abc", "D": "ad"}
    assert tree.parent["cd"] == "ad", "what is left of D is a subtree with a root of its own"
    assert [site for site, parent in tree.parent.items() if parent == "abc"] == [
        "a", "ab", "ac", "b", "bc", "c", "ad",
    ]  # fmt: skip


def test_what_passes_a_site_outside_the_group_is_extra() -> None:
    tree = build_tree(FIGURE_2)
    assert tree.routes["C"] == (("ad",), 2, 6)
    assert tree.routes["D"] == ((), 1, 3)
    assert tree.depth() == 2


def test_below_a_root_only_the_groups_left_count() -> None:
    """Of C and D, bc is in one and cd in both: so cd is next, and B's messages to bc pass it."""
    tree = build_tree(CHAIN)
    assert tree.primary == {"A": "ab", "B": "ab", "C": "cd", "D": "cd"}
    assert above(tree, "bc") == ["bc", "cd", "ab"]
    assert tree.routes["B"].extra == ("cd",)


def test_groups_without_common_members_are_trees_of_their_own() -> None:
    tree = build_tree({"A": ("a", "b"), "B": ("c", "d")})
    assert tree.parent == {"a": None, "b": "a", "c": None, "d": "c"}


@pytest.mark.parametrize("seed", range(40))
def test_every_member_lies_below_its_groups_primary_destination(seed: int) -> None:
    membership = drawn(seed, sites=12, groups=7)
    tree = build_tree(membership)
    assert tree.parent.keys() == {site for members in membership.values() for site in members}
    for group, members in membership.items():
        primary, route = tree.primary[group], tree.routes[group]
        assert primary in members
        on_the_way: set[str] = set()
        for member in members:
            line = above(tree, member)
            on_the_way.update(line[: line.index(primary) + 1])
        assert set(route.extra) == on_the_way - set(members)
        assert route.messages == len(on_the_way)
        assert route.depth == max(above(tree, member).index(primary) for member in members)
        handed = {child for site in on_the_way for child in tree.leads[site].get(group, ())}
        assert handed == on_the_way - {primary}


@pytest.mark.parametrize("seed", range(40))
def test_two_groups_with_two_common_members_meet_above_both(seed: int) -> None:
    membership = drawn(seed, sites=12, groups=7)
    tree = build_tree(membership)
    for first, second in ((a, b) for a in membership for b in membership if a < b):
        common = set(membership[first]) & set(membership[second])
        primaries = {tree.primary[first], tree.primary[second]}
        assert all(primaries <= set(above(tree, member)) for member in common)


def test_the_tree_depends_only_on_the_membership() -> None:
    membership = drawn(3)
    shuffled = dict(reversed([(group, members[::-1]) for group, members in membership.items()]))
    assert build_tree(shuffled).parent == build_tree(membership).parent
    assert build_tree(shuffled).routes == build_tree(membership).routes


def test_a_long_chain_of_groups_is_no_trouble() -> None:
    membership = {f"G{index:04d}": (f"s{index:04d}", f"s{index + 1:04d}") for index in range(300)}
    tree = build_tree(membership)
    assert tree.depth() > 100
    assert all(route.messages <= 3 for route in tree.routes.values())


@pytest.mark.parametrize("group", [*FIGURE_2])
def test_one_multicast_costs_its_members_and_extra_sites_and_a_hop_for_each_level(group: str) -> None:
    """Jia and So, section 6: n + extra messages and (d+1)T, with the sender not in the group."""
    sites = sorted({"outside", *(site for members in FIGURE_2.values() for site in members)})
    tree = build_tree(FIGURE_2)
    route = tree.routes[group]
    assert cost(
        sites, lambda site: PropagationTree(site, FIGURE_2, KNOBS, ["outside"], tree), PDUS, "outside", group
    ) == (len(FIGURE_2[group]) + len(route.extra), route.depth + 1.0)


def test_loads_count_both_ends_of_every_transmission() -> None:
    membership = {"A": ("a", "b", "c")}
    assert site_loads(build_tree(membership)) == {"a": 3, "b": 1, "c": 1}


def test_messages_of_two_groups_meet_in_one_order_where_sequencers_of_each_would_not_agree() -> None:
    """b and c are in both groups; what reaches them comes from above in the order of the upper."""
    membership = {"A": ("a", "b", "c"), "B": ("d", "b", "c")}
    groups = Overlapping("abcd", lambda site: PropagationTree(site, membership, KNOBS), PDUS)
    groups.network.slow = {("d", "b"): 5 * HOP_NS, ("a", "c"): 5 * HOP_NS}
    groups.admit("a", "A")
    groups.admit("d", "B")
    groups.run()
    assert groups.delivered["b"] == groups.delivered["c"]


def test_a_senders_messages_to_different_primaries_may_change_places() -> None:
    """Which is why fifo is not promised."""
    groups = Overlapping(
        sorted({"s", *build_tree(CHAIN).parent}), lambda site: PropagationTree(site, CHAIN, KNOBS, "s"), PDUS
    )
    groups.network.slow = {("s", "ab"): 5 * HOP_NS}
    groups.admit("s", "B")
    groups.admit("s", "C", at_ms=0.1)
    groups.run()
    assert groups.delivered["bc"] == ["s1", "s0"]
    assert "fifo" not in PROMISES


@pytest.mark.parametrize("seed", range(5))
def test_losses_are_made_up_for(seed: int) -> None:
    membership = FIGURE_2 if seed == 0 else drawn(seed)
    sites = sorted({site for members in membership.values() for site in members})
    groups = Overlapping(
        sites, lambda site: PropagationTree(site, membership, KNOBS), PDUS, faulty(0.3, seed)
    )
    for index, site in enumerate(sites):
        for group in membership:
            groups.admit(site, group, at_ms=index)
    groups.run(20.0)
    assert {site: len(got) for site, got in groups.delivered.items()} == {
        site: len(sites) * sum(site in members for members in membership.values()) for site in sites
    }
    assert check_trace(groups.events(), Run(run="run"), PROMISES) == []
    assert len(groups.stable) == len(sites) * len(membership)


@pytest.mark.parametrize(
    ("site", "sender", "pdu"),
    [
        ("abc", "a", Request(1, 0, 0, 0, "Z", BATCH)),
        ("ab", "a", Request(1, 0, 0, 0, "A", BATCH)),
        ("abc", "a", Request(1, 0, 0, -1, "A", BATCH)),
        ("ab", "a", Propagation(1, 0, 0, "a", 0, "A", BATCH)),
        ("ab", "abc", Propagation(1, 0, 0, "z", 0, "A", BATCH)),
    ],
)
def test_what_makes_no_sense_is_counted_and_dropped(site: str, sender: str, pdu: Any) -> None:
    protocol = PropagationTree(site, FIGURE_2, KNOBS)
    protocol.handle(0, Start())
    effects = protocol.handle(0, Received(sender, pdu))
    assert not any(isinstance(effect, Deliver | Send) for effect in effects)
    assert protocol.figures()["ignored"] == 1


def test_a_tree_of_other_groups_is_refused() -> None:
    with pytest.raises(UsageError):
        PropagationTree("abc", FIGURE_2, KNOBS, (), build_tree(CHAIN))
