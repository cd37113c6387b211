"""Each property by tables of named cases, in the notation of tests/histories.py."""

import pytest

from antiphon.check.checkers import CHECKERS, check_all, check_trace
from antiphon.check.verdict import Violation, Witness, count_by_property
from antiphon.core.errors import InputError
from antiphon.core.recording import OF_EVENTS, PROPERTIES
from antiphon.trace.schema import Event, Run, Trace
from tests.histories import history

CASES = {
    "nothing happened": "a: +",
    "everyone delivers everything": """
        a: !a0 a0 b0
        b: a0 !b0 b0""",
    "batches are consecutive messages": """
        a: !a0..2 a0..1 a2 =a0..2
        b: ?a0 a0 a1..2""",
    # integrity
    "unsent: each delivery counts, also a duplicate one": """
        expect: integrity 2 duplicate 1
        a: b7 !a0 b7
        b: +""",
    "without any send row an unsent message proves nothing": """
        a: b7 b8""",
    "not addressed to the site": """
        expect: integrity 1
        a: !a0>a a0
        b: a0""",
    "not a member of the group": """
        groups: g=a
        expect: integrity 1
        a: !a0@g a0
        b: a0""",
    "the sender is no destination of its own unless it is named": """
        expect: integrity 1
        a: !a0>b a0
        b: a0""",
    "a group that is not in the map means every site that logged": """
        groups: g=a
        a: !a0@h a0
        b: a0""",
    "no group means every site that logged": """
        groups: g=a,c
        a: !a0 a0
        b: a0""",
    "of several sends the sender's own counts": """
        a: !b0>a
        b: !b0>b b0 !b0>a""",
    "of strangers' sends the one of the least site counts": """
        expect: integrity 1
        a: !c0>b
        b: !c0>a c0
        d: c0""",
    # duplicate
    "each extra delivery counts": """
        expect: duplicate 2
        a: !a0 a0 a0 a0""",
    "a duplicate within and between batches": """
        expect: duplicate 2
        a: !a0..2 a0..2 a1..2""",
    # fifo
    "each delivery below the highest before it counts": """
        expect: fifo 2 causal 1
        a: !a0..2 a2 a0 a1""",
    "senders are judged apart": """
        a: !a0 !a1 a1 b0
        b: !b0 !b1 a1 b0""",
    "a late duplicate breaks no order": """
        expect: duplicate 1
        a: !a0..1 a0..1 a0""",
    # total
    "two sites disagree": """
        expect: total 1
        a: !a0 a0 b0
        b: !b0 b0 a0""",
    "a cycle over three sites with overlapping destinations": """
        expect: total 1
        a: !a0>a,c a0 b0
        b: !b0>a,b b0 c0
        c: !c0>b,c c0 a0""",
    "two components": """
        expect: total 2
        a: !a0 a0 b0 !a1 a1 b1
        b: !b0 b0 a0 !b1 b1 a1""",
    "gaps are not disorder": """
        a: !a0>a,b !a1>a !a2>b !a3 a0 a1 a3
        b: a0 a2 a3""",
    "a message that follows itself makes no arc": """
        expect: duplicate 1
        a: !a0 a0 a0""",
    # rows of one step
    "rows of one step are in no order": """
        a: !a0..1 a1|a0 b0|c0
        b: !b0 a0..1 c0 b0
        c: !c0 a0 a1 b0|c0""",
    "rows of one step come before those of the next": """
        expect: total 1 fifo 2 causal 3
        a: !a0..2 a1|a2 a0
        b: a0 a1 a2
        c: a2|a1|a0
        d: a0 a2 a1""",
    "a batch is in order within its step": """
        expect: total 1
        a: !a0..1 a0..1|c0
        b: !b0 a1 b0
        c: !c0 b0 a0
        expect: atomicity 5""",
    "what a send shares its step with does not precede it": """
        a: !a0>b,c
        b: a0|!b0>c
        c: b0 a0""",
    "sends of one step do not precede one another": """
        expect: fifo 1
        a: !a0>b|!a1>b
        b: a1 a0""",
    "a declaration and a reception of one step are in no order": """
        a: !a0
        b: =a0|?a0""",
    # domains
    "domains are judged apart": """
        a: !a0%p !a1%q a1%q a0%p b0%q
        b: !b0%q b0%q a0%p
        c: a1%q a0%p b0%q
        expect: atomicity 1 total 0""",
    "a cycle within a domain": """
        expect: total 1
        a: !a0%p a0%p b0%p
        b: !b0%p b0%p a0%p""",
    # causal
    "a reply before what it answers": """
        expect: causal 1 total 1
        a: !a0 a0 b0
        b: a0 !b0 b0
        c: b0 a0""",
    "through a third site that the late one knows nothing of": """
        expect: causal 1
        a: !a0>b,d
        b: a0 !b0>c
        c: b0 !c0>d
        d: c0 a0""",
    "what was only received does not precede": """
        a: !a0>b,c
        b: ?a0 !b0>c a0
        c: b0 a0""",
    "concurrent messages may come in any order": """
        expect: total 1
        a: !a0 a0 b0
        b: !b0 a0 b0
        c: b0 a0""",
    "counted once however many precede": """
        expect: causal 1
        a: !a0..2>b a0..2
        b: a0..2 !b0>c
        c: b0 a0 a1 a2
        expect: integrity 6 atomicity 0""",
    "an unsent message precedes what is sent after its delivery": """
        expect: causal 1 integrity 2
        a: z0 !b0>c
        c: b0 z0""",
    "a message that precedes itself is no violation by itself": """
        a: a0 !a0""",
    "two messages that precede one another": """
        expect: causal 1
        a: b0 !a0>b,c
        b: a0 !b0>a,c
        c: a0 b0""",
    # atomicity
    "missing at a present site": """
        expect: atomicity 1
        a: !a0 a0
        b: +""",
    "missing at a destination that logged nothing": """
        expect: atomicity 1
        a: !a0>a,b a0""",
    "missing at a member of the group that logged nothing": """
        groups: g=a,b
        expect: atomicity 1
        a: !a0@g a0""",
    "delivered by no site": """
        a: !a0
        b: +""",
    "delivered only where it does not belong": """
        expect: integrity 1 atomicity 1
        a: !a0>a
        b: a0""",
    "an absent site may lack what came before, after and between its spells": """
        a: !a0..6 a0..6
        b: a1 a2 - + a4 a5""",
    "an absent site must not lack what lies within a spell": """
        expect: atomicity 1
        a: !a0..6 a0..6
        b: - + a1 a3""",
    "a return without an absence begins no spell": """
        expect: atomicity 1
        a: !a0..2 a0..2
        b: a0 + a2 -""",
    "an absent site without deliveries lacks nothing": """
        a: !a0..1 a0..1
        b: -""",
    "the agreed order reaches over other senders": """
        expect: atomicity 1
        a: !a0 a0 b0 c0
        b: !b0 - a0 c0
        c: !c0 a0 b0 c0""",
    "what the order does not fix is not between": """
        a: !a0>a,b,c !a1>a,b,c a0 a1
        b: a0 a1 -
        c: a0 a1
        d: !d0>b,d d0""",
    "without total order the sender's numbers tell": """
        expect: total 1 atomicity 1
        a: !a0..3 a0..3 b0 c0
        b: !b0 a0..3 c0 b0
        c: !c0 - a1 a3""",
    "without total order another sender's messages are not between": """
        expect: total 1
        a: !a0..1 a0 d9 a1 b0 c0
        b: !b0 a0 d9 a1 c0 b0
        c: !c0 - a0 a1
        d: !d9 a0 d9 a1 b0 c0""",
    "a site and a message count once over all spells": """
        expect: total 1 atomicity 1 duplicate 2
        a: !a0..2 a0..2 b0 c0
        b: !b0 a0..2 c0 b0
        c: !c0 - a0 a2 - a0 a2""",
    # stability
    "stable once all have it": """
        a: !a0 a0 =a0
        b: ?a0 a0""",
    "a destination never received it": """
        expect: stability 1
        a: !a0 =a0
        b: +""",
    "a destination that logged nothing never received it": """
        expect: stability 1
        a: !a0>a,b a0 =a0
        expect: atomicity 1""",
    "the sender holds what it sent": """
        a: !a0>a =a0""",
    "a site that was absent is no witness": """
        a: !a0 =a0
        b: -""",
    "declared at a site before it receives there": """
        expect: stability 1
        a: !a0
        b: =a0 ?a0""",
    "a discard is a declaration": """
        expect: stability 1
        a: !a0
        b: ~a0 ?a0""",
    "only the first declaration of a site counts": """
        a: !a0
        b: ?a0 =a0 ~a0 =a0""",
    "each declaring site counts": """
        expect: stability 2
        a: !a0 =a0
        b: =a0""",
    "later at another site, as a message shows": """
        expect: stability 1
        a: !a0 =a0 !a1
        b: ?a1 ?a0""",
    "later at another site, as a chain over a third site shows": """
        expect: stability 1
        a: !a0>b =a0 !a1>c
        c: ?a1 !c0>b
        b: ?c0 ?a0""",
    "earlier or later, nothing shows": """
        a: !a0 !a1 =a0
        b: ?a1 ?a0""",
    "a message that no site sent is skipped": """
        a: =z0""",
    "at the declaring site only its own rows tell, even if the logs are impossible": """
        a: !a0>b
        b: ?c0 ?a0 =a0 !b0
        c: ?b0 !c0""",
    "hearing oneself is not hearing from another": """
        a: ?a1 !a2>b =z0 !a1>b
        b: ?a2 ?z0
        z: !z0>b""",
    "not addressed to the late site": """
        a: !a0>a =a0 !a1
        b: ?a1 ?a0""",
}


