"""Digests of the agreed order: every difference is told at the next comparison that can see it, and once."""

from collections.abc import Sequence
from itertools import chain
from random import Random

import pytest

from antiphon.protocols.dpg.agreement import (
    ANOTHER,
    IT_LACKS,
    MOST_SITES,
    OTHER_ORDER,
    UNSEEN,
    WE_LACK,
    Agreement,
    Disagreement,
    mix,
)
from antiphon.protocols.dpg.checkpoints import FROM_LISTENER, RECENT, SPARSE, DigestLog
from antiphon.protocols.dpg.pdus import DIGEST_LIMIT, ORIGIN, TAG_LIMIT, Tag

Block = tuple[list[Tag], list[Tag]]
"""What two members have in a stretch of their orders: the same, or not."""
WINDOW = 8


def agreement(tags: Sequence[Tag], limit: int = 1000) -> Agreement:
    made = Agreement(limit)
    for tag in tags:
        made.append(tag, 1)
    return made


def window(of: Agreement, most: int = 1000) -> tuple[Tag, ...]:
    tags, links = of.recent(most)
    assert len(tags) == len(links)
    return tuple(tags)


def compare(mine: Agreement, theirs: Agreement, most: int = 1000, name: str = "b") -> Disagreement | None:
    return mine.compare(name, theirs.index, theirs.digest, window(theirs, most))


def test_a_digest_is_the_sum_over_neighbours() -> None:
    made = agreement([5, 6, 7])
    assert made.digest == (mix(ORIGIN, 5) + mix(5, 6) + mix(6, 7)) % DIGEST_LIMIT
    assert (made.index, made.root) == (3, 7)


@pytest.mark.parametrize(
    ("theirs", "ahead"),
    [
        ([1, 2, 3, 4], 0),
        ([1, 2, 3], 0),
        ([1, 2, 3, 4, 8, 9], 0),
        ([2, 3, 4], 1),
        ([1, 7, 2, 3, 4], -1),
        ([4, 3, 2, 1], 0),
        ([3, 2, 1], 0),
        ([4, 3, 1], 1),
        ([4, 1, 2, 8, 9], 1),
        ([8, 9], None),
    ],
)
def test_how_far_another_has_come_does_not_depend_on_how_it_orders(
    theirs: list[Tag], ahead: int | None
) -> None:
    mine = agreement([1, 2, 3, 4])
    assert mine.ahead_of(len(theirs), theirs) == ahead


def test_the_hash_spreads_and_tells_neighbours_apart() -> None:
    hashes = [mix(one, other) for one in range(64) for other in range(64)]
    assert len(set(hashes)) == len(hashes)
    for bit in range(64):
        assert 0.4 < sum(value >> bit & 1 for value in hashes) / len(hashes) < 0.6


def test_reports_tell_the_latest_tags_with_their_links() -> None:
    made = Agreement(4)
    assert made.recent(10) == ([], b"")
    for tag in range(1, 100):
        made.append(tag, tag % 4)
    assert window(made, 3) == (97, 98, 99)
    assert made.recent(3)[1] == bytes([1, 2, 3])
    assert window(made, 0) == ()
    assert 4 <= len(window(made)) <= 8


