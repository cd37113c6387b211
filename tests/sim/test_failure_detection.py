"""`antiphon simulate failure-detection`: what it measures, and that detectors keep what they were set for."""

from typing import Any

import pytest

from antiphon.core.errors import UsageError
from antiphon.protocols.detection import DETECTORS
from antiphon.sim.scenario import Metrics
from antiphon.sim.scenarios import find_scenario

SCENARIO = find_scenario("failure-detection")


def run(seed: int = 0, **parameters: Any) -> Metrics:
    return SCENARIO.run(SCENARIO.configure(parameters), seed, None)


def number(metrics: Metrics, name: str) -> float:
    value = metrics[name]
    assert isinstance(value, int | float)
    return value


@pytest.mark.parametrize("kind", DETECTORS)
@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_crashes_and_joins_are_found_without_mistakes(kind: str, loss: float) -> None:
    for seed in range(3):
        found = run(seed, kind=kind, members=16, loss=loss, crashes=3, joins=2)
        assert found["finished"]
        assert found["mistakes"] == found["flaps"] == 0
        first, last = number(found, "detection_first_s"), number(found, "detection_last_s")
        assert 0 < first <= last
        assert number(found, "join_last_s") > 0


def test_gossip_detects_within_twice_k_fail() -> None:
    found = run(members=32, crashes=2)
    assert found["k_fail"] == 27
    assert 27 <= number(found, "detection_last_s") < 2 * 27


def test_too_small_a_threshold_makes_mistakes_and_takes_them_back() -> None:
    found = run(members=16, k_fail=4, crashes=0)
    assert number(found, "mistakes") > 0
    assert number(found, "flaps") == 0


def test_at_constant_bandwidth_time_grows_faster_than_the_group() -> None:
    """Claim G23: steps grow as log n, and a step's length as n, so that time grows as n log n."""
    small, large = run(members=16, bandwidth=1000.0), run(members=64, bandwidth=1000.0)
    longer = number(large, "step_s") / number(small, "step_s")
    assert 3 < longer < 4, "what stands before the counters does not grow with the group"
    assert number(large, "k_fail") / number(small, "k_fail") == 30 / 25
    assert number(large, "detection_last_s") > 1.1 * longer * number(small, "detection_last_s")
    for found in (small, large):
        assert 800 < number(found, "member_bytes_per_s") < 1100


def test_gossip_costs_the_same_pdus_whatever_the_group() -> None:
    for members in (8, 32):
        found = run(members=members, crashes=0)
        per_step = number(found, "messages") / members / number(found, "simulated_s")
        assert 0.95 < per_step < 1.1
        beats = run(members=members, crashes=0, kind="heartbeat")
        assert number(beats, "messages") / members / number(beats, "simulated_s") > 0.9 * (members - 1)


def test_equal_seeds_give_equal_runs() -> None:
    assert run(7, members=12, loss=0.1, joins=1) == run(7, members=12, loss=0.1, joins=1)
    assert run(7, members=12, loss=0.1) != run(8, members=12, loss=0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "telepathy"}, {"members": 1}, {"subset": 0}, {"subset": 50}, {"crashes": 50}, {"joins": -1},
        {"mistake": 0.0}, {"loss": 1.0}, {"step": 0.0}, {"kind": "heartbeat", "bandwidth": 5.0},
        {"kind": "polling", "loss": 0.5, "step": 0.1}, {"k_fail": -1},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_said(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        SCENARIO.configure(wrong)
