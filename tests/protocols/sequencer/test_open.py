"""The fixed sequencer in live-like groups: members are met as they speak, come late, go and come back."""

import os

import pytest

from antiphon.core.effects import Absent, Appeared, Deliver, Multicast, Present, Send, Stable, Vanished
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Admit, Departed, Received, Returned, Start, Suspected, TimerFired
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.protocols.sequencer import Sequencer, SequencerConfiguration
from antiphon.protocols.sequencer.log import Outbox, Streams
from antiphon.protocols.sequencer.pdus import (
    LARGEST_BATCH_BYTES,
    MOST_MEMBERS,
    MOST_REASONS,
    MOST_STREAM_BYTES,
    NO_POSITION,
    Acknowledge,
    Enquire,
    Heartbeat,
    Join,
    Lacking,
    Leave,
    Ordered,
    Recover,
    Request,
    Resume,
    Roster,
)
from tests.protocols.harness import sequencer_swarm
from tests.protocols.harness.sequencer_group import BOOT, KNOBS, OpenGroup
from tests.protocols.harness.staging import pdus

SEEDS = int(os.environ.get("ANTIPHON_SWARM_SEEDS", "80"))
SEEDS_PER_TEST = 20
BATCH = pack([b"x"])


def group_of(names: str, knobs: SequencerConfiguration = KNOBS) -> OpenGroup:
    """These have begun, the sequencer first, and all take part."""
    group = OpenGroup(knobs)
    for name in names:
        group.begin(name)
    group.pass_time(450)
    assert all(group.kinds(name, Absent, Present) == [Present] for name in names)
    return group


def orderer(knobs: SequencerConfiguration = KNOBS) -> Sequencer:
    """A sequencer that has begun an order in epoch 1; no member knows of it yet."""
    member = Sequencer("a", ("a",), knobs)
    member.handle(-KNOBS.recovery_ns, Start(1))
    member.handle(0, TimerFired("recover"))
    return member


def join(site: str, *, attempt: int = 1, position: int = NO_POSITION, newcomer: bool = True) -> Received:
    return Received(site, Join(5, attempt, 0, 0, 1 if position >= 0 else 0, position, newcomer))


def acknowledge(site: str, position: int) -> Received:
    return Received(site, Acknowledge(1, 5, position, 0))


def request(site: str, number: int, position: int = 0) -> Received:
    return Received(site, Request(1, 5, position, 0, number, BATCH))


# Beginning


def test_a_first_sequencer_waits_for_answers_and_then_begins_an_order() -> None:
    group = OpenGroup()
    group.begin("a")
    group.admit("a")
    group.pass_time(299)
    assert group.kinds("a", Present, Deliver) == []
    group.pass_time(30)
    assert group.kinds("a", Absent, Present, Deliver, Stable) == [Present, Deliver, Stable]


def test_a_sequencer_alone_goes_on_counting_where_its_log_ended() -> None:
    group = OpenGroup()
    group.begin("a", number=5, returning=True)
    group.admit("a")
    group.pass_time(400)
    assert group.delivered("a") == ["a5"]
    assert group.kinds("a", Absent, Present) == [Present]


def test_a_member_that_waits_for_the_sequencer_misses_nothing() -> None:
    group = OpenGroup()
    for name in "bc":
        group.begin(name)
        group.admit(name)
    group.pass_time(1000)
    assert group.kinds("b", Present) == []
    group.begin("a")
    group.pass_time(400)
    assert sorted(group.delivered("a")) == ["b0", "c0"]
    assert group.delivered("a") == group.delivered("b") == group.delivered("c")
    for name in "abc":
        assert group.kinds(name, Absent, Present) == [Present]


def test_the_sequencer_is_found_by_multicast_and_then_spoken_to_alone() -> None:
    group = OpenGroup()
    group.begin("b")
    group.pass_time(100)
    assert Join in [type(effect.pdu) for effect in group.effects["b"] if isinstance(effect, Multicast)]
    group.begin("a")
    group.pass_time(400)
    group.give("b", Departed())
    effects = group.give("b", Returned())
    assert [effect.to for effect in effects if isinstance(effect, Send)] == ["a"]
    assert not any(isinstance(effect, Multicast) for effect in effects)


def test_a_newcomer_gets_the_order_from_its_beginning_while_all_of_it_is_kept() -> None:
    group = group_of("ab")
    group.cut.add("b")
    group.admit("a")
    group.begin("c")
    group.pass_time(50)
    assert group.delivered("c") == ["a0"]
    assert group.kinds("c", Absent, Present) == [Present]


