"""Large groups: what a member sends and receives for control does not grow with the group."""

from collections import Counter

import pytest

from antiphon.core.effects import Vanished
from antiphon.core.inputs import Received
from antiphon.core.time import MILLISECOND_NS
from antiphon.protocols.fifo import FifoConfiguration
from antiphon.protocols.fifo.group import view_number
from antiphon.protocols.fifo.pace import Pace
from antiphon.protocols.fifo.pdus import Data, Position, Sign, Status
from antiphon.sim.scenarios import fifo
from tests.protocols.harness.fifo_group import Group

LARGE = FifoConfiguration(neighbours=2)
"""A group of eight is large to its members."""


def neighbours(members: Group, name: str) -> set[str]:
    return set(members.members[name]._group.view.neighbours)


@pytest.mark.parametrize(("size", "most"), [(8, 2), (8, 4), (8, 6), (7, 6), (3, 6), (2, 2)])
def test_neighbours_are_mutual_and_bounded(size: int, most: int) -> None:
    members = Group(size, FifoConfiguration(neighbours=most))
    near = {name: neighbours(members, name) for name in members.names}
    assert all(name in near[other] for name in near for other in near[name])
    assert {len(others) for others in near.values()} == {min(size - 1, most)}


def test_an_idle_large_group_speaks_between_neighbours_only() -> None:
    members = Group(8, LARGE)
    members.pass_time(2_200)
    begin = len(members.sent)
    members.pass_time(1_000)
    sent = members.sent[begin:]
    assert {type(pdu) for _, _, pdu in sent} == {Sign}
    assert max(Counter(source for source, _, _ in sent).values()) <= 10


def test_a_quiet_small_group_sends_statuses_ever_more_rarely() -> None:
    members = Group(3, apart=True)
    for name in members.names:
        members.start(name)
    members.pass_time(10_000)
    begin = len(members.said(Status))
    members.pass_time(10_000)
    assert 0 < len(members.said(Status)) - begin <= 3 * 7


def test_members_that_are_no_neighbours_learn_of_a_crash_in_time() -> None:
    members = Group(8, LARGE)
    members.pass_time(2_000)
    members.crash("a")
    members.pass_time(LARGE.suspect_after_ns / MILLISECOND_NS + 200)
    for name in members.names[1:]:
        assert [effect.site for effect in members.of(name, Vanished)] == ["a"], name


def test_a_silent_neighbour_is_asked_before_it_is_suspected() -> None:
    members = Group(8, LARGE)
    members.drop = lambda source, _target, pdu: (
        source == "b" and isinstance(pdu, Sign) and not pdu.asks and members.now < 2_000 * MILLISECOND_NS
    )
    members.pass_time(2_000)
    assert any(to == "b" and pdu.asks for _, to, pdu in members.said(Sign))
    assert not any(members.of(name, Vanished) for name in members.names)


def test_a_doubt_of_a_member_outside_the_view_counts_for_nothing() -> None:
    members = Group(8, LARGE)
    liar = Sign(0, view_number(()), 0, False, (4,))
    members.give("a", Received("b", liar))
    members.pass_time(1_000)
    assert members.of("a", Vanished) == []


def test_in_a_large_group_the_tail_of_a_burst_is_announced() -> None:
    members = Group(8, LARGE)
    members.drop = lambda _source, target, pdu: target == "e" and isinstance(pdu, Data)
    members.admit("a")
    members.pass_time(100)
    assert members.delivered("e") == ["a0"]


def test_in_a_large_group_stability_takes_the_place_of_acknowledgements() -> None:
    members = Group(8, LARGE)
    members.pass_time(500)
    for _ in range(5):
        members.admit("a")
        members.pass_time(50)
    members.pass_time(500)
    assert {source for source, _, _ in members.said(Position)} == {"b"}, "only the witness acknowledges"
    assert all(members.members[name].figures()["kept_bytes"] == 0 for name in members.names)
    assert all(not pdu.held for _, _, pdu in members.said(Data))


def test_control_does_not_grow_with_the_square_of_the_group() -> None:
    """It was 20,862 transmissions with 20 members; the growth is that of the members."""
    sent = {}
    for size in (10, 40):
        knobs = fifo.Configuration(members=size, messages=10, rate=10.0, stability="s-coordp")
        sent[size] = int(fifo.run(knobs, 1, None)["network_messages"] or 0)
    assert sent[40] / sent[10] < 2 * 40 / 10


@pytest.mark.parametrize("neighbours", [2, 6])
def test_after_a_long_silence_a_message_makes_no_member_a_laggard(neighbours: int) -> None:
    knobs = FifoConfiguration(neighbours=neighbours, heartbeat_ns=200 * MILLISECOND_NS)
    assert Pace(knobs, 8).quiet_status_ns > knobs.lag_ns, "no heartbeat looks after the laggards meanwhile"
    members = Group(8, knobs)
    members.admit("a")
    members.pass_time(60_000)
    members.admit("a")
    members.pass_time(1_000)
    assert not any(members.of(name, Vanished) for name in members.names)


def test_control_bytes_and_the_time_to_stability_are_figures_of_a_run() -> None:
    metrics = fifo.run(fifo.Configuration(members=5, messages=20, rate=20.0), 1, None)
    assert 0.01 < float(metrics["stability_s"] or 0) < 0.1
    assert 0 < int(metrics["control_bytes_s"] or 0) <= int(metrics["busiest_control_bytes_s"] or 0)
