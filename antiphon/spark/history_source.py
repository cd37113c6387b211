"""The history logs of late-join handlers as a Spark data source: messages with their bodies.

    antiphon.spark.history_source.register(spark)
    messages = spark.read.format("antiphon-history").load("/var/lib/ledger")

Each file of a log is a partition. `position` counts the messages of a log from its beginning, deleted ones
included, in the order in which its member delivered them. A file is read up to what was written when the
query was planned, and up to a torn or damaged frame.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antiphon.core.errors import InputError
from antiphon.core.extras import lacking
from antiphon.core.packing import Packed
from antiphon.live.history import SUFFIX, read_batches, read_begin, why_unreadable
from antiphon.trace.arrow import pa

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
except ModuleNotFoundError:
    raise lacking("spark", "The data source of histories needs") from None

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT: Final = "antiphon-history"
DDL: Final = (
    "`group` string, site string, position long, sender string, incarnation long, number long, body binary"
)
MESSAGES: Final = pa.schema(
    [
        ("group", pa.string()), ("site", pa.string()), ("position", pa.int64()), ("sender", pa.string()),
        ("incarnation", pa.int64()), ("number", pa.int64()), ("body", pa.binary()),
    ]
)  # fmt: skip
BATCH_BYTES: Final = 4 << 20
"""Bodies that a task hands on at once. Raising it takes memory in the task."""


def register(spark: "SparkSession") -> None:
    """Make the format `antiphon-history` known to a session."""
    spark.dataSource.register(HistorySource)


class HistorySource(DataSource):  # type: ignore[misc]
    """The data source `antiphon-history`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return DDL

    def reader(self, schema: "StructType") -> "HistoryReader":  # noqa: ARG002 (Spark's interface)
        path = self.options.get("path")
        if path is None:
            raise InputError("Which history?", f"spark.read.format('{FORMAT}').load('folder') names it.")
        return HistoryReader(str(path))


class LogFile(InputPartition):  # type: ignore[misc]
    """A file of a log, up to the size that it had when the query was planned."""

    def __init__(self, path: str, size: int) -> None:
        super().__init__(path)
        self.path = path
        self.size = size


class HistoryReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def partitions(self) -> Sequence[InputPartition]:
        files = [self._path] if self._path.is_file() else sorted(self._path.glob(f"*{SUFFIX}"))
        if not files:
            raise InputError(
                f"There is no history at {self._path}: the folder has no file that ends in {SUFFIX}.",
                "antiphon.join(history='folder') keeps one; see docs/late-join.md.",
            )
        return [LogFile(str(file), file.stat().st_size) for file in files]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, LogFile)
        path = Path(partition.path)
        with path.open("rb") as file:
            begin = read_begin(file)
            if begin is None:
                raise InputError(f"The history {path} {why_unreadable(path)}.")
            position, pending, held = begin.logged, list[tuple[object, ...]](), 0
            for record, messages, _ in read_batches(file, partition.size):
                for place, body in enumerate(Packed(record.bodies)):
                    whose = (begin.group, begin.site, position + place)
                    name = (record.sender, record.incarnation, record.number + place)
                    pending.append((*whose, *name, bytes(body)))
                position += messages
                held += len(record.bodies)
                if held > BATCH_BYTES:
                    yield _batch(pending)
                    pending, held = [], 0
            yield _batch(pending)


def _batch(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns: list[Sequence[object]] = list(zip(*rows, strict=True)) or [()] * len(MESSAGES)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, MESSAGES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGES)
