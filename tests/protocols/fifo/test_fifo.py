"""Reliable FIFO multicast between fakes: admission, flow control, stability, members that come and go."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.effects import (
    Absent,
    Admitted,
    Appeared,
    Deliver,
    Discard,
    Multicast,
    Present,
    Rejected,
    SetTimer,
    Stable,
    Vanished,
)
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Admit, Received, Restored, Start, Suspected, TimerFired
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.fifo import PDUS, PROMISES, REPAIRS, Fifo, FifoConfiguration, promises
from antiphon.protocols.fifo.group import view_number
from antiphon.protocols.fifo.pdus import Ask, Copy, Data, Extent, Mark, Position, Status
from antiphon.protocols.fifo.streams import OwnStream, Stream
from antiphon.protocols.stability import coordp
from antiphon.protocols.stability.coordp import Information
from tests.protocols.fifo.lying import claim, lie
from tests.protocols.harness.fifo_group import Group

X = pack([b"x"])


def status_of(name: str, members: Group) -> Status:
    """The latest status of a member."""
    return next(pdu for source, _, pdu in reversed(members.said(Status)) if source == name)  # type: ignore[no-any-return]


# Admission


def test_what_is_admitted_is_multicast_once_and_delivered_everywhere_in_order() -> None:
    members = Group(3)
    effects = members.admit("a", b"1", b"2")
    assert effects[0] == Admitted(0, 2, 2)
    members.admit("a", b"3")
    members.pass_time(5)
    for name in "abc":
        assert members.delivered(name) == ["a0", "a1", "a2"]
    assert len(members.said(Data)) == 2


def test_a_sender_delivers_its_own_once_another_holds_it() -> None:
    members = Group(3)
    effects = members.admit("a")
    assert not any(isinstance(effect, Deliver) for effect in effects)
    members.settle()
    assert members.delivered("a") == ["a0"]


def test_the_witness_acknowledges_at_once_and_only_the_witness() -> None:
    members = Group(4)
    members.now = 1_000 * MILLISECOND_NS
    members.admit("b")
    members.settle()
    assert [(source, to) for source, to, _ in members.said(Position)] == [("c", "b")]


@pytest.mark.parametrize("repair", ["acknowledge", "request", "request-all"])
def test_where_only_the_sender_repairs_it_delivers_its_own_at_admission(repair: str) -> None:
    members = Group(3, FifoConfiguration(repair=repair))
    effects = members.admit("a")
    assert [type(effect) for effect in effects if type(effect) in (Admitted, Multicast, Deliver)] == [
        Admitted,
        Multicast,
        Deliver,
    ]


def test_a_member_alone_delivers_at_once_and_sends_nothing() -> None:
    members = Group(1)
    effects = members.admit("a")
    assert [type(effect) for effect in effects[:2]] == [Admitted, Deliver]
    members.pass_time(100)
    assert members.said(Data) == []
    assert members.of("a", Stable) == [Stable("a", 0, 1)]


MISUSE: list[tuple[str, Callable[[], object]]] = [
    ("before the start", lambda: Fifo("a", ("a",), FifoConfiguration(), Random(1)).handle(0, Admit([b""]))),
    ("nothing", lambda: Group(2).give("a", Admit([]))),
    ("destinations", lambda: Group(2).give("a", Admit([b""], frozenset("b")))),
    ("a group", lambda: Group(2).give("a", Admit([b""], None, "g"))),
    ("a second start", lambda: Group(2).give("a", Start())),
    ("twice the same member", lambda: Fifo("a", ("a", "a"), FifoConfiguration(), Random(1))),
    ("an unknown repair", lambda: FifoConfiguration(repair="prayer")),
    ("no window", lambda: FifoConfiguration(window_bytes=0)),
    ("no pause", lambda: FifoConfiguration(round_ns=0)),
    ("no patience", lambda: FifoConfiguration(suspect_after_ns=1, heartbeat_ns=1)),
]


@pytest.mark.parametrize("misuse", [row[1] for row in MISUSE], ids=[row[0] for row in MISUSE])
def test_misuse_is_refused(misuse: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        misuse()


# Flow control


def test_a_sender_waits_for_the_slowest_member() -> None:
    members = Group(3, FifoConfiguration(window_bytes=3 * pack([bytes(10)]).weight))
    members.cut.add("c")
    for _ in range(3):
        assert isinstance(members.admit("a", bytes(10))[0], Admitted)
    assert isinstance(members.admit("a", bytes(10))[0], Rejected)
    members.pass_time(5)
    assert isinstance(members.admit("a", bytes(10))[0], Rejected)
    assert [site for site, report in members.members["a"].peers(0).items() if report.holds_us_up] == ["c"]
    members.cut.discard("c")
    members.pass_time(100)
    assert isinstance(members.admit("a", bytes(10))[0], Admitted)
    assert not any(report.holds_us_up for report in members.members["a"].peers(0).values())


def test_a_batch_larger_than_the_window_is_taken_when_it_is_alone() -> None:
    members = Group(2, FifoConfiguration(window_bytes=10))
    assert isinstance(members.admit("a", bytes(100))[0], Admitted)
    assert isinstance(members.admit("a", bytes(1))[0], Rejected)
    members.pass_time(50)
    assert isinstance(members.admit("a", bytes(100))[0], Admitted)


def test_what_is_not_stable_is_bounded() -> None:
    members = Group(2, FifoConfiguration(retain_bytes=3 * pack([bytes(10)]).weight))
    members.drop = lambda _source, _target, pdu: type(pdu) in coordp.PDUS or isinstance(pdu, Status)
    for _ in range(3):
        assert isinstance(members.admit("a", bytes(10))[0], Admitted)
        members.pass_time(5)
    assert isinstance(members.admit("a", bytes(10))[0], Rejected)
    members.drop = lambda _source, _target, _pdu: False
    members.pass_time(200)
    assert isinstance(members.admit("a", bytes(10))[0], Admitted)


def test_where_all_send_no_member_acknowledges() -> None:
    members = Group(3)
    for _ in range(20):
        for name in members.names:
            members.admit(name)
        members.pass_time(1)
    assert len(members.said(Position)) <= 3
    assert all(len(members.delivered(name)) >= 57 for name in members.names)


def test_who_sends_nothing_acknowledges_after_a_while_or_a_part_of_the_window() -> None:
    members = Group(3, FifoConfiguration(window_bytes=400))
    members.admit("a", bytes(10))
    members.settle()
    assert [source for source, _, _ in members.said(Position)] == ["b"]
    members.pass_time(3)
    assert [source for source, _, _ in members.said(Position)] == ["b", "c"]
    members.admit("a", bytes(100))
    members.settle()
    assert [source for source, _, _ in members.said(Position)] == ["b", "c", "b", "c"]


def test_acknowledgements_wait_for_own_messages_to_carry_them_unless_the_sender_repeats_without() -> None:
    for repair, told in (("hybrid", False), ("acknowledge", True)):
        members = Group(3, FifoConfiguration(repair=repair))
        members.admit("b")
        members.pass_time(1)
        members.admit("a")
        members.pass_time(3)
        assert ("b" in [source for source, to, _ in members.said(Position) if to == "a"]) == told, repair


def test_a_new_gap_does_not_wait_for_the_pauses_that_an_old_one_earned() -> None:
    members = Group(3)
    members.drop = lambda _source, target, pdu: (
        target == "c" and (isinstance(pdu, Copy) or (isinstance(pdu, Data) and pdu.number == 0))
    )
    members.admit("a")
    members.admit("a")
    members.pass_time(200)
    asked = len(members.said(Ask))
    while len(members.said(Ask)) == asked:
        members.pass_time(1)
    members.drop = lambda _source, target, pdu: (
        target == "c" and isinstance(pdu, Data) and pdu.number in (0, 2)
    )
    members.admit("a")
    members.admit("a")
    members.give("c", Received("a", Copy("a", 0, 0, X)))
    members.pass_time(3)
    assert members.delivered("c") == ["a0", "a1", "a2", "a3"]


def test_a_timer_that_is_set_is_not_set_again() -> None:
    members = Group(3)
    for _ in range(50):
        members.admit("a")
    members.settle()
    names = [effect.name for effect in members.of("c", SetTimer)]
    assert len(names) == len(set(names))


# Stability


def test_everyone_learns_what_is_stable_and_keeps_it_no_longer() -> None:
    members = Group(3)
    members.admit("b", b"1", b"2")
    members.admit("c", b"3")
    members.pass_time(100)
    for name in members.names:
        assert set(members.of(name, Stable)) == {Stable("b", 0, 2), Stable("c", 0, 1)}
        assert set(members.of(name, Discard)) == {Discard("b", 0, 2), Discard("c", 0, 1)}
        assert members.members[name].figures()["kept_bytes"] == 0


@pytest.mark.parametrize("repair", ["acknowledge", "request", "request-all"])
def test_who_keeps_nothing_for_others_discards_nothing(repair: str) -> None:
    members = Group(3, FifoConfiguration(repair=repair))
    members.admit("a")
    members.pass_time(100)
    assert members.of("a", Discard) == [Discard("a", 0, 1)]
    assert members.of("b", Discard) == []
    assert members.of("b", Stable) == [Stable("a", 0, 1)]


def test_nothing_is_stable_while_one_lacks_it() -> None:
    members = Group(3)
    members.drop = lambda _source, target, pdu: target == "c" and isinstance(pdu, Data | Copy)
    members.admit("a")
    members.pass_time(300)
    assert not any(members.of(name, Stable, Discard) for name in members.names)


def test_a_round_comes_sooner_when_much_has_come() -> None:
    members = Group(2, FifoConfiguration(round_ns=10_000 * MILLISECOND_NS, round_bytes=100))
    for _ in range(11):
        members.admit("b", bytes(10))
    members.settle()
    assert members.of("b", Stable)


def test_rounds_end_when_all_is_stable() -> None:
    members = Group(3)
    members.admit("a")
    members.pass_time(200)
    rounds = members.members["a"].figures()["rounds"]
    members.pass_time(500)
    assert members.members["a"].figures()["rounds"] == rounds > 0


# Members that are gone


def test_one_that_is_silent_no_longer_counts_and_the_rest_goes_on() -> None:
    members = Group(3, FifoConfiguration(window_bytes=10))
    members.crash("c")
    members.admit("a", bytes(10))
    members.pass_time(1_000)
    assert [effect.site for effect in members.of("a", Vanished)] == ["c"]
    assert isinstance(members.admit("a", bytes(10))[0], Admitted)
    assert Stable("a", 0, 1) in members.of("a", Stable)


def test_what_a_crashed_sender_gave_to_one_reaches_all() -> None:
    for repair in ("any", "hybrid"):
        members = Group(4, FifoConfiguration(repair=repair))
        members.drop = lambda _source, target, pdu: isinstance(pdu, Data) and target != "b"
        members.admit("a")
        members.settle()
        members.crash("a")
        members.pass_time(400)
        assert all(members.delivered(name) == ["a0"] for name in "bcd"), repair
        assert not any(members.of(name, Absent) for name in "bcd"), repair


@pytest.mark.parametrize("repair", ["acknowledge", "request", "request-all"])
def test_where_only_the_sender_repairs_its_crash_is_a_reported_gap(repair: str) -> None:
    members = Group(3, FifoConfiguration(repair=repair))
    members.drop = lambda _source, target, pdu: isinstance(pdu, Data) and target != "b"
    members.admit("a")
    members.settle()
    members.crash("a")
    members.pass_time(1_000)
    assert members.delivered("b") == ["a0"]
    assert members.delivered("c") == []
    assert members.of("c", Absent, Present) == [Absent(), Present()]
    assert members.of("b", Absent) == []


def test_what_no_member_got_of_a_crashed_sender_ends_the_spell_when_it_is_back() -> None:
    members = Group(3)
    members.drop = lambda _source, _target, pdu: isinstance(pdu, Data)
    members.admit("a")
    members.settle()
    members.crash("a")
    members.drop = lambda _source, _target, _pdu: False
    members.pass_time(100)
    members.restart("a")
    members.pass_time(300)
    assert members.of("b", Absent, Present) == [Absent(), Present()]
    members.admit("a")
    members.pass_time(100)
    assert [members.delivered(name) for name in "abc"] == [["a1"], ["a1"], ["a1"]]


def test_a_later_incarnation_goes_on_where_the_earlier_one_ended() -> None:
    members = Group(3)
    members.admit("a")
    members.pass_time(100)
    members.crash("a")
    members.pass_time(100)
    members.restart("a")
    members.pass_time(300)
    members.admit("a")
    members.pass_time(100)
    for name in "bc":
        assert members.delivered(name) == ["a0", "a1"]
        assert members.of(name, Absent) == []
    assert members.of("a", Present) == [Present()]


def test_the_earlier_incarnation_is_completed_before_the_later_one_is_delivered() -> None:
    members = Group(3)
    members.drop = lambda _source, target, pdu: isinstance(pdu, Data) and target == "c"
    members.admit("a")
    members.settle()
    members.crash("a")
    members.drop = lambda _source, target, pdu: isinstance(pdu, Copy) and target == "c"
    members.restart("a")
    members.pass_time(200)
    members.admit("a")
    members.pass_time(100)
    assert members.delivered("c") == []
    members.drop = lambda _source, _target, _pdu: False
    members.pass_time(200)
    assert members.delivered("c") == ["a0", "a1"]
    assert members.of("c", Absent) == []


def test_a_late_batch_of_an_earlier_incarnation_is_not_taken() -> None:
    members = Group(3)
    members.admit("a")
    late = members.said(Data)[0][2]
    members.travelling.clear()
    members.crash("a")
    members.restart("a")
    members.pass_time(300)
    members.give("b", Received("a", late))
    assert members.delivered("b") == []


def test_a_clean_leave_is_reported_at_once() -> None:
    members = Group(3)
    members.depart("c")
    assert members.of("c", Absent) == [Absent()]
    assert members.of("a", Vanished) == [Vanished("c", "It has left.")]


def test_who_returns_goes_on_behind_what_it_missed() -> None:
    members = Group(3)
    members.admit("a")
    members.pass_time(100)
    members.depart("c")
    members.admit("a")
    members.pass_time(100)
    members.come_back("c")
    members.pass_time(300)
    members.admit("a")
    members.admit("c")
    members.pass_time(100)
    assert members.delivered("b") == ["a0", "a1", "a2", "c0"]
    assert members.delivered("c") == ["a0", "a2", "c0"]
    assert members.of("c", Absent, Present) == [Absent(), Present()]
    assert [type(effect) for effect in members.of("a", Vanished, Appeared)[-2:]] == [Vanished, Appeared]


def test_who_returns_has_what_is_still_kept_repaired() -> None:
    members = Group(3)
    members.depart("c")
    members.drop = lambda _source, _target, pdu: type(pdu) in coordp.PDUS
    members.admit("a")
    members.pass_time(20)
    members.come_back("c")
    members.pass_time(300)
    assert members.delivered("c") == ["a0"]


def test_who_returns_asks_again_for_what_it_missed_before_it_went() -> None:
    """The timers of a member that is away stand, so a request that was due never went out."""
    members = Group(3)
    members.drop = lambda _source, target, pdu: isinstance(pdu, Data | Copy) and target == "c"
    members.admit("a")
    members.pass_time(30)
    members.depart("c")
    members.come_back("c")
    members.drop = lambda _source, _target, _pdu: False
    members.pass_time(300)
    assert members.delivered("c") == ["a0"]


def test_what_was_withheld_is_not_delivered_on_both_sides_of_a_gap() -> None:
    """A member that is still settling has taken a0, goes, and when it is back a1 cannot be had any more."""
    members = Group(3, FifoConfiguration(repair="request"), apart=True)
    members.start("a")
    members.start("b")
    members.pass_time(300)
    members.start("c", returning=True)
    members.pass_time(40)
    members.admit("a")
    members.settle()
    members.depart("c")
    members.admit("a")
    members.pass_time(100)
    members.come_back("c")
    members.pass_time(300)
    members.admit("a")
    members.pass_time(100)
    assert members.of("c", Present) == [Present()]
    assert members.delivered("c") == ["a2"]


def test_who_begins_in_the_middle_does_not_call_stable_what_came_before() -> None:
    members = Group(3)
    members.drop = lambda _source, target, pdu: target == "b" and isinstance(pdu, Data | Copy)
    members.admit("a")
    members.settle()
    members.crash("c")
    members.restart("c")
    members.pass_time(400)
    assert members.of("c", Present)
    assert not any(members.of(name, Stable, Discard) for name in members.names)
    assert members.of("b", Absent) == []


def test_who_was_cut_off_finds_out_that_it_was_left_out() -> None:
    members = Group(3)
    members.cut.add("c")
    members.pass_time(600)
    members.admit("a")
    members.pass_time(100)
    members.cut.discard("c")
    members.pass_time(400)
    assert members.of("c", Absent, Present) == [Absent(), Present()]
    members.admit("a")
    members.pass_time(100)
    assert members.delivered("b") == ["a0", "a1"]
    assert members.delivered("c") == ["a1"]


def test_an_excluded_member_returns_though_its_streams_move_on_one_at_a_time() -> None:
    """Where losses are many, no two may move on between two looks: members once stayed away for 10 s."""
    members = Group(3)
    passing: set[tuple[str, int]] = set()

    def drop(source: str, target: str, pdu: Pdu) -> bool:
        return target == "a" and isinstance(pdu, Data | Copy) and (source, pdu.number) not in passing

    members.drop = drop
    for _ in range(2):
        for name in "bc":
            members.admit(name)
            members.pass_time(50)
    lie(members, "c", "a", claim("b", 2), claim("c", 2), marks=(Mark("a", 0, 0),))
    excluded = members.members["a"]
    assert not excluded._presence.taking_part
    for name in "bc":
        members.pass_time(200)
        assert not excluded._presence.taking_part
        passing.add((name, 0))
    members.pass_time(400)
    assert excluded._presence.taking_part


def test_a_member_reports_an_exclusion_to_the_excluded() -> None:
    """It may get the message in time from another, and must begin a new spell all the same."""
    members = Group(3)
    members.cut.add("c")
    members.pass_time(600)
    members.admit("a")
    members.pass_time(100)
    members.give("a", Received("c", status_of("c", members)))
    members.pass_time(100)
    told = status_of("a", members)
    assert told.left_out == (Mark("c", 0, 0),)
    mark_alone = Status(0, 0, told.serial, 0, (Extent("a", 0, True, True, 0, 0, 0, 0),), told.left_out)
    assert Absent() in members.give("c", Received("a", mark_alone))


def test_a_sender_that_was_not_heard_for_a_while_lacks_nothing_of_its_own_messages() -> None:
    """Its latest status is older than its latest messages, which the others have called stable since."""
    members = Group(3)
    members.pass_time(100)
    members.admit("a")
    members.settle()
    members.drop = lambda source, _target, _pdu: source == "a"
    members.pass_time(600)
    assert members.of("b", Vanished)
    assert members.of("b", Stable) == [Stable("a", 0, 1)]
    members.drop = lambda _source, _target, _pdu: False
    members.pass_time(400)
    assert members.of("b", Appeared)[-1] == Appeared("a")
    assert not any(members.of(name, Absent) for name in members.names)


def test_a_member_that_lacks_what_is_stable_begins_a_new_spell() -> None:
    members = Group(3)
    extents = (Extent("a", 0, True, True, 0, 1, 1, 0),)
    assert Absent() in members.give("c", Received("a", Status(0, 0, 1, 0, extents)))
    assert Absent() not in members.give("c", Received("a", Status(0, 0, 2, 0, extents)))


def test_a_status_that_was_overtaken_revives_no_member() -> None:
    members = Group(3)
    members.pass_time(2_000)
    old = status_of("c", members)
    members.pass_time(100)
    members.depart("c")
    members.give("a", Received("c", old))
    assert members.of("a", Appeared, Vanished)[-1] == Vanished("c", "It has left.")


def test_a_batch_of_an_incarnation_that_was_not_met_waits_until_it_is() -> None:
    members = Group(2)
    members.pass_time(120)
    assert members.give("a", Received("b", Data(1, 0, 0, b"", X))) == [
        SetTimer("heartbeat", members.knobs.heartbeat_ns // 16)
    ]
    assert members.delivered("a") == []


def test_a_separation_in_which_nothing_was_sent_ends_no_spell() -> None:
    members = Group(3)
    members.cut.add("c")
    members.pass_time(1_000)
    members.cut.discard("c")
    members.pass_time(400)
    assert members.of("a", Appeared)[-1] == Appeared("c")
    assert not any(members.of(name, Absent) for name in members.names)


def test_one_that_makes_no_progress_is_left_behind() -> None:
    members = Group(3, FifoConfiguration(window_bytes=10))
    members.drop = lambda _source, target, pdu: target == "c" and isinstance(pdu, Data | Copy)
    members.admit("a", bytes(10))
    members.pass_time(1_900)
    assert isinstance(members.admit("a", bytes(10))[0], Rejected)
    members.pass_time(200)
    assert Vanished("c", "It was left behind.") in members.of("a", Vanished)
    assert isinstance(members.admit("a", bytes(10))[0], Admitted)
    members.drop = lambda _source, _target, _pdu: False
    members.pass_time(2_500)
    assert members.of("c", Absent)
    assert members.of("a", Appeared)[-1] == Appeared("c")
    members.admit("b")
    members.pass_time(100)
    assert members.delivered("c")[-1] == "b0"


def test_a_detector_that_was_paused_suspects_no_member() -> None:
    members = Group(3)
    members.pass_time(100)
    members.now += 5_000 * MILLISECOND_NS
    members.give("a", TimerFired("heartbeat"))
    assert members.of("a", Vanished) == []


def test_a_failure_detector_is_believed_until_it_or_the_member_says_otherwise() -> None:
    members = Group(3)
    members.give("a", Suspected("c"))
    assert members.of("a", Vanished) == [Vanished("c", "The failure detector suspects it.")]
    members.give("a", Restored("c"))
    assert members.of("a", Appeared)[-1] == Appeared("c")
    members.give("a", Suspected("c"))
    members.pass_time(100)
    assert members.of("a", Appeared)[-1] == Appeared("c")


def test_members_that_are_long_gone_are_forgotten() -> None:
    members = Group(3)
    members.admit("c")
    members.pass_time(100)
    members.crash("c")
    members.pass_time(12_000)
    assert [extent.site for extent in members.said(Status)[-1][2].extents] in (["a", "b"], ["b", "a"])


# Members that begin apart, as live ones do


def test_a_member_alone_takes_part_after_a_while() -> None:
    members = Group(2, apart=True)
    members.start("a")
    members.pass_time(59)
    assert members.of("a", Present) == []
    assert isinstance(members.admit("a")[0], Rejected)
    members.pass_time(2)
    assert members.of("a", Present, Absent) == [Present()]
    assert members.delivered("a") == []


def test_members_that_begin_before_the_first_message_have_missed_nothing() -> None:
    members = Group(4, apart=True)
    for name in members.names:
        members.start(name)
        members.pass_time(10)
    members.pass_time(300)
    assert all(members.of(name, Present, Absent) == [Present()] for name in members.names)
    for name in members.names:
        members.admit(name)
    members.pass_time(100)
    assert all(sorted(members.delivered(name)) == ["a0", "b0", "c0", "d0"] for name in members.names)
    assert all(
        {effect.site for effect in members.of(name, Appeared)} == set("abcd") - {name} for name in "abcd"
    )


def test_a_newcomer_gets_from_the_beginning_what_is_still_kept() -> None:
    members = Group(3, apart=True)
    members.start("a")
    members.start("b")
    members.pass_time(300)
    members.drop = lambda _source, _target, pdu: type(pdu) in coordp.PDUS
    members.admit("a", b"1", b"2")
    members.admit("a", b"3")
    members.start("c")
    members.pass_time(300)
    assert members.of("c", Present, Absent) == [Present()]
    assert members.delivered("c") == ["a0", "a1", "a2"]


def test_a_newcomer_that_comes_too_late_reports_a_gap() -> None:
    members = Group(3, apart=True)
    members.start("a")
    members.start("b")
    members.pass_time(300)
    members.admit("a")
    members.pass_time(100)
    members.start("c")
    members.pass_time(300)
    assert members.of("c", Present, Absent) == [Absent(), Present()]
    members.admit("a")
    members.pass_time(100)
    assert members.delivered("c") == ["a1"]


def test_a_newcomer_has_missed_the_messages_of_departed_members() -> None:
    members = Group(3, apart=True)
    members.start("a")
    members.start("b")
    members.pass_time(300)
    members.admit("a")
    members.pass_time(100)
    members.crash("a")
    members.pass_time(1_000)
    members.start("c")
    members.pass_time(300)
    assert members.of("c", Present, Absent) == [Absent(), Present()]


def test_a_newcomer_learns_that_something_was_stable_before_it_came() -> None:
    """The group declared it stable without the newcomer, even if its sender still keeps it all."""
    members = Group(3, apart=True)
    members.start("a")
    members.start("b")
    members.pass_time(300)
    members.drop = lambda _source, target, pdu: target == "b" and isinstance(pdu, Information | Status)
    members.admit("b")
    members.pass_time(60)
    assert (len(members.of("a", Stable)), len(members.of("b", Stable))) == (1, 0)
    members.drop = lambda source, target, pdu: (
        (source, target) == ("a", "b") and isinstance(pdu, Information | Status)
    )
    members.start("c")
    members.pass_time(400)
    assert members.of("c", Present, Absent) == [Absent(), Present()]


def test_a_stream_met_later_whose_beginning_is_gone_ends_the_spell() -> None:
    members = Group(2, apart=True)
    members.start("a")
    members.pass_time(100)
    members.admit("a")
    members.pass_time(100)
    members.drop = lambda _source, _target, _pdu: True
    members.start("b")
    members.pass_time(300)
    assert members.of("b", Present, Absent) == [Present()]
    members.drop = lambda _source, _target, _pdu: False
    members.pass_time(300)
    assert members.of("b", Present, Absent) == [Present(), Absent(), Present()]
    members.admit("a")
    members.pass_time(100)
    assert members.delivered("b") == ["a1"]


def test_who_returns_without_memory_delivers_nothing_twice() -> None:
    members = Group(3, apart=True)
    for name in members.names:
        members.start(name)
    members.pass_time(300)
    members.drop = lambda _source, _target, pdu: type(pdu) in coordp.PDUS
    members.admit("a")
    members.pass_time(50)
    members.crash("c")
    members.restart("c")
    members.pass_time(300)
    members.admit("a")
    members.pass_time(100)
    assert members.delivered("c") == ["a0", "a1"]


def test_a_group_is_no_larger_than_allowed() -> None:
    member = Fifo("a", ("a",), FifoConfiguration(largest_group=2), Random(1))
    member.handle(0, Start(1))
    for name in "bcd":
        extent = Extent(name, 1, True, True, 0, 0, 0, 0)
        effects = member.handle(1, Received(name, Status(1, 0, 0, 0, (extent,))))
        assert (Appeared(name) in effects) == (name != "d")
    assert member.ignored == 1


# What is kept


def test_the_batch_that_fills_a_gap_fits_however_much_is_held_beyond_it() -> None:
    """A small window was once full of what lay beyond the gap, so that the gap was never filled."""
    stream = Stream("a", 0)
    stream.begin(0, 0, 0)
    batch = pack([bytes(100)])
    assert stream.put_ahead(1, batch, batch.weight)
    assert not stream.put_ahead(2, batch, batch.weight)
    assert stream.put_ahead(0, batch, batch.weight)


def test_empty_messages_take_room_too() -> None:
    """A batch of 50,000 of them takes 200 KB; thousands of such batches were held."""
    stream, many = Stream("a", 0), pack([b""] * 50_000)
    stream.begin(0, 0, 0)
    held = [number for number in range(1, 100) if stream.put_ahead(number * 50_000, many, 1 << 20)]
    assert len(held) == 5
    own = OwnStream("a")
    own.start(0, 0)
    own.add(0, many)
    assert own.kept_bytes == own.bytes_beyond(0) == many.weight > 200_000


def test_spans_name_what_is_missing() -> None:
    stream = Stream("a", 0)
    stream.begin(0, 0, 0)
    for number in (2, 3, 7):
        stream.put_ahead(number, X, 1_000)
    stream.end = 10
    assert stream.spans() == (0, 2, 4, 7, 8, 10)
    stream.limit = 5
    assert stream.spans() == (0, 2, 4, 5)


def test_what_was_sent_beyond_a_position_is_measured() -> None:
    own = OwnStream("a")
    own.start(0, 5)
    batches = [pack([bytes(size), b""]) for size in (10, 20, 30)]
    for batch in batches:
        own.add(0, batch)
    first, second, third = (batch.weight for batch in batches)
    beyond = [first + second + third, second + third, third, 0]
    assert [own.bytes_beyond(position) for position in (5, 7, 9, 11)] == beyond
    assert own.release(7) == (5, 2)
    beyond[0] = beyond[1]
    assert [own.bytes_beyond(position) for position in (5, 7, 9, 11)] == beyond


def test_a_view_has_a_number_of_its_own() -> None:
    pairs = [("a", 0), ("b", 1)]
    assert view_number(pairs) == view_number(list(pairs))
    assert len({view_number(some) for some in ([("a", 0)], pairs, [("a", 1), ("b", 0)], [("aa", 0)])}) == 4


def test_pdus_cross_the_wire() -> None:
    codec = Codec(PDUS)
    extent = Extent("b", 1, True, False, 0, 7, 5, 6, 2, 7, 0, 4)
    samples: list[Pdu] = [
        Data(1, 7, 1 << 62, bytes(16), pack([b"1", b"22"])),
        Copy("b", 1, 7, X),
        Position(1, 2, 7),
        Status(1, 2, 3, 4, (extent,), (Mark("c", 0, 1),)),
    ]
    for pdu in samples:
        packet = codec.decode(codec.encode(pdu))
        assert isinstance(packet, Packet)
        assert packet.pdu == pdu


def test_every_repair_promises_the_same() -> None:
    assert {promises(repair) for repair in REPAIRS} == {PROMISES}


@given(
    st.sampled_from(REPAIRS),
    st.integers(0, 1 << 32),
    st.floats(0, 0.5),
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=25),
)
@settings(max_examples=60)
def test_whatever_is_lost_repeated_or_overtaken_all_deliver_all_in_order(
    repair: str, seed: int, loss: float, senders: list[str]
) -> None:
    """The simple twin of the protocol is a list for each sender."""
    chance = Random(seed)
    members = Group(4, FifoConfiguration(repair=repair, window_bytes=4, retain_bytes=6))
    members.drop = lambda _source, _target, _pdu: chance.random() < loss
    sent: dict[str, list[str]] = {name: [] for name in members.names}
    for sender in senders:
        if isinstance(members.admit(sender)[0], Admitted):
            sent[sender].append(f"{sender}{len(sent[sender])}")
        members.travelling.extend(chance.sample(list(members.travelling), len(members.travelling) // 4))
        chance.shuffle(members.travelling)
        members.pass_time(chance.choice([0, 0, 1, 10]))
    members.drop = lambda _source, _target, _pdu: False
    members.pass_time(400)
    for name in members.names:
        assert {sender: members.delivered(name, sender) for sender in members.names} == sent
        assert members.members[name].figures()["kept_bytes"] == 0
        assert members.of(name, Absent) == []


def test_a_bystander_of_no_concern_changes_nothing() -> None:
    members = Group(2)

    def state() -> Any:
        return members.members["a"].figures()

    before = state()
    for pdu in (Copy("z", 0, 0, X), Position(7, 0, 0), Copy("b", 9, 0, X)):
        members.give("a", Received("b", pdu))
    assert state() == before
