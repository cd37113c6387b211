"""Pairwise order by named cases, in the notation of tests/histories.py."""

import pytest

from antiphon.check.checkers import check_trace
from antiphon.check.verdict import Witness
from tests.histories import history

CIRCLE = """
    a: !a0>a,c a0 b0
    b: !b0>a,b b0 c0
    c: !c0>b,c c0 a0"""

CASES = {
    "all agree": (0, "a: !a0 a0 b0\nb: !b0 a0 b0"),
    "three messages in a circle, and no two sites differ": (0, CIRCLE),
    "two sites differ": (1, "a: !a0 a0 b0\nb: !b0 b0 a0"),
    "two sites differ about messages with others between": (1, "a: !a0 a0 c0 b0\nb: !b0 b0 d0 a0"),
    "every pair of sites counts once": (2, "a: !a0 a0 b0 c0\nb: !b0 c0 b0 a0\nc: !c0 a0 b0 c0"),
    "one batch against single deliveries": (1, "a: !a0..1 a0..1\nb: a1 a0"),
    "what is missing does not matter": (0, "a: !a0 a0 b0 c0\nb: !b0 b0\nc: !c0 a0 c0"),
    "a message delivered again makes no statement": (0, "a: !a0 a0 b0 a0\nb: !b0 a0 b0"),
}


@pytest.mark.parametrize(("count", "text"), CASES.values(), ids=CASES.keys())
def test_pairs_of_sites_that_differ(count: int, text: str) -> None:
    events, run, _ = history(text)
    assert len(check_trace(events, run, ["pairwise"])) == count


def test_it_is_judged_only_where_it_is_asked_for() -> None:
    events, run, _ = history("a: !a0 a0 b0\nb: !b0 b0 a0")
    assert {violation.property for violation in check_trace(events, run)} == {"total"}


def test_the_story_names_both_sites() -> None:
    events, run, _ = history("a: !a0 a0 c0 b0\nb: !b0 b0 a0")
    (violation,) = check_trace(events, run, ["pairwise"])
    assert (violation.site, violation.sender, violation.number) == (None, "a", 0)
    assert violation.explanation == (
        "Let a deliver a:0 (step 1) before b:0 (step 3). Because any two sites deliver what they share in "
        "one order, b does so too. But b delivers b:0 (step 1) before a:0 (step 2): a contradiction."
    )
    assert violation.witness == (
        Witness("a", 1, "a", 0),
        Witness("a", 3, "b", 0),
        Witness("b", 1, "b", 0),
        Witness("b", 2, "a", 0),
    )
