"""`simulate s-coordp`: the independent simulator's figures, logical trees, loss, size, and its trace."""

from typing import Any

import pytest

from antiphon.core.errors import UsageError
from antiphon.sim.climbing import SparseOrder
from antiphon.sim.scenarios import coordp
from antiphon.sim.scenarios.s_coordp import SCENARIO, SCoordPRound, SCoordPStudy, simulate
from antiphon.sim.tree import Shape
from tests.sim.round_traces import check_trace

ORDERS: tuple[SparseOrder, ...] = ("random", "depth-first")


@pytest.mark.parametrize(("members", "tpr_s", "hops"), [(300, 0.4142, 598), (500, 0.4959, 998)])
def test_section_5_4_3_time_per_round_of_dense_groups(members: int, tpr_s: float, hops: int) -> None:
    """The figures of a simulator that was written apart from this one."""
    metrics = simulate(SCoordPStudy(members=members), 1, None)
    assert metrics["tpr_s"] == pytest.approx(tpr_s, abs=1e-4)
    assert metrics["hop_messages"] == hops
    assert metrics["queue_max"] == 0


@pytest.mark.parametrize(("start", "ratio"), [("counted", 20.9), ("free", 25.3)])
def test_section_5_4_3_many_times_better_than_coordp(start: Any, ratio: float) -> None:
    plain = coordp.simulate(coordp.CoordPStudy(members=500, start=start), 1, None)
    structured = simulate(SCoordPStudy(members=500, start=start), 1, None)
    assert plain["tpr_s"] / structured["tpr_s"] == pytest.approx(ratio, abs=0.1)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("parameters", "steps"),
    [
        ({"members": 50}, 6),
        ({"members": 500}, 8),
        ({"members": 40, "density": "sparse"}, 5),
        ({"members": 200, "density": "sparse", "subgroup": 50}, 4),
        ({"members": 50, "density": "sparse", "subgroup": 50}, 3),
        ({"members": 50, "density": "sparse", "subgroup": 50, "heads": "below-root"}, 4),
    ],
    ids=str,
)
def test_table_4_1_steps_are_the_trees_height_and_two(parameters: dict[str, Any], steps: int) -> None:
    assert simulate(SCENARIO.configure(parameters), 1, None)["steps"] == steps


def test_dense_trees_match_the_network() -> None:
    simulated = SCoordPRound(SCoordPStudy(members=30), 1)
    hierarchy, tree = simulated.hierarchy, simulated.placement.tree
    for node, site in enumerate(simulated.sites):
        below = [hierarchy.walk[child] for child in hierarchy.children(hierarchy.place[site])]
        assert below == [simulated.sites[child] for child in tree.children_of(node)]


def test_a_dense_group_has_the_tree_of_the_network_whatever_the_sub_groups() -> None:
    usual, other = (
        simulate(SCoordPStudy(members=60, subgroup=size, until="first"), 1, None) for size in (4, 50)
    )
    assert usual == other


def test_dense_sub_groups_of_another_size_follow_the_walk_of_the_network() -> None:
    simulated = SCoordPRound(SCoordPStudy(members=30, subgroup=10, tree="subgroups"), 1)
    hierarchy, enter = simulated.hierarchy, simulated.placement.tree.enter
    places = [int(enter[simulated.index[site]]) for site in hierarchy.walk]
    heads = [place for place in range(1, 30) if list(hierarchy.children(place))]
    assert [places[head] for head in heads] == [10, 20]


def test_sparse_trees_are_drawn_from_the_seed_with_member_0_at_the_root() -> None:
    walks = [
        SCoordPRound(SCoordPStudy(members=30, density="sparse", network_nodes=60), seed).hierarchy.walk
        for seed in (1, 1, 2)
    ]
    assert walks[0] == walks[1] != walks[2]
    assert {walk[0] for walk in walks} == {"s00"}


def test_one_sub_group_of_all_is_coordp() -> None:
    study = {"members": 50, "density": "sparse"}
    plain = coordp.simulate(coordp.SCENARIO.configure(study), 1, None)
    structured = simulate(SCENARIO.configure({**study, "subgroup": 50}), 1, None)
    assert plain["tpr_s"] == structured["tpr_s"]
    assert plain["hop_messages"] == structured["hop_messages"]


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"loss": "buffers"},
        {"loss_rate": 0.1},
        {"density": "sparse", "network_nodes": 90},
        {"density": "sparse", "network_nodes": 90, "subgroup": 10, "loss_rate": 0.05},
    ],
    ids=str,
)
def test_the_trace_declares_stable_exactly_what_all_hold(parameters: dict[str, Any]) -> None:
    check_trace(SCENARIO, {"members": 40, "senders": 7, **parameters})


def test_many_thousands_of_members() -> None:
    """The time per round hardly grows: the height of the tree does, by one for each threefold."""
    few, many = (
        simulate(SCoordPStudy(members=members, senders=2, bandwidth=300_000_000, until="first"), 1, None)
        for members in (1_000, 9_000)
    )
    assert few["hop_messages"] == 2 * 999
    assert many["hop_messages"] == 2 * 8_999
    assert many["tpr_s"] < 1.5 * few["tpr_s"]  # type: ignore[operator]


def test_a_sub_group_of_one_is_refused() -> None:
    with pytest.raises(UsageError, match="sub-group of 1"):
        SCENARIO.configure({"subgroup": 1})


def test_the_scenario_describes_itself() -> None:
    assert SCENARIO.name == "s-coordp"
    assert all(SCENARIO.knobs().values())
    assert SCENARIO.cost_s(SCoordPStudy(members=500)) > SCENARIO.cost_s(SCoordPStudy())


@pytest.mark.parametrize(("shape", "steps"), [("star", 3), ("chain", 21)])
def test_figure_5_1_on_a_star_it_is_coordp_and_on_a_chain_reports_go_from_node_to_node(
    shape: Shape, steps: int
) -> None:
    plain = coordp.simulate(coordp.CoordPStudy(members=20, shape=shape), 1, None)
    structured = simulate(SCoordPStudy(members=20, shape=shape), 1, None)
    assert structured["steps"] == steps
    assert structured["hop_messages"] == 38
    assert (plain["tpr_s"] == structured["tpr_s"]) == (shape == "star")


def test_a_logical_tree_along_the_network_crosses_fewer_links_than_a_random_one() -> None:
    usual, walked = (
        simulate(SCoordPStudy(members=100, density="sparse", order=order), 1, None)["hop_messages"]
        for order in ORDERS
    )
    assert isinstance(usual, int)
    assert isinstance(walked, int)
    assert walked < usual
