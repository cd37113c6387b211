"""Cutting PDUs and putting them together again, within bounds whatever comes."""

import itertools
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.wire import MAGIC, PREFIX, VERSION, Bytes, Reason
from antiphon.live import fragments
from antiphon.live.counters import Counters
from antiphon.live.fragments import (
    FIRST_PAUSE_NS,
    FRAGMENT,
    KEPT_BYTES,
    MAXIMUM_PDU_BYTES,
    MOST_BYTES,
    MOST_FRAGMENTS,
    MOST_PARTIAL_BYTES,
    MOST_PARTIALS,
    MOST_REMEMBERED,
    MOST_REQUESTS,
    OVERHEAD_BYTES,
    PLACE_BYTES,
    SHARED,
    UNSURE_PAUSE_NS,
    Kept,
    Piece,
    Reassembly,
    Tokens,
    cut,
    join,
    missing_indices,
    no_tokens,
    parse_fragment,
)
from antiphon.live.sealing import TOKEN_BYTES, Seals
from tests.live.pairs import RING

GROUP, BOOT = 11, 22
PDUS = st.binary(min_size=700, max_size=2000)
TOKENS = Seals(RING, "orders").own(BOOT).tokens
SENDER = "a"


def pieces(
    pdu: bytes, datagram_bytes: int = 600, counter: int = 1, tokens: Tokens = no_tokens
) -> list[Piece]:
    found = []
    for head, body in cut(pdu, datagram_bytes, GROUP, BOOT, counter, tokens):
        assert len(head) + len(body) <= datagram_bytes
        piece = parse_fragment(memoryview(head + bytes(body)), GROUP)
        assert isinstance(piece, Piece)
        found.append(piece)
    return found


def a_piece(counter: int, place: int, total: int, size: int) -> Piece:
    shared = PREFIX.pack(MAGIC, VERSION, FRAGMENT, total, GROUP, BOOT, counter)[SHARED]
    return Piece(BOOT, counter, place, total, bytes(TOKEN_BYTES), b"x" * size, shared)


class Bench(Reassembly[str]):
    """A reassembly that is handed fragments as the transport hands them in."""

    def __init__(self, tokens: Tokens = no_tokens) -> None:
        self.counters = Counters()
        super().__init__(self.counters)
        self._tokens = tokens

    def hear(self, piece: Piece, now: int = 0, sender: str = SENDER) -> bytes | None:
        if self.is_late(sender, piece.counter):
            return None
        partial = self.find(sender, piece.counter)
        if partial is None:
            partial = self.begin(sender, piece, self._tokens(piece.counter, piece.total), now)
        return self.take(partial, piece, now)

    def due(self, now: int) -> list[list[int]]:
        """What is to be asked for again."""
        return [missing_indices(partial.bitmap()) for partial in self.tick(now, lambda _: True)]


KEYED = pytest.mark.parametrize("tokens", [no_tokens, TOKENS], ids=["open", "sealed"])


@KEYED
@given(PDUS, st.integers(64, 699), st.randoms(use_true_random=False), st.integers(0, 20))
def test_fragments_in_any_order_with_repetitions_give_the_pdu_once(
    tokens: Tokens, pdu: bytes, datagram_bytes: int, random: Random, repeated: int
) -> None:
    cuts = pieces(pdu, datagram_bytes, tokens=tokens)
    coming = cuts + random.choices(cuts, k=repeated)
    random.shuffle(coming)
    here = Bench(tokens)
    whole = [found for piece in coming if (found := here.hear(piece)) is not None]
    assert whole == [pdu]
    assert here.held_bytes == 0
    assert not here.has_partials()


@given(PDUS, st.data())
def test_fragments_without_their_token_are_not_taken(pdu: bytes, data: st.DataObject) -> None:
    here, cuts = Bench(TOKENS), pieces(pdu, tokens=TOKENS)
    assert here.hear(cuts[0]) is None
    for piece in cuts[1:]:
        flipped = bytearray(piece.token)
        flipped[data.draw(st.integers(0, TOKEN_BYTES - 1))] ^= 1 << data.draw(st.integers(0, 7))
        others = (each.token for each in cuts if each is not piece)
        for token in (bytes(flipped), bytes(TOKEN_BYTES), *others):
            assert here.hear(piece._replace(token=token, body=b"forged")) is None
    assert here.counters.drops[fragments.NOT_NEW] > 0
    assert [here.hear(piece) for piece in cuts[1:]][-1] == pdu


