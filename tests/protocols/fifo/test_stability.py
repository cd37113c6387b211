"""Reliable FIFO multicast with each stability protocol, with error detection, riding rows and the trigger."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import antiphon
from antiphon.core.effects import Admitted, CancelTimer, Discard, Rejected, Stable
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Received
from antiphon.core.packing import pack
from antiphon.core.time import SECOND_NS
from antiphon.core.wire import Pdu
from antiphon.protocols.fifo import FifoConfiguration
from antiphon.protocols.fifo.pdus import Ask, Copy, Data, RidingData, Sign, Status
from antiphon.protocols.stability import PDUS, PROTOCOLS, ROWS
from antiphon.protocols.stability.base import Configuration
from antiphon.protocols.stability.coordp import Information
from antiphon.protocols.stability.fulldist import Purpose
from antiphon.protocols.stability.gossip import Outcome, Rumour
from antiphon.protocols.stability.riding import LoneRow, Riding, decode_row, encode_row
from antiphon.protocols.stability.train import Carriage
from antiphon.sim.scenarios import fifo
from tests.protocols.harness.fifo_group import Group

EVERY: dict[str, dict[str, Any]] = {name: {"stability": name} for name in PROTOCOLS}
EVERY |= {f"rows {name}": {"stability": "fulldist", "rows": name} for name in ROWS if name != "whole"}
EVERY |= {"adaptive": {"trigger": "adaptive"}}
every_way = pytest.mark.parametrize("way", EVERY.values(), ids=list(EVERY))


def test_the_seven_are_there() -> None:
    assert list(PROTOCOLS) == [
        "coordp",
        "fulldist",
        "train",
        "gossip",
        "gossip-adaptive",
        "gossip-hops",
        "s-coordp",
        "s-train",
        "s-gossip",
    ]


# Every one of them releases what all hold, and nothing else


@every_way
def test_what_all_hold_is_stable_and_let_go(way: dict[str, Any]) -> None:
    members = Group(5, FifoConfiguration(**way))
    for name in members.names:
        members.admit(name, b"x")
        members.admit(name, b"y", b"z")
    members.pass_time(1_000)
    for name in members.names:
        stable = {
            (effect.sender, effect.number + n)
            for effect in members.of(name, Stable)
            for n in range(effect.count)
        }
        assert stable == {(sender, number) for sender in members.names for number in range(3)}
        assert members.members[name].figures()["kept_bytes"] == 0
        assert sum(effect.count for effect in members.of(name, Discard)) == 15


@every_way
def test_nothing_is_stable_while_one_lacks_it(way: dict[str, Any]) -> None:
    members = Group(4, FifoConfiguration(**way))
    members.drop = lambda _source, target, pdu: target == "c" and isinstance(pdu, Data | RidingData | Copy)
    members.admit("a")
    members.pass_time(800)
    assert not any(members.of(name, Stable, Discard) for name in members.names)


def tells_a_result(pdu: Pdu) -> bool:
    carried = getattr(pdu, "result", False) or getattr(pdu, "purpose", None) is Purpose.RESULT
    return isinstance(pdu, Information | Outcome) or carried


@every_way
@pytest.mark.parametrize("result", [0, 1])
def test_a_late_result_of_a_view_that_returned_delays_no_round(way: dict[str, Any], result: int) -> None:
    members = Group(5, FifoConfiguration(**way))
    for _ in range(2):
        members.admit("b")
        members.pass_time(300)
    results = [(source, pdu) for source, _, pdu in members.sent if tells_a_result(pdu)]
    rounds = {getattr(pdu, "round", 0): (source, pdu) for source, pdu in reversed(results)}
    late = [rounds[number] for number in sorted(rounds)][result : result + 1]
    members.depart("e")
    members.pass_time(500)
    members.come_back("e")
    members.pass_time(200)
    for source, pdu in late:
        for target in set("bcd") - {source}:
            members.give(target, Received(source, pdu))
    members.admit("c")
    members.pass_time(1_000)
    for name in "abcd":
        assert [effect.number for effect in members.of(name, Stable) if effect.sender == "c"] == [0]


@every_way
def test_lost_pdus_of_stability_cost_time_only(way: dict[str, Any]) -> None:
    members = Group(4, FifoConfiguration(**way))
    seen: dict[tuple[str, type], int] = {}

    def drop(source: str, _target: str, pdu: Any) -> bool:
        if type(pdu) not in PDUS:
            return False
        seen[source, type(pdu)] = seen.get((source, type(pdu)), 0) + 1
        return seen[source, type(pdu)] % 2 == 1

    members.drop = drop
    members.admit("a")
    members.pass_time(2_000)
    assert all(Stable("a", 0, 1) in members.of(name, Stable) for name in members.names)


@every_way
@pytest.mark.parametrize("victim", ["a", "d"])
def test_the_rest_goes_on_without_one_that_crashed_in_the_middle_of_a_round(
    way: dict[str, Any], victim: str
) -> None:
    members = Group(4, FifoConfiguration(**way))
    members.admit("b")
    members.settle()
    members.crash(victim)
    members.admit("c")
    members.pass_time(2_000)
    for name in set(members.names) - {victim}:
        assert {effect.sender for effect in members.of(name, Stable)} == {"b", "c"}
    members.restart(victim)
    members.pass_time(1_000)
    members.admit(victim)
    members.pass_time(1_000)
    assert all(Stable(victim, 0, 1) in members.of(name, Stable) for name in members.names)


@every_way
def test_a_group_at_rest_sets_no_timer_of_stability(way: dict[str, Any]) -> None:
    members = Group(5, FifoConfiguration(**way))
    for name in members.names:
        members.admit(name)
    members.pass_time(2_000)
    assert not [key for key in members.timers if key[1] == "round" or key[1].startswith("stability/")]


@pytest.mark.parametrize("stability", PROTOCOLS)
def test_a_new_view_cancels_what_the_old_one_had_timed(stability: str) -> None:
    members = Group(3, FifoConfiguration(stability=stability))
    members.drop = lambda _source, _target, pdu: type(pdu) in PDUS
    members.admit("a")
    members.pass_time(40)
    waiting = [key for key in members.timers if key[1].startswith("stability/")]
    assert waiting
    members.crash("c")
    members.effects = {name: [] for name in members.names}
    members.pass_time(700)
    cancelled = {(name, effect.name) for name in "ab" for effect in members.of(name, CancelTimer)}
    assert {key for key in waiting if key[0] != "c"} <= cancelled


# Error detection


PATIENT: dict[str, Any] = {"suspect_after_ns": 60 * SECOND_NS, "lag_ns": 60 * SECOND_NS}
"""No member is suspected while no status comes."""


def lose_the_tail(members: Group, victim: str) -> None:
    """The last message of a burst is lost to one member, and so is every PDU that would announce it."""

    def drop(_source: str, target: str, pdu: Pdu) -> bool:
        return isinstance(pdu, Status | Sign) or (
            target == victim and isinstance(pdu, Data) and pdu.number == 3
        )

    members.drop = drop
    for _ in range(4):
        members.admit("b")
    members.settle()


@pytest.mark.parametrize("victim", ["a", "d"], ids=["the coordinator", "another"])
@pytest.mark.parametrize("errors", PROTOCOLS)
def test_the_lost_tail_of_a_burst_is_found_by_error_detection(errors: str, victim: str) -> None:
    members = Group(4, FifoConfiguration(errors=errors, **PATIENT))
    lose_the_tail(members, victim)
    members.pass_time(2_000)
    assert members.delivered(victim, "b") == ["b0", "b1", "b2", "b3"]
    assert members.members[victim].figures()["errors_found"] == 1
    assert members.said(Ask)


def test_without_error_detection_the_tail_waits_for_its_sender() -> None:
    members = Group(4, FifoConfiguration(**PATIENT))
    lose_the_tail(members, "d")
    members.pass_time(2_000)
    assert members.delivered("d", "b") == ["b0", "b1", "b2"]
    assert not members.said(Ask)


def test_with_error_detection_senders_announce_nothing() -> None:
    for errors, announced in ((None, True), ("coordp", False)):
        members = Group(3, FifoConfiguration(errors=errors))
        members.pass_time(210)  # the next heartbeat is far
        members.drop = lambda _source, target, pdu: target == "c" and isinstance(pdu, Data)
        begin = len(members.said(Sign))
        members.admit("a")
        members.pass_time(30)
        assert any(source == "a" for source, _, _ in members.said(Sign)[begin:]) is announced


def test_errors_and_stability_of_one_view_are_not_mistaken_for_each_other() -> None:
    members = Group(4, FifoConfiguration(errors="coordp"))
    members.drop = lambda _source, target, pdu: target == "d" and isinstance(pdu, Data | Copy)
    members.admit("b")
    members.pass_time(300)
    assert members.members["a"].figures()["error_rounds"] > 0
    assert not any(members.of(name, Stable) for name in members.names)
    assert all(members.members[name].ignored == 0 for name in members.names)


# Rows that ride


RIDING = FifoConfiguration(stability="fulldist", rows="riding")


def test_while_all_send_rows_need_no_messages_of_their_own() -> None:
    members = Group(4, RIDING)
    for _ in range(50):
        for name in members.names:
            members.admit(name)
        members.pass_time(5)
    assert not members.said(LoneRow)
    assert all(len(members.of(name, Stable)) > 4 for name in members.names)
    members.pass_time(100)
    assert members.said(LoneRow)
    assert all(members.members[name].figures()["kept_bytes"] == 0 for name in members.names)


def test_a_row_carries_changes_and_each_change_twice() -> None:
    members = Group(8, RIDING)
    rows = []
    for _ in range(4):
        members.admit("b")
        rows.append(members.said(RidingData)[-1][2].row)
    assert [decode_row(row, 8) for row in rows] == [[(1, 1)], [(1, 2)], [(1, 3)], [(1, 4)]]
    members.settle()
    members.admit("c")
    members.admit("c")
    told = [decode_row(pdu.row, 8) for source, _, pdu in members.said(RidingData) if source == "c"]
    assert told == [[(1, 4), (2, 1)], [(1, 4), (2, 2)]]


def test_rows_also_acknowledge() -> None:
    members = Group(3, replace(RIDING, window_bytes=10))
    assert isinstance(members.admit("a", bytes(10))[0], Admitted)
    assert isinstance(members.admit("a", bytes(10))[0], Rejected)
    members.drop = lambda _source, _target, pdu: not isinstance(pdu, RidingData)
    members.settle()
    assert isinstance(members.admit("a", bytes(10))[0], Rejected)
    members.admit("b")
    members.admit("c")
    members.settle()
    assert isinstance(members.admit("a", bytes(10))[0], Admitted)


def test_a_status_makes_up_for_a_lost_row() -> None:
    members = Group(3, RIDING)
    members.drop = lambda source, _target, pdu: source == "c" and isinstance(pdu, LoneRow)
    members.admit("a")
    members.pass_time(300)
    assert Stable("a", 0, 1) in members.of("b", Stable)


@pytest.mark.parametrize(
    "row", [b"", b"\x04", b"\xff", b"\0", b"\0abc", b"\2\0", b"\2\3\0\1\0\0\0", b"\3\0\0\0", bytes(100)]
)
def test_a_row_that_is_none_is_counted_and_dropped(row: bytes) -> None:
    members = Group(3, RIDING)
    view = members.members["a"]._group.view.number
    for pdu in (LoneRow(row, view), RidingData(0, 0, view, row, pack([b"x"]))):
        members.give("a", Received("b", pdu))
    members.pass_time(50)
    assert not members.of("a", Stable)
    assert members.members["a"].ignored == 2


counts = st.lists(st.one_of(st.integers(0, 300), st.integers(0, (1 << 62) - 1)), min_size=1, max_size=40)


@given(counts, st.data())
def test_a_row_comes_through_in_the_shorter_form(held: list[int], data: st.DataObject) -> None:
    places = data.draw(st.sets(st.integers(0, len(held) - 1)))
    changes = [(place, held[place]) for place in sorted(places)]
    row = encode_row(held, changes)
    found = decode_row(row, len(held))
    assert found in (changes, list(enumerate(held)))
    assert len(row) == 1 + min(
        len(held) * (8 if max(held) >> 32 else 4), len(changes) * (10 if max(held) >> 32 else 6)
    )


@given(
    st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 9), min_size=3, max_size=3)), max_size=20)
)
def test_riding_declares_what_a_plain_matrix_would(told: list[tuple[int, list[int]]]) -> None:
    """Rows may come in any order and more than once: the greatest count of each entry counts."""
    sites = ("a", "b", "c")
    layer = Riding("a", sites, Configuration(repetition=None), Random(1))
    layer.hold_all([9, 9, 9])
    matrix = [[9, 9, 9], [0, 0, 0], [0, 0, 0]]
    for who, row in told:
        if who:
            matrix[who] = [max(pair) for pair in zip(matrix[who], row, strict=True)]
            layer.handle(0, Received(sites[who], LoneRow(encode_row(row, list(enumerate(row))))))
    assert list(layer.stable) == [min(column) for column in zip(*matrix, strict=True)]


def test_a_lone_row_goes_out_only_if_no_message_carried_it() -> None:
    members = Group(2, RIDING)
    members.admit("a")
    members.settle()
    before = len(members.said(LoneRow))
    members.pass_time(100)
    assert {source for source, _, _ in members.said(LoneRow)[before:]} == {"b"}


# The trigger


def rounds(trigger: str, **knobs: Any) -> tuple[int, int]:
    """How many rounds a run takes, and how often a message was refused for want of room."""
    workload = {"members": 4, "messages": 2000, "rate": 2000.0, "window": 1000, "retain": 100}
    metrics = fifo.SCENARIO.run(fifo.SCENARIO.configure({**workload, "trigger": trigger, **knobs}), 1, None)
    assert metrics["finished"]
    taken, refused = metrics["rounds"], metrics["refused"]
    assert isinstance(taken, int)
    assert isinstance(refused, int)
    return taken, refused


@pytest.mark.slow
@pytest.mark.parametrize(
    "knobs",
    [{}, {"retain": 30}, {"retain": 30, "stability": "train"}, {"stability": "s-coordp"}, {"delay_ms": 3.0}],
    ids=str,
)
def test_the_adaptive_trigger_needs_fewer_rounds_and_refuses_nothing(knobs: dict[str, Any]) -> None:
    by_clock, refused_by_clock = rounds("timer", **knobs)
    adaptive, refused = rounds("adaptive", **knobs)
    assert refused == refused_by_clock == 0
    assert 0 < 2 * adaptive < by_clock


def test_the_threshold_is_shown() -> None:
    members = Group(3, FifoConfiguration(trigger="adaptive", retain_bytes=10_000))
    assert members.members["a"].figures()["trigger_bytes"] == 5_000
    assert Group(3).members["a"].figures()["trigger_bytes"] == 0


def test_a_quiet_group_becomes_stable_by_the_slow_timer() -> None:
    members = Group(3, FifoConfiguration(trigger="adaptive"))
    members.admit("b")
    members.pass_time(150)
    assert not members.of("b", Stable)
    members.pass_time(100)
    assert members.of("b", Stable) == [Stable("b", 0, 1)]


def test_a_buffer_that_fills_begins_a_round_at_once() -> None:
    members = Group(2, FifoConfiguration(trigger="adaptive", retain_bytes=1_000))
    for _ in range(6):
        assert isinstance(members.admit("b", bytes(100))[0], Admitted)
        members.settle()
    assert members.of("b", Stable)


def test_a_full_buffer_that_cannot_be_freed_does_not_make_rounds_without_end() -> None:
    members = Group(3, FifoConfiguration(trigger="adaptive", retain_bytes=1_000))
    members.drop = lambda _source, target, pdu: target == "c" and isinstance(pdu, Data | Copy)
    for _ in range(9):
        members.admit("b", bytes(100))
        members.settle()
    members.pass_time(400)
    assert not members.of("b", Stable)
    assert 5 < members.members["a"].figures()["rounds"] <= 50


# What makes no sense


@pytest.mark.parametrize("stability", PROTOCOLS)
def test_words_of_another_protocol_are_counted_and_dropped(stability: str) -> None:
    members = Group(3, FifoConfiguration(stability=stability))
    view = members.members["a"]._group.view.number
    others = [Carriage(0, 0, bytes(24), view=view), Rumour(0, b"\1", bytes(24), view), LoneRow(b"", view)]
    foreign = [pdu for pdu in others if type(pdu) not in PROTOCOLS[stability].pdus]
    for pdu in foreign:
        members.give("a", Received("b", pdu))
    assert members.members["a"].ignored == len(foreign)


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"stability": "coordq"}, "no stability protocol 'coordq'"),
        ({"errors": "nothing"}, "no stability protocol 'nothing'"),
        ({"trigger": "hope"}, "no trigger 'hope'"),
        ({"trigger": "adaptive", "repair": "request"}, "no member knows how full"),
        ({"rows": "flying", "stability": "fulldist"}, "do not travel 'flying'"),
        ({"rows": "riding"}, "no rows that could ride"),
        ({"rows": "riding", "stability": "fulldist", "trigger": "adaptive"}, "need no trigger"),
    ],
)
def test_what_makes_no_sense_is_said(knobs: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        FifoConfiguration(**knobs)
    assert words in caught.value.sentence
    assert caught.value.hint


@pytest.mark.parametrize(
    "option", [{"stability": "train"}, {"errors": "gossip"}, {"trigger": "timer"}, {"piggyback": True}]
)
def test_the_sequencer_has_a_stability_of_its_own(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="has no option"):
        antiphon.join("group", order="sequencer", sequencer="a", **option)
    antiphon.join("group", **option)
