"""What a campaign makes of a run whose order broke: reported if the members found out, else a failure."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from antiphon.check.verdict import Verdict
from antiphon.core.recording import Property
from antiphon.sim.scenario import Metrics
from antiphon.sim.scenarios.dpg import SCENARIO
from antiphon.spark.connections import connection_row, run_campaign

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET: Metrics = {"disagreements": 0, "unavailable": 0}


@pytest.mark.parametrize(
    ("broken", "metrics", "is_reported"),
    [
        ((), QUIET | {"disagreements": 1}, False),
        (("total",), QUIET, False),
        (("total",), QUIET | {"disagreements": 1}, True),
        (("atomicity",), QUIET | {"unavailable": 1}, True),
        (("fifo", "total"), QUIET | {"disagreements": 1}, False),
    ],
    ids=["nothing broken", "no member noticed", "noticed", "told as unavailable", "what may never break"],
)
def test_only_a_breach_that_may_happen_and_was_noticed_is_reported(
    broken: tuple[Property, ...], metrics: Metrics, is_reported: bool
) -> None:
    assert SCENARIO.is_reported(broken, metrics) is is_reported


def lost_in_pacing(_seed: int) -> dict[str, Any]:
    """Far more is lost than cycles so short can make up for."""
    return {"members": 4, "messages": 10, "rate": 400.0, "loss": 0.5, "report_ms": 20.0, "deliv_ms": 60.0}


def swapped(_seed: int) -> dict[str, Any]:
    """Two messages change places on their way to an application: no digest of the protocol's can tell."""
    return {"members": 3, "messages": 40, "sabotage": "swap"}


def test_an_order_that_members_saw_break_is_a_row_that_says_so() -> None:
    row = connection_row("dpg", lost_in_pacing, 2)
    assert row["broken"]
    metrics = dict(row["metrics"])
    assert metrics["disagreements"] + metrics["unavailable"] > 0
    assert row["reported"] is True
    assert row["explanation"], "and what happened can still be read"


def test_an_order_that_nobody_saw_break_is_broken() -> None:
    row = connection_row("dpg", swapped, 1)
    assert row["broken"]
    assert row["reported"] is False


@pytest.mark.spark
def test_a_campaign_counts_what_was_reported_and_does_not_fail_for_it(
    spark: "SparkSession", tmp_path: Path
) -> None:
    result = run_campaign(spark, "dpg", lost_in_pacing, range(2, 3), tmp_path)
    assert (result.reported, result.broken_runs, result.unfinished) == (1, 0, 0)
    assert sum(result.broken.values()) > 0, "but it is told which promise broke"
    assert (result.verdict, result.troubles) == (Verdict.PASS, [])
