"""`antiphon sweep STUDY`: a paper's study, or a campaign of connections, as a Spark job."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from antiphon.cli.connections import NAME as CONNECTIONS
from antiphon.cli.connections import sweep_connections
from antiphon.cli.console import data, print_json, run_bar, say, starting_spark
from antiphon.core.errors import UsageError
from antiphon.spark.statistics import Point
from antiphon.spark.sweep import SweepResult
from antiphon.studies.reproduce import find_study, run_study
from antiphon.studies.results import Results
from antiphon.studies.study import Effort, Study
from antiphon.trace.arrow import pq

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Quick = Annotated[bool, Parameter(help="fewer seeds and points: done in minutes (the default)", negative=())]
Full = Annotated[bool, Parameter(help="as many seeds and points as the papers used", negative=())]
Master = Annotated[str, Parameter(help="which Spark to run on")]

ERRORS_SHOWN = 5


def sweep(
    study: Annotated[
        str,
        Parameter(
            help="which study: guo, guo-dense, large, profiles, konorski, sco, jia or advice; or connections"
        ),
    ],
    *,
    quick: Quick = False,
    full: Full = False,
    out: Annotated[
        Path | None, Parameter(help="folder for the runs' results [default: out/sweep/STUDY]")
    ] = None,
    protocol: Annotated[str | None, Parameter(help="with connections: which protocol, such as fifo")] = None,
    runs: Annotated[
        int | None,
        Parameter(
            help="with connections: how many [default: 1000, or 100000 with --full]",
            validator=validators.Number(gte=1),
        ),
    ] = None,
    seed: Annotated[int | None, Parameter(help="with connections: seed of the first [default: 0]")] = None,
    master: Master = "local[*]",
    json: Annotated[bool, Parameter(help="print JSON: an object per point of the grid", negative=())] = False,
) -> int:
    """Run a paper's study as a Spark job and print the mean of each metric at each point.

    With `connections`: simulate very many small group connections of one protocol, each with its own group,
    network and faults drawn from its seed, and judge them all. Exit code 1: a promise is broken, a run does
    not finish, or one fails.

    Results are written as runs finish: after an interruption the same command continues where it stopped. A
    run that fails becomes a row with its error and the command that replays it.

    Example: antiphon sweep guo --quick

    Example: antiphon sweep connections --protocol fifo --runs 5000
    """
    effort = effort_of(quick, full)
    if study == CONNECTIONS:
        return sweep_connections(protocol, effort, runs, seed or 0, out, master, json)
    if protocol is not None or runs is not None or seed is not None:
        raise UsageError(
            "A study has runs of its own.", hint=f"--protocol, --runs and --seed go with {CONNECTIONS}."
        )
    chosen = find_study(study)
    with starting_spark(master) as spark:
        outcome, results = sweep_with_bar(spark, chosen, effort, out or Path("out") / "sweep" / study)
    for point in results.points:
        print_point(point, json)
    return report_outcome(outcome)


def effort_of(quick: bool, full: bool) -> Effort:
    if quick and full:
        raise UsageError("A study is run either quickly or in full, not both.")
    return "full" if full else "quick"


def sweep_with_bar(
    spark: "SparkSession", study: Study, effort: Effort, folder: Path
) -> tuple[SweepResult, Results]:
    """Run a study under a progress bar; an interruption reports what is kept."""
    with run_bar(f"sweep {study.name}", len(study.jobs(effort))) as bar:
        try:
            return run_study(spark, study, effort, folder, bar)
        except KeyboardInterrupt:
            done = bar.done
            say(f"{done} runs are done and kept in {folder}; the same command continues from there.")
            raise


def print_point(point: Point, json: bool) -> None:
    if json:
        metrics = {
            name: {"mean": summary.mean, "low": summary.low, "high": summary.high, "runs": summary.count}
            for name, summary in sorted(point.metrics.items())
        }
        print_json({"scenario": point.scenario, "parameters": dict(point.parameters), "metrics": metrics})
        return
    where = " ".join(f"{name}={value}" for name, value in point.parameters.items())
    data.print(f"{point.scenario} {where}", style="bold", markup=False)
    width = max(map(len, point.metrics))
    for name, summary in sorted(point.metrics.items()):
        spread = f"  ± {summary.high - summary.mean:.3g}" if summary.count > 1 else ""
        data.print(f"  {name:<{width}}  {summary.mean:.6g}{spread}", markup=False)


def report_outcome(outcome: SweepResult) -> int:
    """Report a sweep's result on stderr; failed runs make exit code 1."""
    resumed = f", {outcome.resumed} of them done before" if outcome.resumed else ""
    say(f"{outcome.jobs} runs{resumed}, {outcome.errors} failed; results in {outcome.folder}.")
    for error, replay in failures(outcome.folder)[:ERRORS_SHOWN] if outcome.errors else ():
        say(f"  {error}")
        say(f"    {replay}")
    return 1 if outcome.errors else 0


def failures(folder: Path) -> list[tuple[str, str]]:
    """The failed runs' errors with the commands that replay them."""
    found: list[tuple[str, str]] = []
    for path in sorted(folder.glob("runs-*.parquet")):
        table = pq.read_table(path, columns=["error", "replay"])
        rows = zip(table["error"].to_pylist(), table["replay"].to_pylist(), strict=True)
        found += [(error, replay) for error, replay in rows if error]
    return found
