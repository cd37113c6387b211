"""Greetings, foundings and groups that a process is told of: which of them count."""

from random import Random
from typing import Any

import msgspec
import pytest

from antiphon.core.effects import Multicast, Send
from antiphon.core.inputs import Received, Start, TimerFired
from antiphon.protocols.quorum import Quorum, QuorumConfiguration
from antiphon.protocols.quorum import ports as qp
from antiphon.protocols.quorum.pdus import (
    CONFIG,
    MOST_VOTERS,
    NOOP,
    Agree,
    Append,
    Config,
    Entry,
    Found,
    Greet,
)
from tests.protocols.harness.quorum_member import GROUP, VOTERS, Member

LEARNING = Config(VOTERS.voters, {"d": 9})


class Process:
    """A process that belongs to no group, under the name b and with the identity 99."""

    def __init__(self, members: tuple[str, ...] = ("a", "b", "c"), **knobs: Any) -> None:
        self.protocol = Quorum("b", members, QuorumConfiguration(**knobs), Random(1))
        self.out: list[Any] = []
        self.give(Start(99))

    def give(self, event: Any) -> list[Any]:
        found = self.protocol.handle(1, event)
        self.out += found
        return [each.pdu for each in found if isinstance(each, Send | Multicast)]

    def hear(self, sender: str, pdu: Any) -> list[Any]:
        return self.give(Received(sender, pdu))

    @property
    def answers(self) -> dict[str, Any]:
        return self.protocol._membership.founding._answers


# Which processes are shown a group


@pytest.mark.parametrize(
    ("leads", "sender", "greet", "is_shown"),
    [
        (True, "d", Greet(9, 0), True),
        (True, "d", Greet(8, 0), False),
        (True, "eve", Greet(9, 0), False),
        (False, "d", Greet(9, 0), False),
        (False, "b", Greet(1, 0), True),
        (False, "b", Greet(2, 0), False),
        (False, "b", Greet(1, GROUP), False),
    ],
)
def test_a_group_is_shown_to_its_members(leads: bool, sender: str, greet: Greet, is_shown: bool) -> None:
    entry = Entry(1, CONFIG, body=msgspec.msgpack.encode(LEARNING))
    member = Member(entries=(entry,), term=1)
    if leads:
        member.lead()
    found = [each for each in member.hear(sender, greet) if isinstance(each, Found)]
    assert found == ([Found(GROUP, VOTERS, greet.identity)] if is_shown else [])


@pytest.mark.parametrize("leads", [True, False])
def test_behind_a_snapshot_only_a_leader_shows_its_group(leads: bool) -> None:
    member = Member(snapshot=qp.Snapshot(qp.SnapshotHead(9, 1, VOTERS, {}, 0), b"state"), term=1)
    if leads:
        member.lead()
    assert bool([each for each in member.hear("b", Greet(1, 0)) if isinstance(each, Found)]) == leads


def test_a_process_without_a_group_shows_none() -> None:
    process = Process()
    assert [type(each) for each in process.hear("a", Greet(9, 0))] == [Greet]


# Which group a process takes up


@pytest.mark.parametrize(
    ("told", "anew"), [(Found(GROUP, VOTERS, 99), False), (Found(GROUP, Config({"b": 99})), True)]
)
def test_a_process_learns_whether_its_group_begins(told: Found, anew: bool) -> None:
    process = Process()
    process.hear("a", told)
    assert [each.anew for each in process.out if isinstance(each, qp.Founded)] == [anew]
    again = len(process.out)
    assert process.hear("a", told) == []
    assert len(process.out) == again


@pytest.mark.parametrize(
    ("told", "is_taken"),
    [
        (Found(GROUP + 1, VOTERS, 99), True),
        (Found(GROUP + 1, Config({"b": 99})), False),
        (Found(GROUP - 1, Config({"b": 99})), True),
        (Found(GROUP - 1, VOTERS, 98), False),
    ],
)
def test_of_two_groups_the_lower_goes_on_unless_the_other_asks_for_this_process(
    told: Found, is_taken: bool
) -> None:
    process = Process()
    process.hear("a", Found(GROUP, VOTERS, 99))
    process.hear("a", told)
    assert process.protocol.group == (told.group if is_taken else GROUP)


@pytest.mark.parametrize(("entries", "is_taken"), [((), True), ((Entry(1, NOOP),), False)])
def test_a_process_that_has_voted_takes_up_a_group_with_a_leader_unless_it_holds_entries(
    entries: tuple[Entry, ...], is_taken: bool
) -> None:
    process = Process()
    process.hear("a", Found(GROUP, VOTERS, 99))
    process.hear("a", Append(GROUP, 1, 1, 0, 0, 0, 0, entries))
    process.hear("c", Found(GROUP + 1, VOTERS, 99, True))
    assert process.protocol.group == GROUP + is_taken