DIFFERENCES = {
    "swapped": ([1, 2, 3, 4], [1, 3, 2, 4], Disagreement(2, 3, 2, OTHER_ORDER)),
    "swapped at the end": ([1, 2, 3], [1, 3, 2], Disagreement(2, 3, 2, OTHER_ORDER)),
    "they lack one": ([1, 2, 3, 4], [1, 3, 4], Disagreement(2, 3, 2, IT_LACKS)),
    "we lack one": ([1, 3, 4], [1, 2, 3, 4], Disagreement(3, 2, 2, WE_LACK)),
    "another at the end": ([1, 2], [1, 3], Disagreement(2, 3, 2, ANOTHER)),
    "another in between": ([1, 2, 4], [1, 3, 4], Disagreement(2, 3, 2, ANOTHER)),
    "from the beginning": ([1, 2], [3, 4], Disagreement(1, 3, 1, ANOTHER)),
    "they are behind": ([1, 2], [1], None),
    "they are ahead": ([1], [1, 2], None),
    "nothing here yet": ([], [1, 2], None),
    "nothing there yet": ([1, 2], [], None),
    "equal": ([1, 2], [1, 2], None),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_the_first_message_that_differs_is_named_once(name: str) -> None:
    ours, theirs, expected = DIFFERENCES[name]
    mine, other = agreement(ours), agreement(theirs)
    assert compare(mine, other) == expected
    assert compare(mine, other) is None
    for tag in (50, 51):
        for each in (mine, other):
            each.append(tag, 1)
        if expected is not None:
            assert compare(mine, other) is None


def test_a_difference_further_back_than_the_windows_shows_in_the_digest() -> None:
    same = list(range(10, 60))
    mine, other = agreement([1, 2, 3, *same]), agreement([1, 3, 2, *same])
    assert compare(mine, other, most=5) == Disagreement(None, None, None, UNSEEN)
    assert compare(mine, other, most=5) is None


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [([1, 2, 3, 4], [1, 3, 2, 4]), ([1, 2, 3, 4, 5], [1, 3, 2, 4]), ([1, 2, 3, 4], [1, 3, 2, 4, 9])],
    ids=["both end there", "they are behind", "they are ahead"],
)
def test_who_has_our_digest_at_the_last_common_message_agrees_whatever_it_lists(
    ours: list[Tag], theirs: list[Tag]
) -> None:
    mine, digest = agreement(ours), agreement([1, 2, 3, *theirs[3:]]).digest
    assert mine.compare("b", len(theirs), digest, theirs) is None
    assert compare(mine, agreement([1, 3, 2, 4]), name="c") is not None, "by its digest"


def test_one_that_took_up_an_order_which_is_known_to_differ_is_no_news() -> None:
    same = list(range(10, 60))
    mine, other = agreement([1, 2, 3, *same]), agreement([1, 3, 2, *same])
    checkpoints = [5, other.digests.at(5) or 0]
    assert mine.contradicts("b", checkpoints)
    assert compare(mine, other, most=5, name="c") is None
    assert compare(mine, agreement([2, 1, 3, *same]), most=5, name="d") is not None


def test_windows_that_do_not_meet_say_nothing_until_they_do() -> None:
    same = list(range(10, 60))
    mine, other = agreement([1, 2, 3]), agreement([1, 3, 2, *same])
    assert compare(mine, other, most=5) is None
    for tag in same:
        mine.append(tag, 1)
    assert compare(mine, other, most=5) == Disagreement(None, None, None, UNSEEN)


def test_a_difference_that_ends_unseen_is_not_told_again() -> None:
    same = list(range(10, 60))
    mine, other = agreement([1, 2]), agreement([1, 3])
    assert compare(mine, other) is not None
    for member, last in ((mine, 3), (other, 2)):
        for tag in (last, *same):
            member.append(tag, 1)
    assert compare(mine, other, most=5) is None
    mine.append(60, 1)
    other.append(61, 1)
    assert compare(mine, other, most=5) == Disagreement(60, 61, 54, ANOTHER)


def test_windows_that_show_only_what_is_swapped_name_nothing() -> None:
    mine, other = agreement([1, 2, 3, 4]), agreement([1, 4, 3])
    assert compare(mine, other, most=2) == Disagreement(None, None, None, UNSEEN)
    assert compare(mine, other, most=2) is None
    other.append(2, 1)
    assert compare(mine, other, most=2) is None
    assert compare(mine, other) is None


def test_a_report_that_comes_late_tells_nothing_again() -> None:
    mine, other = agreement([1, 2]), agreement([1])
    stale = (other.index, other.digest, window(other))
    other.append(3, 1)
    assert compare(mine, other) is not None
    assert mine.compare("b", *stale) is None
    assert compare(mine, other) is None


