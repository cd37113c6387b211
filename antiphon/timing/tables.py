"""The small tables that statistics rest on, and how they are made from rows in this process.

`antiphon.spark.stats` makes the same tables by SQL; a test compares the two. Latencies are counted by level:
level k holds those from `LEVEL_BASE`**k to `LEVEL_BASE`**(k+1) nanoseconds. So tables of parts can be added
up, and their size does not grow with the trace.
"""

import math
from collections.abc import Iterable
from typing import Any, Final
from typing import Protocol as Interface

import msgspec
import numpy as np

from antiphon.trace.arrow import EVENTS, pa, pc
from antiphon.trace.batches import expanded

LEVEL_BASE: Final = 1.05
"""Ratio of neighbouring levels: a quantile is off by half of it. Lowering it makes the tables larger."""
MESSAGE: Final = ("run", "sender", "number")
ARRIVALS: Final = ("receive", "deliver", "stable")
USED: Final = ("run", "site", "step", "kind", "sender", "number", "count", "size", "time_ns", "attempt")

OVERVIEW: Final = pa.schema(
    [
        ("run", pa.string()), ("site", pa.string()), ("kind", pa.string()), ("count", pa.int64()),
        ("timed", pa.int64()), ("repeats", pa.int64()), ("first_ns", pa.int64()), ("last_ns", pa.int64()),
    ]
)  # fmt: skip
"""Messages of each kind at each site: all, those with a time, those marked as a later attempt."""
NEAREST: Final = pa.schema(
    [("run", pa.string()), ("source", pa.string()), ("target", pa.string()), ("least_ns", pa.int64())]
)
"""The least difference of times from a send to a reception or delivery elsewhere."""
PRESENCES: Final = pa.schema(
    [
        ("run", pa.string()), ("site", pa.string()), ("step", pa.int64()), ("kind", pa.string()),
        ("time_ns", pa.int64()),
    ]
)  # fmt: skip
SCALES: Final = pa.schema(
    [
        ("run", pa.string()), ("site", pa.string()), ("offset_ns", pa.int64()), ("start_ns", pa.int64()),
        ("width_ns", pa.int64()), ("placed", pa.bool_()),
    ]
)  # fmt: skip
"""How a site's times become time slots; `placed` sites have clocks that can be compared."""
SHIFTS: Final = pa.schema(
    [("run", pa.string()), ("source", pa.string()), ("target", pa.string()), ("shift_ns", pa.int64())]
)
"""What is taken from differences of times to make latencies of them."""
ACTIVITY: Final = pa.schema(
    [
        ("run", pa.string()), ("site", pa.string()), ("kind", pa.string()), ("slot", pa.int64()),
        ("count", pa.int64()), ("bytes", pa.int64()),
    ]
)  # fmt: skip
LATENCY: Final = pa.schema(
    [
        ("run", pa.string()), ("kind", pa.string()), ("source", pa.string()), ("target", pa.string()),
        ("level", pa.int64()), ("count", pa.int64()), ("sum_ns", pa.int64()),
    ]
)  # fmt: skip
LATENESS: Final = pa.schema(
    [
        ("run", pa.string()), ("kind", pa.string()), ("target", pa.string()), ("slot", pa.int64()),
        ("count", pa.int64()), ("sum_ns", pa.int64()),
    ]
)  # fmt: skip
"""Latencies at a site over time, by the slot of the send."""
LASTS: Final = pa.schema(
    [("run", pa.string()), ("site", pa.string()), ("count", pa.int64()), ("margin_ns", pa.int64())]
)
"""How often a site alone was the last to deliver a message, and by how much in sum."""
SKEW: Final = pa.schema(
    [("run", pa.string()), ("level", pa.int64()), ("count", pa.int64()), ("sum_ns", pa.int64())]
)
"""From a message's first delivery to its last."""


class Measured(msgspec.Struct, frozen=True):
    """What is counted once clocks are known."""

    activity: pa.Table
    latency: pa.Table
    lateness: pa.Table
    lasts: pa.Table
    skew: pa.Table


