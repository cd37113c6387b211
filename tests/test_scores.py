"""Mutation scores: what is wrong on purpose is caught, and what is right is not."""

from pathlib import Path

import pytest

from tests.protocols.harness.sco_printed import FAULTS
from tests.scores import BLOCKS, RULES, caught, cells, counted, steady, troubled, without

RUNS = range(12)
PAGE = Path(__file__).parents[1] / "docs" / "protocols" / "sco.md"


def test_without_a_fault_nothing_is_caught() -> None:
    assert not any(caught(draw(seed), seed) for draw in (steady, troubled) for seed in RUNS)


def test_precedence_by_receipt_catches_what_precedence_by_delivery_misses() -> None:
    with without("own batches follow what has moved, not what was received"):
        found = [caught(steady(seed), seed) for seed in RUNS]
    assert any("causal-receipt" in reasons and "causal" not in reasons for reasons in found)
    assert not any(BLOCKS in reasons for reasons in found)


def scored() -> dict[str, list[str]]:
    """The table of the page: the cells of each fault and rule."""
    lines = PAGE.read_text().splitlines()
    begin = next(place for place, line in enumerate(lines) if line.startswith("| fault | caught in"))
    rows = (line.strip("| ").split(" | ") for line in lines[begin + 2 :][: len(FAULTS) + len(RULES)])
    return {fault: cells for fault, *cells in rows}


def test_the_page_has_a_score_for_each_fault_and_each_rule() -> None:
    assert list(scored()) == [*(f"{fault}: {words}" for fault, words in FAULTS.items()), *RULES]


@pytest.mark.slow
def test_the_scores_of_the_page_are_those_of_today() -> None:
    """By one rule that is caught in many ways; `python -m tests.scores` makes the whole table."""
    rule = "delivery waits for no confirmation"
    with without(rule):
        counts = counted(caught(troubled(seed), seed) for seed in range(200))
    assert scored()[rule] == cells(counts)
