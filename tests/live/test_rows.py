"""Rows of a stream as messages: each counts once, also after repetitions."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from antiphon.core.errors import InputError
from antiphon.live.rows import RowId, StreamRow, StreamRows


def body(batch: int, place: int, partition: int = 0) -> bytes:
    return StreamRow(RowId("q", partition, batch, place), {"n": place}).encoded()


def test_a_repeated_batch_counts_once() -> None:
    rows = StreamRows()
    first = [rows.take(body(0, place)) for place in range(3)]
    again = [rows.take(body(0, place)) for place in range(5)]
    assert [row is not None for row in first + again] == [True] * 3 + [False] * 3 + [True] * 2
    assert rows.take(body(1, 0)) == {"n": 0}
    assert rows.take(body(0, 4)) is None
    assert rows.take(body(0, 0, partition=1)) is not None
    assert StreamRows(rows.seen).take(body(1, 0)) is None


def test_values_of_spark_are_json_and_other_messages_are_refused() -> None:
    values = {"at": datetime(2026, 1, 1, tzinfo=UTC), "price": Decimal("1.50"), "raw": b"\x00", "none": None}
    taken = StreamRows().take(StreamRow(RowId("q", 0, 0, 0), values).encoded())
    assert taken == {"at": "2026-01-01T00:00:00Z", "price": "1.50", "raw": "AA==", "none": None}
    with pytest.raises(InputError, match="no row of a stream"):
        StreamRows().take(b"hello")
