"""`antiphon reproduce`: every study, the claims' verdicts and the report."""

import json as json_format
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.table import Table

from antiphon.cli.console import data, print_json, say, starting_spark
from antiphon.cli.pages import page_of
from antiphon.cli.sweep import Full, Master, Quick, effort_of, report_outcome, sweep_with_bar
from antiphon.core.errors import OutputError
from antiphon.report.model import Page, Site
from antiphon.report.site import write_site
from antiphon.studies.model import Claim
from antiphon.studies.reproduce import REPRODUCED, find_study, judge
from antiphon.studies.study import Effort, Study

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def reproduce(
    *,
    quick: Quick = False,
    full: Full = False,
    study: Annotated[
        list[str] | None, Parameter(help="only this study; may be given several times", negative=())
    ] = None,
    out: Annotated[Path, Parameter(help="folder for results, scoreboard and report")] = Path("out/reproduce"),
    master: Master = "local[*]",
    json: Annotated[bool, Parameter(help="print one JSON object per claim", negative=())] = False,
) -> int:
    """Run the studies, judge the papers' claims and write the report.

    A claim is reproduced, reproduced under one reading of the paper, not reproduced or not measured; all of
    these are answers. The exit code is 1 only
    if runs failed.

    Example: antiphon reproduce --quick
    """
    effort = effort_of(quick, full)
    studies = [find_study(name) for name in dict.fromkeys(study)] if study else REPRODUCED
    with starting_spark(master) as spark:
        claims, pages, code = run_studies(spark, studies, effort, out)
    write_scoreboard(out / "scoreboard.json", claims)
    page = write_site(
        Site(
            subtitle="Many voices, one order: the papers' claims, measured",
            generated=f"antiphon reproduce --{effort}",
            claims=claims,
            pages=pages,
        ),
        out / "report",
    )
    print_claims(claims, json)
    say(f"The report is at {page}.")
    return code


def run_studies(
    spark: "SparkSession", studies: Sequence[Study], effort: Effort, folder: Path
) -> tuple[list[Claim], list[Page], int]:
    """Run studies: their judged claims, their pages and the exit code."""
    claims: list[Claim] = []
    pages: list[Page] = []
    code = 0
    for study in studies:
        outcome, results = sweep_with_bar(spark, study, effort, folder / "sweep" / study.name)
        code = max(code, report_outcome(outcome))
        judged = judge(study, results, effort)
        claims += judged
        pages.append(page_of(study, results, judged))
    return claims, pages, code


def write_scoreboard(path: Path, claims: list[Claim]) -> None:
    rows = [claim.to_json() for claim in claims]
    try:
        path.write_text(json_format.dumps(rows, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise OutputError(
            f"The scoreboard cannot be written to {path}: {error.strerror}.",
            "Choose another folder with --out.",
        ) from error


def print_claims(claims: list[Claim], json: bool) -> None:
    if json:
        for claim in claims:
            print_json(claim.to_json())
        return
    table = Table(title="The papers' claims", title_justify="left")
    for heading in ("claim", "statement", "theirs", "ours", "verdict"):
        table.add_column(heading)
    for claim in claims:
        ours = " ".join(part for part in (claim.ours, claim.interval and f"({claim.interval})") if part)
        verdict = f"{claim.verdict} {claim.condition}".strip()
        table.add_row(claim.id, claim.statement, claim.theirs, ours, verdict)
    data.print(table)
