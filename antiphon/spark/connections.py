"""A campaign: very many small seeded group connections as one Spark job, each judged where it was simulated.

A task has a range of seeds. For each seed it draws the parameters, simulates the run, and judges it with the
kernels of the audit: the rows go from the simulator straight into arrays, without a trace and without a
file. A run leaves one row: the parameters, the violations of each property, whether it finished, and the
command that replays it.

All properties are counted, promised or not. The campaign fails if a run breaks a promise of its protocol,
does not finish although its faults are over, or raises. Where a promise holds only almost always, a run that
breaks it does not fail if its members detected that themselves: it is counted as reported.

Without a promise of total order, a spell of presence is judged by senders' numbers: a short run is often in
one order by accident.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from antiphon.audit.judging import Judgement, judge, judge_calls
from antiphon.audit.log import build_log
from antiphon.audit.recorder import PackingRecorder
from antiphon.check.verdict import Verdict
from antiphon.core.errors import InputError, UsageError
from antiphon.core.recording import PROMISABLE, PROPERTIES, Property
from antiphon.sim.scenario import Metrics, Scenario, replay_command
from antiphon.sim.scenarios import find_scenario
from antiphon.spark.sweep import numbers
from antiphon.spark.tasks import DIED, Progress, Watch, prepare, run_all, write_whole
from antiphon.trace.arrow import dataset, pa, pc, pq
from antiphon.trace.schema import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS_PER_TASK: Final = 100
"""Runs of a task: about a second at 5 to 20 ms a run, which makes the cost of the task itself small."""
TROUBLES_SHOWN: Final = 10

Draw = Callable[[int], Mapping[str, Any]]
"""From a run's seed to its scenario's parameters. It travels to the tasks, so it must be picklable."""

CONNECTIONS: Final = pa.schema(
    [
        pa.field("protocol", pa.string(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("parameters", pa.string()),
        pa.field("finished", pa.bool_()),
        pa.field("deliveries", pa.int64()),
        *(pa.field(name, pa.int64()) for name in PROPERTIES),
        pa.field("broken", pa.list_(pa.string())),
        pa.field("reported", pa.bool_()),
        pa.field("explanation", pa.string()),
        pa.field("metrics", pa.map_(pa.string(), pa.float64())),
        pa.field("error", pa.string()),
        pa.field("replay", pa.string()),
    ]
)
"""One row per run: parameters and results. A property's column counts its violations. `broken` lists the
properties whose violations break a promise, `reported` is true if the members reported that and it may
happen, and `explanation` explains the first violation. A run that raised has an error and no counts."""


# One run


def judge_connection(scenario: Scenario, configuration: Any, seed: int) -> tuple[Metrics, Judgement]:
    """Simulate a run and judge it, with one violation of each promised property explained."""
    recorder = PackingRecorder()
    metrics = scenario.run(configuration, seed, recorder)
    groups = scenario.groups(configuration)
    run = Run(f"{scenario.name}-{seed}", groups=None if groups is None else dict(groups))
    log = build_log(run, [recorder.segment()])
    promises = scenario.promises_for(configuration)
    limits = {name: int(name in promises) for name in dict.fromkeys((*PROPERTIES, *promises))}
    calls_limit = limits.pop("linearizable", None)
    judgement = judge(log, limits, in_order="total" in promises)
    if calls_limit is None:
        return metrics, judgement
    return metrics, judgement.joined(judge_calls(run.run, recorder.calls, calls_limit))


def connection_row(protocol: str, draw: Draw, seed: int) -> dict[str, Any]:
    """Do one run; an exception in it becomes part of the result."""
    row = _blank_row(protocol, seed)
    try:
        scenario = find_scenario(protocol)
        configuration = _configure(scenario, draw, row)
        metrics, judgement = judge_connection(scenario, configuration, seed)
    except Exception as error:
        return row | {"error": f"{type(error).__name__}: {error}"}
    explained = {violation.property: violation.explanation for violation in judgement.violations}
    broken = [name for name in scenario.promises_for(configuration) if judgement.counts[name]]
    doubts = [doubt for doubt in judgement.doubts.values() if doubt is not None]
    if doubts:
        row["error"] = f"Unknown, because {doubts[0]}."
    return row | {
        "finished": bool(metrics.get("finished", True)),
        "deliveries": metrics.get("deliveries"),
        **{str(name): judgement.counts[name] for name in PROPERTIES},
        "broken": broken,
        "reported": scenario.is_reported(broken, metrics, configuration),
        "explanation": explained[broken[0]] if broken else None,
        "metrics": numbers(metrics | {name: judgement.counts[name] for name in _further(judgement.counts)}),
    }


def _further(names: Iterable[str]) -> list[Property]:
    """The properties among these that have no column of their own: those judged only where promised."""
    return [name for name in PROMISABLE if name in names and name not in PROPERTIES]


def _blank_row(protocol: str, seed: int) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(CONNECTIONS.names)
    return row | {"protocol": protocol, "seed": seed}


def _configure(scenario: Scenario, draw: Draw, row: dict[str, Any]) -> Any:
    """Draw a run's parameters, and put them and the replay command into its row."""
    parameters = dict(draw(row["seed"]))
    row["parameters"] = json.dumps(parameters, sort_keys=True)
    row["replay"] = replay_command(scenario.name, parameters, row["seed"])
    return scenario.configure(parameters)


