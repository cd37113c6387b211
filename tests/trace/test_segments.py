"""Live segments: what was flushed is read again, whatever happened to the process, the disk or the file."""

import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.errors import OutputError, UsageError
from antiphon.core.recording import KINDS, Kind, Recorder
from antiphon.trace import segments
from antiphon.trace.files import event_parts, open_trace, read_trace
from antiphon.trace.frames import FRAME_BYTES, ROW
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Event
from antiphon.trace.segment_tables import SegmentFile, open_segments
from antiphon.trace.segments import SegmentRecorder


def crash(recorder: SegmentRecorder) -> None:
    """What kill -9 does: the kernel closes the files, and nothing else happens."""
    recorder._release()


def log_of(folder: Path, site: str = "a") -> list[Event]:
    """A site's rows in order of step; read_trace has seen to it that no step comes twice."""
    return sorted(
        (event for event in read_trace(folder).events if event.site == site), key=lambda event: event.step
    )


def kinds(folder: Path, site: str = "a") -> list[str]:
    """The kinds of a log that has no holes."""
    log = log_of(folder, site)
    assert [event.step for event in log] == list(range(len(log)))
    return [event.kind for event in log]


def files(folder: Path) -> list[Path]:
    return sorted((folder / "events").iterdir())


def fill(recorder: Recorder, rows: int, begin: int = 0) -> None:
    for number in range(begin, begin + rows):
        recorder.record("a", "deliver", number, "b", number)


# The round trip

NAMES = st.sampled_from(["a", "b", "c", "ünïcode \N{SNOWMAN}", "a/b", "", "x" * 300])
ROWS = st.tuples(
    st.sampled_from(KINDS),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.none() | NAMES,
    st.integers(0, (1 << 40)) | st.just((1 << 63) - 1),
    st.integers(1, 1000) | st.just((1 << 31) - 1),
    st.none() | NAMES,
    st.none() | st.lists(NAMES, max_size=4),
    st.none() | st.integers(0, (1 << 31) - 1),
)
Row = tuple[Kind, int, str | None, int, int, str | None, list[str] | None, int | None]


def judgeable(row: Row) -> Row:
    """The same row without what read_trace would refuse."""
    kind, time_ns, sender, number, count, group, destinations, size = row
    if kind != "send" and sender is None:
        sender = "b"
    return kind, time_ns, sender, min(number, (1 << 63) - count), count, group, destinations, size


@settings(max_examples=60)
@given(st.lists(st.tuples(ROWS, st.booleans()), max_size=40), st.sampled_from([1, 500, 1 << 20]))
def test_what_is_recorded_is_what_a_recorder_in_memory_holds(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Row, bool]], segment_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    twin, recorder = MemoryRecorder("run"), SegmentRecorder(folder, "run", "a", segment_bytes=segment_bytes)
    for row, flushes in rows:
        for each in (twin, recorder):
            taking_any_recorder: Recorder = each
            taking_any_recorder.record("a", *judgeable(row))
        if flushes:
            recorder.flush()
    assert recorder.next_step == len(rows)
    recorder.close()
    assert log_of(folder) == twin.events()
    shutil.rmtree(folder)


def test_rows_without_number_and_iterators_of_destinations(tmp_path: Path) -> None:
    twin, recorder = MemoryRecorder("run"), SegmentRecorder(tmp_path, "run", "a")
    for each in (twin, recorder):
        each.record("a", "present", 5)
        each.record("a", "send", 6, "a", 0, 3, "g", iter(["b", "a"]), 120)
        each.record("a", "send", 7, "a", 3, destinations=frozenset({"b"}))
        each.record("a", "send", 8, "a", 4, destinations=frozenset({"b"}))
        each.record("a", "send", 9, "a", 5, destinations=())
        each.record("a", "absent", 10)
    recorder.close()
    assert log_of(tmp_path) == twin.events()


