"""A trace judged while it grows: at the end the same as the pure checkers, whatever came when.

Rows come in random slices, the job is started again in between, and windows have a few messages, so that most
rows of a window come late.
"""

import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from antiphon.audit.growing import incremental
from antiphon.audit.growing.arrivals import arrivals_of
from antiphon.audit.growing.audit import GrowingAudit
from antiphon.audit.growing.incremental import audit_incrementally
from antiphon.audit.growing.store import Store
from antiphon.audit.local import audit_locally
from antiphon.audit.result import AuditResult
from antiphon.audit.runs import checked_request
from antiphon.check.verdict import Verdict
from antiphon.core.errors import UsageError
from antiphon.core.recording import PROPERTIES, Property
from antiphon.trace import growth
from antiphon.trace.arrow import events_table, pq, runs_table
from antiphon.trace.files import write_trace
from antiphon.trace.schema import Event, Run
from antiphon.trace.segments import SegmentRecorder
from tests.strategies import Flavour, as_imported, random_trace

EIGHT: tuple[Property, ...] = (*PROPERTIES, "pairwise")
SIZES = (1, 2, 5, 10, 50)

pytestmark = pytest.mark.slow


def slices(rng: Random, events: list[Event], mixed: bool) -> Iterator[list[Event]]:
    """The rows in batches. Each log grows in order, or rows come from anywhere if `mixed`."""
    logs: dict[str, list[Event]] = {}
    for event in sorted(events, key=lambda event: event.step):
        logs.setdefault(event.site, []).append(event)
    left = [event for log in logs.values() for event in log]
    if mixed:
        rng.shuffle(left)
    while left:
        if mixed:
            size = rng.randint(1, max(len(left) // 3, 1))
            yield left[:size]
            left = left[size:]
            continue
        batch = []
        for site in rng.sample(sorted(logs), rng.randint(1, len(logs))):
            size = rng.randint(0, 12)
            batch += logs[site][:size]
            logs[site] = logs[site][size:]
        left = [event for log in logs.values() for event in log]
        yield batch


def comparable(result: AuditResult) -> tuple[object, ...]:
    """All that an audit tells; the order of what it shows is not part of it."""
    told = result.to_json()
    del told["engine"], told["verdicts"]
    return (
        told,
        Counter(map(repr, result.examples)),
        Counter(map(repr, result.verdicts)),
        result.broken,
        result.unpromised,
    )


def grown(folder: Path, state: Path, rng: Random, events: list[Event], run: Run, mixed: bool) -> AuditResult:
    """The verdict after the rows have come in slices. Runs that are judged as a whole need the trace."""
    size = rng.choice(SIZES)
    (folder / "runs").mkdir(parents=True)
    pq.write_table(runs_table([run]), folder / "runs" / "part-0.parquet")
    request = checked_request([str(folder)], EIGHT, None, 1000)
    store = Store(state)
    audit = GrowingAudit(folder, store, request, size=size)
    for number, batch in enumerate(slices(rng, events, mixed)):
        if rng.random() < 0.3:
            store.close()
            store = Store(state)
            audit = GrowingAudit(folder, store, request)
        arrivals = list(arrivals_of(events_table(batch).to_batches(), audit.cell))
        audit.absorb(arrivals, number, {})
        assert audit.absorb(arrivals, number, {}) == [], "a batch that comes again is not taken twice"
        if rng.random() < 0.2:
            audit.tick()
    write_trace(folder, [events], [], append=True)
    result = audit.verdict()
    assert comparable(audit.verdict()) == comparable(result), "a verdict leaves no mark"
    store.close()
    return result


@pytest.mark.parametrize("flavour", ["total", "causal", "planted", "wild", "imported"])
def test_equal_to_an_audit_of_the_whole(flavour: str, tmp_path: Path) -> None:
    for seed in range(10):
        rng = Random(f"{flavour}-{seed}")
        drawn: Flavour | None = None if flavour == "imported" else flavour  # type: ignore[assignment]
        events, run = random_trace(rng, "run", drawn, rng.choice((3, 6)), rng.choice((10, 40)))
        if flavour == "imported":
            events = as_imported(rng, events)
        if not events:
            continue
        folder = tmp_path / f"trace-{seed}"
        result = grown(folder, tmp_path / f"state-{seed}", rng, events, run, rng.random() < 0.3)
        whole = audit_locally([folder], EIGHT, 1000)
        assert comparable(result) == comparable(whole), f"{flavour}-{seed}"


def deliveries(folder: Path, numbers: range, *, swapped: bool = False) -> None:
    """Add a Parquet file in which two sites deliver what a sent; b against the order, if told so."""
    rows = [Event("run", "a", 2 * number, "send", "a", number) for number in numbers]
    rows += [Event("run", "a", 2 * number + 1, "deliver", "a", number) for number in numbers]
    own = [*numbers[:-2], *reversed(numbers[-2:])] if swapped else [*numbers]
    rows += [
        Event("run", "b", step, "deliver", "a", number) for step, number in zip(numbers, own, strict=True)
    ]
    write_trace(folder, [rows], [], append=True)


def test_only_new_files_are_read(tmp_path: Path) -> None:
    trace, state = tmp_path / "trace", tmp_path / "state"
    write_trace(trace, [], [Run("run", promises=("fifo", "total"))])
    deliveries(trace, range(50))
    live = SegmentRecorder(trace, "live", "x")
    live.record("x", "send", 0, "x", 0)
    live.close()
    first = audit_incrementally(trace, state)
    assert comparable(first) == comparable(audit_locally([trace]))
    old = list((trace / "events").iterdir())
    deliveries(trace, range(50, 100), swapped=True)
    expected = audit_locally([trace])
    assert expected.violations["fifo"] == 1
    for path in old:
        path.write_bytes(b"x" * path.stat().st_size)  # opening one would be an error
    growth._scans.clear()
    assert comparable(audit_incrementally(trace, state)) == comparable(expected)
    assert comparable(audit_incrementally(trace, state)) == comparable(expected), "nothing is new"


def test_members_that_are_killed_and_return(tmp_path: Path) -> None:
    """Each look at a trace that is being written finds what an audit of it finds at that moment."""
    trace, state, rng = tmp_path / "trace", tmp_path / "state", Random("killed")
    write_trace(trace, [], [Run("run", promises=("atomicity", "fifo", "total"))])
    logs = {site: SegmentRecorder(trace, "run", site, segment_bytes=4000) for site in "abc"}
    for number in range(120):
        sender = rng.choice("abc")
        logs[sender].record(sender, "send", 0, sender, own := logs[sender].next_number)
        for log in logs.values():
            if rng.random() < 0.98:
                log.record(log.site, "deliver", 0, sender, own)
        if number % 30 == 13:
            for log in logs.values():
                log.flush()
            assert comparable(audit_incrementally(trace, state, size=8)) == comparable(audit_locally([trace]))
        if number in (40, 80):
            logs["b"].flush()
            logs["b"]._release()
            logs["b"] = SegmentRecorder(trace, "run", "b", segment_bytes=4000)
    for log in logs.values():
        log.close()
    found = audit_incrementally(trace, state)
    assert comparable(found) == comparable(audit_locally([trace]))
    assert found.violations["atomicity"] > 0


def test_a_state_belongs_to_one_trace(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_trace(tmp_path / name, [[Event("run", "a", 0, "present")]], [Run("run")])
    audit_incrementally(tmp_path / "one", tmp_path / "state")
    with pytest.raises(UsageError, match="belongs to"):
        audit_incrementally(tmp_path / "other", tmp_path / "state")


def test_a_state_is_used_by_one_audit_at_a_time(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(UsageError, match="Another audit"):
        Store(tmp_path)
    store.close()
    Store(tmp_path).close()


def test_a_small_batch_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file is taken in by its row groups."""
    monkeypatch.setattr(incremental, "BATCH_ROWS", 40)
    trace = tmp_path / "trace"
    events, run = random_trace(Random("large"), "run", "planted", 5, 80)
    write_trace(trace, [], [run])
    ordered = sorted(events, key=lambda event: (event.site, event.step))
    pq.write_table(events_table(ordered), trace / "events" / "all.parquet", row_group_size=25)
    found = audit_incrementally(trace, tmp_path / "state", size=10)
    assert comparable(found) == comparable(audit_locally([trace]))


def test_memory_does_not_grow_with_the_run(tmp_path: Path) -> None:
    """What is kept in memory is bounded: after many windows it is as small as after some."""
    folder = tmp_path / "trace"
    folder.mkdir()
    audit = GrowingAudit(
        folder, Store(tmp_path / "state"), checked_request([str(folder)], EIGHT, None), size=4
    )

    def feed(batch: int) -> None:
        rows = []
        for number in range(batch * 10, batch * 10 + 10):
            rows.append(Event("run", "a", 2 * number, "send", "a", number))
            rows.append(Event("run", "a", 2 * number + 1, "deliver", "a", number))
            rows.append(Event("run", "b", number, "deliver", "a", number))
        audit.absorb(arrivals_of(events_table(rows).to_batches(), audit.cell), batch, {})

    def held() -> int:
        return len(pickle.dumps((audit._runs, audit._told)))

    for batch in range(40):
        feed(batch)
    before = held()
    for batch in range(40, 80):
        feed(batch)
    assert held() <= before + 200
    assert audit.verdict().verdict is Verdict.PASS