@pytest.mark.parametrize("text", CASES.values(), ids=CASES.keys())
def test_counts_of_every_property(text: str) -> None:
    events, run, expected = history(text)
    assert count_by_property(check_trace(events, run)) == expected


@pytest.mark.parametrize("name", PROPERTIES)
def test_some_case_violates_each_property(name: str) -> None:
    assert any(f"{name} " in text for text in CASES.values())


def only(text: str) -> Violation:
    events, run, _ = history(text)
    (violation,) = check_trace(events, run)
    return violation


def test_total_names_the_least_message_and_shows_a_shortest_cycle() -> None:
    violation = only(
        """
        a: !a0 a0 c0 b0
        b: !b0 a0 b0 c0
        c: !c0 c0 a0 b0"""
    )
    assert (violation.property, violation.site, violation.sender, violation.number) == ("total", None, "a", 0)
    assert violation.witness == (
        Witness("a", 1, "a", 0),
        Witness("a", 2, "c", 0),
        Witness("c", 1, "c", 0),
        Witness("c", 2, "a", 0),
    )
    assert violation.explanation == (
        "Let all sites deliver in one order. Because a delivers a:0 (step 1) before c:0 (step 2) and c "
        "delivers c:0 (step 1) before a:0 (step 2), a:0 comes before itself in that order. But no message "
        "comes before itself: a contradiction. 3 messages are entangled in this way."
    )


