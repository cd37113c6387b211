"""The fixed sequencer: each rule between fakes, and small groups driven by hand."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.effects import (
    Absent,
    Admitted,
    Arrived,
    Deliver,
    Discard,
    Effect,
    Multicast,
    Present,
    Rejected,
    Send,
    SetTimer,
    Stable,
)
from antiphon.core.errors import UsageError
from antiphon.core.fields import INCARNATION_LIMIT, LONGEST_NAME, NUMBER_LIMIT
from antiphon.core.inputs import (
    Admit,
    Departed,
    Input,
    Received,
    Restored,
    Returned,
    RoundTriggered,
    Start,
    Suspected,
    TimerFired,
)
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.sequencer import PDUS, Sequencer, SequencerConfiguration
from antiphon.protocols.sequencer.pdus import (
    LATEST_HEARSAY,
    NO_POSITION,
    Acknowledge,
    Enquire,
    Fetch,
    Heartbeat,
    Join,
    Lacking,
    Leave,
    Ordered,
    Recover,
    Report,
    Request,
    Resume,
    Roster,
)
from antiphon.protocols.sequencer.recovery import Recovery
from tests.protocols.harness.sequencer_group import KNOBS, Group
from tests.protocols.harness.staging import pdus

MEMBERS = ("a", "b", "c")


def follower(name: str = "b") -> Sequencer:
    member = Sequencer(name, MEMBERS, KNOBS)
    member.handle(0, Start())
    return member


def orderer(knobs: SequencerConfiguration = KNOBS) -> Sequencer:
    member = Sequencer("a", MEMBERS, knobs)
    member.handle(0, Start())
    return member


BATCH = pack([b"x"])


def ordered(
    position: int, *, stable: int = 0, witness: str = "b", sender: str = "a", number: int | None = None
) -> Received:
    number = position if number is None else number
    return Received("a", Ordered(0, position, stable, witness, sender, number, BATCH))


def request(number: int, first: int = 0, *, incarnation: int = 0, sender: str = "b") -> Received:
    return Received(sender, Request(0, incarnation, 0, first, number, BATCH))


def acknowledge(position: int, missing: tuple[int, ...] = (), *, sender: str = "b") -> Received:
    return Received(sender, Acknowledge(0, 0, position, 0, missing))


def join(incarnation: int, attempt: int, position: int = NO_POSITION, *, first: int = 0) -> Received:
    return Received("b", Join(incarnation, attempt, first, 0, 0, position, newcomer=False))


def resume(attempt: int, *, epoch: int = 0, position: int = 0, kept: bool = True) -> Received:
    return Received("a", Resume(epoch, 0, attempt, position, 0, kept, False, {}))


def deliveries(effects: Iterable[Effect]) -> list[tuple[str, int]]:
    return [(effect.sender, effect.number) for effect in effects if isinstance(effect, Deliver)]


# The order


def test_a_message_travels_to_the_sequencer_and_to_everyone_in_its_place() -> None:
    group = Group()
    assert [type(effect) for effect in group.admit("b")] == [SetTimer, Admitted, Send]
    group.admit("c")
    group.admit("a")
    group.pass_time(1)
    assert group.delivered("a") == group.delivered("b") == group.delivered("c")
    assert sorted(group.delivered("a")) == ["a0", "b0", "c0"]


def test_no_member_delivers_its_own_message_before_it_has_a_place() -> None:
    group = Group()
    group.admit("b")
    group.admit("a")
    assert group.delivered("b") == group.delivered("a") == []


def test_the_sequencer_delivers_what_one_more_member_holds() -> None:
    member = orderer()
    effects = member.handle(0, request(0))
    assert pdus(effects, Ordered) == [Ordered(0, 0, 0, "b", "b", 0, BATCH)]
    assert deliveries(effects) == []
    assert deliveries(member.handle(1, acknowledge(1, sender="c"))) == [("b", 0)]


def test_the_witness_acknowledges_at_once() -> None:
    assert pdus(follower("b").handle(0, ordered(0)), Acknowledge) == [Acknowledge(0, 0, 1, 0)]
    assert pdus(follower("c").handle(0, ordered(0)), Acknowledge) == []


def test_places_are_delivered_in_order_whatever_the_order_of_arrival() -> None:
    member = follower()
    assert deliveries(member.handle(0, ordered(2))) == []
    effects = member.handle(0, ordered(1))
    assert [type(effect) for effect in effects] == [Arrived]
    assert deliveries(member.handle(0, ordered(0))) == [("a", 0), ("a", 1), ("a", 2)]
    assert member.handle(0, ordered(1)) == []


def test_a_senders_requests_get_places_by_number_and_only_once() -> None:
    member = orderer()
    late = member.handle(0, request(1))
    assert pdus(late, Ordered) == []
    both = member.handle(0, request(0))
    assert [(pdu.position, pdu.number) for pdu in pdus(both, Ordered)] == [(0, 0), (1, 1)]
    for number in (0, 1):
        assert pdus(member.handle(0, request(number)), Ordered) == []


def test_a_batch_takes_one_place() -> None:
    group = Group()
    group.admit("b", b"x", b"y", b"z")
    group.admit("b")
    group.pass_time(1)
    places = [pdu.position for pdu in pdus(group.effects["a"], Ordered)]
    assert places == [0, 1]
    assert group.delivered("c") == ["b0", "b1", "b2", "b3"]


# Loss


def test_a_lost_request_is_repeated_until_it_has_its_place() -> None:
    group = Group()
    group.admit("b")
    group.travelling.clear()
    group.pass_time(25)
    assert group.delivered("c") == ["b0"]
    before = len(pdus(group.effects["b"], Request))
    group.pass_time(500)
    assert len(pdus(group.effects["b"], Request)) == before == 2


def test_a_gap_is_asked_for_once_reordering_has_had_its_time() -> None:
    member = follower()
    effects = member.handle(0, ordered(3))
    assert SetTimer("gap", KNOBS.gap_ns) in effects
    member.handle(0, ordered(1))
    asked = pdus(member.handle(KNOBS.gap_ns, TimerFired("gap")), Acknowledge)
    assert asked == [Acknowledge(0, 0, 0, 0, (0, 2))]


def test_questions_come_ever_more_slowly() -> None:
    member = follower()
    member.handle(0, ordered(3))
    pauses = [
        effect.after_ns
        for _ in range(6)
        for effect in member.handle(0, TimerFired("gap"))
        if isinstance(effect, SetTimer)
    ]
    assert pauses == [factor * KNOBS.gap_ns for factor in (1, 2, 4, 8, 8, 8)]


def test_a_lost_tail_is_found_by_the_heartbeat() -> None:
    group = Group()
    group.cut.add("c")
    group.admit("b")
    group.pass_time(15)
    group.cut.clear()
    assert group.delivered("c") == []
    group.pass_time(10)
    assert group.delivered("c") == ["b0"]


def test_heartbeats_are_rarer_when_all_is_said() -> None:
    group = Group()
    group.admit("b")
    group.pass_time(100)
    before = len(pdus(group.effects["a"], Heartbeat))
    group.pass_time(400)
    assert len(pdus(group.effects["a"], Heartbeat)) - before == 400 * MILLISECOND_NS // KNOBS.keepalive_ns


def test_what_waits_beyond_a_gap_is_bounded_and_taken_once() -> None:
    member = follower("c")
    assert Arrived not in map(type, member.handle(0, ordered(2 * KNOBS.order_window)))
    assert Arrived in map(type, member.handle(0, ordered(2)))
    assert Arrived not in map(type, member.handle(0, ordered(2)))


def test_requests_beyond_the_window_are_not_kept() -> None:
    member = orderer(SequencerConfiguration(window=2))
    for number in range(1, 6):
        member.handle(0, request(number))
    effects = member.handle(0, request(0))
    assert [pdu.number for pdu in pdus(effects, Ordered)] == [0, 1, 2]


# Stability


def test_stable_is_what_all_of_the_view_hold_and_all_members_learn_it() -> None:
    group = Group()
    group.admit("b")
    group.settle()
    assert group.kinds("a", Stable) == []
    group.pass_time(100)
    for name in group.names:
        assert [effect for effect in group.effects[name] if isinstance(effect, Stable | Discard)] == [
            Stable("b", 0),
            Discard("b", 0),
        ]


def test_a_pdu_of_another_epoch_proves_nothing() -> None:
    member = orderer()
    member.handle(0, request(0))
    assert member.handle(0, Received("b", Acknowledge(-1, 0, 1, 0))) == []


def test_an_excluded_member_stalls_nothing_by_its_pdus() -> None:
    member = orderer()
    member.handle(0, Suspected("c"))
    for number in (0, 1):
        member.handle(0, request(number))
        effects = member.handle(0, acknowledge(number + 1))
        assert Stable("b", number) in effects
        member.handle(0, acknowledge(0, sender="c"))


def test_the_slowest_holds_stability_up_until_it_is_silent_for_too_long() -> None:
    group = Group()
    group.cut.add("c")
    group.admit("b")
    group.pass_time(150)
    assert group.kinds("a", Stable) == []
    group.pass_time(100)
    assert group.kinds("a", Stable) == [Stable]


def test_a_suspected_member_no_longer_counts_and_a_restored_one_does() -> None:
    group = Group()
    group.cut.add("c")
    group.admit("b")
    group.pass_time(1)
    group.give("a", Suspected("c"))
    assert group.kinds("a", Stable) == [Stable]

    group = Group()
    group.cut.add("c")
    group.give("a", Suspected("c"))
    group.give("a", Restored("c"))
    group.admit("b")
    group.pass_time(1)
    assert group.kinds("a", Stable) == []


def test_the_order_waits_for_the_slowest_within_its_window() -> None:
    group = Group(knobs=SequencerConfiguration(order_window=3))
    group.cut.add("c")
    for _ in range(6):
        group.admit("b")
    group.pass_time(100)
    assert group.delivered("b") == ["b0", "b1", "b2"]
    group.cut.clear()
    group.pass_time(200)
    assert group.delivered("c") == group.delivered("b") == [f"b{number}" for number in range(6)]
    assert group.kinds("c", Absent) == []


# Flow control and misuse


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_full_window_rejects_and_takes_no_number(name: str) -> None:
    group = Group(knobs=SequencerConfiguration(window=1, order_window=1))
    group.cut.update("bc")
    effects = [group.admit(name) for _ in range(3)]
    numbers = [effect.number for batch in effects for effect in batch if isinstance(effect, Admitted)]
    assert numbers == list(range(len(numbers)))
    assert isinstance(effects[-1][0], Rejected)
    group.cut.clear()
    group.pass_time(300)
    assert group.admit(name)[-1] != effects[-1][0]
    group.pass_time(300)
    assert group.delivered("c") == [f"{name}{number}" for number in range(len(numbers) + 1)]


@pytest.mark.parametrize(
    "event", [Admit(()), Admit((b"",), frozenset("a")), Admit((b"",), group="g"), Start()]
)
def test_misuse_raises(event: Input) -> None:
    with pytest.raises(UsageError):
        follower().handle(0, event)


def test_misuse_before_the_start_and_at_construction() -> None:
    with pytest.raises(UsageError):
        Sequencer("a", MEMBERS, KNOBS).handle(0, Admit((b"",)))
    with pytest.raises(UsageError):
        Sequencer("z", MEMBERS, KNOBS)
    with pytest.raises(UsageError):
        Sequencer("a", ("a", "a"), KNOBS)
    wrong: list[dict[str, Any]] = [{"window": 0}, {"order_window": 0}, {"gap_ns": 0}, {"recovery_ns": 0}]
    for knobs in wrong:
        with pytest.raises(UsageError):
            SequencerConfiguration(**knobs)


# Absence


def test_a_member_that_comes_back_in_time_goes_on_without_a_gap() -> None:
    group = Group()
    group.admit("b")
    group.pass_time(1)
    group.depart("c")
    group.admit("b")
    group.pass_time(100)
    group.come_back("c")
    group.pass_time(100)
    assert group.delivered("c") == ["b0", "b1"]
    assert group.kinds("c", Absent, Present) == [Absent, Present]


def test_a_member_that_comes_back_too_late_goes_on_at_the_end() -> None:
    group = Group()
    group.admit("b")
    group.pass_time(1)
    group.depart("c")
    group.admit("b")
    group.pass_time(300)
    group.come_back("c")
    group.pass_time(50)
    group.admit("b")
    group.pass_time(50)
    assert group.delivered("c") == ["b0", "b2"]
    assert group.kinds("c", Absent, Present, Deliver) == [Deliver, Absent, Present, Deliver]


def test_a_member_that_was_cut_off_finds_out_that_it_was_left_out() -> None:
    group = Group()
    group.cut.add("c")
    group.admit("b")
    group.pass_time(300)
    group.cut.clear()
    group.pass_time(100)
    group.admit("b")
    group.pass_time(50)
    assert group.delivered("c") == ["b1"]
    assert group.kinds("c", Absent, Present, Deliver) == [Absent, Present, Deliver]


def test_a_late_copy_of_what_was_called_stable_without_us_is_not_taken() -> None:
    """Otherwise a member that never was absent would receive a message after it was declared stable."""
    member = follower("c")
    effects = member.handle(0, ordered(5, stable=3))
    assert isinstance(effects[0], Absent)
    assert Arrived not in map(type, effects)
    assert member.handle(1, ordered(0)) == []


def test_own_messages_ordered_during_an_absence_are_not_asked_for_again() -> None:
    group = Group()
    group.admit("c")
    group.travelling.append(("c", "a", Request(0, 0, 0, 0, 0, BATCH)))
    group.depart("c")
    group.cut.clear()
    source, target, pdu = group.travelling.popleft()
    group.give(target, Received(source, pdu))
    group.cut.add("c")
    group.pass_time(300)
    group.come_back("c")
    group.admit("c")
    group.pass_time(200)
    assert group.delivered("b") == ["c0", "c1"]
    assert group.delivered("c") == ["c1"]
    assert ("c", "request") not in group.timers


def test_the_order_waits_for_an_absent_sequencer() -> None:
    group = Group()
    group.admit("a")
    group.pass_time(1)
    group.admit("a")
    group.travelling.clear()
    group.depart("a")
    group.admit("b")
    group.pass_time(400)
    assert group.delivered("c") == ["a0"]
    group.come_back("a")
    group.pass_time(200)
    assert group.delivered("a") == group.delivered("c") == ["a0", "a1", "b0"]
    assert group.kinds("a", Absent, Present) == [Absent, Present]
    assert group.kinds("c", Absent) == []


# Crashes


def test_a_restarted_member_joins_at_the_end_and_its_dead_messages_are_not_waited_for() -> None:
    group = Group()
    group.admit("c")
    group.pass_time(1)
    group.cut.add("c")
    group.admit("c")
    group.settle()
    group.crash("c")
    group.restart("c")
    group.pass_time(50)
    group.admit("c")
    group.pass_time(50)
    assert group.delivered("a") == group.delivered("b") == ["c0", "c2"]
    assert group.delivered("c") == ["c0", "c2"]
    assert group.kinds("c", Absent, Present) == [Absent, Present]


def test_words_of_an_earlier_incarnation_are_void() -> None:
    member = orderer()
    member.handle(0, join(1, 1, first=5))
    assert pdus(member.handle(0, request(5)), Ordered) == []
    assert pdus(member.handle(0, request(5, 5, incarnation=1)), Ordered) != []
    assert member.handle(0, acknowledge(0, (0,))) == []
    assert pdus(member.handle(0, join(0, 9, 0)), Resume) == []


def test_requests_that_an_earlier_incarnation_left_behind_are_forgotten() -> None:
    member = orderer()
    member.handle(0, request(7))
    assert pdus(member.handle(0, request(6, 6, incarnation=1)), Ordered) == []
    member.handle(0, join(1, 1, first=6))
    effects = member.handle(0, request(6, 6, incarnation=1))
    assert [pdu.number for pdu in pdus(effects, Ordered)] == [6]


def test_a_late_join_of_an_earlier_attempt_is_void() -> None:
    member = orderer()
    assert pdus(member.handle(0, join(0, 2, 0)), Resume) != []
    assert pdus(member.handle(0, join(0, 1, 0)), Resume) == []


def test_an_answer_to_an_earlier_attempt_is_void() -> None:
    member = follower()
    member.handle(0, Departed())
    member.handle(0, Returned())
    assert member.handle(0, resume(0)) == []
    assert Present() in member.handle(0, resume(1))


def test_a_repeated_join_gets_the_same_answer() -> None:
    member = orderer()
    again = join(1, 1)
    first = pdus(member.handle(0, again), Resume)
    member.handle(0, request(0, sender="c"))
    assert [(pdu.position, pdu.streams) for pdu in pdus(member.handle(0, again), Resume)] == [
        (pdu.position, pdu.streams) for pdu in first
    ]


def test_the_order_survives_a_crash_of_the_sequencer() -> None:
    group = Group(4)
    for name in ("b", "c", "a"):
        group.admit(name)
    group.pass_time(1)
    group.cut.add("d")
    group.admit("b")
    group.settle()
    group.cut.clear()
    group.admit("c")
    group.crash("a")
    group.settle()
    group.pass_time(50)
    group.restart("a")
    group.pass_time(400)
    for name in "abcd":
        group.admit(name)
    group.pass_time(200)
    assert group.delivered("b") == group.delivered("c") == group.delivered("d")
    assert sorted(group.delivered("d")) == ["a0", "a1", "b0", "b1", "b2", "c0", "c1", "c2", "d0"]
    assert sorted(group.delivered("a")) == sorted(group.delivered("d"))
    assert Discard("b", 1) in group.effects["a"]
    assert group.kinds("d", Absent) == []


def test_a_crash_of_the_sequencer_takes_nothing_along_that_it_delivered() -> None:
    group = Group()
    group.admit("a")
    group.crash("a")
    group.travelling.clear()
    assert group.delivered("a") == []
    group.restart("a")
    group.pass_time(100)
    group.admit("b")
    group.pass_time(100)
    assert group.delivered("a") == group.delivered("b") == group.delivered("c") == ["b0"]


def test_a_sequencer_without_memory_waits_for_all_answers_and_then_for_one() -> None:
    group = Group()
    group.admit("b")
    group.pass_time(1)
    group.cut.add("b")
    group.crash("a")
    group.restart("a")
    group.cut.add("c")
    group.pass_time(1000)
    assert group.kinds("a", Present) == []
    group.cut.discard("c")
    group.pass_time(100)
    assert group.kinds("a", Present) == [Present]
    group.cut.clear()
    group.pass_time(100)
    group.admit("b")
    group.pass_time(100)
    assert group.delivered("b") == group.delivered("c") == ["b0", "b1"]
    assert group.kinds("b", Absent) == []


def test_suspicion_spares_the_recovery_its_wait() -> None:
    group = Group()
    group.crash("a")
    group.cut.add("c")
    group.restart("a")
    group.pass_time(50)
    assert group.kinds("a", Present) == []
    group.give("a", Suspected("c"))
    assert group.kinds("a", Present) == [Present]


def test_a_member_that_answered_a_new_epoch_ignores_the_old_one() -> None:
    member = follower()
    assert pdus(member.handle(0, Received("a", Recover(1))), Report) != []
    assert member.handle(0, ordered(0)) == []
    assert member.handle(0, Received("a", Heartbeat(0, 4, 0, "b"))) == []


def test_a_late_question_of_a_recovery_that_is_over_changes_nothing() -> None:
    member, sequencer = follower(), orderer()
    member.handle(0, Received("a", Recover(1)))
    member.handle(0, resume(1, epoch=1))
    answer = member.handle(0, Received("a", Recover(1)))
    assert [type(effect) for effect in answer] == [Send]
    assert sequencer.handle(0, Received("b", pdus(answer, Report)[0])) == []
    assert deliveries(member.handle(0, Received("a", Ordered(1, 0, 0, "b", "a", 0, BATCH)))) == [("a", 0)]


def report(position: int, *, kept_from: int = 0, stable: int = 0, order_epoch: int = 0) -> Report:
    return Report(2, 0, 1, 0, 2, order_epoch, position, False, kept_from, stable, {"b": position})


def test_a_recovery_takes_the_most_advanced_of_the_latest_order() -> None:
    recovery = Recovery(2, ("b", "c"), KNOBS)
    recovery.begin(0)
    recovery.on_answer(0, "b", report(9, order_epoch=0))
    recovery.on_answer(0, "c", report(2, order_epoch=1, kept_from=2, stable=2))
    recovered = recovery.outcome()
    assert recovered is not None
    assert (recovered.epoch, recovered.position, recovered.streams) == (1, 2, {"b": 2})


def test_a_recovery_skips_what_no_member_holds_any_more() -> None:
    recovery = Recovery(2, ("b", "c"), KNOBS)
    recovery.begin(0)
    recovery.on_answer(0, "b", report(5, kept_from=4, stable=1))
    effects = recovery.on_answer(0, "c", report(3, kept_from=2, stable=1))
    assert effects[:1] == [Send("b", Fetch(2, (4,)))]
    recovery.on_answer(0, "b", Ordered(2, 4, 1, "b", "b", 4, BATCH))
    recovered = recovery.outcome()
    assert recovered is not None
    assert (recovered.stable, recovered.position) == (4, 5)


def test_a_recovery_begins_again_when_the_holder_does_not_answer() -> None:
    recovery = Recovery(2, ("b", "c"), KNOBS)
    recovery.begin(0)
    recovery.on_answer(0, "b", report(1))
    assert recovery.on_answer(0, "c", report(0))[:1] == [Send("b", Fetch(2, (0,)))]
    assert recovery.tick(KNOBS.recovery_ns - 1, ())[:1] == [Send("b", Fetch(2, (0,)))]
    assert recovery.tick(KNOBS.recovery_ns, ())[:1] == [Multicast(Recover(2))]


def test_a_report_that_makes_no_sense_is_not_believed() -> None:
    recovery = Recovery(2, ("b",), KNOBS)
    assert recovery.makes_sense(report(KNOBS.order_window))
    assert recovery.makes_sense(report(7 + 4 * KNOBS.order_window, stable=7))
    assert recovery.makes_sense(report(5, kept_from=5, stable=5))
    assert recovery.makes_sense(report(NO_POSITION, kept_from=3, stable=3))
    assert recovery.makes_sense(report(NUMBER_LIMIT // 2 - 1, stable=NUMBER_LIMIT // 2 - 1))
    for nonsense in (
        report(10**6),
        report(8 + 4 * KNOBS.order_window, stable=7),
        report(5, kept_from=6),
        report(5, stable=6),
        report(NUMBER_LIMIT // 2, stable=NUMBER_LIMIT // 2),
    ):
        assert not recovery.makes_sense(nonsense)
    member = Sequencer("a", MEMBERS, KNOBS)
    member.handle(0, Start(2))
    assert member.handle(0, Received("b", report(10**6))) == []
    assert member.ignored == 1


def test_an_answer_that_makes_no_sense_does_no_harm() -> None:
    member = follower()
    member.handle(0, Returned())
    assert member.handle(0, resume(1, position=7)) == []
    assert member.ignored == 1
    streams = {"c": 1}
    member.handle(0, Received("a", Resume(0, 0, 1, 2, 9, False, False, streams)))
    member.handle(0, Received("a", Heartbeat(0, 2, 1, "b")))
    answers = pdus(member.handle(0, Received("a", Recover(1))), Report)
    assert [(answer.streams, answer.stable) for answer in answers] == [({"c": 1}, 2)]


def test_a_member_ahead_of_the_recovered_order_resumes_as_after_an_absence() -> None:
    group = Group()
    group.cut.add("c")
    group.admit("b")
    group.settle()
    group.cut = {"b"}
    group.crash("a")
    group.restart("a")
    group.pass_time(500)
    group.admit("c")
    group.pass_time(50)
    group.cut.clear()
    group.pass_time(100)
    assert group.kinds("b", Absent, Present) == [Absent, Present]
    group.admit("c")
    group.pass_time(100)
    assert group.delivered("b") == ["b0", "c1"]
    assert group.delivered("c") == ["c0", "c1"]


def test_a_group_that_lost_all_memory_begins_anew() -> None:
    group = Group()
    group.admit("b")
    group.pass_time(100)
    for name in "abc":
        group.crash(name)
    for name in "bca":
        group.restart(name)
    group.pass_time(400)
    group.admit("b")
    group.pass_time(100)
    assert [group.delivered(name) for name in "abc"] == [["b0", "b1"]] * 3


# Peers' nonsense

NAMED = st.sampled_from(["a", "b", "c", "z", "ü" * LONGEST_NAME])
SITES = NAMED | st.just("")
NUMBERS = st.integers(0, 8) | st.sampled_from([1 << 20, NUMBER_LIMIT // 2, NUMBER_LIMIT - 1])
OR_NONE = NUMBERS | st.just(-1)
EPOCHS = st.integers(0, 8) | st.sampled_from([LATEST_HEARSAY, LATEST_HEARSAY + 1, INCARNATION_LIMIT - 1])
BODIES = st.lists(st.just(b"x"), min_size=1, max_size=2).map(pack)
PLACES = st.lists(NUMBERS, max_size=4).map(tuple)
STREAMS = st.dictionaries(NAMED, NUMBERS, max_size=3)
NAMES = st.lists(NAMED, max_size=4).map(tuple)
REASONS = st.dictionaries(NAMED, st.text(max_size=3), max_size=2)
WORDS = st.one_of(
    st.builds(Request, EPOCHS, EPOCHS, NUMBERS, NUMBERS, NUMBERS, BODIES),
    st.builds(Ordered, EPOCHS, NUMBERS, NUMBERS, SITES, NAMED, NUMBERS, BODIES),
    st.builds(Heartbeat, EPOCHS, NUMBERS, NUMBERS, SITES),
    st.builds(Acknowledge, EPOCHS, EPOCHS, NUMBERS, OR_NONE, PLACES),
    st.builds(Join, EPOCHS, NUMBERS, NUMBERS, EPOCHS, EPOCHS, OR_NONE, st.booleans()),
    st.builds(
        Resume, EPOCHS, EPOCHS, NUMBERS, NUMBERS, NUMBERS, st.booleans(), st.booleans(), STREAMS
    ),
    st.builds(Recover, EPOCHS),
    st.builds(
        Report, EPOCHS, EPOCHS, NUMBERS, NUMBERS, EPOCHS, EPOCHS, OR_NONE, st.booleans(), NUMBERS,
        NUMBERS, STREAMS,
    ),
    st.builds(Fetch, EPOCHS, PLACES),
    st.builds(Leave, EPOCHS, NUMBERS),
    st.builds(Enquire, EPOCHS, EPOCHS, NUMBERS, PLACES),
    st.builds(Lacking, EPOCHS, EPOCHS, PLACES),
    st.builds(Roster, EPOCHS, NUMBERS, NAMES, REASONS),
)  # fmt: skip
TIMERS = st.sampled_from(["request", "acknowledge", "gap", "join", "heartbeat", "recover"])
EVENTS = st.one_of(
    st.tuples(SITES, WORDS).map(lambda pair: Received(*pair)),
    st.builds(TimerFired, TIMERS),
    st.builds(Suspected, SITES),
    st.builds(Restored, SITES),
    st.just(Admit((b"x",))),
    st.just(RoundTriggered()),
)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([("a", MEMBERS), ("b", MEMBERS), ("a", ("a",)), ("b", ("a", "b"))]),
    st.integers(0, 2),
    st.lists(EVENTS, max_size=25),
)
def test_no_pdu_of_any_sender_raises(
    place: tuple[str, tuple[str, ...]], incarnation: int, events: list[Input]
) -> None:
    """Nor does it make a member say what the wire cannot carry."""
    codec = Codec(PDUS)
    member = Sequencer(*place, SequencerConfiguration(window=2, order_window=3))
    member.handle(0, Start(incarnation))
    for step, event in enumerate(events):
        for effect in member.handle(step * 30 * MILLISECOND_NS, event):
            if isinstance(effect, Send | Multicast):
                assert isinstance(codec.decode(codec.encode(effect.pdu)), Packet), effect


def test_wrong_roles_are_counted() -> None:
    member, sequencer = follower(), orderer()
    member.handle(0, Received("c", Heartbeat(0, 0, 0, "b")))
    member.handle(0, request(0, sender="a"))
    sequencer.handle(0, request(0, sender="a"))
    sequencer.handle(0, Received("b", Heartbeat(0, 0, 0, "b")))
    assert (member.ignored, sequencer.ignored) == (2, 2)


@settings(max_examples=60, deadline=None)
@given(WORDS)
def test_every_pdu_survives_the_wire(pdu: Pdu) -> None:
    codec = Codec(PDUS)
    packet = codec.decode(codec.encode(pdu))
    assert isinstance(packet, Packet)
    assert packet.pdu == pdu
