"""What a growing audit keeps on disk: one SQLite database, changed in whole transactions.

A process that is killed leaves the state of its last whole batch. The audit's answer at any moment is worked
out in a transaction that is then rolled back, so that it leaves no mark.
"""

import pickle
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from antiphon.audit.windows.passes import Summary
from antiphon.audit.windows.routing import Chunk
from antiphon.core.errors import InputError, OutputError, UsageError

Array = Any
FORMAT: Final = "2"
"""The version of the tables below and of what lies in them."""
FILE: Final = "audit.sqlite"
TABLES: Final = """
create table if not exists facts (name text primary key, value blob) without rowid;
create table if not exists runs (run text primary key, state blob);
create table if not exists cuts (run text, window int, vector blob, primary key (run, window)) without rowid;
create table if not exists parts (id integer primary key, data blob);
create table if not exists chunks (run text, window int, data blob);
create index if not exists chunks_by_window on chunks (run, window);
create table if not exists summaries
    (run text, window int, key blob, data blob, primary key (run, window)) without rowid;
create table if not exists results (run text primary key, key blob, data blob) without rowid;
create table if not exists tables (path text primary key, data blob) without rowid;
"""


class Store:
    """The database of one audit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(
                folder / FILE, isolation_level=None, check_same_thread=False, timeout=0
            )
            self._database.execute("pragma journal_mode = wal")
            self._database.execute("pragma locking_mode = exclusive")
            self._database.execute("pragma synchronous = normal")
            self._database.executescript(TABLES)
        except (OSError, sqlite3.OperationalError) as error:
            raise _refused(folder, error) from error
        except sqlite3.DatabaseError as error:
            raise InputError(f"{folder / FILE} is no state of an audit.", "Name another folder.") from error
        if self.fact("format", FORMAT) != FORMAT:
            raise InputError(f"The state in {folder} is another version's.", "Name another folder.")
        with self.transaction():
            self.note("format", FORMAT)

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def transaction(self, *, keep: bool = True) -> Iterator[None]:
        """All changes within or none; without `keep`, none."""
        self._database.execute("begin")
        try:
            yield
        except BaseException:
            self._database.execute("rollback")
            raise
        self._database.execute("commit" if keep else "rollback")

    # Facts, runs and results

    def fact(self, name: str, missing: Any = None) -> Any:
        row = self._one("select value from facts where name = ?", name)
        return missing if row is None else pickle.loads(row)

    def note(self, name: str, value: Any) -> None:
        self._database.execute("insert or replace into facts values (?, ?)", (name, pickle.dumps(value)))

    def runs(self) -> list[str]:
        return [row[0] for row in self._database.execute("select run from runs order by run")]

    def load_run(self, run: str) -> Any:
        row = self._one("select state from runs where run = ?", run)
        return None if row is None else pickle.loads(row)

    def save_run(self, run: str, state: Any) -> None:
        self._database.execute("insert or replace into runs values (?, ?)", (run, pickle.dumps(state)))

    def forget_rows(self, run: str) -> None:
        """Drop a run's windows: it is judged as a whole."""
        for table in ("cuts", "chunks", "summaries"):
            self._database.execute(f"delete from {table} where run = ?", (run,))

    def result(self, run: str, key: bytes) -> Any:
        """What was found when the run was last judged, if that was under the same key."""
        row = self._database.execute(
            "select data from results where run = ? and key = ?", (run, key)
        ).fetchone()
        return None if row is None else pickle.loads(row[0])

    def save_result(self, run: str, key: bytes, result: Any) -> None:
        self._database.execute(
            "insert or replace into results values (?, ?, ?)", (run, key, pickle.dumps(result))
        )

    def table(self, path: str) -> Any:
        """The rows of a file of the table `runs` that was read before."""
        row = self._one("select data from tables where path = ?", path)
        return None if row is None else pickle.loads(row)

    def save_table(self, path: str, rows: Any) -> None:
        self._database.execute("insert or replace into tables values (?, ?)", (path, pickle.dumps(rows)))

    def _one(self, query: str, argument: str | int) -> Any:
        row = self._database.execute(query, (argument,)).fetchone()
        return None if row is None else row[0]

    # Rows

    def cuts(self, run: str, first: int = 0) -> list[Array]:
        """A run's cuts from a window on."""
        rows = self._database.execute(
            "select vector from cuts where run = ? and window >= ? order by window", (run, first)
        )
        return [np.frombuffer(row[0], np.int64) for row in rows]

    def add_cut(self, run: str, window: int, vector: Array) -> None:
        self._database.execute("insert into cuts values (?, ?, ?)", (run, window, vector.tobytes()))

    def add_part(self, data: bytes) -> int:
        return int(self._database.execute("insert into parts (data) values (?)", (data,)).lastrowid or 0)

    def part(self, identity: int) -> bytes:
        return bytes(self._one("select data from parts where id = ?", identity))

    def drop_part(self, identity: int) -> None:
        self._database.execute("delete from parts where id = ?", (identity,))

    def add_chunk(self, run: str, window: int, chunk: Chunk) -> None:
        data = msgspec.msgpack.encode(chunk)
        self._database.execute("insert into chunks values (?, ?, ?)", (run, window, data))

    def chunks(self, run: str, window: int) -> list[bytes]:
        rows = self._database.execute(
            "select data from chunks where run = ? and window = ? order by rowid", (run, window)
        )
        return [row[0] for row in rows]

    def windows(self, run: str, first: int = 0, last: int = 1 << 62) -> list[int]:
        """The windows of a range that have rows."""
        rows = self._database.execute(
            "select distinct window from chunks where run = ? and window between ? and ? order by window",
            (run, first, last),
        )
        return [row[0] for row in rows]

    def summary(self, run: str, window: int) -> tuple[Any, Summary] | None:
        """A window's summary, and under which circumstances it was made."""
        row = self._database.execute(
            "select key, data from summaries where run = ? and window = ?", (run, window)
        ).fetchone()
        return None if row is None else (pickle.loads(row[0]), pickle.loads(row[1]))

    def save_summary(self, run: str, window: int, key: Any, summary: Summary) -> None:
        self._database.execute(
            "insert or replace into summaries values (?, ?, ?, ?)",
            (run, window, pickle.dumps(key), pickle.dumps(summary)),
        )

    def drop_summaries(self, run: str, windows: Iterable[int]) -> None:
        """Forget what was found in windows that have got further rows."""
        self._database.executemany(
            "delete from summaries where run = ? and window = ?", ((run, window) for window in windows)
        )


def _refused(folder: Path, error: Exception) -> OutputError | UsageError:
    if "locked" in str(error):
        return UsageError(
            f"Another audit is using the state in {folder}.", "Wait for it to end, or name another folder."
        )
    reason = getattr(error, "strerror", None) or str(error)
    hint = "Choose a folder that you may write to and that has room."
    return OutputError(f"The state of the audit cannot be written to {folder}: {reason}.", hint)
