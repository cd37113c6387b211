"""Causal order in tables of bounded size, whatever the number of senders."""

import tracemalloc
from random import Random

import pytest

from antiphon.audit import judging, precedence
from antiphon.audit.judging import judge
from antiphon.audit.log import build_log
from antiphon.audit.packing import Segment, pack
from antiphon.check.checkers import check_trace
from antiphon.trace.arrow import events_table
from antiphon.trace.schema import Event, Run
from tests.strategies import as_imported, random_trace

pytestmark = pytest.mark.slow


def segments(events: list[Event]) -> list[Segment]:
    return [piece.segment for piece in pack(events_table(events)) if piece.segment is not None]


def published(senders: int, each: int) -> list[Event]:
    """Publishers that deliver nothing, and three consumers that deliver all: the last two of them swapped."""
    names = [f"p{index:04d}" for index in range(senders)]
    sent = [(name, number) for number in range(each) for name in names]
    swapped = [*sent[:-2], sent[-1], sent[-2]]
    events = [Event("run", name, number, "send", name, number) for name, number in sent]
    for site, order in (("x", sent), ("y", sent), ("z", swapped)):
        events += [Event("run", site, step, "deliver", *message) for step, message in enumerate(order)]
    return events


def test_memory_does_not_follow_the_number_of_senders() -> None:
    events = published(2000, 4)
    log = build_log(Run("run"), segments(events))
    judge(log, {"causal": 1})  # loads the kernels
    tracemalloc.start()
    judgement = judge(log, {"causal": 1, "total": 1})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert judgement.counts == {"causal": 0, "total": 1}
    assert peak < 200 * len(events), "a clock with an entry for each sender takes ten times as much"


def test_tables_of_one_column_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precedence, "TABLE_BYTES", 0)
    found = 0
    for seed in range(100):
        rng = Random(seed)
        events, run = random_trace(rng, "run")
        events = as_imported(rng, events) if seed % 2 else events
        expected = check_trace(events, run, ["causal", "causal-receipt"])
        judgement = judge(build_log(run, segments(events)), {"causal": None, "causal-receipt": None})
        assert sorted(map(repr, judgement.violations)) == sorted(map(repr, expected)), seed
        found += len(expected)
    assert found > 100


def test_what_was_not_asked_for_is_judged_where_it_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    log = build_log(Run("run"), segments(published(3, 2)))
    limits = {"causal": 1, "fifo": 1}
    assert set(judge(log, limits, asked=["fifo"]).counts) == {"causal", "fifo"}  # type: ignore[arg-type]
    monkeypatch.setattr(judging, "CHEAP_STEPS", 6 * 3 - 1)
    assert set(judge(log, limits, asked=["fifo"]).counts) == {"fifo"}  # type: ignore[arg-type]
    assert set(judge(log, limits, asked=["causal"]).counts) == {"causal", "fifo"}  # type: ignore[arg-type]
