"""Bounded delay: stamps, the queue, late messages, what is marked, clocks, bounds, and hostile notes."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.effects import Multicast
from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.protocols.dpg.pdus import LARGEST, Farewell, Request
from antiphon.protocols.dpg.services import bounded_delay, clocks
from antiphon.protocols.dpg.services.bounded_delay import (
    FUTURE,
    GREET,
    RELEASE,
    VOUCH,
    BoundedDelayService,
    Vouch,
)
from antiphon.protocols.dpg.services.clocks import Note, bound_of, given_at, stamp_above, stamp_at
from tests.protocols.dpg.delays import BOUND, MS, START, at, hear, release, started, vouch
from tests.protocols.harness.bounded_delay_group import Group
from tests.protocols.harness.dpg_channel import FakeMember, message, remulticast, report

# Stamps


@given(st.integers(0, LARGEST // 2), st.integers(1000, 9 * SECOND_NS), st.integers(0, LARGEST // 2))
def test_a_stamp_tells_when_it_was_given_and_for_which_bound(
    clock_ns: int, bound_ns: int, floor: int
) -> None:
    stamp = stamp_at(clock_ns, bound_ns)
    assert bound_ns <= bound_of(stamp) <= bound_ns * 1.02
    assert 0 <= clock_ns - given_at(stamp) < 1024
    above = stamp_above(floor, stamp)
    assert above > floor
    assert bound_of(above) == bound_of(stamp)
    assert above == stamp or above <= floor + 2048


def test_own_stamps_rise_even_if_time_stands_still_and_exceed_what_a_note_promised() -> None:
    service, _ = started()
    stamps = [service.stamp(START), service.stamp(START)]
    told = clocks.read_note(service.note(START))
    assert told is not None
    stamps += [told.floor, service.stamp(START - 5 * MS)]
    assert stamps == sorted(set(stamps))


# The queue


def test_messages_leave_by_stamp_then_tag_and_own_ones_among_them() -> None:
    service, channel = started()
    own = message(50, stamp=at(2 * MS), incarnation=1)
    hear(service, 40, 1, 3 * MS, previous=20)
    hear(service, 20, 0, MS)
    service.hand_over(START + 2 * MS, own)
    hear(service, 30, 0, 2 * MS, sender="c")
    assert channel.multicasts() == [Multicast(own)]
    release(service, MS)
    assert [tag for tag, _ in channel.placed_tags] == [20]
    release(service, 3 * MS)
    assert [tag for tag, _ in channel.placed_tags] == [20, 30, 50, 40]
    assert channel.placed_tags[0] == (20, ())
    assert [arc[:2] for arc in channel.arcs()] == [(20, 30), (30, 50), (50, 40)]


@pytest.mark.parametrize(
    ("stamp", "is_taken"),
    [
        (0, False),
        (1, True),
        (START + FUTURE * SECOND_NS, True),
        (START + FUTURE * SECOND_NS + 1, False),
    ],
)
def test_a_stamp_is_positive_and_not_too_far_in_the_future(stamp: int, is_taken: bool) -> None:
    service, _ = started()
    service.on_message(START, "b", message(5, stamp=stamp), after_loss=False, fresh=True)
    assert service.figures()["waiting_messages"] == is_taken
    assert service.figures()["refused_stamps"] == (not is_taken)


def test_a_message_that_left_the_queue_last_does_not_enter_it_again() -> None:
    service, channel = started()
    hear(service, 10, 0, 0)
    release(service, 0)
    again = remulticast("b", message(10, stamp=at(0), incarnation=1))
    service.on_other_pdu(START + 20 * MS, "c", again, after_loss=False)
    assert service.figures()["waiting_messages"] == 0
    assert [tag for tag, _ in channel.placed_tags] == [10]


def test_of_other_pdus_only_others_messages_concern_the_queue() -> None:
    service, _ = started()
    hear(service, 10, 0, 0)
    release(service, 0)
    service.on_other_pdu(START + 20 * MS, "c", Request(b""), after_loss=False)
    for sender, waiting in (("a", 0), ("b", 1)):
        told = remulticast(sender, message(20, stamp=at(30 * MS), number=1, incarnation=1))
        service.on_other_pdu(START + 20 * MS, "c", told, after_loss=False)
        assert service.figures()["waiting_messages"] == waiting


@pytest.mark.parametrize(("above", "vouches"), [(0, False), (1, True)])
def test_a_member_vouches_if_others_have_greater_stamps_than_it_has_promised(
    above: int, vouches: bool
) -> None:
    service, channel = started("evidence")
    stamp = service.stamp(START) + above
    service.on_message(START, "b", message(5, stamp=stamp), after_loss=False, fresh=True)
    assert (VOUCH in [timer.name for timer in channel.timers()]) == vouches


def test_a_message_that_the_order_has_elsewhere_does_not_part_its_neighbours() -> None:
    service, channel = started()
    for number, tag in enumerate((10, 20, 30)):
        hear(service, tag, number, number * MS, previous=10 * number)
    channel.elsewhere.add(20)
    release(service, 2 * MS)
    assert channel.placed_tags == [(10, ()), (30, ((10, 30, True),))]


def test_one_timer_is_set_for_the_first_in_the_queue() -> None:
    service, channel = started()
    hear(service, 20, 0, 5 * MS)
    hear(service, 30, 1, 6 * MS)
    assert [timer.name for timer in channel.timers()] == [RELEASE]
    hear(service, 10, 0, 4 * MS, sender="c")
    assert len(channel.timers()) == 2
    assert channel.timers()[-1].after_ns == at(4 * MS) - (START + 5 * MS)
    channel.effects.clear()
    service.on_timer(START + 5 * MS, RELEASE)
    assert channel.placed_tags == []
    assert len(channel.timers()) == 1


def test_a_message_that_comes_twice_is_placed_once() -> None:
    service, channel = started()
    again = remulticast("b", message(20, stamp=at(MS), number=1, incarnation=1))
    hear(service, 10, 0, 0)
    release(service, 0)
    hear(service, 20, 1, MS)
    hear(service, 20, 1, MS, fresh=False)
    service.on_other_pdu(START + 2 * MS, "c", again, after_loss=False)
    assert service.figures()["waiting_messages"] == 1
    release(service, MS)
    service.on_other_pdu(START + 40 * MS, "c", again, after_loss=False)
    assert [tag for tag, _ in channel.placed_tags] == [10, 20]


@pytest.mark.parametrize("stamp", [0, LARGEST - 1, START + FUTURE * SECOND_NS + MS])
def test_an_absurd_stamp_is_refused(stamp: int) -> None:
    service, channel = started()
    service.on_message(START, "b", message(20, stamp=stamp), after_loss=False, fresh=True)
    service.on_other_pdu(START, "b", remulticast("c", message(21, stamp=stamp)), after_loss=False)
    service.on_timer(START + 60 * SECOND_NS, RELEASE)
    assert channel.placed_tags == []
    assert service.figures()["refused_stamps"] >= 1


def test_the_queue_is_bounded_and_what_finds_no_room_leaves_a_doubt() -> None:
    service, channel = started(queue_limit=3)
    for number in range(5):
        hear(service, 20 + number, number, number * MS, previous=number and 19 + number)
    service.hand_over(START + 6 * MS, message(90, stamp=at(6 * MS), incarnation=1))
    assert service.figures()["waiting_messages"] == 4
    release(service, 7 * MS)
    assert channel.arcs() == [(20, 21, False), (21, 22, False), (22, 90, True)]
    assert service.figures()["refused_stamps"] == 2


# What is marked while delays remain under the bound


def test_what_comes_in_time_is_contiguous() -> None:
    service, channel = started()
    for number, tag in enumerate((30, 20, 40)):
        hear(service, tag, number, number * MS, previous=[0, 30, 20][number])
    release(service, 2 * MS)
    assert channel.arcs() == [(30, 20, True), (20, 40, True)]


def test_who_begins_with_the_whole_group_knows_what_follows_the_origin() -> None:
    service, channel = BoundedDelayService(BOUND, adaptive=False, detector="delays"), FakeMember("a")
    channel.attach_to(service)
    service.start(START, 0)
    hear(service, 20, 0, 0)
    release(service, 0)
    service.start(START + SECOND_NS, 0)
    hear(service, 30, 0, 2 * SECOND_NS)
    release(service, 2 * SECOND_NS)
    assert channel.placed_tags == [(20, ((0, 20, True),)), (30, ())]


def test_a_late_pdu_casts_doubt_on_the_next_release_only() -> None:
    service, channel = started()
    hear(service, 10, 0, 0)
    hear(service, 20, 1, MS, previous=10)
    release(service, MS)
    hear(service, 30, 0, 2 * MS, sender="c", took_ns=BOUND - MS)
    hear(service, 40, 2, 5 * MS, previous=20)
    release(service, 5 * MS)
    assert channel.arcs() == [(10, 20, True), (20, 30, False), (30, 40, True)]
    assert service.figures()["late_pdus"] == 1


def test_a_late_report_casts_doubt_as_well() -> None:
    service, channel = started()
    hear(service, 10, 0, 0)
    release(service, 0)
    other, _ = started()
    told = other.note(START)
    service.on_report(START + 2 * BOUND, "b", report(told, incarnation=1), after_loss=False)
    hear(service, 20, 1, 2 * BOUND, previous=10)
    release(service, 2 * BOUND)
    assert channel.arcs() == [(10, 20, False)]


def test_a_late_timer_casts_doubt_as_there_may_be_pdus_that_we_have_not_read() -> None:
    service, channel = started()
    hear(service, 10, 0, 0)
    release(service, 0)
    hear(service, 20, 1, 20 * MS, previous=10)
    release(service, 20 * MS + BOUND)
    assert channel.arcs() == [(10, 20, False)]


def test_after_a_loss_nothing_is_contiguous_that_has_a_stamp_which_could_be_given_by_then() -> None:
    service, channel = started()
    hear(service, 10, 0, 0)
    hear(service, 20, 1, MS, previous=10)
    hear(service, 30, 2, 2 * MS, previous=20, after_loss=True)
    hear(service, 40, 3, 6 * MS, previous=30)
    hear(service, 50, 4, 7 * MS, previous=40)
    release(service, 7 * MS)
    assert [arc[2] for arc in channel.arcs()] == [False, False, True, True]


def test_between_the_neighbours_of_a_missing_number_nothing_is_contiguous() -> None:
    service, channel = started()
    hear(service, 10, 0, 0)
    hear(service, 11, 0, MS, sender="c")
    hear(service, 12, 1, 2 * MS, sender="c", previous=11)
    hear(service, 20, 2, 3 * MS, previous=19)
    hear(service, 30, 3, 4 * MS, previous=20)
    release(service, 4 * MS)
    assert [arc[2] for arc in channel.arcs()] == [False, False, False, True]
    assert service.figures()["gaps"] == 1


def test_a_missing_number_that_comes_in_time_leaves_no_doubt() -> None:
    service, channel = started()
    hear(service, 10, 0, 0)
    hear(service, 20, 2, 3 * MS, previous=15)
    hear(service, 15, 1, 2 * MS, previous=10, took_ns=3 * MS)
    release(service, 4 * MS)
    assert channel.arcs() == [(10, 15, True), (15, 20, True)]


def test_a_report_tells_that_a_senders_latest_message_is_missing() -> None:
    service, channel = started()
    other, _ = started()
    other.hand_over(START, message(10, stamp=other.stamp(START), number=0, incarnation=1))
    hear(service, 10, 0, 0)
    other.hand_over(START + MS, message(11, stamp=other.stamp(START + MS), number=1, incarnation=1))
    told = report(other.note(START + 2 * MS), incarnation=1)
    service.on_report(START + 3 * MS, "b", told, after_loss=False)
    service.hand_over(START + 3 * MS, message(90, stamp=at(3 * MS), incarnation=1))
    service.hand_over(START + 4 * MS, message(91, stamp=at(4 * MS), number=1, incarnation=1))
    release(service, 5 * MS)
    assert channel.arcs() == [(10, 90, False), (90, 91, True)]


# Late messages


def test_a_message_whose_lifetime_is_over_goes_where_its_stamp_says() -> None:
    service, channel = started()
    for number, tag in enumerate((10, 20, 30)):
        hear(service, tag, number, 2 * number * MS, previous=number and 10 * number)
    release(service, 4 * MS)
    hear(service, 25, 0, 3 * MS, sender="c", took_ns=30 * MS)
    assert channel.placed_tags[-1] == (25, ((25, 30, False), (20, 25, False)))
    assert service.figures()["late_messages"] == 1
    assert service.figures()["false_contiguities"] == 1
    hear(service, 40, 3, 50 * MS, previous=30)
    release(service, 50 * MS)
    assert channel.arcs()[-1] == (30, 40, False)


def test_a_late_message_before_all_that_is_remembered_precedes_the_first_of_them() -> None:
    service, channel = started()
    hear(service, 20, 0, 5 * MS)
    release(service, 5 * MS)
    hear(service, 10, 0, MS, sender="c", took_ns=30 * MS)
    assert channel.placed_tags[-1] == (10, ((10, 20, False),))


def test_a_message_that_is_late_but_before_nothing_released_takes_its_turn() -> None:
    service, channel = started()
    hear(service, 10, 0, 0)
    release(service, 0)
    hear(service, 20, 1, 5 * MS, previous=10, took_ns=3 * BOUND)
    service.on_timer(START + 50 * MS, RELEASE)
    assert channel.placed_tags[-1] == (20, ((10, 20, False),))
    assert service.figures()["late_messages"] == 0


def test_a_remulticast_message_finds_its_place_too_unless_it_is_old() -> None:
    service, channel = started()
    hear(service, 10, 0, 0)
    hear(service, 30, 2, 4 * MS, previous=20)
    release(service, 4 * MS)
    missed = message(20, stamp=at(2 * MS), number=1, previous=10, incarnation=1)
    service.on_other_pdu(START + 40 * MS, "c", remulticast("b", missed), after_loss=False)
    assert channel.placed_tags[-1] == (20, ((20, 30, False), (10, 20, False)))
    before = len(channel.placed_tags)
    old = message(5, stamp=at(-50 * MS), number=1, incarnation=1)
    service.on_other_pdu(START + 40 * MS, "c", remulticast("b", old), after_loss=False)
    assert len(channel.placed_tags) == before


def test_what_is_remembered_of_released_messages_is_bounded() -> None:
    service, channel = started()
    for number in range(5000):
        hear(service, number + 1, number, number * MS, previous=number)
        release(service, number * MS)
    assert len(channel.placed_tags) == 5000
    assert all(marked for _, _, marked in channel.arcs())
    assert len(service._recent) <= 2 * bounded_delay.RECENT
    assert len(service._contiguous) <= 2 * bounded_delay.RECENT
    assert not service._queued


def test_an_absence_makes_void_what_was_known() -> None:
    service, channel = started()
    hear(service, 10, 0, 0)
    release(service, 0)
    hear(service, 20, 1, MS, previous=10)
    service.depart(START + 2 * MS)
    service.start(START + SECOND_NS, 1)
    service.take_part(START + SECOND_NS)
    hear(service, 30, 9, SECOND_NS, previous=29)
    release(service, SECOND_NS)
    assert channel.placed_tags == [(10, ()), (20, ((10, 20, False),)), (30, ())], "20 left with us, unmarked"


# Evidence


def test_who_begins_with_its_group_greets_before_it_counts_who_is_there() -> None:
    service = BoundedDelayService(BOUND)
    channel = FakeMember("a")
    channel.attach_to(service)
    service.start(START, 0)
    now = START
    greetings = 0
    while (timers := [timer for timer in channel.timers() if timer.name == GREET]) and greetings < 9:
        now += timers[-1].after_ns
        channel.take_effects()
        service.on_timer(now, GREET)
        greetings += sum(isinstance(effect.pdu, Vouch) for effect in channel.multicasts())
    assert greetings == bounded_delay.GREETINGS
    assert now <= START + bounded_delay.BEGINNING_NS
    service.start(START + SECOND_NS, 1)
    assert GREET not in [timer.name for timer in channel.timers()], "who finds a group listens"


def test_by_evidence_nothing_is_marked_before_everyone_has_vouched() -> None:
    service, channel = started("evidence")
    vouch(service, "c", -1, -MS)
    hear(service, 10, 0, 0)
    hear(service, 20, 1, MS, previous=10)
    release(service, MS)
    assert channel.arcs() == [(10, 20, False)]
    vouch(service, "b", 2, 2 * MS)
    assert channel.arcs() == [(10, 20, False)]
    vouch(service, "c", -1, 0)
    assert channel.arcs() == [(10, 20, False)]
    vouch(service, "c", -1, 3 * MS)
    assert channel.arcs() == [(10, 20, False), (10, 20, True)]
    hear(service, 30, 2, 2 * MS, previous=20)
    hear(service, 40, 0, 5 * MS, sender="c")
    release(service, 2 * MS)
    assert channel.arcs()[2:] == [(20, 30, True)]


def test_by_evidence_a_missing_message_is_never_marked_over() -> None:
    service, channel = started("evidence")
    hear(service, 10, 0, 0)
    vouch(service, "c", -1, 0)
    hear(service, 20, 1, 4 * MS, previous=10)
    vouch(service, "c", 1, 5 * MS)
    release(service, 5 * MS)
    hear(service, 30, 2, 6 * MS, previous=20)
    vouch(service, "c", 1, 7 * MS)
    release(service, 7 * MS)
    assert channel.arcs() == [(10, 20, False), (20, 30, False)]
    hear(service, 40, 3, 8 * MS, previous=30)
    vouch(service, "c", 1, 9 * MS)
    release(service, 9 * MS)
    assert channel.arcs()[2:] == [(30, 40, True)]


def test_by_evidence_who_is_alone_waits_for_nobody() -> None:
    service, channel = started("evidence")
    for number in range(3):
        service.hand_over(
            START, message(10 + number, stamp=service.stamp(START), number=number, incarnation=1)
        )
    release(service, MS)
    assert set(channel.arcs()) >= {(10, 11, True), (11, 12, True)}


def test_by_evidence_who_vanishes_holds_the_marks_up_once_and_who_says_so_not_at_all() -> None:
    for farewell in (False, True):
        service, channel = started("evidence")
        vouch(service, "c", -1, 0)
        for number in range(20):
            sent_ns = 10 * number * MS
            if number == 1 and farewell:
                service.on_other_pdu(START + sent_ns, "c", Farewell(1), after_loss=False)
            hear(service, 10 + number, number, sent_ns, previous=number and 9 + number)
            release(service, sent_ns)
            vouch(service, "b", number + 1, sent_ns + 10 * MS)
            marks = [head for _, head, marked in channel.arcs() if marked]
            if number and (farewell or number >= 8):
                assert marks == list(range(11, 11 + number))
            elif number <= 6:
                assert marks == []
        vouch(service, "c", -1, 190 * MS)
        hear(service, 40, 20, 220 * MS, previous=29)
        vouch(service, "b", 21, 221 * MS)
        release(service, 220 * MS)
        assert channel.arcs()[-1] == (29, 40, False), "who is heard again is waited for again"


@pytest.mark.parametrize("sent", [1, 2], ids=["all came", "one is missing"])
def test_by_evidence_a_farewell_tells_whether_something_is_missing(sent: int) -> None:
    """A departed member is not waited for, but its earlier messages lie between those of the others."""
    service, channel = started("evidence")
    hear(service, 5, 0, 0, sender="c")
    hear(service, 10, 0, MS)
    last = Note(START, 0, BOUND, sent, at(2 * MS), True, b"").pack()
    service.on_other_pdu(START + 2 * MS, "c", Farewell(1, last), after_loss=False)
    vouch(service, "b", 1, 3 * MS)
    release(service, MS)
    assert ((5, 10, True) in channel.arcs()) is (sent == 1)


def test_by_evidence_a_few_vouches_that_are_lost_do_not_silence_a_member() -> None:
    service, channel = started("evidence")
    vouch(service, "c", -1, 0)
    for number, sent_ns in enumerate((0, 0, 0, 0, 0, 0, 0, 100 * MS, 200 * MS)):
        hear(service, 10 + number, number, sent_ns + 2000 * number, previous=number and 9 + number)
        release(service, sent_ns + 2000 * number)
        vouch(service, "b", number + 1, sent_ns + MS)
    assert len(channel.arcs()) == 8
    assert not any(marked for _, _, marked in channel.arcs())


def test_by_evidence_who_hears_nobody_is_cut_off_and_only_after_long_alone() -> None:
    service, channel = started("evidence")
    vouch(service, "b", -1, 0)
    vouch(service, "c", -1, 0)
    for number, sent_ns in enumerate((0, MS, 300 * MS, 900 * MS, 1100 * MS)):
        own = message(10 + number, stamp=at(sent_ns), number=number, incarnation=1)
        service.hand_over(START + sent_ns, own)
        release(service, sent_ns)
        marked = [head for _, head, marked in channel.arcs() if marked]
        assert marked == ([11, 12, 13, 14] if sent_ns > SECOND_NS else [])


def test_by_evidence_who_was_idle_is_waited_for_all_the_same() -> None:
    service, channel = started("evidence")
    vouch(service, "c", -1, 0)
    hear(service, 10, 0, MS)
    vouch(service, "c", -1, 2 * MS)
    release(service, MS)
    hear(service, 20, 1, 5 * SECOND_NS, previous=10)
    vouch(service, "b", 2, 5 * SECOND_NS + MS)
    release(service, 5 * SECOND_NS)
    assert channel.arcs() == [(10, 20, False)]
    vouch(service, "c", -1, 5 * SECOND_NS + 2 * MS)
    assert channel.arcs()[1:] == [(10, 20, True)]


def test_a_silent_member_vouches_once_and_one_that_has_spoken_does_not() -> None:
    service, channel = started("evidence")
    hear(service, 10, 0, 0)
    hear(service, 20, 1, MS, previous=10)
    assert [timer.name for timer in channel.timers()].count(VOUCH) == 1
    service.on_timer(START + 3 * MS, VOUCH)
    said = [effect.pdu for effect in channel.multicasts()]
    assert len(said) == 1
    assert isinstance(said[0], Vouch)
    assert (said[0].number, said[0].floor > at(MS)) == (-1, True)
    channel.effects.clear()
    hear(service, 30, 2, 4 * MS, previous=20)
    service.hand_over(START + 6 * MS, message(90, stamp=service.stamp(START + 6 * MS), incarnation=1))
    service.on_timer(START + 7 * MS, VOUCH)
    assert not any(isinstance(effect.pdu, Vouch) for effect in channel.multicasts())


# Whole groups


@pytest.mark.parametrize("detector", ["delays", "evidence"])
def test_every_arc_is_true_and_without_loss_every_mark_too(detector: str) -> None:
    for seed in range(4):
        group = Group(seed, 4, detector=detector, repeat=0.1, bound_ns=20 * MS)
        group.report_every(100 * MS)
        group.take_part()
        group.send_every(3 * MS, 300)
        group.run(3 * SECOND_NS)
        marks, false = group.judge()
        assert false == 0
        assert marks > 4 * 290
        assert sum(group.figures("false_contiguities")) == 0


def stalling(random: Random, now: Nanoseconds, source: int, target: int) -> Nanoseconds:
    """Now and then the way to one member stands still for longer than any bound."""
    spell = now // (100 * MS) % 5
    still = 100 * MS - now % (100 * MS) if spell == target + 1 else 0
    return still + MS + random.randrange(2 * MS)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [0.01, 0.05, 0.15])
def test_by_evidence_no_mark_is_false_whatever_the_network_does(loss: float) -> None:
    marks = 0
    for seed in range(5):
        group = Group(seed, 4, loss=loss, repeat=0.1, delay=stalling, bound_ns=5 * MS, most_ns=40 * MS)
        group.report_every(100 * MS)
        group.run(500 * MS)
        group.take_part()
        group.send_every(3 * MS, 300)
        group.run(3 * SECOND_NS)
        found, false = group.judge()
        assert false == 0
        assert sum(group.figures("false_contiguities")) == 0
        marks += found
        # Every member is still, one after another, so that the others' messages come late there.
        assert sum(group.figures("late_messages")) > 0
    assert marks > 500


def test_by_delays_a_network_that_stands_still_misleads_and_every_arc_is_true_all_the_same() -> None:
    """Why evidence is the default."""
    group = Group(1, 4, loss=0.05, delay=stalling, bound_ns=5 * MS, most_ns=40 * MS, detector="delays")
    group.report_every(100 * MS)
    group.take_part()
    group.send_every(3 * MS, 300)
    group.run(3 * SECOND_NS)
    marks, false = group.judge()
    assert 0 < false < marks // 2


def test_two_runs_of_a_group_are_the_same() -> None:
    def arcs() -> list[object]:
        group = Group(7, 4, loss=0.05)
        group.report_every(50 * MS)
        group.take_part()
        group.send_every(3 * MS, 100)
        group.run(SECOND_NS)
        return [channel.placed_tags for channel in group.channels]

    assert arcs() == arcs()
