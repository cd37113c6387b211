"""Long messages in pieces, packing on the way out, and the timers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.packing import LENGTH_BYTES, Packed, overhead_bytes, pack
from antiphon.core.time import NEVER_NS
from antiphon.live import pieces
from antiphon.live.pieces import (
    BATCH_BYTES,
    LARGEST_MESSAGE_BYTES,
    LEAST_PIECE_BYTES,
    MIXING,
    MOST_ORPHANS,
    MOST_UNFINISHED,
    SMALL_BATCH_BYTES,
    Incoming,
    Outgoing,
    cut,
)
from antiphon.live.timers import SLACK, Timers

PIECE_BYTES = SMALL_BATCH_BYTES - overhead_bytes(1)
SIZES = st.integers(0, 3 * PIECE_BYTES + 5)
BATCHES = st.sampled_from((SMALL_BATCH_BYTES, BATCH_BYTES))


def drain(outgoing: Outgoing) -> list[Packed]:
    batches = []
    while outgoing:
        batches.append(outgoing.first().bodies)
        assert outgoing.first().bodies is batches[-1]
        outgoing.take()
    return batches


SITES = ("a", "b", "Zoë", "d" * 64)
ADDRESSED = st.tuples(
    st.one_of(st.integers(0, 200), SIZES),
    st.one_of(st.none(), st.frozensets(st.sampled_from(SITES), min_size=1)),
)


@given(st.lists(ADDRESSED, min_size=1, max_size=12), st.booleans(), BATCHES)
def test_messages_travel_together_and_each_reaches_whom_it_is_for(
    messages: list[tuple[int, frozenset[str] | None]], selective: bool, batch_bytes: int
) -> None:
    """A batch goes to every destination of any of its messages, and names the destinations of each."""
    outgoing, numbers = Outgoing(batch_bytes, selective=selective), 0
    everyone = frozenset(SITES)
    if selective:
        messages = [(size, to or everyone) for size, to in messages]
    for place, (size, to) in enumerate(messages):
        numbers += outgoing.add([bytes([place]) * size], to)
    received: dict[str, list[bytes]] = {site: [] for site in SITES}
    incoming = {site: Incoming() for site in SITES}
    number = 0
    while outgoing:
        batch, destinations, _ = outgoing.first()
        outgoing.take()
        again = Packed(batch.data)
        assert len(again.data) <= batch_bytes
        assert (destinations is not None) == selective
        for site in everyone if destinations is None else destinations:
            places = again.places_for(site)
            if len(places) == len(again):
                whole = incoming[site].take("s", number, again)
                received[site] += [] if whole is None else whole[1]
            else:
                received[site] += [again[place] for place in places]
        number += len(again)
    assert number == numbers
    for site in SITES:
        meant = [
            bytes([place]) * size for place, (size, to) in enumerate(messages) if to is None or site in to
        ]
        assert received[site] == meant


def test_messages_for_few_of_many_do_not_all_travel_together() -> None:
    outgoing = Outgoing(selective=True)
    for place in range(60):
        outgoing.add([bytes(1000)], frozenset({f"m{place}"}))
    sizes = []
    while outgoing:
        batch, destinations, _ = outgoing.first()
        assert destinations is not None
        sizes.append((len(batch), len(destinations)))
        outgoing.take()
    assert set(sizes) == {(MIXING, MIXING)}


@given(st.lists(st.one_of(st.integers(0, 200), SIZES), min_size=1, max_size=12), BATCHES)
def test_what_goes_out_comes_in_again_in_order_and_no_batch_is_too_long(
    sizes: list[int], batch_bytes: int
) -> None:
    bodies = [bytes([place]) * size for place, size in enumerate(sizes)]
    outgoing, incoming = Outgoing(batch_bytes), Incoming()
    numbers = outgoing.add(bodies)
    assert outgoing.size == sum(sizes) + LENGTH_BYTES * numbers
    batches = drain(outgoing)
    assert outgoing.size == 0
    assert all(len(batch.data) <= batch_bytes for batch in batches)
    assert sum(map(len, batches)) == numbers
    received: list[bytes] = []
    number = begun = 0
    for batch in batches:
        whole = incoming.take("a", number, Packed(batch.data))
        number += len(batch)
        if whole is not None:
            received += whole[1]
            assert whole[0] == begun, "where its first piece was"
            begun = number
    assert received == bodies
    assert (incoming.size, incoming.dropped) == (0, 0)


def test_short_bodies_share_batches() -> None:
    outgoing = Outgoing()
    outgoing.add([bytes(1000)] * 1000)
    assert len(drain(outgoing)) == -(-1000 // (BATCH_BYTES // 1004))


def test_empty_bodies_count_too() -> None:
    """Otherwise their sender never waits."""
    outgoing = Outgoing()
    for _ in range(100):
        outgoing.add([b""] * 1000)
    assert outgoing.size == 100_000 * LENGTH_BYTES
    outgoing.add_records(memoryview(bytes(200_000)), 1)
    assert outgoing.size == 300_000 * LENGTH_BYTES + 200_000
    drain(outgoing)
    assert outgoing.size == 0


def test_few_records_share_batches_with_what_comes_before_and_after_them() -> None:
    outgoing = Outgoing()
    outgoing.add([b"before"])
    for turn in range(3):
        outgoing.add_records(memoryview(bytes([turn]) * 20), 10)
    outgoing.add([b"after"])
    (batch,) = drain(outgoing)
    assert list(batch) == [b"before", *(bytes([turn]) * 10 for turn in (0, 0, 1, 1, 2, 2)), b"after"]


def test_who_comes_in_the_middle_of_a_long_message_waits_for_the_next_one() -> None:
    incoming = Incoming()
    first, second, third = cut(bytes(3 * PIECE_BYTES), SMALL_BATCH_BYTES)
    assert incoming.take("a", 1, second) is None
    assert incoming.take("a", 2, third) is None
    assert incoming.take("a", 3, pack([b"x"])) == (3, pack([b"x"]))
    assert incoming.take("a", 4, first) is None
    assert incoming.size == PIECE_BYTES


def test_a_missed_piece_gives_up_its_message_and_nothing_else() -> None:
    incoming = Incoming()
    first, second, third = cut(bytes(3 * PIECE_BYTES), SMALL_BATCH_BYTES)
    assert incoming.take("a", 0, first) is None
    assert incoming.take("b", 0, first) is None
    assert incoming.take("a", 2, third) is None
    assert incoming.dropped == 1
    assert incoming.take("b", 1, second) is None
    whole = incoming.take("b", 2, third)
    assert whole is not None
    assert whole[1].size == 3 * PIECE_BYTES


def test_a_sender_that_never_finishes_is_given_up_at_the_limit() -> None:
    incoming = Incoming()
    piece = bytes(PIECE_BYTES)
    for number in range(LARGEST_MESSAGE_BYTES // PIECE_BYTES + 2):
        incoming.take("a", number, pack([piece], unfinished=True, continuing=number > 0))
    assert incoming.dropped == 1
    assert incoming.size <= LARGEST_MESSAGE_BYTES


def test_only_the_latest_unfinished_messages_of_vanished_senders_are_kept() -> None:
    incoming = Incoming()
    first, second = cut(bytes(PIECE_BYTES + 1), SMALL_BATCH_BYTES)
    senders = [f"s{index}" for index in range(MOST_ORPHANS + 2)]
    for sender in senders:
        incoming.take(sender, 0, first)
        incoming.vanish(sender)
    assert incoming.dropped == 2
    assert incoming.take(senders[0], 1, second) is None
    assert incoming.take(senders[-1], 1, second) is not None


def test_unfinished_messages_are_bounded_however_many_senders_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    incoming = Incoming()
    first = pack([b"a" * 1000], unfinished=True)
    for number in range(3 * MOST_UNFINISHED):
        incoming.take(f"s{number}", 0, first)
        incoming.take("steady", number, pack([b"b"], unfinished=True, continuing=number > 0))
    assert len(incoming._partial) == MOST_UNFINISHED
    assert incoming.dropped == 2 * MOST_UNFINISHED + 1
    found = incoming.take("steady", 3 * MOST_UNFINISHED, pack([b"c"], continuing=True))
    assert found is not None
    assert list(found[1]) == [b"b" * 3 * MOST_UNFINISHED + b"c"]
    monkeypatch.setattr(pieces, "MOST_UNFINISHED_BYTES", 5000)
    incoming.take("last", 0, first)
    assert incoming.size == 5000
    assert len(incoming._partial) == 5


def test_endless_empty_pieces_are_given_up() -> None:
    incoming = Incoming()
    empty = pack([b""], unfinished=True, continuing=True)
    incoming.take("a", 0, pack([b""], unfinished=True))
    for number in range(1, LARGEST_MESSAGE_BYTES // LEAST_PIECE_BYTES + 1):
        incoming.take("a", number, empty)
    assert (incoming.dropped, incoming.size, incoming._partial) == (1, 0, {})


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.booleans()), max_size=60))
def test_timers_fire_once_each_in_order_as_a_dictionary_would(steps: list[tuple[str, int, bool]]) -> None:
    timers, simple = Timers(), dict[str, int]()
    for name, deadline, cancels in steps:
        if cancels:
            timers.cancel(name)
            simple.pop(name, None)
        else:
            timers.set(name, deadline)
            simple[name] = deadline
        assert timers.next_ns() == min(simple.values(), default=NEVER_NS)
    fired = []
    while (name_due := timers.due(25)) is not None:
        fired.append(name_due)
    expected = {name: deadline for name, deadline in simple.items() if deadline <= 25}
    assert sorted(fired) == sorted(expected)
    assert [expected[name] for name in fired] == sorted(expected.values())


def test_a_timer_that_is_set_over_and_over_does_not_fill_the_heap() -> None:
    timers = Timers()
    for deadline in range(10_000):
        timers.set("again", 10_000 - deadline)
        assert len(timers._heap) <= 2 + SLACK + 1
    assert timers.due(0) is None
    assert timers.due(1) == "again"
    assert timers.due(NEVER_NS - 1) is None


@pytest.mark.parametrize("length", [PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES])
def test_a_body_is_cut_into_no_more_pieces_than_needed(length: int) -> None:
    found = list(cut(bytes(length), SMALL_BATCH_BYTES))
    assert len(found) == -(-length // PIECE_BYTES)
    assert [piece.continuing for piece in found] == [place > 0 for place in range(len(found))]
    assert [piece.unfinished for piece in found] == [place < len(found) - 1 for place in range(len(found))]