def blocks(random: Random, count: int, odds: float) -> list[Block]:
    """Stretches that are equal or not; after each that is not, the orders meet again."""
    tags = iter(random.sample(range(1, TAG_LIMIT), 5 * count))
    made: list[Block] = []
    for _ in range(count):
        if random.random() < odds:
            some = [next(tags) for _ in range(random.randint(1, 3))]
            kinds: list[Block] = [(some, []), ([], some), (some[:1], [next(tags)])]
            if len(some) > 1:
                kinds.append((some, [some[-1], *some[:-1]]))
            made.append(random.choice(kinds))
        same = next(tags)
        made.append(([same], [same]))
    return made


class Twin:
    """What a member should find out of another, from the whole of both orders, stretch by stretch."""

    def __init__(self, made: Sequence[Block]) -> None:
        self._made = made
        self._apart = [place for place, (ours, theirs) in enumerate(made) if ours != theirs]
        self._told: set[int] = set()
        self._unended: int | None = None
        """A stretch that was told before the orders had met again behind it."""
        self.is_excused = False
        """Whether it has left the windows, so that its end can't be told from what follows it."""

    def judge(self, ours: Sequence[Tag], theirs: Sequence[Tag], seen: set[Tag]) -> list[int]:
        """Stretches that must be told now; `seen` are the tags in both windows."""
        if not seen:
            return []
        found = [place for place in self._apart if self._has_met(place, ours, theirs)]
        forked = [place for place in self._apart if self._is_forked(place, ours, theirs)]
        new = [place for place in (*found, *forked) if place not in self._told]
        self.is_excused = self._unended is not None and self.before(self._unended) not in seen
        self._told.update(found, forked)
        self._unended = forked[0] if forked else None
        return sorted(new)

    def before(self, place: int) -> Tag:
        """The tag after which a stretch begins."""
        return self._made[place - 1][0][0] if place else ORIGIN

    def _has_met(self, place: int, ours: Sequence[Tag], theirs: Sequence[Tag]) -> bool:
        following = self._made[place + 1][0][0]
        return following in ours and following in theirs

    def _is_forked(self, place: int, ours: Sequence[Tag], theirs: Sequence[Tag]) -> bool:
        """Both have gone on behind its beginning, and not yet met."""
        return not self._has_met(place, ours, theirs) and None not in self.ends(place, ours, theirs)

    def ends(self, place: int, *orders: Sequence[Tag]) -> list[Tag | None]:
        """What each order has first behind a stretch's beginning."""
        found: list[Tag | None] = []
        for order in orders:
            whole = [ORIGIN, *order]
            begin = whole.index(self.before(place)) + 1 if self.before(place) in whole else len(whole)
            found.append(whole[begin] if begin < len(whole) else None)
        return found


class Pair:
    """Two members that go on at their own pace, by stretches or by single tags, and compare now and then."""

    def __init__(self, random: Random, odds: float, *, by_stretches: bool, limit: int) -> None:
        self._random = random
        self.made = blocks(random, 60, odds)
        self.twin = Twin(self.made)
        self._steps: list[list[list[Tag]]] = [[block[side] for block in self.made] for side in (0, 1)]
        if not by_stretches:
            self._steps = [[[tag] for tag in chain.from_iterable(steps)] for steps in self._steps]
        self.orders: list[list[Tag]] = [[], []]
        self.members = [Agreement(limit), Agreement(limit)]

    def is_over(self) -> bool:
        return not any(self._steps)

    def advance(self) -> None:
        for side, member in enumerate(self.members):
            for _ in range(self._random.choice((0, 1, 2, 9, 20))):
                for tag in self._steps[side].pop(0) if self._steps[side] else ():
                    self.orders[side].append(tag)
                    member.append(tag, 0)

    def compare(self, most: int) -> tuple[Disagreement | None, Disagreement | None]:
        """What is told, and what should be."""
        mine, theirs = self.members
        seen = remembered(mine, 1000) & remembered(theirs, most)
        must = self.twin.judge(self.orders[0], self.orders[1], seen)
        found = compare(mine, theirs, most)
        return found, found if self.twin.is_excused else self._expected(must, seen)

    def _expected(self, must: Sequence[int], seen: set[Tag]) -> Disagreement | None:
        if not must:
            return None
        if self.twin.before(must[0]) not in seen:
            return Disagreement(None, None, None, UNSEEN)
        one, other = self.twin.ends(must[0], *self.orders)
        assert one is not None
        return Disagreement(one, other, self.orders[0].index(one) + 1, "")


