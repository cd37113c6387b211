"""Segments that are damaged, foreign or impossible: a beginning of the rows, or one clear sentence."""

import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.errors import InputError
from antiphon.core.recording import KINDS
from antiphon.trace import frames
from antiphon.trace.files import open_trace, read_trace
from antiphon.trace.frames import BEGIN, DEFINITIONS, END, MAGIC, RESIDUE, ROW, ROWS, encoded
from antiphon.trace.schema import Event
from antiphon.trace.segments import SegmentRecorder

BEGINNING = b'{"run":"run","site":"a","first_step":0,"next_number":0}'
NAMED = encoded(DEFINITIONS, b'{"senders":["b"],"addresses":[["g",null],[null,["c"]]]}')


def row(
    number: int = 0, count: int = 1, address: int = 0, sender: int = 1, kind: int = KINDS.index("deliver")
) -> bytes:
    return ROW.pack(5, number, count, -1, address, sender, kind)


def segment(folder: Path, *pieces: bytes, begin: bytes = BEGINNING, magic: bytes = MAGIC) -> Path:
    (folder / "events").mkdir(parents=True, exist_ok=True)
    (folder / "events" / "a.segment").write_bytes(magic + encoded(BEGIN, begin) + b"".join(pieces))
    return folder


def test_the_format_is_what_the_documentation_says(tmp_path: Path) -> None:
    """Written here byte by byte, without the house's own code."""

    def frame(kind: int, content: bytes) -> bytes:
        head = len(content).to_bytes(4, "little") + kind.to_bytes(4, "little")
        return head + content + zlib.crc32(head + content, 0x2144DF1C).to_bytes(4, "little")

    send = b"".join(
        value.to_bytes(width, "little", signed=True)
        for value, width in [(77, 8), (3, 8), (2, 4), (120, 4), (1, 4), (0, 2), (2, 1), (0, 1)]
    )
    present = b"".join(
        value.to_bytes(width, "little", signed=True)
        for value, width in [(78, 8), (-1, 8), (1, 4), (-1, 4), (0, 4), (0, 2), (0, 1), (0, 1)]
    )
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "any-name.segment").write_bytes(
        b"antiseg\x01"
        + frame(1, b'{"run": "r", "site": "s", "first_step": 0, "next_number": 0}')
        + frame(2, b'{"senders": [], "addresses": [["g", ["x", "y"]]]}')
        + frame(3, send + present)
        + frame(4, b"")
    )
    assert read_trace(tmp_path).events == [
        Event("r", "s", 0, "send", None, 3, 2, "g", ("x", "y"), 120, 77),
        Event("r", "s", 1, "present", time_ns=78),
    ]


def test_a_frame_with_its_checksum_brings_the_residue_back() -> None:
    frame = encoded(ROWS, row())
    assert zlib.crc32(frame, RESIDUE) == RESIDUE
    assert zlib.crc32(frame + NAMED + encoded(END, b""), RESIDUE) == RESIDUE


# A beginning of the rows, or a sentence


def written(folder: Path) -> bytes:
    recorder = SegmentRecorder(folder, "run", "a")
    for number in range(12):
        recorder.record("a", "deliver", number, f"sender {number // 4}", number, 1, f"group {number // 3}")
        if number % 3 == 2:
            recorder.flush()
    recorder.close()
    (file,) = (folder / "events").iterdir()
    return file.read_bytes()


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return written(tmp_path_factory.mktemp("written"))


def require_beginning_or_sentence(folder: Path, content: bytes) -> str:
    """What came of a damaged segment: how many rows, or the error's first words."""
    (folder / "events").mkdir(exist_ok=True)
    (folder / "events" / "a.segment").write_bytes(content)
    try:
        events = read_trace(folder).events
    except InputError as error:
        return error.sentence[:20]
    if events and events[-1].kind == "absent":
        events.pop()
    assert [(event.step, event.number, event.sender, event.group) for event in events] == [
        (number, number, f"sender {number // 4}", f"group {number // 3}") for number in range(len(events))
    ]
    return str(len(events))


