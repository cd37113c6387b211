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


@pytest.mark.parametrize("seed", OVERLOADED)
def test_an_overloaded_channel_neither_halts_the_group_nor_breaks_its_order(seed: int) -> None:
    scenario = find_scenario("dpg")
    configuration = scenario.configure({"messages": 1500, "size": 100, **OVERLOADED[seed]})
    metrics = scenario.run(configuration, seed, MemoryRecorder("overload"))
    assert metrics["finished"]
    assert metrics["violated"] == 0
    assert metrics["unnoticed"] == 0
