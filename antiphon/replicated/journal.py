"""The files of a member's store: append-only, checksummed, compacted.

A folder belongs to one member of one group. It holds:
- `owner`: whose it is;
- `lock`: held while a process uses it;
- `log-N`: records, each with its length and a checksum before it. A record is the member's term, vote and
  group, or entries of the log. Entries replace everything from their first index on;
- `snapshot-I`: the state up to index I, with a checksum.

A record that was torn by a crash can only be the last of the last log: it was never acknowledged, and is cut
off. Any other damage is an error. A snapshot is written aside, synchronized and renamed; then a new log is
begun with the entries that are still needed, in the same way; only then is the old one deleted. Each step
leaves a folder that can be read.
"""

import contextlib
import fcntl
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from antiphon.core.errors import InputError, OutputError, UsageError
from antiphon.core.ids import Group, Site
from antiphon.protocols.quorum.pdus import Entry
from antiphon.protocols.quorum.ports import Compact, Durable, Install, Recovered, Snapshot, Store

RECORD: Final = struct.Struct("!II")
"""Length and checksum of a record."""
SNAPSHOT: Final = struct.Struct("!QI")
"""Length and checksum of a snapshot."""
LARGEST_RECORD_BYTES: Final = 1 << 30

Write: TypeAlias = Store | Install | Compact


class Record(msgspec.Struct, frozen=True, array_like=True):
    """What one record says."""

    durable: Durable | None
    first: int
    entries: tuple[Entry, ...]


class Owner(msgspec.Struct, frozen=True):
    """Whose folder it is."""

    group: Group
    member: Site


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Record).decode


