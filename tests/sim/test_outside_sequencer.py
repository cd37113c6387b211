"""An outside tag sequencer in the simulator: killed and restarted while another group uses it, too."""

import json
from typing import Any

import pytest

from antiphon.core.errors import UsageError
from antiphon.sim.scenarios import dpg
from antiphon.trace.recorder import MemoryRecorder

OUTSIDE: dict[str, Any] = {
    "service": "sequencer", "network": "mesh", "members": 4, "messages": 600, "rate": 400.0,
    "outside": True, "foreign_rate": 300.0,
}  # fmt: skip


def test_it_stamps_the_order_of_a_group_among_foreign_tags() -> None:
    recorder = MemoryRecorder("run")
    metrics = dpg.run(dpg.Configuration(**OUTSIDE), 1, recorder)
    assert metrics["finished"]
    assert metrics["deliveries"] == 4 * 600
    assert metrics["committed"] == 0, "contiguity is inferred across the other group's tags"
    sites = {event.site for event in recorder.events()}
    assert len(sites) == 4, "the trace has the members alone"


@pytest.mark.parametrize("seed", range(6))
def test_its_restart_loses_nothing_and_breaks_no_order(seed: int) -> None:
    print(json.dumps(OUTSIDE | {"outside_crashes": 2, "seed": seed}))
    metrics = dpg.run(dpg.Configuration(**OUTSIDE, outside_crashes=2, away_ms=600.0), seed, None)
    assert metrics["finished"]
    assert metrics["deliveries"] == 4 * 600
    assert metrics["violated"] == metrics["disagreements"] == metrics["unavailable"] == 0
    assert float(metrics["latency_s"] or 0) > 0.03, "members waited for it"


@pytest.mark.parametrize(
    "knobs",
    [
        {"service": "lan", "outside": True},
        {"service": "sequencer", "network": "mesh", "outside_crashes": 1},
        {"service": "sequencer", "network": "mesh", "outside": True, "foreign_rate": -1.0},
    ],
)
def test_options_that_make_no_sense_together_are_refused(knobs: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        dpg.Configuration(**knobs)  # type: ignore[arg-type]
