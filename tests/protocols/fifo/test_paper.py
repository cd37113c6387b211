"""Guo, section 2.1: the example runs of figures 2.1 to 2.5, with the PDUs of each."""

from antiphon.core.wire import Pdu
from antiphon.protocols.fifo import FifoConfiguration
from antiphon.protocols.fifo.pdus import Ask, Copy, Data, Position
from tests.protocols.harness.fifo_group import Group


def group(repair: str) -> Group:
    """A sender a and two receivers b and c."""
    return Group(3, FifoConfiguration(repair=repair))


def lose(target: str, number: int) -> "LoseOnce":
    return LoseOnce({target}, number)


class LoseOnce:
    """Loses the original multicast of a message on its way to some members."""

    def __init__(self, targets: set[str], number: int) -> None:
        self.targets = targets
        self.number = number

    def __call__(self, source: str, target: str, pdu: Pdu) -> bool:
        return isinstance(pdu, Data) and pdu.number == self.number and target in self.targets


def asks(members: Group) -> list[tuple[str, str]]:
    return [(source, to) for source, to, _ in members.said(Ask)]


def copies(members: Group) -> list[tuple[str, str, int]]:
    return [(source, to, pdu.number) for source, to, pdu in members.said(Copy)]


def test_figure_2_1_everyone_acknowledges_and_nothing_is_repeated() -> None:
    members = group("acknowledge")
    members.admit("a")
    members.pass_time(100)
    assert [(source, to, pdu.held) for source, to, pdu in members.said(Position)] == [
        ("b", "a", 1),
        ("c", "a", 1),
    ]
    assert copies(members) == []
    assert ("a", "repeat") not in members.timers
    assert members.delivered("b") == members.delivered("c") == ["a0"]


def test_figure_2_2_the_senders_timer_multicasts_again_what_one_has_not_acknowledged() -> None:
    members = group("acknowledge")
    members.drop = lose("c", 0)
    members.admit("a")
    members.pass_time(9)
    assert copies(members) == []
    members.pass_time(50)
    assert copies(members) == [("a", "*", 0)]
    assert asks(members) == []
    assert members.delivered("b") == members.delivered("c") == ["a0"]
    assert ("a", "repeat") not in members.timers


def test_figure_2_3_a_request_goes_to_the_sender_which_multicasts_again() -> None:
    members = group("request")
    members.drop = lose("c", 1)
    for _ in range(3):
        members.admit("a")
    members.pass_time(100)
    assert asks(members) == [("c", "a")]
    assert copies(members) == [("a", "*", 1)]
    assert members.delivered("b") == members.delivered("c") == ["a0", "a1", "a2"]


def test_figure_2_4_one_request_to_all_spares_the_others_theirs() -> None:
    members = group("request-all")
    members.drop = LoseOnce({"b", "c"}, 1)
    for _ in range(3):
        members.admit("a")
    members.pass_time(100)
    assert [to for _, to in asks(members)] == ["*"]
    assert copies(members) == [("a", "*", 1)]
    assert members.delivered("b") == members.delivered("c") == ["a0", "a1", "a2"]


def test_figure_2_4_a_request_suppresses_those_of_others_that_miss_the_same() -> None:
    members = group("request-all")
    lost = LoseOnce({"b", "c"}, 1)
    members.drop = lambda source, target, pdu: (
        lost(source, target, pdu) or (isinstance(pdu, Ask) and target == "a")
    )
    for _ in range(3):
        members.admit("a")
    members.pass_time(8)
    assert len(asks(members)) == 1
    members.pass_time(100)
    assert len(asks(members)) > 1


def test_figure_2_5_one_holder_answers_and_the_others_do_not() -> None:
    members = group("any")
    members.drop = lose("c", 1)
    for _ in range(3):
        members.admit("a")
    members.pass_time(100)
    assert asks(members) == [("c", "*")]
    ((_, to, number),) = copies(members)
    assert (to, number) == ("*", 1)
    assert members.delivered("b") == members.delivered("c") == ["a0", "a1", "a2"]


def test_figure_2_5_a_receiver_may_be_the_one_that_answers() -> None:
    members = group("any")
    members.drop = lose("c", 1)
    for _ in range(3):
        members.admit("a")
    members.settle()
    members.cut.add("a")
    members.pass_time(100)
    assert copies(members) == [("b", "*", 1)]
    assert members.delivered("c", "a") == ["a0", "a1", "a2"]


def test_hybrid_asks_the_sender_and_is_answered_alone() -> None:
    members = group("hybrid")
    members.drop = lose("c", 1)
    for _ in range(3):
        members.admit("a")
    members.pass_time(100)
    assert asks(members) == [("c", "a")]
    assert copies(members) == [("a", "c", 1)]


def test_hybrid_multicasts_what_several_miss() -> None:
    members = group("hybrid")
    members.drop = LoseOnce({"b", "c"}, 1)
    for _ in range(3):
        members.admit("a")
    members.pass_time(100)
    assert sorted(asks(members)) == [("b", "a"), ("c", "a")]
    assert [(source, number) for source, _, number in copies(members)] == [("a", 1), ("a", 1)]
    assert [to for _, to, _ in copies(members)][1] == "*"


def test_hybrid_turns_to_another_holder_when_the_sender_does_not_answer() -> None:
    members = group("hybrid")
    members.drop = lose("c", 1)
    for _ in range(3):
        members.admit("a")
    members.settle()
    members.pass_time(0)
    members.cut.add("a")
    members.pass_time(200)
    assert copies(members) == [("b", "c", 1)]
    assert members.delivered("c", "a") == ["a0", "a1", "a2"]


def test_the_last_message_of_a_burst_is_not_forgotten() -> None:
    for repair in ("acknowledge", "request", "request-all", "any", "hybrid"):
        members = group(repair)
        members.drop = LoseOnce({"b", "c"}, 1)
        members.admit("a")
        members.admit("a")
        members.pass_time(100)
        assert members.delivered("b") == members.delivered("c") == ["a0", "a1"], repair
