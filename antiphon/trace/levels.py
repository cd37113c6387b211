"""The levels of acceptance that messages reach, beside the rows of a trace.

They are of SCO alone and judged by no property, so they have a folder of their own in a trace, `levels/`, of
JSON lines. `spark.read.json("TRACE/levels")` reads it, too.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from antiphon.core.errors import InputError, OutputError
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds

FOLDER: Final = "levels"
SUFFIX: Final = ".jsonl"
FLUSH_ROWS: Final = 256
"""Rows that a log collects before it writes them. Raising it costs rows when a process is killed."""


class LevelRow(msgspec.Struct, frozen=True, gc=False):
    """At a site, messages number, number+1, … of a sender have reached a level."""

    run: str
    site: Site
    time_ns: Nanoseconds
    sender: Site
    number: int
    count: int
    level: str


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(LevelRow)


class LevelLog:
    """Appends rows to one file; what a killed process had not written is lost."""

    def __init__(self, trace: Path, stem: str) -> None:
        self._path: Final = trace / FOLDER / f"{stem}{SUFFIX}"
        self._rows: list[LevelRow] = []
        self._file: BinaryIO | None = None

    def add(self, row: LevelRow) -> None:
        self._rows.append(row)
        if len(self._rows) >= FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what was collected; raises OutputError if that fails."""
        if not self._rows:
            return
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("ab", buffering=0)
            self._file.write(_encoder.encode_lines(self._rows))
        except OSError as error:
            raise OutputError(f"The levels cannot be written to {self._path}: {error.strerror}.") from error
        self._rows.clear()

    def close(self) -> None:
        try:
            self.flush()
        finally:
            if self._file is not None:
                self._file.close()
                self._file = None


def write_levels(trace: Path, stem: str, rows: Iterable[LevelRow]) -> None:
    """Append rows to a trace's levels."""
    log = LevelLog(trace, stem)
    try:
        for row in rows:
            log.add(row)
    finally:
        log.close()


def read_levels(trace: Path | str) -> list[LevelRow]:
    """All levels of a trace, file by file; a line that was cut off at the end of a file is left out."""
    rows: list[LevelRow] = []
    for path in sorted((Path(trace) / FOLDER).glob(f"*{SUFFIX}")):
        lines = path.read_bytes().split(b"\n")
        for number, line in enumerate(lines[:-1], start=1):
            try:
                rows.append(_decoder.decode(line))
            except msgspec.MsgspecError as error:
                raise InputError(f"Line {number} of {path} is no level: {error}.") from error
    return rows
