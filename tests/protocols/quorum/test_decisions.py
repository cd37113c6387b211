"""What members make of single PDUs and entries of the log, each at the value where it decides."""

from typing import Any

import pytest

from antiphon.core.effects import Disagreed, SetTimer
from antiphon.core.inputs import Received, TimerFired
from antiphon.protocols.quorum import Role
from antiphon.protocols.quorum import ports as qp
from antiphon.protocols.quorum.applying import Applier, Raised
from antiphon.protocols.quorum.follower import LACK_NS
from antiphon.protocols.quorum.log import Log
from antiphon.protocols.quorum.pdus import (
    BATCH,
    DEPART,
    ENTER,
    MERGE,
    NOOP,
    SEAL,
    TICK,
    Acknowledge,
    Append,
    Bye,
    Config,
    Entry,
    Forward,
    Offer,
    Removed,
)
from antiphon.protocols.quorum.sessions import Sessions
from tests.protocols.harness.quorum_member import FIVE, GROUP, VOTERS, Member, append

ONE = Entry(1, NOOP)


def last(member: Member) -> int:
    return member.protocol._state.log.last


def leading(**knobs: Any) -> Member:
    """A leader whose first entry is agreed upon."""
    member = Member(**knobs)
    member.lead()
    member.hear("b", Acknowledge(GROUP, 1, member.protocol.term, last(member)))
    assert member.protocol.commit == last(member)
    return member


# Followers


def test_a_leader_is_followed_into_its_later_terms() -> None:
    member = Member()
    for term in (1, 2):
        member.hear("b", append(term, 0, 0))
        assert (member.protocol.leader, member.protocol.term) == ("b", term)


def test_a_candidate_that_hears_its_leader_follows_it_again() -> None:
    member = Member()
    member.hear("b", append(1, 0, 0))
    for event, role in (
        (TimerFired("election"), Role.CANDIDATE),
        (Received("b", append(1, 0, 0)), Role.FOLLOWER),
    ):
        member.give(event)
        assert member.protocol._state.role is role


def test_what_waits_for_the_disk_is_bounded() -> None:
    member = Member(stores=True, unstored_bytes=0)
    member.hear("b", append(1, 0, 0, ONE))
    assert last(member) == 1
    member.hear("b", append(1, 1, 1, ONE))
    assert last(member) == 1
    member.give(qp.Stored(99))
    member.hear("b", append(1, 1, 1, ONE))
    assert last(member) == 2


@pytest.mark.parametrize(
    ("previous", "term", "lacks"), [(0, 0, False), (0, 1, True), (1, 1, False), (2, 1, True)]
)
def test_entries_follow_the_one_that_their_leader_means(previous: int, term: int, lacks: bool) -> None:
    member = Member(entries=(ONE,), term=1)
    (answer,) = member.answers("b", append(1, previous, term))
    assert answer.lacking == lacks


def test_a_late_pdu_drops_nothing_and_disagrees_with_nothing() -> None:
    member = Member(term=1)
    member.hear("b", append(1, 0, 0, ONE, ONE, commit=2))
    for late in (append(1, 0, 0), append(1, 1, 1), append(1, 1, 1, ONE), append(1, 0, 0, ONE)):
        (answer,) = member.answers("b", late)
        assert answer == Acknowledge(GROUP, 1, 1, late.previous + len(late.entries))
    assert last(member) == 2
    assert not [each for each in member.out if isinstance(each, Disagreed)]


@pytest.mark.parametrize(("place", "disagrees"), [(1, True), (2, False)])
def test_only_what_is_agreed_upon_cannot_be_replaced(place: int, disagrees: bool) -> None:
    member = Member(term=1)
    member.hear("b", append(1, 0, 0, ONE, ONE, commit=1))
    member.hear("b", append(2, place - 1, place - 1 and 1, Entry(2, NOOP)))
    assert bool([each for each in member.out if isinstance(each, Disagreed)]) == disagrees
    assert member.protocol._state.log.term_at(place) == (1 if disagrees else 2)


def test_one_timer_serves_all_acknowledgements_that_wait() -> None:
    member = Member(base=FIVE, term=1)
    for index in (0, 1):
        member.hear("b", Append(GROUP, 1, 1, index, index, 0, 0, (ONE,), ("c", "d")))
        assert [each.name for each in member.out if isinstance(each, SetTimer)].count("late") == 1


@pytest.mark.parametrize(
    ("previous", "later_ns", "answered"),
    [(5, LACK_NS - 1, False), (5, LACK_NS, True), (6, LACK_NS - 1, False)],
)
def test_the_same_lack_is_said_once_in_a_while(previous: int, later_ns: int, answered: bool) -> None:
    member = Member(term=1)
    assert member.answers("b", append(1, 5, 1)) == [Acknowledge(GROUP, 1, 1, 0, True)]
    member.now += later_ns
    assert bool(member.answers("b", append(1, previous, 1))) == answered


