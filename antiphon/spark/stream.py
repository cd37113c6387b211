"""A growing trace as a stream of rows: live members' segments and Parquet files, as they are written.

    antiphon.spark.stream.register(spark)
    events = spark.readStream.format("antiphon-growing").load("trace")

An offset has a position for each file (`antiphon.trace.growth`), so a query that is started again from its
checkpoint reads each row exactly once. A micro-batch has one partition per file that has grown. With the
option `rows` it has about that many rows, at least a frame of each segment.

The absence in which a log ends that breaks off is no row of the stream: the log may still go on.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antiphon.core.errors import InputError, UsageError
from antiphon.core.extras import lacking
from antiphon.trace.arrow import EVENTS, pa
from antiphon.trace.batches import expanded
from antiphon.trace.files import conform
from antiphon.trace.growth import Position, Stretch, latest, read_stretch, stretches

try:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
except ModuleNotFoundError:
    raise lacking("spark", "A stream of a trace needs") from None

from antiphon.spark.source import DDL, SPARK_EVENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT: Final = "antiphon-growing"
Offset = Mapping[str, Mapping[str, Any]]
"""By file below `events/`: a `Position` as a dict."""


def register(spark: "SparkSession") -> None:
    """Make the format `antiphon-growing` known to a session."""
    spark.dataSource.register(GrowingTrace)


def positions_of(offset: Offset) -> dict[str, Position]:
    """An offset of the stream as positions."""
    return msgspec.convert(offset, dict[str, Position])


class GrowingTrace(DataSource):  # type: ignore[misc]
    """The rows of a trace's `events` as a stream."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return DDL

    def streamReader(self, schema: "StructType") -> "TraceStreamReader":  # noqa: ARG002, N802 (Spark's interface)
        return stream_reader(self.options)


def stream_reader(options: Mapping[str, str]) -> "TraceStreamReader":
    """The reader that the options `path`, `rows` and `expand` of a source ask for."""
    path, rows = options.get("path"), options.get("rows")
    if path is None:
        raise InputError("Which trace?", f"spark.readStream.format('{FORMAT}').load('folder') names it.")
    if rows is not None and not (rows.isdecimal() and int(rows)):
        raise UsageError(
            f"The option rows is {rows!r}.", "It says how many rows a micro-batch has: 1 or more."
        )
    return TraceStreamReader(
        str(path), None if rows is None else int(rows), options.get("expand", "false").lower() == "true"
    )


class StretchPart(InputPartition):  # type: ignore[misc]
    """The new rows of one file."""

    def __init__(self, stretch: Stretch) -> None:
        super().__init__(str(stretch.path))
        self.stretch = stretch


class TraceStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """Reads what a trace has gained since an offset."""

    def __init__(self, path: str, rows: int | None = None, expand: bool = False) -> None:
        self._folder = Path(path)
        self._rows = rows
        self._expand = expand

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's interface)
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's interface)
        return ReadAllAvailable() if self._rows is None else ReadMaxRows(self._rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's interface)
        known = positions_of(start)
        bounded = isinstance(limit, ReadMaxRows)
        found = latest(self._folder, known, limit.max_rows) if bounded else latest(self._folder, known)
        offset: dict[str, Any] = msgspec.to_builtins(found)
        return offset

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        found = stretches(self._folder, positions_of(start), positions_of(end))
        return [StretchPart(stretch) for stretch in found]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, StretchPart)
        path = partition.stretch.path
        for part in read_stretch(partition.stretch):
            table = conform(path, part, EVENTS)
            yield from (expanded(table) if self._expand else table).cast(SPARK_EVENTS).to_batches()
