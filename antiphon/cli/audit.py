"""`antiphon audit PATH…`: judge whether a trace keeps what its protocol promised."""

import shlex
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

from cyclopts import Parameter, validators

from antiphon.audit.local import audit_locally, is_small
from antiphon.cli.console import data, print_json, say, starting_spark, status
from antiphon.cli.verdicts import print_properties, print_verdict
from antiphon.core.errors import UsageError
from antiphon.core.extras import require_extra
from antiphon.core.recording import PROMISABLE, Property
from antiphon.trace.files import open_trace

if TYPE_CHECKING:
    from antiphon.audit.result import AuditResult
    from antiphon.report.model import Case

EMBEDDED: Final = "local[*]"
"""The Spark master that needs no cluster."""
SHOWN: Final = 3
"""Violations of each property that are explained unless told otherwise."""
RUNS_SHOWN: Final = 500
"""Runs whose verdicts a report lists. Raising it makes the page larger."""


def audit(
    paths: Annotated[
        list[str],
        Parameter(help="folders that hold events/ and runs/; one may be s3a://… or the like", negative=()),
    ],
    /,
    *,
    expect: Annotated[
        str | None,
        Parameter(help="judge by these properties instead of the recorded promises, e.g. total,fifo"),
    ] = None,
    show: Annotated[
        int, Parameter(help="how many violations to explain", validator=validators.Number(gte=0))
    ] = SHOWN,
    violations: Annotated[
        str | None, Parameter(help="write every violation into this folder, as Parquet")
    ] = None,
    report: Annotated[
        Path | None, Parameter(help="write pages with the verdicts and an explorer for each violation shown")
    ] = None,
    only: Annotated[
        str | None,
        Parameter(help="judge these beside what is promised, not all seven, e.g. fifo,total"),
    ] = None,
    engine: Annotated[
        Literal["auto", "local", "spark"],
        Parameter(help="judge in this process, on Spark, or where it takes less time"),
    ] = "auto",
    state: Annotated[
        Path | None,
        Parameter(help="keep what was read in this folder, and read only what is new the next time"),
    ] = None,
    follow: Annotated[
        bool, Parameter(help="judge the trace while its group runs, until Ctrl-C", negative=())
    ] = False,
    until_idle: Annotated[
        float | None,
        Parameter(
            help="end --follow after this many seconds without new rows", validator=validators.Number(gt=0)
        ),
    ] = None,
    prometheus: Annotated[
        int | None, Parameter(help="port on which --follow serves its lag and counts")
    ] = None,
    master: Annotated[str, Parameter(help="the Spark master")] = EMBEDDED,
    json: Annotated[bool, Parameter(help="print one JSON object", negative=())] = False,
) -> int:
    """Judge traces, large ones on Spark: integrity, duplicate, atomicity, fifo, causal, total and stability.

    All seven are counted, promised or not; the others only where promised or expected. Exit
    code 0: what was promised holds. 1: a promise is broken. 2: the trace cannot be judged.

    Example: antiphon audit out/trace --expect total,fifo --report out/audit

    Example: antiphon audit --follow out/trace --state out/state --prometheus 9101
    """
    request = _Request(paths, parse_properties(expect), parse_properties(only), show, violations, report)
    if not follow and (until_idle is not None or prometheus is not None):
        raise UsageError("--until-idle and --prometheus go with --follow.")
    if report is not None:
        from antiphon.report.shell import prepare_folder  # most audits write no pages

        prepare_folder(report)
    cases: list[Case] | None = None
    if follow:
        result = request.follow(state, until_idle, prometheus, master, json=json)
    elif state is not None:
        result = request.judge_new(state, engine, master)
    elif request.is_remote:
        result, cases = request.judge_frames(master)
    elif engine == "local" or (engine == "auto" and master == EMBEDDED and is_small(paths)):
        result = request.judge_here()
    else:
        result = request.judge_on_spark(master)
    if json:
        print_json(result.to_json())
    else:
        print_result(result, [] if request.is_remote else [Path(path) for path in paths], show)
    for sentence in reservations(result):
        say(sentence)
    if report is not None:
        command = replay(paths, expect, only, show, engine, master)
        say(f"The report is at {request.write_report(result, cases, report, command)}: open it in a browser.")
    return result.verdict.exit_code