@pytest.mark.parametrize(
    ("sender", "identity", "called", "noted"),
    [("b", 1, True, True), ("b", 7, False, True), ("b", 0, False, False), ("eve", 7, False, False)],
)
def test_a_leader_calls_members_over_that_voted_elsewhere(
    sender: str, identity: int, called: bool, noted: bool
) -> None:
    member = Member()
    member.lead()
    before = dict(member.protocol._membership.seen)
    found = member.hear(sender, Found(GROUP + 1, Config({sender: identity})))
    assert (Found(GROUP, VOTERS, identity, True) in found) == called
    assert (member.protocol._membership.seen != before) == noted


# Founding


def test_members_that_are_named_answer_no_others_question() -> None:
    process = Process()
    for name in ("c", "z"):
        process.hear(name, Greet(9, 0, 99))
    assert list(process.answers) == ["c"]
    waiting = Process(())
    waiting.hear("c", Greet(9, 0, 99))
    assert list(waiting.answers) == []


def test_answers_are_bounded_and_the_latest_of_each_process_counts() -> None:
    process = Process((), expected=3)
    for number in range(MOST_VOTERS + 1):
        process.hear(f"p{number}", Greet(9, 0, 99, expected=3))
    assert len(process.answers) == MOST_VOTERS
    process.hear("p0", Greet(10, 0, 99, expected=3))
    assert process.answers["p0"].identity == 10


def seeing(*answers: Greet, expected: int = 3) -> Process:
    """A process that expects others, with the answers of a, c, …"""
    process = Process((), expected=expected)
    for name, answer in zip("acd", answers, strict=False):
        process.hear(name, answer)
    return process


THERE = Greet(9, 0, 99, expected=3)
ALL = {"a": 9, "b": 99, "c": 9}


@pytest.mark.parametrize(
    ("answers", "proposed", "agrees"),
    [
        ((THERE, THERE), ALL, True),
        ((THERE, THERE), {"a": 9, "b": 99, "d": 9}, False),
        ((THERE, THERE), {"a": 9, "c": 9, "d": 9}, False),
        ((THERE,), {"a": 9, "b": 99}, False),
        ((THERE, THERE, THERE), ALL, False),
        ((THERE, Greet(9, 0, 99, expected=4)), ALL, False),
        ((THERE, Greet(9, GROUP, 99, expected=3)), ALL, False),
    ],
)
def test_a_process_agrees_to_those_that_it_sees_itself(
    answers: tuple[Greet, ...], proposed: dict[str, int], agrees: bool
) -> None:
    assert seeing(*answers).hear("a", Agree(proposed)) == ([Agree(proposed)] if agrees else [])


def test_a_process_agrees_once() -> None:
    process = seeing(THERE, THERE)
    assert process.hear("a", Agree(ALL)) == [Agree(ALL)]
    process.hear("c", Greet(10, 0, 99, expected=3))
    assert process.hear("a", Agree({**ALL, "c": 10})) == []
    assert process.hear("a", Agree(ALL)) == [Agree(ALL)]


def test_two_are_a_group_where_two_are_expected() -> None:
    process = seeing(Greet(9, 0, 99, expected=2), expected=2)
    both = {"a": 9, "b": 99}
    assert process.hear("c", Agree(both)) == []
    assert process.hear("a", Agree(both)) == [Agree(both)]


def test_a_process_that_counts_no_others_or_has_a_group_agrees_to_nothing() -> None:
    named = Process()
    named.hear("a", Greet(9, 0, 99))
    named.hear("c", Greet(9, 0, 99))
    assert named.hear("a", Agree(ALL)) == []
    process = seeing(THERE, THERE)
    process.hear("a", Found(GROUP, VOTERS, 99))
    assert process.hear("a", Agree(ALL)) == []


def test_a_founder_founds_the_group_that_all_have_agreed_to() -> None:
    process = Process((), expected=3)
    for name in "cd":
        process.hear(name, THERE)
    for _ in range(3):
        process.give(TimerFired("greet"))
    group = {"b": 99, "c": 9, "d": 9}
    for name, agreed in (("c", {**group, "d": 10}), ("d", group), ("d", group)):
        process.hear(name, Agree(agreed))
        assert process.protocol.group == 0
    process.hear("c", Agree(group))
    assert process.protocol.config.voters == group
