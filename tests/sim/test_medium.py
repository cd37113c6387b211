"""The one-channel broadcast medium: Konorski, sections 3.1 and 6."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.errors import UsageError
from antiphon.core.seeds import Seeds
from antiphon.core.time import NEVER_NS, SECOND_NS
from antiphon.sim.medium import Medium
from antiphon.sim.network import Arrival
from tests.sim.fakes import Note, arrivals_of

BYTE_A_NANOSECOND = 8 * SECOND_NS
"""A bandwidth at which a frame takes as many nanoseconds as it has bytes."""


def medium(sites: int = 3, **knobs: float) -> Medium:
    return Medium(sites, Seeds(1), bandwidth_bits_per_s=BYTE_A_NANOSECOND, **knobs)  # type: ignore[arg-type]


def label(arrival: Arrival) -> str:
    assert isinstance(arrival.pdu, Note)
    return arrival.pdu.label


def test_transmissions_share_one_channel_and_nobody_hears_himself() -> None:
    channel = medium(propagation_ns=7)
    channel.send(0, 0, None, Note("x"), 100)
    channel.send(10, 1, None, Note("y"), 50)
    heard = [(arrival.time_ns, arrival.target, label(arrival)) for arrival in arrivals_of(channel)]
    assert heard == [(107, 1, "x"), (107, 2, "x"), (157, 0, "y"), (157, 2, "y")]
    assert channel.network_messages() == 2


def test_an_idle_channel_starts_at_once() -> None:
    channel = medium()
    channel.send(0, 0, None, Note("x"), 100)
    channel.send(500, 0, None, Note("y"), 100)
    assert [arrival.time_ns for arrival in arrivals_of(channel) if arrival.target == 1] == [100, 600]


def test_a_unicast_takes_the_channel_but_only_its_target_takes_it() -> None:
    channel = medium(buffers=1, processing_ns=1000)
    channel.send(0, 0, (1,), Note("x"), 100)
    channel.send(0, 0, (1,), Note("y"), 100)
    channel.send(0, 0, None, Note("z"), 100)
    arrivals = arrivals_of(channel)
    assert [label(arrival) for arrival in arrivals if arrival.target == 2] == ["z"]
    assert channel.overwritten(2) == 0


def test_a_frame_that_finds_all_buffers_full_overwrites_the_oldest_and_the_site_can_tell() -> None:
    channel = medium(2, buffers=2, processing_ns=1000)
    for name in "abcde":
        channel.send(0, 0, None, Note(name), 10)
    arrivals = arrivals_of(channel)
    # a is being processed; b and c wait, d overwrites b, e overwrites c.
    assert [(label(arrival), arrival.after_loss) for arrival in arrivals] == [
        ("a", False),
        ("d", True),
        ("e", False),
    ]
    assert channel.overwritten(1) == 2
    assert [arrival.time_ns for arrival in arrivals] == [1010, 2010, 3010]


def test_enough_buffers_lose_nothing() -> None:
    channel = medium(2, buffers=4, processing_ns=1000)
    for name in "abcde":
        channel.send(0, 0, None, Note(name), 10)
    assert [label(arrival) for arrival in arrivals_of(channel)] == list("abcde")
    assert channel.overwritten(1) == 0


def test_processing_may_depend_on_the_site_when_it_turns_to_a_frame() -> None:
    needs_ns = {1: 100, 2: 1000}
    channel = medium(processing_ns=needs_ns.__getitem__)  # type: ignore[arg-type]
    channel.send(0, 0, None, Note("x"), 10)
    channel.send(0, 0, None, Note("y"), 10)
    (first,) = channel.advance(200)
    assert (first.target, first.time_ns) == (1, 110)
    # The frame that waits was turned to when the first was done: only the next one is dearer.
    needs_ns[1] = 500
    channel.send(0, 0, None, Note("z"), 10)
    arrivals = arrivals_of(channel)
    assert [arrival.time_ns for arrival in arrivals if arrival.target == 1] == [210, 710]
    assert [arrival.time_ns for arrival in arrivals if arrival.target == 2] == [1010, 2010, 3010]


def test_the_channel_tells_what_it_carried_and_the_adapters_what_they_heard() -> None:
    channel = medium(miss=0.5)
    for index in range(50):
        channel.send(index * 100, 0, None, Note(str(index)), 10)
    arrivals = arrivals_of(channel)
    assert channel.carried_bytes() == {Note: 500}
    assert [channel.heard(site) for site in range(3)] == [0, 50, 50]
    for site in (1, 2):
        assert sum(arrival.target == site for arrival in arrivals) == 50 - channel.missed(site)


def test_advance_stops_at_the_limit_and_says_when_to_come_again() -> None:
    channel = medium(2, processing_ns=50)
    assert channel.next_ns() == NEVER_NS
    channel.send(0, 0, None, Note("x"), 100)
    assert channel.next_ns() == 100
    assert channel.advance(149) == ()
    assert channel.next_ns() == 150
    assert [label(arrival) for arrival in channel.advance(150)] == ["x"]


@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 300)), max_size=40),
    st.integers(1, 4),
    st.floats(0, 0.5),
)
def test_the_1c_service_holds_and_marks_tell_exactly_where_something_was_lost(
    seed: int, sends: list[tuple[int, int]], buffers: int, miss: float
) -> None:
    """Section 3: all receive in one order; what comes without a mark is contiguous, own frames aside."""
    channel = Medium(
        4,
        Seeds(seed),
        bandwidth_bits_per_s=BYTE_A_NANOSECOND,
        buffers=buffers,
        processing_ns=40,
        miss=miss,
    )
    sends = sorted(sends, key=lambda send: send[1])
    for index, (source, now) in enumerate(sends):
        channel.send(now, source, None, Note(str(index)), 20)
    received: dict[int, list[Arrival]] = {site: [] for site in range(4)}
    for arrival in arrivals_of(channel):
        received[arrival.target].append(arrival)
    for site, arrivals in received.items():
        meant = [index for index, (source, _) in enumerate(sends) if source != site]
        places = [meant.index(int(label(arrival))) for arrival in arrivals]
        assert places == sorted(places)
        assert len(meant) - len(places) == channel.overwritten(site) + channel.missed(site)
        gaps = [place != before + 1 for before, place in zip([-1, *places], places, strict=False)]
        assert [arrival.after_loss for arrival in arrivals] == gaps


def test_misses_strike_each_adapter_by_itself() -> None:
    channel = medium(3, miss=0.5)
    for index in range(200):
        channel.send(index * 100, 0, None, Note(str(index)), 10)
    arrivals = arrivals_of(channel)
    heard = [{label(arrival) for arrival in arrivals if arrival.target == site} for site in (1, 2)]
    assert heard[0] != heard[1]
    assert all(60 < channel.missed(site) < 140 for site in (1, 2))


def test_nonsense_is_refused() -> None:
    for knobs in ({"buffers": 0}, {"miss": 1.5}, {"processing_ns": -1}, {"propagation_ns": -1}):
        with pytest.raises(UsageError):
            medium(**knobs)
