"""Rows that cover several messages, as a row for each message."""

import numpy as np

from antiphon.trace.arrow import EVENTS, pa, pc


def expanded(table: pa.Table) -> pa.Table:
    """Each message of a batch as a row of its own: equal but for its number, and with a count of null."""
    counts = pc.fill_null(table.column("count"), 1).to_numpy()
    source = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = table.take(pa.array(source))
    numbers = pc.add(rows.column("number"), pa.array(place, pa.int64()))
    rows = rows.set_column(EVENTS.get_field_index("number"), EVENTS.field("number"), numbers)
    nulls = pa.nulls(len(source), pa.int32())
    return rows.set_column(EVENTS.get_field_index("count"), EVENTS.field("count"), nulls)
