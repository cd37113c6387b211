"""Reliable FIFO multicast with each failure detector."""

from dataclasses import replace

import pytest

from antiphon.core.effects import Appeared, Discard, Vanished
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Received, TimerFired
from antiphon.protocols.detection import DETECTORS, PDUS
from antiphon.protocols.detection.base import Farewell
from antiphon.protocols.detection.gossip import Gossip, Life
from antiphon.protocols.detection.heartbeat import Alive
from antiphon.protocols.detection.polling import Poll, PollAnswer
from antiphon.protocols.fifo import FifoConfiguration
from tests.protocols.harness.fifo_group import Group

NOTICED_MS = 2500
"""A crash is detected by then: some two K_fail of gossip in a small group."""
kinds = pytest.mark.parametrize("kind", DETECTORS)


def a_group(kind: str, size: int = 4) -> Group:
    return Group(size, FifoConfiguration(detector=kind))


@kinds
def test_no_member_vanishes_while_all_are_alive(kind: str) -> None:
    group = a_group(kind)
    group.pass_time(4000)
    assert not any(group.of(name, Vanished) for name in group.names)


@kinds
def test_a_crash_is_noticed_and_release_goes_on(kind: str) -> None:
    group = a_group(kind)
    group.pass_time(200)
    group.crash("d")
    group.admit("a", b"x")
    group.pass_time(NOTICED_MS)
    for name in "abc":
        assert [event.site for event in group.of(name, Vanished)] == ["d"]
        assert group.delivered(name) == ["a0"]
        assert group.of(name, Discard) == [Discard("a", 0, 1)]
    group.restart("d")
    group.pass_time(NOTICED_MS)
    assert [event.site for event in group.of("a", Appeared)][-1] == "d"
    group.admit("d", b"y")
    group.pass_time(200)
    assert all(group.delivered(name, "d") == ["d0"] for name in "abcd")


@kinds
def test_who_departs_and_returns_counts_again(kind: str) -> None:
    group = a_group(kind)
    group.pass_time(200)
    group.depart("c")
    group.pass_time(NOTICED_MS)
    group.come_back("c")
    group.pass_time(500)
    group.admit("a", b"x")
    group.pass_time(500)
    assert group.delivered("c") == ["a0"]
    assert [event.site for event in group.of("a", Appeared)][-1] == "c"


@pytest.mark.parametrize(("kind", "counts"), [("heartbeat", False), ("gossip", True)])
def test_gossip_learns_of_members_from_others(kind: str, *, counts: bool) -> None:
    """Where the way from one member to another is blocked, hearsay goes round it."""
    group = a_group(kind)
    group.pass_time(200)
    group.drop = lambda source, target, pdu: (source, target) == ("d", "a") and type(pdu) is not Gossip
    group.pass_time(NOTICED_MS)
    assert ("d" not in [event.site for event in group.of("a", Vanished)]) == counts


def test_polling_asks_only_silent_members() -> None:
    group = a_group("polling")
    group.pass_time(600)
    group.sent.clear()
    group.pass_time(1000)
    asked_all = [to for _, to, pdu in group.sent if isinstance(pdu, Poll)]
    group.sent.clear()
    group.crash("d")
    group.pass_time(NOTICED_MS)
    polls = group.said(Poll)
    assert len(polls) > len(asked_all)
    assert {source for source, _, _ in polls} == set("abc")


@kinds
def test_a_detectors_pdus_are_fifos_own(kind: str) -> None:
    group = a_group(kind)
    group.pass_time(1000)
    spoken = {type(pdu) for _, _, pdu in group.sent} & set(PDUS)
    assert spoken == {"heartbeat": set(), "polling": {Poll, PDUS[3]}, "gossip": {Gossip}}[kind]


@kinds
def test_nonsense_is_counted(kind: str) -> None:
    group = a_group(kind)
    before = group.members["a"].ignored
    group.give("a", Received("b", Alive(-1, 0)))
    group.give("a", Received("b", Gossip((Life("zz", 0, -1),))))
    group.give("a", TimerFired("detector/nothing"))
    assert group.members["a"].ignored == before + 2


def test_who_is_invented_by_gossip_does_not_count() -> None:
    group = a_group("gossip")
    lives = (Life("b", 0, 3), *(Life(f"ghost{index}", 0, 1) for index in range(50)))
    group.drop = lambda _source, target, _: target.startswith("ghost")
    group.give("a", Received("b", Gossip(lives)))
    group.pass_time(100)
    assert not [event for event in group.of("a", Appeared) if event.site.startswith("ghost")]


@kinds
@pytest.mark.parametrize("known", [True, False])
def test_a_later_incarnation_that_only_the_detector_knows_spoils_no_name(kind: str, *, known: bool) -> None:
    """The next process of that name follows the incarnation that members report, not such a lie."""
    group = a_group(kind)
    group.pass_time(200)
    if not known:
        group.crash("d")
        group.pass_time(NOTICED_MS + 500)
    for name in "abc":
        for pdu in (Poll(999, 1), PollAnswer(999, 2), Gossip((Life("d", 999, 3),)), Farewell(999, 4)):
            group.give(name, Received("d", pdu))
        group.settle()
        assert group.members[name].incarnation_of("d") == 0
    group.crash("d")
    group.restart("d")
    group.pass_time(NOTICED_MS)
    group.admit("a", b"x")
    group.admit("d", b"y")
    group.pass_time(500)
    assert all(group.delivered(name, "d") == ["d0"] for name in "abcd")
    assert all(group.delivered(name, "a") == ["a0"] for name in "abcd")
    assert not any(group.members[name].incarnation_of("d") > group.incarnations["d"] for name in "abc")


def test_knobs_that_make_no_sense_are_said() -> None:
    for wrong in ({"detector": "telepathy"}, {"detector_subset": 0}, {"mistake": 1.5}):
        with pytest.raises(UsageError):
            replace(FifoConfiguration(), **wrong)
