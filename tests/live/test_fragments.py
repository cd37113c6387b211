"""Cutting PDUs and putting them together again, within bounds whatever comes."""

import itertools
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.wire import MAGIC, PREFIX, VERSION
from antiphon.live import fragments
from antiphon.live.counters import Counters
from antiphon.live.fragments import (
    FIRST_PAUSE_NS,
    FOR_STRANGERS,
    FRAGMENT,
    MOST_FRAGMENTS,
    MOST_REMEMBERED,
    MOST_REQUESTS,
    STRANGER_PATIENCE_NS,
    Kept,
    Piece,
    Quota,
    Reassembly,
    cut,
    join,
    missing_indices,
    parse_fragment,
)
from antiphon.live.networks import Address

GROUP, BOOT = 11, 22
HERE: Address = ("127.0.0.1", 1)
MEMBERS = {HERE}
PDUS = st.binary(min_size=700, max_size=2000)


def pieces(pdu: bytes, datagram_bytes: int = 600, counter: int = 1, boot: int = BOOT) -> list[Piece]:
    found = []
    for head, body in cut(pdu, datagram_bytes, GROUP, boot, counter):
        assert len(head) + len(body) <= datagram_bytes
        piece = parse_fragment(memoryview(head + bytes(body)), GROUP)
        assert isinstance(piece, Piece)
        found.append(piece)
    return found


def reassembly() -> Reassembly:
    return Reassembly(MEMBERS.__contains__, Counters())


@given(PDUS, st.integers(64, 699), st.randoms(use_true_random=False), st.integers(0, 20))
def test_fragments_in_any_order_with_repetitions_give_the_pdu_once(
    pdu: bytes, datagram_bytes: int, random: Random, repeated: int
) -> None:
    cuts = pieces(pdu, datagram_bytes)
    coming = cuts + random.choices(cuts, k=repeated)
    random.shuffle(coming)
    here = reassembly()
    whole = [found for piece in coming if (found := here.take(HERE, piece, 0)) is not None]
    assert whole == [pdu]
    assert here.members.held_bytes == 0
    assert not here.members.shelves


@given(PDUS, st.integers(64, 699), st.data())
def test_what_the_kernel_joined_is_put_together_at_once_or_not_at_all(
    pdu: bytes, datagram_bytes: int, data: st.DataObject
) -> None:
    datagrams = [head + bytes(body) for head, body in cut(pdu, datagram_bytes, GROUP, BOOT, 7)]
    joined = b"".join(datagrams)
    assert join(memoryview(joined), datagram_bytes, GROUP) == (BOOT, 7, pdu)
    assert join(memoryview(joined), datagram_bytes, GROUP + 1) is None
    assert join(memoryview(b"".join(datagrams[:-1])), datagram_bytes, GROUP) is None
    assert join(memoryview(b"".join(datagrams[1:])), datagram_bytes, GROUP) is None
    place = data.draw(st.integers(0, len(datagrams) - 1)) * datagram_bytes
    torn = bytearray(joined)
    torn[place + data.draw(st.integers(0, PREFIX.size - 1))] ^= 1 << data.draw(st.integers(0, 7))
    answer = join(memoryview(torn), datagram_bytes, GROUP)
    # A prefix that is altered everywhere alike would be another PDU's; in one place it never passes.
    assert answer is None


@given(st.binary(max_size=300), st.integers(1, 300), st.booleans())
@settings(max_examples=300)
def test_nonsense_never_raises(data: bytes, each: int, dressed: bool) -> None:
    if dressed:
        data = PREFIX.pack(MAGIC, VERSION, FRAGMENT, 2, GROUP, BOOT, 1)[:4] + data
    view = memoryview(data)
    found = parse_fragment(view, GROUP)
    assert isinstance(found, Piece | str)
    if len(view) > each:
        join(view, each, GROUP)


def head(index: int, count: int) -> memoryview:
    return memoryview(PREFIX.pack(MAGIC, VERSION, FRAGMENT, index << 16 | count, GROUP, BOOT, 1) + b"body")


def test_impossible_places_are_refused() -> None:
    assert isinstance(parse_fragment(head(0, 2), GROUP), Piece)
    assert isinstance(parse_fragment(head(255, 256), GROUP), Piece)
    for index, count in ((0, 0), (0, 1), (2, 2), (0, MOST_FRAGMENTS + 1), (65535, 65535)):
        assert parse_fragment(head(index, count), GROUP) == fragments.NONSENSE
    large = bytes(head(0, 256)) + b"x" * 2000
    assert parse_fragment(memoryview(large), GROUP) == fragments.NONSENSE


def test_fragments_that_disagree_do_not_mix() -> None:
    here = reassembly()
    long, short = pieces(b"l" * 2000), pieces(b"s" * 1000)
    assert len(long) != len(short)
    assert here.take(HERE, long[0], 0) is None
    for piece in short:
        assert here.take(HERE, piece, 0) is None
    found = [here.take(HERE, piece, 0) for piece in long[1:]]
    assert found[-1] == b"l" * 2000


