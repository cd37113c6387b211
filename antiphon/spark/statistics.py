"""Summaries of a sweep's runs: mean, spread and interval of each metric at each point of the grid."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STUDENT_975: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""The 97.5% points of Student's distribution for 1 to 30 degrees of freedom."""
NORMAL_975: Final = 1.960


@dataclass(frozen=True)
class Summary:
    """A metric at one point of the grid. The interval holds the mean with 95% confidence."""

    count: int
    mean: float
    deviation: float
    low: float
    high: float
    least: float
    most: float
    values: tuple[float, ...] = ()
    """The runs' values in ascending order."""


@dataclass(frozen=True)
class Point:
    """One point of the grid with the summaries of its metrics."""

    scenario: str
    parameters: Mapping[str, Any]
    metrics: Mapping[str, Summary]


def student_975(degrees: int) -> float:
    return STUDENT_975[degrees - 1] if degrees <= len(STUDENT_975) else NORMAL_975


def summarise(spark: "SparkSession", folder: Path) -> list[Point]:
    """Summaries of all runs in a sweep's folder that did not fail."""
    from pyspark.sql import functions as F  # noqa: N812  # the name everyone knows it by

    runs = spark.read.parquet(str(folder.resolve() / "runs-*.parquet")).where("error IS NULL")
    # A run may be in two files if an interrupted sweep was planned anew: it counts once.
    values = runs.dropDuplicates(["key"]).select("scenario", "parameters", F.explode("metrics"))
    rows = (
        values.groupBy("scenario", "parameters", "key")
        .agg(
            F.count("value").alias("count"),
            F.avg("value").alias("mean"),
            F.coalesce(F.stddev_samp("value"), F.lit(0.0)).alias("deviation"),
            F.min("value").alias("least"),
            F.max("value").alias("most"),
            F.sort_array(F.collect_list("value")).alias("values"),
        )
        .collect()
    )
    gathered: dict[tuple[str, str], dict[str, Summary]] = {}
    for row in rows:
        gathered.setdefault((row.scenario, row.parameters), {})[row.key] = _summary(row)
    return [
        Point(scenario, json.loads(parameters), metrics)
        for (scenario, parameters), metrics in sorted(gathered.items())
    ]


def _summary(row: Any) -> Summary:
    # A single run has no spread: its interval is the value itself.
    half = student_975(row["count"] - 1) * row.deviation / row["count"] ** 0.5 if row["count"] > 1 else 0.0
    return Summary(
        row["count"],
        row.mean,
        row.deviation,
        row.mean - half,
        row.mean + half,
        row.least,
        row.most,
        tuple(row["values"]),
    )
