"""Numbers that are taken: by incarnation, and bounded."""

from antiphon.protocols.taken import MOST_RANGES, Taken


def test_a_number_is_taken_once_for_each_incarnation() -> None:
    taken = Taken()
    taken.note(5, 0, 2)
    taken.note(5, 2, 4)
    taken.note(5, 7, 8)
    assert all(taken.has(5, number, number + 1) for number in (0, 1, 2, 3, 7))
    assert not any(taken.has(5, number, number + 1) for number in (4, 5, 6, 8))
    assert taken.has(5, 6, 8)
    assert not taken.has(6, 0, 8)
    taken.note(6, 0, 1)
    assert taken.has(6, 0, 1)
    assert taken.has(5, 0, 1), "an incarnation that comes again does not have its numbers anew"


def test_an_incarnation_does_not_continue_another() -> None:
    taken = Taken()
    taken.note(5, 0, 2)
    taken.note(6, 2, 4)
    assert not taken.has(6, 0, 2)
    assert not taken.has(5, 2, 4)
    assert taken.has(None, 0, 1)
    assert taken.has(None, 3, 5)
    assert not taken.has(None, 4, 5)


def test_ranges_are_bounded_and_one_that_grows_is_one() -> None:
    taken = Taken()
    for number in range(0, 2 * (MOST_RANGES - 1), 2):
        taken.note(5, number, number + 1)
    for number in range(100, 200):
        taken.note(5, number, number + 1)
    assert taken.has(5, 0, 1)
    taken.note(5, 300, 301)
    assert not taken.has(5, 0, 1)
    assert taken.has(5, 2, 3)
