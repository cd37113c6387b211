"""The audit on Spark equals the pure checkers, however the rows are laid out in files."""

import os
import signal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antiphon.audit.runs import Request
from antiphon.check.checkers import check_trace
from antiphon.check.verdict import Verdict, Violation, count_by_property
from antiphon.core.errors import InputError, OutputError, UsageError
from antiphon.core.ids import MessageId
from antiphon.core.recording import PROPERTIES, Kind, Property
from antiphon.spark.audit import audit
from antiphon.trace.arrow import events_table, runs_table
from antiphon.trace.files import write_trace
from antiphon.trace.schema import Event, Run
from tests.strategies import random_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

RUNS = 800
Key = tuple[str, str, str | None, str, int]


class Many:
    """Many random runs, with what the pure checkers say about them."""

    def __init__(self, runs: int) -> None:
        self.events: list[Event] = []
        self.runs: list[Run] = []
        self.expected: list[Violation] = []
        self.fails = False
        for seed in range(runs):
            events, run = random_trace(Random(seed), f"run-{seed}")
            violations = check_trace(events, run)
            self.events += events
            self.runs.append(run)
            self.expected += violations
            self.fails |= any(violation.property in run.promises for violation in violations)

    @property
    def deliveries(self) -> int:
        return sum(event.count or 1 for event in self.events if event.kind == "deliver")


@pytest.fixture(scope="module")
def some() -> Many:
    return Many(60)


def key(violation: Violation) -> Key:
    return violation.run, violation.property, violation.site, violation.sender, violation.number


def keys_written(folder: Path) -> list[Key]:
    table = pq.read_table(folder, columns=["run", "property", "site", "sender", "number"])
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def write_files(folder: Path, tables: list[pa.Table], runs: list[Run], rows: int = 1 << 20) -> Path:
    """A trace as others might write it."""
    (folder / "events").mkdir(parents=True)
    (folder / "runs").mkdir()
    for index, table in enumerate(tables):
        pq.write_table(table, folder / "events" / f"{index}.parquet", row_group_size=rows)
    pq.write_table(runs_table(runs), folder / "runs" / "runs.parquet")
    return folder


def test_many_random_runs_in_one_job(spark: "SparkSession", tmp_path: Path) -> None:
    many = Many(RUNS)
    shuffled = many.events[:]
    Random(0).shuffle(shuffled)
    third = len(shuffled) // 3
    parts = [shuffled[:third], shuffled[third : 2 * third], shuffled[2 * third :]]
    write_trace(tmp_path / "trace", parts, many.runs)
    result = audit(spark, [tmp_path / "trace"], violations_to=tmp_path / "violations")
    assert keys_written(tmp_path / "violations") == sorted(map(key, many.expected), key=repr)
    assert result.violations == count_by_property(many.expected)
    assert min(result.violations.values()) > 100
    assert result.verdict is Verdict.FAIL
    assert (result.runs, result.deliveries) == (RUNS, many.deliveries)
    told = {key(violation): violation for violation in many.expected}
    assert all(told[key(example)].explanation for example in result.examples)
    assert len(result.examples) == 100 * len(PROPERTIES)


def retyped(table: pa.Table) -> pa.Table:
    """Other widths and encodings, and a column that was not asked for."""
    fields = {
        "run": pa.dictionary(pa.int8(), pa.string())
        if len(set(table["run"].to_pylist())) < 100
        else pa.string(),
        "site": pa.large_string(),
        "step": pa.int16(),
        "sender": pa.dictionary(pa.int32(), pa.large_string()),
        "destinations": pa.large_list(pa.large_string()),
        "count": pa.uint8(),
    }
    schema = pa.schema([pa.field(f.name, fields.get(f.name, f.type)) for f in table.schema])
    return table.cast(schema).append_column("mood", pa.repeat("good", table.num_rows))


def laid_out(many: Many, layout: str, folder: Path) -> Path:
    events = many.events[:]
    Random(5).shuffle(events)
    if layout == "one shuffled file":
        return write_files(folder, [events_table(events)], many.runs)
    if layout == "row groups that split sites":
        return write_files(folder, [events_table(many.events)], many.runs, rows=37)
    if layout == "many small files":
        parts = [events[begin : begin + 100] for begin in range(0, len(events), 100)]
        return write_files(folder, [events_table(part) for part in parts], many.runs)
    if layout == "other types":
        return write_files(folder, [retyped(events_table(events))], many.runs)
    assert layout == "without optional columns that are empty"
    return write_files(folder, [events_table(events).drop_columns(["size", "time_ns"])], many.runs)


