"""Causal order by receipt, by named cases, in the notation of tests/histories.py."""

import pytest

from antiphon.check.checkers import check_trace
from antiphon.check.verdict import Witness
from tests.histories import history

RECEIVED_ONLY = """
    a: !a0
    b: ?a0 !b0 a0 b0
    c: b0 a0"""

CASES = {
    "what was only received precedes too": (1, 0, RECEIVED_ONLY),
    "what came after the send does not": (0, 0, "a: !a0\nb: !b0 ?a0 a0 b0\nc: b0 a0"),
    "kept": (0, 0, "a: !a0\nb: ?a0 !b0 a0 b0\nc: a0 b0"),
    "by delivery": (1, 1, "a: !a0\nb: ?a0 a0 !b0 b0\nc: b0 a0"),
    "without receive rows deliveries show receipts": (1, 1, "a: !a0\nb: a0 !b0 b0\nc: b0 a0"),
    "over two senders": (1, 0, "a: !a0>b,d\nb: ?a0 !b0>c\nc: ?b0 !c0>d\nd: c0 a0"),
    "not delivered later": (0, 0, "a: !a0>b\nb: ?a0 !b0>c\nc: b0"),
    "received by a site that was absent later": (0, 0, "a: !a0\nb: ?a0 - + !b0 a0 b0\nc: b0 a0"),
    "delivered by a site that was absent": (1, 1, "a: !a0\nb: ?a0 a0 - + !b0 b0\nc: b0 a0"),
    "what no member sent": (1, 0, "b: ?x0 !b0 b0 x0\nc: b0 x0"),
}


@pytest.mark.parametrize(("by_receipt", "by_delivery", "text"), CASES.values(), ids=CASES.keys())
def test_effects_before_their_causes(by_receipt: int, by_delivery: int, text: str) -> None:
    events, run, _ = history(text)
    found = [violation.site for violation in check_trace(events, run, ["causal-receipt"])]
    # A member that sends b0 before it delivers what it had received breaks no order by delivery.
    assert len([site for site in found if site != "b"]) == by_receipt
    assert len(check_trace(events, run, ["causal"])) == by_delivery


def test_a_member_delivers_what_it_had_received_before_its_own_message() -> None:
    events, run, _ = history("a: !a0\nb: ?a0 !b0 b0 a0")
    (violation,) = check_trace(events, run, ["causal-receipt"])
    assert violation.explanation == (
        "Let b deliver b:0 (step 2). Because b received a:0 (step 0) before it sent b:0 (step 1), a:0 "
        "precedes b:0. But b delivers a:0 only afterwards (step 3): a contradiction."
    )
    assert violation.witness == (
        Witness("b", 2, "b", 0),
        Witness("b", 3, "a", 0),
        Witness("b", 0, "a", 0),
        Witness("b", 1, "b", 0),
    )


def test_it_is_judged_only_where_it_is_asked_for() -> None:
    events, run, _ = history(RECEIVED_ONLY)
    assert "causal-receipt" not in {violation.property for violation in check_trace(events, run)}