class Source(Interface):
    """Makes the tables of a trace; here or on Spark."""

    def overview(self) -> pa.Table: ...

    def nearest(self) -> pa.Table: ...

    def presences(self) -> pa.Table: ...

    def measured(self, scales: pa.Table, shifts: pa.Table) -> Measured: ...


class LocalSource:
    """Implements `Source` for rows that this process holds."""

    def __init__(self, tables: Iterable[pa.Table]) -> None:
        every = [EVENTS.empty_table(), *tables]
        parts = [expanded(_messages(table)).select(USED) for table in every]
        self._rows = pa.concat_tables(parts)
        self._presences = pa.concat_tables([_presences(table) for table in every])
        timed = self._rows.filter(pc.is_valid(self._rows.column("time_ns")))
        first = timed.group_by([*MESSAGE, "site", "kind"]).aggregate([("time_ns", "min"), ("size", "max")])
        self._times = first.rename_columns({"time_ns_min": "time_ns", "size_max": "size"})
        self._pairs = self._joined()

    def overview(self) -> pa.Table:
        again = pc.greater(pc.fill_null(self._rows.column("attempt"), 1), 1)
        rows = self._rows.append_column("again", pc.cast(again, pa.int64()))
        found = rows.group_by(["run", "site", "kind"]).aggregate(
            [
                ("kind", "count"),
                ("time_ns", "count"),
                ("again", "sum"),
                ("time_ns", "min"),
                ("time_ns", "max"),
            ]
        )
        names = {"kind_count": "count", "time_ns_count": "timed", "again_sum": "repeats"}
        return _as(found, OVERVIEW, names | {"time_ns_min": "first_ns", "time_ns_max": "last_ns"})

    def nearest(self) -> pa.Table:
        apart = self._pairs.filter(
            pc.and_(
                pc.not_equal(self._pairs.column("source"), self._pairs.column("target")),
                pc.not_equal(self._pairs.column("kind"), "stable"),
            )
        )
        found = apart.group_by(["run", "source", "target"]).aggregate([("difference_ns", "min")])
        return _as(found, NEAREST, {"difference_ns_min": "least_ns"})

    def presences(self) -> pa.Table:
        return self._presences

    def measured(self, scales: pa.Table, shifts: pa.Table) -> Measured:
        placed = _slotted(self._times, scales, "site")
        activity = placed.group_by(["run", "site", "kind", "slot"]).aggregate(
            [("kind", "count"), ("size", "sum")]
        )
        pairs = self._pairs.join(shifts, ["run", "source", "target"])
        latency_ns = pc.subtract(pairs.column("difference_ns"), pairs.column("shift_ns"))
        pairs = pairs.append_column("latency_ns", latency_ns).append_column("level", _levels(latency_ns))
        by_slot = _slotted(pairs, scales, "source", "sent_ns")
        sums = [("latency_ns", "count"), ("latency_ns", "sum")]
        names = {"latency_ns_count": "count", "latency_ns_sum": "sum_ns"}
        latency = pairs.group_by(["run", "kind", "source", "target", "level"]).aggregate(sums)
        lateness = by_slot.group_by(["run", "kind", "target", "slot"]).aggregate(sums)
        lasts, skew = _spread(placed)
        return Measured(
            _as(activity, ACTIVITY, {"kind_count": "count", "size_sum": "bytes"}),
            _as(latency, LATENCY, names), _as(lateness, LATENESS, names), lasts, skew,
        )  # fmt: skip

    def _joined(self) -> pa.Table:
        """Each arrival of a message with the site and the time of its send."""
        sends = self._times.filter(pc.equal(self._times.column("kind"), "send"))
        sends = sends.sort_by([("time_ns", "ascending"), ("site", "ascending")])
        first = sends.group_by(MESSAGE, use_threads=False).aggregate([("site", "first"), ("time_ns", "min")])
        first = first.rename_columns({"site_first": "source", "time_ns_min": "sent_ns"})
        kinds = pc.is_in(self._times.column("kind"), pa.array(ARRIVALS))
        arrivals = self._times.filter(kinds).rename_columns({"site": "target"})
        joined = arrivals.join(first, list(MESSAGE), join_type="inner")
        difference = pc.subtract(joined.column("time_ns"), joined.column("sent_ns"))
        return joined.append_column("difference_ns", difference)


