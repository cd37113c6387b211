"""What a growing trace has gained: every row once, whatever is written between two looks."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from antiphon.core.errors import InputError
from antiphon.trace import growth
from antiphon.trace.arrow import EVENTS
from antiphon.trace.files import conform, events_of, read_trace, write_trace
from antiphon.trace.growth import Position, latest, open_logs, read_stretch, stretches
from antiphon.trace.schema import Event, Run
from antiphon.trace.segments import SegmentRecorder


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    growth._scans.clear()
    yield
    growth._scans.clear()


def gained(folder: Path, start: dict[str, Position], end: dict[str, Position]) -> list[Event]:
    return [
        event
        for stretch in stretches(folder, start, end)
        for part in read_stretch(stretch)
        for event in events_of(conform(stretch.path, part, EVENTS))
    ]


def by_place(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: (event.run, event.site, event.step))


def log_some(recorder: SegmentRecorder, rng: Random, number: int) -> None:
    """A few rows, with names that were not used before."""
    sender = f"peer-{number % 7}"
    recorder.record(recorder.site, "deliver", number, sender, number, rng.randint(1, 3))
    recorder.record(recorder.site, "send", number, number=number, destinations=[sender, recorder.site])
    if rng.random() < 0.7:
        recorder.flush()


@pytest.mark.parametrize("limit", [growth.MANY, 5])
def test_every_row_once_while_members_write_die_and_return(tmp_path: Path, limit: int) -> None:
    rng = Random("growth")
    known: dict[str, Position] = {}
    seen: list[Event] = []
    for number in range(60):
        if number % 20 == 0:  # each time both begin anew; only one had closed its log
            recorders = [SegmentRecorder(tmp_path, "run", site, segment_bytes=600) for site in ("a", "b")]
        for recorder in recorders:
            log_some(recorder, rng, number)
        if number % 20 == 19:
            recorders[0].close()
            recorders[1].flush()
            recorders[1]._release()
        if number == 30:
            write_trace(tmp_path, [[Event("other", "x", 0, "deliver", "y", 0)]], [Run("other")], append=True)
        if rng.random() < 0.3:
            growth._scans.clear()  # a job that starts again
        now = latest(tmp_path, known, limit)
        seen += gained(tmp_path, known, now)
        known = now
    while (now := latest(tmp_path, known, limit)) != known:
        seen += gained(tmp_path, known, now)
        known = now
    broken_off = open_logs(known)
    assert list(broken_off) == [("run", "b")]
    seen += [Event(run, site, step, "absent") for (run, site), step in broken_off.items()]
    assert by_place(seen) == by_place(read_trace(tmp_path).events)


def test_positions_that_were_taken_back_are_read_again(tmp_path: Path) -> None:
    recorder = SegmentRecorder(tmp_path, "run", "a")
    looks: list[dict[str, Position]] = [{}]
    for number in range(4):
        log_some(recorder, Random(1), number)
        recorder.flush()
        looks.append(latest(tmp_path, looks[-1]))
    again = latest(tmp_path, looks[1])
    assert again == looks[4]
    assert gained(tmp_path, looks[1], again) == [
        event for one, two in pairwise(looks[1:]) for event in gained(tmp_path, one, two)
    ]


def test_a_torn_frame_waits_until_it_is_whole(tmp_path: Path) -> None:
    recorder = SegmentRecorder(tmp_path, "run", "a")
    recorder.record("a", "deliver", 1, "b", 0)
    recorder.flush()
    path = next((tmp_path / "events").iterdir())
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    before = latest(tmp_path, {})
    assert gained(tmp_path, {}, before) == []
    path.write_bytes(whole)
    assert len(gained(tmp_path, before, latest(tmp_path, before))) == 1


def test_a_segment_that_shrank_is_refused(tmp_path: Path) -> None:
    recorder = SegmentRecorder(tmp_path, "run", "a")
    recorder.record("a", "deliver", 1, "b", 0)
    recorder.flush()
    known = latest(tmp_path, {})
    path = next((tmp_path / "events").iterdir())
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(InputError, match="fewer than were read"):
        latest(tmp_path, known)


def test_nothing_is_there_yet(tmp_path: Path) -> None:
    assert latest(tmp_path / "later", {}) == {}
