"""Equal seeds give equal traces: twice in this process, and in another one under another hash seed."""

import hashlib
import os
import subprocess
import sys
from typing import Any

import pytest

from antiphon.sim.scenario import Scenario
from antiphon.sim.scenarios import fifo, fulldist, s_coordp, s_train, sequencer, template, train
from antiphon.trace.recorder import MemoryRecorder

FAULTS: dict[str, Any] = {
    "members": 5,
    "messages": 120,
    "rate": 60.0,
    "loss": 0.1,
    "duplication": 0.1,
    "reordering": 0.1,
    "jitter_ms": 1.0,
    "churn": 2,
    "partitions": 1,
}
ROUND: dict[str, Any] = {"members": 30, "senders": 5, "density": "sparse", "loss_rate": 0.1}
CASES: dict[str, tuple[Scenario, dict[str, Any]]] = {
    "sequencer": (sequencer.SCENARIO, FAULTS | {"crashes": 3}),
    "sequencer, calm": (sequencer.SCENARIO, {"members": 4, "messages": 100}),
    "sequencer, medium": (sequencer.SCENARIO, FAULTS | {"network": "medium"}),
    "sequencer, sabotage": (sequencer.SCENARIO, {"messages": 150, "sabotage": "hold"}),
    "fifo": (fifo.SCENARIO, FAULTS | {"crashes": 3}),
    "fifo, any": (fifo.SCENARIO, FAULTS | {"crashes": 3, "repair": "any", "apart_ms": 100.0}),
    "fifo, gossip": (fifo.SCENARIO, FAULTS | {"stability": "gossip", "errors": "s-gossip"}),
    "fifo, riding rows": (fifo.SCENARIO, FAULTS | {"stability": "fulldist", "rows": "riding"}),
    "template": (template.SCENARIO, FAULTS),
    "fulldist, scattered": (fulldist.SCENARIO, ROUND | {"scattered": True}),
    "train": (train.SCENARIO, ROUND),
    "s-coordp": (s_coordp.SCENARIO, ROUND),
    "s-train": (s_train.SCENARIO, ROUND | {"subgroup": 10}),
}


def trace_hash(case: str, seed: int) -> str:
    """A fingerprint of every row and every metric of a run."""
    scenario, parameters = CASES[case]
    recorder = MemoryRecorder("r")
    metrics = scenario.run(scenario.configure(parameters), seed, recorder)
    rows = "\n".join(map(repr, recorder.events()))
    return hashlib.sha256(f"{rows}\n{metrics}".encode()).hexdigest()


def hashes(seed: int) -> dict[str, str]:
    return {case: trace_hash(case, seed) for case in CASES}


@pytest.mark.parametrize("case", CASES)
def test_the_same_seed_gives_the_same_trace(case: str) -> None:
    assert trace_hash(case, 11) == trace_hash(case, 11)


@pytest.mark.parametrize("case", CASES)
def test_another_seed_gives_another_trace(case: str) -> None:
    assert trace_hash(case, 11) != trace_hash(case, 12)


@pytest.mark.slow
def test_another_process_under_another_hash_seed_gives_the_same_traces() -> None:
    program = "from tests.sim.test_determinism import hashes; print(hashes(11))"
    environment = os.environ | {"PYTHONHASHSEED": "4242", "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == str(hashes(11))


def test_a_recorder_changes_nothing() -> None:
    scenario, parameters = CASES["sequencer"]
    configuration = scenario.configure(parameters)
    assert scenario.run(configuration, 5, None) == scenario.run(configuration, 5, MemoryRecorder("r"))
