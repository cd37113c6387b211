"""`simulate s-train`: the independent simulator's figures, steps, loss, and a trace that can be judged."""

from typing import Any

import pytest

from antiphon.sim.scenarios import train
from antiphon.sim.scenarios.s_train import SCENARIO, STrainStudy, simulate
from tests.sim.round_traces import check_trace


@pytest.mark.parametrize(("members", "tpr_s", "hops"), [(300, 1.6305, 776), (500, 1.8477, 1240)])
def test_section_5_4_3_time_per_round_of_dense_groups(members: int, tpr_s: float, hops: int) -> None:
    """The figures of a simulator that was written apart from this one."""
    metrics = simulate(STrainStudy(members=members), 1, None)
    assert metrics["tpr_s"] == pytest.approx(tpr_s, abs=1e-4)
    assert metrics["hop_messages"] == hops
    assert metrics["queue_max"] == 0


def test_section_5_4_3_many_times_better_than_train() -> None:
    plain = train.simulate(train.TrainStudy(members=500, until="first"), 1, None)
    structured = simulate(STrainStudy(members=500), 1, None)
    assert plain["tpr_s"] / structured["tpr_s"] == pytest.approx(68, abs=0.5)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("parameters", "steps"),
    [
        ({"members": 50}, 14),
        ({"members": 500}, 20),
        ({"members": 500, "density": "sparse", "subgroup": 50}, 49 + 9 + 2),
        ({"members": 500, "density": "sparse", "subgroup": 50, "heads": "below-root"}, 49 + 10 + 2),
    ],
    ids=str,
)
def test_table_4_1_steps(parameters: dict[str, Any], steps: int) -> None:
    """bp+2 where all sub-groups have b+1 members."""
    assert simulate(SCENARIO.configure({**parameters, "until": "first"}), 1, None)["steps"] == steps


def test_section_5_5_3_a_smaller_sub_group_is_faster() -> None:
    small, large = (
        simulate(STrainStudy(members=200, density="sparse", subgroup=size, until="first"), 1, None)
        for size in (4, 50)
    )
    assert 2 * small["tpr_s"] < large["tpr_s"]  # type: ignore[operator]


def test_free_start_saves_the_spreading_of_start() -> None:
    counted, free = (simulate(SCENARIO.configure({"start": start}), 1, None) for start in ("counted", "free"))
    assert free["tpr_s"] < counted["tpr_s"]  # type: ignore[operator]
    assert free["hop_messages"] == counted["hop_messages"] - 49  # type: ignore[operator]


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


def test_the_scenario_describes_itself() -> None:
    assert SCENARIO.name == "s-train"
    assert all(SCENARIO.knobs().values())
    assert SCENARIO.cost_s(STrainStudy(members=500)) > SCENARIO.cost_s(STrainStudy())