def test_nothing_is_written_before_the_flush_and_all_of_it_after(tmp_path: Path) -> None:
    recorder = SegmentRecorder(tmp_path, "run", "a")
    fill(recorder, 3)
    assert kinds(tmp_path) == ["absent"]
    recorder.flush()
    assert kinds(tmp_path) == ["deliver"] * 3 + ["absent"]
    size = files(tmp_path)[0].stat().st_size
    recorder.flush()
    assert files(tmp_path)[0].stat().st_size == size
    recorder.close()
    assert kinds(tmp_path) == ["deliver"] * 3


def test_a_full_buffer_is_written_unasked(tmp_path: Path) -> None:
    recorder = SegmentRecorder(tmp_path, "run", "a")
    fill(recorder, segments.BUFFER_ROWS + 1)
    assert len(kinds(tmp_path)) == segments.BUFFER_ROWS + 1
    recorder.close()
    assert len(kinds(tmp_path)) == segments.BUFFER_ROWS + 1


def test_sites_and_runs_share_a_folder_whatever_they_are_called(tmp_path: Path) -> None:
    logs = [
        (run, site) for run in ("run", "ru n") for site in ("a", "a/b", "a_b", "A", ".", "..", "", "x" * 500)
    ]
    recorders = [SegmentRecorder(tmp_path, *log) for log in logs]
    for recorder in recorders:
        recorder.record(recorder.site, "present", 0)
        recorder.close()
    assert {(event.run, event.site) for event in read_trace(tmp_path).events} == set(logs)
    assert all(re.fullmatch(r"[A-Za-z0-9-]+-\d{6}\.segment", path.name) for path in files(tmp_path))


# Rolling over


def test_a_segment_that_is_full_is_followed_by_another(tmp_path: Path) -> None:
    recorder = SegmentRecorder(tmp_path, "run", "a", segment_bytes=1000)
    for begin in range(0, 300, 3):
        fill(recorder, 3, begin)
        recorder.flush()
    assert kinds(tmp_path) == ["deliver"] * 300 + ["absent"]
    recorder.close()
    assert len(files(tmp_path)) > 10
    assert max(path.stat().st_size for path in files(tmp_path)) < 1000 + 3 * ROW.size + FRAME_BYTES
    assert [event.number for event in log_of(tmp_path)] == list(range(300))
    assert kinds(tmp_path) == ["deliver"] * 300


@pytest.mark.parametrize("table", ["MOST_SENDERS", "MOST_ADDRESSES", "MOST_DEFINITION_BYTES"])
def test_names_without_number_need_no_memory_without_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setattr(segments, table, 10)
    twin, recorder = MemoryRecorder("run"), SegmentRecorder(tmp_path, "run", "a")
    for index in range(100):
        for each in (twin, recorder):
            each.record("a", "send", 0, f"sender {index}", index, 1, None, [f"site {index}"])
        if table != "MOST_DEFINITION_BYTES":
            assert max(len(recorder._senders), len(recorder._addresses)) <= 12
    assert len(log_of(tmp_path)) > 80, "they are written unasked, not gathered until a flush"
    recorder.close()
    assert log_of(tmp_path) == twin.events()
    assert (len(files(tmp_path)) > 1) == (table != "MOST_DEFINITION_BYTES")


# Ends and new beginnings


def test_a_new_log_begins_at_nought(tmp_path: Path) -> None:
    recorder = SegmentRecorder(tmp_path, "run", "a")
    assert (recorder.returning, recorder.next_number, recorder.next_step) == (False, 0, 0)
    recorder.close()
    assert read_trace(tmp_path).events == []


def test_after_a_crash_the_log_goes_on_behind_the_absence(tmp_path: Path) -> None:
    first = SegmentRecorder(tmp_path, "run", "a")
    first.record("a", "send", 0, "a", 0, 5)
    first.record("a", "send", 0, "b", 70)
    first.flush()
    first.record("a", "send", 0, "a", 5)
    crash(first)
    assert kinds(tmp_path) == ["send", "send", "absent"]
    second = SegmentRecorder(tmp_path, "run", "a")
    assert (second.returning, second.next_number, second.next_step) == (True, 5, 3)
    assert kinds(tmp_path) == ["send", "send", "absent", "absent"]
    second.record("a", "present", 0)
    second.record("a", "send", 0, None, 5)
    second.flush()
    crash(second)
    third = SegmentRecorder(tmp_path, "run", "a")
    assert (third.returning, third.next_number, third.next_step) == (True, 6, 6)
    third.record("a", "present", 0)
    third.record("a", "absent", 0)
    third.close()
    assert kinds(tmp_path) == ["send", "send", "absent", "present", "send", "absent", "present", "absent"]


