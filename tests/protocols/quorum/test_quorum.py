"""One member between fakes: votes, agreement, the disk, the founding, garbage."""

from random import Random
from typing import Any

import pytest

from antiphon.core.effects import Multicast, Send
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Received, Start, TimerFired
from antiphon.core.time import SECOND_NS
from antiphon.protocols.quorum import Quorum, QuorumConfiguration
from antiphon.protocols.quorum import ports as qp
from antiphon.protocols.quorum.pdus import (
    BATCH,
    ENTER,
    NOOP,
    Acknowledge,
    Append,
    Ask,
    Config,
    Entry,
    Expect,
    Forward,
    Found,
    Greet,
    Vote,
)
from tests.protocols.harness.quorum_member import FIVE, GROUP, VOTERS, Member, append, ask


def test_a_vote_is_given_once_in_a_term() -> None:
    member = Member()
    assert member.hear("b", ask(1)) == [Vote(GROUP, 1, 1, True, False)]
    assert member.hear("c", ask(1)) == [Vote(GROUP, 1, 1, False, False)]
    assert member.hear("b", ask(1)) == [Vote(GROUP, 1, 1, True, False)]  # its answer may have been lost


def test_a_shorter_log_gets_no_vote() -> None:
    member = Member(entries=(Entry(1, NOOP), Entry(1, NOOP)), term=1)
    assert member.hear("b", ask(2, last=1, last_term=1)) == [Vote(GROUP, 1, 2, False, False)]
    assert member.hear("b", ask(3, last=1, last_term=2)) == [Vote(GROUP, 1, 3, True, False)]


def test_a_member_that_hears_its_leader_gives_no_vote() -> None:
    member = Member()
    member.hear("b", append(1, 0, 0))
    assert member.hear("c", ask(2)) == []
    assert member.protocol.term == 1


def test_a_vote_waits_for_the_disk() -> None:
    member = Member(stores=True)
    assert member.hear("b", ask(1)) == []
    *_, store = [each for each in member.out if isinstance(each, qp.Store)]
    assert store.durable is not None
    assert store.durable.vote == "b"
    sent = member.give(qp.Stored(store.position))
    assert [each.pdu for each in sent if isinstance(each, Send)] == [Vote(GROUP, 1, 1, True, False)]


def test_an_acknowledgement_waits_for_the_disk() -> None:
    member = Member(stores=True, term=1)
    assert member.answers("b", append(1, 0, 0, Entry(1, NOOP))) == []
    (store,) = [each for each in member.out if isinstance(each, qp.Store)]
    sent = member.give(qp.Stored(store.position))
    assert [each.pdu for each in sent if isinstance(each, Send)] == [Acknowledge(GROUP, 1, 1, 1)]


def test_a_follower_that_is_not_needed_acknowledges_a_little_later_and_all_at_once() -> None:
    member = Member(base=FIVE, term=1)
    for index in (0, 1):
        pdu = Append(GROUP, 1, 1, index, index, 0, 0, (Entry(1, NOOP),), ("c", "d"))
        assert member.answers("b", pdu) == []
    sent = member.give(TimerFired("late"))
    assert [each.pdu for each in sent if isinstance(each, Send)] == [Acknowledge(GROUP, 1, 1, 2)]
    needed = Append(GROUP, 1, 1, 2, 1, 0, 0, (Entry(1, NOOP),), ("a", "d"))
    assert member.answers("b", needed) == [Acknowledge(GROUP, 1, 1, 3)]
    assert member.give(TimerFired("late")) == []


def test_a_follower_says_what_it_lacks_and_drops_what_another_leader_left() -> None:
    member = Member(entries=(Entry(1, NOOP), Entry(1, NOOP), Entry(2, NOOP)), term=2)
    assert member.answers("b", append(3, 9, 3, Entry(3, NOOP))) == [Acknowledge(GROUP, 1, 3, 3, True)]
    assert member.answers("b", append(3, 3, 3)) == [Acknowledge(GROUP, 1, 3, 2, True)]
    assert member.answers("b", append(3, 2, 1, Entry(3, NOOP))) == [Acknowledge(GROUP, 1, 3, 3)]
    assert member.protocol.handle(member.now, Received("b", append(3, 3, 3, commit=3)))


