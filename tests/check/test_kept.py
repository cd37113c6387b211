"""Kept histories: each must go on being judged as it was found to be."""

import pytest

from antiphon.check.checkers import check_trace
from antiphon.check.verdict import count_by_property
from tests.histories import history, kept_histories

KEPT = kept_histories()


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT.keys())
def test_a_kept_history_is_judged_as_before(text: str) -> None:
    events, run, expected = history(text)
    assert count_by_property(check_trace(events, run)) == expected


def test_histories_are_kept() -> None:
    assert KEPT
