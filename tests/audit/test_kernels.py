"""The compiled judge beside the pure checkers, without Spark: the same violations in the same words."""

from itertools import pairwise
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings

from antiphon.audit import ordering
from antiphon.audit.judging import Judgement, judge
from antiphon.audit.kernels import order
from antiphon.audit.local import audit_locally
from antiphon.audit.log import build_log
from antiphon.audit.packing import Segment, pack
from antiphon.check.checkers import check_trace, evidence_of
from antiphon.check.verdict import Verdict, Violation, count_by_property
from antiphon.core.errors import InputError
from antiphon.core.recording import OF_EVENTS, PROPERTIES, Kind, Property
from antiphon.trace.arrow import events_table
from antiphon.trace.files import write_trace
from antiphon.trace.schema import Event, Run
from tests.histories import history
from tests.strategies import as_imported, random_trace, traces

SEEDS = 600

pytestmark = pytest.mark.slow


def segments(events: list[Event]) -> list[Segment]:
    return [piece.segment for piece in pack(events_table(events)) if piece.segment is not None]


def compiled_judgement(events: list[Event], run: Run) -> Judgement:
    return judge(build_log(run, segments(events)))


def same(found: list[Violation], expected: list[Violation]) -> bool:
    """Equal as sets, explanations and witnesses included."""
    return sorted(map(repr, found)) == sorted(map(repr, expected))


def log_of(site: str, *entries: tuple[Kind, str, int]) -> list[Event]:
    return [
        Event("run", site, step, kind, sender, number) for step, (kind, sender, number) in enumerate(entries)
    ]


def test_equal_to_the_pure_checkers_on_many_seeds() -> None:
    counts = dict.fromkeys(OF_EVENTS, 0)
    for seed in range(SEEDS):
        rng = Random(seed)
        events, run = random_trace(rng, f"run-{seed}")
        if seed % 2:
            events = as_imported(rng, events)
        expected = check_trace(events, run, OF_EVENTS)
        log = build_log(run, segments(events))
        assert log.evidence == evidence_of(events, run)
        judgement = judge(log, dict.fromkeys(OF_EVENTS))
        assert same(judgement.violations, expected), f"random_trace(Random({seed}))"
        for violation in expected:
            counts[violation.property] += 1
        assert sum(judgement.counts.values()) == len(expected)
    assert min(counts.values()) > 100, "the generator must break every property often"


BATCH = 12


def swollen(event: Event) -> Event:
    """The same of twelve times as many messages."""
    if not event.sender:
        return event
    count = BATCH * (event.count or 1)
    return msgspec.structs.replace(event, number=BATCH * (event.number or 0), count=count)


