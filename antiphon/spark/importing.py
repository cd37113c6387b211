"""The import of logs as Spark jobs, for logs that one process cannot hold; the same rows as the local form.

Tasks read pieces of the files and stage their records in shares by message; further tasks write the rows of
a share each. `antiphon.trace.bulk` does the work.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from antiphon.core.errors import InputError
from antiphon.spark.session import map_in_arrow
from antiphon.spark.tasks import explain_failure
from antiphon.trace.adapters.importing import Imported, Plan
from antiphon.trace.arrow import pa
from antiphon.trace.bulk.importing import import_in_bulk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Answer = TypeVar("Answer")
ANSWERS: Final = pa.schema([("found", pa.binary()), ("problem", pa.string())])
"""What a task hands back: an answer, or what is wrong with the input."""


def import_on_spark(spark: "SparkSession", plan: Plan, out: Path) -> Imported:
    """Read the plan's files and write a trace; bad lines go to `bad/` in the same folder."""

    def run_tasks(
        items: Sequence[Item], work: Callable[[Item], Iterable[Answer]], answer: type[Answer]
    ) -> list[Answer]:
        def answers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            encode = msgspec.msgpack.Encoder().encode
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    try:
                        for found in work(items[index]):
                            yield pa.RecordBatch.from_pylist([{"found": encode(found)}], ANSWERS)
                    except InputError as error:
                        yield pa.RecordBatch.from_pylist([{"problem": error.sentence}], ANSWERS)

        tasks = spark.range(0, len(items), 1, len(items))
        try:
            rows = map_in_arrow(tasks, answers, "found binary, problem string").collect()
        except Exception as error:
            explained = explain_failure(error)
            if explained is None:
                raise
            raise explained from error
        for row in rows:
            if row.problem is not None:
                raise InputError(row.problem)
        return [msgspec.msgpack.decode(bytes(row.found), type=answer) for row in rows]

    return import_in_bulk(run_tasks, plan, out)