def test_a_newcomer_that_comes_later_reports_a_gap() -> None:
    group = group_of("ab")
    group.admit("a")
    group.pass_time(50)
    group.begin("c")
    group.pass_time(50)
    group.admit("b")
    group.pass_time(50)
    assert group.delivered("c") == ["b0"]
    assert group.kinds("c", Absent, Present) == [Absent, Present]


def test_an_earlier_member_does_not_get_the_beginning_again() -> None:
    group = group_of("abc")
    group.cut.add("b")
    group.admit("a")
    group.pass_time(1)
    assert group.delivered("c") == ["a0"]
    group.crash("c")
    group.begin("c", returning=True)
    group.pass_time(50)
    group.cut.clear()
    group.admit("a")
    group.pass_time(50)
    assert group.delivered("c") == ["a0", "a1"]
    assert group.kinds("c", Absent, Present) == [Present, Absent, Present]


def test_a_member_without_a_log_may_count_from_zero_again() -> None:
    group = group_of("abc")
    group.admit("b", b"x", b"y")
    group.admit("a", b"x", b"y")
    group.pass_time(50)
    group.crash("b")
    group.crash("a")
    group.pass_time(300)
    group.begin("a", number=0)
    group.begin("b", number=0)
    group.pass_time(400)
    group.admit("b")
    group.admit("a")
    group.pass_time(100)
    assert sorted(group.delivered("c")) == ["a0", "a0", "a1", "b0", "b0", "b1"]


# Going and coming back


def test_a_clean_leave_is_no_longer_waited_for() -> None:
    group = group_of("abc")
    group.leave("c")
    group.admit("b")
    group.pass_time(20)
    assert group.kinds("a", Stable) == [Stable]
    assert group.kinds("c", Absent) == [Absent]
    assert Vanished("c", "It left.") in group.effects["a"]
    assert Vanished("c", "It left.") in group.effects["b"]


def test_late_pdus_do_not_bring_back_a_member_that_left() -> None:
    group = group_of("ab")
    late = Received("b", Acknowledge(group.incarnations["a"], group.incarnations["b"], 0, 0))
    group.leave("b")
    assert group.give("a", late) == []
    group.begin("b", returning=True)
    group.pass_time(50)
    assert group.give("a", Received("b", Leave(group.incarnations["b"] - 50, 9))) == []
    assert group.presence("a") == ["+b", "-b", "+b"]


def test_a_sequencer_that_leaves_is_waited_for_as_after_a_crash() -> None:
    group = group_of("abc")
    group.admit("b")
    group.pass_time(50)
    group.leave("a")
    assert Vanished("a", "It left.") in group.effects["b"]
    group.admit("b")
    group.pass_time(1000)
    assert group.delivered("c") == ["b0"]
    group.begin("a", returning=True)
    group.pass_time(400)
    assert group.delivered("b") == group.delivered("c") == ["b0", "b1"]
    assert group.kinds("b", Absent) == []
    assert group.presence("b")[-2:] == ["-a", "+a"]


def test_a_sequencer_that_begins_in_a_group_that_went_on_has_missed_something() -> None:
    group = group_of("ab")
    group.admit("b")
    group.pass_time(50)
    group.crash("a")
    group.effects["a"].clear()
    group.begin("a", number=0)
    group.pass_time(400)
    assert group.kinds("a", Absent, Present) == [Absent, Present]


@pytest.mark.parametrize("returning", [True, False])
def test_who_answers_too_late_is_let_in_anew_and_newcomers_know_of_it(returning: bool) -> None:
    group = group_of("ab")
    group.admit("b")
    group.pass_time(50)
    group.cut.add("b")
    group.crash("a")
    group.begin("a", returning=returning)
    group.pass_time(400)
    assert group.kinds("a", Present) == [Present, Present]
    group.cut.clear()
    group.pass_time(100)
    assert group.kinds("b", Absent, Present) == [Present, Absent, Present]
    group.begin("c")
    group.pass_time(100)
    assert group.kinds("c", Absent, Present) == [Absent, Present]
    group.admit("b")
    group.pass_time(100)
    assert group.delivered("a")[-1:] == group.delivered("b")[-1:] == group.delivered("c") == ["b1"]


# Epochs


