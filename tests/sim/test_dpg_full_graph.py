"""A group with far more under way than its members' graphs hold keeps its order, spell by spell."""

from dataclasses import replace

import pytest

from antiphon.protocols.dpg import DpgConfiguration
from antiphon.sim.scenarios.dpg import SCENARIO, Configuration

ROOM = 16


class Cramped(Configuration):
    """Graphs with little room: five members may have eighty messages under way."""

    def protocol_configuration(self) -> DpgConfiguration:
        return replace(super().protocol_configuration(), graph_limit=ROOM)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_full_graph_ends_a_spell_and_breaks_no_order(seed: int) -> None:
    knobs = Cramped(
        members=5, messages=200, rate=400.0, loss=0.05, window=16, service="bounded-delay", network="mesh"
    )
    found = SCENARIO.run(knobs, seed, None)
    assert found["finished"] is True
    assert (found["out_of_order"], found["missing"]) == (0, 0)
    assert int(found["spells"] or 0) > knobs.members, "the application was told of new spells"