@pytest.mark.parametrize(
    "layout",
    [
        "one shuffled file",
        "row groups that split sites",
        "many small files",
        "other types",
        "without optional columns that are empty",
    ],
)
def test_files_of_any_layout(spark: "SparkSession", some: Many, layout: str, tmp_path: Path) -> None:
    folder = laid_out(some, layout, tmp_path / "trace")
    result = audit(spark, [folder], violations_to=tmp_path / "violations")
    assert keys_written(tmp_path / "violations") == sorted(map(key, some.expected), key=repr)
    assert result.violations == count_by_property(some.expected)


def group_log(swapped_at: dict[str, list[int]], messages: int = 200) -> list[Event]:
    """Three sites deliver the same messages in one order, but for planted swaps of neighbours."""
    rows: list[tuple[str, Kind, str, int]] = []
    ids = [MessageId(f"s{index % 3}", index // 3) for index in range(messages)]
    for site in ("s0", "s1", "s2"):
        rows += [(site, "send", *message) for message in ids if message.sender == site]
        order = ids[:]
        for place in swapped_at.get(site, ()):
            order[place], order[place + 1] = order[place + 1], order[place]
        rows += [(site, "deliver", *message) for message in order]
    steps = dict.fromkeys(("s0", "s1", "s2"), -1)
    events: list[Event] = []
    for site, kind, sender, number in rows:
        steps[site] += 1
        events.append(Event("run", site, steps[site], kind, sender, number))
    return events


def test_planted_swaps_are_found_exactly(spark: "SparkSession", tmp_path: Path) -> None:
    swaps = {"s1": [10, 50], "s2": [90]}
    write_trace(tmp_path / "trace", [group_log(swaps)], [Run("run", promises=("total", "fifo"))])
    result = audit(spark, [tmp_path / "trace"])
    assert result.verdict is Verdict.FAIL
    assert result.violations == {**dict.fromkeys(PROPERTIES, 0), "total": 3}
    named = sorted((example.sender, example.number) for example in result.examples)
    pairs = [
        [(f"s{place % 3}", place // 3), (f"s{(place + 1) % 3}", (place + 1) // 3)] for place in (10, 50, 90)
    ]
    assert named == sorted(min(pair) for pair in pairs)
    assert result.to_json() == {
        "verdict": "fail",
        "runs": 1,
        "sites": 3,
        "sends": 200,
        "deliveries": 600,
        "violations": {**dict.fromkeys(PROPERTIES, 0), "total": 3},
        "unknown": {},
        "not_judged": {},
        "engine": "spark",
        "verdicts": [
            {
                "run": "run",
                "property": "total",
                "promised": True,
                "verdict": "fail",
                "violations": 3,
                "reason": None,
            }
        ],
        "reasons": [],
    }
    assert result.broken_runs == ["run"]


@pytest.mark.parametrize(
    ("promises", "expect", "verdict"),
    [
        (("total",), None, Verdict.FAIL),
        (("fifo",), None, Verdict.PASS),
        ((), None, Verdict.PASS),
        (("total",), ("fifo", "integrity"), Verdict.PASS),
        (("fifo",), ("total",), Verdict.FAIL),
        (None, None, Verdict.UNKNOWN),
        (None, ("fifo",), Verdict.PASS),
    ],
)
def test_the_verdict_is_about_what_was_promised(
    spark: "SparkSession",
    tmp_path: Path,
    promises: tuple[Property, ...] | None,
    expect: tuple[Property, ...] | None,
    verdict: Verdict,
) -> None:
    runs = [] if promises is None else [Run("run", promises=promises)]
    write_trace(tmp_path / "trace", [group_log({"s1": [10]}, 30)], runs)
    result = audit(spark, [tmp_path / "trace"], expect)
    assert result.verdict is verdict
    assert result.violations["total"] == 1
    assert result.unpromised == (verdict is Verdict.UNKNOWN)


def test_runs_of_different_traces_are_different_runs(spark: "SparkSession", tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_trace(tmp_path / name, [group_log({}, 12)], [Run("run", promises=PROPERTIES)])
    result = audit(spark, [tmp_path / "one", tmp_path / "two"])
    assert (result.verdict, result.runs, result.sites, result.sends) == (Verdict.PASS, 2, 3, 24)


def test_a_run_that_cannot_be_judged_is_named_and_the_others_are_judged(
    spark: "SparkSession", tmp_path: Path
) -> None:
    holed = [Event("holed", "a", step, "present") for step in (0, 2)]
    flawed = [Event("flawed", "a", 0, "deliver", "b", -4)]
    runs = [Run(name, promises=PROPERTIES) for name in ("run", "holed", "flawed")]
    write_trace(tmp_path / "trace", [group_log({}, 12) + holed + flawed], runs)
    result = audit(spark, [tmp_path / "trace"])
    assert result.verdict is Verdict.UNKNOWN
    assert (result.runs, result.deliveries, result.unjudgeable_count) == (3, 36, 2)
    assert result.unjudgeable == [
        "Run flawed cannot be judged: in the row of site a, step 0, its number is -4.",
        "Run holed: integrity, duplicate, atomicity, fifo, causal and 2 more are unknown, because step 1 is "
        "missing from the log of site a.",
    ]


def test_two_rows_in_runs_cannot_be_judged(spark: "SparkSession", tmp_path: Path) -> None:
    write_trace(tmp_path / "trace", [group_log({}, 12)], [Run("run"), Run("run")])
    result = audit(spark, [tmp_path / "trace"])
    assert result.verdict is Verdict.UNKNOWN
    assert "2 rows in runs/" in result.unjudgeable[0]


def test_a_file_torn_inside_is_an_input_error(spark: "SparkSession", tmp_path: Path) -> None:
    """The footer is whole, so only reading the pages can tell."""
    files = write_trace(tmp_path / "trace", [group_log({}, 300)], [Run("run")])
    content = bytearray(files.events[0].read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    files.events[0].write_bytes(content)
    with pytest.raises(InputError, match="cannot be read as Parquet") as error:
        audit(spark, [tmp_path / "trace"])
    assert files.events[0].name in error.value.sentence
    assert error.value.hint


def test_files_that_are_no_trace_are_input_errors(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        audit(spark, [tmp_path / "nothing"])
    folder = write_files(tmp_path / "narrow", [events_table(group_log({}, 3)).drop_columns(["number"])], [])
    with pytest.raises(InputError, match="number"):
        audit(spark, [folder])
    files = write_trace(tmp_path / "torn", [group_log({}, 3)], [Run("run")])
    files.events[0].write_bytes(files.events[0].read_bytes()[:-9])
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        audit(spark, [tmp_path / "torn"])


def test_a_column_without_values_where_each_row_needs_one(spark: "SparkSession", tmp_path: Path) -> None:
    table = events_table(group_log({}, 3))
    where = table.schema.get_field_index("kind")
    holed = pa.array([None, *table["kind"].to_pylist()[1:]], pa.string())
    folder = write_files(tmp_path / "trace", [table.set_column(where, "kind", holed)], [Run("run")])
    with pytest.raises(InputError, match=r"column kind of .* rows without a value"):
        audit(spark, [folder])


def test_violations_go_only_to_a_folder_without_any(spark: "SparkSession", tmp_path: Path) -> None:
    write_trace(tmp_path / "trace", [group_log({"s1": [3]}, 12)], [Run("run")])
    audit(spark, [tmp_path / "trace"], violations_to=tmp_path / "violations")
    row = pq.read_table(tmp_path / "violations").to_pylist()[0]
    assert (row["property"], row["run"], row["promised"], row["site"]) == ("total", "run", False, None)
    assert row["trace"] == str(tmp_path / "trace")
    assert row["explanation"].endswith("entangled in this way.")
    assert len(row["witness"]) == 4
    with pytest.raises(OutputError, match="already holds Parquet files"):
        audit(spark, [tmp_path / "trace"], violations_to=tmp_path / "violations")
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        audit(spark, [tmp_path / "trace"], violations_to=tmp_path / "file")


def test_a_worker_that_dies_is_one_sentence_and_leaves_nothing(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_trace(tmp_path / "trace", [group_log({"s1": [3]}, 12)], [Run("run")])

    def die(_pieces: object, request: Request, _part: int) -> None:
        Path(f"{request.violations_to}/violations-00000.parquet").touch()
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr("antiphon.spark.audit.judge_runs", die)
    with pytest.raises(InputError, match="A worker process died while it judged") as error:
        audit(spark, [tmp_path / "trace"], violations_to=tmp_path / "violations")
    assert error.value.hint
    assert list((tmp_path / "violations").iterdir()) == []


def test_memory_that_ends_in_a_worker_is_one_sentence(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_trace(tmp_path / "trace", [group_log({"s1": [3]}, 12)], [Run("run")])

    def end(_pieces: object, _request: Request, _part: int) -> None:
        raise MemoryError("Unable to allocate 14.9 GiB for an array")

    monkeypatch.setattr("antiphon.spark.audit.judge_runs", end)
    with pytest.raises(InputError, match="A worker ran out of memory while it judged") as error:
        audit(spark, [tmp_path / "trace"], violations_to=tmp_path / "violations")
    assert "--only" in (error.value.hint or "")
    assert list((tmp_path / "violations").iterdir()) == []


def test_misuse_is_a_usage_error(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no property"):
        audit(spark, [tmp_path], ["order"])  # type: ignore[list-item]
    with pytest.raises(UsageError):
        audit(spark, [])
