"""What a single process may not do, whatever it sends: use up the terms, unseat a leader, remove a member."""

from typing import Any

import msgspec
import pytest

from antiphon.core.inputs import TimerFired
from antiphon.core.time import SECOND_NS
from antiphon.protocols.quorum import ports as qp
from antiphon.protocols.quorum.applying import Applier
from antiphon.protocols.quorum.election import MOST_LEAP
from antiphon.protocols.quorum.membership import MOST_SEEN
from antiphon.protocols.quorum.pdus import (
    BATCH,
    MOST_VOTERS,
    TICK,
    Acknowledge,
    Append,
    Ask,
    Change,
    Config,
    Entry,
    Fetch,
    Greet,
    Handover,
    Offer,
    Piece,
    Removed,
    Vote,
)
from antiphon.replicated.objects import Objects
from tests.protocols.harness.quorum_member import FIVE, GROUP, Member, append


def claims(term: int) -> list[Any]:
    """PDUs that make a member take up a later term."""
    return [
        Vote(GROUP, 1, term, False, False),
        Ask(GROUP, 1, term, 0, 0, False, True),
        Append(GROUP, 1, term, 0, 0, 0, 0),
        Acknowledge(GROUP, 1, term, 0),
        Offer(GROUP, 1, term, 9, 1, 100, 0),
    ]


@pytest.mark.parametrize("place", range(5), ids=lambda place: type(claims(1)[place]).__name__)
def test_a_term_does_not_leap(place: int) -> None:
    """The greatest numbers would leave no term for the next election, on disk as well."""
    member = Member()
    member.lead()
    term = member.protocol.term
    for far in ((1 << 53) - 1, term + MOST_LEAP + 1):
        member.hear("b", claims(far)[place])
        assert (member.protocol.term, member.protocol.is_leader) == (term, True)
    member.hear("b", claims(term + MOST_LEAP)[place])
    assert member.protocol.term == term + MOST_LEAP


@pytest.mark.parametrize("place", range(5), ids=lambda place: type(claims(1)[place]).__name__)
def test_a_stranger_unseats_no_leader_that_is_heard(place: int) -> None:
    member = Member()
    member.hear("b", append(1, 0, 0))
    member.hear("eve", claims(2)[place])
    member.hear("eve", claims(1)[place])
    member.hear("c", claims(1)[place])
    assert (member.protocol.leader, member.protocol.term) == ("b", 1)
    leading = Member()
    leading.lead()
    leading.hear("eve", claims(leading.protocol.term + 1)[place])
    assert leading.protocol.is_leader


def test_a_member_that_hears_no_leader_follows_one_that_was_added_meanwhile() -> None:
    member = Member()
    member.hear("b", append(1, 0, 0))
    member.now += SECOND_NS
    member.hear("d", append(2, 0, 0))
    assert member.protocol.leader == "d"


def test_a_leader_has_no_entries_of_later_terms() -> None:
    """Later elections would be lost against them."""
    member = Member()
    member.hear("b", append(1, 0, 0, Entry(2, BATCH, "b", 1, 1)))
    assert member.protocol._state.log.last == 0
    member.hear("b", append(1, 0, 0, Entry(1, BATCH, "b", 1, 1)))
    assert member.protocol._state.log.last == 1
    fetching = Member()
    assert not any(isinstance(each, Fetch) for each in fetching.hear("b", Offer(GROUP, 1, 1, 9, 2, 100, 0)))
    assert any(isinstance(each, Fetch) for each in fetching.hear("b", Offer(GROUP, 1, 1, 9, 1, 100, 0)))


# Removal


@pytest.mark.parametrize("leader", ["b", None])
def test_a_member_is_removed_when_most_of_the_others_say_so(leader: str | None) -> None:
    member = Member(base=FIVE)
    if leader is not None:
        member.hear(leader, append(1, 0, 0))
    told = Removed(GROUP, 1, 1)
    asked = member.answers("b", told)
    assert [each.trial for each in asked if isinstance(each, Ask)] == [True], "the others are asked"
    assert member.hear("b", told) == []
    member.hear("c", told)
    assert qp.Expelled() not in member.out
    member.hear("d", told)
    assert qp.Expelled() in member.out


def test_what_was_said_of_a_removal_long_ago_counts_no_more() -> None:
    member = Member()
    member.hear("b", Removed(GROUP, 1, 1))
    member.now += SECOND_NS
    member.hear("c", Removed(GROUP, 1, 1))
    assert qp.Expelled() not in member.out
    member.hear("b", Removed(GROUP, 1, 1))
    assert qp.Expelled() in member.out