class _Request(NamedTuple):
    """What the caller asks for."""

    paths: list[str]
    expect: tuple[Property, ...] | None
    only: tuple[Property, ...] | None
    show: int
    violations: str | None
    report: Path | None

    @property
    def summaries(self) -> int:
        """Runs whose verdicts are kept whole."""
        return 0 if self.report is None else RUNS_SHOWN

    @property
    def is_remote(self) -> bool:
        """Whether only Spark can reach the trace, or the folder for violations."""
        return any("://" in place for place in (*self.paths, self.violations or ""))

    def judge_frames(self, master: str) -> "tuple[AuditResult, list[Case] | None]":
        """The result, and the violations with their diagrams where a report shows them."""
        from antiphon.spark.frames import audit as audit_frames

        require_extra("spark", "'antiphon audit' of a trace elsewhere needs")
        if len(self.paths) != 1:
            raise UsageError("A trace on another file system is audited alone.", "Name one path.")
        with starting_spark(master) as spark, status("Judging ..."):
            found = audit_frames(
                spark,
                self.paths[0],
                self.expect,
                only=self.only,
                violations_to=self.violations,
                summaries=self.summaries,
            )
            if self.report is None or "://" not in self.paths[0]:
                return found.result, None
            from antiphon.cli.pages import cases_of
            from antiphon.spark.window import read_windows

            return found.result, cases_of(
                found.result, self.show, partial(read_windows, spark, self.paths[0])
            )

    def _folder(self, option: str) -> Path:
        if len(self.paths) != 1 or self.is_remote:
            raise UsageError(f"{option} takes one folder of this machine.", "Name one path.")
        return Path(self.paths[0])

    def follow(
        self, state: Path | None, until_idle_s: float | None, port: int | None, master: str, *, json: bool
    ) -> "AuditResult":
        from antiphon.cli.follow import FollowRequest, follow

        asked = self.expect, self.only, self.show, self.violations
        return follow(
            FollowRequest(self._folder("--follow"), *asked, state, until_idle_s, port, json), master
        )

    def judge_new(self, state: Path, engine: str, master: str) -> "AuditResult":
        from antiphon.audit.growing.incremental import audit_incrementally, is_small_growth

        folder = self._folder("--state")
        asked = self.expect, self.show, self.violations, self.only
        if engine == "local" or (engine == "auto" and master == EMBEDDED and is_small_growth(folder, state)):
            return audit_incrementally(folder, state, *asked)
        require_extra("spark", "'antiphon audit' of a large trace needs")
        with starting_spark(master) as spark, status("Judging ..."):
            from antiphon.spark.follow import SparkMapper

            return audit_incrementally(folder, state, *asked, mapper=SparkMapper(spark), engine="spark")

    def judge_here(self) -> "AuditResult":
        return audit_locally(self.paths, self.expect, self.show, self.violations, self.only, self.summaries)

    def judge_on_spark(self, master: str) -> "AuditResult":
        from antiphon.spark.audit import audit as audit_on_spark  # a small trace does without Spark

        require_extra("spark", "'antiphon audit' of a large trace needs")
        for path in self.paths:
            open_trace(path)  # Report a bad path at once: Spark takes seconds to start.
        with starting_spark(master) as spark, status("Judging ..."):
            return audit_on_spark(
                spark, self.paths, self.expect, self.show, self.violations, self.only, self.summaries
            )

    def write_report(
        self, result: "AuditResult", cases: "list[Case] | None", folder: Path, command: str
    ) -> Path:
        """The pages of this audit; the first page's path."""
        from antiphon.cli.pages import (
            audit_pages,
            calls_of,
            cases_of,
        )  # drawing takes longer to load than judging
        from antiphon.report.audit_pages import write_audit
        from antiphon.trace.window import read_windows

        if cases is None:
            folders = list(map(Path, self.paths))
            cases = cases_of(result, self.show, partial(read_windows, folders), partial(calls_of, folders))
        return write_audit(audit_pages(result, self.paths, cases, command, reservations(result)), folder)


def replay(
    paths: Sequence[str], expect: str | None, only: str | None, show: int, engine: str, master: str
) -> str:
    """The command that repeats an audit."""
    given = {"--expect": expect, "--only": only, "--show": str(show), "--engine": engine, "--master": master}
    usual = {"--show": str(SHOWN), "--engine": "auto", "--master": EMBEDDED}
    words = [(key, value) for key, value in given.items() if value is not None and value != usual.get(key)]
    return shlex.join(["antiphon", "audit", *paths, *chain.from_iterable(words)])


def reservations(result: "AuditResult") -> list[str]:
    """Sentences about runs that could not be judged or have no promises."""
    sentences = list(result.unjudgeable)
    further = result.unjudgeable_count - len(sentences)
    if further:
        sentences.append(f"{further} more runs are like these.")
    if result.unpromised:
        runs = f"{result.unpromised} of the runs"
        sentences.append(f"{runs} have no recorded promises: name the expected properties with --expect.")
    return sentences


def remarks(result: "AuditResult") -> dict[Property, str]:
    """What the counts of properties do not say: in how many runs they were not judged, or are unknown."""
    found: dict[Property, str] = {}
    for name in result.violations:
        words = [
            what if count == result.runs else f"{what} in {count:,} runs"
            for what, count in (
                ("not judged", result.not_judged.get(name, 0)),
                ("unknown", result.unknown.get(name, 0)),
            )
            if count
        ]
        if words:
            found[name] = ", ".join(words)
    return found


def parse_properties(text: str | None) -> tuple[Property, ...] | None:
    """Properties from a comma-separated list; None stays None."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    known: dict[str, Property] = {name: name for name in PROMISABLE}
    for name in names:
        if name not in known:
            raise UsageError(f"There is no property '{name}'.", hint=f"There are: {', '.join(PROMISABLE)}.")
    return tuple(known[name] for name in names)


def print_result(result: "AuditResult", paths: Sequence[Path], show: int) -> None:
    """The verdict, the counts, and the first violations explained; drawn, if the trace can be read here."""
    counts = {
        "runs": result.runs,
        "sites": result.sites,
        "sends": result.sends,
        "deliveries": result.deliveries,
    }
    print_verdict(result.verdict, counts)
    print_properties(result.violations, result.broken, "broken promises", remarks(result))
    if not result.examples[:show]:
        return
    from antiphon.cli.pages import drawings  # drawing takes longer to load than a small trace to judge
    from antiphon.report.escape import clean

    for violation in result.examples[:show]:
        data.print()
        drawn = drawings(paths, violation)[1] if paths else clean(violation.explanation)
        data.print(drawn, markup=False)
