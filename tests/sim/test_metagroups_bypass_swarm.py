"""The swarm of meta-groups whose messages go past nodes: pairwise order, and every other promise, must hold.

Groups are many enough that most runs have something to go past. When a seed fails, the command that replays
it stands beside it. `ANTIPHON_SWARM_SEEDS` sets how many seeds are tried.
"""

import os
from random import Random
from typing import Any

import pytest

from antiphon.core.recording import Property
from antiphon.protocols.metagroups import promises
from antiphon.sim.scenarios.metagroups import SCENARIO
from tests.sim.test_metagroups_swarm import draw as draw_any
from tests.sim.test_metagroups_swarm import run_and_judge

SEEDS = int(os.environ.get("ANTIPHON_SWARM_SEEDS", "24"))
KINDS = ("calm", "changes", "faults", "both")


def draw(kind: str, seed: int) -> dict[str, Any]:
    random = Random(f"swarm/metagroups/bypass/{kind}/{seed}")
    return draw_any(kind, seed) | {
        "members": random.randint(8, 12),
        "groups": random.randint(5, 8),
        "overlap": round(random.uniform(1.6, 2.8), 2),
        "messages": 80,
        "jitter_ms": random.choice([0.5, 5.0]),
        "outsiders": random.choice([0.2, 1.0]),
        "shape": random.choice(["shallow", "printed", "printed"]),
        "bypass": True,
    }


def promised(parameters: dict[str, Any]) -> tuple[Property, ...]:
    return promises(SCENARIO.configure(parameters).protocol_configuration())


@pytest.mark.parametrize("kind", KINDS)
def test_all_promises_hold_and_everyone_finishes(kind: str) -> None:
    drawn = [(seed, draw(kind, seed)) for seed in range(SEEDS // len(KINDS))]
    judged = [run_and_judge(parameters, seed, promised(parameters))[1] for seed, parameters in drawn]
    complaints = [complaint for complaint in judged if complaint is not None]
    if complaints:
        pytest.fail("\n\n".join(complaints), pytrace=False)


def test_agreed_delivery_keeps_all_promises_while_no_site_fails() -> None:
    for seed in range(max(2, SEEDS // 8)):
        parameters = draw("calm", seed) | {"delivery": "agreed"}
        metrics, complaint = run_and_judge(parameters, seed, promised(parameters))
        if metrics["begun_anew"] == 0:
            assert complaint is None, complaint


BUSY = {"members": 12, "groups": 7, "overlap": 2.4, "messages": 100, "rate": 1500.0, "jitter_ms": 5.0,
        "outsiders": 0.5, "shape": "printed"}  # fmt: skip


def test_it_skips_nodes_and_loses_the_one_order_of_all_groups() -> None:
    """What is promised is not too little: in some run there is a circle."""
    runs = [run_and_judge(BUSY | {"bypass": True}, seed, ("total",)) for seed in range(4)]
    plain = [run_and_judge(BUSY, seed, ("total",)) for seed in range(4)]
    assert any(complaint is not None for _, complaint in runs)
    assert all(complaint is None for _, complaint in plain)
    for name in ("extra_nodes", "depth"):
        past, along = (sum(float(metrics[name] or 0) for metrics, _ in found) for found in (runs, plain))
        assert past < along
