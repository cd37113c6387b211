"""Levels of acceptance beside the rows of a trace."""

import json
from pathlib import Path

import pytest

import antiphon
from antiphon.check.checkers import check_all
from antiphon.cli.main import run
from antiphon.core.errors import InputError, OutputError
from antiphon.protocols.sco import LEVELS
from antiphon.trace.files import read_trace
from antiphon.trace.levels import FLUSH_ROWS, LevelLog, LevelRow, read_levels
from antiphon.trace.segments import SegmentRecorder

ROW = LevelRow("r", "b", 7, "a", 0, 2, "atomic")


def test_a_simulated_trace_has_each_level_that_a_message_reached(tmp_path: Path) -> None:
    place = tmp_path / "trace"
    options = ["--members", "3", "--messages", "6", "--levels", "--seed", "1", "--json"]
    assert run(["simulate", "sco", *options, "--trace", str(place)]) == 0
    rows = antiphon.read_levels(place)
    assert {row.level for row in rows} == {level.label for level in LEVELS}
    trace = read_trace(place)
    delivered = {(row.site, row.sender, row.number) for row in trace.events if row.kind == "deliver"}
    assert delivered <= {(row.site, row.sender, row.number) for row in rows if row.level == "full"}
    assert not any(check_all(trace).values())


def test_a_simulated_run_prints_the_time_until_each_level(capsys: pytest.CaptureFixture[str]) -> None:
    """No level comes sooner than those that it implies, and atomic acceptance takes a trip more."""
    options = ["--members", "3", "--messages", "60", "--rate", "20", "--seed", "1", "--json"]
    assert run(["simulate", "sco", *options, "--levels"]) == 0
    told = json.loads(capsys.readouterr().out)
    simple, causal, atomic, full = (
        told[f"level_{name}_s"] for name in ("simple", "causal", "atomic", "full")
    )
    assert 0 < simple <= told["level_continuous_s"] <= causal < told["level_causally-atomic_s"] <= full
    assert causal < atomic <= told["level_continuously-atomic_s"] <= full < 0.1
    assert run(["simulate", "sco", *options]) == 0
    assert not any(name.startswith("level_") for name in json.loads(capsys.readouterr().out))


def test_a_live_recorder_keeps_levels(tmp_path: Path) -> None:
    recorder = SegmentRecorder(tmp_path, "r", "b")
    recorder.reach("b", "atomic", 7, "a", 0, 2)
    recorder.close()
    assert read_levels(tmp_path) == [ROW]


def test_levels_are_written_in_between_and_a_cut_line_is_left_out(tmp_path: Path) -> None:
    log = LevelLog(tmp_path, "b")
    for _ in range(FLUSH_ROWS):
        log.add(ROW)
    assert len(read_levels(tmp_path)) == FLUSH_ROWS
    log.close()
    (file,) = (tmp_path / "levels").iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    assert len(read_levels(tmp_path)) == FLUSH_ROWS - 1


def test_a_trace_without_levels_has_none(tmp_path: Path) -> None:
    assert read_levels(tmp_path) == []


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "levels").mkdir()
    (tmp_path / "levels" / "b.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"Line 1 of .*b\.jsonl is no level"):
        read_levels(tmp_path)


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "levels").write_text("")
    log = LevelLog(tmp_path, "b")
    log.add(ROW)
    with pytest.raises(OutputError, match="cannot be written"):
        log.close()
