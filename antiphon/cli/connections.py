"""`antiphon sweep connections`: a campaign of very many small group connections of one protocol."""

from pathlib import Path
from typing import Final

from antiphon.cli.console import print_json, run_bar, say, starting_spark
from antiphon.cli.verdicts import print_properties, print_verdict
from antiphon.core.errors import UsageError
from antiphon.sim.scenarios import find_scenario
from antiphon.spark.connections import CampaignResult, run_campaign
from antiphon.studies.connections import DRAWINGS, drawing
from antiphon.studies.study import Effort

NAME: Final = "connections"
RUNS: Final[dict[Effort, int]] = {"quick": 1000, "full": 100_000}


def sweep_connections(
    protocol: str | None,
    effort: Effort,
    runs: int | None,
    seed: int,
    out: Path | None,
    master: str,
    json: bool,
) -> int:
    """Run the campaign, print its result, and return the exit code."""
    if protocol is None:
        raise UsageError(
            "A campaign of connections needs a protocol.",
            hint=f"Choose one with --protocol: {', '.join(sorted(DRAWINGS))}.",
        )
    draw = drawing(protocol)
    seeds = range(seed, seed + (RUNS[effort] if runs is None else runs))
    find_scenario(protocol).configure(draw(seed))  # Report bad parameters before Spark starts.
    folder = out or Path("out") / "sweep" / NAME / protocol.replace(":", "-")
    with starting_spark(master) as spark, run_bar(f"{protocol} connections", len(seeds)) as bar:
        try:
            result = run_campaign(spark, protocol, draw, seeds, folder, bar)
        except KeyboardInterrupt:
            say(f"{bar.done} runs are done and kept in {folder}; the same command continues from there.")
            raise
    if json:
        print_json(result.to_json())
    else:
        print_result(result)
    return report(result)


def print_result(result: CampaignResult) -> None:
    """The verdict, the counts and the violations of each property."""
    counts = {
        "runs": result.runs,
        "deliveries": result.deliveries,
        "broken": result.broken_runs,
        "reported": result.reported,
        "unfinished": result.unfinished,
        "failed": result.failed,
    }
    print_verdict(result.verdict, counts)
    print_properties(result.violations, result.broken, "runs with a broken promise")


def report(result: CampaignResult) -> int:
    """Report on stderr the runs, their speed, and how to replay what went wrong."""
    resumed = f", {result.resumed} of them done before" if result.resumed else ""
    speed = f" {result.runs_per_s:.0f} runs a second;" if result.seconds else ""
    say(f"{result.runs} runs{resumed};{speed} results in {result.folder}.")
    for trouble in result.troubles:
        say(f"  {trouble.sentence}")
        say(f"    {trouble.replay}")
    return result.verdict.exit_code
