"""The swarm: many seeds, each with its own group, network and faults; first safety, then progress.

Each seed draws its parameters, which are printed first; the run's trace is audited with the pure checkers,
and once the faults have healed everyone must take part and finish. When a seed fails, the last line is the
command that replays it. `ANTIPHON_SWARM_SEEDS` sets how many seeds are tried.

One combination is left out for the sequencer, by the schedule itself: its crash never comes near another
fault. A sequencer that lost its memory learns the order from the others, so a message that only an absent
member holds besides it would be lost; the protocol's docstring says so. Reliable FIFO multicast has no such
exception.
"""

import os
from random import Random
from typing import Any

import pytest

from antiphon.protocols.detection import DETECTORS
from antiphon.protocols.fifo import REPAIRS
from antiphon.protocols.fifo.ways import WAYS
from antiphon.protocols.stability import PROTOCOLS, WITHOUT_ROUNDS
from antiphon.sim.scenarios import fifo, sequencer, template
from tests.sim.swarming import draw_absences, draw_weather, judge

SEEDS = int(os.environ.get("ANTIPHON_SWARM_SEEDS", "80"))
SEEDS_PER_TEST = 20


def draw(random: Random) -> dict[str, Any]:
    """A group, a network and some faults; about every second knob stays calm."""
    members = random.randint(2, 7)
    messages = random.randint(30, 110)
    network = random.choice(["mesh", "mesh", "medium"])
    return {
        "members": members,
        "messages": messages,
        "size": random.choice([0, 10, 100]),
        "batch": random.choice([1, 1, 3]),
        "rate": messages / random.choice([0.2, 1.0, 2.0, 4.0]),
        "network": network,
        **draw_weather(random),
        **draw_absences(random, members),
    }


def draw_sequencer(seed: int) -> dict[str, Any]:
    random = Random(f"swarm/{seed}")
    return draw(random) | {
        "crashes": random.choice([0, 0, 1, 2, 4]),
        "window": random.choice([1, 4, 64]),
        "order_window": random.choice([4, 16, 256]),
        "deliver": random.choice(["ordered", "ordered", "stable"]),
    }


def draw_fifo(seed: int) -> dict[str, Any]:
    random = Random(f"swarm/fifo/{seed}")
    return draw(random) | {
        "repair": REPAIRS[seed % len(REPAIRS)],
        "crashes": random.choice([0, 0, 1, 2, 4]),
        "window": random.choice([1, 4, 64]),
        "retain": random.choice([4, 16, 256]),
        "apart_ms": random.choice([0.0, 0.0, 50.0, 400.0]),
        **draw_stability(random, seed),
        **draw_conduct(random, seed),
        "detector": random.choice(DETECTORS),
        "neighbours": random.choice([2, 6]),
        "deliver": random.choice(["ordered", "ordered", "stable"]),
    }


def draw_conduct(random: Random, seed: int) -> dict[str, Any]:
    """How members acknowledge, announce and hold back; and the shape of trees and local groups."""
    shaped = REPAIRS[seed % len(REPAIRS)] in ("parent", "local")
    return {
        "acknowledgements": random.choice(["soon", "late"]),
        "block_bytes": random.choice([None, None, 1, 400]),
        "most_bytes_s": random.choice([None, None, 50_000.0]),
        "announce_most_ns": random.choice([None, None, 800_000_000]),
        "subgroup": random.choice([None, 2, 3]) if shaped else None,
        "heads": shaped and random.random() < 0.5,
    }


def draw_stability(random: Random, seed: int) -> dict[str, Any]:
    """How what all hold is found: each protocol with each repair, and now and then in its other forms."""
    names = [*PROTOCOLS, *WITHOUT_ROUNDS]
    repair, stability = REPAIRS[seed % len(REPAIRS)], names[seed % len(names)]
    rows = random.choice(["whole", "changed", "riding", "riding"]) if stability == "fulldist" else "whole"
    adapts = rows == "whole" and stability in PROTOCOLS and WAYS[repair].others_keep
    # Session messages are rare where there is little data: a buffer for one message would wait for each.
    roomy = {"size": 100, "retain": 256} if stability == "session" else {}
    return roomy | {
        "stability": stability,
        "rows": rows,
        "errors": random.choice(["none", "none", "none", random.choice(list(PROTOCOLS))]),
        "trigger": random.choice(["timer", "timer", "adaptive"]) if adapts else "timer",
    }


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_the_sequencer_keeps_its_promises_and_finishes(first: int) -> None:
    for seed in range(first, min(SEEDS, first + SEEDS_PER_TEST)):
        judge(sequencer.SCENARIO, draw_sequencer(seed), seed)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_fifo_keeps_its_promises_and_finishes(first: int) -> None:
    for seed in range(first, min(SEEDS, first + SEEDS_PER_TEST)):
        judge(fifo.SCENARIO, draw_fifo(seed), seed)


