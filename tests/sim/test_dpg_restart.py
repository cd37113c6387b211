"""What a crashed member delivered and told no other, it delivers again; the member that sent it reports that.

One of two members is away with its memory while the other, which alone knows the places of the first one's
last messages, crashes. No living member can tell whether they were delivered, so they must be delivered.
"""

from typing import Any

import pytest

from antiphon.check.checkers import check_trace
from antiphon.protocols.dpg import PROMISES
from antiphon.sim.scenarios import dpg
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Run

TWO: dict[str, Any] = {
    "members": 2, "messages": 150, "rate": 100.0, "churn": 1, "crashes": 1, "partitions": 1,
    "duplication": 0.05,
}  # fmt: skip


@pytest.mark.parametrize("seed", [14, 30, 32, 44, 59])
def test_the_sender_reports_what_a_restarted_member_may_deliver_again(seed: int) -> None:
    configuration = dpg.Configuration(**TWO)
    recorder = MemoryRecorder("run")
    metrics = dpg.run(configuration, seed, recorder)
    found = check_trace(recorder.events(), Run("run", "dpg", PROMISES), PROMISES)
    broken = {violation.property for violation in found}
    assert broken == {"duplicate"}
    assert metrics["disagreements"] == 1
    assert dpg.SCENARIO.is_reported(broken, metrics, configuration)


@pytest.mark.parametrize("service", ["lan", "sequencer", "bounded-delay"])
def test_an_ordinary_restart_is_not_reported(service: str) -> None:
    network = "medium" if service == "lan" else "mesh"
    configuration = dpg.Configuration(
        members=4, messages=400, rate=400.0, crashes=2, loss=0.02, service=service, network=network
    )
    for seed in range(3):
        assert dpg.run(configuration, seed, None)["disagreements"] == 0
