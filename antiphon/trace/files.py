"""Traces on disk: a folder that holds `events/`, `runs/` and `calls/`, with Parquet files and live logs.

Writers give a Parquet file its name only once it is complete, so a reader sees complete files or none.
Readers accept files of other programs: any order of rows, any split into files, other integer widths, large
or dictionary-encoded strings, further columns. An error names the file and the column. Segments are read up
to their last whole frame (`segment_tables`).
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from antiphon.core.calls import Call
from antiphon.core.errors import InputError, OutputError
from antiphon.core.ids import Group, Site
from antiphon.core.recording import PROMISABLE, Property
from antiphon.trace.arrow import EVENTS, RUNS, calls_table, events_table, pa, pq, runs_table
from antiphon.trace.call_log import LINES
from antiphon.trace.frames import SUFFIX, safe_name
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.sanity import require_sane
from antiphon.trace.schema import Event, Run, Trace
from antiphon.trace.segment_tables import SegmentFile, open_segments, segment_tables

REQUIRED_EVENT_COLUMNS: Final = ("run", "site", "step", "kind", "sender", "number")
REQUIRED_RUN_COLUMNS: Final = ("run",)
FILLED_COLUMNS: Final = frozenset({"run", "site", "step", "kind"})
"""Columns in which no row may be null."""

_LAYOUT_HINT: Final = (
    "A trace is a folder that holds events/ and runs/ with Parquet files or segments; see docs/trace.md."
)
_TORN_HINT: Final = "The file is torn or is no Parquet file: copy or write it again."

OPENING_TRIALS: Final = 5
"""Attempts to list the segments of a trace while live members keep starting new ones."""

Rows: TypeAlias = "pa.Table | MemoryRecorder | Sequence[Event]"


class TraceFiles(msgspec.Struct, frozen=True):
    """The files of a trace: Parquet files with checked schemas, and segments of live members."""

    folder: Path
    events: tuple[Path, ...]
    runs: tuple[Path, ...]
    segments: tuple[SegmentFile, ...] = ()
    calls: tuple[Path, ...] = ()
    """Parquet files and logs of live clients."""


# Writing


def write_trace(
    folder: Path | str,
    tables: Iterable[Rows],
    runs: Iterable[Run],
    *,
    append: bool = False,
    calls: Sequence[Call] = (),
) -> TraceFiles:
    """Write one events file per table, recorder or list of events, one file with the runs, and one with the
    calls if there are any.

    A folder that already holds a trace is refused unless `append` is given, which adds files to it. Only
    one writer at a time.
    """
    place = Path(folder)
    try:
        files = _write(place, tables, runs, append=append)
        return files if not calls else _write_calls(files, calls)
    except OSError as error:
        raise _unwritable(place, error) from error


def _unwritable(place: Path, error: OSError) -> OutputError:
    reason = error.strerror or str(error)
    hint = "Choose a folder that you may write to and that has room."
    return OutputError(f"The trace cannot be written to {place}: {reason}.", hint)


def note_run(folder: Path | str, run: Run) -> None:
    """Write a run's row of `runs` unless it is there already; any number of processes may try at once."""
    runs_folder = Path(folder) / "runs"
    final = runs_folder / f"{safe_name(run.run)}.parquet"
    pending: list[tuple[Path, Path]] = []
    try:
        runs_folder.mkdir(parents=True, exist_ok=True)
        if final.exists():
            return
        _write_hidden(runs_table([run]), final, pending)
        for hidden, _ in pending:
            hidden.rename(final)
    except OSError as error:
        raise _unwritable(Path(folder), error) from error
    finally:
        for hidden, _ in pending:
            hidden.unlink(missing_ok=True)