@given(PDUS, st.integers(64, 699), st.data())
def test_what_the_kernel_joined_is_put_together_at_once_or_not_at_all(
    pdu: bytes, datagram_bytes: int, data: st.DataObject
) -> None:
    datagrams = [head + bytes(body) for head, body in cut(pdu, datagram_bytes, GROUP, BOOT, 7, TOKENS)]
    joined = b"".join(datagrams)
    stream = TOKENS(7, len(datagrams))
    assert join(memoryview(joined), datagram_bytes, GROUP) == (BOOT, 7, stream, pdu)
    assert join(memoryview(joined), datagram_bytes, GROUP + 1) is None
    assert join(memoryview(b"".join(datagrams[:-1])), datagram_bytes, GROUP) is None
    assert join(memoryview(b"".join(datagrams[1:])), datagram_bytes, GROUP) is None
    place = data.draw(st.integers(0, len(datagrams) - 1)) * datagram_bytes
    torn = bytearray(joined)
    torn[place + data.draw(st.integers(0, PREFIX.size - 1))] ^= 1 << data.draw(st.integers(0, 7))
    answer = join(memoryview(torn), datagram_bytes, GROUP)
    # A prefix that is altered everywhere alike would be another PDU's; in one place it never passes.
    assert answer is None


def test_what_the_kernel_joined_ends_with_a_fragment_that_says_something() -> None:
    first, last = head(0, 2, b"x" * 100), head(1, 2, b"")
    assert join(memoryview(first + last + b"y"), len(first), GROUP) == (BOOT, 1, bytes(16), b"x" * 100 + b"y")
    assert join(memoryview(first + last), len(first), GROUP) is None


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


def head(index: int, count: int, body: bytes = b"body", group: int = GROUP, version: int = VERSION) -> bytes:
    prefix = PREFIX.pack(MAGIC, version, FRAGMENT, index << 16 | count, group, BOOT, 1)
    return prefix + bytes(TOKEN_BYTES) + body


def parsed(datagram: bytes) -> Piece | str:
    return parse_fragment(memoryview(datagram), GROUP)


def test_impossible_places_are_refused() -> None:
    for index, count in (
        (0, 2),
        (1, 2),
        (255, 256),
        (0, MOST_FRAGMENTS),
        (MOST_FRAGMENTS - 1, MOST_FRAGMENTS),
    ):
        shared = head(index, count)[SHARED]
        assert parsed(head(index, count)) == Piece(BOOT, 1, index, count, bytes(TOKEN_BYTES), b"body", shared)
    for index, count in ((0, 0), (0, 1), (2, 2), (3, 2), (0, MOST_FRAGMENTS + 1), (65535, 65535)):
        assert parsed(head(index, count)) == fragments.NONSENSE
    assert parsed(head(0, 2, group=GROUP + 1)) == fragments.NONSENSE
    assert parsed(head(0, 2, version=VERSION + 1)) == fragments.NONSENSE
    assert parsed(b"xx" + head(0, 2)[2:]) == Reason.MAGIC.value
    assert parsed(head(0, 2, b"")) == Reason.SHORT.value
    assert isinstance(parsed(head(0, 2, b"b")), Piece)


