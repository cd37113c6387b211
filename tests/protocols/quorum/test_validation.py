"""The quorum protocol's checks of single PDUs and entries, each at the value where it decides."""

from random import Random
from typing import Any

import msgspec
import pytest

from antiphon.core.effects import Send
from antiphon.core.inputs import Received, Start, TimerFired
from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.protocols.quorum import Quorum, QuorumConfiguration
from antiphon.protocols.quorum import ports as qp
from antiphon.protocols.quorum.applying import Applier
from antiphon.protocols.quorum.pdus import (
    BATCH,
    CONFIG,
    DEPART,
    ENTER,
    NOOP,
    TICK,
    Acknowledge,
    Append,
    Ask,
    Change,
    Config,
    Entry,
    Expect,
    Forward,
    Found,
    Handover,
    Removed,
    Vote,
)
from tests.protocols.harness.quorum_member import GROUP, VOTERS, Member, append, ask


def forwards(found: list[Any]) -> list[int]:
    """The numbers of the batches handed in."""
    return [each.number for each in found if isinstance(each, Forward)]


def candidate(*, trial: bool = False) -> Member:
    """A member that asks for votes in term 1, or whether it would get them."""
    member = Member()
    member.now += SECOND_NS
    member.give(TimerFired("election"))
    member.now += MILLISECOND_NS
    member.give(TimerFired("election"))
    if not trial:
        member.hear("b", Vote(GROUP, 1, 1, True, True))
    assert member.protocol.term == int(not trial)
    return member


# Whose PDUs count


def test_pdus_under_our_own_name_and_all_after_an_expulsion_are_ignored() -> None:
    member = Member()
    assert member.hear("a", ask(1)) == []
    assert member.protocol.figures()["ignored"] == 1
    member.protocol._state.is_expelled = True
    assert member.hear("b", ask(1)) == []
    assert member.protocol.figures()["ignored"] == 2


def test_pdus_of_another_group_change_nothing() -> None:
    assert Member().hear("b", Ask(GROUP + 1, 1, 1, 0, 0, False)) == []
    outsider = Member()
    outsider.protocol._state.group = 0
    assert outsider.hear("b", Ask(0, 1, 1, 0, 0, False)) == []


# Votes


@pytest.mark.parametrize(("term", "role_lost"), [(1, False), (2, True)])
def test_a_refusal_of_a_later_term_ends_a_candidacy(term: int, role_lost: bool) -> None:
    member = candidate()
    member.hear("b", Vote(GROUP, 1, term, False, False))
    assert member.protocol.term == term
    member.hear("c", Vote(GROUP, 1, 1, True, False))
    assert member.protocol.is_leader != role_lost


@pytest.mark.parametrize(
    ("vote", "wins"),
    [
        (Vote(GROUP, 1, 1, True, False), True),
        (Vote(GROUP, 1, 0, True, False), False),
        (Vote(GROUP, 1, 2, True, False), False),
        (Vote(GROUP, 1, 1, True, True), False),
        (Vote(GROUP, 2, 1, True, False), False),
    ],
)
def test_a_vote_counts_of_a_voter_in_the_term_that_is_asked_for(vote: Vote, wins: bool) -> None:
    member = candidate()
    member.hear("b", vote)
    assert member.protocol.is_leader == wins


def test_a_trial_counts_votes_for_the_next_term() -> None:
    member = candidate(trial=True)
    member.hear("b", Vote(GROUP, 1, 0, True, True))
    assert member.protocol.term == 0
    member.hear("b", Vote(GROUP, 1, 1, True, True))
    assert member.protocol.term == 1


def test_a_candidate_of_our_own_term_ends_no_candidacy() -> None:
    member = candidate()
    assert member.hear("b", ask(1)) == [Vote(GROUP, 1, 1, False, False)]
    member.hear("c", Vote(GROUP, 1, 1, True, False))
    assert member.protocol.is_leader


def test_a_trial_is_granted_for_a_later_term_only() -> None:
    member = Member(term=3)
    assert member.hear("b", ask(3, trial=True)) == [Vote(GROUP, 1, 3, False, True)]
    assert member.hear("b", ask(4, trial=True)) == [Vote(GROUP, 1, 4, True, True)]
    assert member.protocol.term == 3