@dataclass(frozen=True)
class SeedRange:
    """The runs of one task: consecutive seeds. Implements `antiphon.spark.tasks.Work`."""

    protocol: str
    draw: Draw
    seeds: range

    @property
    def file_name(self) -> str:
        words = re.sub("[^a-z0-9]+", "-", self.protocol.lower())
        return f"runs-{words}-{self.seeds[0]}-{self.runs}.parquet"

    @property
    def runs(self) -> int:
        return len(self.seeds)

    @property
    def cost_s(self) -> float:
        """Runs are drawn in the same way, so they cost about the same."""
        return float(self.runs)

    def do(self, folder: Path) -> None:
        rows = [connection_row(self.protocol, self.draw, seed) for seed in self.seeds]
        write_whole(folder / self.file_name, rows, CONNECTIONS)

    def split(self) -> "list[SeedRange]":
        return [SeedRange(self.protocol, self.draw, range(seed, seed + 1)) for seed in self.seeds]

    def record_death(self, folder: Path) -> None:
        row = _blank_row(self.protocol, self.seeds[0])
        _configure(find_scenario(self.protocol), self.draw, row)
        write_whole(folder / self.file_name, [row | {"error": DIED}], CONNECTIONS)


# The campaign


class Trouble(NamedTuple):
    """A run that went wrong: how, and the command that replays it."""

    sentence: str
    replay: str


@dataclass(frozen=True)
class CampaignResult:
    """The result of a campaign. Counts are over all of its runs, including those done before."""

    protocol: str
    folder: Path
    runs: int
    resumed: int
    """Runs that were done before."""
    seconds: float
    """Time that the other runs took."""
    deliveries: int
    violations: dict[Property, int]
    broken: dict[Property, int]
    """Runs that break a promise, by promised property."""
    broken_runs: int
    reported: int
    """Runs that broke a promise which holds only almost always, and reported it. Their violations count,
    but they are not among the broken or unfinished runs."""
    unfinished: int
    failed: int
    troubles: list[Trouble]
    """Some of the runs that went wrong, broken promises first."""

    @property
    def verdict(self) -> Verdict:
        return Verdict.FAIL if self.broken_runs or self.unfinished or self.failed else Verdict.PASS

    @property
    def runs_per_s(self) -> float:
        return (self.runs - self.resumed) / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, object]:
        """What `antiphon sweep connections --json` prints."""
        return {
            "verdict": self.verdict.value,
            "protocol": self.protocol,
            "runs": self.runs,
            "resumed": self.resumed,
            "deliveries": self.deliveries,
            "violations": self.violations,
            "broken": self.broken,
            "broken_runs": self.broken_runs,
            "reported": self.reported,
            "unfinished": self.unfinished,
            "failed": self.failed,
            "runs_per_s": round(self.runs_per_s, 1),
            "troubles": [trouble._asdict() for trouble in self.troubles],
        }


