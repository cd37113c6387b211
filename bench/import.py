"""How fast logs are imported, beside Spark that reads, parses and writes the same lines as plain JSON.

A NATS stream of N messages with three consumers: a file for the publisher and one for each consumer, so 4N
lines in all. Both read the lines, parse JSON, and write a table; the import also numbers the messages, finds
each site's order, adds who a message is for and what the system accepted, and looks for what the log cannot
tell. The two alternate in one session, and the median of the repeats counts. Spark's start-up is not
included. Caveats: files come from the page cache; one machine; the work is not the same.

    make bench-import
    python bench/import.py --messages 5000 --repeats 1   # a quick look
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antiphon.spark.importing import import_on_spark
from antiphon.spark.session import spark_session
from antiphon.trace.adapters.importing import Plan
from antiphon.trace.adapters.nats import Nats

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONSUMERS: Final = ("billing", "mail", "shipping")
START: Final = 1_767_225_600.0
WARM_UP_MESSAGES: Final = 250_000
"""Enough of them that Java has compiled what both do; more make the bench longer."""


def make_logs(folder: Path, messages: int) -> tuple[Path, ...]:
    """The publisher's log and the consumers'."""
    folder.mkdir()
    publisher = folder / "shop.jsonl"
    with publisher.open("w") as log:
        log.writelines(
            f'{{"kind": "publish", "stream": "ORDERS", "seq": {number}, "time": {START + number / 1e3}}}\n'
            for number in range(1, messages + 1)
        )
    consumers = []
    for place, name in enumerate(CONSUMERS):
        consumers.append(folder / f"{name}.jsonl")
        with consumers[-1].open("w") as log:
            log.writelines(
                f'{{"client": "{name}", "stream": "ORDERS", "stream_seq": {number}, "num_delivered": 1, '
                f'"time": {START + number / 1e3 + place / 1e2}}}\n'
                for number in range(1, messages + 1)
            )
    return (publisher, *consumers)


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def plain_json(spark: "SparkSession", files: tuple[Path, ...], out: Path) -> None:
    schema = (
        "kind string, client string, stream string, seq long, stream_seq long, num_delivered int, time double"
    )
    spark.read.schema(schema).json([str(file) for file in files]).write.json(str(out))


def measure(messages: int, repeats: int, master: str) -> dict[str, float]:
    imports, plains = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as temporary, spark_session(master, "antiphon-bench") as spark:
        folder = Path(temporary)

        def both(files: tuple[Path, ...]) -> tuple[float, float]:
            plain = timed(lambda: plain_json(spark, files, folder / "plain"))
            shutil.rmtree(folder / "plain")
            imported = timed(lambda: import_on_spark(spark, Plan(Nats(), files), folder / "trace"))
            shutil.rmtree(folder / "trace")
            return plain, imported

        both(make_logs(folder / "warm-up", min(messages, WARM_UP_MESSAGES)))
        files = make_logs(folder / "logs", messages)
        for _ in range(repeats):
            plain, imported = both(files)
            plains.append(plain)
            imports.append(imported)
    imported, plain = statistics.median(imports), statistics.median(plains)
    lines = messages * (1 + len(CONSUMERS))
    return {
        "lines": lines, "import_s": round(imported, 3), "plain_json_s": round(plain, 3),
        "lines_per_s": round(lines / imported), "ratio": round(imported / plain, 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--master", default="local[*]")
    given = parser.parse_args()
    print(json.dumps(measure(given.messages, given.repeats, given.master)))


if __name__ == "__main__":
    main()
