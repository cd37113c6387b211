"""Replicas without a quorum under random faults: nothing acknowledged is lost, and all end equal."""

from random import Random
from typing import Any

import pytest

from antiphon.check.linearizable import check_calls
from antiphon.protocols.quorum.sides import Sides
from antiphon.sim.quorum.run import KeyedSets, Outcome, QuorumRunConfiguration, Run
from antiphon.sim.scenarios.quorum import SCENARIO, as_call
from antiphon.spark.connections import judge_connection


def drawn(seed: int) -> dict[str, Any]:
    """Parameters of a run."""
    random = Random(seed)
    return {
        "quorum": False,
        "disk": False,
        "members": random.choice([2, 3, 4, 5, 6]),
        "messages": 80,
        "rate": random.choice([40.0, 100.0]),
        "loss": random.choice([0, 0.05, 0.2]),
        "duplication": random.choice([0, 0.1]),
        "reordering": random.choice([0, 0.2]),
        "partitions": random.choice([0, 1, 2, 4]),
        "crashes": random.choice([0, 0, 2]),
        "pauses": random.choice([0, 0, 1]),
        "calm_ms": 300.0,
        "away_ms": random.choice([100.0, 1500.0, 3000.0]),
        "snapshot_bytes": random.choice([300, 4000]),
    }


def outcome(seed: int, **options: Any) -> Outcome:
    parameters = drawn(seed)
    print(f"seed {seed}: {parameters}")
    return Run(QuorumRunConfiguration(**parameters), seed, **options).go()


def wrong(found: Outcome) -> list[str]:
    metrics = found.metrics
    return [
        *found.disagreements,
        *(name for name in ("equal", "live") if not metrics[name]),
        *(["lost"] if metrics["lost"] else []),
    ]


@pytest.mark.parametrize("seed", range(12))
def test_all_end_equal_and_hold_what_was_acknowledged(seed: int) -> None:
    assert wrong(outcome(seed)) == []


def test_sides_part_and_merge_and_are_not_linearizable_across() -> None:
    found = [outcome(seed) for seed in range(24)]
    assert any(each.metrics["cut_offs"] for each in found)
    assert any(each.metrics["merges"] for each in found)
    assert any(check_calls(as_call(call, "set") for call in each.calls).contradictions for each in found)


def test_a_run_without_a_quorum_does_not_promise_linearizability() -> None:
    configuration = SCENARIO.configure(drawn(0))
    assert "linearizable" not in SCENARIO.promises_for(configuration)
    assert "linearizable" in SCENARIO.promises_for(QuorumRunConfiguration())
    metrics, _ = judge_connection(SCENARIO, configuration, 0)
    assert metrics["finished"]


class Stubborn(KeyedSets):
    """A merge that keeps one side."""

    def merge(self, mine: bytes, theirs: bytes) -> bytes:
        return mine


def test_a_merge_that_forgets_a_side_is_caught() -> None:
    assert any("lost" in wrong(outcome(seed, machine=Stubborn)) for seed in range(24))


def test_a_side_that_joins_without_handing_its_state_over_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sides, "_offer", lambda self: self._dissolve(0))
    assert any("lost" in wrong(outcome(seed)) for seed in range(24))
