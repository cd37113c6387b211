"""One side of a partition between fakes: which beacons, states and pieces count."""

import zlib
from random import Random
from typing import Any

import pytest

from antiphon.core.effects import Multicast, Send, SetTimer
from antiphon.core.inputs import Received, Start, TimerFired
from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.protocols.quorum import QuorumConfiguration
from antiphon.protocols.quorum import ports as qp
from antiphon.protocols.quorum.pdus import Append
from antiphon.protocols.quorum.sides import (
    MOST_TAKING,
    REMEMBERED,
    Beacon,
    Dissolved,
    Giving,
    Merged,
    Part,
    Sides,
    Surrender,
    Want,
)

KNOBS = QuorumConfiguration(piece_bytes=2, piece_window=4)
STATE = b"0123456789a"
TOTAL = 6


class Alone:
    """A side of one member, a, which leads it."""

    def __init__(self, *, begun: bool = True) -> None:
        self.sides = Sides("a", KNOBS, Random(1))
        self.now = SECOND_NS
        self.timers: dict[str, int] = {}
        self.asked: list[int] = []
        """The places of the order at which the machine's state was asked for."""
        self.give(Start(5))
        if begun:
            self.give(TimerFired("solo"))
            self.give(qp.Taken(self.asked.pop(), b""))
            while not self.sides.present.is_leader or self.sides._is_joining:
                self.pass_time()
        self.group = self.sides.present.group

    def give(self, event: Any) -> list[Any]:
        """What it sends to other sides."""
        found = self.sides.handle(self.now, event)
        for each in found:
            if isinstance(each, SetTimer):
                self.timers[each.name] = self.now + each.after_ns
            elif isinstance(each, qp.TakeState):
                self.asked.append(each.index)
        sent = [each.pdu for each in found if isinstance(each, Send | Multicast)]
        return [pdu for pdu in sent if not isinstance(pdu, Append)]

    def pass_time(self, span_ns: int = 10 * MILLISECOND_NS) -> None:
        self.now += span_ns
        for name in [name for name, due_ns in self.timers.items() if due_ns <= self.now and name != "beacon"]:
            del self.timers[name]
            self.give(TimerFired(name))

    def hear(self, sender: str, pdu: Any) -> list[Any]:
        return self.give(Received(sender, pdu))

    def touch(self) -> None:
        """Let a command take effect."""
        self.give(qp.Call(1, b"\x91\x01"))
        assert self.sides.present.sessions.is_touched


def greater(side: Alone, *, group: int = 0, sealed: bool = False) -> Beacon:
    return Beacon(group or side.group + 1, 9, True, sealed)


# Who speaks


def test_a_side_gives_itself_up_to_a_greater_one() -> None:
    side = Alone()
    assert Dissolved(side.group) in side.hear("z", greater(side))
    assert side.sides.present.group == 0


@pytest.mark.parametrize("place", range(4))
def test_a_side_gives_itself_up_to_no_other(place: int) -> None:
    side = Alone()
    lesser = Beacon(side.group + 1, 0, False, False)
    of_this_side = greater(side, group=side.group)
    sender, beacon = [
        ("z", of_this_side), ("z", greater(side, sealed=True)), ("z", lesser), ("a", greater(side))
    ][place]  # fmt: skip
    assert side.hear(sender, beacon) == []
    assert (side.sides.present.group, side.sides.present.is_leader) == (side.group, True)
    assert not side.sides.present.sessions.is_sealed


def test_a_process_that_looks_for_a_side_hears_none_of_it() -> None:
    side = Alone(begun=False)
    life = side.sides.present.life
    assert side.hear("z", Dissolved(0)) == []
    assert side.sides.present.life == life


@pytest.mark.parametrize("other", [0, 1])
def test_a_side_is_not_over_because_another_process_says_so(other: int) -> None:
    side = Alone()
    side.hear("z", Dissolved(side.group + other))
    assert side.sides.present.group == side.group


def test_a_state_counts_if_nothing_was_agreed_upon_since_it_was_asked_for() -> None:
    side = Alone()
    side.give(qp.Taken(side.sides.present.commit + 1, b"late"))
    assert side.asked == [side.sides.present.commit]
    assert side.give(qp.Taken(side.sides.present.commit, b"unasked")) == []


# Giving


def giving() -> tuple[Alone, Surrender]:
    """A side with a state, which it offers to z."""
    side = Alone()
    side.touch()
    assert side.hear("z", greater(side)) == []
    assert side.hear("z", Want(side.group, side.sides.present.commit, (0,))) == []
    (offer,) = side.give(qp.Taken(side.asked[-1], STATE))
    assert offer == Surrender(
        side.group, side.group + 1, side.sides.present.commit, len(STATE), zlib.crc32(STATE)
    )
    return side, offer


def test_pieces_are_given_of_the_state_that_is_offered() -> None:
    side, offer = giving()
    found = side.hear("z", Want(offer.group, offer.number, (0, 5)))
    assert [(each.piece, each.body) for each in found] == [(0, b"01"), (5, b"a")]
    assert side.hear("z", Want(offer.group + 1, offer.number, (0,))) == []
    assert side.hear("z", Want(offer.group, offer.number + 1, (0,))) == []
    assert Alone().hear("z", Want(offer.group, offer.number, (0,))) == []


def test_a_state_is_offered_as_it_first_came() -> None:
    side, _ = giving()
    assert side.give(qp.Taken(side.sides.present.commit, b"another")) == []