def test_another_lack_is_said_at_once() -> None:
    member = Member(term=1)
    member.hear("b", append(1, 5, 1))
    member.hear("b", append(1, 0, 0, ONE))
    assert member.answers("b", append(1, 5, 1)) == [Acknowledge(GROUP, 1, 1, 1, True)]


# Leaders


def test_a_full_leader_takes_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    member = leading()
    for most, taken in ((-1, 0), (0, 1)):
        monkeypatch.setattr("antiphon.protocols.quorum.leader.MOST_PENDING", most)
        before = last(member)
        member.hear("b", Forward(GROUP, 1, 9, 0))
        assert last(member) - before == taken


def test_a_batch_that_has_its_place_or_whose_session_is_over_gets_none() -> None:
    member = leading()
    for life in (9, 10):
        member.hear("b", Forward(GROUP, 1, life, 0))
    before = last(member)
    for life, number in ((10, 0), (9, 1)):
        assert member.hear("b", Forward(GROUP, 1, life, number, b"\x90")) == []
    assert last(member) == before


def test_a_sealed_group_takes_members_and_no_batches() -> None:
    member = leading()
    member.give(qp.Seal(True))
    before = last(member)
    for number, taken in ((0, 1), (1, 1)):
        member.hear("b", Forward(GROUP, 1, 9, number, b"\x90"))
        assert last(member) - before == taken


def test_a_session_ends_when_its_own_process_says_goodbye() -> None:
    member = leading()
    member.hear("b", Forward(GROUP, 1, 9, 0))
    before = last(member)
    for sender, life, ended in (("c", 9, 0), ("b", 8, 0), ("b", 9, 1), ("b", 9, 1)):
        member.hear(sender, Bye(GROUP, life))
        assert last(member) - before == ended


def test_a_batch_is_a_sign_of_life_of_its_sender() -> None:
    member = leading()
    assert member.protocol._leader.peers["c"].heard_ns < member.now + 7
    member.now += 7
    member.hear("c", Forward(GROUP, 1, 9, 0))
    assert member.protocol._leader.peers["c"].heard_ns == member.now


def test_an_acknowledgement_of_an_earlier_term_counts_nothing() -> None:
    member = Member()
    member.lead()
    member.hear("b", Acknowledge(GROUP, 1, member.protocol.term - 1, 1))
    assert member.applied() == []


def test_a_process_that_is_no_member_is_told_so_once_that_is_agreed_upon() -> None:
    member = Member()
    member.lead()
    term = member.protocol.term
    assert member.hear("eve", Acknowledge(GROUP, 7, term, 1)) == [Removed(GROUP, 7, 0)]
    member.hear("b", Acknowledge(GROUP, 1, term, last(member)))
    member.give(qp.Wish("c", remove=True))
    assert member.protocol._state.log.config_index > member.protocol.commit
    assert member.hear("c", Acknowledge(GROUP, 1, term, 1)) == []
    member.hear("b", Acknowledge(GROUP, 1, term, last(member)))
    told = [each for each in member.hear("c", Acknowledge(GROUP, 1, term, 1)) if isinstance(each, Removed)]
    assert [each.identity for each in told] == [1]


@pytest.mark.parametrize(("lacking", "beyond", "ignored"), [(False, 0, 0), (False, 1, 1), (True, 1, 0)])
def test_what_is_acknowledged_is_in_the_log(lacking: bool, beyond: int, ignored: int) -> None:
    member = leading()
    member.hear("c", Acknowledge(GROUP, 1, member.protocol.term, last(member) + beyond, lacking))
    assert member.protocol.figures()["ignored"] == ignored


@pytest.mark.parametrize(("lacks", "fed"), [(1, True), (0, False)])
def test_a_member_that_lacks_the_last_entry_is_fed(lacks: int, fed: bool) -> None:
    member = leading()
    member.protocol._leader.peers["c"].next = last(member) + 1 - lacks
    found = member.hear("c", Acknowledge(GROUP, 1, member.protocol.term, 0))
    assert [each.previous for each in found if isinstance(each, Append)] == (
        [last(member) - 1] if fed else []
    )


def test_the_same_lack_is_met_once_in_a_while() -> None:
    member = leading()
    resend_ns = member.protocol._state.knobs.resend_ns

    def is_fed(match: int) -> bool:
        return bool(member.hear("c", Acknowledge(GROUP, 1, member.protocol.term, match, True)))

    member.hear("b", Forward(GROUP, 1, 9, 0))
    assert is_fed(0)
    member.now += resend_ns - 1
    assert not is_fed(0)
    assert is_fed(1)
    member.now += resend_ns
    assert is_fed(1)


