"""Traces as a Spark data source: `spark.read.format("antiphon").load("trace")`, and `df.write` likewise.

`spark.readStream.format("antiphon")` follows a growing trace (`antiphon.spark.stream`).

    antiphon.spark.source.register(spark)
    events = spark.read.format("antiphon").load("trace")

Reading covers Parquet files and live members' segments, up to what was written when the first query of a
frame was planned.
With the option `pushdown` comparisons of run, site, kind and step with constants are applied where a file is
read; segments and row groups of Parquet files that they rule out are not read. A frame with this option is
for one query: Spark (4.3) keeps what a query pushed down for all later ones of the same frame, and for both
sides of a union or join of it, which would lack rows. So it is not the default. The option `expand` gives
each message of a batch a row of its own. Writing adds Parquet files to a trace; they get their names
when all tasks are done.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from antiphon.core.errors import InputError, OutputError
from antiphon.core.extras import lacking
from antiphon.trace.arrow import EVENTS, pa, pc, pq
from antiphon.trace.batches import expanded
from antiphon.trace.files import conform, open_trace, read_parts
from antiphon.trace.ranges import Ranges, ranges_of
from antiphon.trace.sanity import LARGEST_NUMBER
from antiphon.trace.segment_tables import SegmentFile, segment_tables

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        InputPartition,
        LessThan,
        LessThanOrEqual,
        WriterCommitMessage,
    )
except ModuleNotFoundError:
    raise lacking("spark", "The data source of traces needs") from None

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from antiphon.spark.stream import TraceStreamReader

DDL: Final = (
    "run string, site string, step long, kind string, sender string, number long, count int, `group` string,"
    " destinations array<string>, size int, time_ns long, message_id string, attempt int, domain string"
)
_TEXTS: Final = pa.list_(pa.field("element", pa.string()))
SPARK_EVENTS: Final = pa.schema(
    [pa.field(field.name, _TEXTS if pa.types.is_list(field.type) else field.type) for field in EVENTS]
)
"""The columns as Spark expects them from Python: all nullable, and lists of elements."""
PUSHED: Final = frozenset({"run", "site", "kind", "step"})
COMPARISONS: Final = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}


def register(spark: "SparkSession") -> None:
    """Make our formats known to a session: `antiphon`, `antiphon-history` and `antiphon-group`.

    Frames with the option `pushdown` can then have their filters applied where files are read.
    """
    from antiphon.spark import group_sink, history_source  # live groups take a while to load

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(TraceSource)
    history_source.register(spark)
    group_sink.register(spark)


class TraceSource(DataSource):  # type: ignore[misc]
    """The data source `antiphon`: the rows of a trace's `events`."""

    @classmethod
    def name(cls) -> str:
        return "antiphon"

    def schema(self) -> str:
        return DDL

    def reader(self, schema: "StructType") -> "TraceReader":  # noqa: ARG002 (Spark's interface)
        reader = FilteringReader if self._is_set("pushdown") else TraceReader
        return reader(self._path(), self._is_set("expand"))

    def streamReader(self, schema: "StructType") -> "TraceStreamReader":  # noqa: ARG002, N802 (Spark's interface)
        from antiphon.spark.stream import stream_reader  # it needs this module

        return stream_reader(self.options)

    def writer(self, schema: "StructType", overwrite: bool) -> "TraceWriter":
        if overwrite:
            raise OutputError("A trace is never overwritten.", "Use mode('append') or another folder.")
        missing = [field.name for field in EVENTS if not field.nullable and field.name not in schema.names]
        if missing:
            raise InputError(
                f"The column {missing[0]} is missing.", "docs/trace.md lists the columns of a trace."
            )
        return TraceWriter(self._path())

    def _is_set(self, option: str) -> bool:
        return str(self.options.get(option, "false")).lower() == "true"

    def _path(self) -> str:
        path = self.options.get("path")
        if path is None:
            raise InputError("Which trace?", "spark.read.format('antiphon').load('folder') names it.")
        return str(path)


class FilePart(InputPartition):  # type: ignore[misc]
    """The rows of one file: of a Parquet file, or of a segment up to the length that was found."""

    def __init__(self, file: str, segment: SegmentFile | None = None) -> None:
        super().__init__(file)
        self.file = file
        self.segment = segment


class TraceReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, path: str, expand: bool) -> None:
        self._path = path
        self._expand = expand
        self._filters: list[Filter] = []

    def partitions(self) -> Sequence[InputPartition]:
        files = open_trace(self._path)
        segments = [each for each in files.segments if self._may_hold(_ranges_of_segment(each))]
        parts = [FilePart(str(file)) for file in files.events]
        return parts + [FilePart(str(segment.path), segment) for segment in segments]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, FilePart)
        file = Path(partition.file)
        if partition.segment is None:
            parts = read_parts(file, EVENTS, lambda group: self._may_hold(ranges_of(group)))
        else:
            parts = segment_tables(partition.segment)
        for part in parts:
            table = self._kept(conform(file, part, EVENTS))
            yield from (expanded(table) if self._expand else table).cast(SPARK_EVENTS).to_batches()

    def _may_hold(self, ranges: Ranges) -> bool:
        return all(_may_match(ranges, each) for each in self._filters)

    def _kept(self, table: "pa.Table") -> "pa.Table":
        for each in self._filters:
            column = table.column(each.attribute[0])
            table = table.filter(_matches(column, each))
        return table


class FilteringReader(TraceReader):
    """Reads what the filters of one query leave; Spark refuses such a reader where pushdown is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's interface)
        """Keep what compares a column of `PUSHED` with a constant, and hand everything else back."""
        for each in filters:
            column = tuple[str, ...](getattr(each, "attribute", ()))
            if type(each) in (*COMPARISONS, In) and len(column) == 1 and column[0] in PUSHED:
                self._filters.append(each)
            else:
                yield each


def _ranges_of_segment(segment: SegmentFile) -> Ranges:
    """What the first frame of a segment says of its rows; an absence that it implies is one of them."""
    begin = segment.begin
    first = begin.first_step - begin.after_absence
    return {"run": (begin.run,) * 2, "site": (begin.site,) * 2, "step": (first, LARGEST_NUMBER)}


def _may_match(ranges: Ranges, condition: Filter) -> bool:
    """Whether rows with values in these ranges may match."""
    if condition.attribute[0] not in ranges:
        return True
    least, greatest = ranges[condition.attribute[0]]
    if isinstance(condition, In):
        return any(value is not None and least <= value <= greatest for value in condition.value)
    found = {
        EqualTo: least <= condition.value <= greatest,
        GreaterThan: greatest > condition.value,
        GreaterThanOrEqual: greatest >= condition.value,
        LessThan: least < condition.value,
        LessThanOrEqual: least <= condition.value,
    }[type(condition)]
    return bool(found)


def _matches(column: "pa.ChunkedArray", condition: Filter) -> Any:
    if isinstance(condition, In):
        return pc.is_in(column, pa.array(list(condition.value), column.type))
    compare = COMPARISONS[type(condition)]
    return compare(column, pa.scalar(condition.value, column.type))


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """A file that a task has written under a hidden name."""

    hidden: str


class TraceWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Each task writes one hidden file; the driver gives all of them their names at the end."""

    def __init__(self, path: str) -> None:
        self._folder = Path(path).resolve() / "events"

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        self._folder.mkdir(parents=True, exist_ok=True)
        hidden = self._folder / f".part-{secrets.token_hex(8)}.parquet"
        with pq.ParquetWriter(hidden, EVENTS, compression="zstd") as file:
            for batch in iterator:
                file.write_table(conform(hidden, pa.Table.from_batches([batch]), EVENTS))
        return Written(str(hidden))

    def commit(self, messages: "list[WriterCommitMessage | None]") -> None:
        for hidden in _hidden(messages):
            hidden.rename(hidden.with_name(hidden.name[1:]))

    def abort(self, messages: "list[WriterCommitMessage | None]") -> None:
        for hidden in _hidden(messages):
            hidden.unlink(missing_ok=True)


def _hidden(messages: "Iterable[WriterCommitMessage | None]") -> list[Path]:
    return [Path(message.hidden) for message in messages if isinstance(message, Written)]