def test_a_repeated_message_is_no_cycle_of_its_own() -> None:
    events, run, _ = history("a: !a0 a0 a0 b0\nb: !b0 b0 a0")
    (violation,) = check_trace(events, run, ["total"])
    assert len(violation.witness) == 4


def test_causal_tells_the_whole_chain() -> None:
    violation = only(CASES["through a third site that the late one knows nothing of"])
    assert (violation.site, violation.sender, violation.number) == ("d", "c", 0)
    assert violation.explanation == (
        "Let d deliver c:0 (step 0). Because b delivered a:0 (step 0) before it sent b:0 (step 1) and c "
        "delivered b:0 (step 0) before it sent c:0 (step 1), a:0 precedes c:0. But d delivers a:0 only "
        "afterwards (step 1): a contradiction."
    )
    assert Witness("b", 1, "b", 0) in violation.witness


def test_causal_does_not_blame_a_message_on_itself() -> None:
    events, run, _ = history("a: a0 z0 !a0>a,b\nb: a0 a0 z0")
    (violation,) = (found for found in check_trace(events, run, ["causal"]) if found.site == "b")
    assert "z:0 precedes a:0" in violation.explanation


def test_every_explanation_reads_alike_and_names_its_rows() -> None:
    for text in CASES.values():
        events, run, _ = history(text)
        rows = {(event.site, event.step) for event in events}
        for violation in check_trace(events, run):
            assert violation.explanation.startswith("Let ")
            assert " Because " in violation.explanation
            assert " But " in violation.explanation
            assert "a contradiction." in violation.explanation
            assert violation.witness
            assert {(row.site, row.step) for row in violation.witness} <= rows
            for row in violation.witness:
                assert f"step {row.step})" in violation.explanation


def test_the_order_of_the_rows_given_does_not_matter() -> None:
    for text in CASES.values():
        events, run, _ = history(text)
        assert check_trace(events[::-1], run) == check_trace(events, run)


def test_chosen_properties_only() -> None:
    events, run, _ = history(CASES["two sites disagree"])
    assert check_trace(events, run, ["fifo"]) == []
    assert len(check_trace(events, run, ["total"])) == 1


def test_a_checker_for_every_property() -> None:
    assert tuple(CHECKERS) == OF_EVENTS


def test_runs_are_judged_apart() -> None:
    good, good_run, _ = history("a: !a0 a0", "good")
    bad, bad_run, _ = history("a: a0 !a1", "bad")
    found = check_all(Trace([*good, *bad], [good_run, bad_run]))
    assert found["good"] == []
    assert [violation.property for violation in found["bad"]] == ["integrity"]


def test_rows_of_other_runs_are_not_looked_at() -> None:
    good, run, _ = history("a: !a0 a0", "good")
    bad, _, _ = history("b: z0", "bad")
    assert check_trace([*good, *bad], run) == []


def test_rows_that_cannot_be_judged_are_refused() -> None:
    with pytest.raises(InputError, match="each row of site a is there twice"):
        check_trace([Event("run", "a", step, "present") for step in (1, 2)] * 2, Run("run"))


def test_a_long_log_is_judged_without_recursion() -> None:
    events, run, expected = history("a: !a0..1999 a0..1999\nb: a0..1999 =a0..1999")
    assert count_by_property(check_trace(events, run)) == expected
