"""One local Spark session for all tests that need one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from antiphon.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    with spark_session("local[2]", "antiphon-tests") as session:
        yield session
