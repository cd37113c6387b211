"""The swarm: many seeds, each with its own group, network and faults; first safety, then progress.

Each seed draws its parameters, which are printed first; the run's trace is audited with the pure checkers,
and once the faults have healed everyone must take part and finish. When a seed fails, the last line is the
command that replays it. `ANTIPHON_SWARM_SEEDS` sets how many seeds are tried.

One combination is left out, by the schedule itself: a crash of the sequencer never comes near another
fault. A sequencer that lost its memory learns the order from the others, so a message that only an absent
member holds besides it would be lost; the protocol's docstring says so.
"""

import os
from random import Random
from typing import Any

import pytest

from antiphon.check.checkers import check_trace
from antiphon.sim.scenario import Scenario
from antiphon.sim.scenarios import sequencer, template
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Run

SEEDS = int(os.environ.get("ANTIPHON_SWARM_SEEDS", "240"))
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
        "delay_ms": random.choice([0.1, 1.0, 5.0]),
        "jitter_ms": random.choice([0.0, 0.5, 3.0]),
        "loss": random.choice([0.0, 0.0, 0.05, 0.2, 0.3]),
        "duplication": random.choice([0.0, 0.0, 0.1, 0.3]),
        "reordering": random.choice([0.0, 0.0, 0.1, 0.3]),
        "churn": random.choice([0, 0, 1, 2, members]),
        "partitions": random.choice([0, 0, 1, 3]),
        "detector_ms": random.choice([0.0, 0.0, 20.0]),
    }


def draw_sequencer(seed: int) -> dict[str, Any]:
    random = Random(f"swarm/{seed}")
    return draw(random) | {
        "crashes": random.choice([0, 0, 1, 2, 4]),
        "window": random.choice([1, 4, 64]),
        "order_window": random.choice([4, 16, 256]),
    }


def judge(scenario: Scenario, parameters: dict[str, Any], seed: int) -> None:
    configuration = scenario.configure(parameters)
    command = scenario.replay_command(configuration, seed)
    print(f"seed {seed}: {parameters}")
    recorder = MemoryRecorder(f"seed-{seed}")
    try:
        metrics = scenario.run(configuration, seed, recorder)
    except Exception as error:
        raise AssertionError(f"{error!r}\n{command}") from error
    run = Run(run=f"seed-{seed}", protocol=scenario.name, promises=scenario.promises, seed=seed)
    broken = [
        violation
        for violation in check_trace(recorder.events(), run)
        if violation.property in scenario.promises
    ]
    if broken:
        pytest.fail(f"{len(broken)} violations, first: {broken[0].explanation}\n{command}", pytrace=False)
    if not metrics["finished"]:
        pytest.fail(f"The faults are over and the run does not finish: {metrics}\n{command}", pytrace=False)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_the_sequencer_keeps_its_promises_and_finishes(first: int) -> None:
    for seed in range(first, min(SEEDS, first + SEEDS_PER_TEST)):
        judge(sequencer.SCENARIO, draw_sequencer(seed), seed)


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
