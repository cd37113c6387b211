"""The log of a late-join handler: what was delivered, on disk; the oldest goes when there is too much.

A log is a sequence of segments. Each segment has a magic, a first frame and then a frame for each delivered
batch, with checksums like those of the trace (`antiphon.trace.frames`). The first frame says whose log it is,
how many messages were logged before it and how far each stream had come, so that a returning member reads
only the last segment. A torn tail there, which a kill may leave, is cut off. Nothing else is deleted for
being unreadable: a segment of another format version, or with a damaged first frame, is set aside under
another name, and a segment that is damaged later stays as it is.

One write per step of the member hands the step's frames to the kernel; nothing waits for the disk. The log is
read in a thread, only as far as it was written before, and a bounded amount at a time. A position is a
segment's index and an offset in it. A disk failure is reported once. The log then takes and gives nothing
more, and the member continues without it.
"""

import asyncio
import fcntl
import os
import re
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import msgspec
import numpy as np

from antiphon.core.effects import Deliver, Recall
from antiphon.core.errors import AntiphonError, InputError, OutputError, UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.inputs import Past, Recalled
from antiphon.core.packing import Packed, pack
from antiphon.core.recording import KINDS
from antiphon.trace import frames
from antiphon.trace.frames import CHECKSUM, FRAME_BYTES, HEAD, RESIDUE, checksum, encoded, safe_name

SUFFIX: Final = ".history"
SET_ASIDE: Final = ".set-aside"
"""Suffix of the name of a segment that cannot be read."""
FILE_MODE, FOLDER_MODE = 0o600, 0o700
"""Bodies are in the log as they were sent, so only the user may read it."""
MAGIC: Final = b"antihis\x01"
"""The last byte is the version of the format."""
BEGIN, BATCH = 1, 2
"""Kinds of frames."""
BATCH_HEAD: Final = struct.Struct("<qqIH")
"""Incarnation, number, count of messages, length of the sender's name; then the name, the packed bodies."""
SEGMENTS: Final = 8
"""Number of segments in a full log, roughly; the oldest segment is deleted as a whole."""
LEAST_BYTES: Final = 1 << 20
USUAL_BYTES: Final = 256 << 20
LARGEST_SEGMENT: Final = 64 << 20
MOST_SCANNED: Final = 4 << 20
"""Bytes that one read inspects, including the messages that the reader already has."""
READINGS_AT_ONCE: Final = 2
"""Requests read for at a time. Raising it costs threads that the application may want."""
MOST_WAITING: Final = 64
"""Requests that wait for that, one per asker. Raising it costs how long each of them waits."""
OFFSET_BITS: Final = 28
"""A position is a segment's index above this many bits of offset. It travels in PDUs, below `NUMBER_LIMIT`:
that leaves 33 million segments, and offsets of four times the largest segment."""

Stream = tuple[Site, int]


class Begin(msgspec.Struct, frozen=True, gc=False):
    """The first frame: whose log it is, and its state when the segment was begun."""

    group: Group
    site: Site
    logged: int
    """Messages in all earlier segments, including deleted ones."""
    ends: list[tuple[Site, int, int, int]]
    """For each stream that is still in the log: site, incarnation, the number after its last, its segment."""


class Segment(NamedTuple):
    """A file of the log, with its size so far."""

    path: Path
    place: int
    """Its index in the sequence of segments, from 0, deleted segments included."""
    size: int
    logged: int


class Batch(NamedTuple):
    """A frame that was read: its batch, and where the next frame begins."""

    record: Past
    messages: int
    end: int