def run_campaign(
    spark: "SparkSession",
    protocol: str,
    draw: Draw,
    seeds: range,
    folder: Path,
    progress: Progress = lambda _done, _share: None,
) -> CampaignResult:
    """Do all runs of these consecutive seeds that are not done yet, and sum up all of them."""
    if not seeds or seeds.step != 1:
        raise UsageError("A campaign needs at least one run, and seeds that follow one another.")
    prepare(folder)
    done = _done(folder, protocol).intersection(seeds)
    left = [seed for seed in seeds if seed not in done]
    ranges = [SeedRange(protocol, draw, part) for part in cut(left)]
    begun_s = time.perf_counter()
    with Watch(folder, ranges, len(done), progress):
        run_all(spark, ranges, folder)
    seconds = time.perf_counter() - begun_s if left else 0.0
    return _summary(folder, protocol, seeds, len(done), seconds)


def cut(seeds: Sequence[int]) -> list[range]:
    """Ascending seeds as ranges of consecutive seeds, each within one hundred.

    >>> cut([*range(98, 103), 150])
    [range(98, 100), range(100, 103), range(150, 151)]
    """
    ranges: list[range] = []
    for seed in seeds:
        last = ranges[-1] if ranges else range(0)
        if last and last.stop == seed and seed % RUNS_PER_TASK:
            ranges[-1] = range(last.start, seed + 1)
        else:
            ranges.append(range(seed, seed + 1))
    return ranges


# Files


def _open(folder: Path, protocol: str) -> tuple[Any, pc.Expression]:
    """The rows of a folder, and the filter for this protocol's."""
    files = sorted(folder.glob("runs-*.parquet"))
    for file in files:
        try:
            fits = pq.read_schema(file).equals(CONNECTIONS)
        except (OSError, pa.ArrowInvalid):
            fits = False
        if not fits:
            raise InputError(
                f"{file} is not a campaign's result file.",
                hint="Choose another folder with --out, or move the file away: its runs will be done again.",
            )
    return dataset([str(file) for file in files], CONNECTIONS), pc.field("protocol") == protocol


def _done(folder: Path, protocol: str) -> set[int]:
    rows, own = _open(folder, protocol)
    return set(rows.to_table(columns=["seed"], filter=own)["seed"].to_pylist())


def _summary(folder: Path, protocol: str, seeds: range, resumed: int, seconds: float) -> CampaignResult:
    rows, own = _open(folder, protocol)
    wanted = own & (pc.field("seed") >= seeds.start) & (pc.field("seed") < seeds.stop)
    columns = ["finished", "deliveries", *PROPERTIES, "broken", "reported", "error", "metrics"]
    table = rows.to_table(columns=columns, filter=wanted)
    reported = pc.fill_null(table["reported"], False)
    broken = table["broken"].combine_chunks().flatten().to_pylist()
    further = {
        name: pc.map_lookup(table["metrics"], query_key=pa.scalar(name), occurrence="first")
        for name in _further(find_scenario(protocol).promises)
    }
    judged = {**{name: table[name] for name in PROPERTIES}, **further}
    return CampaignResult(
        protocol=protocol,
        folder=folder,
        runs=table.num_rows,
        resumed=resumed,
        seconds=seconds,
        deliveries=_sum(table["deliveries"]),
        violations={name: int(_sum(column)) for name, column in judged.items()},
        broken={name: broken.count(name) for name in dict.fromkeys((*judged, *broken))},
        broken_runs=_sum(pc.and_not(pc.greater(pc.list_value_length(table["broken"]), 0), reported)),
        reported=_sum(reported),
        unfinished=_sum(pc.and_not(pc.invert(table["finished"]), reported)),
        failed=_sum(pc.is_valid(table["error"])),
        troubles=_troubles(rows, wanted),
    )


def _sum(column: pa.ChunkedArray) -> int:
    return pc.sum(column, min_count=0).as_py() or 0


def _troubles(rows: Any, wanted: pc.Expression) -> list[Trouble]:
    """The first runs of each kind of trouble, up to `TROUBLES_SHOWN` in all."""
    kinds = (
        (pc.is_valid(pc.field("explanation")) & ~pc.field("reported"), "explanation", ""),
        (pc.is_valid(pc.field("error")), "error", ""),
        (
            ~pc.field("finished") & ~pc.field("reported"),
            None,
            "The faults are over and the run does not finish.",
        ),
    )
    found: list[Trouble] = []
    for which, column, sentence in kinds:
        columns = ["seed", "explanation", "error", "replay"]
        head = rows.filter(wanted & which).head(TROUBLES_SHOWN, columns=columns).to_pylist()
        found += [Trouble(row[column] if column else sentence, row["replay"] or "") for row in head]
    return found[:TROUBLES_SHOWN]
