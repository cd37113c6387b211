"""Runs judged in windows beside the pure checkers: the same violations in the same words.

Windows of a few messages are forced, so that most of what a window must know comes from outside it.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from antiphon.audit.judging import Judgement
from antiphon.audit.packing import Segment, pack
from antiphon.audit.windows import driving
from antiphon.audit.windows.cutting import cut, in_order, index_parts, leads_back
from antiphon.audit.windows.driving import JUDGED_IN_WINDOWS
from antiphon.audit.windows.gluing import intervals
from antiphon.audit.windows.local import judge_in_windows
from antiphon.check.checkers import check_trace
from antiphon.check.verdict import Violation
from antiphon.core.recording import OF_EVENTS, Property
from antiphon.trace.arrow import events_table
from antiphon.trace.schema import Event, Run
from tests.strategies import Flavour, random_trace

JUDGED: tuple[Property, ...] = tuple(name for name in OF_EVENTS if name in JUDGED_IN_WINDOWS)
SIZES = (1, 2, 3, 5, 10, 50)

pytestmark = pytest.mark.slow


def parts(rng: Random, events: list[Event], most: int = 12) -> list[Segment]:
    """Each site's log in parts of a few rows, the rows of a part and the parts in no order."""
    logs: dict[str, list[Event]] = {}
    for event in sorted(events, key=lambda event: event.step):
        logs.setdefault(event.site, []).append(event)
    pieces: list[list[Event]] = []
    for log in logs.values():
        while log:
            size = rng.randint(1, most)
            pieces.append(log[:size])
            rng.shuffle(pieces[-1])
            log = log[size:]
    rng.shuffle(pieces)
    packed = [found for piece in pieces for found in pack(events_table(piece))]
    return [found.segment for found in packed if found.segment is not None]


def in_windows(segments: list[Segment], run: Run, size: int) -> Judgement:
    return judge_in_windows(run, lambda: segments, dict.fromkeys(JUDGED), size=size)


def assert_equal(events: list[Event], run: Run, rng: Random, size: int, told: str) -> list[Violation]:
    expected = check_trace(events, run, JUDGED)
    judgement = in_windows(parts(rng, events), run, size)
    assert Counter(map(repr, judgement.violations)) == Counter(map(repr, expected)), told
    assert judgement.counts == {name: _count(expected, name) for name in JUDGED}, told
    return expected


def of(violations: Sequence[Violation], name: Property) -> list[Violation]:
    return [violation for violation in violations if violation.property == name]


def _count(violations: Sequence[Violation], name: Property) -> int:
    return len(of(violations, name))


@pytest.mark.parametrize("flavour", ["total", "causal", "planted", "wild"])
def test_equal_to_the_pure_checkers(flavour: Flavour) -> None:
    """Absences, overlapping groups, chosen destinations, batches and sparse numbers are among them."""
    found: Counter[str] = Counter()
    for seed in range(100):
        rng = Random(f"{flavour}-{seed}")
        sites, messages = rng.choice((3, 6, 9)), rng.choice((10, 40, 80))
        events, run = random_trace(rng, "run", flavour, sites, messages)
        size = rng.choice(SIZES)
        if events:
            expected = assert_equal(events, run, rng, size, f"{flavour}-{seed} in windows of {size}")
            found.update(violation.property for violation in expected)
    if flavour == "wild":
        assert min(found[name] for name in JUDGED) > 20, "the generator must break every property often"


