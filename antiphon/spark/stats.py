"""Statistics of a trace on Spark: `antiphon.stats(spark, path)`.

Spark counts; what is brought to the driver does not grow with the number of messages. The rules are those of
`antiphon.timing.tables`, as SQL.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antiphon.core.errors import InputError
from antiphon.spark.source import register
from antiphon.timing.summary import ClockModel, Statistics, statistics
from antiphon.timing.tables import (
    ACTIVITY,
    LASTS,
    LATENCY,
    LATENESS,
    LEVEL_BASE,
    NEAREST,
    OVERVIEW,
    PRESENCES,
    SKEW,
    Measured,
)
from antiphon.trace.arrow import pa
from antiphon.trace.files import open_trace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCALES_DDL: Final = "run string, site string, offset_ns long, start_ns long, width_ns long, placed boolean"
SHIFTS_DDL: Final = "run string, source string, target string, shift_ns long"


class Stats:
    """What a trace tells about speed: a summary, and its tables as DataFrames."""

    def __init__(self, spark: "SparkSession", events: "DataFrame", clocks: ClockModel) -> None:
        self._source = _SparkSource(spark, events)
        self.summary: Statistics = statistics(self._source, clocks)

    @property
    def activity(self) -> "DataFrame":
        """Rows and bytes of each kind, by site and time slot."""
        return self._source.frames["activity"]

    @property
    def latency(self) -> "DataFrame":
        """Latencies from site to site, counted by level."""
        return self._source.frames["latency"]

    @property
    def lateness(self) -> "DataFrame":
        """Latencies at each site over time."""
        return self._source.frames["lateness"]

    @property
    def lasts(self) -> "DataFrame":
        """How often each site was the last to deliver, and by how much in sum."""
        return self._source.frames["lasts"]

    @property
    def skew(self) -> "DataFrame":
        """From a message's first delivery to its last, counted by level."""
        return self._source.frames["skew"]

    def close(self) -> None:
        """Free what Spark keeps; later uses compute it again."""
        self._source.close()


def stats(spark: "SparkSession", source: "str | Path | DataFrame", clocks: ClockModel = "estimate") -> Stats:
    """Measure a trace on Spark: a folder, or a DataFrame with the columns of `events`.

    `clocks` says whether the offsets of clocks are estimated from the messages, or all clocks are trusted.
    """
    if isinstance(source, str | Path):
        open_trace(source)
        register(spark)
        source = spark.read.format("antiphon").option("expand", "true").load(str(source))
    else:
        source = _expanded(source)
    return Stats(spark, source, clocks)


def _expanded(events: "DataFrame") -> "DataFrame":
    """Each message of a batch as a row of its own; columns that a trace may lack are null."""
    needed, found = ("run", "site", "step", "kind", "sender", "number"), {*events.columns}
    for name in needed:
        if name not in found:
            raise InputError(f"The column {name} is missing from the events.", "docs/trace.md lists them.")
    optional = {"count": "int", "size": "int", "time_ns": "bigint", "attempt": "int"}
    columns = [*needed, *(name if name in found else f"CAST(NULL AS {kind}) AS {name}"
                          for name, kind in optional.items())]  # fmt: skip
    last = "number + coalesce(count, 1) - 1"
    each = f"explode_outer(IF(number IS NULL, NULL, sequence(number, {last}))) AS each"
    return events.selectExpr(*columns).selectExpr("*", each).drop("number", "count").withColumnRenamed(
        "each", "number"
    )  # fmt: skip


