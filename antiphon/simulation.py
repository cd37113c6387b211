"""One simulated run, for the library, the command line and the sweeps."""

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from antiphon.check.checkers import check_trace
from antiphon.check.verdict import Violation
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.scenarios import find_scenario
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Event, Run


@dataclass(frozen=True)
class SimulatedRun:
    """The result of a simulated run."""

    metrics: Metrics
    run: Run
    recorder: MemoryRecorder
    violations: list[Violation] = field(default_factory=list)
    """Violations of the scenario's own promises."""

    def events(self) -> list[Event]:
        return self.recorder.events()


def simulate(scenario: str, *, seed: int = 0, **parameters: Any) -> SimulatedRun:
    """Simulate a protocol once and judge its trace by what it promises.

    The parameters are those of `antiphon simulate`, spelled with underscores.
    """
    found = find_scenario(scenario)
    return simulate_and_judge(found, found.configure(parameters), seed)


def simulate_and_judge(scenario: Scenario, configuration: Any, seed: int) -> SimulatedRun:
    row = run_row(scenario, configuration, seed)
    recorder = MemoryRecorder(row.run)
    metrics = scenario.run(configuration, seed, recorder)
    violations = check_trace(recorder.events(), row, row.promises, recorder.calls)
    return SimulatedRun(metrics | {"violations": len(violations)}, row, recorder, violations)


def measure(scenario: Scenario, configuration: Any, seed: int) -> Metrics:
    """A run's metrics; its trace is recorded and judged only if the scenario asks for that."""
    if scenario.audited:
        return simulate_and_judge(scenario, configuration, seed).metrics
    return scenario.run(configuration, seed, None)


def run_row(scenario: Scenario, configuration: Any, seed: int) -> Run:
    """The run's row of the table `runs`."""
    groups = scenario.groups(configuration)
    return Run(
        run=f"{scenario.name}-{seed}",
        protocol=scenario.name,
        promises=scenario.promises_for(configuration),
        groups=None if groups is None else dict(groups),
        parameters=json.dumps(dataclasses.asdict(configuration), sort_keys=True),
        seed=seed,
    )
