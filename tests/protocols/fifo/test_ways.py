"""Guo, sections 2.1.2 to 2.1.4: repair by distance, up a tree, in local groups and in passes."""

from itertools import pairwise

import pytest

from antiphon.core.effects import Multicast
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Pdu
from antiphon.protocols.fifo import FifoConfiguration
from antiphon.protocols.fifo.conduct import Conduct
from antiphon.protocols.fifo.pdus import Ask, Copy, Data, Position, Sign
from antiphon.protocols.stability.by_sender import HoldAnswer, SenderPoll
from antiphon.protocols.stability.sessions import Session
from antiphon.protocols.stability.tuning import Tuning
from tests.protocols.fifo.lying import claim, lie
from tests.protocols.harness.fifo_group import Group


def lose_all(members: Group, targets: set[str], number: int) -> None:
    """Let these members lose the first multicast of a message."""

    def drop(_source: str, target: str, pdu: Pdu) -> bool:
        return isinstance(pdu, Data) and pdu.number == number and target in targets

    members.drop = drop


def asks(members: Group) -> list[tuple[str, str]]:
    return [(source, to) for source, to, _ in members.said(Ask)]


def copies(members: Group) -> list[tuple[str, str, int]]:
    return [(source, to, pdu.number) for source, to, pdu in members.said(Copy)]


def send_three(members: Group) -> None:
    for _ in range(3):
        members.admit("a")
    members.pass_time(200)


# By distance


def by_distance() -> FifoConfiguration:
    return FifoConfiguration(repair="distance", stability="session")


def test_a_far_member_asks_later_than_a_near_one_and_not_at_all_if_that_one_did() -> None:
    members = Group(4, by_distance())
    for name, distance_ms in (("b", 1), ("c", 10)):
        members.members[name]._group.peers["a"].distance_ns = distance_ms * MILLISECOND_NS
    lose_all(members, {"b", "c"}, 1)
    for _ in range(3):
        members.admit("a")
    members.settle()
    due = {name: members.timers[name, "repair"] / MILLISECOND_NS for name in "bc"}
    assert 2 <= due["b"] <= 4
    assert 20 <= due["c"] <= 40
    members.pass_time(200)
    assert asks(members) == [("b", "*")]
    assert len(copies(members)) == 1
    assert members.delivered("b", "a") == members.delivered("c", "a") == ["a0", "a1", "a2"]


def test_session_messages_measure_the_distance_whatever_the_clocks_say() -> None:
    members = Group(3, by_distance())
    members.admit("a")
    members.pass_time(900)
    assert members.said(Session)
    # The network of this test takes no time; what a member holds a time for does not count.
    assert members.members["b"]._group.peers["a"].distance_ns == 0


# Up a tree, and in local groups


def test_a_member_asks_its_parent_which_answers_it_alone() -> None:
    members = Group(8, FifoConfiguration(repair="parent", tuning=Tuning(subgroup=3)))
    lose_all(members, {"g"}, 1)  # the members stand in the tree as a(b(d, e), c(f, g)), and h below d
    send_three(members)
    assert asks(members) == [("g", "c")]
    assert copies(members) == [("c", "g", 1)]
    assert members.delivered("g", "a") == ["a0", "a1", "a2"]


def test_what_the_parent_lost_too_comes_from_above_it() -> None:
    members = Group(8, FifoConfiguration(repair="parent", tuning=Tuning(subgroup=3)))
    lose_all(members, {"b", "d"}, 1)
    send_three(members)
    assert ("b", "a") in asks(members)
    assert members.delivered("d", "a") == members.delivered("b", "a") == ["a0", "a1", "a2"]


@pytest.mark.parametrize("keeps", [True, False])
def test_what_neither_those_above_nor_the_sender_keep_comes_from_a_member_that_does(keeps: bool) -> None:
    """A member that was cut off while the others went on asked those above it for ever."""
    members = Group(8, FifoConfiguration(repair="parent", tuning=Tuning(subgroup=3)))
    members.drop = lambda source, target, _: target == "g" and source in "ac"
    members.admit("a")
    members.pass_time(20)
    lie(members, "c", "g", claim("a", 1, kept_from=1))
    lie(members, "e", "g", claim("a", 1))
    lie(members, "a", "g", claim("a", 1, kept_from=0 if keeps else 1))
    members.sent.clear()
    members.pass_time(100)
    asked = {to for source, to in asks(members) if source == "g"}
    assert asked == ({"a", "c"} if keeps else {"c", "e"})
    assert members.delivered("g", "a") == ([] if keeps else ["a0"])


def test_log_servers_are_the_heads_of_sub_groups() -> None:
    members = Group(8, FifoConfiguration(repair="parent", tuning=Tuning(subgroup=4, heads=True)))
    lose_all(members, {"g"}, 1)
    send_three(members)
    assert asks(members) == [("g", "e")]
    assert copies(members) == [("e", "g", 1)]


def local(size: int) -> Group:
    return Group(size, FifoConfiguration(repair="local", tuning=Tuning(subgroup=4)))


