"""Late-join handlers in the swarm: latecomers, restarts and every fault, with logs long and short.

The promises of reliable FIFO multicast hold for what comes by history as for what comes live, and every run
finishes. `ANTIPHON_SWARM_SEEDS` sets how many seeds are tried.
"""

import os
from random import Random
from typing import Any

import pytest

from antiphon.sim.scenarios import fifo
from tests.sim.swarming import judge
from tests.sim.test_swarm import draw_fifo

SEEDS = int(os.environ.get("ANTIPHON_SWARM_SEEDS", "40"))
SEEDS_PER_TEST = 20


def draw_history(seed: int) -> dict[str, Any]:
    random = Random(f"swarm/history/{seed}")
    drawn = draw_fifo(seed)
    return drawn | {
        "deliver": "ordered",
        "handlers": min(random.choice([1, 2, 2, 3]), drawn["members"]),
        "log": random.choice([10, 40, 10_000]),
        "apart_ms": random.choice([0.0, 400.0, 1500.0, 3000.0]),
    }


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_history_keeps_the_promises_and_the_runs_finish(first: int) -> None:
    for seed in range(first, min(SEEDS, first + SEEDS_PER_TEST)):
        judge(fifo.SCENARIO, draw_history(seed), seed)


FOUND = {
    "what came before an absence was delivered in the spell after it": 159,
    "the same with small windows, crashes and partitions": 112,
    "let go of messages of its own that no other member had": 561,
    "the same before it had met a member": 343,
}
"""Seeds whose runs once went wrong."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_stays_mended(name: str) -> None:
    judge(fifo.SCENARIO, draw_history(FOUND[name]), FOUND[name])
