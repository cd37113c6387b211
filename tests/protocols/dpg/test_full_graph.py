"""A member whose graph has no room begins a new spell: it does not guess an order that it does not know."""

import pytest

from antiphon.core.effects import Absent, Deliver, Present
from antiphon.core.inputs import Received
from antiphon.core.time import MILLISECOND_NS
from antiphon.protocols.dpg.spells import State
from tests.protocols.harness.dpg_group import ChosenTags, Lan, message

ROOM = 2


def filled(monkeypatch: pytest.MonkeyPatch, member: str, messages: int) -> Lan:
    """A member that has received messages of unknown order from `b`, with room for two."""
    monkeypatch.setattr("antiphon.protocols.dpg.member.Tags", ChosenTags())
    lan = Lan("abc", graph_limit=ROOM)
    for number in range(messages):
        receive(lan, member, number)
    return lan


def receive(lan: Lan, member: str, number: int) -> None:
    lan.give(member, Received("b", message(5 + number, number=number), after_loss=True))


def wait_alone(lan: Lan, member: str, span_ns: int) -> None:
    """Let time pass for one member, which hears no other."""
    lan.misses = lambda _source, _target, _pdu: True
    lan.timers = {key: time for key, time in lan.timers.items() if key[0] == member}
    lan.pass_time(span_ns / MILLISECOND_NS)


@pytest.mark.parametrize("is_refused", [False, True], ids=["full", "one more"])
def test_the_spell_ends_where_a_place_would_be_chosen_without_all_vertices(
    monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    lan = filled(monkeypatch, "c", ROOM)
    wait_alone(lan, "c", lan.knobs.deliv_cycle_ns - MILLISECOND_NS)
    if is_refused:
        receive(lan, "c", ROOM)
    assert not lan.of("c", Absent), "the places may still become known"
    wait_alone(lan, "c", MILLISECOND_NS)
    assert bool(lan.of("c", Absent)) is is_refused
    assert (lan.members["c"]._presence.state is State.LISTENING) is is_refused
    assert bool(lan.of("c", Deliver)) is not is_refused


def test_what_reports_had_a_cycle_to_tell_again_is_not_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    lan = filled(monkeypatch, "c", ROOM + 1)
    order, cycle_ns = lan.members["c"]._order, lan.knobs.deliv_cycle_ns
    assert order.lacks_vertices(lan.now + cycle_ns - 1)
    assert not order.lacks_vertices(lan.now + cycle_ns)
    order.forget_graph()
    assert not order.lacks_vertices(lan.now), "a new spell has room"


def test_in_a_spell_without_a_new_place_the_first_member_by_name_chooses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else all members of an overloaded group would end spell after spell."""
    lan = filled(monkeypatch, "a", ROOM + 1)
    delivery, due_ns = lan.members["a"]._delivery, lan.now + lan.knobs.deliv_cycle_ns
    lan.members["a"]._order._refused_ns = due_ns
    assert not delivery.must_yield(due_ns, is_first=True)
    assert delivery.must_yield(due_ns, is_first=False)
    delivery._begin_index = -1
    assert delivery.must_yield(due_ns, is_first=True), "a place was found in this spell: others go on"
    delivery.take_part()
    assert not delivery.must_yield(due_ns, is_first=True)


def test_an_own_message_that_was_passed_over_is_not_handed_over_anew() -> None:
    lan = Lan("ab")
    lan.misses = lambda _source, _target, _pdu: True
    lan.admit("a")
    member = lan.members["a"]
    (tag,) = member._own.unlocated
    member._order.skip(tag)
    member._end_spell(lan.now)
    lan.wait_for(lambda: member._presence.state is State.PRESENT)
    assert lan.of("a", Present)
    assert not member._own.unlocated
