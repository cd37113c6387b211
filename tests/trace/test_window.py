"""The window around a violation holds what a diagram needs, and little else."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antiphon.core.ids import MessageId
from antiphon.trace.arrow import events_table
from antiphon.trace.files import write_trace
from antiphon.trace.schema import Event, Run
from antiphon.trace.window import CONTEXT_STEPS, ROWS_ABOUT, Wanted, read_window, read_windows


def trace(folder: Path) -> list[Event]:
    """Two sites and two runs of 100 steps each; b sends in batches of five."""
    events = []
    for run in ("one", "two"):
        events += [Event(run, "a", step, "deliver", "b", step) for step in range(100)]
        events += [Event(run, "b", step, "send", "b", 5 * step, 5) for step in range(100)]
    half = len(events) // 2
    write_trace(folder, [events[::-1][:half], events[::-1][half:]], [Run("one"), Run("two")])
    return events


def test_rows_around_a_place_and_about_a_message_are_found(tmp_path: Path) -> None:
    events = trace(tmp_path / "t")
    found = read_window([tmp_path / "t"], "one", [("a", 50)], [MessageId("b", 7)])
    expected = {("a", step) for step in range(50 - CONTEXT_STEPS, 51 + CONTEXT_STEPS)} | {("a", 7), ("b", 1)}
    assert {(event.site, event.step) for event in found} == expected
    assert all(event in events and event.run == "one" for event in found)


def test_a_place_at_the_end_of_64_bits_is_found(tmp_path: Path) -> None:
    last = 2**63 - 1
    write_trace(tmp_path, [[Event("run", "a", last, "deliver", "a", last)]], [])
    assert len(read_window([tmp_path], "run", [("a", last)], [MessageId("a", last)])) == 1


def test_nothing_wanted_is_nothing_found(tmp_path: Path) -> None:
    trace(tmp_path / "t")
    assert read_window([tmp_path / "t"], "one", [], []) == []
    assert read_window([tmp_path / "t"], "three", [("a", 0)], []) == []


def test_optional_columns_may_be_missing_and_types_may_differ(tmp_path: Path) -> None:
    table = events_table([Event("r", "a", 0, "send", "a", 0), Event("r", "a", 1, "absent")])
    narrow = table.select(["run", "site", "step", "kind", "sender", "number"])
    narrow = narrow.set_column(2, "step", narrow.column("step").cast(pa.int16()))
    narrow = narrow.set_column(0, "run", narrow.column("run").dictionary_encode())
    write_trace(tmp_path / "t", [narrow], [Run("r")])
    found = read_window([tmp_path / "t"], "r", [], [MessageId("a", 0)])
    assert found == [Event("r", "a", 0, "send", "a", 0)]


def test_row_groups_that_cannot_hold_a_wanted_row_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [Event("r", site, step, "deliver", "b", step) for site in "ab" for step in range(1000)]
    write_trace(tmp_path, [], [Run("r")])
    pq.write_table(events_table(events), tmp_path / "events" / "a.parquet", row_group_size=100)
    read: list[int] = []
    whole = pq.ParquetFile.read_row_group

    def counted(file: pq.ParquetFile, index: int, **options: object) -> pa.Table:
        read.append(index)
        return whole(file, index, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    found = read_window([tmp_path], "r", [("a", 350)], [MessageId("b", 777)])
    assert read == [3, 7, 17]
    assert {(event.site, event.step) for event in found} >= {("a", 350), ("a", 777), ("b", 777)}
    assert len(found) == 2 * CONTEXT_STEPS + 3


def test_several_windows_are_read_together_and_sends_by_themselves(tmp_path: Path) -> None:
    trace(tmp_path / "t")
    near = Wanted("one", frozenset({("a", 50)}), reach=1)
    sent = Wanted("two", sent=frozenset({MessageId("b", 7)}))
    first, second = read_windows([tmp_path / "t"], [near, sent])
    assert [(event.run, event.step) for event in first] == [("one", 49), ("one", 50), ("one", 51)]
    assert [(event.run, event.site, event.kind) for event in second] == [("two", "b", "send")]


def test_a_send_without_a_sender_is_its_sites_own(tmp_path: Path) -> None:
    write_trace(tmp_path, [[Event("r", "a", 0, "send", None, 3)]], [Run("r")])
    assert len(read_window([tmp_path], "r", [], [MessageId("a", 3)])) == 1


def test_a_message_with_very_many_rows_does_not_fill_the_memory(tmp_path: Path) -> None:
    rows = ROWS_ABOUT + 500
    table = pa.table(
        {
            "run": pa.repeat("r", rows),
            "site": pa.repeat("a", rows),
            "step": pa.array(range(rows)),
            "kind": pa.repeat("deliver", rows),
            "sender": pa.repeat("a", rows),
            "number": pa.repeat(0, rows),
        }
    )
    write_trace(tmp_path, [table], [Run("r")])
    assert len(read_window([tmp_path], "r", [("a", rows - 1)], [MessageId("a", 0)])) == ROWS_ABOUT + 9
