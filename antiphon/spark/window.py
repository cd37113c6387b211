"""The few rows around violations, read by Spark: of a trace on a file system that only Spark reaches."""

from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antiphon.trace.schema import Event
from antiphon.trace.window import ROWS_ABOUT, Wanted, windows_in

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MOST_ROWS: Final = 20 * ROWS_ABOUT
"""Rows that the driver receives. Raising it costs its memory."""


def read_windows(spark: "SparkSession", trace: str, wanted: Sequence[Wanted]) -> list[list[Event]]:
    """As `antiphon.trace.window.read_windows`, in one Spark job."""
    if not wanted:
        return []
    events = spark.read.parquet(f"{trace}/events")
    rows = events.where(_any(_condition(events, each) for each in wanted)).limit(MOST_ROWS)
    return windows_in([(Path("events"), rows.toArrow())], wanted)


def _any(conditions: "Iterable[Column]") -> "Column":
    return reduce(lambda one, other: one | other, conditions)


def _condition(events: "DataFrame", wanted: Wanted) -> "Column":
    """At least the rows that are wanted; Parquet's statistics can decide most of it."""
    from pyspark.sql import functions

    found = functions.lit(False)
    for site, step in wanted.places:
        near = events["step"].between(step - wanted.reach, step + wanted.reach)
        found = found | ((events["site"] == site) & near)
    count = functions.coalesce(events["count"], functions.lit(1)) if "count" in events.columns else 1
    for sender, number in wanted.messages | wanted.sent:
        own = (events["sender"] == sender) | (events["sender"].isNull() & (events["site"] == sender))
        covers = (events["number"] <= number) & (events["number"] + count > number)
        if (sender, number) not in wanted.messages:
            covers = covers & (events["kind"] == "send")
        found = found | (own & covers)
    return (events["run"] == wanted.run) & found