class Journal:
    """One member's files. Its methods block; `Disk` calls them in a thread."""

    def __init__(self, folder: Path, group: Group, member: Site, *, fsync: bool = True) -> None:
        self._folder: Final = folder
        self._fsync: Final = fsync
        self._durable: Durable | None = None
        self._snapshot: Snapshot | None = None
        self._entries: dict[int, Entry] = {}
        """The entries on disk that the latest snapshot does not cover, and some that it does."""
        self._number = 0
        self._file: int | None = None
        self._end = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise OutputError(f"The store {folder} cannot be used: {error.strerror}.") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._check_owner(Owner(group, member))
            self._read()
        except BlockingIOError:
            os.close(self._lock)
            raise UsageError(
                f"Another process uses the store {folder}.", hint="Give each member a folder of its own."
            ) from None
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def recovered(self) -> Recovered | None:
        """What the folder has; None if it is new."""
        if self._durable is None:
            return None
        index = 0 if self._snapshot is None else self._snapshot.index
        entries = []
        while index + 1 in self._entries:
            index += 1
            entries.append(self._entries[index])
        return Recovered(self._durable, self._snapshot, tuple(entries))

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        os.close(self._lock)

    # Writing

    def write(self, writes: Iterable[Write]) -> None:
        """Write and synchronize. If it fails, nothing of it counts: it can be written again."""
        pending = bytearray()
        for write in writes:
            if isinstance(write, Store):
                self._keep(write)
                pending += _framed(Record(write.durable, write.first, write.entries))
                continue
            self._append(pending)
            pending.clear()
            self._take_snapshot(write)
        self._append(pending)

    def _keep(self, write: Store) -> None:
        if write.durable is not None:
            self._durable = write.durable
        if write.entries:
            self._replace(write.first, write.entries)

    def _replace(self, first: int, entries: tuple[Entry, ...]) -> None:
        index = first
        while index in self._entries:  # what a later leader replaced
            del self._entries[index]
            index += 1
        self._entries.update(enumerate(entries, start=first))

    def _append(self, data: bytes | bytearray) -> None:
        if not data:
            return
        if self._file is None:
            self._begin_log()
        assert self._file is not None
        try:
            _write_all(self._file, data)
            self._synchronize(self._file)
        except OSError:
            # After a failed synchronization the kernel may believe that the data is safe: begin another log.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._end)
            os.close(self._file)
            self._file = None
            raise
        self._end += len(data)

    def _take_snapshot(self, write: Install | Compact) -> None:
        """Store a snapshot, then begin a log with what is still needed."""
        snapshot = write.snapshot
        path = self._folder / f"snapshot-{snapshot.index:020d}"
        head = SNAPSHOT.pack(snapshot.size, snapshot.checksum)
        self._write_aside(path, (head, snapshot.prefix, snapshot.data))
        before, self._snapshot = self._snapshot, snapshot
        first = snapshot.index + 1 if isinstance(write, Install) else write.first
        self._entries = {
            index: entry
            for index, entry in self._entries.items()
            if index >= first and not isinstance(write, Install)
        }
        self._begin_log()
        if before is not None and before.index != snapshot.index:
            self._delete(self._folder / f"snapshot-{before.index:020d}")

    def _begin_log(self) -> None:
        """Begin the next log with everything that the last one still says."""
        old, number = self._file, self._number + 1
        records = b""
        if self._durable is not None:
            first = min(self._entries, default=0)
            run = tuple(self._entries[index] for index in sorted(self._entries))
            records = _framed(Record(self._durable, first, run))
        path = self._path(number)
        self._write_aside(path, (records,))
        self._file = os.open(path, os.O_RDWR)
        self._end = os.lseek(self._file, 0, os.SEEK_END)
        self._number = number
        if old is not None:
            os.close(old)
        self._delete(self._path(number - 1))

    def _write_aside(self, path: Path, parts: Iterable[bytes]) -> None:
        aside = path.with_name(path.name + ".part")
        file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            for part in parts:
                _write_all(file, part)
            self._synchronize(file)
        except OSError:
            self._delete(aside)
            raise
        finally:
            os.close(file)
        aside.rename(path)
        self._synchronize_folder()

    def _synchronize(self, file: int) -> None:
        if self._fsync:
            os.fdatasync(file)

    def _synchronize_folder(self) -> None:
        if self._fsync:
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _path(self, number: int) -> Path:
        return self._folder / f"log-{number:010d}"

    def _delete(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()

    # Reading

    def _check_owner(self, owner: Owner) -> None:
        path = self._folder / "owner"
        if not path.exists():
            if any(self._folder.glob("log-*")):
                raise InputError(f"The store {self._folder} has lost the file that says whose it is.")
            self._write_aside(path, (msgspec.json.encode(owner),))
            return
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Owner)
        except (OSError, msgspec.MsgspecError) as error:
            raise InputError(f"The file {path} cannot be read: {error}.") from error
        if found != owner:
            raise UsageError(
                f"The store {self._folder} belongs to '{found.member}' of the group '{found.group}'.",
                hint="Give each member a folder of its own.",
            )

    def _read(self) -> None:
        for part in self._folder.glob("*.part"):
            self._delete(part)
        snapshots = sorted(self._folder.glob("snapshot-*"))
        if snapshots:
            self._snapshot = _read_snapshot(snapshots[-1])
        for path in snapshots[:-1]:
            self._delete(path)
        logs = sorted(self._folder.glob("log-*"))
        for path in logs[:-1]:
            self._delete(path)  # the last one says everything that they still say
        if logs:
            self._read_log(logs[-1])
            self._number = int(logs[-1].name.removeprefix("log-"))
            self._file = os.open(logs[-1], os.O_RDWR)
            os.lseek(self._file, self._end, os.SEEK_SET)
        if self._snapshot is not None and self._durable is None:
            raise InputError(f"The store {self._folder} has a snapshot and no log.")

    def _read_log(self, path: Path) -> None:
        data = path.read_bytes()
        begin = 0
        while begin < len(data):
            body = _record_at(data, begin)
            if body is None:
                if _has_record_behind(data, begin):
                    raise InputError(
                        f"The store's file {path} is damaged at byte {begin}.",
                        hint="Move the folder away: the member then takes its state from the others.",
                    )
                os.truncate(path, begin)
                break
            try:
                record = _decode(body)
            except msgspec.MsgspecError as error:
                raise InputError(f"The store's file {path} cannot be read: {error}.") from error
            self._keep(Store(0, record.durable, record.first, record.entries))
            begin += RECORD.size + len(body)
        self._end = begin


def _framed(record: Record) -> bytes:
    body = _encode(record)
    return RECORD.pack(len(body), zlib.crc32(body)) + body


def _record_at(data: bytes, begin: int) -> bytes | None:
    """The record that begins there; None if it is torn."""
    if begin + RECORD.size > len(data):
        return None
    length, checksum = RECORD.unpack_from(data, begin)
    body = data[begin + RECORD.size : begin + RECORD.size + length]
    return body if length and len(body) == length and zlib.crc32(body) == checksum else None


def _has_record_behind(data: bytes, begin: int) -> bool:
    """Whether a whole record follows a damaged one: then a disk lost what it had."""
    if begin + RECORD.size > len(data):
        return False
    (length, _) = RECORD.unpack_from(data, begin)
    behind = begin + RECORD.size + length
    return length <= LARGEST_RECORD_BYTES and behind < len(data) and _record_at(data, behind) is not None


def _read_snapshot(path: Path) -> Snapshot:
    data = memoryview(path.read_bytes())
    try:
        size, checksum = SNAPSHOT.unpack_from(data)
        blob = data[SNAPSHOT.size :]
        if len(blob) != size or zlib.crc32(blob) != checksum:
            raise ValueError("its checksum does not match")
        return Snapshot.read(blob)
    except (struct.error, ValueError) as error:
        raise InputError(
            f"The snapshot {path} is damaged: {error}.",
            hint="Move the folder away: the member then takes its state from the others.",
        ) from error


def _write_all(file: int, data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