def ordered_run(messages: int, sites: int, senders: int) -> dict[str, list[tuple[str, str, int]]]:
    """Each site's log, as kinds and messages: all deliver in one order, each right after its send."""
    names = [f"s{index:04d}" for index in range(max(sites, senders))]
    order = [(names[index % senders], index // senders) for index in range(messages)]
    logs: dict[str, list[tuple[str, str, int]]] = {name: [] for name in names}
    for sender, number in order:
        logs[sender].append(("send", sender, number))
        for name in names[:sites]:
            logs[name].append(("deliver", sender, number))
    return logs


def events_of(logs: dict[str, list[tuple[str, str, int]]], group: tuple[str, ...]) -> list[Event]:
    return [
        Event("run", site, step, kind, sender, number, destinations=group if kind == "send" else None)  # type: ignore[arg-type]
        for site, log in logs.items()
        for step, (kind, sender, number) in enumerate(log)
    ]


def delayed(log: list[tuple[str, str, int]], place: int, by: int) -> None:
    """Deliver what stands at a place a number of rows later."""
    log.insert(place + by, log.pop(place))


@pytest.mark.parametrize("size", [2, 7, 50])
def test_a_message_half_a_run_late(size: int) -> None:
    logs = ordered_run(200, 4, 4)
    place = next(index for index, row in enumerate(logs["s0002"]) if row == ("deliver", "s0001", 5))
    delayed(logs["s0002"], place, 120)
    expected = assert_equal(events_of(logs, tuple(logs)), Run("run"), Random(1), size, "late")
    assert _count(expected, "total") == 1
    assert _count(expected, "causal") > 50


def test_a_large_knot_is_told_by_one_arc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driving, "EXPLAINED", 10)
    logs = ordered_run(200, 4, 4)
    delayed(logs["s0002"], 30, 120)
    events = events_of(logs, tuple(logs))
    expected = check_trace(events, Run("run"), ["total"])
    found = of(in_windows(parts(Random(1), events), Run("run"), 10).violations, "total")
    assert [(item.sender, item.number) for item in found] == [(item.sender, item.number) for item in expected]
    assert found[0].explanation.endswith(expected[0].explanation.rsplit(". ", 1)[1])
    assert "too long to be shown" in found[0].explanation


def test_a_long_chain_of_causes_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts stay complete."""
    rng = Random("chain")
    monkeypatch.setattr(driving, "REGION", 0)
    told = 0
    for seed in range(60):
        events, run = random_trace(Random(seed), flavour="planted")
        expected = check_trace(events, run, ["causal"])
        found = of(in_windows(parts(rng, events), run, 3).violations, "causal")
        assert {(item.site, item.sender, item.number) for item in found} == {
            (item.site, item.sender, item.number) for item in expected
        }
        told += sum("too long to be shown" in item.explanation for item in found)
    assert told


def test_thousands_of_senders() -> None:
    logs = ordered_run(2500, 3, 2000)
    delayed(logs["s0001"], 2000, 300)
    group = tuple(sorted(logs))[:3]
    events = events_of(logs, group)
    judgement = in_windows(parts(Random(2), events, 400), Run("run"), 1000)
    expected = check_trace(events, Run("run"), JUDGED)
    assert judgement.counts == {name: _count(expected, name) for name in JUDGED}
    assert judgement.counts["total"] == 1


def test_one_order_cuts_cleanly() -> None:
    """Where all sites keep one order, no site's deliveries lead back to an earlier window."""
    logs = ordered_run(400, 5, 3)
    segments = parts(Random(3), events_of(logs, tuple(logs)))
    found = in_order(part for segment in segments for part in index_parts(segment, 2))
    assert found is not None
    cuts = cut(found, 20)
    assert 15 <= cuts.windows <= 25
    rows = dict(zip(cuts.senders, cuts.thresholds, strict=True))
    for log in logs.values():
        windows = [int((rows[sender] < number).sum()) for kind, sender, number in log if kind == "deliver"]
        assert intervals([windows]) == []


@pytest.mark.parametrize("late", [False, True])
def test_the_index_shows_what_leads_back(late: bool) -> None:
    logs = ordered_run(400, 4, 3)
    if late:
        delayed(logs["s0002"], 100, 150)
    segments = parts(Random(3), events_of(logs, tuple(logs)))
    found = in_order(part for segment in segments for part in index_parts(segment, 2))
    assert found is not None
    assert leads_back(found, cut(found, 20)) == late


def test_logs_with_holes() -> None:
    """What is judged by absent rows is not counted against sites whose logs have holes."""
    for seed in range(60):
        rng = Random(seed)
        events, run = random_trace(rng, "run")
        kept = [event for event in events if rng.random() < 0.95]
        if kept:
            assert_equal(kept, run, rng, rng.choice(SIZES), f"{seed} with holes")


def test_intervals_join_where_they_overlap() -> None:
    assert intervals([[0, 1, 2, 3]]) == []
    assert intervals([[0, 2, 1, 3], [4, 6, 5]]) == [range(1, 3), range(5, 7)]
    assert intervals([[0, 3, 2, 5, 3]]) == [range(2, 6)]


def test_limits_bound_what_is_told_but_not_what_is_counted() -> None:
    events, run = random_trace(Random(11), flavour="wild", most_messages=80)
    segments = parts(Random(4), events)
    whole = in_windows(segments, run, 3)
    bounded = judge_in_windows(run, lambda: segments, dict.fromkeys(JUDGED, 2), size=3)
    assert bounded.counts == whole.counts
    assert max(Counter(item.property for item in bounded.violations).values()) <= 2


def test_parts_that_overlap_are_judged_as_a_whole() -> None:
    events, run = random_trace(Random(7), flavour="planted")
    expected = check_trace(events, run, JUDGED)
    halves = [events[::2], events[1::2]]
    packed = [found for half in halves for found in pack(events_table(half))]
    segments = [found.segment for found in packed if found.segment is not None]
    assert in_order(part for segment in segments for part in index_parts(segment, 1)) is None
    assert Counter(map(repr, in_windows(segments, run, 3).violations)) == Counter(map(repr, expected))
