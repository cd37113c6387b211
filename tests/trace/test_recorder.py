"""The in-memory recorder and the way from rows to tables and back."""

from random import Random

from antiphon.core.recording import Recorder
from antiphon.trace.arrow import EVENTS, RUNS, events_table, runs_table
from antiphon.trace.files import events_of
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Event, Run
from tests.strategies import random_trace


def recorded() -> MemoryRecorder:
    recorder = MemoryRecorder("run")
    taking_any_recorder: Recorder = recorder
    taking_any_recorder.record("a", "send", 5, "a", 0, 3, "g", iter(["b", "a"]), 120)
    taking_any_recorder.record("b", "present", 6)
    taking_any_recorder.record("a", "deliver", 7, "a", 0)
    return recorder


def test_steps_count_per_site_and_rows_keep_their_order() -> None:
    assert recorded().events() == [
        Event("run", "a", 0, "send", "a", 0, 3, "g", ("b", "a"), 120, 5),
        Event("run", "b", 0, "present", time_ns=6),
        Event("run", "a", 1, "deliver", "a", 0, time_ns=7),
    ]
    assert len(recorded()) == 3


def test_the_table_has_the_schema_and_the_rows() -> None:
    table = recorded().table()
    assert table.schema == EVENTS
    assert events_of(table) == recorded().events()
    assert table == events_table(recorded().events())


def test_an_empty_recorder_gives_an_empty_table() -> None:
    table = MemoryRecorder("run").table()
    assert table.schema == EVENTS
    assert table.num_rows == 0


def test_events_survive_the_table() -> None:
    for seed in range(20):
        events, _ = random_trace(Random(seed))
        assert events_of(events_table(events)) == events


def test_runs_become_a_table_of_the_schema() -> None:
    runs = [Run("one", "dpg", ("fifo", "total"), {"g": ("a", "b"), "h": ()}, "{}", 4), Run("two")]
    table = runs_table(runs)
    assert table.schema == RUNS
    assert table.column("groups").to_pylist() == [[("g", ["a", "b"]), ("h", [])], None]
    assert table.column("promises").to_pylist() == [["fifo", "total"], []]
