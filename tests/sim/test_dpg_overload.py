"""More messages than a shared channel takes: members fall behind, and what they lack must still be told.

On such a channel reports wait in the same queues as messages. A member that hears every message may then lack
the order of two of them for so long that the others tell no more of it. Each of these runs once halted for
good, or guessed that order when Deliv_Cycle was over, and most often wrongly.
"""

import pytest

from antiphon.sim.scenarios import find_scenario
from antiphon.trace.recorder import MemoryRecorder

OVERLOADED = {
    9: {"members": 6, "rate": 3000.0},
    26: {"members": 5, "rate": 6000.0},
    27: {"members": 6, "rate": 12000.0, "churn": 1},
    44: {"members": 5, "rate": 1500.0},
    53: {"members": 8, "rate": 3000.0},
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", OVERLOADED)
def test_an_overloaded_channel_neither_halts_the_group_nor_breaks_its_order(seed: int) -> None:
    scenario = find_scenario("dpg")
    configuration = scenario.configure({"messages": 1500, "size": 100, **OVERLOADED[seed]})
    metrics = scenario.run(configuration, seed, MemoryRecorder("overload"))
    assert metrics["finished"]
    assert metrics["violated"] == 0
    assert metrics["unnoticed"] == 0


def test_a_lost_message_is_not_placed_before_what_its_sender_sent_earlier() -> None:
    """Its sender is away, so nobody has it; only the message after it tells that there was one.

    Placed by its tag alone it stood before two others of its sender, which were then taken for repetitions.
    """
    scenario = find_scenario("dpg")
    parameters = {
        "members": 2, "messages": 39, "size": 10, "rate": 78.0, "delay_ms": 5.0, "loss": 0.03, "churn": 1,
        "calm_ms": 100.0,
    }  # fmt: skip
    metrics = scenario.run(scenario.configure(parameters), 503591, MemoryRecorder("placed too early"))
    assert metrics["finished"]
    assert metrics["violated"] == 0
