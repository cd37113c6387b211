"""The names that a member has met."""

from antiphon.live import names
from antiphon.live.names import MetNames


def test_names_are_met_as_senders_and_as_destinations() -> None:
    met = MetNames()
    met.read("a", None)
    met.read("a", frozenset({"b", "c"}))
    met.read("d", [None, frozenset({"e"})])
    assert all(name in met for name in "abcde")
    assert "f" not in met


def test_each_destination_is_met_also_if_others_are_known() -> None:
    met = MetNames()
    met.read("a", frozenset({"a", "b"}))
    assert "b" in met
    met.read("a", [frozenset({"b"}), frozenset({"c", "a"})])
    assert [*met._met] == ["a", "b", "c"]


def test_the_names_met_first_are_forgotten() -> None:
    met = MetNames()
    met.meet(str(number) for number in range(names.MOST_NAMES + 1))
    assert "0" not in met
    assert "1" in met
    assert str(names.MOST_NAMES) in met