def test_a_local_group_repairs_within_itself() -> None:
    members = local(8)
    lose_all(members, {"f"}, 1)
    send_three(members)
    (request,) = [each for each in members.of("f", Multicast) if isinstance(each.pdu, Ask)]
    assert request.to == ("e", "g", "h")
    ((source, _, number),) = copies(members)
    assert source in request.to
    assert number == 1
    (answer,) = [each for each in members.of(source, Multicast) if isinstance(each.pdu, Copy)]
    assert answer.to == ("e", "f", "g", "h")


def test_the_sender_is_asked_only_if_no_member_of_the_local_group_has_it() -> None:
    members = local(8)
    lose_all(members, {"e", "f", "g", "h"}, 1)
    send_three(members)
    outside = [(source, to) for source, to in asks(members) if to == "a"]
    assert outside
    assert asks(members).index(outside[0]) > 0
    assert {source for source, _, _ in copies(members)} == {"a"}
    for name in "efgh":
        assert members.delivered(name, "a") == ["a0", "a1", "a2"]


# In passes


def test_a_sender_gathers_what_is_asked_for_and_repeats_it_in_one_pass() -> None:
    knobs = FifoConfiguration(repair="passes", conduct=Conduct(acknowledgements="late"))
    members = Group(3, knobs)
    lose_all(members, {"b", "c"}, 0)
    for _ in range(3):
        members.admit("a")
    members.pass_time(5)
    assert asks(members) == []  # the block is not over
    members.pass_time(200)
    assert sorted(asks(members)) == [("b", "a"), ("c", "a")]
    assert copies(members) == [("a", "*", 0)]
    assert members.delivered("b", "a") == members.delivered("c", "a") == ["a0", "a1", "a2"]


def test_a_block_ends_although_more_follows() -> None:
    members = Group(3, FifoConfiguration(repair="passes", conduct=Conduct(block_bytes=1500)))
    before = len(members.said(Sign))
    for _ in range(4):
        members.admit("a", bytes(1000))
        members.pass_time(0.001)
    assert len(members.said(Sign)) - before == 2


# Acknowledgements, rates, heartbeats


def test_late_members_leave_acknowledgements_to_stability() -> None:
    early, late = Group(4), Group(4, FifoConfiguration(conduct=Conduct(acknowledgements="late")))
    for members in (early, late):
        send_three(members)
    assert {source for source, _, _ in early.said(Position)} == {"b", "c", "d"}
    assert {source for source, _, _ in late.said(Position)} == {"b"}  # the witness
    assert not any(pdu.held for _, _, pdu in late.said(Data))
    assert any(pdu.held for _, _, pdu in early.said(Data))


def test_a_member_keeps_its_rate() -> None:
    members = Group(3, FifoConfiguration(conduct=Conduct(most_bytes_s=10_000)))
    members.admit("a", bytes(1000))
    members.settle()
    admitted = members.admitted["a"]
    members.admit("a", b"x")
    assert members.admitted["a"] == admitted
    members.pass_time(101)
    members.admit("a", b"x")
    assert members.admitted["a"] == admitted + 1


def announced(members: Group) -> list[Multicast]:
    """Announcements go to all members, signs of life to neighbours."""
    return [each for each in members.of("a", Multicast) if isinstance(each.pdu, Sign) and each.to is None]


@pytest.mark.parametrize(("most_ns", "longest_ms"), [(None, 52), (400 * MILLISECOND_NS, 105)])
def test_the_pauses_between_heartbeats_grow(most_ns: int | None, longest_ms: int) -> None:
    members = Group(2, FifoConfiguration(conduct=Conduct(announce_most_ns=most_ns)))
    members.cut.add("b")
    members.admit("a")
    times: list[int] = []
    for _ in range(220):
        before = len(announced(members))
        members.pass_time(1)
        times += [members.now // MILLISECOND_NS] * (len(announced(members)) - before)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[:3] == sorted(pauses[:3])
    assert max(pauses) <= longest_ms
    assert (max(pauses) > 52) == (most_ns is not None)


# Stability by the sender


def test_a_sender_polls_and_tells_the_least() -> None:
    knobs = FifoConfiguration(stability="sender", conduct=Conduct(acknowledgements="late"))
    members = Group(3, knobs)
    members.admit("a")
    members.pass_time(100)
    asked, told = members.said(SenderPoll)
    assert [(source, pdu.held, pdu.stable, pdu.asks) for source, _, pdu in (asked, told)] == [
        ("a", 1, 0, True),
        ("a", 1, 1, False),
    ]
    assert sorted((source, to) for source, to, _ in members.said(HoldAnswer)) == [("b", "a"), ("c", "a")]
    assert all(member.figures()["kept_bytes"] == 0 for member in members.members.values())


def test_a_result_that_was_lost_is_told_again() -> None:
    members = Group(3, FifoConfiguration(stability="sender", conduct=Conduct(acknowledgements="late")))
    members.drop = lambda _source, target, pdu: target == "c" and isinstance(pdu, SenderPoll) and not pdu.asks
    members.admit("a")
    members.pass_time(30)
    assert members.members["c"].figures()["kept_bytes"]
    members.drop = lambda _source, _target, _pdu: False
    members.pass_time(100)
    assert members.members["c"].figures()["kept_bytes"] == 0