def test_after_a_clean_leave_the_steps_simply_go_on(tmp_path: Path) -> None:
    first = SegmentRecorder(tmp_path, "run", "a")
    first.record("a", "send", 0, "a", 8)
    first.record("a", "absent", 0)
    first.close()
    second = SegmentRecorder(tmp_path, "run", "a")
    assert (second.returning, second.next_number, second.next_step) == (True, 9, 2)
    second.record("a", "present", 0)
    second.close()
    assert kinds(tmp_path) == ["send", "absent", "present"]


def test_a_log_closed_without_an_absence_gets_one_when_it_goes_on(tmp_path: Path) -> None:
    first = SegmentRecorder(tmp_path, "run", "a")
    fill(first, 2)
    first.close()
    assert kinds(tmp_path) == ["deliver"] * 2
    second = SegmentRecorder(tmp_path, "run", "a")
    fill(second, 1)
    second.close()
    assert kinds(tmp_path) == ["deliver", "deliver", "absent", "deliver"]


def test_numbers_are_remembered_over_segments_without_sends(tmp_path: Path) -> None:
    first = SegmentRecorder(tmp_path, "run", "a", segment_bytes=1)
    first.record("a", "send", 0, "a", 41)
    first.flush()
    for number in range(3):
        fill(first, 1, number)
        first.flush()
    crash(first)
    assert SegmentRecorder(tmp_path, "run", "a").next_number == 42


def test_a_first_segment_that_was_moved_away_is_not_missed(tmp_path: Path) -> None:
    first = SegmentRecorder(tmp_path, "run", "a", segment_bytes=1)
    for number in range(3):
        fill(first, 1, number)
        first.flush()
    first.close()
    files(tmp_path)[0].rename(tmp_path / "elsewhere")
    second = SegmentRecorder(tmp_path, "run", "a")
    assert second.next_step == 4
    fill(second, 1)
    second.close()
    assert [event.step for event in log_of(tmp_path)] == [1, 2, 3, 4]


def small_segment(folder: Path) -> list[Event]:
    """Three frames of rows, with definitions before two of them, closed."""
    twin, recorder = MemoryRecorder("run"), SegmentRecorder(folder, "run", "a")
    for each in (twin, recorder):
        each.record("a", "present", 0)
        each.record("a", "send", 1, "a", 0, 2, "g")
    recorder.flush()
    for each in (twin, recorder):
        each.record("a", "receive", 2, "b", 0)
        each.record("a", "deliver", 3, "b", 0)
    recorder.flush()
    for each in (twin, recorder):
        each.record("a", "send", 4, "a", 2, destinations=("b", "c"))
    recorder.close()
    return twin.events()


def test_cut_off_anywhere_a_log_is_a_beginning_and_goes_on_from_there(tmp_path: Path) -> None:
    whole = small_segment(tmp_path / "whole")
    (original,) = files(tmp_path / "whole")
    content = original.read_bytes()
    lengths = []
    for cut in range(len(content)):
        folder = tmp_path / str(cut)
        (folder / "events").mkdir(parents=True)
        (folder / "events" / original.name).write_bytes(content[:cut])
        found = log_of(folder)
        begun = bool(found)
        lengths.append(len(found) - begun)
        implied = [Event("run", "a", lengths[-1], "absent")] if begun else []
        assert found == whole[: lengths[-1]] + implied
        recorder = SegmentRecorder(folder, "run", "a")
        assert (recorder.returning, recorder.next_step) == (begun, len(found))
        assert recorder.next_number == {0: 0, 2: 2, 4: 2, 5: 3}[lengths[-1]]
        recorder.record("a", "present", 9)
        recorder.close()
        assert log_of(folder) == [*found, Event("run", "a", len(found), "present", time_ns=9)]
    assert lengths == sorted(lengths)
    assert set(lengths) == {0, 2, 4, 5}


