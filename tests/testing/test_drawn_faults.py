"""Members that join and leave groups, are killed, paused and cut off: the promises hold, and all goes on."""

import os

import pytest

from tests.testing.drawn_faults import ORDERS, judge

SEEDS = int(os.environ.get("ANTIPHON_SWARM_SEEDS", "3"))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("order", ORDERS)
def test_drawn_faults_break_no_promise(order: str, seed: int) -> None:
    judge(order, seed)
