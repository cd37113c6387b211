"""Totem in the swarm: many seeds, each with its own group, network and faults; first safety, then progress.

Loss is lighter than in the swarm of other protocols: a ring passes its token on so often that with a fifth
of all PDUs lost it seldom stands for long, and a run's patience ends. Fewer than half of the members crash in
one run, since the protocol promises nothing else: see its opening.
"""

import dataclasses
import os
from random import Random
from typing import Any

import pytest

from antiphon.protocols.rivals.totem import PROMISES
from antiphon.sim.ordering import usual_count
from antiphon.sim.scenario import Scenario
from antiphon.sim.scenarios import totem, totem_agreed
from antiphon.trace.recorder import MemoryRecorder
from tests.sim.swarming import judge
from tests.sim.test_swarm import draw

SEEDS = int(os.environ.get("ANTIPHON_SWARM_SEEDS", "80"))
SEEDS_PER_TEST = 20
CALM = {"churn": 0, "crashes": 0, "partitions": 0}


def draw_totem(seed: int) -> dict[str, Any]:
    random = Random(f"swarm/totem/{seed}")
    parameters = draw(random)
    del parameters["detector_ms"]
    token_ms = random.choice([150.0, 400.0, 1000.0])
    return parameters | {
        "loss": random.choice([0.0, 0.0, 0.02, 0.1]),
        "crashes": min(random.choice([0, 1, 2, 4]), (parameters["members"] - 1) // 2),
        "token_ms": token_ms,
        "consensus_ms": 1.2 * token_ms,
        "join_ms": random.choice([20.0, 50.0]),
        "window": random.choice([4, 50]),
        "max_messages": random.choice([1, 17]),
        "goodbye": random.choice([False, True]),
    }


def sweep(scenario: Scenario, first: int, changes: dict[str, Any]) -> None:
    for seed in range(first, min(SEEDS, first + SEEDS_PER_TEST)):
        judge(scenario, draw_totem(seed) | changes, seed)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_totem_keeps_its_promises_and_finishes(first: int) -> None:
    sweep(totem.SCENARIO, first, {})


@pytest.mark.parametrize("first", range(0, SEEDS // 3, SEEDS_PER_TEST))
def test_agreed_delivery_keeps_all_promises_while_no_site_fails(first: int) -> None:
    sweep(dataclasses.replace(totem_agreed.SCENARIO, promises=PROMISES), first, CALM)


def trace(scenario: Scenario, seed: int) -> tuple[list[Any], dict[str, Any]]:
    recorder = MemoryRecorder("r")
    parameters = draw_totem(7) | {"churn": 2, "members": 5, "loss": 0.1}
    metrics = scenario.run(scenario.configure(parameters), seed, recorder)
    return list(recorder.events()), metrics


def test_equal_seeds_give_equal_traces() -> None:
    assert trace(totem.SCENARIO, 3) == trace(totem.SCENARIO, 3)
    assert trace(totem.SCENARIO, 3) != trace(totem.SCENARIO, 4)


# What the runs of all ordering protocols measure


def shares(**parameters: Any) -> tuple[float, float]:
    configuration = totem.SCENARIO.configure({"members": 5, "messages": 1500, "rate": 250.0} | parameters)
    metrics = totem.SCENARIO.run(configuration, 1, None)
    halted, slowed = metrics["halted_share"], metrics["slowed_share"]
    assert isinstance(halted, float)
    assert isinstance(slowed, float)
    return halted, slowed


def test_a_ring_halts_while_a_member_that_went_is_waited_for() -> None:
    assert shares()[0] == 0.0
    toggling = {"churn": 1, "calm_ms": 1500.0, "away_ms": 1500.0}
    slow, _ = shares(**toggling)
    fast, _ = shares(**toggling, token_ms=200.0, consensus_ms=240.0)
    assert slow > fast > 0
    assert shares(**toggling, goodbye=True)[0] == 0.0


def test_absences_last_as_long_as_they_are_told_to() -> None:
    shorter, _ = shares(churn=1, calm_ms=2000.0, away_ms=200.0)
    longer, _ = shares(churn=1, calm_ms=2000.0, away_ms=600.0)
    assert 0 < shorter < longer


def test_what_is_usual_is_the_median_unless_that_is_a_halt() -> None:
    assert usual_count([5, 7, 6]) == 6
    assert usual_count([0, 0, 0, 8]) == 8
    assert usual_count([0, 0]) == usual_count([]) == 0