@pytest.mark.parametrize(("term", "leads"), [(1, True), (2, False)])
def test_a_member_is_handed_the_lead_in_the_leaders_term(term: int, leads: bool) -> None:
    member = Member()
    member.hear("b", append(1, 0, 0))
    member.hear("b", Handover(GROUP, term, 0))
    member.hear("c", Vote(GROUP, 1, 2, True, False))
    assert member.protocol.is_leader == leads


# Removal

WITHOUT_A = Entry(1, CONFIG, body=msgspec.msgpack.encode(Config({"b": 1, "c": 1})))
AGAIN = Entry(1, CONFIG, body=msgspec.msgpack.encode(VOTERS))


@pytest.mark.parametrize(
    ("entries", "commit", "removed", "is_expelled"),
    [
        ((), 0, Removed(GROUP, 1, 1), True),
        ((), 0, Removed(GROUP, 2, 1), False),
        ((WITHOUT_A,), 0, Removed(GROUP, 1, 1), True),
        ((AGAIN,), 0, Removed(GROUP, 1, 2), False),
        ((AGAIN,), 1, Removed(GROUP, 1, 2), True),
        ((AGAIN, WITHOUT_A), 2, Removed(GROUP, 1, 2), True),
        ((WITHOUT_A, AGAIN), 2, Removed(GROUP, 1, 1), False),
        ((WITHOUT_A,), 1, Removed(GROUP, 1, 2), False),
    ],
)
def test_a_member_is_expelled_by_an_entry_later_than_the_last_that_makes_it_one(
    entries: tuple[Entry, ...], commit: int, removed: Removed, is_expelled: bool
) -> None:
    member = Member(entries=entries, term=1)
    member.hear("b", append(1, len(entries), int(bool(entries)), commit=commit))
    for other in ("b", "c"):
        member.hear(other, removed)
    assert (qp.Expelled() in member.out) == is_expelled


# The leader's entries


@pytest.mark.parametrize(("term", "leads"), [(1, True), (2, False)])
def test_a_leader_follows_a_leader_of_a_later_term_only(term: int, leads: bool) -> None:
    member = Member()
    member.lead()
    member.hear("b", append(term, 0, 0))
    assert member.protocol.is_leader == leads
    assert member.protocol.figures()["ignored"] == int(leads)


# The batches of this process


def caller() -> Member:
    """A member that has begun its session 5 with its first batch, and handed in two more."""
    member = Member("b")
    member.hear("a", append(1, 0, 0))
    member.hear("a", append(1, 0, 0, Entry(1, ENTER, "b", 5), commit=1))
    sent = [effect for ticket in (1, 2) for effect in member.give(qp.Call(ticket, b"\x91\x01"))]
    assert forwards([effect.pdu for effect in sent if isinstance(effect, Send)]) == [1, 2]
    return member


@pytest.mark.parametrize(
    ("sender", "expect", "again"),
    [
        ("a", Expect(GROUP, 5, 1), [1, 2]),
        ("a", Expect(GROUP, 5, 2), [2]),
        ("c", Expect(GROUP, 5, 1), []),
        ("a", Expect(GROUP, 4, 1), []),
        ("a", Expect(GROUP, 5, 0), []),
        ("a", Expect(GROUP, 5, 3), []),
        ("a", Expect(GROUP, 9, 0), []),
    ],
)
def test_a_member_hands_in_again_what_its_leader_expects(
    sender: str, expect: Expect, again: list[int]
) -> None:
    member = caller()
    assert forwards(member.hear(sender, expect)) == again
    assert member.protocol.life == 5


def test_nothing_that_was_not_handed_in_yet_is_handed_in_because_it_is_expected() -> None:
    member = caller()
    member.give(qp.Call(3, b"\x91\x01"))
    assert forwards(member.hear("a", Expect(GROUP, 5, 3))) == []


@pytest.mark.parametrize(
    ("life", "number", "begun", "again"),
    [(9, 0, 9, [0]), (5, 0, 5, [0]), (5, 1, 5, []), (4, 0, 5, [])],
)
def test_a_session_without_a_place_begins_behind_the_earlier_one(
    life: int, number: int, begun: int, again: list[int]
) -> None:
    member = Member("b")
    member.hear("a", append(1, 0, 0))
    assert forwards(member.hear("a", Expect(GROUP, life, number))) == again
    assert member.protocol.life == begun