@KEYED
@given(PDUS, st.integers(64, 699), st.data())
def test_what_follows_is_recognised_without_parsing_exactly_if_parsing_finds_it_new(
    tokens: Tokens, pdu: bytes, datagram_bytes: int, data: st.DataObject
) -> None:
    bench = Bench(tokens)
    datagrams = [head + bytes(body) for head, body in cut(pdu, datagram_bytes, GROUP, BOOT, 1, tokens)]
    came = data.draw(st.sets(st.integers(0, len(datagrams) - 1), min_size=1, max_size=len(datagrams) - 1))
    for place in sorted(came):
        piece = parse_fragment(memoryview(datagrams[place]), GROUP)
        assert isinstance(piece, Piece)
        bench.hear(piece)
    datagram = bytearray(data.draw(st.sampled_from(datagrams)))
    if data.draw(st.booleans()):
        datagram[data.draw(st.integers(0, OVERHEAD_BYTES - 1))] ^= 1 << data.draw(st.integers(0, 7))
    view = memoryview(bytes(datagram[: data.draw(st.sampled_from([OVERHEAD_BYTES, len(datagram)]))]))
    partial = bench.under_way(view)
    found = None if partial is None else partial.lacks_next(view)
    piece = parse_fragment(view, GROUP) if view[3] == FRAGMENT else ""
    known = bench.find(SENDER, piece.counter) if isinstance(piece, Piece) and piece.boot == BOOT else None
    if isinstance(piece, Piece) and known is not None and known.lacks(piece):
        assert partial is known
        assert found == piece.place
    else:
        assert found is None


def test_a_place_beyond_the_last_is_no_place() -> None:
    bench = Bench()
    bench.hear(pieces(bytes(1000))[0])
    head, body = cut(bytes(1000), 600, GROUP, BOOT, 1)[1]
    for place in (2, 3, 65535):
        view = memoryview(head[:4] + place.to_bytes(2, "big") + head[6:] + bytes(body))
        partial = bench.under_way(view)
        assert partial is not None
        assert partial.lacks_next(view) is None


def test_a_pdu_that_came_at_once_leaves_the_others_alone() -> None:
    bench = Bench()
    first, second = pieces(bytes(1000), counter=1)
    bench.hear(first)
    bench.finish(SENDER, 2)
    assert bench.hear(second) == bytes(1000)


def test_two_senders_of_one_boot_are_told_apart_and_nothing_stays_when_they_are_done() -> None:
    bench = Bench()
    mine, yours = pieces(bytes(1000)), pieces(bytes(1000))
    bench.hear(mine[0], sender="a")
    bench.hear(yours[0], sender="b")
    view = memoryview(b"".join(cut(bytes(1000), 600, GROUP, BOOT, 1)[1]))
    partial = bench.under_way(view)
    assert partial is not None
    assert partial.sender == "a"
    assert bench.hear(yours[1], sender="b") == bytes(1000)
    assert bench.under_way(view) is partial
    assert bench.hear(mine[1], sender="a") == bytes(1000)
    assert bench.under_way(view) is None


def test_fragments_that_would_make_too_large_a_pdu_are_refused() -> None:
    most = MAXIMUM_PDU_BYTES // 9
    assert isinstance(parsed(head(0, 10, b"x" * most)), Piece)
    assert parsed(head(0, 10, b"x" * (most + 1))) == fragments.NONSENSE
    assert isinstance(parsed(head(9, 10, b"x" * (most + 1))), Piece), (
        "the last one says nothing of the others"
    )


def test_what_a_fragment_takes_is_known() -> None:
    ((begin, first), (_, last)) = cut(bytes(1000), 600, GROUP, BOOT, 1)
    assert len(begin) == OVERHEAD_BYTES == PREFIX.size + TOKEN_BYTES
    assert (len(first), len(last)) == (600 - OVERHEAD_BYTES, 1000 - (600 - OVERHEAD_BYTES))
    most = MOST_FRAGMENTS * (100 - OVERHEAD_BYTES)
    assert len(cut(bytes(most), 100, GROUP, BOOT, 1)) == MOST_FRAGMENTS
    with pytest.raises(AssertionError):
        cut(bytes(most + 1), 100, GROUP, BOOT, 1)


def test_fragments_that_disagree_do_not_mix() -> None:
    here = Bench()
    long, short = pieces(b"l" * 2000), pieces(b"s" * 1000)
    assert len(long) != len(short)
    assert here.hear(long[0]) is None
    for piece in short:
        assert here.hear(piece) is None
    found = [here.hear(piece) for piece in long[1:]]
    assert found[-1] == b"l" * 2000


def test_fragments_of_two_members_do_not_mix() -> None:
    """Though they name one boot and one counter, as a liar in an open group may."""
    here = Bench()
    ours, theirs = pieces(b"o" * 2000), pieces(b"t" * 2000)
    for mine, other in zip(ours[:-1], theirs[:-1], strict=True):
        assert here.hear(mine, sender="a") is None
        assert here.hear(other, sender="b") is None
    assert here.hear(theirs[-1], sender="b") == b"t" * 2000
    assert here.hear(ours[-1], sender="a") == b"o" * 2000


