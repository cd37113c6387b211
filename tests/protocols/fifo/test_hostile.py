"""Whatever a peer says, a FIFO member does not raise, keeps within its bounds, and serves the honest."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.effects import Absent, Admitted, Multicast, Send
from antiphon.core.fields import INCARNATION_LIMIT, LONGEST_NAME, NUMBER_LIMIT
from antiphon.core.inputs import Admit, Departed, Input, Received, Returned, Start, TimerFired
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Codec, Pdu
from antiphon.protocols.fifo import PDUS, REPAIRS, Fifo, FifoConfiguration
from antiphon.protocols.fifo.group import view_number
from antiphon.protocols.fifo.pdus import (
    Ask,
    Copy,
    Data,
    Extent,
    Leaving,
    Mark,
    Position,
    Status,
)
from antiphon.protocols.fifo.streams import MOST_AHEAD
from antiphon.protocols.stability.coordp import Acknowledgement, Information, StartRound
from tests.protocols.harness.fifo_group import Group
from tests.protocols.harness.gate import pass_gate

SITES = ("a", "b", "c")
VIEW = view_number([("a", 0), ("b", 0), ("c", 0)])
TIMERS = ("acknowledge", "answer", "heartbeat", "repair", "repeat", "round", "settle", "stability/ask", "x")

# Most numbers pass the gate, so that most PDUs are more than garbage to it; other tests tell which do not.
integers = st.one_of(
    st.integers(0, 6),
    st.integers(0, 6),
    st.sampled_from([0, -1, 1 << 40, INCARNATION_LIMIT - 1, NUMBER_LIMIT - 1]),
)
sites = st.sampled_from([*SITES, "d", "e" * LONGEST_NAME, "é"])
views = st.one_of(st.just(VIEW), integers)
packed = st.lists(st.binary(max_size=4), min_size=1, max_size=3).map(pack)
counts = st.one_of(
    st.binary(max_size=40), st.lists(st.integers(-2, 4), min_size=3, max_size=3).map(lambda some: b"".join(
        number.to_bytes(8, "little", signed=True) for number in some
    ))
)  # fmt: skip
extents = st.builds(
    Extent, sites, integers, st.booleans(), st.booleans(), integers, integers, integers, integers,
    integers, integers, integers, integers,
)  # fmt: skip
marks = st.builds(Mark, sites, integers, integers)


@st.composite
def statuses(draw: st.DrawFn) -> Status:
    """Most of them say something of their own sender, so that they get past the first look."""
    incarnation = draw(st.one_of(st.integers(0, 3), integers))
    number = st.one_of(st.integers(0, 6), integers)
    own = st.builds(
        Extent, st.sampled_from(["a", "b", "c", "d"]), st.just(incarnation), st.booleans(), st.booleans(),
        number, number, number, number, number, number, number, number,
    )  # fmt: skip
    some = (*draw(st.lists(own, max_size=3)), *draw(st.lists(extents, max_size=1)))
    said = draw(st.lists(marks, max_size=2))
    return Status(incarnation, draw(integers), draw(st.integers(0, 50)), draw(views), some, tuple(said))


pdus: st.SearchStrategy[Pdu] = st.one_of(
    st.builds(Data, integers, integers, views, counts, packed),
    st.builds(Copy, sites, integers, integers, packed),
    st.builds(Ask, sites, integers, st.lists(integers, max_size=6).map(tuple)),
    st.builds(Position, integers, integers, integers),
    statuses(),
    st.builds(Leaving, integers, integers),
    st.builds(StartRound, integers, views),
    st.builds(Acknowledgement, integers, counts, views),
    st.builds(Information, integers, counts, views),
    st.just(Pdu()),
)
inputs: st.SearchStrategy[Input] = st.one_of(
    st.tuples(st.sampled_from(["a", "b", "c", "d"]), pdus).map(lambda pair: Received(*pair)),
    st.tuples(st.sampled_from(["b", "c"]), pdus).map(lambda pair: Received(*pair)),
    st.sampled_from([TimerFired(name) for name in TIMERS]),
    packed.map(Admit),
    st.sampled_from([Departed(), Returned()]),
)


@pytest.mark.slow
@given(
    st.sampled_from(REPAIRS),
    st.sampled_from([Start(), Start(1), Start(2, 3, True)]),
    st.lists(st.tuples(st.integers(0, 200), inputs), max_size=40),
)
@settings(max_examples=400)
def test_no_pdu_raises(repair: str, start: Start, events: list[tuple[int, Input]]) -> None:
    configuration = FifoConfiguration(repair=repair, window_bytes=8, retain_bytes=16, largest_group=3)
    member = Fifo("a", SITES, configuration, Random(1))
    codec = Codec(PDUS)
    now = 0
    known = {"a", *SITES}
    for span_ms, event in [(0, start), *events]:
        now += span_ms * MILLISECOND_NS
        if isinstance(event, Received):
            received = pass_gate(codec, event.sender, event.pdu)
            if received is None:
                continue
            known.add(event.sender)
            event = received
        for effect in member.handle(now, event):
            if isinstance(effect, Send | Multicast):
                codec.encode(effect.pdu)
            if isinstance(effect, Send):
                assert effect.to in known - {"a"}


def test_a_status_covers_its_sender_and_no_more_than_a_group() -> None:
    members = Group(3)
    a = members.members["a"]
    members.pass_time(100)
    own = Extent("b", 0, True, True, 0, 0, 0, 0)
    others = tuple(
        Extent(f"x{number}", 0, True, False, 0, 9, 0, 0) for number in range(members.knobs.largest_group)
    )
    ignored, serial = a.ignored, 1_000
    for nonsense in (
        (Extent("c", 0, True, True, 0, 0, 0, 0),),
        (Extent("b", 1, True, True, 0, 0, 0, 0),),
        (own, *others, own),
    ):
        assert members.give("a", Received("b", Status(0, 0, serial, VIEW, nonsense))) == []
        ignored += 1
        assert a.ignored == ignored
    # As many as a group has members, and the one that speaks: it is heard, and ghosts end our spell.
    assert Absent() in members.give("a", Received("b", Status(0, 0, serial, VIEW, (own, *others))))
    assert a.ignored == ignored


@pytest.mark.parametrize("repair", REPAIRS)
def test_a_flood_beyond_a_gap_is_bounded(repair: str) -> None:
    room = MOST_AHEAD * pack([b""]).weight
    configuration = FifoConfiguration(repair=repair, window_bytes=room // 2)
    members = Group(3, configuration)
    for number in range(1, 5 * MOST_AHEAD):
        members.members["a"].handle(0, Received("b", Data(0, number, 0, b"", pack([b""]))))
    for number in range(1, 1_000):
        members.members["a"].handle(0, Received("c", Data(0, number, 0, b"", pack([bytes(100)]))))
    streams: dict[str, Any] = {stream.site: stream for stream in members.members["a"]._group.streams()}
    assert len(streams["b"].ahead) == MOST_AHEAD
    assert room - 200 < streams["c"].ahead_bytes <= room


def test_a_sender_that_never_stops_is_not_kept_without_limit() -> None:
    configuration = FifoConfiguration(retain_bytes=1_000)
    members = Group(3, configuration)
    for number in range(1_000):
        members.members["a"].handle(0, Received("b", Data(0, number, 0, b"", pack([bytes(100)]))))
    assert members.members["a"].figures()["kept_bytes"] <= 2_200


def test_a_liar_with_two_members_of_good_will_does_not_stop_them() -> None:
    members = Group(3)
    liar = Random(7)
    for step in range(200):
        numbers = [liar.choice([-1, 0, 1, 5, 1 << 61]) for _ in range(4)]
        extent = Extent("c", 0, True, True, 0, abs(numbers[0]), abs(numbers[1]), abs(numbers[2]))
        for target in "ab":
            members.give(target, Received("c", Status(0, 0, step + 1_000, 0, (extent,))))
            members.give(target, Received("c", Position(0, 0, numbers[3])))
            members.give(target, Received("c", Ask("a", 0, tuple(numbers))))
        members.pass_time(1)
    for _ in range(5):
        assert isinstance(members.admit("a")[0], Admitted)
    members.pass_time(200)
    assert members.delivered("a", "a") == members.delivered("b", "a") == [f"a{number}" for number in range(5)]
