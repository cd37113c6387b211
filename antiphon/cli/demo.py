"""`antiphon demo`: the main job in about a minute."""

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from antiphon.audit.result import AuditResult
from antiphon.audit.runs import checked_request
from antiphon.check.verdict import Verdict, Violation
from antiphon.cli.audit import print_result
from antiphon.cli.console import Sparkline, data, say, starting_spark, status, talk
from antiphon.cli.follow import POLL_S
from antiphon.cli.pages import audit_report
from antiphon.cli.reproduce import print_claims, run_studies, write_scoreboard
from antiphon.cli.sweep import Master
from antiphon.core.errors import OutputError
from antiphon.load.processes import MemberProcesses, Plan, summarise
from antiphon.report.model import AuditReport, Site
from antiphon.report.site import write_site
from antiphon.sim.scenarios import find_scenario
from antiphon.simulation import simulate_and_judge
from antiphon.spark.audit import audit
from antiphon.spark.follow import Follower
from antiphon.studies import guo
from antiphon.trace.files import write_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARKER: Final = ".antiphon-demo"
SEED: Final = 7
SHOWN: Final = 1
"""Violations of each property that the report explains."""


LIVE: Final = Plan(members=7, size=1000, seconds=6.0, order="sequencer", churn=2, away_s=1.0, back_s=1.5)


@dataclass(frozen=True)
class Act:
    """One run of the demo, and the verdict that the audit should give."""

    name: str
    title: str
    talk: str
    perform: Callable[[Path], None]
    expected: Verdict = Verdict.PASS
    is_followed: bool = False
    """Whether the audit follows the run, instead of coming after it."""


def live(folder: Path) -> None:
    """Seven processes over real UDP, their throughput drawn as it happens."""
    with Sparkline("  messages a second at m0", "  members that count") as line:
        processes = MemberProcesses(
            LIVE, folder, lambda words: line.add(words["delivered"], words["members"])
        )
        reports = asyncio.run(processes.run())
    figures = summarise(LIVE, reports)
    say(
        f"  antiphon perf --members {LIVE.members} --order {LIVE.order} --seconds {LIVE.seconds:g} "
        f"--churn {LIVE.churn} --trace {folder}",
        style="dim",
    )
    data.print(
        f"  {figures['group_throughput']:,.0f} messages of {LIVE.size} bytes a second at every member, "
        f"p50 {figures['latency_ms']['p50']:.1f} ms, {figures['lost']} lost"
    )


def simulated(**parameters: Any) -> Callable[[Path], None]:
    """A seeded run of the simulator."""

    def perform(folder: Path) -> None:
        scenario = find_scenario("sequencer")
        configuration = scenario.configure(parameters)
        run = simulate_and_judge(scenario, configuration, SEED)
        write_trace(folder, [run.recorder], [run.run])
        command = scenario.replay_command(configuration, SEED)
        say(f"  {command} --trace {folder}", style="dim")
        figures = run.metrics
        data.print(
            f"  {figures['deliveries']} deliveries in {figures['simulated_s']:.1f} simulated seconds, "
            f"{figures['network_messages']} network messages"
        )

    return perform


ACTS: Final = (
    Act(
        name="live",
        title="A live group",
        talk="Seven processes multicast over UDP as fast as they can, in one total order. Two of them are "
        "killed and started again by turns. The audit follows them as they go.",
        perform=live,
        is_followed=True,
    ),
    Act(
        name="kept",
        title="The same protocol, simulated",
        talk="Seven members multicast 2,000 messages. The network loses 5% of what they send, and two of "
        "them keep leaving and coming back.",
        perform=simulated(members=7, messages=2000, loss=0.05, churn=2),
    ),
    Act(
        name="broken",
        title="A group with a traitor",
        talk="One member swaps two deliveries on purpose. The audit must find it.",
        perform=simulated(members=4, messages=200, loss=0.05, sabotage="swap"),
        expected=Verdict.FAIL,
    ),
)


def demo(
    *,
    out: Annotated[Path, Parameter(help="folder for traces, results and the report")] = Path("out/demo"),
    master: Master = "local[*]",
) -> int:
    """Run a live group whose members come and go, simulate another, audit their traces on Spark, see a
    violation caught and explained, run a small sweep, and write a report to open.

    Example: antiphon demo
    """
    clear(out)
    with starting_spark(master) as spark:
        audits = []
        for number, act in enumerate(ACTS, 1):
            talk.print(f"\n[bold]{number}. {act.title}[/]\n{act.talk}")
            if act.is_followed:
                audits.append(follow_act(spark, act, out / act.name))
            else:
                act.perform(out / act.name)
        talk.print(f"\n[bold]{len(ACTS) + 1}. The audit, on Spark[/]")
        audits += [judge_act(spark, act, out / act.name) for act in ACTS if not act.is_followed]
        talk.print(f"\n[bold]{len(ACTS) + 2}. A study as a Spark job, and the paper's claims[/]")
        claims, pages, code = run_studies(spark, [guo.DENSE], "quick", out)
    print_claims(claims, json=False)
    write_scoreboard(out / "scoreboard.json", claims)
    site = Site(generated="antiphon demo", claims=claims, pages=pages, audits=audits)
    page = write_site(site, out / "report")
    talk.print()
    say(f"The report is at {page}: open it in a browser.")
    as_expected = all(report.verdict is act.expected for report, act in zip(audits, ACTS, strict=True))
    return code if as_expected else 1


def clear(folder: Path) -> None:
    """Empty the folder of an earlier demo; refuse any other folder that is not empty."""
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


def follow_act(spark: "SparkSession", act: Act, folder: Path) -> AuditReport:
    """Perform an act while the audit follows its trace, and print the result."""
    request = checked_request([str(folder)], None, None, SHOWN)
    with Follower(spark, folder, request) as follower:
        with watching(follower) as found:
            while not follower.is_reading and follower.failures == 0:
                time.sleep(POLL_S)
            act.perform(folder)
        say(f"  judged meanwhile: {follower.rows:,} rows, {len(found)} broken promises found", style="dim")
        with status("Judging what is left ..."):
            result = follower.finish()
    return report_act(act, folder, result, f"antiphon audit --follow {folder}")


@contextmanager
def watching(follower: Follower) -> Iterator[list[Violation]]:
    """Let a follower judge as time passes; what it finds is collected."""
    found: list[Violation] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(POLL_S):
            found.extend(follower.poll())

    with ThreadPoolExecutor(1) as thread:
        watcher = thread.submit(watch)
        try:
            yield found
        finally:
            over.set()
    watcher.result()


def judge_act(spark: "SparkSession", act: Act, folder: Path) -> AuditReport:
    """Audit an act's trace and print the result."""
    return report_act(act, folder, audit(spark, [folder], limit=SHOWN), f"antiphon audit {folder}")


def report_act(act: Act, folder: Path, result: AuditResult, command: str) -> AuditReport:
    talk.print()
    say(f"{act.title}: {command}")
    print_result(result, [folder], 1)
    promised = frozenset(find_scenario("sequencer").promises)
    return audit_report(act.title, result, [folder], promised, command, act.talk)