def test_an_entry_counts_when_a_majority_holds_it() -> None:
    member = Member(base=FIVE)
    member.lead()
    term = member.protocol.term
    member.hear("b", Acknowledge(GROUP, 1, term, 1))
    assert member.applied() == []
    member.hear("b", Acknowledge(GROUP, 1, term, 1))  # the same member counts once
    assert member.applied() == []
    member.hear("c", Acknowledge(GROUP, 2, term, 1))  # another memory under that name is no voter
    assert member.applied() == []
    member.hear("d", Acknowledge(GROUP, 1, term, 1))
    assert member.applied()[:1] == [1]


def test_an_entry_of_an_earlier_term_counts_only_with_a_later_one() -> None:
    """Figure 8 of the paper: a majority that holds an old entry does not make it safe."""
    member = Member(base=FIVE, entries=(Entry(1, NOOP), Entry(2, NOOP)), term=2)
    member.lead()
    term = member.protocol.term
    for name in ("b", "c", "d", "e"):
        member.hear(name, Acknowledge(GROUP, 1, term, 2))
    assert member.applied() == []
    for name in ("b", "c"):
        member.hear(name, Acknowledge(GROUP, 1, term, 3))
    assert member.applied()[:3] == [1, 2, 3]


def test_of_three_a_follower_and_its_leader_decide_alone_and_of_five_they_do_not() -> None:
    entry = Entry(1, NOOP)
    for base, applied in ((VOTERS, [1]), (FIVE, [])):
        member = Member(base=base)
        member.hear("b", Append(GROUP, 1, 1, 0, 0, 0, 1, (entry,)))
        assert member.applied() == applied


def test_what_the_leaders_disk_lacks_does_not_count_for_the_leader() -> None:
    member = Member()
    member.hear("b", Append(GROUP, 1, 1, 0, 0, 0, 0, (Entry(1, NOOP),)))
    assert member.applied() == []


def test_a_leader_without_a_majority_steps_down() -> None:
    member = Member()
    member.lead()
    member.now += SECOND_NS
    member.give(TimerFired("heartbeat"))
    assert not member.protocol.is_leader


def test_a_batch_that_comes_too_early_is_expected_in_order() -> None:
    member = Member()
    member.lead()
    for name in ("b", "c"):
        member.hear(name, Acknowledge(GROUP, 1, member.protocol.term, 1))
    assert Expect(GROUP, 9, 0) in member.hear("b", Forward(GROUP, 1, 9, 2, b"\x90"))
    member.hear("b", Forward(GROUP, 1, 9, 0))
    assert Expect(GROUP, 9, 1) in member.hear("b", Forward(GROUP, 1, 9, 2, b"\x90"))
    sent = member.hear("b", Forward(GROUP, 1, 9, 1, b"\x90"))
    assert not [each for each in sent if isinstance(each, Expect)]


def test_a_session_that_the_clock_set_back_begins_behind_the_earlier_one() -> None:
    member = Member()
    member.lead()
    term = member.protocol.term
    member.hear("b", Forward(GROUP, 1, 9, 0))
    for name in ("b", "c"):
        member.hear(name, Acknowledge(GROUP, 1, term, 3))
    assert member.hear("b", Forward(GROUP, 1, 4, 0)) == [Expect(GROUP, 10, 0)]


def test_a_group_is_founded_when_all_are_there_and_none_has_a_group() -> None:
    founder = Quorum("a", ("a", "b", "c"), QuorumConfiguration(), Random(1))
    out = founder.handle(0, Start(5))

    def answer(name: str, group: int) -> list[Any]:
        found = founder.handle(1, Received(name, Greet(6, group, 5)))
        return [each.pdu for each in found if isinstance(each, Multicast)]

    for _ in range(3):
        out += founder.handle(1, TimerFired("greet"))
    assert not answer("b", 0)
    assert not answer("c", 9), "a member of a running group is no founder"
    (found,) = answer("c", 0)
    assert isinstance(found, Found)
    assert found.base == Config({"a": 5, "b": 6, "c": 6})