@pytest.mark.parametrize("back_ms", [0, 1, 100_000])
def test_a_clock_that_went_back_never_makes_an_epoch_come_twice(back_ms: int) -> None:
    group = group_of("abc")
    group.admit("b")
    group.pass_time(50)
    first = group.incarnations["a"]
    group.crash("a")
    group.begin("a", incarnation=first - back_ms, returning=True)
    group.pass_time(1000)
    group.admit("c")
    group.pass_time(100)
    assert group.delivered("b") == group.delivered("c") == ["b0", "c0"]
    assert group.kinds("b", Absent) == []
    assert {pdu.epoch for pdu in pdus(group.effects["a"], Ordered) if pdu.sender == "c"} == {first + 2}


def test_an_order_begun_in_too_early_an_epoch_goes_on_in_a_later_one() -> None:
    group = group_of("abc")
    first = group.incarnations["a"]
    group.cut.add("b")
    group.crash("a")
    group.crash("c")
    group.begin("a", incarnation=first - 7, returning=True)
    group.begin("c", returning=True)
    group.pass_time(500)
    group.admit("c")
    group.pass_time(1)
    assert group.delivered("c") == ["c0"]
    group.cut.clear()
    group.admit("c")
    group.pass_time(200)
    group.admit("b")
    group.pass_time(50)
    assert group.delivered("c") == ["c0", "c1", "b0"]
    assert group.delivered("b")[-1:] == ["b0"]
    epochs = [pdu.epoch for pdu in pdus(group.effects["a"], Ordered)]
    assert epochs[0] == first - 7
    assert epochs[-1] > first
    assert group.kinds("c", Absent, Present) == [Present, Absent, Present]


def test_two_orders_never_put_different_messages_at_one_place() -> None:
    """Across all restarts of one group, a place in an epoch names one message."""
    group = group_of("abc")
    for back_ms in (0, 3, -2, 0):
        for name in "bca":
            group.admit(name)
        group.pass_time(30)
        clock = group.incarnations["a"] - back_ms
        group.crash("a")
        group.begin("a", incarnation=clock, returning=True)
        group.pass_time(800)
    places: dict[tuple[int, int], set[tuple[str, int]]] = {}
    for pdu in pdus(group.effects["a"], Ordered):
        places.setdefault((pdu.epoch, pdu.position), set()).add((pdu.sender, pdu.number))
    assert len(places) >= 12
    assert all(len(messages) == 1 for messages in places.values())


# Who counts


def test_all_members_learn_the_view_and_why_members_left_it() -> None:
    group = group_of("abc")
    assert group.presence("a") == ["+b", "+c"]
    assert sorted(group.presence("b")) == ["+a", "+c"]
    group.cut.add("c")
    group.pass_time(300)
    assert Vanished("c", "It has been silent for too long.") in group.effects["b"]
    assert Vanished("a", "It has been silent for too long.") in group.effects["c"]
    group.cut.clear()
    group.pass_time(100)
    assert group.effects["b"].count(Appeared("c")) == group.effects["c"].count(Appeared("a")) == 2


def test_a_member_that_missed_a_roster_gets_it_again() -> None:
    group = group_of("ab")
    group.deaf = {("b", Roster)}
    group.begin("c")
    group.pass_time(30)
    assert "+c" in group.presence("a")
    assert "+c" not in group.presence("b")
    group.deaf.clear()
    group.pass_time(100)
    assert group.presence("b") == ["+a", "+c"]


def test_a_roster_has_the_latest_reasons_only() -> None:
    member = orderer()
    for index in range(MOST_REASONS + 3):
        member.handle(0, join(f"m{index:02}"))
        member.handle(0, Suspected(f"m{index:02}"))
    (roster,) = pdus(member.handle(0, TimerFired("heartbeat")), Roster)
    assert len(roster.gone) == MOST_REASONS
    assert "m00" not in roster.gone


def test_the_witness_is_one_that_counts_and_moves_on_when_it_goes() -> None:
    group = group_of("abcd")
    group.admit("d")
    group.settle()
    (pdu,) = pdus(group.effects["a"], Ordered)
    assert pdu.witness == "b"
    assert len(pdus(group.effects["b"], Acknowledge)) - len(pdus(group.effects["c"], Acknowledge)) == 1
    group.leave("b")
    group.admit("d")
    group.settle()
    assert pdus(group.effects["a"], Ordered)[-1].witness == "c"
    assert group.delivered("a") == ["d0", "d1"]


