"""`antiphon sweep connections`: a campaign of very many small group connections of one protocol."""

from pathlib import Path
from typing import Final

from rich.table import Table

from antiphon.check.verdict import Verdict
from antiphon.cli.console import data, print_json, run_bar, say, starting_spark
from antiphon.core.errors import UsageError
from antiphon.sim.scenarios import find_scenario
from antiphon.spark.connections import CampaignResult, run_campaign
from antiphon.studies.connections import DRAWINGS, drawing
from antiphon.studies.model import Effort

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
    """Do the campaign, print what it came to, and answer with the exit code."""
    if protocol is None:
        raise UsageError(
            "Say which protocol's connections.", hint=f"With --protocol: {', '.join(sorted(DRAWINGS))}."
        )
    draw = drawing(protocol)
    seeds = range(seed, seed + (RUNS[effort] if runs is None else runs))
    find_scenario(protocol).configure(draw(seed))  # What makes no sense is told before Spark takes its time.
    folder = out or Path("out") / "sweep" / NAME / protocol.replace(":", "-")
    with starting_spark(master) as spark, run_bar(f"{protocol} connections", len(seeds)) as bar:
        try:
            result = run_campaign(spark, protocol, draw, seeds, folder, bar)
        except KeyboardInterrupt:
            say(f"{bar.done} runs are done and kept in {folder}; the same command goes on from there.")
            raise
    if json:
        print_json(result.to_json())
    else:
        print_result(result)
    return report(result)


def print_result(result: CampaignResult) -> None:
    """The verdict, the counts and how often each property was violated."""
    colour = "green" if result.verdict is Verdict.PASS else "red"
    data.print(f"[bold {colour}]{result.verdict.value}[/]", end="  ")
    counts = {
        "runs": result.runs,
        "deliveries": result.deliveries,
        "broken": result.broken_runs,
        "reported": result.reported,
        "unfinished": result.unfinished,
        "failed": result.failed,
    }
    data.print(", ".join(f"{name} {count:,}" for name, count in counts.items()))
    table = Table("property", "violations", "runs with a broken promise", box=None, pad_edge=False)
    for name, count in result.violations.items():
        broken = result.broken[name]
        table.add_row(name, f"{count:,}", f"{broken:,}", style="red" if broken else "")
    data.print(table)


def report(result: CampaignResult) -> int:
    """Say on stderr how it went, and how to replay what went wrong."""
    resumed = f", {result.resumed} of them done before" if result.resumed else ""
    speed = f" {result.runs_per_s:.0f} runs a second;" if result.seconds else ""
    say(f"{result.runs} runs{resumed};{speed} results in {result.folder}.")
    for trouble in result.troubles:
        say(f"  {trouble.sentence}")
        say(f"    {trouble.replay}")
    return result.verdict.exit_code
