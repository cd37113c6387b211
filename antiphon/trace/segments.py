"""A recorder that writes one site's rows into append-only segments, which survive the end of its process.

Rows are packed into a buffer, and `flush` hands them to the kernel in one call. From then on they survive
the process; a loss of power may take the last seconds. A segment that reaches its limit is left as it is,
and a new one is begun.

A log without a closing frame ends in an absence that was not recorded: readers add the row. A later recorder
of the same site leaves a step free for it, begins a new file and says so in its first frame. The old file, a
torn tail included, never changes again, so that all readers agree with the later recorder.

The first segment of a log stays locked while a recorder writes to the log: a second recorder is refused.
"""

import fcntl
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import msgspec
import numpy as np

from antiphon.core.errors import AntiphonError, OutputError, UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.recording import KINDS, Kind
from antiphon.core.time import Nanoseconds
from antiphon.trace.frames import (
    BEGIN,
    CHECKSUM,
    DEFINITIONS,
    END,
    HEAD,
    MAGIC,
    MOST_SENDERS,
    NONE,
    ROW,
    ROWS,
    SUFFIX,
    Begin,
    Block,
    Definitions,
    checksum,
    encoded,
    read_begin,
    read_blocks,
    safe_name,
)
from antiphon.trace.levels import LevelLog, LevelRow

SEGMENT_BYTES: Final = 256 << 20
BUFFER_ROWS: Final = 8192
"""Rows buffered at most; a full buffer is flushed. Raising it costs memory."""
MOST_ADDRESSES: Final = 1 << 14
"""Sets of destinations that a segment defines; more begin a new segment. Raising it costs memory."""
MOST_DEFINITION_BYTES: Final = 1 << 20
"""Bytes of new names that force a flush. Raising it costs memory."""

_CODES: Final[dict[str, int]] = {kind: code for code, kind in enumerate(KINDS)}
_SEND: Final = KINDS.index("send")
_ABSENT: Final = KINDS.index("absent")
_ROW_BYTES: Final = ROW.size
_EMPTY: Final = HEAD.size
"""Where the first row begins in the buffer, behind room for the frame's head."""
_FULL: Final = _EMPTY + BUFFER_ROWS * ROW.size
_NO_DESCRIPTOR: Final = -1