def test_a_new_witness_acknowledges_on_a_heartbeat() -> None:
    group = group_of("abc")
    epoch = group.incarnations["a"]
    group.give("c", Received("a", Ordered(epoch, 0, 0, "b", "a", 0, BATCH)))
    effects = group.give("c", Received("a", Heartbeat(epoch, 1, 0, "c")))
    assert [pdu.position for pdu in pdus(effects, Acknowledge)] == [1]


def test_a_request_carries_the_position_as_an_acknowledgement_does() -> None:
    member = orderer()
    member.handle(0, join("b"))
    member.handle(0, request("b", 0))
    effects = member.handle(0, request("b", 1, position=1))
    assert [type(effect) for effect in effects if isinstance(effect, Deliver | Stable)] == [Deliver, Stable]


def test_what_a_newcomer_never_held_the_sequencer_does_not_deliver_on_its_word() -> None:
    member = orderer()
    member.handle(0, join("b"))
    member.handle(0, request("b", 0))
    member.handle(0, acknowledge("b", 1))
    member.handle(0, request("b", 1))
    member.handle(0, join("c"))
    member.handle(0, request("b", 2))
    assert Deliver("b", 1, BATCH, None, 5, place=1) not in member.handle(0, acknowledge("c", 3))
    assert Deliver("b", 1, BATCH, None, 5, place=1) in member.handle(0, acknowledge("b", 2))


def test_what_no_member_of_the_view_will_ever_hold_is_delivered() -> None:
    member = orderer()
    member.handle(0, join("b"))
    member.handle(0, request("b", 0))
    member.handle(0, acknowledge("b", 1))
    member.handle(0, request("b", 1))
    member.handle(0, join("c"))
    effects = member.handle(0, Suspected("b"))
    assert Deliver("b", 1, BATCH, None, 5, place=1) in effects


def test_a_late_copy_of_a_join_proves_nothing() -> None:
    member = orderer()
    member.handle(0, join("b"))
    member.handle(0, join("c"))
    for number in range(3):
        member.handle(0, request("b", number))
        for site in "bc":
            member.handle(0, acknowledge(site, number + 1))
    member.handle(0, request("b", 3))
    assert pdus(member.handle(0, join("c")), Resume) == []
    assert Stable("b", 3) not in member.handle(0, acknowledge("b", 4))


def test_a_live_member_without_progress_is_excluded() -> None:
    knobs = SequencerConfiguration(order_window=2)
    group = group_of("abc", knobs)
    group.cut.add("c")  # it hears nothing, and says the same again and again
    for _ in range(6):
        group.admit("b")
    word = Acknowledge(group.incarnations["a"], group.incarnations["c"], 0, 0)
    for _ in range(25):
        group.give("a", Received("c", word))
        group.pass_time(100)
    assert group.delivered("b") == [f"b{number}" for number in range(6)]
    assert Vanished("c", "It speaks, but has not got on for too long.") in group.effects["a"]
    assert group.presence("a")[-1:] == ["-c"]
    group.cut.clear()
    group.pass_time(200)
    assert group.presence("a")[-1:] == ["+c"]


def test_our_own_pause_counts_against_no_member() -> None:
    group = group_of("abc")
    group.admit("b")
    group.settle()
    group.now += 3_000 * MILLISECOND_NS
    for _ in range(2):
        for name, timer in (("a", "heartbeat"), ("b", "acknowledge"), ("c", "acknowledge")):
            group.give(name, TimerFired(timer))
        group.now += KNOBS.keepalive_ns
    group.pass_time(100)
    for name in "abc":
        assert not any(isinstance(effect, Vanished | Absent) for effect in group.effects[name])


def test_a_forgotten_member_is_a_member_again_at_its_next_pdu() -> None:
    group = group_of("abc")
    group.cut.add("c")
    group.pass_time(12_000)
    group.cut.clear()
    group.pass_time(100)
    assert group.presence("a") == ["+b", "+c", "-c", "+c"]
    group.admit("c")
    group.pass_time(50)
    assert group.delivered("a") == group.delivered("c") == ["c0"]
    assert group.kinds("c", Absent) == []


