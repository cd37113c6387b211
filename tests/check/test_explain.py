"""The wording of explanations where it depends on the facts."""

from antiphon.check import explain
from antiphon.core.ids import MessageId

MESSAGE = MessageId("a", 0)


def test_a_declaration_is_named_by_its_kind() -> None:
    stable = explain.never_received("b", "stable", 4, MESSAGE, "c")
    discard = explain.never_received("b", "discard", 4, MESSAGE, "c")
    assert stable.startswith("Let b declare a:0 stable (step 4).")
    assert discard.startswith("Let b discard a:0 (step 4).")
    assert "c never receives it" in stable


def test_lateness_here_and_elsewhere_are_told_apart() -> None:
    here = explain.received_later("b", "stable", 4, MESSAGE, "b", 7)
    elsewhere = explain.received_later("b", "stable", 4, MESSAGE, "c", 7)
    assert "But b first receives it afterwards (step 7): a contradiction." in here
    assert "But the declaration happened before c first received it (step 7)" in elsewhere


def test_long_lists_are_cut() -> None:
    def told(count: int) -> str:
        sites = [f"s{index}" for index in range(count)]
        return explain.misaddressed("z", 1, MESSAGE, "a", 0, sites)

    assert "(step 0) to no member, only" in told(0)
    assert "(step 0) to s0, only" in told(1)
    assert "(step 0) to s0 and s1, only" in told(2)
    assert "to s0, s1, s2, s3, s4 and s5, only" in told(6)
    assert "to s0, s1, s2, s3, s4 and 2 more, only" in told(7)
