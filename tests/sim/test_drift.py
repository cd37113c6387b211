"""Clocks of their own, and the options of the paper's sections 3 and 4 in `antiphon simulate dpg`."""

from random import Random
from typing import Any

import pytest

from antiphon.core.effects import Effect, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Input, Start
from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.sim.drift import Drifting
from antiphon.sim.scenario import Metrics
from antiphon.sim.scenarios.dpg import SCENARIO, Configuration


class Alarm:
    """Sets a timer of a second, by its own clock."""

    def __init__(self) -> None:
        self.seen: list[Nanoseconds] = []

    def handle(self, now: Nanoseconds, _event: Input) -> list[Effect]:
        self.seen.append(now)
        return [SetTimer("alarm", SECOND_NS)]


def test_a_clock_that_runs_fast_sees_more_time_and_fires_sooner() -> None:
    alarm = Alarm()
    drifting = next(
        each for seed in range(20) if (each := Drifting(alarm, 10_000, Random(seed))).rate > 1.001
    )
    (effect,) = drifting.handle(100 * SECOND_NS, Start())
    assert alarm.seen[0] > 100 * SECOND_NS
    assert isinstance(effect, SetTimer)
    assert effect.after_ns < SECOND_NS
    assert round(effect.after_ns * drifting.rate) in range(SECOND_NS, SECOND_NS + 3)


def run(**parameters: Any) -> Metrics:
    return SCENARIO.run(SCENARIO.configure({"messages": 150, "rate": 300.0, **parameters}), 1, None)


@pytest.mark.parametrize(
    "parameters",
    [
        {"contiguity": "timing"},
        {"contiguity": "timing", "loss": 0.02},
        {"service": "bounded-delay", "network": "mesh", "contiguity": "delays", "bound_ms": 8.0},
        {"service": "bounded-delay", "network": "mesh", "drift_ppm": 5000.0},
        {"drift_ppm": 5000.0, "cycles": "count"},
    ],
    ids=["timing", "timing with losses", "delays", "drifting stamps", "cycles in messages"],
)
def test_every_detector_and_drifting_clocks_keep_the_order(parameters: dict[str, Any]) -> None:
    metrics = run(**parameters)
    assert metrics["finished"]
    assert (metrics["violated"], metrics["contradictions"]) == (0, 0)


def test_the_timing_rule_finds_less_than_the_overwrite_bit() -> None:
    """Where senders pause, two messages are seldom so close that none fits between them."""
    assert int(run(contiguity="timing")["committed"] or 0) > int(run()["committed"] or 0)


def test_few_ordering_buffers_overflow_and_flow_control_slows_senders() -> None:
    scarce = run(ordering_buffers=8, loss=0.05, message_ms=2.0, delta_ms=5.0, fc_ms=100.0)
    assert int(scarce["overflows"] or 0) > 0
    assert scarce["violated"] == 0


@pytest.mark.parametrize(
    "parameters",
    [
        {"contiguity": "delays"},
        {"service": "sequencer", "contiguity": "timing"},
        {"drift_ppm": 200_000.0},
        {"quorum": 9},
        {"bound_ms": -1.0},
    ],
)
def test_what_does_not_fit_is_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Configuration(**parameters)