def test_a_second_recorder_of_a_site_is_refused(tmp_path: Path) -> None:
    first = SegmentRecorder(tmp_path, "run", "a", segment_bytes=1)
    with pytest.raises(UsageError, match="Another process is writing the log of a in run run") as info:
        SegmentRecorder(tmp_path, "run", "a")
    assert info.value.hint
    for begin in range(3):
        fill(first, 1, begin)
        first.flush()
    with pytest.raises(UsageError, match="Another process"):
        SegmentRecorder(tmp_path, "run", "a")
    other_site, other_run = SegmentRecorder(tmp_path, "run", "b"), SegmentRecorder(tmp_path, "other", "a")
    first.close()
    SegmentRecorder(tmp_path, "run", "a").close()
    other_site.close()
    other_run.close()
    assert kinds(tmp_path) == ["deliver"] * 3 + ["absent"]


# Misuse and failure


def test_rows_of_others_and_rows_after_the_end_are_refused(tmp_path: Path) -> None:
    recorder = SegmentRecorder(tmp_path, "run", "a")
    with pytest.raises(UsageError, match="takes the rows of a, not those of b"):
        recorder.record("b", "present", 0)
    recorder.close()
    with pytest.raises(UsageError, match="closed"):
        recorder.record("a", "present", 0)
    recorder.flush()
    recorder.close()
    assert read_trace(tmp_path).events == []


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not valid text"):
        SegmentRecorder(tmp_path, "run", "\udcff")


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"The log of a cannot be written to .*: ") as info:
        SegmentRecorder(tmp_path / "file", "run", "a")
    assert info.value.hint


def test_a_segment_under_a_wrong_name_is_not_gone_on_with(tmp_path: Path) -> None:
    for site in ("a", "b"):
        SegmentRecorder(tmp_path, "run", site).close()
    first, second = files(tmp_path)
    second.rename(first)
    with pytest.raises(UsageError, match="holds the log of b in run run"):
        SegmentRecorder(tmp_path, "run", "a")


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file can grow beyond this; Python ignores the signal, so that writing fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "antiphon-test", str(folder)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("Only root may mount a small disk, and not in every container.")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill_until_it_fails(recorder: SegmentRecorder) -> int:
    """How many rows were flushed, three at a time."""
    for flushed in range(0, 1 << 20, 3):
        fill(recorder, 3, flushed)
        try:
            recorder.flush()
        except OutputError:
            return flushed
    raise AssertionError("the disk is never full")


def require_orderly_end(recorder: SegmentRecorder, folder: Path, flushed: int) -> None:
    content = [path.read_bytes() for path in files(folder)]
    recorder.flush()
    with pytest.raises(OutputError, match=r"^The log of a cannot be written to .*: [A-Z][a-z ]+\. H") as info:
        fill(recorder, 1)
    assert info.value.hint
    recorder.close()
    assert [path.read_bytes() for path in files(folder)] == content
    assert kinds(folder) == ["deliver"] * flushed + ["absent"]
    assert flushed > 100
    # The file ends in a whole frame: nothing is left over behind the rows that are read.
    frames = flushed // 3
    assert 0 < len(content[-1]) - flushed * ROW.size - frames * FRAME_BYTES < 150


def test_a_file_that_cannot_grow_ends_in_a_whole_frame(tmp_path: Path) -> None:
    recorder = SegmentRecorder(tmp_path, "run", "a")
    with file_size_limit(10_007):
        flushed = fill_until_it_fails(recorder)
    require_orderly_end(recorder, tmp_path, flushed)


