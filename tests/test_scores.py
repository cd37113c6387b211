"""Mutation scores: what is wrong on purpose is caught, and what is right is not."""

from tests.scores import BLOCKS, caught, steady, troubled, without

RUNS = range(12)


def test_without_a_fault_nothing_is_caught() -> None:
    assert not any(caught(draw(seed), seed) for draw in (steady, troubled) for seed in RUNS)


def test_precedence_by_receipt_catches_what_precedence_by_delivery_misses() -> None:
    with without("own batches follow what has moved, not what was received"):
        found = [caught(steady(seed), seed) for seed in RUNS]
    assert any("causal-receipt" in reasons and "causal" not in reasons for reasons in found)
    assert not any(BLOCKS in reasons for reasons in found)
