"""The import of logs as a Spark job, for logs that one process cannot hold; the same rows as the local form.

Tasks parse whole files into records, which are kept in a staging folder; so a file is read once, by one
task, and many files are read at once. What follows is SQL: numbers from the order of sends, a join from ids
to numbers, dense ranks for steps. The trace appears in its folder when it is complete.

`antiphon.trace.adapters.numbering` states the rules; a test compares the two.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from antiphon.core.errors import OutputError
from antiphon.spark.session import map_in_arrow
from antiphon.trace.adapters.importing import (
    BAD_LINES,
    Imported,
    Plan,
    file_records,
    nothing_found,
    require_readable,
)
from antiphon.trace.adapters.notes import (
    Evidence,
    clock_note,
    group_note,
    hole_note,
    is_split,
    judgeable,
    name_note,
)
from antiphon.trace.adapters.numbering import UNNAMED
from antiphon.trace.adapters.record import BadLine
from antiphon.trace.arrow import EVENTS, pa
from antiphon.trace.files import note_run, require_no_trace
from antiphon.trace.schema import ACCEPTED, Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_BATCH: Final = 50_000
"""Records that a task hands on at once. Raising it takes memory in the task."""
STAGING: Final = ".importing"
RECORDS: Final = pa.schema(
    [
        ("run", pa.string()), ("site", pa.string()), ("kind", pa.string()), ("sender", pa.string()),
        ("number", pa.int64()), ("message_id", pa.string()), ("domain", pa.string()), ("order", pa.int64()),
        ("attempt", pa.int32()), ("group", pa.string()), ("destinations", pa.list_(pa.string())),
        ("size", pa.int32()), ("time_ns", pa.int64()),
        ("file", pa.int32()), ("line", pa.int64()), ("nth", pa.int64()),
        ("reason", pa.string()), ("text", pa.string()), ("hides", pa.bool_()),
    ]
)  # fmt: skip
RECORDS_DDL: Final = (
    "run string, site string, kind string, sender string, number long, message_id string, domain string,"
    " `order` long, attempt int, `group` string, destinations array<string>, size int, time_ns long,"
    " file int, line long, nth long, reason string, text string, hides boolean"
)
MESSAGE: Final = "kind NOT IN ('present', 'absent')"


def import_on_spark(spark: "SparkSession", plan: Plan, out: Path) -> Imported:
    """Read the plan's files and write a trace; bad lines go to `bad/` in the same folder."""
    require_readable(plan.files)
    require_no_trace(out)
    staging = out / STAGING
    try:
        staging.mkdir(parents=True)
        return _Job(spark, plan, out.resolve(), staging.resolve()).imported()
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"The trace cannot be written to {out}: {reason}.") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        if out.is_dir() and not any(out.iterdir()):
            out.rmdir()


def parsed_batches(plan: Plan, index: int) -> Iterator[pa.RecordBatch]:
    """The records and bad lines of one file, as batches of `RECORDS`."""
    rows: list[tuple[Any, ...]] = []
    for found, place in file_records(plan, index):
        if isinstance(found, BadLine):
            rows.append((*(None,) * 13, index, found.number, None, found.reason, found.text, found.hides))
        else:
            rows.append(
                (
                    found.run or plan.run, found.site, found.kind, found.sender, found.number,
                    found.message_id, found.domain, found.order, found.attempt, found.group,
                    found.destinations, found.size,
                    found.time_ns, *place, None, None, None,
                )
            )  # fmt: skip
        if len(rows) >= ROWS_PER_BATCH:
            yield _batch(rows)
            rows = []
    yield _batch(rows)


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(RECORDS)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RECORDS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


