"""Each sabotage breaks what it is meant to break, once, and the pure checkers see it."""

import pytest

from antiphon.check.checkers import check_trace
from antiphon.check.verdict import count_by_property
from antiphon.core.errors import UsageError
from antiphon.core.recording import PROPERTIES
from antiphon.sim.sabotage import BREAKS
from antiphon.sim.scenarios.sequencer import SCENARIO
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Run

RUN = Run(run="r", protocol=SCENARIO.name, promises=SCENARIO.promises)
ALONG = {
    "overtake": {"fifo", "causal", "total"},
    "hold": {"fifo", "causal", "total"},
    "swap": {"total", "causal"},
}
"""Kinds that break more than one property; all others break exactly the one they name."""


def violations(sabotage: str, seed: int) -> dict[str, int]:
    configuration = SCENARIO.configure(
        {"members": 5, "messages": 120, "rate": 600.0, "loss": 0.02, "sabotage": sabotage}
    )
    recorder = MemoryRecorder("r")
    SCENARIO.run(configuration, seed, recorder)
    counts = count_by_property(check_trace(recorder.events(), RUN))
    return {name: count for name, count in counts.items() if count}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("sabotage", BREAKS)
def test_the_property_named_is_broken_and_no_other_without_reason(sabotage: str, seed: int) -> None:
    found = violations(sabotage, seed)
    assert BREAKS[sabotage] in found
    assert set(found) <= ALONG.get(sabotage, {BREAKS[sabotage]})


def test_every_property_can_be_seen_broken() -> None:
    assert set(BREAKS.values()) == set(PROPERTIES)


def test_without_sabotage_nothing_is_broken() -> None:
    assert violations("none", 1) == {}


def test_an_unknown_sabotage_is_refused_with_a_hint() -> None:
    with pytest.raises(UsageError) as caught:
        SCENARIO.configure({"sabotage": "arson"})
    assert "swap" in (caught.value.hint or "")
