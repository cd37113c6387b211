"""The tree's shape: heights, fills, the walk, sparse membership."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.errors import UsageError
from antiphon.sim.tree import Fill, Shape, draw_members, grow_tree

SHAPES = st.tuples(st.integers(1, 400), st.sampled_from(["even", "left"]))


@pytest.mark.parametrize(("nodes", "height"), [(50, 4), (100, 4), (200, 5), (500, 6), (1000, 6)])
def test_heights_are_those_of_section_5_4_3(nodes: int, height: int) -> None:
    assert grow_tree(nodes).height == height


@pytest.mark.parametrize(
    ("fill", "parents"),
    [
        # Seven nodes: the root, its three children, and three left for three parents.
        ("even", [-1, 0, 0, 0, 1, 2, 3]),
        ("left", [-1, 0, 0, 0, 1, 1, 1]),
    ],
)
def test_small_trees_by_hand(fill: Fill, parents: list[int]) -> None:
    assert grow_tree(7, fill).parent.tolist() == parents


def test_even_fill_spreads_few_nodes_over_the_parents() -> None:
    # Two nodes for three parents: floor(0 * 3 / 2) and floor(1 * 3 / 2).
    assert grow_tree(6).parent.tolist()[4:] == [1, 2]


def test_even_fill_spreads_many_nodes_over_the_parents() -> None:
    # Five nodes for three parents: 5/3 rounded down cumulatively gives 1, 2 and 2.
    assert grow_tree(9).children.tolist()[1:4] == [1, 2, 2]


@given(SHAPES)
def test_every_tree_is_filled_level_by_level(shape: tuple[int, Fill]) -> None:
    tree = grow_tree(*shape)
    assert tree.children.max(initial=0) <= 3
    for node in range(1, tree.nodes):
        assert node in tree.children_of(int(tree.parent[node]))
        assert tree.depth[node] == len(tree.ancestors(node))
    counts = np.bincount(tree.depth)
    assert counts[:-1].tolist() == [3**level for level in range(len(counts) - 1)]


@given(SHAPES)
def test_the_walk_tells_who_lies_below_whom(shape: tuple[int, Fill]) -> None:
    tree = grow_tree(*shape)
    assert sorted(tree.enter.tolist()) == list(range(tree.nodes))
    for node in range(0, tree.nodes, 7):
        above = {node, *tree.ancestors(node)}
        assert {root for root in range(tree.nodes) if tree.below(node, root)} == above


@given(st.integers(1, 200), st.integers(0, 1 << 32))
def test_sparse_members_are_node_0_and_distinct_others(members: int, seed: int) -> None:
    nodes = draw_members(grow_tree(200), members, np.random.default_rng(seed))
    assert nodes[0] == 0
    assert len(nodes) == members
    assert nodes == sorted(set(nodes))
    assert nodes[-1] < 200


def test_membership_depends_on_the_seed() -> None:
    drawn = {tuple(draw_members(grow_tree(200), 50, np.random.default_rng(seed))) for seed in range(5)}
    assert len(drawn) == 5


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError, match="0 nodes"):
        grow_tree(0)
    with pytest.raises(UsageError, match="do not fit"):
        draw_members(grow_tree(4), 5, np.random.default_rng(1))


@pytest.mark.parametrize(
    ("shape", "parents", "height"), [("star", [-1, 0, 0, 0, 0], 1), ("chain", [-1, 0, 1, 2, 3], 4)]
)
def test_figure_5_1_a_star_and_a_chain(shape: Shape, parents: list[int], height: int) -> None:
    network = grow_tree(5, shape=shape)
    assert network.parent.tolist() == parents
    assert network.height == height
    assert network.enter.tolist() == [0, 1, 2, 3, 4]