def test_a_process_that_was_given_up_begins_a_later_session_with_what_has_no_place() -> None:
    member = caller()
    batch = Entry(1, BATCH, "b", 5, 1, b"\x91\x01")
    gone = Entry(1, DEPART, "b", 5)
    found = member.hear("a", append(1, 1, 1, batch, gone, commit=3))
    assert (member.protocol.life, forwards(found)) == (6, [0])
    assert [ticket for ticket, _ in member.protocol.unplaced] == [2]


# The machine


class Machine:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def apply(self, command: Any) -> None:
        self.told.append(command)

    def departed(self, site: str) -> None:
        self.told.append(site)

    def tick(self, time_ns: int) -> None:
        self.told.append(time_ns)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (Entry(1, BATCH, "b", 5, 1, b"\x91\x07"), [7]),
        (Entry(1, DEPART, "b", 5), ["b"]),
        (Entry(1, TICK, number=9), [9]),
        (Entry(1, NOOP), []),
        (Entry(1, ENTER, "b", 5), []),
    ],
)
def test_a_machine_is_told_of_commands_departures_and_ticks(entry: Entry, told: list[Any]) -> None:
    machine = Machine()
    Applier(machine).apply(entry)
    assert machine.told == told


def test_an_acknowledgement_of_a_later_term_ends_a_lead() -> None:
    member = Member()
    member.lead()
    member.hear("b", Acknowledge(GROUP, 1, 1, 0))
    assert member.protocol.is_leader
    member.hear("b", Acknowledge(GROUP, 1, 2, 0))
    assert not member.protocol.is_leader


def test_of_a_leaders_entries_those_that_differ_are_replaced() -> None:
    member = Member(entries=(Entry(1, NOOP), Entry(1, NOOP)), term=1)
    found = member.answers("b", Append(GROUP, 1, 2, 0, 0, 0, 0, (Entry(1, NOOP), Entry(2, NOOP))))
    assert found == [Acknowledge(GROUP, 1, 2, 2)]
    assert [member.protocol._state.log.term_at(index) for index in (1, 2, 3)] == [1, 2, None]


# Founding and changes


def fresh(*told: Found) -> Quorum:
    """A process that belongs to no group, and is told of some."""
    process = Quorum("b", ("a", "b", "c"), QuorumConfiguration(), Random(1))
    process.handle(0, Start(99))
    for pdu in told:
        process.handle(1, Received("a", pdu))
    return process


@pytest.mark.parametrize(
    ("told", "group"),
    [
        (Found(GROUP, VOTERS, 99), GROUP),
        (Found(GROUP, VOTERS, 98), 0),
        (Found(GROUP, Config({"b": 99})), GROUP),
        (Found(GROUP, VOTERS), 0),
        (Found(GROUP, Config({"b": 99}), 98), 0),
        (Found(0, VOTERS, 99), 0),
    ],
)
def test_a_process_belongs_to_a_group_that_names_it(told: Found, group: int) -> None:
    assert fresh(told).group == group


def test_a_process_may_be_told_of_another_group_until_it_has_a_term() -> None:
    process = fresh(Found(GROUP, VOTERS, 99), Found(GROUP + 1, VOTERS, 99))
    assert process.group == GROUP + 1
    process.handle(2, Received("a", Append(GROUP + 1, 1, 1, 0, 0, 0, 0)))
    process.handle(3, Received("a", Found(GROUP, VOTERS, 99)))
    assert (process.term, process.group) == (1, GROUP + 1)


@pytest.mark.parametrize("leads", [True, False])
def test_only_a_leader_takes_wishes_of_others(leads: bool) -> None:
    member = Member()
    if leads:
        member.lead()
    member.hear("b", Change(GROUP, "c", True))
    assert member.protocol._membership._wishes == ({"c": True} if leads else {})


@pytest.mark.parametrize(("identity", "is_taken"), [(1, True), (2, False)])
def test_a_leader_takes_batches_of_its_members_memories_only(identity: int, is_taken: bool) -> None:
    member = Member()
    member.lead()
    before = member.protocol._state.log.last
    member.hear("b", Forward(GROUP, identity, 9, 0))
    assert member.protocol._state.log.last - before == int(is_taken)