def test_a_full_disk_ends_in_a_whole_frame_and_a_later_recorder_goes_on(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 16) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(20_000))
        recorder = SegmentRecorder(disk, "run", "a")
        flushed = fill_until_it_fails(recorder)
        require_orderly_end(recorder, disk, flushed)
        with pytest.raises(OutputError, match="No space left on device"):
            SegmentRecorder(disk, "run", "a")
        ballast.unlink()
        recorder = SegmentRecorder(disk, "run", "a")
        assert (recorder.next_step, recorder.returning) == (flushed + 1, True)
        fill(recorder, 1)
        recorder.close()
        assert kinds(disk) == ["deliver"] * flushed + ["absent", "deliver"]


def test_a_segment_that_cannot_be_begun_ends_the_log(tmp_path: Path) -> None:
    recorder = SegmentRecorder(tmp_path, "run", "a", segment_bytes=1)
    (tmp_path / "events" / files(tmp_path)[0].name.replace("-000000", "-000001")).touch()
    fill(recorder, 3)
    with pytest.raises(OutputError, match="File exists"):
        recorder.flush()
    recorder.close()
    assert kinds(tmp_path) == ["deliver"] * 3 + ["absent"]


# Another process

WRITER = """
import sys
from pathlib import Path
from antiphon.trace.segments import SegmentRecorder
recorder = SegmentRecorder(Path(sys.argv[1]), "run", "a", segment_bytes=20_000)
number = recorder.next_number
if recorder.returning:
    recorder.record("a", "present", 0)
while True:
    recorder.record("a", "send", 0, "a", number, 2)
    recorder.record("a", "deliver", 0, "a", number, 2)
    recorder.record("a", "deliver", 0, f"sender {number % 50}", number)
    number += 2
    recorder.flush()
    print(recorder.next_step, flush=True)
"""


def test_killed_again_and_again_a_log_keeps_all_that_was_flushed(tmp_path: Path) -> None:
    """It is also read while it is written: each time it is a beginning of what it becomes."""
    expected = 0
    for spell in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        told = expected
        deadline = time.monotonic() + 60
        while told < expected + 1500 and time.monotonic() < deadline:
            told = int(writer.stdout.readline())
            if told % 500 < 3:
                assert len(kinds(tmp_path)) > told
        writer.kill()
        told = max([told, *map(int, writer.stdout.read().split("\n")[:-1])])
        writer.wait()
        log = log_of(tmp_path)
        assert kinds(tmp_path).count("absent") == spell + 1
        assert log[-1].kind == "absent"
        assert len(log) > told > expected
        numbers = [event.number for event in log if event.kind == "send"]
        assert numbers == list(range(0, 2 * len(numbers), 2))
        expected = len(log)
    assert len(files(tmp_path)) > 6


# Reading at one moment


def test_what_is_written_after_opening_is_not_read(tmp_path: Path) -> None:
    recorders = [SegmentRecorder(tmp_path, "run", site, segment_bytes=200) for site in ("a", "b")]
    fill(recorders[0], 2)
    recorders[0].flush()
    opened = open_trace(tmp_path)
    fill(recorders[0], 20)
    recorders[0].close()
    recorders[1].record("b", "deliver", 0, "a", 0)
    recorders[1].close()
    read = [(part["site"][0].as_py(), part["kind"].to_pylist()) for _, part in event_parts(opened)]
    assert sorted(read) == [("a", ["absent"]), ("a", ["deliver"] * 2), ("b", ["absent"])]
    assert kinds(tmp_path) == ["deliver"] * 22


def test_segments_that_appear_while_others_are_looked_at_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the rows that caused what others logged meanwhile could be missing."""
    recorder = SegmentRecorder(tmp_path, "run", "a", segment_bytes=1)
    fill(recorder, 1)
    looked: list[int] = []

    def look(paths: list[Path]) -> tuple[SegmentFile, ...]:
        found = open_segments(paths)
        if not looked:
            recorder.flush()
        looked.append(len(paths))
        return found

    monkeypatch.setattr("antiphon.trace.files.open_segments", look)
    assert len(open_trace(tmp_path).segments) == 2
    assert looked == [1, 2]
    recorder.close()
