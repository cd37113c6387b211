"""The one-to-one mesh."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.errors import UsageError
from antiphon.core.seeds import Seeds
from antiphon.core.time import NEVER_NS
from antiphon.sim.mesh import Mesh
from tests.sim.fakes import Note, arrivals_of


def test_a_multicast_is_one_transmission_per_target_and_the_sender_is_none() -> None:
    mesh = Mesh(4, Seeds(1), delay_ns=5)
    mesh.send(10, 2, None, Note("x"), 100)
    arrivals = arrivals_of(mesh)
    assert [(arrival.time_ns, arrival.target, arrival.source) for arrival in arrivals] == [
        (15, 0, 2),
        (15, 1, 2),
        (15, 3, 2),
    ]
    assert mesh.network_messages() == 3


def test_named_targets_only() -> None:
    mesh = Mesh(4, Seeds(1), delay_ns=5)
    mesh.send(0, 0, (0, 3), Note("x"), 100)
    assert [arrival.target for arrival in arrivals_of(mesh)] == [3]


def test_nothing_arrives_beyond_the_limit() -> None:
    mesh = Mesh(2, Seeds(1), delay_ns=5)
    assert mesh.next_ns() == NEVER_NS
    mesh.send(0, 0, None, Note("x"), 100)
    assert mesh.next_ns() == 5
    assert mesh.advance(4) == ()
    assert len(mesh.advance(5)) == 1
    assert mesh.next_ns() == NEVER_NS


def labels(*, ordered: bool) -> list[str]:
    mesh = Mesh(2, Seeds(3), delay_ns=10, jitter_ns=1000, ordered=ordered)
    for index in range(50):
        mesh.send(index, 0, (1,), Note(f"{index:02}"), 1)
    return [arrival.pdu.label for arrival in arrivals_of(mesh) if isinstance(arrival.pdu, Note)]


def test_an_ordered_channel_keeps_its_order_under_jitter() -> None:
    assert labels(ordered=True) == sorted(labels(ordered=True))


def test_an_unordered_channel_does_not() -> None:
    assert labels(ordered=False) != sorted(labels(ordered=False))


def test_channels_do_not_wait_for_one_another() -> None:
    mesh = Mesh(3, Seeds(5), delay_ns=10, jitter_ns=1000)
    for index in range(40):
        mesh.send(index, index % 2, (2,), Note(f"{index:02}"), 1)
    arrived = [arrival.pdu.label for arrival in arrivals_of(mesh) if isinstance(arrival.pdu, Note)]
    assert arrived != sorted(arrived)


@given(st.integers(0, 50), st.integers(0, 100), st.lists(st.integers(0, 500), max_size=20))
def test_times_stay_within_delay_and_jitter(delay_ns: int, jitter_ns: int, sent: list[int]) -> None:
    mesh = Mesh(2, Seeds(0), delay_ns=delay_ns, jitter_ns=jitter_ns, ordered=False)
    for now in sorted(sent):
        mesh.send(now, 0, None, Note(str(now)), 1)
    arrivals = arrivals_of(mesh)
    assert len(arrivals) == len(sent)
    assert [arrival.time_ns for arrival in arrivals] == sorted(arrival.time_ns for arrival in arrivals)
    for arrival in arrivals:
        assert isinstance(arrival.pdu, Note)
        assert delay_ns <= arrival.time_ns - int(arrival.pdu.label) <= delay_ns + jitter_ns


def test_with_a_bandwidth_each_channel_takes_one_pdu_after_another() -> None:
    mesh = Mesh(3, Seeds(1), delay_ns=5, bandwidth=8e9)  # a byte a nanosecond
    mesh.send(0, 0, None, Note("x"), 100)
    mesh.send(50, 0, (1,), Note("y"), 10)
    found = [(arrival.time_ns, arrival.target) for arrival in arrivals_of(mesh)]
    assert found == [(105, 1), (105, 2), (115, 1)]


def test_negative_times_are_refused() -> None:
    with pytest.raises(UsageError):
        Mesh(2, Seeds(0), delay_ns=-1)