def test_of_two_members_the_other_one_decides() -> None:
    member = Member(base=Config({"a": 1, "b": 1}))
    member.hear("b", Removed(GROUP, 1, 1))
    assert qp.Expelled() in member.out


def test_a_stranger_has_no_member_removed_and_hands_no_lead_over() -> None:
    member = Member()
    member.lead()
    member.hear("eve", Change(GROUP, "c", True))
    assert member.protocol._membership._wishes == {}
    follower = Member()
    follower.hear("b", append(1, 0, 0))
    assert follower.answers("eve", Handover(GROUP, 1, 0)) == []
    assert any(isinstance(each, Ask) for each in follower.answers("b", Handover(GROUP, 1, 0)))


# Tables


def test_a_crowd_of_strangers_keeps_no_process_from_being_added() -> None:
    member = Member()
    member.lead()
    for number in range(MOST_SEEN + 1):
        member.hear(f"eve{number}", Greet(7, 0))
    member.hear("d", Greet(9, 0))
    assert member.protocol._membership.seen["d"] == 9
    assert len(member.protocol._membership.seen) == MOST_SEEN


def test_wishes_that_cannot_be_met_keep_no_other_from_being_met() -> None:
    member = Member()
    member.lead()
    for number in range(MOST_VOTERS + 1):
        member.give(qp.Wish(f"ghost{number}", remove=False))
    member.give(qp.Wish("d", remove=False))
    assert list(member.protocol._membership._wishes)[-1] == "d"
    assert len(member.protocol._membership._wishes) == MOST_VOTERS


def test_pieces_count_only_from_the_process_that_was_asked() -> None:
    member = Member()
    member.hear("b", Offer(GROUP, 1, 1, 9, 1, 100_000, 0))
    member.hear("c", Piece(GROUP, 9, 0, b"forged"))
    assert member.protocol.figures()["fetched_bytes"] == 0
    member.hear("b", Piece(GROUP, 9, 0, b"x" * 60_000))
    assert member.protocol.figures()["fetched_bytes"] == 60_000
    member.now += SECOND_NS
    member.give(TimerFired("transfer"))


# Clocks


def ticks(member: Member) -> list[int]:
    return [entry.number for entry in member.protocol._state.log.behind(0) if entry.kind == TICK]


def test_the_agreed_time_neither_stops_nor_leaps_with_a_time_of_day() -> None:
    year_ns = 365 * 86_400 * SECOND_NS
    member = Member()
    member.lead()
    for wall_ns in (50 * year_ns, 10 * year_ns, 90 * year_ns, 1, 1 << 63):
        member.give(qp.ClockTick(wall_ns))
        member.now += SECOND_NS
    assert [each - 50 * year_ns for each in ticks(member)] == [second * SECOND_NS for second in range(5)]


def test_a_leader_goes_on_from_the_time_that_it_was_told() -> None:
    member = Member()
    member.hear("b", append(1, 0, 0, Entry(1, TICK, number=1000), commit=1))
    member.now += SECOND_NS
    member.lead()
    begun = member.now
    member.give(qp.ClockTick(7))
    assert ticks(member)[-1] == 1000 + begun - SECOND_NS
    again = Member(entries=[Entry(1, TICK, number=5000)], term=1)  # what a disk has kept
    again.lead()
    again.give(qp.ClockTick(7))
    assert ticks(again)[-1] == 5001
    again.now += SECOND_NS
    again.give(qp.ClockTick(7))
    assert ticks(again)[-1] == 5001 + SECOND_NS


# What is applied

BODIES = (
    b"", b"\x05", b"\xc0", b"\xa3abc", b"\x81\xa1a\x01", b"\x91", b"\x81\x80\x01", b"\xa1\xff",
    b"\xd7\xff" + b"\xff" * 8, b"\x91\xc7\x0c\xff" + b"\xff" * 12, b"\x91" * 5000 + b"\xc0",
)  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body[:6].hex())
def test_a_batch_that_is_no_list_of_commands_has_no_effect(body: bytes) -> None:
    """It stands in the log for good: what raised there would end every replica, and after a restart again."""
    assert Applier(Objects()).apply(Entry(1, BATCH, "a", 1, 1, body)) == []


def test_a_merge_that_cannot_be_taken_up_leaves_the_machine_as_it_is() -> None:
    objects = Objects()
    objects.apply(["m", "map", "set", "x", 1, None])
    before = objects.snapshot()
    strange = msgspec.msgpack.encode([["z", "no such kind", None]])
    assert Applier(objects, Objects.merge).merge(strange) is not None
    assert objects.snapshot() == before
