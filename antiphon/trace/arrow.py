"""The only module that imports pyarrow: the trace's two tables as Arrow schemas, and rows as tables.

Importing it without pyarrow raises an error that names the extra to install.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from antiphon.core.extras import lacking
from antiphon.trace.schema import Event, Run

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq
except ModuleNotFoundError:
    raise lacking("trace", "Parquet files and Arrow tables need") from None

__all__ = ["EVENTS", "RUNS", "as_table", "ds", "events_table", "pa", "pc", "pq", "runs_table"]

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


def as_table(schema: pa.Schema, columns: Sequence[Sequence[object]]) -> pa.Table:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
