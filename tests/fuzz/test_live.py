"""A liar in a live group, with a key and without: nobody ends, and the others soon deliver again."""

import os
from pathlib import Path

import pytest

from tests.fuzz.live import LiveOutcome, LivePlan, play
from tests.fuzz.plans import MEMBER, STALE, STRANGER

PDUS = int(os.environ.get("ANTIPHON_FUZZ_LIVE_PDUS", "2000"))
"""PDUs of each liar."""
PATIENCE_S = 30.0
"""How long a recovery may take here: `make fuzz` demands two seconds, this is to pass on any machine."""


@pytest.mark.parametrize(
    ("order", "service", "liar", "keyed"),
    [
        ("fifo", "sequencer", MEMBER, False),
        ("fifo", "sequencer", STRANGER, True),
        ("causal", "sequencer", MEMBER, True),
        ("sequencer", "sequencer", STRANGER, False),
        ("sequencer", "sequencer", MEMBER, True),
        ("total", "sequencer", MEMBER, False),
        ("total", "lan", STALE, True),
        ("total", "bounded-delay", MEMBER, False),
        ("total-across", "sequencer", MEMBER, False),
    ],
)
def test_a_live_group_outlives_its_liar(
    order: str, service: str, liar: str, keyed: bool, tmp_path: Path
) -> None:
    plan = LivePlan(order=order, service=service, liar=liar, keyed=keyed, pdus=PDUS, recovery_s=PATIENCE_S)
    outcome = play(plan, tmp_path)
    if not isinstance(outcome, LiveOutcome):
        pytest.fail(f"{outcome}\n{plan.command()}", pytrace=False)
    assert outcome.said == PDUS
    assert sum(outcome.drops.values()) > 0
