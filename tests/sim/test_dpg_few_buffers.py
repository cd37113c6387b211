"""Members with hardly any ordering buffers: they deliver, slowly, and keep their spells."""

from typing import Any

import pytest

from antiphon.core.errors import UsageError
from antiphon.sim.scenarios.dpg import SCENARIO, Configuration

FEW: dict[str, Any] = {"members": 4, "messages": 120, "rate": 400.0, "loss": 0.05, "ordering_buffers": 2}


def run(knobs: Configuration, seed: int = 3) -> dict[str, Any]:
    found = SCENARIO.run(knobs, seed, None)
    assert (found["finished"], found["violated"]) == (True, 0)
    return dict(found)


def test_two_ordering_buffers_suffice_to_keep_a_spell() -> None:
    found = run(Configuration(**FEW))
    assert found["deliveries"] == 4 * 120
    assert found["spells"] == 4, "no member had to begin again"
    assert found["seizures"] > 0


def test_bodies_leave_slowly_while_a_member_slows_the_group() -> None:
    found = [run(Configuration(**FEW, remove_ms=40.0), seed)["spells"] for seed in (0, 1)]
    assert sum(found) <= 15, "if bodies left as soon as they may, there would be 25 spells"


def test_a_body_is_not_kept_for_less_than_no_time() -> None:
    with pytest.raises(UsageError):
        Configuration(remove_ms=-1.0)