@settings(max_examples=300)
@given(data=st.data())
def test_flipped_bytes_leave_a_beginning_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    folder = tmp_path_factory.getbasetemp() / "flipped"
    folder.mkdir(exist_ok=True)
    require_beginning_or_sentence(folder, bytes(damaged))


def test_each_byte_flipped_by_itself(tmp_path: Path, content: bytes) -> None:
    outcomes = set()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        outcomes.add(require_beginning_or_sentence(tmp_path, bytes(damaged)))
    assert {"0", "3", "6", "9", "12", "The first frame of t", "The segment " + str(tmp_path)[:8]} <= outcomes


@settings(max_examples=100)
@given(garbage=st.binary(max_size=200), cut=st.integers(0, 1000))
def test_garbage_behind_a_beginning_is_not_read(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, garbage: bytes, cut: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / "garbage"
    folder.mkdir(exist_ok=True)
    outcome = require_beginning_or_sentence(folder, content[: min(cut, len(content))] + garbage)
    if cut == 0 and garbage[:1] not in (b"", MAGIC[:1]):
        assert outcome.startswith(str(folder)[:10])


def test_zeros_behind_the_rows_are_a_torn_tail(tmp_path: Path) -> None:
    segment(tmp_path, NAMED, encoded(ROWS, row()), bytes(4096))
    assert [event.kind for event in read_trace(tmp_path).events] == ["deliver", "absent"]


def test_a_frame_that_is_too_long_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its length must be an accident: it does not fit into memory."""
    segment(tmp_path, NAMED, encoded(ROWS, row()), encoded(ROWS, row() * 7))
    assert len(read_trace(tmp_path).events) == 9
    monkeypatch.setattr(frames, "MOST_CONTENT_BYTES", 200)
    assert len(read_trace(tmp_path).events) == 2


def test_frames_are_read_alike_in_blocks_of_any_size(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (1, 7, 32, 33, 100, 137, 1000):
        monkeypatch.setattr(frames, "BLOCK_BYTES", size)
        assert require_beginning_or_sentence(tmp_path, content) == "12"
        assert require_beginning_or_sentence(tmp_path, content[:-20]) == "9"


# Impossible contents under right checksums

FOREIGN = {
    "not ours": (b"hello, world", "is not a segment of a live trace"),
    "Parquet under our name": (b"PAR1....PAR1", "is not a segment of a live trace"),
    "another version": (b"antiseg\x02", "has version 2 of the format"),
}


@pytest.mark.parametrize(("magic", "sentence"), FOREIGN.values(), ids=FOREIGN.keys())
def test_files_of_others_are_named(tmp_path: Path, magic: bytes, sentence: str) -> None:
    segment(tmp_path, magic=magic)
    with pytest.raises(InputError, match=rf"events/a.segment {sentence}") as info:
        open_trace(tmp_path)
    assert info.value.hint


BEGINNINGS = {
    "no JSON": b"run: r",
    "no site": b'{"run":"r","first_step":0,"next_number":0}',
    "a negative step": b'{"run":"r","site":"a","first_step":-1,"next_number":0}',
    "a step beyond 62 bits": b'{"run":"r","site":"a","first_step":9000000000000000000,"next_number":0}',
    "a site that is a number": b'{"run":"r","site":4,"first_step":0,"next_number":0}',
    "no text": b'{"run":"\xff","site":"a","first_step":0,"next_number":0}',
    "half a character": b'{"run":"\\ud800","site":"a","first_step":0,"next_number":0}',
}


@pytest.mark.parametrize("begin", BEGINNINGS.values(), ids=BEGINNINGS.keys())
def test_first_frames_that_say_nothing_are_refused(tmp_path: Path, begin: bytes) -> None:
    segment(tmp_path, begin=begin)
    with pytest.raises(InputError, match=r"The segment .*a\.segment has a frame that is no Begin") as info:
        open_trace(tmp_path)
    assert info.value.hint


def test_a_first_frame_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "a.segment").write_bytes(MAGIC + NAMED)
    with pytest.raises(InputError, match=r"The first frame of the segment .* is damaged"):
        open_trace(tmp_path)


@pytest.mark.parametrize("length", range(len(MAGIC + encoded(BEGIN, BEGINNING))))
def test_a_segment_that_has_hardly_begun_is_left_out(tmp_path: Path, length: int) -> None:
    segment(tmp_path)
    (file,) = (tmp_path / "events").iterdir()
    file.write_bytes(file.read_bytes()[:length])
    assert open_trace(tmp_path).segments == ()
    assert read_trace(tmp_path).events == []


WRONG_FRAMES = {
    "half a row": ([NAMED, encoded(ROWS, row()[:-1])], "has a frame that does not hold whole rows"),
    "an unknown kind of frame": ([encoded(9, b"")], "has a frame of the unknown kind 9"),
    "a second beginning": ([encoded(BEGIN, BEGINNING)], "has a frame of the unknown kind 1"),
    "an undefined sender": ([NAMED, encoded(ROWS, row(sender=2))], "does not define the sender 2"),
    "an undefined address": ([NAMED, encoded(ROWS, row(address=7))], "does not define the address 7"),
    "definitions of nothing": ([encoded(DEFINITIONS, b"[]")], "has a frame that is no Definitions"),
    "a destination that is null": (
        [encoded(DEFINITIONS, b'{"addresses":[[null,[null]]]}')],
        "has a frame that is no Definitions",
    ),
}


@pytest.mark.parametrize(("pieces", "sentence"), WRONG_FRAMES.values(), ids=WRONG_FRAMES.keys())
def test_frames_that_make_no_sense_are_named(tmp_path: Path, pieces: list[bytes], sentence: str) -> None:
    segment(tmp_path, *pieces)
    with pytest.raises(InputError, match=rf"The segment .*a\.segment {sentence}") as info:
        read_trace(tmp_path)
    assert info.value.hint


WRONG_ROWS = {
    "an unknown kind": (row(kind=9), "its kind is '9'"),
    "no sender": (row(sender=0), "it has no sender"),
    "no number": (row(number=-1), "it has no number"),
    "a negative number": (row(number=-5), "its number is -5"),
    "a count of nought": (row(count=0), "its count is 0"),
    "a number beyond 64 bits": (row(number=(1 << 63) - 1, count=2), "go beyond 64 bits"),
}


@pytest.mark.parametrize(("bad", "flaw"), WRONG_ROWS.values(), ids=WRONG_ROWS.keys())
def test_impossible_rows_are_refused_as_those_of_parquet_are(tmp_path: Path, bad: bytes, flaw: str) -> None:
    segment(tmp_path, NAMED, encoded(ROWS, row() + bad))
    with pytest.raises(InputError, match=f"^Run run cannot be judged: in the row of site a, step 1,.*{flaw}"):
        read_trace(tmp_path)


def test_the_same_segment_twice_cannot_be_judged(tmp_path: Path) -> None:
    segment(tmp_path, NAMED, encoded(ROWS, row()))
    (tmp_path / "events" / "copy.segment").write_bytes((tmp_path / "events" / "a.segment").read_bytes())
    with pytest.raises(InputError, match="both begin with step 0 of site a"):
        read_trace(tmp_path)


@pytest.mark.parametrize("block_bytes", [1, 1000])
def test_what_stands_behind_the_closing_frame_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(frames, "BLOCK_BYTES", block_bytes)
    segment(tmp_path, NAMED, encoded(ROWS, row()), encoded(END, b""), encoded(ROWS, row()))
    assert [event.kind for event in read_trace(tmp_path).events] == ["deliver"]


def test_a_folder_under_the_name_of_a_segment_is_no_segment(tmp_path: Path) -> None:
    segment(tmp_path, encoded(END, b""))
    (tmp_path / "events" / "b.segment").mkdir()
    assert len(open_trace(tmp_path).segments) == 1
