"""Rows that ride, and session messages: which rows and times are taken."""

import struct
from random import Random

import pytest

from antiphon.core.effects import Effect, Multicast, Stable
from antiphon.core.inputs import Received, RoundTriggered, Suspected
from antiphon.core.wire import Codec, Garbage, Packet, Pdu
from antiphon.protocols.stability.base import Configuration
from antiphon.protocols.stability.riding import LoneRow, Riding, decode_row, encode_row
from antiphon.protocols.stability.sessions import PDUS, Echo, Session, Sessions

VIEW = 7
ROW = encode_row([1, 0, 0], [(0, 1), (1, 0), (2, 0)])
KNOBS = Configuration(view=VIEW)


def riding() -> Riding:
    """Member a of three, which holds one message of its own."""
    member = Riding("a", "abc", KNOBS, Random(1))
    member.hold("a", 1)
    return member


def sessions() -> Sessions:
    member = Sessions("a", "abc", KNOBS, Random(1))
    member.hold("a", 1)
    return member


def session(*echoes: Echo, row: bytes = ROW, view: int = VIEW) -> Session:
    return Session(row, 5, echoes, view)


# Rows


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (b"", None),
        (b"\0" + struct.pack("<II", 5, 6), [(0, 5), (1, 6)]),
        (b"\0" + struct.pack("<III", 5, 6, 7), None),
        (b"\1" + struct.pack("<qq", 5, 6), [(0, 5), (1, 6)]),
        (b"\2" + struct.pack("<HI", 1, 6), [(1, 6)]),
        (b"\2" + struct.pack("<HI", 2, 6), None),
        (b"\2" + struct.pack("<HI", 1, 6)[:-1], None),
        (b"\3" + struct.pack("<Hq", 1, 6), [(1, 6)]),
        (b"\4" + struct.pack("<II", 5, 6), None),
    ],
)
def test_a_row_has_a_known_form_and_the_right_length(row: bytes, found: list[tuple[int, int]] | None) -> None:
    assert decode_row(row, 2) == found


@pytest.mark.parametrize(
    ("site", "pdu", "ignored"),
    [
        ("b", LoneRow(ROW, VIEW), 0),
        ("b", LoneRow(ROW, VIEW + 1), 0),
        ("b", LoneRow(b"", VIEW), 1),
        ("b", session(), 1),
        ("a", LoneRow(ROW, VIEW), 1),
        ("z", LoneRow(ROW, VIEW), 1),
    ],
)
def test_rows_of_other_members_of_this_view_count(site: str, pdu: Pdu, ignored: int) -> None:
    member = riding()
    assert member.handle(0, Received(site, pdu)) == []
    taken = pdu == LoneRow(ROW, VIEW) and site == "b"
    assert (member.held_by("b"), member.ignored) == (int(taken), ignored)
    found = member.handle(0, Received("c", LoneRow(ROW, VIEW)))
    assert found == ([Stable("a", 0, 1)] if taken else [])


def test_a_whole_row_of_another_view_names_senders_that_are_not_in_this_one() -> None:
    member = riding()
    member.on_whole_row("b", [("z", 9), ("a", 1)])
    assert member.held_by("b") == 1
    member.on_whole_row("z", [("a", 1)])


def lone(effects: list[Effect]) -> int:
    return sum(isinstance(each, Multicast) for each in effects)


def test_a_row_is_multicast_alone_if_it_has_changed_and_none_has_carried_it() -> None:
    member = riding()
    assert lone(member.handle(0, Suspected("b"))) == 0
    assert lone(member.handle(0, RoundTriggered())) == 1
    assert lone(member.handle(0, RoundTriggered())) == 0
    member.hold("b", 1)
    member.row(member.held)
    member.hold("c", 1)
    assert lone(member.handle(0, RoundTriggered())) == 0
    assert lone(member.handle(0, RoundTriggered())) == 1


def test_where_rows_do_not_ride_each_is_multicast_alone() -> None:
    member = Riding("a", "abc", KNOBS, Random(1), rides=False)
    member.row(member.held)
    member.hold("b", 1)
    assert lone(member.handle(0, RoundTriggered())) == 1


# Session messages


@pytest.mark.parametrize(
    ("fits", "does_not"),
    [
        (Session(b"", 0, ()), Session(b"", -1, ())),
        (Session(b"", 0, (Echo(0, 0, 0),)), Session(b"", 0, (Echo(-1, 0, 0),))),
        (Session(b"", 0, (Echo(0, 0, 0),)), Session(b"", 0, (Echo(0, -1, 0),))),
        (Session(b"", 0, (Echo(0, 0, 0),)), Session(b"", 0, (Echo(0, 0, -1),))),
    ],
)
def test_times_and_places_are_not_negative(fits: Session, does_not: Session) -> None:
    codec = Codec(PDUS)
    assert isinstance(codec.decode(codec.encode(fits)), Packet)
    assert isinstance(codec.decode(codec.encode(does_not)), Garbage)


@pytest.mark.parametrize(
    ("site", "pdu", "ignored"),
    [
        ("b", session(), 0),
        ("b", session(view=VIEW + 1), 0),
        ("b", session(row=b""), 1),
        ("b", LoneRow(ROW, VIEW), 1),
        ("z", session(), 1),
    ],
)
def test_session_messages_of_other_members_of_this_view_count(site: str, pdu: Pdu, ignored: int) -> None:
    member = sessions()
    assert member.handle(9, Received(site, pdu)) == []
    taken = pdu == session() and site == "b"
    assert (member.held_by("b"), member.ignored) == (int(taken), ignored)
    assert member.handle(9, Suspected("b")) == []
    (told,) = [each.pdu for each in member.handle(9, RoundTriggered()) if isinstance(each, Multicast)]
    assert isinstance(told, Session)
    assert told.echoes == ((Echo(1, 5, 0),) if taken else ())


@pytest.mark.parametrize(
    ("echo", "distance_ns"),
    [
        (Echo(0, 2, 1), 3),
        (Echo(0, 0, 0), 4),
        (Echo(0, 8, 1), 0),
        (Echo(0, 8, 2), None),
        (Echo(1, 2, 1), None),
    ],
)
def test_a_distance_is_half_of_what_the_echo_of_our_own_time_took(
    echo: Echo, distance_ns: int | None
) -> None:
    member = sessions()
    member.handle(9, Received("b", session(echo)))
    assert member.distances_ns.get("b") == distance_ns