def _write(place: Path, tables: Iterable[Rows], runs: Iterable[Run], *, append: bool) -> TraceFiles:
    events_folder, runs_folder = place / "events", place / "runs"
    before = [_files(events_folder, ".parquet"), _files(runs_folder, ".parquet")]
    if not append:
        require_no_trace(place)
    events_folder.mkdir(parents=True, exist_ok=True)
    runs_folder.mkdir(exist_ok=True)
    pending: list[tuple[Path, Path]] = []
    try:
        for rows, name in zip(tables, _free_names(events_folder), strict=False):
            _write_hidden(_as_table(rows), name, pending)
        _write_hidden(runs_table(runs), next(_free_names(runs_folder)), pending)
        for hidden, final in pending:
            hidden.rename(final)
    finally:
        for hidden, _ in pending:
            hidden.unlink(missing_ok=True)
    written = [final for _, final in pending]
    events, runs_files = tuple(before[0] + written[:-1]), tuple(before[1] + written[-1:])
    return TraceFiles(place, events, runs_files, _open_segments(events_folder), _call_files(place))


def _write_calls(files: TraceFiles, calls: Sequence[Call]) -> TraceFiles:
    folder = files.folder / "calls"
    folder.mkdir(exist_ok=True)
    pending: list[tuple[Path, Path]] = []
    try:
        _write_hidden(calls_table(calls), next(_free_names(folder)), pending)
        for hidden, final in pending:
            hidden.rename(final)
    finally:
        for hidden, _ in pending:
            hidden.unlink(missing_ok=True)
    return msgspec.structs.replace(files, calls=_call_files(files.folder))


def _call_files(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(_files(folder / "calls", ".parquet") + _files(folder / "calls", LINES)))


def require_no_trace(folder: Path) -> None:
    """Refuse a folder that already holds a trace."""
    found = (
        _files(folder / "events", ".parquet"),
        _files(folder / "runs", ".parquet"),
        _files(folder / "events", SUFFIX),
        _call_files(folder),
    )
    if any(found):
        hint = "Choose another folder, or remove the old trace first."
        raise OutputError(f"The folder {folder} already holds a trace.", hint)


def _as_table(rows: Rows) -> pa.Table:
    if isinstance(rows, MemoryRecorder):
        return rows.table()
    return rows if isinstance(rows, pa.Table) else events_table(rows)


def _free_names(folder: Path) -> Iterator[Path]:
    """Names in order, without those that files have already."""
    names = (folder / f"part-{index:05d}.parquet" for index in count())
    return (name for name in names if not name.exists())


def _write_hidden(table: pa.Table, final: Path, pending: list[tuple[Path, Path]]) -> None:
    """Write under a name that readers skip, and note the final name."""
    hidden = final.with_name(f".{final.name}.{secrets.token_hex(8)}.part")
    pending.append((hidden, final))
    pq.write_table(table, hidden, **parquet_options(table.schema))


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """How a trace's files are written: strings as codes, and integers, most of which rise, as differences.

    Against plain integers that makes files far smaller, and three times as fast to read.
    """
    texts = (pa.types.is_string, pa.types.is_dictionary)
    return {
        "compression": "zstd",
        "use_dictionary": [field.name for field in schema if any(is_text(field.type) for is_text in texts)],
        "column_encoding": {
            field.name: "DELTA_BINARY_PACKED" for field in schema if pa.types.is_integer(field.type)
        },
    }


# Reading


def open_trace(path: Path | str) -> TraceFiles:
    """Find a trace's files and check them by footers and first frames alone, without reading a row."""
    place = Path(path)
    if not place.exists():
        raise InputError(f"There is no trace at {place}: the folder does not exist.", _LAYOUT_HINT)
    calls = _call_files(place)
    if not (place / "events").is_dir() and not calls:
        raise InputError(f"{place} is not a trace: it has no folder events/.", _LAYOUT_HINT)
    events, runs = _files(place / "events", ".parquet"), _files(place / "runs", ".parquet")
    if not events and not _files(place / "events", SUFFIX) and not calls:
        raise InputError(f"The trace {place} has no Parquet file and no segment in events/.", _LAYOUT_HINT)
    for file in events:
        require_columns(file, EVENTS, REQUIRED_EVENT_COLUMNS)
    for file in runs:
        require_columns(file, RUNS, REQUIRED_RUN_COLUMNS)
    return TraceFiles(place, tuple(events), tuple(runs), _open_segments(place / "events"), calls)


