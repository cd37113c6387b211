"""SCO members among strangers: nothing raises, nothing grows for ever."""

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.inputs import Admit, Received, Start, TimerFired
from antiphon.core.packing import pack
from antiphon.core.wire import Pdu
from antiphon.protocols.fifo.pdus import Leaving
from antiphon.protocols.sco import Sco, ScoConfiguration
from antiphon.protocols.sco.pdus import (
    LARGEST_LIFE,
    MOST_ASKED,
    MOST_NAMES,
    Ask,
    Control,
    Copy,
    Data,
    Holding,
    Holds,
    Leave,
    Name,
)
from antiphon.protocols.sco.vectors import LARGEST, pack_bitmap, pack_numbers, pack_plain, pack_whole
from tests.protocols.sco_group import Group

SMALL = ScoConfiguration(window=2, buffers=4)
MEMBERS = ("a", "b", "c")

numbers = st.one_of(
    st.integers(0, 4), st.integers(0, 12), st.sampled_from([-1, LARGEST - 1, LARGEST, 2**63 - 1])
)
lives = st.one_of(st.just(0), st.just(0), st.sampled_from([1, 65536, -1, LARGEST_LIFE - 1, LARGEST_LIFE]))
names = st.builds(Name, st.sampled_from(["a", "b", "c", "d", "z" * 300]), lives, st.booleans(), st.booleans())
noise = st.binary(max_size=12)
bitmaps = st.one_of(st.sets(st.integers(0, 2)).map(lambda chosen: pack_bitmap(chosen, 3)), noise)
packed = st.one_of(st.lists(st.integers(0, 6), max_size=4).map(pack_numbers), noise)
entries = st.lists(st.integers(0, 9), min_size=3, max_size=3)
vectors = st.one_of(entries.map(pack_whole), entries.map(pack_plain), noise)
targets = st.one_of(
    st.builds(
        lambda one, other: pack_bitmap({1}, 3) + pack_numbers([one, other]),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    noise,
)
bodies = st.lists(st.binary(max_size=3), min_size=1, max_size=3).map(pack)
versions = st.sampled_from([1, 1, 1, 2])
tables = st.one_of(st.none(), st.lists(names, max_size=5).map(tuple))
stamps: dict[str, Any] = {
    "destinations": bitmaps,
    "places": packed,
    "csn": vectors,
    "ack": vectors,
    "bodies": bodies,
}

pdus: st.SearchStrategy[Pdu] = st.one_of(
    st.builds(Data, life=lives, table=versions, number=numbers, buffers=numbers, **stamps),
    st.builds(
        Control, life=lives, serial=numbers, number=numbers, table=versions, targets=targets, ack=vectors,
        buffers=numbers, gone=numbers, final=st.booleans(), company=numbers, names=tables, over=tables,
    ),
    st.builds(Ask, lives, names, st.lists(numbers, max_size=4).map(tuple)),
    st.builds(Copy, life=lives, names=st.lists(names, max_size=4).map(tuple), number=numbers, **stamps),
    st.builds(
        Holds, lives, numbers,
        st.lists(st.builds(Holding, names, st.lists(numbers, max_size=4).map(tuple)), max_size=3).map(tuple),
    ),
    st.builds(Leave, lives),
    st.just(Leaving(0, 0)),
)  # fmt: skip
steps = st.one_of(
    st.tuples(st.sampled_from(["a", "c", "d", "b"]), pdus),
    st.tuples(st.sampled_from(["a", "c", "d", "b"]), pdus),
    st.sampled_from(["control", "confirm", "repair", "other", "admit"]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=40))
def test_whatever_comes_nothing_raises_and_what_is_held_is_bounded(script: list[Any]) -> None:
    member = Sco("b", MEMBERS, SMALL, Random(1))
    member.handle(0, Start())
    for now, step in enumerate(script, start=1):
        if step == "admit":
            member.handle(now * 10**6, Admit([b"x"]))
        elif isinstance(step, str):
            member.handle(now * 10**6, TimerFired(step))
        else:
            member.handle(now * 10**6, Received(*step))
    state = member._state
    assert len(state.peers) <= 5
    assert len(state.own) <= SMALL.window
    for peer in (*state.peers.values(), *state.ghosts):
        assert len(peer.ahead) <= SMALL.reach
        assert len(peer.tables) <= 4
    assert state.held <= SMALL.buffers + len(state.peers) + len(state.ghosts) * SMALL.reach + 5


def hostile(pdu: Pdu, sender: str = "a") -> Group:
    """A group in which one member has sent this; what it was for, it has not reached."""
    group = Group(3)
    before = group.figure("b", "ignored")
    group.give("b", Received(sender, pdu))
    assert group.figure("b", "ignored") == before + 1, pdu
    group.send("a")
    group.pass_time(60)
    assert group.delivered("b") == ["a0"]
    return group


def data(**changes: Any) -> Data:
    fields: dict[str, Any] = {
        "life": 0, "table": 1, "number": 0, "destinations": pack_bitmap({1}, 3), "places": pack_numbers([0]),
        "csn": pack_whole([0, 0, 0]), "ack": pack_whole([0, 0, 0]), "buffers": 9, "bodies": pack([b"x"]),
    }  # fmt: skip
    return Data(**(fields | changes))


def test_a_data_pdu_like_these_is_taken() -> None:
    group = Group(3)
    group.give("b", Received("a", data()))
    assert group.figure("b", "ignored") == 0
    assert group.members["b"]._state.peers["a"].received == 1


def test_batches_that_cannot_be_are_counted_and_dropped() -> None:
    hostile(data(destinations=pack_bitmap({2}, 3)))  # for another
    hostile(data(destinations=b""))
    hostile(data(destinations=pack_bitmap({1, 2}, 3)))  # one place too few
    hostile(data(places=b"\x80"))
    hostile(data(number=-1))
    hostile(data(number=LARGEST))
    hostile(data(csn=pack_whole([0, 1, 0])))  # follows a message that we have not sent
    hostile(data(csn=pack_whole([1, 0, 0])))  # follows itself
    hostile(data(csn=b""))
    hostile(data(ack=pack_plain([0, 0])))
    hostile(data(buffers=-1))
    hostile(data(life=-1))
    hostile(Leaving(0, 0))
    hostile(data(), sender="b")  # in our own name


def test_a_number_that_was_there_before_is_not_delivered_again() -> None:
    group = Group(3)
    group.send("a", "b")
    group.pass_time(30)
    group.give("b", Received("a", data(number=0, places=pack_numbers([1]))))
    group.pass_time(30)
    assert group.delivered("b") == ["a0"]
    assert group.figure("b", "ignored") == 1


def test_a_place_far_ahead_is_not_kept() -> None:
    group = Group(3, SMALL)
    for place in (SMALL.reach, LARGEST - 1):
        group.give("b", Received("a", data(places=pack_numbers([place]))))
    assert not group.members["b"]._state.peers["a"].ahead
    assert group.figure("b", "overruns") == 2


def test_requests_and_holdings_beyond_all_bounds_are_dropped() -> None:
    of = Name("a", 0)
    hostile(Ask(0, of, tuple(range(MOST_ASKED + 1))))
    group = Group(4)
    group.crash("d")
    group.pass_time(600)
    state = group.members["b"]._state
    holding = Holding(Name("d", 0), tuple(range(1000)))
    group.give("b", Received("a", Holds(0, state.digest, (holding,))))
    assert group.figure("b", "ignored") == 1


def control(**changes: Any) -> Control:
    fields: dict[str, Any] = {
        "life": 0, "serial": 1, "number": 0, "table": 1, "targets": pack_bitmap((), 3), "buffers": 9,
        "gone": 0, "ack": pack_whole([0, 0, 0]), "final": True, "company": 3,
    }  # fmt: skip
    return Control(**(fields | changes))


def test_control_messages_that_cannot_be_are_counted_and_dropped() -> None:
    hostile(control(serial=-1))
    hostile(control(number=LARGEST))
    hostile(control(targets=b"\xff"))
    hostile(control(targets=pack_bitmap({1}, 3)))
    hostile(control(ack=b"\x07"))
    hostile(control(table=2, names=()))  # a table without its owner
    hostile(control(table=2, names=(Name("a", 0), Name("a", 0))))
    hostile(control(table=2, names=(Name("a", 0), Name("z" * 300, 0))))
    hostile(control(over=(Name("z", -1),)))
    hostile(control(over=tuple(Name(f"z{index}", 0) for index in range(MOST_NAMES + 1))))


def test_invented_members_are_bounded() -> None:
    group = Group(3)
    for version in range(2, 8):
        invented = tuple(Name(f"z{version}-{index}", 0) for index in range(MOST_NAMES))
        group.give(
            "b", Received("a", control(table=version, serial=version, names=(Name("a", 0), *invented)))
        )
    assert len(group.members["b"]._state.peers) == MOST_NAMES


def test_the_lives_that_are_over_are_bounded_by_one_rule_for_all() -> None:
    one, other = Group(2).members["a"], Group(2).members["a"]
    lives = [Name(f"z{index}", index, gone=True) for index in range(2 * MOST_NAMES)]
    for member, order in ((one, lives), (other, lives[::-1])):
        for begin in range(0, len(order), 100):
            over = tuple(order[begin : begin + 100])
            member.handle(
                1, Received("b", control(serial=begin + 1, targets=b"\0", ack=pack_whole([0, 0]), over=over))
            )
    assert one._state.over.keys() == other._state.over.keys()
    assert len(one._state.over) == MOST_NAMES
    assert one._state.digest == other._state.digest


def test_names_that_were_seen_are_bounded() -> None:
    member = Group(2).members["a"]
    for index in range(5 * MOST_NAMES):
        member._state.note_site(f"z{index}")
    assert len(member._state.seen) == 4 * MOST_NAMES
