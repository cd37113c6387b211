"""Streams that end in a live group on loopback, and the history of a group as a table."""

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import antiphon
from antiphon.core.effects import Deliver
from antiphon.core.errors import OutputError, UsageError
from antiphon.live.history import HistoryLog
from antiphon.live.rows import RowId, StreamRows
from antiphon.spark.group_sink import Destination, send_rows
from antiphon.spark.source import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PATIENCE_S = 120


@pytest.fixture
def name() -> str:
    return f"rows-{uuid.uuid4().hex[:8]}"


def take(group: "antiphon.sync.Group", rows: StreamRows, wanted: int) -> tuple[list[dict[str, Any]], int]:
    """The first rows that have not been taken yet, and how many messages it took to get them."""
    found: list[dict[str, Any]] = []
    messages = 0
    while len(found) < wanted:
        messages += 1
        row = rows.take(group.receive(timeout=PATIENCE_S).body)
        if row is not None:
            found.append(row)
    return found, messages


def stream(spark: "SparkSession", work: Path, group: str) -> None:
    lines = spark.readStream.schema("n long, word string").json(str(work / "in"))
    query = lines.writeStream.format("antiphon-group").option("group", group)
    query = query.option("checkpointLocation", str(work / "checkpoint")).trigger(availableNow=True)
    query.start().awaitTermination()


def test_rows_reach_a_live_group_and_repetitions_count_once(
    spark: "SparkSession", tmp_path: Path, name: str
) -> None:
    register(spark)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("".join(f'{{"n": {n}, "word": "w{n}"}}\n' for n in range(20)))
    with antiphon.sync.join(name, name="reader") as group:
        stream(spark, tmp_path, name)
        rows = StreamRows()
        taken, messages = take(group, rows, 20)
        assert ([row["n"] for row in taken], messages) == (list(range(20)), 20)
        # As if the query had died after sending and before Spark noted it: the batch is repeated.
        for note in (tmp_path / "checkpoint" / "commits").iterdir():
            note.unlink()
        (tmp_path / "in" / "b.json").write_text('{"n": 20, "word": "last"}\n')
        stream(spark, tmp_path, name)
        assert take(group, rows, 1) == ([{"n": 20, "word": "last"}], 21)


def test_a_group_without_members_is_waited_for_and_then_reported(name: str) -> None:
    destination = Destination({"group": name, "timeout": "1"})
    with pytest.raises(OutputError, match="has not taken the rows within 1 s"):
        send_rows(destination, "spark-0", iter([{"n": 1}]), RowId("q", 0, 0, 0))
    with pytest.raises(OutputError, match="cannot be sent to the group"):
        send_rows(Destination({"group": name, "order": "no"}), "spark-0", iter(()), RowId("q", 0, 0, 0))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "Which group"),
        ({"group": "g", "grup": "h"}, "There is no option 'grup'"),
        ({"group": "g", "members": "0"}, "The option members is '0'"),
    ],
)
def test_options_are_checked(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Destination(options)


def test_a_history_is_a_table_with_bodies(spark: "SparkSession", tmp_path: Path) -> None:
    register(spark)
    log = HistoryLog(tmp_path / "log", "ledger", "archive")
    log.append(Deliver("alice", 0, [b"one", b"two"], None, 7))
    log.append(Deliver("bob", 3, [b"\x00three"], None, 8))
    log.flush()
    frame = spark.read.format("antiphon-history").load(str(tmp_path / "log"))
    rows = [tuple(row) for row in frame.orderBy("position").collect()]
    log.close()
    assert rows == [
        ("ledger", "archive", 0, "alice", 7, 0, b"one"),
        ("ledger", "archive", 1, "alice", 7, 1, b"two"),
        ("ledger", "archive", 2, "bob", 8, 3, b"\x00three"),
    ]
    with pytest.raises(Exception, match="There is no history at"):
        spark.read.format("antiphon-history").load(str(tmp_path)).collect()
    with pytest.raises(Exception, match="Which history"):
        spark.read.format("antiphon-history").load().collect()
    (tmp_path / "bad.history").write_bytes(b"nonsense")
    with pytest.raises(Exception, match="damaged in its first frame"):
        spark.read.format("antiphon-history").load(str(tmp_path)).collect()