FOUND: dict[str, tuple[int, dict[str, Any]]] = {
    "asked for nothing any more after a return": (
        72,
        {"members": 3, "messages": 81, "batch": 3, "rate": 40.5, "network": "medium", "delay_ms": 5.0,
         "jitter_ms": 0.5, "loss": 0.2, "duplication": 0.3, "reordering": 0.3, "churn": 2,
         "repair": "request-all", "window": 1, "retain": 4},
    ),
    "a small window full of what lay beyond the gap": (
        112,
        {"messages": 87, "batch": 3, "rate": 43.5, "network": "medium", "delay_ms": 5.0, "loss": 0.2,
         "duplication": 0.1, "reordering": 0.1, "churn": 7, "crashes": 1, "partitions": 3,
         "detector_ms": 20.0, "repair": "request-all", "window": 1},
    ),
    "delivered on both sides of a gap what had come before an absence": (
        1641,
        {"members": 3, "messages": 104, "size": 10, "rate": 52.0, "network": "medium", "delay_ms": 0.1,
         "jitter_ms": 3.0, "loss": 0.05, "duplication": 0.3, "churn": 1, "crashes": 2, "repair": "request",
         "window": 1},
    ),
    "told others that all is stable which it never followed": (
        22138,
        {"members": 5, "messages": 77, "rate": 385.0, "network": "medium", "delay_ms": 5.0, "loss": 0.05,
         "reordering": 0.1, "crashes": 2, "partitions": 3, "repair": "any", "window": 4},
    ),
    "began a stream that was not stable and looked for nothing": (
        31821,
        {"members": 2, "messages": 86, "batch": 3, "rate": 86.0, "delay_ms": 0.1, "jitter_ms": 3.0,
         "loss": 0.3, "duplication": 0.1, "churn": 2, "crashes": 4, "partitions": 1, "detector_ms": 20.0,
         "repair": "request", "window": 4, "retain": 4, "apart_ms": 50.0},
    ),
    "did not know that something was stable before it came": (
        52571,
        {"members": 4, "messages": 70, "size": 10, "rate": 17.5, "network": "medium", "delay_ms": 5.0,
         "loss": 0.05, "duplication": 0.3, "reordering": 0.3, "partitions": 1, "detector_ms": 20.0,
         "repair": "request", "window": 1, "retain": 4, "apart_ms": 400.0},
    ),
    "took the result of an earlier round in the same view for that of the round under way": (
        1742,
        {"members": 5, "messages": 45, "size": 10, "rate": 225.0, "delay_ms": 1.0, "jitter_ms": 0.5,
         "loss": 0.1, "duplication": 0.3, "reordering": 0.1, "churn": 2, "crashes": 1, "calm_ms": 100.0,
         "away_ms": 20.0, "repair": "acknowledge", "stability": "s-coordp", "retain": 4},
    ),
}  # fmt: skip
"""Runs of reliable FIFO multicast that once went wrong."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_stays_mended(name: str) -> None:
    seed, parameters = FOUND[name]
    judge(fifo.SCENARIO, parameters, seed)


def test_the_template_keeps_its_promises_and_finishes() -> None:
    for seed in range(40):
        judge(template.SCENARIO, draw(Random(f"swarm/template/{seed}")), seed)


def test_a_failing_seed_says_how_to_replay_it() -> None:
    parameters = draw_sequencer(0) | {"sabotage": "swap", "members": 4, "churn": 0, "messages": 60}
    with pytest.raises(pytest.fail.Exception) as caught:
        judge(sequencer.SCENARIO, parameters, 3)
    last = str(caught.value).splitlines()[-1]
    assert last.startswith("antiphon simulate sequencer --members 4 --messages 60")
    assert "--sabotage swap" in last
    assert last.endswith("--seed 3")
