"""State transfer: whose offers and pieces count, and which pieces are served."""

from typing import Any

import pytest

from antiphon.protocols.quorum import ports as qp
from antiphon.protocols.quorum.pdus import NOOP, Acknowledge, Entry, Fetch, Offer, Piece
from tests.protocols.harness.quorum_member import GROUP, VOTERS, Member, append

STATE = qp.Snapshot(qp.SnapshotHead(9, 1, VOTERS, {}, 0), b"s" * 100)
SIZE = 20
TOTAL = -(-STATE.size // SIZE)
WINDOW = 4


def offer(index: int = 9, index_term: int = 1, *, term: int = 1, size: int = STATE.size) -> Offer:
    return Offer(GROUP, 1, term, index, index_term, size, STATE.checksum)


def piece(number: int, index: int = 9) -> Piece:
    return Piece(GROUP, index, number, STATE.part(number * SIZE, SIZE))


def fetches(found: list[Any]) -> list[tuple[int, tuple[int, ...]]]:
    return [(each.index, each.pieces) for each in found if isinstance(each, Fetch)]


def fetching() -> Member:
    """A member that follows b in term 1, and fetches its snapshot."""
    member = Member(term=1, piece_bytes=SIZE, piece_window=WINDOW)
    assert fetches(member.hear("b", offer())) == [(9, (0, 1, 2, 3))]
    assert member.protocol.leader == "b"
    return member


# Offers


def test_a_snapshot_is_fetched_and_acknowledged() -> None:
    member = fetching()
    answers: list[Any] = []
    for number in range(TOTAL):
        answers += member.answers("b", piece(number))
        answers += member.answers("b", piece(number))  # repeated on the way
    assert sorted(number for _, pieces in fetches(answers) for number in pieces) == list(range(WINDOW, TOTAL))
    assert answers[-1] == Acknowledge(GROUP, 1, 1, 9)
    assert (member.protocol.commit, member.protocol.figures()["fetched_bytes"]) == (9, STATE.size)


@pytest.mark.parametrize(
    ("pdu", "term"), [(offer(term=2), 2), (offer(), 1), (offer(term=0, index_term=0), 1)]
)
def test_an_offer_counts_if_its_term_is_not_over(pdu: Offer, term: int) -> None:
    member = Member()
    member.hear("b", append(1, 0, 0))
    assert bool(fetches(member.hear("b", pdu))) == (pdu.term >= 1)
    assert member.protocol.term == term


def test_a_leader_takes_no_offer_of_its_own_term_and_thinks_nothing_of_it() -> None:
    member = Member()
    member.lead()
    assert member.hear("b", offer(term=member.protocol.term)) == []
    assert (member.protocol.is_leader, member.protocol.figures()["ignored"]) == (True, 0)


@pytest.mark.parametrize(
    ("pdu", "is_fetched"),
    [
        (offer(1, 1), False),
        (offer(1, 0), False),
        (offer(2, 1), False),
        (offer(2, 0), True),
        (offer(3, 1), True),
    ],
)
def test_what_is_agreed_upon_or_in_the_log_is_not_fetched(pdu: Offer, is_fetched: bool) -> None:
    member = Member(entries=(Entry(1, NOOP), Entry(1, NOOP)), term=1)
    member.hear("b", append(1, 2, 1, commit=1))
    found = member.answers("b", pdu)
    assert bool(fetches(found)) == is_fetched
    if not is_fetched:
        assert found == [Acknowledge(GROUP, 1, 1, pdu.index)]


@pytest.mark.parametrize(
    ("pdu", "moved", "again"),
    [
        (offer(), False, False),
        (offer(), True, False),
        (offer(size=STATE.size + 1), False, True),
        (offer(size=STATE.size + 1), True, True),
        (offer(8), True, True),
        (offer(12), True, False),
        (offer(12), False, True),
    ],
)
def test_a_fetch_begins_again_for_another_snapshot_unless_an_older_one_comes(
    pdu: Offer, moved: bool, again: bool
) -> None:
    member = fetching()
    if moved:
        member.hear("b", piece(0))
    found = fetches(member.hear("b", pdu))
    assert found == ([(pdu.index, (0, 1, 2, 3))] if again else [])


# Pieces


def test_a_piece_counts_if_it_was_asked_for() -> None:
    assert Member().hear("b", piece(0)) == []
    member = fetching()
    for other in (piece(WINDOW), piece(0, index=8), piece(0, index=10)):
        member.hear("b", other)
    assert member.protocol.figures()["fetched_bytes"] == 0
    member.hear("b", piece(WINDOW - 1))
    assert member.protocol.figures()["fetched_bytes"] == SIZE


@pytest.mark.parametrize(
    ("sender", "pdu", "served"),
    [
        ("b", Fetch(GROUP, 1, 9, (0, 1)), [0, 1]),
        ("b", Fetch(GROUP, 1, 9, (1, 2)), [1]),
        ("b", Fetch(GROUP, 1, 8, (0,)), []),
        ("b", Fetch(GROUP, 2, 9, (0,)), []),
        ("eve", Fetch(GROUP, 1, 9, (0,)), []),
    ],
)
def test_members_are_served_pieces_that_there_are(sender: str, pdu: Fetch, served: list[int]) -> None:
    whole = qp.Snapshot(STATE.head, b"s" * (2 * SIZE - len(STATE.prefix) % (2 * SIZE)))
    half = whole.size // 2
    member = Member(snapshot=whole, term=1, piece_bytes=half)
    found = [each for each in member.hear(sender, pdu) if isinstance(each, Piece)]
    assert [each.number for each in found] == served
    assert [each.body for each in found] == [whole.part(number * half, half) for number in served]