def level_of(nanoseconds: int) -> int:
    """The level of a latency; latencies below a nanosecond are in level 0."""
    return math.floor(math.log(max(nanoseconds, 1)) / math.log(LEVEL_BASE))


def nanoseconds_of(level: int) -> float:
    """The middle of a level."""
    return float(LEVEL_BASE ** (level + 0.5))


def _messages(table: pa.Table) -> pa.Table:
    about = pc.invert(pc.is_in(table.column("kind"), pa.array(["present", "absent"])))
    rows = table.filter(about)
    sender = pc.coalesce(rows.column("sender"), rows.column("site"))
    return rows.set_column(rows.schema.get_field_index("sender"), "sender", sender)


def _presences(table: pa.Table) -> pa.Table:
    about = pc.is_in(table.column("kind"), pa.array(["present", "absent"]))
    return table.filter(about).select(PRESENCES.names).cast(PRESENCES)


def _levels(nanoseconds: Any) -> Any:
    level = pc.floor(pc.divide(pc.ln(pc.max_element_wise(nanoseconds, 1)), math.log(LEVEL_BASE)))
    return pc.cast(level, pa.int64())


def _slotted(rows: pa.Table, scales: pa.Table, site: str, time: str = "time_ns") -> pa.Table:
    """Rows with `slot`, and with `at_ns`, their time by the reference's clock."""
    joined = rows.join(scales, ["run", site], right_keys=["run", "site"], join_type="inner")
    at_ns = pc.subtract(joined.column(time), joined.column("offset_ns"))
    since = pc.subtract(at_ns, joined.column("start_ns")).to_numpy()
    slot = since // joined.column("width_ns").to_numpy()
    return joined.append_column("at_ns", at_ns).append_column("slot", pa.array(slot, pa.int64()))


def _spread(placed: pa.Table) -> tuple[pa.Table, pa.Table]:
    """For messages that two comparable sites or more delivered: who was last, and the skew."""
    kept = pc.and_(placed.column("placed"), pc.equal(placed.column("kind"), "deliver"))
    order = [(name, "ascending") for name in (*MESSAGE, "at_ns", "site")]
    rows = placed.filter(kept).sort_by(order)
    if not rows.num_rows:
        return LASTS.empty_table(), SKEW.empty_table()
    changes = np.zeros(rows.num_rows - 1, np.bool_)
    for name in MESSAGE:
        codes = rows.column(name).combine_chunks().dictionary_encode().indices.to_numpy()
        changes |= codes[1:] != codes[:-1]
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    ends = np.concatenate([starts[1:], [rows.num_rows]]) - 1
    starts, ends = starts[ends > starts], ends[ends > starts]
    at_ns = rows.column("at_ns").to_numpy()
    last = rows.take(pa.array(ends)).select(["run", "site"])
    last = last.append_column("margin_ns", pa.array(at_ns[ends] - at_ns[ends - 1], pa.int64()))
    skew_ns = pa.array(at_ns[ends] - at_ns[starts], pa.int64())
    last = last.append_column("skew_ns", skew_ns).append_column("level", _levels(skew_ns))
    alone = last.filter(pc.greater(last.column("margin_ns"), 0))
    lasts = alone.group_by(["run", "site"]).aggregate([("site", "count"), ("margin_ns", "sum")])
    skew = last.group_by(["run", "level"]).aggregate([("level", "count"), ("skew_ns", "sum")])
    return (
        _as(lasts, LASTS, {"site_count": "count", "margin_ns_sum": "margin_ns"}),
        _as(skew, SKEW, {"level_count": "count", "skew_ns_sum": "sum_ns"}),
    )


def _as(table: pa.Table, schema: pa.Schema, names: dict[str, str]) -> pa.Table:
    """A table with the schema's columns, sorted by those that name its rows."""
    renamed = table.rename_columns([names.get(name, name) for name in table.column_names])
    keys = [name for name in schema.names if name not in names.values()]
    return renamed.select(schema.names).cast(schema).sort_by([(name, "ascending") for name in keys])