class _SparkSource:
    """Implements `antiphon.timing.tables.Source`."""

    def __init__(self, spark: "SparkSession", events: "DataFrame") -> None:
        self._spark, self._events = spark, events
        self.frames: dict[str, DataFrame] = {}
        messages = events.where("kind NOT IN ('present', 'absent')")
        self._rows = messages.selectExpr(
            "run", "site", "kind", "coalesce(sender, site) AS sender", "number", "size", "time_ns", "attempt"
        )
        first = self._rows.where("time_ns IS NOT NULL").groupBy("run", "sender", "number", "site", "kind")
        self._times = first.agg({"time_ns": "min", "size": "max"}).selectExpr(
            "run", "sender", "number", "site", "kind", "`min(time_ns)` AS time_ns", "`max(size)` AS size"
        )
        self._times.persist()
        self._pairs = self._joined()

    def overview(self) -> pa.Table:
        found = self._rows.groupBy("run", "site", "kind").agg(
            *self._expressions(
                "count(*) AS count", "count(time_ns) AS timed", "count_if(attempt > 1) AS repeats",
                "min(time_ns) AS first_ns", "max(time_ns) AS last_ns",
            )
        )  # fmt: skip
        return _collected(found, OVERVIEW)

    def nearest(self) -> pa.Table:
        apart = self._pairs.where("source <> target AND kind <> 'stable'")
        found = apart.groupBy("run", "source", "target").agg(
            *self._expressions("min(difference_ns) AS least_ns")
        )
        return _collected(found, NEAREST)

    def presences(self) -> pa.Table:
        return _collected(self._events.where("kind IN ('present', 'absent')"), PRESENCES)

    def measured(self, scales: pa.Table, shifts: pa.Table) -> Measured:
        scaled = self._spark.createDataFrame(scales.to_pylist(), SCALES_DDL)
        shifted = self._spark.createDataFrame(shifts.to_pylist(), SHIFTS_DDL)
        placed = self._slotted(self._times, scaled, "site", "time_ns")
        pairs = self._pairs.join(shifted.hint("broadcast"), ["run", "source", "target"]).selectExpr(
            "*", "difference_ns - shift_ns AS latency_ns", f"{_level('difference_ns - shift_ns')} AS level"
        )
        sums = self._expressions("count(*) AS count", "sum(latency_ns) AS sum_ns")
        ends = self._ends(placed)
        self.frames = {
            "activity": placed.groupBy("run", "site", "kind", "slot").agg(
                *self._expressions("count(*) AS count", "sum(size) AS bytes")
            ),
            "latency": pairs.groupBy("run", "kind", "source", "target", "level").agg(*sums),
            "lateness": self._slotted(pairs, scaled, "source", "sent_ns")
            .groupBy("run", "kind", "target", "slot")
            .agg(*sums),
            "lasts": ends.where("margin_ns > 0")
            .groupBy("run", "site")
            .agg(*self._expressions("count(*) AS count", "sum(margin_ns) AS margin_ns")),
            "skew": ends.groupBy("run", "level").agg(
                *self._expressions("count(*) AS count", "sum(skew_ns) AS sum_ns")
            ),
        }
        schemas = {
            "activity": ACTIVITY, "latency": LATENCY, "lateness": LATENESS, "lasts": LASTS, "skew": SKEW,
        }  # fmt: skip
        return Measured(**{name: _collected(self.frames[name], schema) for name, schema in schemas.items()})

    def close(self) -> None:
        self._times.unpersist()

    def _joined(self) -> "DataFrame":
        """Each arrival of a message with the site and the time of its send."""
        sends = self._times.where("kind = 'send'").groupBy("run", "sender", "number")
        first = sends.agg(*self._expressions("min(struct(time_ns, site)) AS first")).selectExpr(
            "run", "sender", "number", "first.site AS source", "first.time_ns AS sent_ns"
        )
        arrivals = self._times.where("kind IN ('receive', 'deliver', 'stable')")
        return (
            arrivals.withColumnRenamed("site", "target")
            .join(first, ["run", "sender", "number"])
            .selectExpr("*", "time_ns - sent_ns AS difference_ns")
        )

    def _slotted(self, rows: "DataFrame", scales: "DataFrame", site: str, time: str) -> "DataFrame":
        known = scales.withColumnRenamed("site", site).hint("broadcast")
        at_ns = f"{time} - offset_ns"
        return rows.join(known, ["run", site]).selectExpr(
            "*", f"{at_ns} AS at_ns", f"CAST(floor(({at_ns} - start_ns) / width_ns) AS long) AS slot"
        )

    def _ends(self, placed: "DataFrame") -> "DataFrame":
        """For each message that two comparable sites or more delivered: its last site, margin and skew."""
        delivered = placed.where("kind = 'deliver' AND placed").groupBy("run", "sender", "number")
        ends = delivered.agg(
            *self._expressions("array_sort(collect_list(struct(at_ns, site))) AS ends")
        ).where("size(ends) > 1")  # fmt: skip
        skew = "ends[size(ends) - 1].at_ns - ends[0].at_ns"
        return ends.selectExpr(
            "run", "ends[size(ends) - 1].site AS site", f"{skew} AS skew_ns", f"{_level(skew)} AS level",
            "ends[size(ends) - 1].at_ns - ends[size(ends) - 2].at_ns AS margin_ns",
        )  # fmt: skip

    @staticmethod
    def _expressions(*texts: str) -> "list[object]":
        from pyspark.sql import functions as F  # noqa: N812  # the name everyone knows it by

        return [F.expr(text) for text in texts]


def _level(nanoseconds: str) -> str:
    return f"CAST(floor(ln(greatest({nanoseconds}, 1L)) / {math.log(LEVEL_BASE)!r}D) AS long)"


def _collected(frame: "DataFrame", schema: pa.Schema) -> pa.Table:
    """A small frame as a table of the schema, sorted as the local tables are."""
    rows = [row.asDict() for row in frame.select(*(f"`{name}`" for name in schema.names)).collect()]
    values = ("count", "timed", "repeats", "first_ns", "last_ns", "least_ns", "bytes", "sum_ns", "margin_ns")
    keys = [(name, "ascending") for name in schema.names if name not in values]
    return pa.Table.from_pylist(rows, schema).sort_by(keys)