def read_trace(path: Path | str) -> Trace:
    """Read a whole trace into memory, and refuse one whose rows cannot be judged.

    A run without a row in `runs` gets one without promises and groups; it is named in `unpromised`.
    """
    files = open_trace(path)
    events = [event for file, part in event_parts(files) for event in events_of(conform(file, part, EVENTS))]
    require_sane(events)
    recorded: dict[str, Run] = {}
    unpromised = {event.run for event in events}
    for file in files.runs:
        for run, promised in read_runs(file):
            if run.run in recorded:
                raise InputError(f"The run {run.run} has two rows in runs/, the second in {file}.")
            recorded[run.run] = run
            if promised:
                unpromised.discard(run.run)
            else:
                unpromised.add(run.run)
    nameless = sorted(unpromised - recorded.keys())
    return Trace(events, [*recorded.values(), *map(Run, nameless)], frozenset(unpromised))


def events_of(table: pa.Table) -> list[Event]:
    """The rows of a table of the schema `EVENTS`."""
    columns = [table.column(name).to_pylist() for name in EVENTS.names]
    where = EVENTS.names.index("destinations")
    columns[where] = [None if sites is None else tuple(sites) for sites in columns[where]]
    return [Event(*row) for row in zip(*columns, strict=True)]


def event_parts(
    files: TraceFiles, may_hold: Callable[[pq.RowGroupMetaData], bool] | None = None
) -> Iterator[tuple[Path, pa.Table]]:
    """The rows of a trace in parts, each with its file; `conform` casts them to the schema.

    Row groups whose metadata `may_hold` rules out are left out.
    """
    for file in files.events:
        yield from ((file, part) for part in read_parts(file, EVENTS, may_hold))
    for segment in files.segments:
        yield from ((segment.path, part) for part in segment_tables(segment))


class FoundFiles(NamedTuple):
    """The paths of a trace's events."""

    parquet: list[Path]
    segments: list[Path]


def trace_files(folder: Path) -> FoundFiles:
    """What a trace's folder holds of events; it may be empty, or not be there yet."""
    return FoundFiles(_files(folder / "events", ".parquet"), _files(folder / "events", SUFFIX))


def runs_files(folder: Path) -> list[Path]:
    """The files of a trace's table `runs`."""
    return _files(folder / "runs", ".parquet")


def _files(folder: Path, suffix: str) -> list[Path]:
    """Files of one kind below a folder, in order of name, without hidden ones, which are unfinished."""
    found = (path for path in folder.rglob(f"*{suffix}") if path.is_file())
    return sorted(path for path in found if not path.name.startswith((".", "_")))


def _open_segments(folder: Path) -> tuple[SegmentFile, ...]:
    """All segments at one moment: if a new one appears meanwhile, all are opened again."""
    found = _files(folder, SUFFIX)
    for _ in range(OPENING_TRIALS):
        segments = open_segments(found)
        before, found = found, _files(folder, SUFFIX)
        if found == before:
            break
    return segments


def require_columns(file: Path, schema: pa.Schema, required: Sequence[str]) -> None:
    """InputError unless a Parquet file has the columns of a table, of types that fit."""
    found = _footer(file)
    for field in schema:
        index = found.get_all_field_indices(field.name)
        if len(index) > 1:
            raise InputError(f"The column {field.name} occurs twice in {file}.", _LAYOUT_HINT)
        if not index and field.name in required:
            hint = f"Every trace needs {', '.join(required)}; see docs/trace.md."
            raise InputError(f"The column {field.name} is missing from {file}.", hint)
        if index and not _fits(found.field(index[0]).type, field.type):
            got, wanted = found.field(index[0]).type, field.type
            hint = f"Cast it to {wanted} when writing the file; see docs/trace.md."
            raise InputError(f"The column {field.name} of {file} is of type {got}, not {wanted}.", hint)


