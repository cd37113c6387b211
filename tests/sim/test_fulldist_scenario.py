"""`simulate fulldist`: the independent simulator's figures, the scattered form, loss, and its trace."""

from typing import Any

import pytest

from antiphon.core.errors import UsageError
from antiphon.sim.scenarios.fulldist import SCENARIO, FullDistStudy, simulate
from tests.sim.round_traces import check_trace


@pytest.mark.parametrize(
    ("members", "first_s", "last_s", "hops"),
    [(50, 1.1988, 3.2401, 1023), (200, 4.2921, 12.5878, 14044)],
)
def test_section_5_4_3_first_and_last_member(members: int, first_s: float, last_s: float, hops: int) -> None:
    """The figures of a simulator that was written apart from this one."""
    metrics = simulate(FullDistStudy(members=members), 1, None)
    assert metrics["tpr_s"] == pytest.approx(first_s, abs=1e-4)
    assert metrics["tpr_last_s"] == pytest.approx(last_s, abs=1e-4)
    assert (metrics["hop_messages"], metrics["steps"]) == (hops, 2)


@pytest.mark.parametrize(
    ("fill", "members", "ratio"),
    [("even", 50, 2.7), ("even", 500, 3.0), ("left", 50, 2.1), ("left", 200, 2.5)],
)
def test_the_largest_time_is_more_than_twice_the_smallest(fill: Any, members: int, ratio: float) -> None:
    """From 2.7 to 3.0 times in groups of 50 to 500, with left fill from 2.1 to 2.5."""
    metrics = simulate(FullDistStudy(members=members, fill=fill), 1, None)
    assert metrics["tpr_last_s"] / metrics["tpr_s"] == pytest.approx(ratio, abs=0.05)  # type: ignore[operator]


def test_scattered_rows_are_spread_over_the_members_times_the_spacing() -> None:
    study = FullDistStudy(members=100, scattered=True)
    assert study.spacing_s == pytest.approx(0.04)
    metrics = simulate(study, 1, None)
    # The last row is multicast shortly before 4 s and takes less than a second to get everywhere.
    assert 3.5 < metrics["tpr_s"] < 5  # type: ignore[operator]
    assert metrics["queue_max"] < simulate(FullDistStudy(members=100), 1, None)["queue_max"]  # type: ignore[operator]
    assert metrics == simulate(FullDistStudy(members=100, scatter=0.04), 1, None)
    assert metrics != simulate(study, 2, None)


def test_full_buffers_lose_rows_and_the_round_ends_all_the_same() -> None:
    metrics = simulate(FullDistStudy(members=210, loss="buffers"), 1, None)
    assert metrics["dropped"] > 0  # type: ignore[operator]
    assert metrics["tpr_last_s"] is not None


@pytest.mark.parametrize(
    "parameters",
    [{}, {"loss_rate": 0.1}, {"scattered": True}, {"density": "sparse", "network_nodes": 90}],
    ids=str,
)
def test_the_trace_declares_stable_exactly_what_all_hold(parameters: dict[str, Any]) -> None:
    check_trace(SCENARIO, {"members": 40, "senders": 7, **parameters})


def test_rows_cannot_be_less_than_no_time_apart() -> None:
    with pytest.raises(UsageError, match="-1"):
        SCENARIO.configure({"scatter": -1.0})


def test_the_scenario_describes_itself() -> None:
    assert SCENARIO.name == "fulldist"
    assert all(SCENARIO.knobs().values())
    assert SCENARIO.cost_s(FullDistStudy(members=500)) > SCENARIO.cost_s(FullDistStudy())