def test_who_left_and_was_forgotten_leaves_no_message_twice() -> None:
    """Its stream is remembered for longer than it is: a message that has a place gets no second one."""
    group = group_of("abc")
    group.admit("c")
    while group.travelling:
        source, target, pdu = group.travelling.popleft()
        if target != "c":
            group.give(target, Received(source, pdu))
    group.cut.add("c")
    group.pass_time(12_000)
    group.cut.clear()
    group.pass_time(100)
    group.admit("c")
    group.pass_time(100)
    assert group.delivered("a") == group.delivered("b") == ["c0", "c1"]
    assert group.delivered("c") == ["c1"]


def test_who_was_forgotten_may_come_back_with_a_clock_that_went_back() -> None:
    group = group_of("abc")
    earlier = group.incarnations["c"] - 1000
    group.crash("c")
    group.pass_time(300)
    group.begin("c", incarnation=earlier, returning=True)
    group.pass_time(300)
    assert group.kinds("c", Present) == [Present]
    group.pass_time(12_000)
    assert group.kinds("c", Present) == [Present, Present]


def test_a_new_sequencer_counts_anew() -> None:
    group = group_of("abcd")
    for name in "ac":
        group.crash(name)
    group.pass_time(300)
    group.begin("a", returning=True)
    group.pass_time(500)
    assert sorted(group.presence("b")) == ["+a", "+a", "+c", "+d", "-a", "-c"]


# Bounds


def test_members_are_bounded_and_those_gone_make_room() -> None:
    member = orderer()
    for index in range(MOST_MEMBERS):
        assert pdus(member.handle(0, join(f"m{index}")), Resume) != []
    assert pdus(member.handle(0, join("z")), Resume) == []
    member.handle(0, Suspected("m7"))
    assert pdus(member.handle(0, join("z")), Resume) != []


def test_long_names_leave_room_for_fewer() -> None:
    member = orderer()
    names = [f"{index:03}" + 61 * "ü" for index in range(300)]
    welcome = [name for name in names if pdus(member.handle(0, join(name)), Resume)]
    assert 100 < len(welcome) < 200


