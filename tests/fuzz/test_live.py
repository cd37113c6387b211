"""A liar in a live group, with a key and without: no member ends, and the others soon deliver again."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from antiphon.core.ids import MessageId
from antiphon.protocols.dpg.order import NUMBER_TAKEN
from tests.fuzz.judging import After
from tests.fuzz.liar import SITES
from tests.fuzz.live import LiveOutcome, LivePlan, Reading, _is_granted, play
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


@pytest.mark.parametrize(
    ("property_", "site", "number", "is_granted"),
    [
        ("atomicity", "m0", 1, True),
        ("atomicity", "m0", 2, False),
        ("atomicity", "m1", 1, False),
        ("atomicity", "m0", 3, False),
        ("atomicity", "m0", 4, True),
        ("total", None, 1, False),
        ("fifo", "m0", 1, False),
    ],
)
def test_only_what_a_member_has_told_is_granted(
    property_: str, site: str | None, number: int, is_granted: bool
) -> None:
    """Messages 1 and 2 were sent before the recovery, 3 and 4 after it; m0 told of all but the second."""
    after = After(SITES, 10, 20)
    after._sent_ns = {MessageId("m1", each): 7 * each for each in (1, 2, 3, 4)}
    reading = Reading.__new__(Reading)
    reading.group = SimpleNamespace(name="m0")  # type: ignore[assignment]
    reading.passed_over = {MessageId("m1", 1): "late", MessageId("m1", 3): "late"}
    reading.passed_over[MessageId("m1", 4)] = NUMBER_TAKEN
    reading.disagreed = False
    found = SimpleNamespace(property=property_, site=site, sender="m1", number=number)
    assert _is_granted(found, after, [reading]) == is_granted  # type: ignore[arg-type]
    reading.disagreed = True
    assert _is_granted(found, after, [reading]) == (is_granted or property_ == "total")  # type: ignore[arg-type]