def _footer(file: Path) -> pa.Schema:
    try:
        return pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} cannot be read as Parquet.", _TORN_HINT) from error


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column's type holds the same values; a column of nulls fits any type."""
    if pa.types.is_null(found):
        return True
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_integer(found))
    if pa.types.is_string(wanted):
        return _is_text(found)
    if pa.types.is_map(wanted):
        return bool(pa.types.is_map(found) and _is_text(found.key_type) and _is_text_list(found.item_type))
    return _is_text_list(found)


def _is_text(found: pa.DataType) -> bool:
    kinds: tuple[Callable[[pa.DataType], bool], ...]
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(found) for is_kind in kinds)


def _is_text_list(found: pa.DataType) -> bool:
    kinds: tuple[Callable[[pa.DataType], bool], ...]
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(found) for is_kind in kinds) and _fits(found.value_type, pa.string())


def _read(file: Path, schema: pa.Schema) -> pa.Table:
    """A file's rows in exactly this schema."""
    parts = [conform(file, part, schema) for part in read_parts(file, schema)]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def read_parts(
    file: Path, schema: pa.Schema, may_hold: Callable[[pq.RowGroupMetaData], bool] | None = None
) -> Iterator[pa.Table]:
    """A file's rows, a row group at a time, so that a large file need not fit into memory."""
    present = [name for name in schema.names if name in _footer(file).names]
    try:
        parquet = pq.ParquetFile(file)
        for index in range(parquet.num_row_groups):
            if may_hold is None or may_hold(parquet.metadata.row_group(index)):
                yield parquet.read_row_group(index, columns=present)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} cannot be read as Parquet.", _TORN_HINT) from error


def conform(file: Path, table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows in exactly this schema: absent columns become null, everything else is cast."""
    return pa.Table.from_arrays([_column(file, table, field) for field in schema], schema=schema)


def _column(file: Path, table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(field.name)
    if field.name in FILLED_COLUMNS and column.null_count:
        hint = "Each row needs its run, site, step and kind; see docs/trace.md."
        raise InputError(f"The column {field.name} of {file} has rows without a value.", hint)
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        hint = f"Its values must fit {field.type}; see docs/trace.md."
        raise InputError(f"The column {field.name} of {file} cannot be read: {error}.", hint) from error


def read_runs(file: Path) -> list[tuple[Run, bool]]:
    """The runs of a file, and for each whether its promises were recorded."""
    return runs_of(file, _read(file, RUNS))


def runs_of(file: Path, table: pa.Table) -> list[tuple[Run, bool]]:
    """The rows of a table of the schema `RUNS`; `file` is named where they cannot be read."""
    runs: list[tuple[Run, bool]] = []
    for row in table.to_pylist():
        promises = _promises(file, row["run"], row["promises"] or ())
        groups = None if row["groups"] is None else _groups(file, row["run"], row["groups"])
        run = Run(row["run"], row["protocol"], promises, groups, row["parameters"], row["seed"])
        runs.append((run, row["promises"] is not None))
    return runs


def _promises(file: Path, run: str, names: Iterable[object]) -> tuple[Property, ...]:
    found = set(names)
    unknown = sorted(map(str, found - set(PROMISABLE)))
    if unknown:
        hint = f"The properties are {', '.join(PROMISABLE)}."
        raise InputError(f"The run {run} in {file} promises {unknown[0]!r}, which is no property.", hint)
    return tuple(name for name in PROMISABLE if name in found)


def _groups(
    file: Path, run: str, pairs: Iterable[tuple[Group, Sequence[Site] | None]]
) -> dict[Group, tuple[Site, ...]]:
    groups: dict[Group, tuple[Site, ...]] = {}
    for group, sites in pairs:
        if group in groups or sites is None or None in sites:
            raise InputError(f"The groups of run {run} in {file} are not a map from names to sites.")
        groups[group] = tuple(sites)
    return groups
