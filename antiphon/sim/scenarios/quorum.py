"""`antiphon simulate quorum`: a replicated map kept by a majority, under every fault; calls are judged."""

from typing import Final

from antiphon.core.calls import Call
from antiphon.core.recording import CallRecorder, Recorder
from antiphon.sim.quorum.run import QuorumRunConfiguration, Run
from antiphon.sim.quorum.site import SimulatedCall
from antiphon.sim.scenario import Metrics, Scenario

SECONDS_PER_CALL: Final = 3e-3
SECONDS_PER_MEMBER: Final = 0.1
"""Mostly for the time in which a run settles."""


def run(configuration: QuorumRunConfiguration, seed: int, recorder: Recorder | None) -> Metrics:
    return record(Run(configuration, seed, recorder), recorder)


def record(simulated: Run, recorder: Recorder | None) -> Metrics:
    """Do a run, and record its calls."""
    outcome = simulated.go()
    if isinstance(recorder, CallRecorder):
        for call in outcome.calls:
            recorder.record_call(as_call(call, simulated.model))
    metrics = outcome.metrics
    agree = bool(metrics["equal"]) and not outcome.disagreements and not metrics.get("lost")
    # Replicas that disagree have no finished run: what they hold differs for good.
    return {"deliveries": metrics["entries"], **metrics, "finished": bool(metrics["live"]) and agree}


def as_call(call: SimulatedCall, model: str = "map") -> Call:
    """A simulated call as a row of the trace."""
    operation, *arguments = call.command
    return Call(
        call.client, call.number, model, operation, tuple(arguments), call.result, call.start, call.end, model
    )


SCENARIO: Final = Scenario(
    name="quorum",
    summary="Replicated state kept by a majority: a map, whose calls are judged for linearizability.",
    example="antiphon simulate quorum --members 5 --crashes 3 --partitions 2 --loss 0.1 --seed 1",
    configuration=QuorumRunConfiguration,
    run=run,
    promises=("integrity", "duplicate", "total", "linearizable"),
    promised=lambda knobs: (
        ("integrity", "duplicate", "total", "linearizable") if knobs.quorum else ("integrity", "duplicate")
    ),
    audited=True,
    cost_s=lambda knobs: SECONDS_PER_MEMBER * knobs.members + SECONDS_PER_CALL * knobs.messages,
)