class HistoryLog:
    """A log, written by one member and readable by every process that has the folder."""

    def __init__(self, folder: Path, group: Group, site: Site, most_bytes: int = USUAL_BYTES) -> None:
        """Continue this member's log, or begin it.

        Raises UsageError if another process is writing to it, and OutputError if it cannot be written.
        """
        if most_bytes < LEAST_BYTES:
            raise UsageError(
                f"A history of {most_bytes} bytes is too short.",
                hint=f"Give it {LEAST_BYTES:,} bytes at least.",
            )
        self.failure: str | None = None
        """Why the log neither takes nor gives anything any longer, as a sentence."""
        self.unreadable: list[str] = []
        """The parts of an earlier log that could not be read, and where they are now: a sentence each."""
        self._folder = folder
        self._group = group
        self._site = site
        self._stem = safe_name(site, group)
        self._most_bytes = most_bytes
        self._segment_bytes = min(most_bytes // SEGMENTS, LARGEST_SEGMENT)
        self._segments: list[Segment] = []
        self._ends: dict[Stream, tuple[int, int]] = {}
        """How far each stream has come, and in which segment."""
        self._logged = 0
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._lock = self._descriptor = -1
        try:
            self._open()
        except OSError as error:
            self.close()
            raise OutputError(
                f"The history of {site} cannot be kept in {folder}: {error.strerror or error}.",
                hint="Choose a folder that you may write to and that has room.",
            ) from error
        except AntiphonError:
            self.close()
            raise

    # Opening

    def _open(self) -> None:
        self._folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        self._lock = os.open(self._folder / f"{self._stem}.lock", os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"Another process is keeping the history of {self._site} in {self._folder}.",
                hint="Give each member a name of its own, or a folder of its own.",
            ) from None
        self._find_segments()
        if self._segments:
            self._resume()
        else:
            self._begin(0)

    def _find_segments(self) -> None:
        form = re.compile(re.escape(self._stem) + r"-(\d{6,})" + re.escape(SUFFIX))
        matches = [(form.fullmatch(path.name), path) for path in self._folder.iterdir()]
        for index, path in sorted((int(match[1]), path) for match, path in matches if match):
            with path.open("rb") as file:
                begin = read_begin(file)
            if begin is None or (begin.group, begin.site) != (self._group, self._site):
                self._set_aside(path)
                continue
            self._segments.append(Segment(path, index, path.stat().st_size, begin.logged))

    def _set_aside(self, path: Path) -> None:
        """Rename an unreadable segment to a name that no other file has; the log's lock prevents races."""
        if not path.stat().st_size:
            path.unlink()  # killed before it wrote the first byte
            return
        names = (path.with_name(f"{path.name}{SET_ASIDE}{number or ''}") for number in count())
        free = next(name for name in names if not os.path.lexists(name))
        path.rename(free)
        self.unreadable.append(f"A part of the history {why_unreadable(free)}; it is set aside as {free}.")

    def _resume(self) -> None:
        """Read the last segment, cut off a torn tail, and continue it; if it is damaged, begin the next
        one."""
        last = self._segments[-1]
        with last.path.open("rb") as file:
            begin = read_begin(file)
            assert begin is not None, "a segment without a beginning was set aside"
            self._ends = {(site, inc): (end, index) for site, inc, end, index in begin.ends}
            self._logged = begin.logged
            size = file.tell()
            for record, count, end in read_batches(file, last.size):
                self._ends[record.sender, record.incarnation] = (record.number + count, last.place)
                self._logged += count
                size = end
            if not is_torn(file, size, last.size):
                self.unreadable.append(f"A part of the history is damaged: {last.path}, from byte {size} on.")
                self._begin(last.place + 1)
                return
        self._segments[-1] = last._replace(size=size)
        self._descriptor = os.open(last.path, os.O_WRONLY | os.O_APPEND)
        os.ftruncate(self._descriptor, size)

    def _begin(self, index: int) -> None:
        """Make room for a whole segment, and begin it."""
        while self._segments and self._size() + self._segment_bytes > self._most_bytes:
            with suppress(FileNotFoundError):
                self._segments[0].path.unlink()
            del self._segments[0]
        oldest = self._segments[0].place if self._segments else index
        self._ends = {stream: entry for stream, entry in self._ends.items() if entry[1] >= oldest}
        path = self._folder / f"{self._stem}-{index:06d}{SUFFIX}"
        ends = [(site, incarnation, *entry) for (site, incarnation), entry in self._ends.items()]
        begin = Begin(self._group, self._site, self._logged, ends)
        data = MAGIC + encoded(BEGIN, msgspec.json.encode(begin))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, FILE_MODE)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor
        write_all(descriptor, data)
        self._segments.append(Segment(path, index, len(data), self._logged))

    def _size(self) -> int:
        return sum(segment.size for segment in self._segments)

    # Writing

    def append(self, effect: Deliver) -> None:
        """Log a delivery, unless an earlier incarnation has logged it. It is safe once flushed."""
        stream = (effect.sender, effect.incarnation)
        if self.failure is not None or effect.number < self._ends.get(stream, (0, 0))[0]:
            return
        batch = effect.bodies if type(effect.bodies) is Packed else pack(effect.bodies)
        name = effect.sender.encode()
        head = BATCH_HEAD.pack(effect.incarnation, effect.number, len(batch), len(name))
        wire = batch.wire()
        length = len(head) + len(name) + len(wire)
        frame = b"".join((HEAD.pack(length, BATCH), head, name, wire))
        if self._segments[-1].size + self._buffered + length + FRAME_BYTES > self._segment_bytes:
            self._roll_over()
            if self.failure is not None:
                return
        self._buffer += (frame, CHECKSUM.pack(checksum(frame)))
        self._buffered += length + FRAME_BYTES
        self._logged += len(batch)
        self._ends[stream] = (effect.number + len(batch), self._segments[-1].place)

    def flush(self) -> None:
        """Hand the logged frames to the kernel."""
        if not self._buffer or self.failure is not None:
            return
        last, data = self._segments[-1], b"".join(self._buffer)
        self._buffer, self._buffered = [], 0
        try:
            write_all(self._descriptor, data)
            self._segments[-1] = last._replace(size=last.size + len(data))
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._descriptor, last.size)
            self._fail(error)

    def _roll_over(self) -> None:
        self.flush()
        if self.failure is None:
            try:
                self._begin(self._segments[-1].place + 1)
            except OSError as error:
                self._fail(error)

    def _fail(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        self.failure = f"The history can no longer be kept in {self._folder}: {reason}."
        self._buffer, self._buffered = [], 0

    def close(self) -> None:
        self.flush()
        for descriptor in (self._descriptor, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._lock = -1
        self.failure = self.failure or "The log is closed."

    # Reading

    @property
    def messages(self) -> int:
        """The number of messages in the log."""
        return self._logged - self._segments[0].logged if self._segments else 0

    def figures(self) -> dict[str, int]:
        return {
            "history_log_bytes": self._size(),
            "history_log_messages": self.messages,
            "history_unreadable": len(self.unreadable),
        }

    def snapshot(self) -> "Snapshot":
        """A snapshot of what is written now, which a thread can read.

        A log of which a file was deleted or cut short behind our back fails: what it gave would lack messages
        without a word.
        """
        self.flush()
        damaged = next((segment.path for segment in self._segments if not _is_whole(segment)), None)
        if damaged is not None and self.failure is None:
            self.failure = f"The history is no longer whole: {damaged} is gone, or was cut short."
        return Snapshot(tuple(self._segments), self.messages if self.failure is None else -1)


async def open_log(folder: Path, group: Group, site: Site, most_bytes: int) -> HistoryLog:
    """Open a log in a thread. If that is cancelled, the log is closed and its lock released."""
    opening = Opening(folder, group, site, most_bytes)
    try:
        return await asyncio.to_thread(opening.open)
    except BaseException:
        opening.abandon()
        raise


class Opening:
    """A log that a thread opens. The thread continues when the waiting tasks are cancelled."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments
        self._mutex = threading.Lock()
        self._log: HistoryLog | None = None
        self._abandoned = False

    def open(self) -> HistoryLog:
        log = HistoryLog(*self._arguments)
        with self._mutex:
            self._log = log
            if self._abandoned:
                log.close()
        return log

    def abandon(self) -> None:
        with self._mutex:
            self._abandoned = True
            if self._log is not None:
                self._log.close()


class Recaller:
    """Reads the log in threads, for a few requests at once; the others wait.

    Only the latest request of an asker waits: the protocol has given up the earlier ones.
    """

    def __init__(self, log: HistoryLog, answer: Callable[[Recalled], None]) -> None:
        self.dropped = 0
        """Requests that were given up before the log was read for them."""
        self._log = log
        self._answer = answer
        self._waiting: dict[Site | None, Recall] = {}
        self._under_way = 0

    def ask(self, effect: Recall) -> None:
        """Read the log soon. It holds everything that was delivered before this call."""
        if self._waiting.pop(effect.asker, None) is not None:
            self.dropped += 1
        if len(self._waiting) >= MOST_WAITING:
            self.dropped += 1
            asyncio.get_running_loop().call_soon(self._answer, Recalled(effect.token, -1))
            return
        self._waiting[effect.asker] = effect
        self._read_on()

    def forget(self) -> None:
        """Drop all requests."""
        self._waiting.clear()

    def _read_on(self) -> None:
        while self._waiting and self._under_way < READINGS_AT_ONCE:
            effect = self._waiting.pop(next(iter(self._waiting)))
            self._under_way += 1
            recall = self._log.snapshot().recall
            reading = asyncio.get_running_loop().run_in_executor(None, recall, effect)
            reading.add_done_callback(self._read)

    def _read(self, reading: "asyncio.Future[Recalled]") -> None:
        self._under_way -= 1
        self._read_on()
        if not reading.cancelled():
            self._answer(reading.result())


class Snapshot(NamedTuple):
    """The segments of a log at one moment."""

    segments: tuple[Segment, ...]
    messages: int

    def recall(self, effect: Recall) -> Recalled:
        """Read on from a position. Damaged or deleted parts are skipped as if they were never logged."""
        if self.messages < 0 or not effect.most_bytes:
            return Recalled(effect.token, self.messages)
        reading = Reading(effect)
        try:
            is_end = all(reading.read(segment) for segment in self.segments)
        except OSError:
            return Recalled(effect.token, -1)
        return reading.answer(self.messages, is_end=is_end)


class Reading:
    """One request's progress through the segments."""

    def __init__(self, effect: Recall) -> None:
        self._effect = effect
        self._have = {site: (incarnation, number) for site, incarnation, number in effect.have}
        self._position = effect.position
        self._found: list[Past] = []
        self._size = 0
        self._scanned = 0

    def answer(self, messages: int, *, is_end: bool) -> Recalled:
        found = tuple(self._found)
        return Recalled(self._effect.token, messages, found, self._position, is_end)

    def read(self, segment: Segment) -> bool:
        """Read the rest of a segment. Returns whether to continue with the next segment."""
        index, offset = divmod(self._position, 1 << OFFSET_BITS)
        if segment.place < index:
            return True
        with suppress(FileNotFoundError), segment.path.open("rb") as file:
            if segment.place == index and offset:
                file.seek(offset)
            elif read_begin(file) is None:
                return True
            self._position = segment.place << OFFSET_BITS | file.tell()
            for record, _, end in read_batches(file, segment.size):
                if not self._take(record):
                    return False
                self._scanned += end - (self._position & (1 << OFFSET_BITS) - 1)
                self._position = segment.place << OFFSET_BITS | end
        return True

    def _take(self, record: Past) -> bool:
        if self._scanned >= MOST_SCANNED:
            return False
        if (record.incarnation, record.number) < self._have.get(record.sender, (-1, -1)):
            return True
        size = self._size + len(record.bodies)
        if self._found and size > self._effect.most_bytes:
            return False
        self._found.append(record)
        self._size = size
        return True


def _is_whole(segment: Segment) -> bool:
    """Whether a segment's file is still there, with everything that was written."""
    try:
        return segment.path.stat().st_size >= segment.size
    except OSError:
        return False


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def read_begin(file: IO[bytes]) -> Begin | None:
    """A segment's first frame, with the file positioned after it; None if it is damaged or not ours."""
    if file.read(len(MAGIC)) != MAGIC:
        return None
    frame = file.read(HEAD.size)
    if len(frame) < HEAD.size:
        return None
    length, kind = HEAD.unpack(frame)
    if kind != BEGIN or length > frames.MOST_CONTENT_BYTES:
        return None
    frame += file.read(length + CHECKSUM.size)
    if len(frame) < length + FRAME_BYTES or checksum(frame) != RESIDUE:
        return None
    try:
        return msgspec.json.decode(frame[HEAD.size : -CHECKSUM.size], type=Begin)
    except msgspec.MsgspecError:
        return None


def why_unreadable(path: Path) -> str:
    """Why a segment cannot be read, as the end of a sentence."""
    with path.open("rb") as file:
        magic = file.read(len(MAGIC))
    if len(magic) == len(MAGIC) and magic != MAGIC and magic[:-1] == MAGIC[:-1]:
        return f"has the format of another version ({magic[-1]}, not {MAGIC[-1]})"
    return "is damaged in its first frame"


def is_torn(file: IO[bytes], place: int, size: int) -> bool:
    """Whether a segment of that size ends at this offset, or within the frame that begins there."""
    file.seek(place)
    head = file.read(HEAD.size)
    if place + HEAD.size > size or len(head) < HEAD.size:
        return True
    length, kind = HEAD.unpack(head)
    end: int = place + length + FRAME_BYTES
    return kind == BATCH and length <= frames.MOST_CONTENT_BYTES and end > size


def read_batches(file: IO[bytes], size: int) -> Iterator[Batch]:
    """The batches from the file's position on, until a frame is torn or damaged."""
    place = file.tell()
    while True:
        head = file.read(HEAD.size)
        if len(head) < HEAD.size:
            return
        length, kind = HEAD.unpack(head)
        whole = length + FRAME_BYTES
        if kind != BATCH or length > frames.MOST_CONTENT_BYTES or place + whole > size:
            return
        frame = head + file.read(whole - HEAD.size)
        if len(frame) < whole or checksum(frame) != RESIDUE:
            return
        batch = _decoded(frame[HEAD.size : -CHECKSUM.size], place + whole)
        if batch is None:
            return
        yield batch
        place += whole


def _decoded(content: bytes, end: int) -> Batch | None:
    if len(content) < BATCH_HEAD.size:
        return None
    incarnation, number, count, name_bytes = BATCH_HEAD.unpack_from(content)
    begin = BATCH_HEAD.size + name_bytes
    try:
        sender = content[BATCH_HEAD.size : begin].decode()
    except UnicodeDecodeError:
        return None
    return Batch(Past(sender, incarnation, number, content[begin:]), count, end)


def delivered_before(trace: Path, run: str, site: Site) -> Mapping[Site, int]:
    """How far a member's earlier incarnations have delivered each sender's messages, from their trace."""
    reached: dict[Site, int] = {}
    for path in sorted((trace / "events").glob(f"{safe_name(site, run)}-*{frames.SUFFIX}")):
        with suppress(InputError), path.open("rb") as file:
            if frames.read_begin(path, file) is not None:
                _note_delivered(path, file, reached)
    return reached


def _note_delivered(path: Path, file: IO[bytes], reached: dict[Site, int]) -> None:
    senders: list[Site] = [""]
    for block in frames.read_blocks(path, file):
        senders += [name for definitions in block.definitions for name in definitions.senders]
        rows = block.rows[block.rows["kind"] == KINDS.index("deliver")]
        ends = np.zeros(len(senders), np.int64)
        np.maximum.at(ends, rows["sender"], rows["number"] + rows["count"])
        for code in np.flatnonzero(ends).tolist():
            sender = senders[code]
            reached[sender] = max(reached.get(sender, 0), int(ends[code]))