def test_a_process_without_its_memory_is_no_voter() -> None:
    fresh = Quorum("b", ("a", "b", "c"), QuorumConfiguration(), Random(1))
    fresh.handle(0, Start(99))
    fresh.handle(1, Received("a", Found(GROUP, VOTERS, 99)))
    for later in range(1, 40):
        found = fresh.handle(later * SECOND_NS, TimerFired("election"))
        assert not [each for each in found if isinstance(each, Multicast) and isinstance(each.pdu, Ask)]


def test_the_leader_takes_a_member_without_memory_back_as_a_learner_and_then_as_a_voter() -> None:
    member = Member()
    member.lead()
    term = member.protocol.term
    state = member.protocol._state
    member.hear("b", Acknowledge(GROUP, 1, term, state.log.last))
    member.hear("b", Acknowledge(GROUP, 1, term, state.log.last))
    member.hear("c", Greet(8, 0))
    member.give(TimerFired("heartbeat"))
    assert (state.config.voters, state.config.learners) == ({"a": 1, "b": 1}, {"c": 8})
    assert Found(GROUP, VOTERS, 8) in member.hear("c", Greet(8, 0))
    member.hear("b", Acknowledge(GROUP, 1, term, state.log.last))
    member.hear("c", Acknowledge(GROUP, 8, term, state.log.last))
    member.give(TimerFired("heartbeat"))
    assert state.config.voters == {"a": 1, "b": 1, "c": 8}


def test_misuse_raises_and_garbage_does_not() -> None:
    fresh = Quorum("a", ("a",), QuorumConfiguration(), Random(1))
    with pytest.raises(UsageError):
        fresh.handle(0, TimerFired("election"))
    member = Member()
    with pytest.raises(UsageError):
        member.give(Start(1))
    with pytest.raises(UsageError):
        member.give(qp.Call(1, bytes(1 << 20)))
    member.hear("b", Acknowledge(GROUP, 1, 1 << 40, 5))
    member.hear("a", append(1, 0, 0))
    member.hear("b", Append(GROUP + 1, 1, 9, 0, 0, 0, 0, (Entry(9, BATCH, "b", 1, 1),)))
    assert member.applied() == []


def test_the_first_batch_of_a_session_is_alone_until_it_has_its_place() -> None:
    member = Member("b")
    sent = member.hear("a", append(1, 0, 0))
    assert Forward(GROUP, 1, 5, 0) in sent
    assert not [each for each in member.give(qp.Call(1, b"\x91\x01")) if isinstance(each, Send)]
    sent = member.hear("a", append(1, 0, 0, Entry(1, ENTER, "b", 5), commit=1))
    assert Forward(GROUP, 1, 5, 1, b"\x91\x01") in sent


def test_a_process_that_was_shown_a_group_and_not_added_greets_on() -> None:
    """The leader that was about to add it may be gone, and the next one must know of it."""
    newcomer = Quorum("d", {"a", "b", "c"}, QuorumConfiguration(stores=False), Random(1))
    newcomer.handle(0, Start(5))
    newcomer.handle(1, Received("a", Found(GROUP, VOTERS, 5)))
    newcomer._state.led_by("a")
    effects = newcomer.handle(SECOND_NS, TimerFired("greet"))
    assert [effect.pdu for effect in effects if isinstance(effect, Multicast)] == [Greet(5, 0)]


def test_a_candidate_repeats_its_question() -> None:
    candidate = Quorum("a", VOTERS.voters, QuorumConfiguration(stores=False), Random(1))
    candidate.handle(0, Start(1))
    candidate.handle(1, Received("b", Found(GROUP, VOTERS)))
    asked = [
        effect.pdu
        for name, now in (("election", SECOND_NS), ("election", 2 * SECOND_NS), ("ask", 2 * SECOND_NS + 1))
        for effect in candidate.handle(now, TimerFired(name))
        if isinstance(effect, Multicast)
    ]
    assert len(asked) >= 2
    assert isinstance(asked[-1], Ask)
    assert asked[-1] == asked[-2]