def check_bounds(here: Bench) -> None:
    for shelf in here._shelves.values():
        assert 0 < len(shelf.partials) <= MOST_PARTIALS
        assert shelf.held_bytes <= MOST_PARTIAL_BYTES
        assert shelf.held_bytes == sum(held_by(partial.pieces) for partial in shelf.partials.values())
    assert here.held_bytes == sum(shelf.held_bytes for shelf in here._shelves.values()) <= MOST_BYTES


def held_by(places: list[Bytes | None]) -> int:
    return len(places) * PLACE_BYTES + sum(len(body) for body in places if body is not None)


@pytest.mark.parametrize("senders", [1, 3, 20])
@pytest.mark.parametrize("partials", [1, 4, 300])
@pytest.mark.parametrize("size", [1, 20_000])
def test_members_stay_within_their_room(senders: int, partials: int, size: int) -> None:
    here, random = Bench(), Random(1)
    for step in range(600):
        sender, counter = str(random.randrange(senders)), random.randrange(partials)
        here.hear(a_piece(counter, random.randrange(MOST_FRAGMENTS), MOST_FRAGMENTS, size), sender=sender)
        if step % 20 == 0:
            check_bounds(here)


def test_what_comes_last_pushes_out_what_came_first() -> None:
    here = Bench()
    for counter in range(MOST_PARTIALS):
        here.hear(a_piece(counter, 0, 2, 1))
    assert here.counters.drops == {}
    here.hear(a_piece(MOST_PARTIALS, 0, 2, 1))
    assert here.counters.drops == {fragments.CROWDED: 1}
    assert here.counters.pdus_lost == 1
    assert here.find(SENDER, 0) is None
    assert here.find(SENDER, 1) is not None
    check_bounds(here)


def test_a_member_s_bytes_are_bounded() -> None:
    here, size = Bench(), 120_000
    most = MOST_PARTIAL_BYTES // (size + 3 * PLACE_BYTES)
    for counter in range(most):
        here.hear(a_piece(counter, 0, 3, size))
    assert here.counters.drops == {}
    here.hear(a_piece(most, 0, 3, size))
    assert here.counters.drops == {fragments.CROWDED: 1}
    assert here.find(SENDER, 0) is None
    here = Bench()
    here.hear(a_piece(0, 0, 3, MOST_PARTIAL_BYTES - 3 * PLACE_BYTES))
    assert here.counters.drops == {}
    here.hear(a_piece(0, 1, 3, 1))
    assert here.counters.drops == {fragments.CROWDED: 1}
    assert here.held_bytes == 0


def test_all_members_bytes_are_bounded_and_the_one_that_has_most_gives_way() -> None:
    here, size = Bench(), 60_000
    here.hear(a_piece(0, 0, 2, 1), sender="small")
    for port, counter in itertools.product(range(6), range(500)):
        here.hear(a_piece(counter, 0, 2, size), sender=str(port))
    check_bounds(here)
    assert MOST_BYTES % MOST_PARTIAL_BYTES == 0
    assert here.held_bytes > MOST_BYTES - size
    assert here.find("small", 0) is not None
    assert len(here._shelves) == 7