def test_a_side_is_dissolved_once_its_state_is_merged() -> None:
    side, offer = giving()
    for group, number in ((offer.group + 1, offer.number), (offer.group, offer.number + 1)):
        assert side.hear("z", Merged(group, number)) == []
    assert Dissolved(offer.group) in side.hear("z", Merged(offer.group, offer.number))
    alone = Alone()
    assert alone.hear("z", Merged(alone.group, 0)) == []


# Taking


def offer_of(side: Alone, *, group: int = 7, number: int = 3, size: int = len(STATE)) -> Surrender:
    return Surrender(group, side.group, number, size, zlib.crc32(STATE))


def part(piece: int, *, group: int = 7, number: int = 3, body: bytes | None = None) -> Part:
    return Part(group, number, piece, STATE[2 * piece : 2 * piece + 2] if body is None else body)


def wanted(found: list[Any]) -> list[tuple[int, ...]]:
    return [each.pieces for each in found if isinstance(each, Want)]


def merge(side: Alone, sender: str, group: int) -> list[Any]:
    """Another side gives its state; the answers to the last piece."""
    found = side.hear(sender, offer_of(side, group=group))
    for piece in range(TOTAL):
        found = side.hear(sender, part(piece, group=group))
    return found


def test_a_state_is_asked_for_half_a_window_at_a_time_and_merged() -> None:
    side = Alone()
    assert wanted(side.hear("z", offer_of(side))) == [(0, 1, 2, 3)]
    answers = [side.hear("z", part(piece)) for piece in range(TOTAL)]
    assert [wanted(each) for each in answers] == [[], [(2, 3, 4, 5)], [], [(4, 5)], [], []]
    assert answers[-1] == [Merged(7, 3)]
    assert side.hear("z", offer_of(side)) == [Merged(7, 3)]


def test_a_piece_counts_once_and_if_it_is_of_the_state() -> None:
    side = Alone()
    assert side.hear("z", part(0)) == []
    side.hear("z", offer_of(side))
    side.hear("z", part(0))
    for other in (part(0, body=b"xx"), part(TOTAL, body=b"xx"), part(1, number=4), part(1, group=8)):
        assert side.hear("z", other) == []
    for piece in range(1, TOTAL - 1):
        side.hear("z", part(piece))
    assert side.hear("z", part(TOTAL - 1)) == [Merged(7, 3)]


@pytest.mark.parametrize(
    ("size", "body"), [(len(STATE) - 1, None), (len(STATE), b"x"), (len(STATE) + 1, None)]
)
def test_a_state_that_is_not_the_one_that_was_offered_is_not_merged(size: int, body: bytes | None) -> None:
    side = Alone()
    side.hear("z", offer_of(side, size=size))
    for piece in range(5):
        side.hear("z", part(piece))
    assert side.hear("z", part(5, body=body)) == []
    assert side.hear("z", offer_of(side)) == [Want(7, 3, (0, 1, 2, 3))]


def test_a_state_is_offered_to_the_side_that_takes_it() -> None:
    side = Alone()
    assert side.hear("z", Surrender(7, side.group + 1, 3, 1, 1)) == []
    side.sides._giving = Giving(9, "z", side.now)
    assert side.hear("z", offer_of(side)) == []
    joining = Alone(begun=False)
    assert joining.hear("z", Surrender(7, 0, 3, 1, 1)) == []


@pytest.mark.parametrize(
    ("sender", "number", "again"), [("z", 3, (1, 2, 3, 4)), ("z", 4, (0, 1, 2, 3)), ("y", 3, (0, 1, 2, 3))]
)
def test_an_offer_of_another_seal_or_leader_begins_anew(
    sender: str, number: int, again: tuple[int, ...]
) -> None:
    side = Alone()
    side.hear("z", offer_of(side))
    side.hear("z", part(0))
    assert wanted(side.hear(sender, offer_of(side, number=number))) == [again]


def test_states_that_are_taken_at_a_time_are_bounded() -> None:
    side = Alone()
    for group in range(1, MOST_TAKING + 2):
        assert bool(side.hear("z", offer_of(side, group=group))) == (group <= MOST_TAKING)
    assert wanted(side.hear("z", offer_of(side, group=1, number=4))) == [(0, 1, 2, 3)]


def test_a_leader_hears_that_its_own_side_is_merged() -> None:
    side = Alone()
    side.hear("y", offer_of(side, group=5))
    assert merge(side, "y", 6) == [Merged(6, 3)]
    assert merge(side, "x", 8) == [Merged(8, 3)]
    assert wanted(side.hear("y", offer_of(side, group=5))) == [(0, 1, 2, 3)]


def test_a_merge_that_this_leader_did_not_take_in_is_answered_by_none() -> None:
    side = Alone()
    assert side.give(qp.TakeIn("z", STATE)) == []


def test_as_many_merged_sides_are_remembered() -> None:
    side = Alone()
    for group in range(1, REMEMBERED + 1):
        merge(side, "z", group)
    assert side.hear("z", offer_of(side, group=1)) == [Merged(1, 3)]
    merge(side, "z", REMEMBERED + 1)
    assert wanted(side.hear("z", offer_of(side, group=1))) == [(0, 1, 2, 3)]
    assert side.hear("z", offer_of(side, group=2)) == [Merged(2, 3)]
