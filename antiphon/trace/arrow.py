"""The only module that imports pyarrow: the trace's three tables as Arrow schemas, and rows as tables.

Importing it without pyarrow raises an error that names the extra to install.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from antiphon.core.calls import Call
from antiphon.core.extras import lacking
from antiphon.trace.calls import value_text
from antiphon.trace.schema import Event, Run

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ModuleNotFoundError:
    raise lacking("trace", "Parquet files and Arrow tables need") from None

__all__ = [
    "CALLS",
    "EVENTS",
    "RUNS",
    "as_table",
    "calls_table",
    "csv_rows",
    "dataset",
    "events_table",
    "json_rows",
    "pa",
    "pc",
    "pq",
    "runs_table",
]

EVENTS: Final = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("site", pa.string(), nullable=False),
        pa.field("step", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("sender", pa.string()),
        pa.field("number", pa.int64()),
        pa.field("count", pa.int32()),
        pa.field("group", pa.string()),
        pa.field("destinations", pa.list_(pa.string())),
        pa.field("size", pa.int32()),
        pa.field("time_ns", pa.int64()),
        pa.field("message_id", pa.string()),
        pa.field("attempt", pa.int32()),
        pa.field("domain", pa.string()),
    ]
)

RUNS: Final = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("protocol", pa.string()),
        pa.field("promises", pa.list_(pa.string())),
        pa.field("groups", pa.map_(pa.string(), pa.list_(pa.string()))),
        pa.field("parameters", pa.string()),
        pa.field("seed", pa.int64()),
    ]
)

CALLS: Final = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("client", pa.string(), nullable=False),
        pa.field("call", pa.int64(), nullable=False),
        pa.field("object", pa.string(), nullable=False),
        pa.field("model", pa.string()),
        pa.field("operation", pa.string(), nullable=False),
        pa.field("arguments", pa.string()),
        pa.field("result", pa.string()),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64()),
        pa.field("clock", pa.string()),
    ]
)


def events_table(events: Iterable[Event]) -> pa.Table:
    """Events as a table of the schema `EVENTS`, in the order given."""
    rows = list(events)
    return as_table(EVENTS, [[getattr(row, name) for row in rows] for name in EVENTS.names])


def runs_table(runs: Iterable[Run]) -> pa.Table:
    """Runs as a table of the schema `RUNS`, in the order given."""
    rows = list(runs)
    columns: list[Sequence[object]] = [[getattr(row, name) for row in rows] for name in RUNS.names]
    where = RUNS.get_field_index("groups")
    columns[where] = [None if row.groups is None else list(row.groups.items()) for row in rows]
    return as_table(RUNS, columns)


def calls_table(calls: Iterable[Call]) -> pa.Table:
    """Calls as a table of the schema `CALLS`, in the order given."""
    rows = list(calls)
    names = ["number" if name == "call" else name for name in CALLS.names]
    columns: list[Sequence[object]] = [[getattr(row, name) for row in rows] for name in names]
    columns[CALLS.get_field_index("arguments")] = [value_text(row.arguments) for row in rows]
    columns[CALLS.get_field_index("result")] = [
        value_text(row.result) if row.answered else None for row in rows
    ]
    return as_table(CALLS, columns)


def as_table(schema: pa.Schema, columns: Sequence[Sequence[object]]) -> pa.Table:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def dataset(files: Sequence[str], schema: pa.Schema) -> Any:
    """Parquet files as an Arrow dataset. Its module is loaded here: it takes long, and few need it."""
    from pyarrow.dataset import dataset as opened

    return opened(files, schema, format="parquet")


def json_rows(data: bytes, schema: pa.Schema, *, has_all: bool = False) -> pa.Table:
    """JSON lines as a table of these fields; `pa.ArrowInvalid` if a value is of another type, or the schema
    `has_all` and a line has another field. A field that no line has costs as much as one that all have."""
    from pyarrow import json

    return json.read_json(
        pa.BufferReader(data),
        read_options=json.ReadOptions(use_threads=False, block_size=max(len(data), 1)),
        parse_options=json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="error" if has_all else "ignore"
        ),
    ).select(schema.names)


def csv_rows(data: bytes, names: Sequence[str], wanted: Sequence[str], delimiter: str) -> pa.Table:
    """Lines of CSV without quotes as a table of texts."""
    from pyarrow import csv

    return csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(use_threads=False, block_size=max(len(data), 1), column_names=names),
        parse_options=csv.ParseOptions(delimiter=delimiter, quote_char=False, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.string()), include_columns=wanted, strings_can_be_null=False
        ),
    )