def remembered(member: Agreement, most: int) -> set[Tag]:
    tags = window(member, most)
    return {ORIGIN, *tags} if len(tags) == member.index else set(tags)


def same(found: Disagreement | None, expected: Disagreement | None) -> bool:
    return (found and found[:3]) == (expected and expected[:3])


def test_each_difference_is_told_once_at_the_next_comparison_that_can_see_it() -> None:
    told = 0
    for seed in range(1500):
        random = Random(seed)
        limit = random.choice((WINDOW, 20, 100))
        pair = Pair(random, random.choice((0, 0.02, 0.1, 0.3)), by_stretches=True, limit=limit)
        while not pair.is_over():
            pair.advance()
            if random.random() < 0.7:
                found, expected = pair.compare(random.randint(WINDOW, 40))
                assert same(found, expected), (seed, found, expected)
                told += found is not None
    assert told > 1000


def test_with_whole_windows_halves_of_a_difference_are_not_told_apart() -> None:
    for seed in range(500):
        random = Random(seed)
        pair = Pair(random, random.choice((0, 0.1, 0.3)), by_stretches=False, limit=1000)
        while not pair.is_over():
            pair.advance()
            if random.random() < 0.7:
                found, expected = pair.compare(1000)
                assert same(found, expected), (seed, found, expected)


def test_nothing_escapes_and_equal_orders_never_disagree_whatever_the_windows() -> None:
    for seed in range(500):
        random = Random(seed)
        odds = random.choice((0, 0.1))
        pair = Pair(random, odds, by_stretches=False, limit=random.choice((2, 5, 50)))
        while not pair.is_over():
            pair.advance()
            found, expected = pair.compare(random.randint(1, 40))
            assert found is not None or expected is None, (seed, expected)
            assert found is None or odds, (seed, found)


def test_whoever_took_up_our_order_agrees_with_us() -> None:
    mine, other = agreement([1, 2, 3]), agreement([1, 3, 2])
    assert compare(mine, other) is not None
    other.adopt(mine.root, mine.index, mine.digest, window(mine, 2))
    assert (other.root, other.index, other.digest) == (mine.root, mine.index, mine.digest)
    assert window(other) == (2, 3)
    assert compare(mine, other) is None
    assert compare(other, mine) is None
    for tag in (4, 5):
        mine.append(tag, 1)
    for tag in (5, 4):
        other.append(tag, 1)
    assert compare(mine, other) == Disagreement(4, 5, 4, OTHER_ORDER)
    assert compare(other, mine) == Disagreement(5, 4, 4, OTHER_ORDER)


def test_whoever_took_up_our_order_unnoticed_is_judged_from_there() -> None:
    mine, other = agreement([1, 2, 3, 4]), agreement([1, 3, 2, 4])
    assert compare(mine, other) is not None
    other.adopt(mine.root, mine.index, mine.digest, window(mine))
    for tag in range(10, 20):
        mine.append(tag, 1)
        other.append(tag, 1)
    mine.append(20, 1)
    other.append(21, 1)
    assert compare(mine, other, most=4) == Disagreement(20, 21, 15, ANOTHER)