def test_batches_judged_as_wholes_count_and_name_messages() -> None:
    told = dict.fromkeys(PROPERTIES, 0)
    for seed in range(SEEDS // 3):
        events, run = random_trace(Random(seed), f"run-{seed}")
        batches = [swollen(event) for event in events]
        log = build_log(run, segments(batches), by_batch=True)
        judgement = judge(log, dict.fromkeys(PROPERTIES, 3))
        if not judgement.exact:
            continue
        expected = check_trace(batches, run)
        assert len(log.weights) or not any(event.sender for event in events)
        assert judgement.counts == count_by_property(expected), f"random_trace(Random({seed}))"
        places = {(item.property, item.site, item.sender, item.number) for item in expected}
        for item in judgement.violations:
            assert (item.property, item.site, item.sender, item.number) in places
            told[item.property] += 1
    assert min(told.values()) > 8


@given(traces())
@hypothesis_settings(max_examples=150)
def test_equal_to_the_pure_checkers(trace: tuple[list[Event], Run]) -> None:
    events, run = trace
    assert same(compiled_judgement(events, run).violations, check_trace(events, run))


def test_equal_on_larger_tangled_runs() -> None:
    """Components of more messages than are searched whole, and many sites."""
    for seed in range(3):
        draw = Random(seed)
        events: list[Event] = []
        messages = [(f"s{index % 4}", index // 4) for index in range(600)]
        for sender in range(4):
            own = [("send", name, number) for name, number in messages if name == f"s{sender}"]
            delivered = messages[:]
            begin = draw.randrange(20)
            delivered.append(delivered.pop(begin))
            log = [*own, *(("deliver", *message) for message in delivered)]
            events += log_of(f"s{sender}", *log)  # type: ignore[arg-type]
        expected = check_trace(events, Run("run"))
        found = compiled_judgement(events, Run("run"))
        key = [(item.property, item.site, item.sender, item.number) for item in found.violations]
        assert sorted(map(repr, key)) == sorted(
            repr((item.property, item.site, item.sender, item.number)) for item in expected
        )
        cycles = [len(item.witness) for item in found.violations if item.property == "total"]
        assert cycles == [len(item.witness) for item in expected if item.property == "total"]


def test_cycles_of_large_components_are_as_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search from backward arcs alone finds cycles of the same length as the one from everywhere."""
    monkeypatch.setattr(ordering, "WHOLE_SEARCH", 1)
    compared = 0
    for seed in range(300):
        events, run = random_trace(Random(seed), flavour="wild")
        expected = {
            item.sender + str(item.number): item.explanation.count("before")
            for item in check_trace(events, run, ["total"])
        }
        for item in compiled_judgement(events, run).violations:
            if item.property == "total":
                assert item.explanation.count("before") == expected[item.sender + str(item.number)]
                compared += 1
    assert compared > 50


def test_hostile_numbers_take_no_memory() -> None:
    huge = 2**62
    events = log_of(
        "a", ("send", "a", huge), ("deliver", "a", huge), ("deliver", "a", 3), ("deliver", "b", 0)
    )
    expected = check_trace(events, Run("run"))
    log = build_log(Run("run"), segments(events))
    assert log.message_count == 3
    assert same(judge(log).violations, expected)
    assert {item.number for item in expected} >= {3, 0}


def test_numbers_at_the_end_of_64_bits() -> None:
    last = 2**63 - 1
    events = log_of("a", ("send", "a", last), ("deliver", "a", last), ("send", "a", 0), ("deliver", "a", 0))
    assert same(compiled_judgement(events, Run("run")).violations, check_trace(events, Run("run")))


def batches(*rows: tuple[str, Kind, int, int]) -> list[Event]:
    """Rows of a site, a kind, a number and a count, all about a's messages."""
    steps: dict[str, int] = {}
    events = []
    for site, kind, number, count in rows:
        events.append(Event("run", site, steps.setdefault(site, 0), kind, "a", number, count))
        steps[site] += 1
    return events


def test_batches_at_the_end_of_64_bits() -> None:
    last = 2**63 - 1
    events = batches(
        ("a", "send", last - 99, 100), ("b", "deliver", last - 99, 100), ("b", "deliver", last, 1)
    )  # fmt: skip
    log = build_log(Run("run"), segments(events), by_batch=True)
    assert same(judge(log).violations, check_trace(events, Run("run")))


def test_hostile_counts_take_no_memory() -> None:
    """A few rows may claim billions of messages. As wholes they are judged; one by one they are refused."""
    huge = 2**31 - 1

    def sound(count: int) -> list[Event]:
        return batches(("a", "send", 0, count), ("a", "deliver", 0, count), ("b", "deliver", 0, count))

    events = sound(huge)
    log = build_log(Run("run"), segments(events), by_batch=True)
    assert (log.deliveries, judge(log).violations) == (2 * huge, [])
    with pytest.raises(InputError, match="Run run cannot be judged"):
        build_log(Run("run"), segments(events))
    for count in (10**7, 10**8, 5 * 10**8):
        with pytest.raises(InputError, match=r"would take [0-9,]+ MB, and a run of 3 rows is given 256 MB"):
            build_log(Run("run"), segments(sound(count)))
        with pytest.raises(InputError, match=r"its 3 rows cover .* messages"):
            check_trace(sound(count), Run("run"))


def test_hostile_counts_in_many_rows_take_no_memory() -> None:
    rows = range(2000)
    events = batches(
        *(("a", "send", row, 10**5) for row in rows), *(("b", "deliver", row, 10**5) for row in rows)
    )  # fmt: skip
    with pytest.raises(InputError, match="a run of 4,000 rows is given"):
        build_log(Run("run"), segments(events))


def test_hostile_destinations_take_no_memory() -> None:
    rows = range(60_000)
    events = [Event("run", "a", row, "send", "a", row, 1, None, (f"d{row}",)) for row in rows]
    with pytest.raises(InputError, match="a run of 60,000 rows is given 4,006 MB"):
        build_log(Run("run", groups={"g": tuple(f"e{row}" for row in rows)}), segments(events))


def test_counts_without_messages_are_nothing_to_judge() -> None:
    events = [Event("run", "a", 0, "present", count=3), Event("run", "a", 1, "absent", count=2)]
    assert judge(build_log(Run("run"), segments(events), by_batch=True)).violations == []


@pytest.mark.parametrize(("promised", "missing"), [("fifo", 0), ("total", 1)])
def test_spells_are_judged_by_one_order_only_where_that_is_promised(
    tmp_path: Path, promised: Property, missing: int
) -> None:
    """The run is in one order by accident. When b returns, it takes up the stream of a earlier than that of
    c: c1 lies between its deliveries in that order, and before them in the numbers of c."""
    events, run, _ = history(
        "a: !a0 a0 c0 !a1 a1 c1 !a2 a2 c2\nc: a0 !c0 c0 a1 !c1 c1 a2 !c2 c2\nb: - + a1 a2 c2"
    )
    write_trace(tmp_path / "t", [events], [Run(run.run, promises=("atomicity", promised))])
    assert audit_locally([tmp_path / "t"], by_promise=True).violations["atomicity"] == missing
    assert audit_locally([tmp_path / "t"]).violations["atomicity"] == 1


def test_files_without_optional_columns_and_with_flipped_bits(tmp_path: Path) -> None:
    table = events_table(log_of("a", ("send", "a", 0), ("deliver", "a", 0)))
    (tmp_path / "events").mkdir()
    file = tmp_path / "events" / "x.parquet"
    for missing in ("group", "count", "destinations", "size", "time_ns"):
        pq.write_table(table.drop_columns([missing]), file)
        assert audit_locally([tmp_path], ["fifo"]).verdict is Verdict.PASS
    # Codes of a dictionary of one name, as a damaged file has them: they point beyond it.
    pq.write_table(table, file)
    whole = bytearray(file.read_bytes())
    refused = 0
    for place in range(4, len(whole) - 8, 5):
        whole[place] ^= 0x40
        file.write_bytes(whole)
        try:
            audit_locally([tmp_path], ["fifo"])
        except InputError:
            refused += 1
        whole[place] ^= 0x40
    assert refused > 10


def test_a_run_without_events_has_no_violations() -> None:
    judgement = judge(build_log(Run("run", groups={"g": ("a", "b")}), []))
    assert judgement == Judgement(dict.fromkeys(PROPERTIES, 0), [])


def test_limits_bound_what_is_told_but_not_what_is_counted() -> None:
    events = log_of("a", *[("deliver", "b", number % 7) for number in range(70, 0, -1)])
    whole = compiled_judgement(events, Run("run"))
    bounded = judge(build_log(Run("run"), segments(events)), dict.fromkeys(PROPERTIES, 2))
    assert bounded.counts == whole.counts
    assert sum(item.property == "duplicate" for item in bounded.violations) == 2
    assert whole.counts["duplicate"] == 63


def test_segments_may_come_in_any_order_and_overlap() -> None:
    events, run = random_trace(Random(7), flavour="planted")
    expected = check_trace(events, run)
    assert expected
    for seed in range(20):
        draw = Random(seed)
        draw.shuffle(events)
        cuts = sorted(draw.sample(range(1, len(events)), 3))
        parts = [events[begin:end] for begin, end in pairwise([0, *cuts, len(events)])]
        pieces = [segment for part in parts for segment in segments(part)]
        assert same(judge(build_log(run, pieces)).violations, expected)


def test_a_copied_log_cannot_be_judged() -> None:
    events = [Event("run", "a", step, "deliver", "b", step) for step in (0, 1, 2)] * 2
    with pytest.raises(InputError, match="each row of site a is there twice") as error:
        build_log(Run("run"), segments(events))
    with pytest.raises(InputError) as pure:
        check_trace(events, Run("run"))
    assert str(error.value) == str(pure.value)


def test_a_step_with_two_equal_rows_is_no_copy() -> None:
    events = [Event("run", "a", 0, "send", "a", 0), *[Event("run", "b", 7, "deliver", "a", 0)] * 2]
    violations = check_trace(events, Run("run"), ["duplicate"])
    assert [violation.site for violation in violations] == ["b"]
    assert judge(build_log(Run("run"), segments(events))).counts["duplicate"] == 1


@pytest.mark.parametrize(
    "flawed",
    [
        Event("run", "a", 0, "sing", "a", 0),  # type: ignore[arg-type]
        Event("run", "a", 0, "deliver", None, 0),
        Event("run", "a", 0, "deliver", "b", None),
        Event("run", "a", 0, "deliver", "b", -1),
        Event("run", "a", 0, "deliver", "b", 0, 0),
        Event("run", "a", 0, "deliver", "b", 2**63 - 1, 2),
        Event("run", "a", -1, "present"),
    ],
)
def test_flawed_rows_are_named_in_the_same_words(flawed: Event) -> None:
    other = Event("other", "a", 0, "present")
    pieces = list(pack(events_table([flawed, other])))
    with pytest.raises(InputError) as pure:
        check_trace([flawed], Run("run"))
    assert [(piece.run, piece.problem) for piece in pieces] == [("run", pure.value.sentence), ("other", None)]


def test_the_merge_of_agreeing_sequences_needs_no_doubt() -> None:
    delivered = np.array([0, 1, 3, 0, 2, 3, 4, 1, 2], np.int32)
    starts = np.array([0, 3, 7, 9], np.int64)
    position, placed, certain = order.merge(delivered, starts, 6)
    assert certain
    assert placed == 5
    assert position[5] == -1
    for site in range(3):
        places = position[delivered[starts[site] : starts[site + 1]]]
        assert (np.diff(places) > 0).all()


def test_a_far_displaced_message_entangles_only_what_it_passed() -> None:
    """One site delivers message 10 first; the others agree. The interval ends where the message belongs."""
    agreed = np.arange(1000, dtype=np.int32)
    moved = np.concatenate([[10], np.delete(agreed, 10)]).astype(np.int32)
    delivered = np.concatenate([agreed, agreed, moved])
    starts = np.array([0, 1000, 2000, 3000], np.int64)
    position, placed, certain = order.merge(delivered, starts, 1000)
    blocks = order.entangled_blocks(delivered, starts, position, placed)
    assert not certain
    assert np.count_nonzero(blocks >= 0) <= 12


def test_a_log_with_holes_is_judged_as_it_stands() -> None:
    """Leaving rows out keeps the others in order: steps only have to rise."""
    for seed in range(40):
        draw = Random(seed)
        events, run = random_trace(draw, name="run")
        kept = [event for event in events if draw.random() < 0.9]
        if not kept:
            continue
        log = build_log(run, segments(kept))
        assert same(judge(log).violations, check_trace(kept, run))
        holed = {
            site
            for site in {event.site for event in kept}
            if sorted(event.step for event in kept if event.site == site)
            != list(range(sum(event.site == site for event in kept)))
        }
        assert {site for site, _ in log.evidence.holes} == holed
