"""What all tests share: the examples that Hypothesis draws, the marks, and one Spark session."""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from antiphon.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
# `make swarm` draws by a seed that it prints; a failure also prints how to reproduce its example alone.
settings.register_profile("new", settings.get_profile("same"), derandomize=False, print_blob=True)
settings.load_profile("same")

# Programs are started by the hundred here, and each process that runs tests collects them all: without this
# each would compile this package, and the tests, for itself.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Spark lives for minutes here: the time of Java's second compiler, half of all it takes, would never pay.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark swarms and fuzzing as slow, and keep what starts Spark, or Chromium, in one process each.

    The audit's tests go with Spark's, which need the same kernels: each is compiled once and then read. Tests
    that start a live group of processes follow one another, so that two groups never share the machine.
    """
    for item in items:
        if "swarm" in f"{item.path.name} {item.name}" or item.path.parent.name == "fuzz":
            item.add_marker(pytest.mark.slow)
        for name in ("spark", "browser", "live"):
            if item.get_closest_marker(name):
                item.add_marker(pytest.mark.xdist_group(name))
        if item.path.parent.name == "audit":
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """One local Spark session for all tests that need one; commands run in this process join it."""
    with spark_session("local[2]", "antiphon-tests") as session:
        yield session