def test_streams_are_bounded_and_the_longest_silent_is_forgotten() -> None:
    streams = Streams()
    streams.note("first", 1)
    for index in range(MOST_STREAM_BYTES // 16):
        streams.note(f"s{index}", 1)
        streams.note("spoken", index)
    assert "first" not in streams
    assert "spoken" in streams
    assert sum(len(name) + 12 for name in streams) <= MOST_STREAM_BYTES


def test_the_queue_of_all_members_is_bounded() -> None:
    knobs = SequencerConfiguration(window=100, order_window=1)
    member = orderer(knobs)
    for site in "bcd":
        member.handle(0, join(site))
        for number in range(60):
            member.handle(0, request(site, number))
    for placed in range(1, 200):
        for site in "bcd":
            member.handle(0, acknowledge(site, placed))
    effects = member.handle(0, Admit((b"x",)))
    (last,) = pdus(effects, Ordered)
    assert last.position < 3 + 16 + 3


def test_the_sequencers_own_messages_find_room_however_full_the_queue_is() -> None:
    """No member would repeat them: once they were dropped, none of its messages was ordered any more."""
    member = orderer(SequencerConfiguration(window=100, order_window=1))
    member.handle(0, join("b"))
    for number in range(60):
        member.handle(0, request("b", number))
    for _ in range(4):
        member.handle(0, Admit((b"x",)))
    placed = [
        pdu
        for position in range(1, 60)
        for pdu in pdus(member.handle(0, acknowledge("b", position)), Ordered)
        if pdu.sender == "a"
    ]
    assert [pdu.number for pdu in placed] == [0, 1, 2, 3]


def test_a_batch_that_fits_no_pdu_is_misuse() -> None:
    member = orderer()
    with pytest.raises(UsageError):
        member.handle(0, Admit((bytes(LARGEST_BATCH_BYTES),)))
    member.handle(0, join("b"))
    giant = Request(1, 5, 0, 0, 0, pack([bytes(LARGEST_BATCH_BYTES)]))
    assert member.handle(0, Received("b", giant)) == []
    assert member.ignored == 1


def test_places_that_come_late_make_a_crowd_but_lost_requests_do_not() -> None:
    lossy, crowded = Outbox(window=8, repeat_ns=20), Outbox(window=8, repeat_ns=20)
    for number in range(40):
        begin = 1000 * (number + 1)
        lossy.take(BATCH).sent_ns = begin + 20
        lossy.settle(begin + 22, number + 1)
        crowded.take(BATCH).sent_ns = begin
        crowded.settle(begin + 22, number + 1)
    assert crowded.crowded
    assert not lossy.crowded


def slow_group() -> OpenGroup:
    """A group of two in which requests wait for 30 ms for their places."""
    group = group_of("ab")
    for _ in range(30):
        group.admit("b")
        delayed, group.travelling = group.travelling, type(group.travelling)()
        group.pass_time(30)
        group.travelling.extend(delayed)
        group.pass_time(1)
    group.pass_time(100)
    group.effects["b"].clear()
    return group


def test_in_a_crowd_bodies_are_sent_again_only_where_they_are_lacking() -> None:
    group = slow_group()
    copies = group.members["b"].figures()["copies"]
    group.deaf = {("b", Ordered)}
    for _ in range(3):
        group.admit("b")
    lost = [word for word in group.travelling if isinstance(word[2], Request)][1]
    group.travelling.remove(lost)
    group.pass_time(50)
    assert [pdu.number - 30 for pdu in pdus(group.effects["b"], Request)] == [0, 1, 2, 1]
    assert group.members["b"].figures()["copies"] == copies + 1
    group.deaf.clear()
    group.pass_time(50)
    assert group.delivered("a")[-3:] == ["b30", "b31", "b32"]


def test_in_a_crowd_the_oldest_is_sent_again_when_asking_does_not_help() -> None:
    group = slow_group()
    group.cut.add("b")
    group.admit("b")
    group.admit("b")
    group.pass_time(75)
    assert len(pdus(group.effects["b"], Enquire)) == 3
    assert len(pdus(group.effects["b"], Request)) == 2
    group.pass_time(20)
    assert [pdu.number - 30 for pdu in pdus(group.effects["b"], Request)] == [0, 1, 0]


def test_a_lost_request_is_sent_again_ever_more_rarely() -> None:
    group = group_of("ab")
    group.cut.add("b")
    group.admit("b")
    group.pass_time(1000)
    assert len(pdus(group.effects["b"], Request)) == 1 + 8  # after 20, 60, 140, 300, 460, … 940 ms


def test_a_position_that_was_just_sent_is_not_sent_again() -> None:
    group = group_of("abc")
    epoch = group.incarnations["a"]
    group.give("c", Received("a", Ordered(epoch, 0, 0, "b", "a", 0, BATCH)))
    group.now += KNOBS.acknowledge_ns - 1
    group.admit("c")
    group.now += 1
    assert pdus(group.give("c", TimerFired("acknowledge")), Acknowledge) == []


def test_what_finds_no_room_is_not_asked_for() -> None:
    member = orderer(SequencerConfiguration(window=2, order_window=1))
    member.handle(0, join("b"))
    for number in (0, 2, 3):
        member.handle(0, request("b", number))
    answer = pdus(member.handle(0, Received("b", Enquire(1, 5, 0, (1, 2, 3, 4, 5)))), Lacking)
    assert [pdu.numbers for pdu in answer] == [(1,)]
    member.handle(0, request("b", 1))
    assert pdus(member.handle(0, Received("b", Enquire(1, 5, 0, (1, 2, 3, 4, 5)))), Lacking) == []


def test_figures_tell_what_is_kept_and_sent_again() -> None:
    group = group_of("abc")
    group.cut.add("c")
    group.admit("b", b"xy", b"z")
    group.settle()
    assert group.members["a"].figures()["kept_messages"] == 2
    assert group.members["b"].figures()["kept_bytes"] == 3
    group.cut.clear()
    group.pass_time(100)
    assert group.members["a"].figures() == {"ignored": 0, "copies": 1, "kept_messages": 0, "kept_bytes": 0}
    assert group.members["c"].figures()["asked"] == 1


def test_a_recover_of_a_stranger_is_nothing() -> None:
    group = group_of("abc")
    assert group.give("b", Received("c", Recover(BOOT * 2))) == []
    assert group.members["b"].ignored == 1


# The swarm


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_open_groups_keep_their_promises_and_finish(first: int) -> None:
    for seed in range(first, min(SEEDS, first + SEEDS_PER_TEST)):
        group = sequencer_swarm.OpenGroup(seed)
        print(f"seed {seed}: {group.drawn}")
        finished = group.run()
        broken = group.violations()
        assert not broken, broken[0].explanation
        assert finished, "The faults are over and the run does not finish."
        for site in group.sites:
            assert group.seen[site] == set(group.sites) - {site}, f"{site} does not know who is there"
