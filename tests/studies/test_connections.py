"""Campaigns of small connections: what is drawn, how it is judged, and what a failing run leaves behind.

`ANTIPHON_SWARM_SEEDS` sets how many connections of each protocol are tried without Spark.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow.parquet as pq
import pytest

from antiphon.audit.judging import judge
from antiphon.audit.log import build_log
from antiphon.audit.recorder import PackingRecorder
from antiphon.check.atomicity import check_atomicity
from antiphon.check.checkers import CHECKERS, check_trace
from antiphon.check.history import History
from antiphon.check.verdict import Verdict, Violation
from antiphon.cli.main import run as command
from antiphon.core.errors import InputError, OutputError, UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.recording import PROPERTIES, Kind, Recorder
from antiphon.sim.sabotage import BREAKS
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.scenarios import find_scenario
from antiphon.simulation import run_row
from antiphon.spark.connections import CONNECTIONS, connection_row, cut, run_campaign
from antiphon.spark.tasks import DIED, run_all
from antiphon.studies.connections import DRAWINGS, drawing
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Event, Run
from tests.strategies import random_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = int(os.environ.get("ANTIPHON_SWARM_SEEDS", "8"))
Capture = pytest.CaptureFixture[str]


# Judging


class Both:
    """A recorder that writes for the pure checkers and for the compiled judge at once."""

    def __init__(self, run: str) -> None:
        self.pure = MemoryRecorder(run)
        self.packed = PackingRecorder()

    def record(
        self,
        site: Site,
        kind: Kind,
        time_ns: int,
        sender: Site | None = None,
        number: int | None = None,
        count: int = 1,
        group: Group | None = None,
        destinations: Iterable[Site] | None = None,
        size: int | None = None,
    ) -> None:
        listed = None if destinations is None else list(destinations)
        self.pure.record(site, kind, time_ns, sender, number, count, group, listed, size)
        self.packed.record(site, kind, time_ns, sender, number, count, group, listed, size)


def same(found: list[Violation], expected: list[Violation]) -> bool:
    """Equal as sets, explanations and witnesses included."""
    return sorted(map(repr, found)) == sorted(map(repr, expected))


def pure_violations(events: list[Event], run: Run, in_order: bool) -> list[Violation]:
    history = History(events, run)
    others = [name for name in PROPERTIES if name != "atomicity"]
    found = [violation for name in others for violation in CHECKERS[name](history)]
    return found + check_atomicity(history, in_order=in_order)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [name for name in DRAWINGS if "sabotage" in find_scenario(name).knobs()])
def test_connections_are_judged_as_the_pure_checkers_judge_them(protocol: str) -> None:
    scenario, draw = find_scenario(protocol), drawing(protocol)
    found: Counter[str] = Counter()
    for seed, deed in enumerate(["none", *BREAKS]):
        configuration = scenario.configure(draw(seed) | {"sabotage": deed})
        run = run_row(scenario, configuration, seed)
        recorder = Both(run.run)
        scenario.run(configuration, seed, recorder)
        in_order = "total" in scenario.promises
        judgement = judge(build_log(run, [recorder.packed.segment()]), in_order=in_order)
        expected = pure_violations(recorder.pure.events(), run, in_order)
        assert same(judgement.violations, expected), scenario.replay_command(configuration, seed)
        found.update(violation.property for violation in expected)
    assert len(found) >= 4, "the saboteur must break several properties"


def test_rows_recorded_into_arrays_are_judged_as_the_rows_of_a_trace() -> None:
    """Traces with groups, chosen destinations, batches and senders left out, which no scenario has all of."""
    broken: Counter[str] = Counter()
    for seed in range(300):
        events, run = random_trace(Random(seed), "run")
        recorder = PackingRecorder()
        for event in sorted(events, key=lambda event: (event.step, event.site)):
            recorder.record(
                event.site, event.kind, 0, event.sender, event.number, event.count or 1, event.group,
                event.destinations,
            )  # fmt: skip
        expected = check_trace(events, run)
        judgement = judge(build_log(run, [recorder.segment()]))
        assert same(judgement.violations, expected), f"random_trace(Random({seed}))"
        broken.update(violation.property for violation in expected)
    assert set(broken) == set(PROPERTIES)


def record_an_accident(recorder: Recorder) -> None:
    """All is delivered in one order, and b, which was away, lacks what lies between two in that order."""
    for sender, number in (("s", 0), ("s", 1), ("t", 0)):
        recorder.record(sender, "send", 0, sender, number, destinations=["a", "b"])
    recorder.record("b", "absent", 0)
    recorder.record("b", "present", 0)
    for site, delivered in {"a": ("s0", "t0", "s1"), "b": ("s0", "s1")}.items():
        for message in delivered:
            recorder.record(site, "deliver", 0, message[0], int(message[1]))


def test_what_is_missing_by_an_accidental_order_counts_only_where_one_is_promised() -> None:
    recorder = Both("r")
    record_an_accident(recorder)
    log = build_log(Run("r"), [recorder.packed.segment()])
    for in_order, count in ((True, 1), (False, 0)):
        assert judge(log, in_order=in_order).counts["atomicity"] == count
        assert len(check_atomicity(History(recorder.pure.events(), Run("r")), in_order=in_order)) == count
    assert connection_row(SCENARIO.name, lambda _: {"mood": "orderly"}, 0)["broken"] == []


# Drawing


@pytest.mark.parametrize("protocol", DRAWINGS)
def test_whatever_is_drawn_can_be_simulated_and_depends_on_the_seed_alone(protocol: str) -> None:
    draw = drawing(protocol)
    drawn = [draw(seed) for seed in range(300)]
    assert drawn == [draw(seed) for seed in range(300)]
    assert len({json.dumps(parameters, sort_keys=True) for parameters in drawn}) == 300
    for parameters in drawn:
        find_scenario(protocol).configure(parameters)
    assert {parameters["members"] for parameters in drawn} == set(range(2, 7))
    assert {parameters["loss"] > 0 for parameters in drawn} == {False, True}


def test_a_protocol_that_nothing_can_be_drawn_for_is_told() -> None:
    with pytest.raises(UsageError, match="no protocol 'coordp' to draw connections for"):
        drawing("coordp")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", DRAWINGS)
def test_every_protocol_keeps_its_promises_and_finishes(protocol: str) -> None:
    draw = drawing(protocol)
    for seed in range(SEEDS):
        row = connection_row(protocol, draw, seed)
        wrong = row["error"] or row["explanation"] or (None if row["finished"] else "It does not finish.")
        if wrong and not row["reported"]:
            pytest.fail(f"{wrong}\n{row['replay']}", pytrace=False)


# One run


def sabotaged(seed: int) -> dict[str, Any]:
    """Every third of them swaps two deliveries."""
    deed = "swap" if seed % 3 == 0 else "none"
    return {"members": 4, "messages": 40, "loss": 0.1, "sabotage": deed}


def test_a_broken_promise_is_told_with_the_command_that_shows_it(capsys: Capture) -> None:
    row = connection_row("sequencer", sabotaged, 3)
    assert (row["error"], row["finished"]) == (None, True)
    assert "total" in row["broken"]
    assert row["total"] > 0
    assert "a contradiction" in row["explanation"]
    assert row["replay"].startswith("antiphon simulate sequencer --members 4 --messages 40 --loss 0.1")
    assert command([*row["replay"].split()[1:], "--json"]) == 0
    replayed = json.loads(capsys.readouterr().out)
    assert replayed["violations"] == sum(row[name] for name in row["broken"])
    assert replayed["deliveries"] == row["deliveries"] == dict(row["metrics"])["deliveries"]


def test_a_property_that_was_not_promised_is_counted_and_breaks_nothing() -> None:
    row = connection_row("fifo", lambda _: {"members": 4, "messages": 60, "rate": 2000.0, "loss": 0.2}, 1)
    assert row["total"] > 0
    assert row["broken"] == []
    assert row["explanation"] is None


@dataclass(frozen=True)
class Moody:
    """A scenario that fails, dies, stops or works as it is told."""

    mood: Annotated[str, "fine, raises, dies, stuck or orderly"] = "fine"


def moody(configuration: Moody, seed: int, recorder: Recorder | None) -> Metrics:
    if configuration.mood == "raises":
        raise ValueError("a bad day")
    if configuration.mood == "dies":
        os._exit(3)
    assert recorder is not None
    if configuration.mood == "orderly":
        record_an_accident(recorder)
        return {}
    for site, kind in (("a", "send"), ("a", "deliver"), ("b", "deliver")):
        recorder.record(site, kind, 0, "a", seed)  # type: ignore[arg-type]
    return {"deliveries": 2, "finished": configuration.mood != "stuck"}


SCENARIO = Scenario(
    name=f"{__name__}:SCENARIO",
    summary="",
    example="",
    configuration=Moody,
    run=moody,
    promises=("integrity", "atomicity"),
    cost_s=lambda _: 0.001,
)


def one_bad_day(mood: str, seed: int) -> dict[str, Any]:
    return {"mood": mood if seed == 105 else "fine"}


def raising(seed: int) -> dict[str, Any]:
    return one_bad_day("raises", seed)


def dying(seed: int) -> dict[str, Any]:
    return one_bad_day("dies", seed)


def stuck(seed: int) -> dict[str, Any]:
    return one_bad_day("stuck", seed)


def test_a_run_that_raises_or_cannot_be_drawn_becomes_a_row() -> None:
    row = connection_row(SCENARIO.name, raising, 105)
    assert row["error"] == "ValueError: a bad day"
    assert row["replay"] == f"antiphon simulate {SCENARIO.name} --mood raises --seed 105"
    assert set(row) == set(CONNECTIONS.names)
    assert "no parameter 'colour'" in connection_row(SCENARIO.name, lambda _: {"colour": "red"}, 1)["error"]
    assert "cannot be loaded" in connection_row("no.such.module:S", raising, 1)["error"]


# Campaigns


def test_seeds_are_cut_into_stretches_of_a_task_each() -> None:
    assert cut(range(250)) == [range(100), range(100, 200), range(200, 250)]
    assert cut([*range(98, 103), 150]) == [range(98, 100), range(100, 103), range(150, 151)]
    assert cut([]) == []


@pytest.mark.spark
def test_a_campaign_is_one_job_and_goes_on_where_it_stopped(spark: "SparkSession", tmp_path: Path) -> None:
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    before = len(jobs(None))
    told: list[tuple[int, float]] = []
    first = run_campaign(spark, "sequencer", drawing("sequencer"), range(150), tmp_path)
    assert len(jobs(None)) == before + 1
    assert (first.runs, first.resumed, first.verdict) == (150, 0, Verdict.PASS)
    assert first.violations == first.broken == dict.fromkeys(PROPERTIES, 0)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    second = run_campaign(
        spark, "sequencer", drawing("sequencer"), range(180), tmp_path, lambda *now: told.append(now)
    )
    assert (second.runs, second.resumed) == (180, 150)
    assert second.deliveries > first.deliveries
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert (told[0], told[-1]) == ((150, 0.0), (180, 1.0))
    rows = pq.read_table(tmp_path).to_pylist()
    assert sorted(row["seed"] for row in rows) == list(range(180))
    (row,) = (row for row in rows if row["seed"] == 7)
    assert row == connection_row("sequencer", drawing("sequencer"), 7), "a worker does the same"
    assert json.loads(row["parameters"]) == drawing("sequencer")(7)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("draw", "told"),
    [(raising, "ValueError: a bad day"), (dying, DIED), (stuck, "does not finish")],
    ids=["raises", "dies", "does not finish"],
)
def test_one_bad_run_is_a_row_and_not_the_end(
    spark: "SparkSession", tmp_path: Path, draw: Callable[[int], dict[str, Any]], told: str
) -> None:
    result = run_campaign(spark, SCENARIO.name, draw, range(98, 106), tmp_path)
    assert (result.runs, result.deliveries) == (8, 16 if draw is stuck else 14)
    assert (result.failed, result.unfinished) == ((0, 1) if draw is stuck else (1, 0))
    assert result.verdict is Verdict.FAIL
    (trouble,) = result.troubles
    assert told in trouble.sentence
    assert trouble.replay.endswith("--seed 105")


@dataclass(frozen=True)
class Unwritable:
    """Work whose file does not fit on the disk."""

    runs = 1
    cost_s = 1.0
    file_name = "runs-0.parquet"

    def do(self, folder: Path) -> None:
        raise OSError(28, "No space left on device", str(folder))

    def split(self) -> "list[Unwritable]":
        raise AssertionError

    def record_death(self, folder: Path) -> None:
        raise AssertionError(folder)


@pytest.mark.spark
def test_a_full_disk_ends_the_job_and_is_told(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot be written to .*: No space left on device\. Hint: "):
        run_all(spark, [Unwritable()], tmp_path)


@pytest.mark.spark
def test_results_of_something_else_are_not_mixed_in(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "runs-foreign.parquet").write_bytes(b"not Parquet")
    with pytest.raises(InputError, match="not a campaign's result file"):
        run_campaign(spark, SCENARIO.name, raising, range(3), tmp_path)


# The command line


def says(capsys: Capture, *tokens: str | Path) -> tuple[int, str, str]:
    code = command(["sweep", "connections", *map(str, tokens)])
    out, err = capsys.readouterr()
    return code, out, " ".join(err.split())


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_command_says_what_a_campaign_came_to(capsys: Capture, tmp_path: Path) -> None:
    options = ("--protocol", "template", "--runs", "30", "--seed", "5", "--out", tmp_path)
    code, out, err = says(capsys, *options, "--json")
    answer = json.loads(out)
    assert (code, answer["verdict"], answer["runs"], answer["failed"]) == (0, "pass", 30, 0)
    assert answer["violations"]["atomicity"] > 0, "the template makes up for no loss and does not promise to"
    assert answer["broken"]["atomicity"] == 0
    assert re.search(r"30 runs; \d+ runs a second; results in", err)
    code, out, err = says(capsys, *options)
    assert code == 0
    assert out.startswith("pass  runs 30, ")
    assert "30 runs, 30 of them done before; results in" in err


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_what_went_wrong_is_exit_code_1_and_can_be_replayed(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.cli.connections.drawing", lambda _: sabotaged)
    code, out, err = says(capsys, "--protocol", "sequencer", "--runs", "7", "--out", tmp_path)
    assert code == 1
    assert out.startswith("fail  runs 7, ")
    assert "broken 3" in out
    assert "--sabotage swap --seed 6" in err


def test_a_call_that_makes_no_sense_is_exit_code_2(capsys: Capture) -> None:
    assert "with --protocol: co, dpg, fifo, " in says(capsys)[2]
    assert "no protocol 'nothing'" in says(capsys, "--protocol", "nothing")[2]
    assert command(["sweep", "guo", "--runs", "5"]) == 2
    assert "--protocol, --runs and --seed go with connections" in capsys.readouterr().err