@pytest.mark.parametrize("addresses", [1, 3, 100])
@pytest.mark.parametrize("partials", [1, 4, 300])
@pytest.mark.parametrize("size", [1, 20_000])
def test_strangers_stay_within_their_room(addresses: int, partials: int, size: int) -> None:
    here = Reassembly(lambda _: False, Counters())
    random = Random(1)
    for _ in range(600):
        piece = Piece(
            BOOT, random.randrange(partials), random.randrange(MOST_FRAGMENTS), MOST_FRAGMENTS, b"x" * size
        )
        here.take(("10.0.0.1", random.randrange(addresses)), piece, 0)
        check_bounds(here, FOR_STRANGERS)
    assert not here.members.shelves


def check_bounds(here: Reassembly, quota: Quota) -> None:
    cabinet = here.strangers if quota is FOR_STRANGERS else here.members
    shelves = cabinet.shelves.values()
    assert len(cabinet.shelves) <= quota.addresses
    assert all(len(shelf.partials) <= quota.partials for shelf in shelves)
    assert all(shelf.held_bytes <= quota.partial_bytes for shelf in shelves)
    held = sum(
        len(body)
        for shelf in shelves
        for partial in shelf.partials.values()
        for body in partial.pieces
        if body is not None
    )
    assert held == cabinet.held_bytes == sum(shelf.held_bytes for shelf in shelves) <= quota.total_bytes


def test_members_stay_within_their_room_too() -> None:
    here = Reassembly(lambda _: True, Counters())
    for port, counter in itertools.product(range(6), range(500)):
        here.take(("10.0.0.1", port), Piece(port, counter, 0, 2, b"x" * 60_000), 0)
    check_bounds(here, fragments.FOR_MEMBERS)
    assert here._counters.drops[fragments.CROWDED] > 0


def test_strangers_cannot_push_out_what_members_have_begun() -> None:
    here = reassembly()
    begun = pieces(b"m" * 2000)
    for piece in begun[:-1]:
        assert here.take(HERE, piece, 0) is None
    for port, counter in itertools.product(range(2, 200), range(20)):
        here.take(("127.0.0.1", port), Piece(BOOT, counter, 0, 2, b"x" * 60_000), 0)
    assert here.take(HERE, begun[-1], 0) == b"m" * 2000


def test_what_is_missing_is_asked_for_a_few_times_and_then_given_up() -> None:
    here = reassembly()
    coming = pieces(b"m" * 2000)
    for piece in coming[:1] + coming[2:]:
        here.take(HERE, piece, 0)
    asked, now = [], 0
    for _ in range(1000):
        now += FIRST_PAUSE_NS // 2
        asked += [(now, missing_indices(partial.bitmap())) for partial in here.tick(now)]
    assert [indices for _, indices in asked] == [[1]] * MOST_REQUESTS
    pauses = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(asked)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (2 * FIRST_PAUSE_NS, fragments.LONGEST_PAUSE_NS)
    assert here._counters.drops == {fragments.MISSING: 1}
    assert not here.members.shelves


def test_progress_is_not_disturbed_by_requests() -> None:
    here = reassembly()
    now = 0
    for piece in pieces(b"m" * 2000):
        now += FIRST_PAUSE_NS - 1
        assert list(here.tick(now)) == []
        here.take(HERE, piece, now)


def test_strangers_are_never_asked_and_soon_forgotten() -> None:
    here = Reassembly(lambda _: False, Counters())
    here.take(HERE, pieces(b"m" * 2000)[0], 0)
    assert list(here.tick(STRANGER_PATIENCE_NS - 1)) == []
    assert here.strangers.held_bytes > 0
    assert list(here.tick(STRANGER_PATIENCE_NS)) == []
    assert here.strangers.held_bytes == 0


def test_late_fragments_begin_nothing_and_what_is_remembered_is_bounded() -> None:
    here = reassembly()
    for counter in range(2 * MOST_REMEMBERED):
        for piece in pieces(b"m" * 700, counter=counter):
            here.take(HERE, piece, 0)
        assert here.take(HERE, pieces(b"m" * 700, counter=counter)[0], 0) is None
    assert not here.members.shelves
    assert len(here._done) == MOST_REMEMBERED
    assert here._counters.drops[fragments.LATE] == 2 * MOST_REMEMBERED


@given(st.sets(st.integers(0, MOST_FRAGMENTS - 1)))
def test_a_bitmap_says_what_is_missing(wanted: set[int]) -> None:
    here = reassembly()
    for index in range(MOST_FRAGMENTS):
        if index not in wanted:
            here.take(HERE, Piece(BOOT, 1, index, MOST_FRAGMENTS, b"x"), 0)
    for partial in here.tick(FIRST_PAUSE_NS):
        assert set(missing_indices(partial.bitmap())) == wanted


def test_own_pdus_are_kept_up_to_a_limit() -> None:
    kept = Kept()
    for counter in range(1000):
        kept.add(counter, bytes(60_000))
    assert kept.held_bytes <= fragments.KEPT_BYTES
    assert kept.get(999) is not None
    assert kept.get(0) is None
