"""The window around a violation holds what a diagram needs, and little else."""

from pathlib import Path

import pyarrow as pa

from antiphon.core.ids import MessageId
from antiphon.trace.arrow import events_table
from antiphon.trace.files import write_trace
from antiphon.trace.schema import Event, Run
from antiphon.trace.window import CONTEXT_STEPS, read_window


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
