"""Reasons for refusals: all are counted, and some are shown."""

from antiphon.live.refusals import AGAIN_S, MOST_KEPT, PER_SECOND, Refusals


def test_the_same_sentence_is_shown_again_after_a_pause() -> None:
    refusals = Refusals()
    shown = [refusals.note("it", now_s) for now_s in (0.0, 1.0, AGAIN_S - 0.5, AGAIN_S, AGAIN_S + 1)]
    assert shown == [True, False, False, True, False]
    assert refusals.counts() == {"it": 5}


def test_a_bounded_number_of_sentences_is_kept_and_shown_per_second() -> None:
    refusals = Refusals()
    for second in (5, 6):
        sentences = [f"{second}/{number}" for number in range(MOST_KEPT)]
        shown = [refusals.note(sentence, second) for sentence in sentences]
        assert shown == [number < PER_SECOND for number in range(MOST_KEPT)]
        assert list(refusals.counts()) == sentences
