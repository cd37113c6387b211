"""Traces on disk: the round trip, what is accepted from other writers, and what is refused how."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Barrier

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antiphon.core.errors import InputError, OutputError
from antiphon.trace.arrow import EVENTS, RUNS, events_table, runs_table
from antiphon.trace.files import note_run, open_trace, read_runs, read_trace, write_trace
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Event, Run
from antiphon.trace.segments import SegmentRecorder
from tests.histories import history
from tests.strategies import random_trace

TEXT = """
    groups: g=a,b
    a: !a0..1@g a0..1 -
    b: ?a0 a0 a1 =a0"""


def simple_trace(folder: Path) -> Path:
    events, run, _ = history(TEXT)
    write_trace(folder, [events], [run])
    return folder


def rewrite(folder: Path, change: Callable[[pa.Table], pa.Table], room: str = "events") -> Path:
    """Change the only file of a room and say which it is."""
    (file,) = (folder / room).iterdir()
    pq.write_table(change(pq.read_table(file)), file)
    return file


def retyped(name: str, type_: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        index = table.column_names.index(name)
        return table.set_column(index, name, table.column(name).cast(type_))

    return change


# Writing


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    traces = [random_trace(Random(seed), f"run-{seed}") for seed in range(6)]
    files = write_trace(
        tmp_path / "new" / "trace", [events for events, _ in traces], [run for _, run in traces]
    )
    assert [file.name for file in files.events] == [f"part-0000{index}.parquet" for index in range(6)]
    trace = read_trace(files.folder)
    assert trace.events == [event for events, _ in traces for event in events]
    assert trace.runs == [run for _, run in traces]
    assert trace.unpromised == frozenset()
    assert open_trace(files.folder) == files


def test_recorders_and_tables_are_written_too(tmp_path: Path) -> None:
    recorder = MemoryRecorder("one")
    recorder.record("a", "present", 1)
    table = events_table([Event("two", "a", 0, "present")])
    write_trace(tmp_path, [recorder, table], [Run("one"), Run("two")])
    assert {event.run for event in read_trace(tmp_path).events} == {"one", "two"}


def test_a_second_trace_is_refused_and_the_first_kept(tmp_path: Path) -> None:
    simple_trace(tmp_path)
    before = read_trace(tmp_path)
    with pytest.raises(OutputError, match="already holds a trace") as info:
        simple_trace(tmp_path)
    assert info.value.hint
    assert read_trace(tmp_path) == before


def test_append_adds_files(tmp_path: Path) -> None:
    simple_trace(tmp_path)
    files = write_trace(tmp_path, [[Event("more", "a", 0, "present")]], [Run("more")], append=True)
    assert len(files.events) == len(files.runs) == 2
    assert open_trace(tmp_path) == files
    assert [run.run for run in read_trace(tmp_path).runs] == ["run", "more"]


def test_a_folder_with_segments_holds_a_trace(tmp_path: Path) -> None:
    SegmentRecorder(tmp_path, "live", "a").close()
    with pytest.raises(OutputError, match="already holds a trace"):
        simple_trace(tmp_path)
    files = write_trace(tmp_path, [[Event("more", "a", 0, "present")]], [], append=True)
    assert open_trace(tmp_path) == files
    assert len(files.segments) == 1


def test_a_run_is_noted_once(tmp_path: Path) -> None:
    note_run(tmp_path, Run("a/b", "fifo", ("fifo",), {"g": ("x",)}, "{}"))
    note_run(tmp_path, Run("a/b", "other"))
    note_run(tmp_path, Run("a_b"))
    (tmp_path / "events").mkdir()
    write_trace(tmp_path, [[Event("a/b", "x", 0, "present")]], [], append=True)
    trace = read_trace(tmp_path)
    assert sorted(trace.runs, key=lambda run: run.run) == [
        Run("a/b", "fifo", ("fifo",), {"g": ("x",)}, "{}"),
        Run("a_b"),
    ]
    assert trace.unpromised == frozenset()


def test_many_note_a_run_at_once(tmp_path: Path) -> None:
    """As threads, which meet more closely than processes do."""
    for trial in range(10):
        folder, barrier = tmp_path / str(trial), Barrier(7)

        def note(folder: Path = folder, barrier: Barrier = barrier) -> None:
            barrier.wait()
            note_run(folder, Run("run", "fifo", ("fifo",)))

        with ThreadPoolExecutor(7) as pool:
            for each in [pool.submit(note) for _ in range(7)]:
                each.result()
        (file,) = (folder / "runs").iterdir()
        assert read_runs(file) == [(Run("run", "fifo", ("fifo",)), True)]


def test_processes_note_a_run_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from antiphon.trace.files import note_run; from antiphon.trace.schema import Run; "
        "sys.stdin.read(); note_run(sys.argv[1], Run('run', 'fifo'))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    assert [process.wait() for process in processes] == [0] * 4
    (file,) = (tmp_path / "runs").iterdir()
    assert [run for run, _ in read_runs(file)] == [Run("run", "fifo")]


def test_a_run_that_cannot_be_noted_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match=r"cannot be written to .*/file: ") as info:
        note_run(tmp_path / "file", Run("run"))
    assert info.value.hint


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match=r"cannot be written to .*/file: ") as info:
        write_trace(tmp_path / "file", [], [])
    assert info.value.hint


def test_an_interrupted_writer_leaves_nothing_half_done(tmp_path: Path) -> None:
    good = [Event("run", "a", 0, "present")]

    def tables() -> list[list[Event]]:
        return [good, [Event("run", "a", "no step", "present")]]  # type: ignore[arg-type]

    with pytest.raises(pa.ArrowException):
        write_trace(tmp_path, tables(), [Run("run")])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_unfinished_files_of_others_are_skipped(tmp_path: Path) -> None:
    simple_trace(tmp_path)
    before = read_trace(tmp_path)
    (tmp_path / "events" / ".part-00001.parquet").write_text("half")
    (tmp_path / "events" / "_temporary.parquet").write_text("half")
    (tmp_path / "events" / "_SUCCESS").write_text("")
    assert read_trace(tmp_path) == before


# Other people's files


WELCOME: dict[str, Callable[[pa.Table], pa.Table]] = {
    "narrow steps": retyped("step", pa.int16()),
    "unsigned numbers": retyped("number", pa.uint64()),
    "wide counts": retyped("count", pa.int64()),
    "large strings": retyped("sender", pa.large_string()),
    "dictionary strings": lambda table: table.set_column(1, "site", table.column("site").dictionary_encode()),
    "large lists": retyped("destinations", pa.large_list(pa.large_string())),
    "an all-null column without a type": lambda table: table.set_column(
        10, "time_ns", pa.nulls(table.num_rows)
    ),
    "no optional columns": lambda table: table.drop_columns(["size", "time_ns", "destinations"]),
    "more columns": lambda table: table.append_column("colour", pa.nulls(table.num_rows)),
    "columns in another order": lambda table: table.select(table.column_names[::-1]),
}


@pytest.mark.parametrize("change", WELCOME.values(), ids=WELCOME.keys())
def test_other_writers_files_mean_the_same(tmp_path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    before = read_trace(simple_trace(tmp_path))
    rewrite(tmp_path, change)
    assert read_trace(tmp_path) == before


def test_files_in_folders_below_are_found(tmp_path: Path) -> None:
    before = read_trace(simple_trace(tmp_path))
    below = tmp_path / "events" / "day=1"
    below.mkdir()
    (tmp_path / "events" / "part-00000.parquet").rename(below / "a.parquet")
    assert read_trace(tmp_path) == before


def test_a_run_without_a_row_has_no_promises(tmp_path: Path) -> None:
    simple_trace(tmp_path)
    (tmp_path / "runs" / "part-00000.parquet").unlink()
    trace = read_trace(tmp_path)
    assert trace.runs == [Run("run")]
    assert trace.unpromised == {"run"}


def test_null_promises_are_unknown_and_none_are_none(tmp_path: Path) -> None:
    simple_trace(tmp_path)
    promises = pa.array([None, []], pa.list_(pa.string()))
    table = pa.table({"run": ["run", "other"], "promises": promises})
    rewrite(tmp_path, lambda _: table, "runs")
    assert read_trace(tmp_path).unpromised == {"run"}


def test_a_runs_table_may_hold_names_alone(tmp_path: Path) -> None:
    simple_trace(tmp_path)
    rewrite(tmp_path, lambda table: table.select(["run"]), "runs")
    assert read_trace(tmp_path).runs == [Run("run")]


# What cannot be read


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no trace at .*/missing") as info:
        open_trace(tmp_path / "missing")
    assert info.value.hint


def test_no_events(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it has no folder events/") as info:
        open_trace(tmp_path)
    assert info.value.hint


def test_no_parquet(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "log.txt").write_text("hello")
    with pytest.raises(InputError, match="has no Parquet file and no segment in events/") as info:
        open_trace(tmp_path)
    assert info.value.hint


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("room", ["events", "runs"])
def test_a_torn_file_is_named(tmp_path: Path, room: str, kept: float) -> None:
    simple_trace(tmp_path)
    (file,) = (tmp_path / room).iterdir()
    os.truncate(file, int(file.stat().st_size * kept))
    with pytest.raises(InputError, match=f"{room}/part-00000.parquet cannot be read as Parquet") as info:
        open_trace(tmp_path)
    assert info.value.hint


def test_a_file_damaged_in_its_middle_is_named_when_read(tmp_path: Path) -> None:
    write_trace(tmp_path, [[Event("run", "a", step, "deliver", "a", step) for step in range(500)]], [])
    file = tmp_path / "events" / "part-00000.parquet"
    content = bytearray(file.read_bytes())
    content[4:400] = b"\xff" * 396
    file.write_bytes(content)
    open_trace(tmp_path)
    with pytest.raises(InputError, match=r"part-00000.parquet cannot be read as Parquet"):
        read_trace(tmp_path)


@pytest.mark.parametrize("column", ["run", "site", "step", "kind", "sender", "number"])
def test_a_missing_required_column_is_named(tmp_path: Path, column: str) -> None:
    simple_trace(tmp_path)
    rewrite(tmp_path, lambda table: table.drop_columns([column]))
    with pytest.raises(InputError, match=f"The column {column} is missing from .*part-00000.parquet") as info:
        open_trace(tmp_path)
    assert info.value.hint is not None
    assert "run, site, step" in info.value.hint


WRONG = {
    "step": pa.float64(),
    "number": pa.string(),
    "kind": pa.binary(),
    "site": pa.large_binary(),
    "size": pa.float32(),
}


@pytest.mark.parametrize(("column", "type_"), WRONG.items(), ids=WRONG.keys())
def test_a_column_of_a_wrong_type_is_named(tmp_path: Path, column: str, type_: pa.DataType) -> None:
    simple_trace(tmp_path)
    rewrite(tmp_path, retyped(column, type_))
    with pytest.raises(InputError, match=f"The column {column} of .*parquet is of type {type_}, not") as info:
        open_trace(tmp_path)
    assert info.value.hint


def test_destinations_must_be_lists_of_strings(tmp_path: Path) -> None:
    simple_trace(tmp_path)
    index = EVENTS.names.index("destinations")
    rewrite(tmp_path, lambda table: table.set_column(index, "destinations", table.column("site")))
    with pytest.raises(InputError, match=r"The column destinations of .* is of type string, not list"):
        open_trace(tmp_path)


def test_nulls_where_none_may_be(tmp_path: Path) -> None:
    simple_trace(tmp_path)

    def without_sites(table: pa.Table) -> pa.Table:
        return table.set_column(1, "site", pa.nulls(table.num_rows, pa.string()))

    rewrite(tmp_path, without_sites)
    with pytest.raises(InputError, match=r"The column site of .* has rows without a value"):
        read_trace(tmp_path)


def test_a_number_beyond_64_bits_is_refused(tmp_path: Path) -> None:
    simple_trace(tmp_path)

    def huge(table: pa.Table) -> pa.Table:
        return table.set_column(5, "number", pa.array([2**64 - 1] * table.num_rows, pa.uint64()))

    rewrite(tmp_path, huge)
    with pytest.raises(InputError, match=r"The column number of .* cannot be read"):
        read_trace(tmp_path)


def test_rows_that_cannot_be_judged_are_refused(tmp_path: Path) -> None:
    write_trace(tmp_path, [[Event("run", "a", step, "present") for step in (1, 2)] * 2], [])
    with pytest.raises(InputError, match="Run run cannot be judged: each row of site a is there twice"):
        read_trace(tmp_path)


def test_an_unknown_promise_is_named(tmp_path: Path) -> None:
    simple_trace(tmp_path)
    promises = pa.array([["fifo", "magic"]], pa.list_(pa.string()))
    rewrite(tmp_path, lambda _: pa.table({"run": ["run"], "promises": promises}), "runs")
    with pytest.raises(InputError, match="promises 'magic', which is no property") as info:
        read_trace(tmp_path)
    assert info.value.hint is not None
    assert "causal" in info.value.hint


def test_promises_come_in_the_order_of_the_properties(tmp_path: Path) -> None:
    simple_trace(tmp_path)
    promises = pa.array([["total", "fifo", "total"]], pa.list_(pa.string()))
    rewrite(tmp_path, lambda _: pa.table({"run": ["run"], "promises": promises}), "runs")
    assert read_trace(tmp_path).runs[0].promises == ("fifo", "total")


def test_a_column_that_occurs_twice_is_named(tmp_path: Path) -> None:
    simple_trace(tmp_path)
    rewrite(tmp_path, lambda table: table.append_column("site", table.column("site")))
    with pytest.raises(InputError, match="The column site occurs twice"):
        open_trace(tmp_path)


@pytest.mark.parametrize("groups", [[("g", ["a"]), ("g", ["b"])], [("g", None)], [("g", ["a", None])]])
def test_groups_that_are_no_map_to_sites_are_refused(tmp_path: Path, groups: list[object]) -> None:
    simple_trace(tmp_path)
    table = pa.table({"run": ["run"], "groups": pa.array([groups], RUNS.field("groups").type)})
    rewrite(tmp_path, lambda _: table, "runs")
    with pytest.raises(InputError, match=r"The groups of run run in .* are not a map"):
        read_trace(tmp_path)


def test_appending_keeps_files_that_others_named(tmp_path: Path) -> None:
    simple_trace(tmp_path)
    (tmp_path / "events" / "part-00000.parquet").rename(tmp_path / "events" / "part-00001.parquet")
    more = [[Event(run, "a", 0, "present")] for run in ("one", "two", "three")]
    files = write_trace(tmp_path, more, [], append=True)
    assert {event.run for event in read_trace(tmp_path).events} == {"run", "one", "two", "three"}
    assert set(files.events) == set(open_trace(tmp_path).events)


def test_two_rows_for_one_run_are_refused(tmp_path: Path) -> None:
    simple_trace(tmp_path)
    rewrite(tmp_path, lambda _: runs_table([Run("run"), Run("run")]), "runs")
    with pytest.raises(InputError, match="The run run has two rows in runs/"):
        read_trace(tmp_path)