class SegmentRecorder:
    """Implements `antiphon.core.recording.Recorder` for one site of one run."""

    def __init__(self, folder: Path, run: str, site: Site, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Begin this site's log of this run in a trace, or continue it.

        Raises UsageError if another recorder is writing to that log, and OutputError if writing fails.
        """
        _require_text(run, site)
        self.run: Final = run
        self.site: Final = site
        self.returning = False
        """Whether the site had a log before; the end of that log counts as an absence."""
        self.next_number = 0
        """One more than the greatest number of the site's own send rows."""
        self._segment_bytes = segment_bytes
        self._folder = folder / "events"
        self._stem = safe_name(site, run)
        self._levels = LevelLog(folder, self._stem)
        self._index = 0
        self._first_step = 0
        self._after_absence = False
        self._size = 0
        self._lock = self._descriptor = _NO_DESCRIPTOR
        self._refusal: AntiphonError | None = None
        self._buffer = bytearray(_FULL + CHECKSUM.size)
        self._view = memoryview(self._buffer)
        self._end = _EMPTY
        self._forget_names()
        try:
            self._take_lock()
            self._begin(self._resume())
        except OSError as error:
            self._release()
            raise self._failure(error) from error
        except AntiphonError:
            self._release()
            raise

    @property
    def next_step(self) -> int:
        """The step of the site's next row."""
        return self._first_step + (self._end - _EMPTY) // _ROW_BYTES

    def record(
        self,
        site: Site,
        kind: Kind,
        time_ns: Nanoseconds,
        sender: Site | None = None,
        number: int | None = None,
        count: int = 1,
        group: Group | None = None,
        destinations: Iterable[Site] | None = None,
        size: int | None = None,
    ) -> None:
        """Append one row as the site's next step. It survives the process once flushed."""
        if self._end >= self._full:
            self._make_room()
        if site != self.site:
            raise UsageError(f"This recorder takes the rows of {self.site}, not those of {site}.")
        code = _CODES[kind]
        sender_code = self._senders.get(sender)
        if sender_code is None:
            sender_code = self._define_sender(sender)
        address = self._addresses.get(group) if destinations is None else None
        if address is None:
            address = self._address(group, destinations)
        if number is None:
            number = NONE
        elif code == _SEND and number + count > self.next_number and (sender is None or sender == site):
            self.next_number = number + count
        if size is None:
            size = NONE
        ROW.pack_into(self._buffer, self._end, time_ns, number, count, size, address, sender_code, code)
        self._end += _ROW_BYTES

    def reach(
        self, site: Site, level: str, time_ns: Nanoseconds, sender: Site, number: int, count: int
    ) -> None:
        """Note that messages have reached a level; that is no step."""
        self._levels.add(LevelRow(self.run, site, time_ns, sender, number, count, level))

    def flush(self) -> None:
        """Hand everything recorded so far to the kernel.

        Raises OutputError if that fails. Then the log ends with the last flush that succeeded, further rows
        are refused, and the next flush does nothing.
        """
        end = self._end
        if end == _EMPTY:
            return
        HEAD.pack_into(self._buffer, 0, end - _EMPTY, ROWS)
        CHECKSUM.pack_into(self._buffer, end, checksum(self._view[:end]))
        frame = self._view[: end + CHECKSUM.size]
        self._write(frame if self._undefined is None else memoryview(self._definitions_frame() + frame))
        self._first_step += (end - _EMPTY) // _ROW_BYTES
        self._end = _EMPTY
        if self._size >= self._segment_bytes:
            self._roll_over()

    def close(self) -> None:
        """Flush, and write the closing frame; a log that has failed gets none."""
        try:
            self.flush()
            self._levels.close()
            if self._refusal is None:
                self._write(memoryview(encoded(END, b"")))
        finally:
            self._release()
            self._refuse(UsageError(f"The log of {self.site} in {self._folder} is closed already."))

    # Names

    def _forget_names(self) -> None:
        """Start without names: a segment defines all that it uses, so that it can be read by itself."""
        self._senders: dict[Site | None, int] = {None: 0}
        self._addresses: dict[object, int] = {None: 0}
        """Codes by group, or by group and destinations where there are any."""
        self._undefined: Definitions | None = None
        self._undefined_bytes = 0
        self._end = _EMPTY
        self._full = _FULL
        """Buffer length at which the next row flushes first; 0 forces that."""

    def _define_sender(self, sender: Site | None) -> int:
        assert sender is not None
        code = self._senders[sender] = len(self._senders)
        self._note_undefined(len(sender)).senders.append(sender)
        return code

    def _address(self, group: Group | None, destinations: Iterable[Site] | None) -> int:
        """The code of a row's group and destinations."""
        named = None if destinations is None else tuple(destinations)
        key = group if named is None else (group, named)
        code = self._addresses.get(key)
        if code is None:
            code = self._addresses[key] = len(self._addresses)
            size = len(group or "") + sum(map(len, named or ()))
            self._note_undefined(size).addresses.append((group, None if named is None else list(named)))
        return code

    def _note_undefined(self, size: int) -> Definitions:
        if self._undefined is None:
            self._undefined, self._undefined_bytes = Definitions([], []), 0
        self._undefined_bytes += size
        if self._undefined_bytes >= MOST_DEFINITION_BYTES or self._has_many_names():
            self._full = 0
        return self._undefined

    def _has_many_names(self) -> bool:
        """Whether the codes of this segment are used up."""
        return len(self._senders) > MOST_SENDERS or len(self._addresses) > MOST_ADDRESSES

    def _definitions_frame(self) -> bytes:
        frame = encoded(DEFINITIONS, msgspec.json.encode(self._undefined))
        self._undefined, self._full = None, _FULL
        return frame

    def _make_room(self) -> None:
        if self._refusal is not None:
            raise type(self._refusal)(self._refusal.sentence, self._refusal.hint)
        has_many_names = self._has_many_names()
        self.flush()
        if has_many_names and self._has_many_names():
            self._roll_over()

    # Files

    def _path(self, index: int) -> Path:
        return self._folder / f"{self._stem}-{index:06d}{SUFFIX}"

    def _take_lock(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._path(0), os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"Another process is writing the log of {self.site} in run {self.run} to {self._folder}.",
                hint="Give each member its own name, and groups that run at the same time different runs.",
            ) from None

    def _resume(self) -> int:
        """Find where an earlier log ended, and return the index of the segment to begin."""
        form = re.compile(re.escape(self._stem) + r"-(\d{6,})" + re.escape(SUFFIX))
        matches = (form.fullmatch(path.name) for path in self._folder.iterdir())
        indices = sorted(int(match[1]) for match in matches if match)
        for index in reversed(indices):
            with self._path(index).open("rb") as file:
                begin = read_begin(self._path(index), file)
                if begin is not None:
                    self._require_own(index, begin)
                    self._go_on(begin, read_blocks(self._path(index), file))
                    return indices[-1] + 1
        # An unreadable first segment is empty, or torn in its first frame: it is begun anew.
        return indices[-1] + 1 if indices[-1] else 0

    def _require_own(self, index: int, begin: Begin) -> None:
        if (begin.run, begin.site) != (self.run, self.site):
            sentence = f"{self._path(index)} holds the log of {begin.site} in run {begin.run}."
            raise UsageError(sentence, "The file was renamed: restore its name, or move it away.")

    def _go_on(self, begin: Begin, blocks: Iterable[Block]) -> None:
        """Set the next step and number from the last segment of an earlier log."""
        senders: list[Site | None] = [None]
        rows, last_kind, is_end = 0, NONE, False
        self.next_number, self.returning = begin.next_number, True
        for block in blocks:
            senders += [name for definitions in block.definitions for name in definitions.senders]
            own = np.array([name is None or name == self.site for name in senders])
            sends = block.rows[block.rows["kind"] == _SEND]
            sends = sends[own[sends["sender"]]]
            after = sends["number"] + sends["count"]
            self.next_number = max(self.next_number, int(after.max(initial=0)))
            rows, is_end = rows + len(block.rows), block.is_end
            last_kind = int(block.rows["kind"][-1]) if len(block.rows) else last_kind
        self._after_absence = not is_end or last_kind != _ABSENT
        self._first_step = begin.first_step + rows + self._after_absence

    def _begin(self, index: int) -> None:
        """Open a segment and write its first frame. The previous one is closed only if that succeeds."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_EXCL if index else os.O_TRUNC)
        descriptor = os.open(self._path(index), flags, 0o666)
        if self._descriptor != _NO_DESCRIPTOR:
            os.close(self._descriptor)
        self._descriptor, self._index, self._size = descriptor, index, 0
        self._forget_names()
        begin = Begin(self.run, self.site, self._first_step, self.next_number, self._after_absence)
        self._write(memoryview(MAGIC + encoded(BEGIN, msgspec.json.encode(begin))))
        self._after_absence = False

    def _roll_over(self) -> None:
        try:
            self._begin(self._index + 1)
        except OSError as error:
            self._fail(error)

    def _write(self, data: memoryview) -> None:
        """Append whole frames; on failure, cut off what was written of them."""
        try:
            written = os.write(self._descriptor, data)
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            self._fail(error)
        self._size += written

    def _fail(self, error: OSError) -> NoReturn:
        failure = self._failure(error)
        self._refuse(failure)
        raise failure from error

    def _failure(self, error: OSError) -> OutputError:
        reason = error.strerror or str(error)
        return OutputError(
            f"The log of {self.site} cannot be written to {self._folder}: {reason}.",
            hint="Choose a folder that you may write to and that has room.",
        )

    def _refuse(self, reason: AntiphonError) -> None:
        """Refuse further rows and drop those in the buffer."""
        self._refusal, self._end, self._full = reason, _EMPTY, 0

    def _release(self) -> None:
        for descriptor in (self._descriptor, self._lock):
            if descriptor != _NO_DESCRIPTOR:
                os.close(descriptor)
        self._descriptor = self._lock = _NO_DESCRIPTOR


def _require_text(*names: str) -> None:
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise UsageError(f"The name {name!r} is not valid text.") from None
