"""Rows that a stream of Spark multicasts to a group: their form, and readers that take each row once.

A body is a JSON object, `{"id": [query, partition, batch, place], "row": {...}}`. A batch that Spark repeats
after a failure carries the same ids. A task sends its rows in order, so a reader of a row has the earlier
rows of its partition: the greatest id of each partition is all that a reader has to keep.
"""

from typing import Any

import msgspec

from antiphon.core.errors import InputError


class RowId(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which row it is: the same after a repetition."""

    query: str
    partition: int
    batch: int
    place: int


class StreamRow(msgspec.Struct, frozen=True):
    """A row of a stream and its id."""

    id: RowId
    row: dict[str, Any]

    def encoded(self) -> bytes:
        return msgspec.json.encode(self)


class StreamRows:
    """Rows from the messages of a group, each once: `rows.take(message.body)`.

    State is one id for each partition of each query. Keep `seen` with what the rows changed, in one
    transaction, and hand it back after a restart: then each row counts exactly once.
    """

    def __init__(self, seen: dict[str, tuple[int, int]] | None = None) -> None:
        self.seen: dict[str, tuple[int, int]] = {} if seen is None else dict(seen)
        """The batch and place of the last row, for each query and partition (`query/partition`)."""

    def take(self, body: bytes) -> dict[str, Any] | None:
        """The row of a message; None if it was taken before. InputError if the body is no row."""
        try:
            found = msgspec.json.decode(body, type=StreamRow)
        except msgspec.MsgspecError as error:
            raise InputError(f"The message is no row of a stream: {error}.") from None
        key = f"{found.id.query}/{found.id.partition}"
        place = (found.id.batch, found.id.place)
        if place <= self.seen.get(key, (-1, -1)):
            return None
        self.seen[key] = place
        return found.row
