"""The swarm of selective causal order: many seeds, each with its own group, destinations and faults.

Each seed draws its parameters, which are printed first; the run's trace is judged by the pure checkers, and
once the faults have healed everyone must take part and finish. When a seed fails, the last line is the
command that replays it. `ANTIPHON_SWARM_SEEDS` sets how many seeds are tried.

The rivals take their members to be reliable: they are drawn without crashes, and an absent member is waited
for.
"""

import os
from random import Random
from typing import Any

import pytest

from antiphon.sim.scenario import Scenario
from antiphon.sim.scenarios import co, sco, sco_c0, sco_c1, sco_d0, vector_clock
from tests.sim.swarming import draw_absences, draw_weather, judge

SEEDS = int(os.environ.get("ANTIPHON_SWARM_SEEDS", "140"))
SEEDS_PER_TEST = 20

RIVALS: dict[str, Scenario] = {
    scenario.SCENARIO.name: scenario.SCENARIO for scenario in (vector_clock, co, sco_c0, sco_c1, sco_d0)
}


def draw(random: Random) -> dict[str, Any]:
    """A group, destinations, a network and some faults; about every second knob stays calm."""
    members = random.randint(2, 8)
    messages = random.randint(15, 60)
    return {
        "members": members,
        "messages": messages,
        "size": random.choice([0, 10, 100]),
        "batch": random.choice([1, 1, 3]),
        "rate": messages / random.choice([0.1, 0.5, 1.0, 2.0]),
        "destinations": random.randint(0, members),
        "varied": random.random() < 0.5,
        "own_share": random.choice([0.0, 0.1, 0.5]),
        "mixed": random.random() < 0.2,
        "sending": random.choice(["random", "random", "even"]),
        "network": random.choice(["mesh", "mesh", "mesh", "medium"]),
        **draw_weather(random),
        **draw_absences(random, members),
    }


def draw_calm(seed: int) -> dict[str, Any]:
    """No member departs; the network may do anything else."""
    random = Random(f"swarm/sco/calm/{seed}")
    return draw(random) | {"churn": 0, "partitions": 0, "detector_ms": 0.0} | draw_knobs(random)


def draw_troubled(seed: int) -> dict[str, Any]:
    """Members crash, go absent and are cut off from one another."""
    random = Random(f"swarm/sco/{seed}")
    return draw(random) | {"crashes": random.choice([0, 1, 1, 2, 4])} | draw_knobs(random)


def draw_knobs(random: Random) -> dict[str, Any]:
    return {
        "window": random.choice([1, 4, 64]),
        "buffers": random.choice([64, 4096]),
        "confirm_ms": random.choice([0.5, 5.0, 20.0]),
        "acknowledge": random.choice(["causal", "continuous"]),
        "vectors": random.choice(["plain", "compressed"]),
    }


def draw_rival(scenario: Scenario, seed: int) -> dict[str, Any]:
    random = Random(f"swarm/{scenario.name}/{seed}")
    drawn = draw(random) | {"window": random.choice([1, 4, 64])}
    if "confirm_ms" in scenario.knobs():
        drawn["confirm_ms"] = random.choice([0.5, 5.0, 20.0])
    return drawn


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_sco_keeps_its_promises_and_finishes(first: int) -> None:
    for seed in range(first, min(SEEDS, first + SEEDS_PER_TEST)):
        judge(sco.SCENARIO, draw_calm(seed) if seed % 3 == 0 else draw_troubled(seed), seed)


@pytest.mark.parametrize("name", RIVALS)
def test_the_rivals_keep_their_promises_and_finish(name: str) -> None:
    for seed in range(max(1, SEEDS // 14)):
        judge(RIVALS[name], draw_rival(RIVALS[name], seed), seed)


FOUND: dict[str, tuple[int, dict[str, Any]]] = {
    "a member that came back on one side of a split was taken to be known on the other": (
        90280,
        {"members": 5, "messages": 46, "size": 0, "batch": 3, "rate": 230.0, "jitter_ms": 0.5, "loss": 0.02,
         "duplication": 0.3, "reordering": 0.3, "churn": 1, "partitions": 1, "calm_ms": 100.0,
         "away_ms": 300.0, "destinations": 1, "varied": True, "mixed": True, "window": 1, "buffers": 16,
         "confirm_ms": 10.0, "control_ms": 25.0, "acknowledge": "causal"},
    ),
    "a member that was left out took confirmations of members that had skipped its message": (
        12723,
        {"members": 3, "messages": 58, "size": 10, "rate": 116.0, "delay_ms": 5.0, "jitter_ms": 3.0,
         "loss": 0.3, "duplication": 0.3, "partitions": 1, "calm_ms": 30.0, "away_ms": 300.0,
         "destinations": 2, "own_share": 0.1, "mixed": True, "window": 4, "buffers": 16, "confirm_ms": 10.0,
         "acknowledge": "causal"},
    ),
    "three members, each of which had lost the other two at some time": (
        147,
        {"members": 3, "messages": 28, "size": 0, "rate": 14.0, "network": "medium", "jitter_ms": 0.5,
         "reordering": 0.1, "churn": 1, "partitions": 3, "destinations": 2, "varied": True, "buffers": 64,
         "acknowledge": "continuous", "vectors": "plain"},
    ),
    "a part that was no majority went on": (
        1242,
        {"members": 5, "messages": 38, "size": 0, "rate": 38.0, "delay_ms": 0.1, "loss": 0.2, "crashes": 2,
         "partitions": 3, "detector_ms": 20.0, "varied": True, "own_share": 0.5, "window": 1, "buffers": 64,
         "acknowledge": "causal"},
    ),
    "stable without a member that was cut off": (
        1252,
        {"members": 8, "messages": 51, "batch": 3, "rate": 102.0, "delay_ms": 5.0, "jitter_ms": 0.5,
         "churn": 1, "crashes": 4, "partitions": 1, "detector_ms": 20.0, "destinations": 2, "varied": True,
         "window": 1, "buffers": 64, "confirm_ms": 20.0, "vectors": "plain", "acknowledge": "causal"},
    ),
    "a half that heard of its losses from others, and did not give in": (
        5002987,
        {"members": 6, "messages": 35, "size": 10, "batch": 3, "rate": 1750.0, "delay_ms": 5.0, "loss": 0.3,
         "reordering": 0.1, "partitions": 1, "calm_ms": 100.0, "away_ms": 300.0, "destinations": 2,
         "own_share": 0.0, "mixed": True, "window": 1, "buffers": 16, "confirm_ms": 10.0,
         "control_ms": 25.0, "acknowledge": "continuous", "vectors": "plain", "gather_from": 1},
    ),
}  # fmt: skip
"""Runs that once went wrong."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_stays_mended(name: str) -> None:
    seed, parameters = FOUND[name]
    judge(sco.SCENARIO, parameters, seed)


def test_a_failing_seed_says_how_to_replay_it() -> None:
    parameters = draw_calm(0) | {"sabotage": "duplicate", "members": 4, "destinations": 2, "messages": 60}
    with pytest.raises(pytest.fail.Exception) as caught:
        judge(sco.SCENARIO, parameters, 3)
    last = str(caught.value).splitlines()[-1]
    assert last.startswith("antiphon simulate sco --members 4 --messages 60")
    assert "--sabotage duplicate" in last
    assert last.endswith("--seed 3")
