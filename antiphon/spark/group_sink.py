"""A live group as a sink of Spark's streams: each row is multicast, at least once, with an id.

    antiphon.spark.group_sink.register(spark)
    orders.writeStream.format("antiphon-group").option("group", "orders").start()

A task with rows joins the group, sends them in order, waits until all members hold them, and leaves. A batch
that Spark repeats is sent again with the same ids; `antiphon.StreamRows` takes each row once.

Options: `group`; `name`, the members' name before partition and batch (default `spark`); `members`, how many
members besides the task must be there (default 1); `timeout`, in seconds (default 60); and `order`,
`network`, `key` and `insecure` as in `antiphon.join`.
"""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from antiphon import sync
from antiphon.core.errors import AntiphonError, OutputError, UsageError
from antiphon.core.extras import lacking
from antiphon.live.rows import RowId, StreamRow
from antiphon.trace.arrow import pa

try:
    from pyspark import TaskContext
    from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
except ModuleNotFoundError:
    raise lacking("spark", "The sink for groups needs") from None

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT: Final = "antiphon-group"
JOINING: Final = ("order", "network", "key")
KNOWN: Final = frozenset({"group", "name", "members", "timeout", "insecure", *JOINING})
SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname", "triggerinterval"})


def register(spark: "SparkSession") -> None:
    """Make the format `antiphon-group` known to a session."""
    spark.dataSource.register(GroupSink)


class Destination:
    """What the options say: the group, and how to join it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        unknown = sorted({*options} - KNOWN - SPARKS_OWN)
        if unknown:
            raise UsageError(f"There is no option '{unknown[0]}'.", f"There are: {', '.join(sorted(KNOWN))}.")
        if not options.get("group"):
            raise UsageError("Which group?", f"writeStream.format('{FORMAT}').option('group', 'orders')")
        self.group = options["group"]
        self.name = options.get("name", "spark")
        self.members = _number(options, "members", 1)
        self.timeout_s = _number(options, "timeout", 60)
        self.joining: dict[str, Any] = {name: options[name] for name in JOINING if name in options}
        if options.get("insecure", "false").lower() == "true":
            self.joining["insecure"] = True


def _number(options: Mapping[str, str], name: str, usual: int) -> int:
    text = options.get(name, str(usual))
    if not text.isdecimal() or not int(text):
        raise UsageError(f"The option {name} is {text!r}.", "It is a whole number, 1 or more.")
    return int(text)


class GroupSink(DataSource):  # type: ignore[misc]
    """The data source `antiphon-group`: streams are written to it, and nothing is read from it."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "GroupWriter":  # noqa: ARG002, N802
        return GroupWriter(Destination(self.options))


@dataclass
class Sent(WriterCommitMessage):  # type: ignore[misc]
    """How many rows a task has sent."""

    rows: int


class GroupWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Sent:
        """Runs in a task: send its rows, and return when every member holds them."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId") or "query"
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        first = next((each for each in iterator if each.num_rows), None)
        if first is None:
            return Sent(0)
        identity = RowId(query, context.partitionId(), batch, 0)
        name = f"{self._destination.name}-{identity.partition}-{context.taskAttemptId()}"
        return Sent(send_rows(self._destination, name, _rows(first, iterator), identity))

    def commit(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:  # noqa: N803
        """The rows were with all members before the tasks ended: there is nothing left to do."""

    def abort(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:  # noqa: N803
        """What was sent stays sent; the repetition has the same ids."""


def _rows(first: "pa.RecordBatch", rest: "Iterator[pa.RecordBatch]") -> Iterator[dict[str, Any]]:
    yield from first.to_pylist()
    for batch in rest:
        yield from batch.to_pylist()


def send_rows(destination: Destination, name: str, rows: Iterator[dict[str, Any]], first: RowId) -> int:
    """Join, send rows with the ids from `first` on, wait until all members hold them, and leave."""
    timeout_s = destination.timeout_s
    last, place = None, first.place
    try:
        with sync.join(destination.group, name=name, **destination.joining) as group:
            threading.Thread(target=_read_all, args=(group,), daemon=True).start()
            group.wait_for_members(destination.members + 1, timeout=timeout_s)
            for row in rows:
                identity = RowId(first.query, first.partition, first.batch, place)
                last = group.send(StreamRow(identity, row).encoded(), timeout=timeout_s)
                place += 1
            if last is not None:
                last.stable(timeout=timeout_s)
    except TimeoutError as error:
        raise OutputError(
            f"The group {destination.group} has not taken the rows within {timeout_s} s.",
            "Are its members there? The options members and timeout say what is waited for.",
        ) from error
    except AntiphonError as error:
        raise OutputError(
            f"The rows cannot be sent to the group {destination.group}: {error.sentence}", error.hint
        ) from error
    return place - first.place


def _read_all(group: sync.Group) -> None:
    """Take what is delivered to the task itself, so that it never is a slow reader."""
    for _ in group:
        pass
