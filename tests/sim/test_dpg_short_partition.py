"""A partition that ends before its members count as gone, under load: one side yields and goes on."""

import pytest

from antiphon.sim.scenarios.dpg import SCENARIO, Configuration


@pytest.mark.parametrize("seed", [1, 2])
def test_the_smaller_side_yields_although_the_larger_takes_up_its_numbers(seed: int) -> None:
    """The larger side follows on what the smaller one numbered, before the sides are counted."""
    knobs = Configuration(
        members=4, messages=6000, rate=3000.0, partitions=1, calm_ms=500.0, away_ms=800.0, network="mesh",
        service="sequencer", history=256,
    )  # fmt: skip
    found = SCENARIO.run(knobs, seed, None)
    assert (found["finished"], found["violated"]) == (True, 0)
    assert found["forks"] == 1, "one member was alone, and told its application what it delivered alone"
