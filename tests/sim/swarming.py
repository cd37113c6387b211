"""What swarms share: drawn faults, a run for one seed and what came of it, the command that replays it."""

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import pytest

from antiphon.check.verdict import Violation
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Event, Run
from tests.promises import broken_promises


class Outcome(NamedTuple):
    """What came of a run."""

    metrics: Metrics
    events: Sequence[Event]
    run: Run
    command: str
    """It replays the run."""


def draw_weather(random: Random) -> dict[str, Any]:
    """What the network does to PDUs; about every second knob stays calm."""
    return {
        "delay_ms": random.choice([0.1, 1.0, 5.0]),
        "jitter_ms": random.choice([0.0, 0.5, 3.0]),
        "loss": random.choice([0.0, 0.0, 0.05, 0.2, 0.3]),
        "duplication": random.choice([0.0, 0.0, 0.1, 0.3]),
        "reordering": random.choice([0.0, 0.0, 0.1, 0.3]),
    }


def draw_absences(random: Random, members: int) -> dict[str, Any]:
    """Members that are away or cut off, and how soon the others notice."""
    return {
        "churn": random.choice([0, 0, 1, 2, members]),
        "partitions": random.choice([0, 0, 1, 3]),
        "detector_ms": random.choice([0.0, 0.0, 20.0]),
    }


def simulate(scenario: Scenario, parameters: dict[str, Any], seed: int) -> Outcome:
    """Run a scenario; should it stop at an assertion, the last line is the command that replays it."""
    configuration = scenario.configure(parameters)
    command = scenario.replay_command(configuration, seed)
    recorder = MemoryRecorder(f"seed-{seed}")
    try:
        metrics = scenario.run(configuration, seed, recorder)
    except Exception as error:
        raise AssertionError(f"{error!r}\n{command}") from error
    run = Run(
        run=f"seed-{seed}", protocol=scenario.name, promises=scenario.promises_for(configuration), seed=seed
    )
    return Outcome(metrics, recorder.events(), run, command)


def judge(scenario: Scenario, parameters: dict[str, Any], seed: int) -> None:
    """All promises hold, and once the faults have healed everyone takes part and finishes."""
    print(f"seed {seed}: {parameters}")
    outcome = simulate(scenario, parameters, seed)
    demand(outcome, broken_promises(outcome.run.promises, outcome.events, outcome.run))


def demand(outcome: Outcome, broken: Sequence[Violation]) -> None:
    """Fail if something is broken or unfinished; the last line is the command that replays the run."""
    metrics, command = outcome.metrics, outcome.command
    if broken:
        pytest.fail(f"{len(broken)} violations, first: {broken[0].explanation}\n{command}", pytrace=False)
    if not metrics["finished"]:
        pytest.fail(f"The faults are over and the run does not finish: {metrics}\n{command}", pytrace=False)
