"""`antiphon reproduce`: every study, the claims' verdicts and the report."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.table import Table

from antiphon.cli.console import data, print_json, starting_spark, talk
from antiphon.cli.pages import claim_rows, figures_of
from antiphon.cli.sweep import Full, Master, Quick, effort_of, report_outcome, sweep_with_bar
from antiphon.core.errors import OutputError
from antiphon.report.model import FigureData, Site
from antiphon.report.site import write_site
from antiphon.studies.model import Effort
from antiphon.studies.reproduce import STUDIES, JudgedClaim, judge, scoreboard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def reproduce(
    *,
    quick: Quick = False,
    full: Full = False,
    out: Annotated[Path, Parameter(help="folder for results, scoreboard and report")] = Path("out/reproduce"),
    master: Master = "local[*]",
    json: Annotated[bool, Parameter(help="print one JSON object per claim", negative=())] = False,
) -> int:
    """Run every study there is, judge the papers' claims and write the report.

    A claim is reproduced, not reproduced or not measured; all three are answers. The exit code is 1 only
    if runs failed.

    Example: antiphon reproduce --quick
    """
    effort = effort_of(quick, full)
    with starting_spark(master) as spark:
        claims, figures, code = run_studies(spark, effort, out)
    write_scoreboard(out / "scoreboard.json", claims)
    page = write_site(
        Site(
            subtitle="Many voices, one order: the papers' claims, measured",
            generated=f"antiphon reproduce --{effort}",
            claims=claim_rows(claims),
            figures=figures,
        ),
        out / "report",
    )
    print_claims(claims, json)
    talk.print(f"The report is at {page}.", markup=False)
    return code


def run_studies(
    spark: "SparkSession", effort: Effort, folder: Path
) -> tuple[list[JudgedClaim], list[FigureData], int]:
    """All studies: their judged claims, their figures and the exit code."""
    claims: list[JudgedClaim] = []
    figures: list[FigureData] = []
    code = 0
    for study in STUDIES.values():
        outcome, results = sweep_with_bar(spark, study, effort, folder / "sweep" / study.name)
        code = max(code, report_outcome(outcome))
        claims += judge(study, results, effort)
        figures += figures_of(study, results)
    return claims, figures, code


def write_scoreboard(path: Path, claims: list[JudgedClaim]) -> None:
    try:
        path.write_text(json_format.dumps(scoreboard(claims), indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise OutputError(
            f"The scoreboard cannot be written to {path}: {error.strerror}.",
            "Choose another folder with --out.",
        ) from error


def print_claims(claims: list[JudgedClaim], json: bool) -> None:
    if json:
        for row in scoreboard(claims):
            print_json(row)
        return
    table = Table(title="The papers' claims", title_justify="left")
    for heading in ("claim", "statement", "theirs", "ours", "verdict"):
        table.add_column(heading)
    for judged in claims:
        finding = judged.finding
        ours = " ".join(part for part in (finding.ours, finding.interval and f"({finding.interval})") if part)
        table.add_row(judged.claim.id, judged.claim.statement, judged.claim.theirs, ours, judged.verdict)
    data.print(table)