class _Job:
    """One import: stages the records, numbers them, and writes the trace."""

    def __init__(self, spark: "SparkSession", plan: Plan, out: Path, staging: Path) -> None:
        self._spark, self._plan, self._out, self._staging = spark, plan, out, staging

    def imported(self) -> Imported:
        records, bad = self._parsed()
        examples = [
            f"{self._plan.files[row.file]}, line {row.line}: {row.reason}"
            for row in bad.orderBy("file", "line").limit(3).collect()
        ]
        if not records.take(1):
            raise nothing_found(self._plan, examples)
        numbered = self._numbered(records)
        events = self._events(self._with_holes(numbered, records, bad))
        notes, promises = self._notes(records, numbered, bad)
        self._write(events, bad, promises)
        return self._summary(events, bad, tuple(examples), notes, promises)

    def _parsed(self) -> "tuple[DataFrame, DataFrame]":
        plan = self._plan

        def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    yield from parsed_batches(plan, index)

        files = self._spark.range(0, len(plan.files), 1, len(plan.files))
        place = str(self._staging / "records")
        map_in_arrow(files, parse, RECORDS_DDL).write.parquet(place)
        staged = self._spark.read.schema(RECORDS_DDL).parquet(place)
        return staged.where("reason IS NULL"), staged.where("reason IS NOT NULL")

    def _numbered(self, records: "DataFrame") -> "DataFrame":
        """Records with `position`, and with sender, number and domain for every message."""
        from pyspark.sql import functions as F  # noqa: N812  # the name everyone knows it by

        major = "coalesce(`order`, bigint(file)), IF(`order` IS NULL, line, 0L), IF(`order` IS NULL, nth, 0L)"
        placed = records.selectExpr("*", f"struct({major}) AS position")
        if not records.where(f"{MESSAGE} AND number IS NULL").take(1):
            return self._named_by_number(placed)
        by_sender = "PARTITION BY run, sender ORDER BY position, file, line, nth"
        by_message = "PARTITION BY run, message_id ORDER BY position, sender, file, line, nth"
        first = (
            placed.where("kind = 'send' AND message_id IS NOT NULL")
            .withColumn("sender", F.expr("coalesce(sender, site)"))
            .selectExpr("*", f"row_number() OVER ({by_message}) AS trial")
            .where("trial = 1")
            .selectExpr(
                "run", "message_id", "sender AS sent_by", "domain AS sent_in",
                f"coalesce(number, row_number() OVER ({by_sender}) - 1) AS sent_as",
                f"number IS NULL AND position <=> lag(position) OVER ({by_sender}) AS tied",
            )
        )  # fmt: skip
        joined = placed.join(first, ["run", "message_id"], "left")
        return joined.selectExpr(
            "run", "site", "kind", "message_id", "attempt", "`group`", "destinations", "size", "time_ns",
            "position",
            f"""CASE WHEN NOT {MESSAGE} THEN NULL
                     WHEN number IS NOT NULL THEN coalesce(sender, domain, '{UNNAMED}')
                     ELSE coalesce(sent_by, '?' || message_id) END AS sender""",
            f"IF({MESSAGE}, coalesce(number, sent_as, 0L), NULL) AS number",
            f"IF({MESSAGE}, coalesce(domain, sent_in), NULL) AS domain",
            "kind = 'send' AND coalesce(tied, false) AS tied",
            f"{MESSAGE} AND number IS NULL AND sent_by IS NULL AS unsent",
        )  # fmt: skip

    @staticmethod
    def _named_by_number(placed: "DataFrame") -> "DataFrame":
        """Where every message has a number, only domains are looked up, and only where records lack them."""
        domains = placed.where("kind = 'send' AND message_id IS NOT NULL AND domain IS NOT NULL")
        if placed.where(f"{MESSAGE} AND domain IS NULL").take(1) and domains.take(1):
            by_message = "PARTITION BY run, message_id ORDER BY position, sender, file, line, nth"
            sent = (
                placed.where("kind = 'send' AND message_id IS NOT NULL")
                .selectExpr("*", f"row_number() OVER ({by_message}) AS trial")
                .where("trial = 1")
                .selectExpr("run", "message_id", "domain AS sent_in")
            )
            placed = placed.join(sent, ["run", "message_id"], "left")
        else:
            placed = placed.selectExpr("*", "CAST(NULL AS string) AS sent_in")
        return placed.selectExpr(
            "run", "site", "kind", "message_id", "attempt", "`group`", "destinations", "size", "time_ns",
            "position",
            f"IF({MESSAGE}, coalesce(sender, domain, '{UNNAMED}'), NULL) AS sender",
            f"IF({MESSAGE}, number, NULL) AS number",
            f"IF({MESSAGE}, coalesce(domain, sent_in), NULL) AS domain",
            "false AS tied", "false AS unsent",
        )  # fmt: skip

    def _with_holes(self, numbered: "DataFrame", records: "DataFrame", bad: "DataFrame") -> "DataFrame":
        """Rows with `hole`, 1 at sites of files that have lines which may have been records, else 0."""
        files = bad.where("hides").select("file").distinct()
        if not files.take(1):
            return numbered.selectExpr("*", "0L AS hole")
        holed = records.join(files, "file", "left_semi").select("run", "site").distinct()
        joined = numbered.join(holed.selectExpr("run", "site", "1L AS hole"), ["run", "site"], "left")
        return joined.fillna({"hole": 0})

    def _with_acceptance(self, numbered: "DataFrame") -> "DataFrame":
        """Rows with `accepted`: whether the system held the message, as far as the log says so."""
        if not self._plan.format.marks_acceptance:
            return numbered.selectExpr("*", "true AS accepted")
        held = numbered.where(f"kind = 'deliver' AND site = '{ACCEPTED}'")
        held = held.select("run", "sender", "number").distinct().selectExpr("*", "true AS accepted")
        return numbered.join(held, ["run", "sender", "number"], "left").fillna({"accepted": False})

    def _events(self, rows: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F  # noqa: N812

        numbered = self._with_acceptance(rows)
        consumers = (
            numbered.where(f"kind = 'deliver' AND site <> '{ACCEPTED}'")
            .selectExpr("run", "explode(array_distinct(array(domain, NULL))) AS domain", "site")
            .groupBy(F.col("run").alias("of_run"), F.col("domain").alias("of_domain"))
            .agg(F.expr("collect_set(site) AS consumers"))
        )
        held = f"IF(accepted, array('{ACCEPTED}'), array())"
        everyone = "true" if self._plan.audience == "everyone" else "`group` IS NOT NULL"
        matched = (numbered.run == consumers.of_run) & numbered.domain.eqNullSafe(consumers.of_domain)
        events = numbered.join(consumers.hint("broadcast"), matched, "left").selectExpr(
            "run", "site", "dense_rank() OVER (PARTITION BY run, site ORDER BY position) - 1L + hole AS step",
            "kind", "sender", "number", "CAST(NULL AS int) AS count",
            f"IF({MESSAGE}, `group`, NULL) AS `group`",
            f"""CASE WHEN kind <> 'send' THEN NULL
                     WHEN destinations IS NOT NULL THEN concat(destinations, {held})
                     WHEN {everyone} THEN NULL
                     ELSE concat(array_sort(coalesce(consumers, array())), {held})
                END AS destinations""",
            f"IF({MESSAGE}, size, NULL) AS size", "time_ns", "message_id", "attempt", "domain",
        )  # fmt: skip
        if self._plan.format.marks_acceptance:
            return events.select(*EVENTS.names)
        accepted = (
            events.where("kind = 'send'")
            .dropDuplicates(["run", "sender", "number"])
            .selectExpr(
                "run", f"'{ACCEPTED}' AS site", "0L AS step", "'deliver' AS kind", "sender", "number",
                "count", "CAST(NULL AS string) AS `group`", "CAST(NULL AS array<string>) AS destinations",
                "CAST(NULL AS int) AS size", "CAST(NULL AS long) AS time_ns", "message_id",
                "CAST(NULL AS int) AS attempt", "domain",
            )
        )  # fmt: skip
        return events.unionByName(accepted).select(*EVENTS.names)

    def _notes(
        self, records: "DataFrame", numbered: "DataFrame", bad: "DataFrame"
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        from pyspark.sql import functions as F  # noqa: N812

        promised = self._plan.format.promises if self._plan.promises is None else self._plan.promises
        notes: dict[str, None] = {}
        promises: dict[str, Any] = {}
        sums = numbered.groupBy("run").agg(
            F.expr("any(kind = 'send') AS has_sends"),
            F.expr("count(DISTINCT IF(tied, message_id, NULL)) AS ties"),
            F.expr("any(unsent) AS has_unsent"),
        )
        groups = {} if self._plan.audience == "everyone" else self._group_notes(records)
        merged = self._merged_runs(records)
        for row in sums.orderBy("run").collect():
            evidence = Evidence(row.has_sends, row.ties, row.has_unsent, row.run in groups, row.run in merged)
            promises[row.run], found = judgeable(promised, evidence)
            notes.update(dict.fromkeys([*found, *groups.get(row.run, ())]))
        notes.update(dict.fromkeys(self._name_notes(records)))
        notes.update(dict.fromkeys(self._clock_notes(records)))
        holes = bad.where("hides").groupBy("file").count().orderBy("file").collect()
        notes.update(dict.fromkeys(hole_note(self._plan.files[row.file], row["count"]) for row in holes))
        return tuple(notes), promises

    def _merged_runs(self, records: "DataFrame") -> set[str]:
        """Runs in which the site of all consumers stands for several files without an order among them."""
        if self._plan.site is None:
            return set()
        own = records.where("kind = 'deliver' AND `order` IS NULL").where(records.site == self._plan.site)
        counts = own.select("run", "file").distinct().groupBy("run").count()
        return {row.run for row in counts.where("count > 1").collect()}

    def _name_notes(self, records: "DataFrame") -> Iterator[str]:
        own = records.where(f"kind = 'deliver' AND site <> '{ACCEPTED}'").select("site", "file").distinct()
        rows = own.groupBy("site").agg({"file": "collect_set"}).toDF("site", "files")
        for row in rows.where("size(files) > 1").orderBy("site").collect():
            if row.site != self._plan.site:
                yield name_note(row.site, [self._plan.files[index] for index in sorted(row.files)])

    def _group_notes(self, records: "DataFrame") -> dict[str, list[str]]:
        """For each run a sentence for each domain that looks like a consumer group's."""
        from pyspark.sql import functions as F  # noqa: N812

        own = records.where(f"kind = 'deliver' AND domain IS NOT NULL AND site <> '{ACCEPTED}'").selectExpr(
            "run", "domain", "site", "coalesce(message_id, string(number)) AS name"
        )
        shares = (
            own.groupBy("run", "domain", "name")
            .agg(F.expr("collect_set(site) AS sites"))
            .selectExpr("run", "domain", "size(sites) > 1 AS shared", "explode(sites) AS site")
            .groupBy("run", "domain", "site")
            .agg(F.expr("count(*) AS delivered"), F.expr("count_if(shared) AS shared"))
        )
        domains: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
        for row in shares.orderBy("run", "domain", "site").collect():
            domains.setdefault((row.run, row.domain), {})[row.site] = (row.delivered, row.shared)
        notes: dict[str, list[str]] = {}
        for (run, domain), sites in domains.items():
            if is_split(sites):
                notes.setdefault(run, []).append(group_note(domain, list(sites)))
        return notes

    def _clock_notes(self, records: "DataFrame") -> Iterator[str]:
        window = "OVER (PARTITION BY file, site ORDER BY line, nth)"
        back = records.where("time_ns IS NOT NULL").selectExpr(
            "file", f"time_ns < lag(time_ns) {window} AS back"
        )
        rows = back.where("back").groupBy("file").count().orderBy("file").collect()
        return (clock_note(self._plan.files[row.file], row["count"]) for row in rows)

    def _write(self, events: "DataFrame", bad: "DataFrame", promises: dict[str, Any]) -> None:
        staged = self._staging / "events"
        events.write.option("compression", "zstd").parquet(str(staged))
        names = self._spark.createDataFrame(
            list(enumerate(map(str, self._plan.files))), "file int, name string"
        )
        refused = bad.join(names, "file").selectExpr("name AS file", "line", "reason", "text")
        if bad.take(1):
            assert refused.columns == BAD_LINES.names
            refused.orderBy("file", "line").coalesce(1).write.parquet(str(self._staging / "bad"))
            (self._staging / "bad").rename(self._out / "bad")
        for run, kept in sorted(promises.items()):
            note_run(self._out, Run(run, self._plan.format.name, kept))
        staged.rename(self._out / "events")

    def _summary(
        self, events: "DataFrame", bad: "DataFrame", examples: tuple[str, ...], notes: tuple[str, ...],
        promises: dict[str, Any],
    ) -> Imported:  # fmt: skip
        written = self._spark.read.schema(events.schema).parquet(str(self._out / "events"))
        kinds: Counter[str] = Counter()
        sites: set[tuple[str, str]] = set()
        for row in written.groupBy("run", "site", "kind").count().collect():
            kinds[row.kind] += row["count"]
            sites.add((row.run, row.site))
        return Imported(
            runs=len(promises), sites=len(sites),
            sends=kinds["send"], deliveries=kinds["deliver"], rows=kinds.total(),
            bad_lines=bad.count(), bad_examples=examples, notes=notes, promises=promises[min(promises)],
        )  # fmt: skip
