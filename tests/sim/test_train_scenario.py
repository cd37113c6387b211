"""`simulate train`: the independent simulator's figures, loss, and a trace that can be judged."""

from typing import Any

import pytest

from antiphon.sim.scenarios.train import SCENARIO, TrainStudy, simulate
from tests.sim.round_traces import check_trace


def test_section_5_4_3_time_per_round_at_500_dense() -> None:
    """The figures of a simulator that was written apart from this one."""
    metrics = simulate(TrainStudy(members=500, until="first"), 1, None)
    assert metrics["tpr_s"] == pytest.approx(125.9798, abs=1e-4)
    assert (metrics["hop_messages"], metrics["steps"]) == (1858, 1000)


def test_no_queue_forms_behind_a_train() -> None:
    metrics = simulate(TrainStudy(members=60), 1, None)
    assert metrics["queue_max"] == metrics["queue_mean"] == 0


def test_telling_takes_nearly_as_long_as_gathering() -> None:
    """INFO need not come back to member 0 for everyone to have it."""
    metrics = simulate(TrainStudy(members=60), 1, None)
    assert 1.9 < metrics["tpr_last_s"] / metrics["tpr_s"] < 2  # type: ignore[operator]


def test_the_time_grows_with_the_number_of_members() -> None:
    few, many = (simulate(TrainStudy(members=members), 1, None)["tpr_s"] for members in (100, 300))
    assert many / few == pytest.approx(3, rel=0.15)  # type: ignore[operator]


@pytest.mark.parametrize(
    "parameters",
    [{}, {"loss": "buffers"}, {"loss_rate": 0.1}, {"density": "sparse", "network_nodes": 90}],
    ids=str,
)
def test_the_trace_declares_stable_exactly_what_all_hold(parameters: dict[str, Any]) -> None:
    check_trace(SCENARIO, {"members": 40, "senders": 7, **parameters})


def test_the_scenario_describes_itself() -> None:
    assert SCENARIO.name == "train"
    assert all(SCENARIO.knobs().values())
    assert SCENARIO.cost_s(TrainStudy(members=500)) > SCENARIO.cost_s(TrainStudy())