def test_what_is_gone_is_offered_as_a_snapshot() -> None:
    base = qp.Snapshot(qp.SnapshotHead(9, 1, VOTERS, {}, 0), b"state")
    member = Member(snapshot=base, term=1)
    member.lead()
    for match, kind in ((8, Offer), (9, Append)):
        found = member.hear("c", Acknowledge(GROUP, 1, member.protocol.term, match, True))
        assert [type(each) for each in found] == [kind]


# The batches of this process


def calling() -> Member:
    """A member with a session 5, whose batches 1 and 2 have no place yet."""
    member = Member("b")
    member.hear("a", append(1, 0, 0, Entry(1, ENTER, "b", 5), commit=1))
    for ticket in (1, 2):
        member.give(qp.Call(ticket, b"\x91\x01"))
    return member


def tickets(member: Member) -> list[int | None]:
    return [each.ticket for each in member.out if isinstance(each, qp.Apply)]


def test_only_its_own_batches_get_their_place() -> None:
    member = calling()
    others = (Entry(1, ENTER, "c", 5), Entry(1, BATCH, "c", 5, 1, b"\x91\x01"))
    member.hear("a", append(1, 1, 1, *others, commit=3))
    assert [ticket for ticket, _ in member.protocol.unplaced] == [1, 2]
    member.hear("a", append(1, 3, 1, Entry(1, BATCH, "b", 5, 1, b"\x91\x01"), commit=4))
    assert [ticket for ticket, _ in member.protocol.unplaced] == [2]
    assert tickets(member)[-3:] == [None, None, 1]


def test_a_session_of_another_process_under_our_name_takes_no_place_of_ours() -> None:
    member = calling()
    found = member.hear("a", append(1, 1, 1, Entry(1, ENTER, "b", 9), commit=2))
    assert [each.number for each in found if isinstance(each, Forward)] == [0]


def test_a_batch_that_was_given_up_has_no_ticket() -> None:
    member = calling()
    member.give(qp.Abandon())
    member.hear("a", append(1, 1, 1, Entry(1, BATCH, "b", 5, 1, b""), commit=2))
    assert tickets(member)[-1] is None


# Sessions, the log, the machine


def test_sessions_end_by_their_own_departure_alone() -> None:
    sessions = Sessions()
    assert sessions.take(Entry(1, DEPART, "a", 5)) == []
    sessions.take(Entry(1, ENTER, "a", 5))
    for life, ended in ((4, False), (6, False), (5, True), (5, False)):
        assert bool(sessions.take(Entry(1, DEPART, "a", life))) == ended


def test_what_seals_a_log_and_touches_a_state() -> None:
    sessions = Sessions()
    assert sessions.take(Entry(1, TICK, number=7)) != []
    assert sessions.take(Entry(1, TICK, number=7)) == []
    assert (sessions.is_sealed, sessions.is_touched) == (False, False)
    sessions.take(Entry(1, SEAL, number=1))
    assert (sessions.is_sealed, sessions.is_touched) == (True, False)
    sessions.take(Entry(1, MERGE, "b", 1, 0, b""))
    assert (sessions.is_sealed, sessions.is_touched) == (True, True)


def test_pieces_of_a_state_follow_each_other_from_the_first_on() -> None:
    member = Member()
    numbers = (1, 0, 0, 2, 1, 0)
    pieces = [Entry(1, MERGE, "z", 2, number, b"%d" % place) for place, number in enumerate(numbers)]
    member.hear("b", append(1, 0, 0, *pieces, commit=len(pieces)))
    merged = [(each.index, each.data) for each in member.out if isinstance(each, qp.Merge)]
    assert merged == [(5, b"24")]


def test_a_term_begins_behind_the_base_of_the_log() -> None:
    log = Log()
    log.begin(5, 1, Config({"a": 1}))
    log.append([Entry(1, NOOP), Entry(1, NOOP), Entry(2, NOOP)])
    assert [log.first_of_term(index) for index in (6, 7, 8)] == [6, 6, 8]


def test_members_that_the_last_entry_made_stay_when_what_follows_is_cut() -> None:
    member = Member()
    member.lead()
    member.hear("b", Acknowledge(GROUP, 1, member.protocol.term, last(member)))
    member.give(qp.Wish("c", remove=True))
    log = member.protocol._state.log
    at = log.config_index
    log.append([ONE])
    log.cut(at)
    assert log.config_index == at
    assert "c" not in log.config.voters


class Caller:
    """A machine that is told which member called."""

    def apply_from(self, command: Any, caller: str) -> str:
        return f"{caller} {command}"


def test_a_machine_that_asks_for_callers_is_told_them() -> None:
    applier = Applier(Caller())
    assert applier.apply(Entry(1, BATCH, "b", 5, 1, b"\x91\x07")) == ["b 7"]
    assert applier.apply(Entry(1, DEPART, "b", 5)) == []
    assert applier.apply(Entry(1, TICK, number=9)) == []
    assert not any(
        isinstance(each, Raised) for each in applier.apply(Entry(1, BATCH, "b", 5, 2, b"\x91\x07"))
    )
