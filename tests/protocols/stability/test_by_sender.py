"""By the sender: what polls and answers are taken, each at the value where it decides."""

from collections.abc import Iterable
from random import Random

import pytest

from antiphon.core.effects import CancelTimer, Effect, Multicast, Send, SetTimer, Stable
from antiphon.core.inputs import Received, RoundTriggered, Suspected, TimerFired
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.base import Configuration
from antiphon.protocols.stability.by_sender import POLL, BySender, HoldAnswer, SenderPoll
from antiphon.protocols.stability.riding import LoneRow

VIEW = 7


def sender(held: int = 3, **knobs: object) -> BySender:
    """Member a of three, which has sent and holds these first messages of its own."""
    member = BySender("a", "abc", Configuration(view=VIEW, **knobs), Random(1))  # type: ignore[arg-type]
    member.hold("a", held)
    return member


def polling() -> BySender:
    member = sender()
    assert Multicast(SenderPoll(3, 0, True, VIEW)) in member.handle(0, RoundTriggered())
    return member


def answer(held: int, stable: int = 0) -> HoldAnswer:
    return HoldAnswer(held, stable, VIEW)


def hear(member: BySender, site: str, pdu: Pdu) -> list[Effect]:
    return member.handle(0, Received(site, pdu))


def polls(effects: Iterable[Effect]) -> list[Effect]:
    return [effect for effect in effects if not isinstance(effect, SetTimer | CancelTimer)]


@pytest.mark.parametrize(
    ("site", "pdu", "ignored"),
    [
        ("z", SenderPoll(1, 0, True, VIEW), 1),
        ("a", answer(1), 1),
        ("b", LoneRow(b"", VIEW), 1),
        ("b", SenderPoll(1, 0, True, VIEW + 1), 0),
        ("b", HoldAnswer(9, 0, VIEW + 1), 0),
    ],
)
def test_only_polls_and_answers_of_other_members_of_this_view_count(
    site: str, pdu: Pdu, ignored: int
) -> None:
    member = polling()
    assert hear(member, site, pdu) == []
    assert member.ignored == ignored


def test_a_poll_is_sent_when_something_is_not_stable_and_repeated_to_those_behind() -> None:
    member = sender(0)
    assert member.handle(0, RoundTriggered()) == []
    assert member.handle(0, TimerFired(POLL)) == []
    member.hold("a", 3)
    assert [type(each) for each in member.handle(0, RoundTriggered())] == [Multicast, SetTimer]
    assert member.handle(0, RoundTriggered()) == []
    hear(member, "b", answer(3))
    for other in (TimerFired("other"), Suspected("b")):
        assert member.handle(0, other) == []
    again = member.handle(0, TimerFired(POLL))
    assert polls(again) == [Multicast(SenderPoll(3, 0, True, VIEW), ("c",))]


def test_where_nothing_is_lost_no_timer_is_set() -> None:
    assert [type(each) for each in sender(repetition=None).handle(0, RoundTriggered())] == [Multicast]


def test_a_poll_ends_when_all_hold_what_it_asks_for() -> None:
    member = polling()
    member.hold("a", 4)
    assert hear(member, "b", answer(3)) == []
    assert hear(member, "c", answer(2)) == []
    found = hear(member, "c", answer(3))
    assert found == [CancelTimer(POLL), Multicast(SenderPoll(4, 3, False, VIEW)), Stable("a", 0, 3)]
    assert hear(member, "c", answer(4, 3)) == []
    assert not member.under_way


def test_an_answer_holds_no_more_than_was_sent() -> None:
    member = polling()
    assert hear(member, "b", answer(4)) == []
    assert (member.ignored, member.held_by("b")) == (1, 0)
    hear(member, "b", answer(3))
    assert (member.ignored, member.held_by("b")) == (1, 3)


def test_a_result_that_was_lost_is_told_again_unless_a_poll_is_under_way() -> None:
    member = polling()
    assert hear(member, "b", answer(2, 0)) == []
    for site in "bc":
        hear(member, site, answer(3))
    assert member.handle(0, RoundTriggered()) == []
    assert hear(member, "b", answer(3, 3)) == []
    assert hear(member, "b", answer(3, 2)) == [Send("b", SenderPoll(3, 3, False, VIEW))]
    member.hold("a", 4)
    member.handle(0, RoundTriggered())
    assert hear(member, "b", answer(3, 2)) == []


@pytest.mark.parametrize(
    ("held", "told", "stable", "taken"),
    [(2, 3, 2, True), (2, 3, 3, False), (3, 2, 3, False), (3, 3, 3, True)],
)
def test_what_is_stable_is_held_here_and_sent_there(held: int, told: int, stable: int, taken: bool) -> None:
    member = sender()
    member.hold("b", held)
    found = hear(member, "b", SenderPoll(told, stable, True, VIEW))
    expected = [Stable("b", 0, stable), Send("b", HoldAnswer(held, stable, VIEW))]
    assert found == (expected if taken else [])
    assert member.ignored == int(not taken)
    if taken:
        assert hear(member, "b", SenderPoll(told, stable, False, VIEW)) == []
        assert hear(member, "b", SenderPoll(told, stable - 1, False, VIEW)) == []