def test_agreeing_with_one_who_took_up_our_order_is_no_news() -> None:
    mine, other = agreement([1, 2, 3, 4]), agreement([1, 3, 2, 4])
    assert compare(mine, other) is not None
    other.adopt(mine.root, mine.index, mine.digest, window(mine))
    for tag in range(10, 20):
        mine.append(tag, 1)
        other.append(tag, 1)
    assert compare(mine, other, most=4) is None


def test_taking_up_an_order_voids_what_was_found_of_others() -> None:
    returned, ours = agreement(list(range(100, 150))), agreement([1, 2])
    before = agreement(list(range(100, 150)))
    assert compare(returned, before, name="a") is None
    returned.adopt(ours.root, ours.index, ours.digest, window(ours))
    ours.append(3, 1)
    returned.append(4, 1)
    assert compare(returned, ours, name="a") == Disagreement(4, 3, 3, ANOTHER)


def test_an_order_can_be_taken_up_at_its_beginning_and_with_a_window_that_makes_no_sense() -> None:
    mine = agreement([])
    mine.adopt(ORIGIN, 0, 0, ())
    mine.append(1, 1)
    assert compare(mine, agreement([1]), name="b") is None
    assert compare(mine, agreement([2]), name="c") is not None
    mine.adopt(7, 100, 12345, (8, 9))
    assert (window(mine), mine.index) == ((7,), 100)


def test_whoever_took_up_an_order_answers_for_nothing_before() -> None:
    ours, theirs = agreement([1, 2, 3, 4, 5]), agreement([1, 3, 2, 4, 5])
    returned = Agreement(1000)
    returned.adopt(theirs.root, theirs.index, theirs.digest, window(theirs))
    assert compare(returned, ours, name="a") is None
    assert compare(returned, theirs) is None
    ours.append(6, 1)
    returned.append(7, 1)
    assert compare(returned, ours, name="a") == Disagreement(7, 6, 6, ANOTHER)


def test_whoever_took_up_a_third_ones_order_is_no_news_beyond_the_windows() -> None:
    same = list(range(10, 30))
    mine, other = agreement([1, 2, *same]), agreement([2, 1, *same])
    assert compare(mine, other, most=5) is not None
    third = Agreement(1000)
    third.adopt(other.root, other.index, other.digest, window(other, 5))
    assert compare(mine, third, name="c") is None
    mine.append(30, 1)
    third.append(31, 1)
    assert compare(mine, third, name="c") == Disagreement(30, 31, 23, ANOTHER)


def test_what_was_found_of_one_who_began_anew_can_be_forgotten() -> None:
    same = list(range(10, 30))
    mine, one, other = agreement([1, 2, 3, *same]), agreement([2, 1, 3, *same]), agreement([3, 2, 1, *same])
    assert compare(mine, one, 5, "b") is not None
    assert compare(mine, other, 5, "c") is not None
    mine.forget("b")
    for tag in range(30, 40):
        mine.append(tag, 1)
        other.append(tag, 1)
    assert compare(mine, other, 5, "b") is None


def test_garbage_raises_nothing_and_grows_nothing() -> None:
    random = Random(3)
    mine = agreement(list(range(1, 40)))
    for name in range(3 * MOST_SITES):
        agreed = [random.randint(0, 50) for _ in range(random.randint(0, 30))]
        index = random.choice((len(agreed), random.randint(-(1 << 70), 1 << 70)))
        mine.compare(str(name % (2 * MOST_SITES)), index, random.randint(-(1 << 70), 1 << 70), agreed)
    assert len(mine._standings) <= MOST_SITES
    assert compare(mine, agreement(list(range(1, 40))), name="honest") is None


