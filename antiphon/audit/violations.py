"""Violations as a Parquet table: one file per judging task."""

import os
import secrets
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.check.verdict import Violation
from antiphon.core.errors import OutputError
from antiphon.core.recording import Property
from antiphon.trace.arrow import pa, pq

ROWS_PER_BATCH: Final = 10_000
"""Violations written at once. Raising it takes more memory in the task."""

VIOLATIONS: Final = pa.schema(
    [
        pa.field("trace", pa.string()),
        pa.field("run", pa.string()),
        pa.field("property", pa.string()),
        pa.field("site", pa.string()),
        pa.field("sender", pa.string()),
        pa.field("number", pa.int64()),
        pa.field("promised", pa.bool_()),
        pa.field("size", pa.int64()),
        pa.field("explanation", pa.string()),
        pa.field(
            "witness",
            pa.list_(
                pa.struct(
                    [
                        pa.field("site", pa.string()),
                        pa.field("step", pa.int64()),
                        pa.field("sender", pa.string()),
                        pa.field("number", pa.int64()),
                    ]
                )
            ),
        ),
    ]
)
"""The table of violations that an audit can write."""


class ViolationFile:
    """The file of one task, opened at its first violation and renamed to its final name once complete.

    Until then its name is its own: on a cluster, an attempt that is believed dead may still write while the
    next attempt does.
    """

    def __init__(self, folder: str | None, part: int) -> None:
        self._folder = None if folder is None else Path(folder)
        self._part = part
        self._writer: Any = None
        self._hidden = self._final = Path()
        self.problem: str | None = None

    def __enter__(self) -> "ViolationFile":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._writer is None:
            return
        try:
            self._writer.close()
            if kind is None and self.problem is None:
                self._hidden.rename(self._final)
        except OSError as error:
            self.problem = self.problem or error.strerror or str(error)
        finally:
            self._hidden.unlink(missing_ok=True)

    def write(self, trace: str, violations: Iterable[Violation], promises: Sequence[Property]) -> None:
        """Write the violations of one run; without a folder, do nothing."""
        if self._folder is None or self.problem is not None:
            return
        rows = iter(violations)
        try:
            while batch := list(islice(rows, ROWS_PER_BATCH)):
                if self._writer is None:
                    self._final = self._folder / f"violations-{self._part:05d}.parquet"
                    self._hidden = self._folder / f".{self._final.stem}-{secrets.token_hex(4)}.parquet"
                    self._writer = pq.ParquetWriter(self._hidden, VIOLATIONS, compression="zstd")
                self._writer.write_table(violations_table(batch, trace, promises))
        except OSError as error:
            self.problem = error.strerror or str(error)


def empty_folder(folder: Path) -> str:
    """Create a folder for violations and check that it can take them; its whole path."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if next(folder.glob("*.parquet"), None) is not None:
            raise OutputError(f"The folder {folder} already holds Parquet files.", "Choose another folder.")
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"The violations cannot be written to {folder}: {reason}.") from error
    return str(folder.resolve())


def remove_unfinished(folder: str | None) -> None:
    """Remove what tasks that died have left behind in the folder of a finished audit."""
    if folder is not None:
        for file in Path(folder).glob(".violations-*.parquet"):
            file.unlink(missing_ok=True)


def remove_violations(folder: str | None) -> None:
    """Remove what the tasks of a failed audit have written; the folder was without Parquet files before."""
    if folder is not None:
        remove_unfinished(folder)
        for file in Path(folder).glob("violations-*.parquet"):
            file.unlink(missing_ok=True)


def violations_table(violations: Sequence[Violation], trace: str, promises: Sequence[Property]) -> pa.Table:
    """Violations of one trace as rows; `promised` says whether their run promised the property."""
    rows = [
        {
            **msgspec.to_builtins(violation),
            "trace": trace,
            "promised": violation.property in promises,
        }
        for violation in violations
    ]
    return pa.Table.from_pylist(rows, schema=VIOLATIONS)