def test_all_of_the_room_can_be_used() -> None:
    here, whole = Bench(), a_piece(0, 0, 3, MOST_PARTIAL_BYTES - 3 * PLACE_BYTES)
    for sender in range(MOST_BYTES // MOST_PARTIAL_BYTES):
        here.hear(whole, sender=str(sender))
    assert here.held_bytes == MOST_BYTES
    assert here.counters.drops == {}
    here.hear(a_piece(0, 0, 3, 1), sender="one more")
    assert here.counters.drops == {fragments.CROWDED: 1}


def test_unfinished_pdus_of_those_that_are_members_no_more_are_forgotten() -> None:
    here = Bench()
    for sender in ("a", "b"):
        for counter in range(3):
            here.hear(a_piece(counter, 0, 2, 100), sender=sender)
    assert list(here.tick(0, {"b"}.__contains__)) == []
    assert set(here._shelves) == {"b"}
    assert here.counters.drops == {fragments.MISSING: 3}
    check_bounds(here)


def test_what_is_missing_is_asked_for_a_few_times_and_then_given_up() -> None:
    here = Bench()
    coming = pieces(b"m" * 2000)
    for piece in coming[:1] + coming[2:]:
        here.hear(piece)
    asked, now = [], 0
    for _ in range(1000):
        now += FIRST_PAUSE_NS // 2
        asked += [(now, indices) for indices in here.due(now)]
    assert [indices for _, indices in asked] == [[1]] * MOST_REQUESTS
    pauses = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(asked)]
    assert pauses == sorted(pauses)
    assert 0 <= asked[0][0] - UNSURE_PAUSE_NS < FIRST_PAUSE_NS
    assert pauses[-1] == fragments.LONGEST_PAUSE_NS
    assert here.counters.drops == {fragments.MISSING: 1}
    assert not here.has_partials()


def test_what_is_missing_is_asked_for_sooner_if_something_sent_later_has_come() -> None:
    here = Bench()
    for piece in pieces(b"m" * 2000, counter=1)[1:]:
        here.hear(piece)
    assert here.due(FIRST_PAUSE_NS) == []
    here.hear(pieces(b"m" * 2000, counter=2)[0])
    assert here.due(FIRST_PAUSE_NS - 1) == []
    assert here.due(FIRST_PAUSE_NS) == [[0]]


def test_each_fragment_that_comes_begins_the_asking_anew() -> None:
    here, now = Bench(), 0
    coming = pieces(b"m" * 4000)
    for piece in coming[:-1]:
        here.hear(piece, now)
        assert here.due(now + FIRST_PAUSE_NS - 1) == []
        for _ in range(MOST_REQUESTS - 1):
            now += fragments.LONGEST_PAUSE_NS
            assert len(here.due(now)) == 1
    assert here.hear(coming[-1], now) == b"m" * 4000


def test_progress_is_not_disturbed_by_requests() -> None:
    here = Bench()
    now = 0
    for piece in pieces(b"m" * 2000):
        now += FIRST_PAUSE_NS - 1
        assert here.due(now) == []
        here.hear(piece, now)


def test_late_fragments_begin_nothing_and_what_is_remembered_is_bounded() -> None:
    here = Bench()
    for counter in range(2 * MOST_REMEMBERED):
        coming = pieces(b"m" * 700, counter=counter)
        for piece in coming:
            here.hear(piece)
        assert here.hear(coming[0]) is None
    assert not here.has_partials()
    assert len(here._done) == MOST_REMEMBERED
    assert here.counters.drops == {fragments.LATE: 2 * MOST_REMEMBERED}
    assert here.counters.reassembled == 2 * MOST_REMEMBERED


@given(st.sets(st.integers(0, MOST_FRAGMENTS - 1)))
def test_a_bitmap_says_what_is_missing(wanted: set[int]) -> None:
    here = Bench()
    for index in range(MOST_FRAGMENTS):
        if index not in wanted:
            here.hear(a_piece(1, index, MOST_FRAGMENTS, 1))
    for indices in here.due(FIRST_PAUSE_NS):
        assert set(indices) == wanted


def test_a_bitmap_that_is_too_long_is_read_as_far_as_there_can_be_fragments() -> None:
    assert missing_indices(b"\xff" * 1000) == list(range(MOST_FRAGMENTS))
    assert missing_indices(b"") == []


def test_own_pdus_are_kept_up_to_a_limit() -> None:
    kept = Kept()
    for counter in range(1000):
        kept.add(counter, bytes(60_000))
    most = KEPT_BYTES // 60_000
    assert kept.held_bytes == most * 60_000
    assert kept.get(999) == (bytes(60_000), no_tokens)
    assert kept.get(1000 - most) is not None
    assert kept.get(999 - most) is None
    kept = Kept()
    kept.add(1, bytes(KEPT_BYTES))
    assert kept.get(1) is not None
    kept.add(2, b"x")
    assert (kept.get(1), kept.held_bytes) == (None, 1)
