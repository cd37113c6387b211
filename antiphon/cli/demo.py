"""`antiphon demo`: the main job in about a minute."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from antiphon.check.verdict import Verdict
from antiphon.cli.audit import print_result
from antiphon.cli.console import data, starting_spark, talk
from antiphon.cli.pages import audit_report, claim_rows
from antiphon.cli.reproduce import print_claims, run_studies, write_scoreboard
from antiphon.cli.sweep import Master
from antiphon.core.errors import OutputError
from antiphon.report.model import AuditReport, Site
from antiphon.report.site import write_site
from antiphon.sim.scenarios import find_scenario
from antiphon.spark.audit import audit
from antiphon.spark.single import simulate_and_judge
from antiphon.trace.files import write_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARKER: Final = ".antiphon-demo"
SEED: Final = 7
SHOWN: Final = 1
"""How many violations of each property the report explains."""


@dataclass(frozen=True)
class Act:
    """One run of the demo: what is simulated and what the audit is expected to say."""

    name: str
    title: str
    talk: str
    parameters: Mapping[str, Any]
    expected: Verdict


ACTS: Final = (
    Act(
        name="kept",
        title="A group that keeps its order",
        talk="Seven members multicast 2,000 messages in one total order. The network loses 5% of what they "
        "send, and two of them keep leaving and coming back.",
        parameters={"members": 7, "messages": 2000, "loss": 0.05, "churn": 2},
        expected=Verdict.PASS,
    ),
    Act(
        name="broken",
        title="A group with a traitor",
        talk="The same group, but one member swaps two deliveries on purpose. The audit must find it.",
        parameters={"members": 4, "messages": 200, "loss": 0.05, "sabotage": "swap"},
        expected=Verdict.FAIL,
    ),
)


def demo(
    *,
    out: Annotated[Path, Parameter(help="folder for traces, results and the report")] = Path("out/demo"),
    master: Master = "local[*]",
) -> int:
    """Simulate a group whose members come and go, audit its trace on Spark, see a violation caught and
    explained, run a small sweep, and write a report to open.

    Example: antiphon demo
    """
    clear(out)
    for number, act in enumerate(ACTS, 1):
        talk.print(f"\n[bold]{number}. {act.title}[/]\n{act.talk}")
        perform(act, out / act.name)
    talk.print(f"\n[bold]{len(ACTS) + 1}. The audit, on Spark[/]")
    with starting_spark(master) as spark:
        audits = [judge_act(spark, act, out / act.name) for act in ACTS]
        talk.print(f"\n[bold]{len(ACTS) + 2}. A study as a Spark job, and the paper's claims[/]")
        claims, figures, code = run_studies(spark, "quick", out)
    print_claims(claims, json=False)
    write_scoreboard(out / "scoreboard.json", claims)
    site = Site(generated="antiphon demo", claims=claim_rows(claims), figures=figures, audits=audits)
    page = write_site(site, out / "report")
    talk.print(f"\nThe report is at {page}: open it in a browser.", markup=False)
    as_expected = all(report.verdict is act.expected for report, act in zip(audits, ACTS, strict=True))
    return code if as_expected else 1


def clear(folder: Path) -> None:
    """An empty folder for the demo: what an earlier demo left goes, anything else is left alone."""
    try:
        if folder.exists() and any(folder.iterdir()):
            if not (folder / MARKER).exists():
                raise OutputError(
                    f"The folder {folder} is not empty and was not made by the demo.",
                    hint="Choose another folder with --out.",
                )
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).touch()
    except OSError as error:
        raise OutputError(
            f"The demo cannot write to {folder}: {error.strerror}.", hint="Choose another folder with --out."
        ) from error


def perform(act: Act, folder: Path) -> None:
    """Simulate an act and write its trace."""
    scenario = find_scenario("sequencer")
    configuration = scenario.configure(act.parameters)
    run = simulate_and_judge(scenario, configuration, SEED)
    write_trace(folder, [run.recorder], [run.run])
    talk.print(
        f"  {scenario.replay_command(configuration, SEED)} --trace {folder}", style="dim", markup=False
    )
    data.print(
        f"  {run.metrics['deliveries']} deliveries in {run.metrics['simulated_s']:.1f} simulated seconds, "
        f"{run.metrics['network_messages']} network messages"
    )


def judge_act(spark: "SparkSession", act: Act, folder: Path) -> AuditReport:
    """Audit an act's trace and say what came out."""
    result = audit(spark, [folder], limit=SHOWN)
    command = f"antiphon audit {folder}"
    talk.print(f"\n{act.title}: {command}", markup=False)
    print_result(result, [folder], 1)
    promised = frozenset(find_scenario("sequencer").promises)
    return audit_report(act.title, result, [folder], promised, command, act.talk)