def test_checkpoints_show_a_fork_that_both_windows_have_left() -> None:
    shared = list(range(1, 201))
    mine = agreement([*shared, *range(1000, 1400)], limit=8)
    theirs = agreement([*shared, *range(2000, 2900)], limit=8)
    assert compare(mine, theirs, 8) is None, "the windows have nothing in common"
    assert mine.contradicts("b", theirs.digests.told(theirs.index))
    assert not mine.contradicts("b", theirs.digests.told(theirs.index)), "it is told once"


def told(tags: list[Tag]) -> list[int]:
    return agreement(tags, limit=8).digests.told(len(tags))


def test_checkpoints_of_one_order_never_contradict_each_other() -> None:
    tags = list(range(1, 900))
    mine = agreement(tags[:500], limit=8)
    for length in (0, 15, 16, 100, 499, 899):
        assert not mine.contradicts("b", told(tags[:length]))
    assert not mine.contradicts("b", [])
    assert not mine.contradicts("b", [16])


@pytest.mark.parametrize("alone", [1, 3, 40, 700])
def test_checkpoints_from_a_members_own_index_tell_what_it_delivered_alone(alone: int) -> None:
    shared = list(range(1, 1001))
    mine = agreement([*shared, *range(5000, 5000 + alone)], limit=8)
    theirs = agreement([*shared, *range(9000, 9900)], limit=8)
    checkpoints = theirs.digests.told(min(mine.index, theirs.index), FROM_LISTENER)
    common = mine.common(theirs.index, theirs.digest, window(theirs, 8), checkpoints)
    assert len(shared) - 4 * alone <= common <= len(shared), "at most four times as much as there is"


def test_an_order_that_goes_on_from_ours_has_all_of_ours() -> None:
    mine, theirs = agreement(list(range(1, 801)), limit=8), agreement(list(range(1, 9000)), limit=8)
    checkpoints = theirs.digests.told(mine.index, FROM_LISTENER)
    assert mine.common(theirs.index, theirs.digest, window(theirs, 8), checkpoints) == mine.index
    assert not mine.is_fork(theirs.index, theirs.digest, window(theirs, 8), checkpoints)


def test_digests_far_back_are_sparse_and_bounded() -> None:
    log = DigestLog()
    for index in range(1, 3 * RECENT):
        log.append(index)
    assert log.at(3 * RECENT - 1) == 3 * RECENT - 1
    assert log.at(RECENT - 1) is None
    assert log.at(RECENT - SPARSE) == RECENT - SPARSE
    assert log.told(RECENT - 1, FROM_LISTENER)[:2] == [RECENT - SPARSE, RECENT - SPARSE]


def test_an_order_goes_back_to_what_was_delivered() -> None:
    mine, twin = agreement(list(range(1, 21)), limit=8), agreement(list(range(1, 16)), limit=8)
    assert mine.rewind(15)
    assert (mine.index, mine.root, mine.digest) == (twin.index, twin.root, twin.digest)
    mine.append(99, 1)
    twin.append(99, 1)
    assert mine.digests.told(16, FROM_LISTENER) == twin.digests.told(16, FROM_LISTENER)
    assert not mine.rewind(2), "its tag is forgotten"


@pytest.mark.parametrize(
    ("index", "theirs", "is_fork"),
    [
        (5, [1, 2, 9, 10, 11], True),
        (5, [1, 2, 3, 4, 9], False),
        (6, [1, 8, 9, 10, 11, 2], False),
        (50, [1, 2, 9], True),
        (50, [7, 8, 9], False),
        (50, [7, 8, 2], False),
    ],
)
def test_orders_are_forked_if_both_go_on_behind_their_last_common_message(
    index: int, theirs: list[Tag], is_fork: bool
) -> None:
    assert agreement([1, 2, 3, 4]).is_fork(index, 0, theirs, ()) == is_fork


def test_checkpoints_are_told_of_places_that_are_there() -> None:
    log = agreement([1, 2, 3, 4, 5]).digests
    assert log.told(5, (0, 4, 5, 6))[::2] == [5, 1]
    assert log.told(SPARSE + 5, (0,)) == []
