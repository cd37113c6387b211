"""A share: all records of some messages, from all pieces, with codes for what is compared."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from antiphon.trace.adapters.numbering import UNNAMED
from antiphon.trace.adapters.readers import Readers
from antiphon.trace.arrow import pa, pc
from antiphon.trace.bulk.fields import bits, integers
from antiphon.trace.bulk.shapes import RECORDS
from antiphon.trace.bulk.staging import Codes, Staging, grouped
from antiphon.trace.schema import ACCEPTED


class Job(msgspec.Struct, frozen=True):
    """What every share needs to know."""

    staging: Staging
    pieces: tuple[str, ...]
    slot_offsets: tuple[int, ...]
    places: bool
    """Whether a message's domain is known only from all of its records."""
    marks_acceptance: bool
    for_everyone: bool
    is_routed: bool
    """Whether only those destinations count that consumed anything."""
    naming: frozenset[tuple[str, str]]
    """Runs and sites that name the domains of what they deliver."""
    readers: dict[str, Readers]
    """By run."""


class Share:
    """All records of some messages, with codes for what is compared."""

    def __init__(self, job: Job, share: int, columns: Sequence[str] | None = None) -> None:
        self._job = job
        self.table = _read(job, share, columns)
        self.count = len(self.table)
        self.runs, self.sites, self.kinds = (self.codes(name) for name in ("run", "site", "kind"))
        self.is_send = self.kinds.codes == self.kinds.code("send")
        self.is_deliver = self.kinds.codes == self.kinds.code("deliver")
        absent = (self.kinds.code("present"), self.kinds.code("absent"))
        self.is_message = ~np.isin(self.kinds.codes, absent)

    def column(self, name: str) -> Any:
        if name not in self.table.column_names:
            kind = RECORDS.field(name).type
            return pa.nulls(self.count, pa.string() if pa.types.is_dictionary(kind) else kind)
        return self.table.column(name).combine_chunks()

    def codes(self, name: str) -> Codes:
        return Codes(self.column(name))

    def texts(self, name: str) -> Any:
        column = self.column(name)
        return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column

    def named(self) -> Any:
        """Who sent a message with a number."""
        return pc.coalesce(self.texts("sender"), self.texts("domain"), pa.scalar(UNNAMED))

    def messages(self, sender: Any, number: Any) -> Any:
        """For each row a number for its message: that of its run, sender and number."""
        pair, _ = grouped(self.runs.codes, Codes(sender).codes)
        return np.unique(_joined(pair, integers(number)[0]), return_inverse=True)[1]

    def delivered(self) -> Any:
        """The rows of deliveries, but for those of the system itself."""
        return self.is_deliver & (self.sites.codes != self.sites.code(ACCEPTED))

    def first_sends(self) -> tuple[Any, Any]:
        """For each row the code of its id, and the row of the first send of that id; -1 without one."""
        ids = Codes.indices(self.column("message_id"))
        key = ids + 1 + self.runs.codes * (ids.max(initial=-1) + 2)
        named = bits(pc.is_valid(self.column("message_id")))
        sends = np.flatnonzero(self.is_send & named)
        if self._job.staging.is_ordered:
            order, _ = integers(self.column("order"))
            names = np.array(self.senders(sends).to_pylist(), object)
            ranks = np.unique(names, return_inverse=True)[1] if len(sends) else sends
            sends = sends[np.lexsort((sends, ranks, order[sends]))]
        first = np.full(key.max(initial=0) + 1, -1, np.int64)
        first[key[sends[::-1]]] = sends[::-1]
        return key, np.where(named, first[key], -1)

    def senders(self, rows: Any) -> Any:
        """Who sent: the named sender, else the site."""
        places = pa.array(rows)
        return pc.coalesce(self.texts("sender").take(places), self.texts("site").take(places))


def _read(job: Job, share: int, columns: Sequence[str] | None) -> Any:
    """The share's records of all pieces, in their order, each with its piece's place."""
    tables = []
    for place, name in enumerate(job.pieces):
        with pa.memory_map(str(job.staging.folder / f"{name}.arrow")) as source:
            batch = pa.ipc.open_file(source).get_batch(share)
        if batch.num_rows:
            table = pa.Table.from_batches([batch])
            if columns is not None:
                table = table.select([each for each in table.column_names if each in columns])
            pieces = pa.array(np.full(len(table), place, np.int32))
            tables.append(table.append_column("piece", pieces))
    if not tables:
        empty = pa.schema([*RECORDS, ("who", pa.int32()), ("rank", pa.int64()), ("piece", pa.int32())])
        return empty.empty_table()
    return pa.concat_tables(tables, promote_options="default").unify_dictionaries().combine_chunks()


def _joined(group: Any, values: Any) -> Any:
    """One number for each group and value."""
    if not len(values):
        return values
    spread = int(values.max()) - int(values.min()) + 1
    if spread * (int(group.max()) + 1) >= 2**62:
        values = np.unique(values, return_inverse=True)[1]
        spread = len(values)
    return group * spread + (values - values.min())
