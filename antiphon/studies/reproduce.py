"""Run studies and judge their claims."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from antiphon.core.errors import UsageError
from antiphon.sim.scenarios import find_scenario
from antiphon.spark.statistics import summarise
from antiphon.spark.sweep import SweepResult, sweep
from antiphon.spark.tasks import Progress
from antiphon.studies import guo, jia, konorski, large, sco
from antiphon.studies.advice import plans as advice
from antiphon.studies.model import Claim, ClaimVerdict, Effort, Finding, Results, Study

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPRODUCED: Final = (guo.STUDY, large.STUDY, konorski.STUDY, sco.STUDY, jia.STUDY)
"""What `antiphon reproduce` runs."""
STUDIES: Final[dict[str, Study]] = {study.name: study for study in (*REPRODUCED, guo.DENSE, advice.STUDY)}
"""What `antiphon sweep` knows."""


@dataclass(frozen=True)
class JudgedClaim:
    """A claim with what we found and the command that shows it."""

    study: Study
    claim: Claim
    finding: Finding
    verdict: ClaimVerdict
    command: str


def find_study(name: str) -> Study:
    if name not in STUDIES:
        raise UsageError(f"There is no study '{name}'.", hint=f"There are: {', '.join(sorted(STUDIES))}.")
    return STUDIES[name]


def run_study(
    spark: "SparkSession", study: Study, effort: Effort, folder: Path, progress: Progress
) -> tuple[SweepResult, Results]:
    """Do what is left of a study's runs and summarise them."""
    jobs = study.jobs(effort)
    outcome = sweep(spark, jobs, folder, progress)
    # The folder may also hold points that the study no longer has, or that only a fuller one has.
    wanted = {(job.scenario, job.parameters) for job in jobs}
    points = [
        point
        for point in summarise(spark, folder)
        if (point.scenario, json.dumps(dict(point.parameters), sort_keys=True)) in wanted
    ]
    return outcome, Results(points, defaults_of(study))


def defaults_of(study: Study) -> dict[str, dict[str, Any]]:
    """The values of the parameters that the study's grids leave alone."""
    names = {grid.scenario for grid in study.grids}
    return {name: dataclasses.asdict(find_scenario(name).configure({})) for name in names}


def judge(study: Study, results: Results, effort: Effort) -> list[JudgedClaim]:
    command = f"antiphon sweep {study.name} --{effort}"
    findings = [(claim, find(claim, results)) for claim in study.claims]
    return [JudgedClaim(study, claim, finding, verdict(finding), command) for claim, finding in findings]


def find(claim: Claim, results: Results) -> Finding:
    """What the runs say of a claim; where the runs it needs have failed, that."""
    try:
        return claim.judge(results)
    except UsageError as error:
        return Finding(ours="", holds=None, reason=f"The runs that it needs are not there. {error.sentence}")
    except (LookupError, ArithmeticError, ValueError) as error:
        # A group size is missing, or there is nothing to divide by: one claim less, not the end of a sweep.
        return Finding(ours="", holds=None, reason=f"The runs that there are cannot be judged: {error!r}.")


def verdict(finding: Finding) -> ClaimVerdict:
    if finding.holds is None:
        return "not measured"
    return "reproduced" if finding.holds else "not reproduced"


def scoreboard(claims: Sequence[JudgedClaim]) -> list[dict[str, str]]:
    """The claims as plain rows, for JSON and for files."""
    return [
        {
            "id": judged.claim.id,
            "paper": judged.study.paper,
            "where": judged.claim.where,
            "statement": judged.claim.statement,
            "theirs": judged.claim.theirs,
            "ours": judged.finding.ours,
            "interval": judged.finding.interval,
            "verdict": judged.verdict,
            "reason": judged.finding.reason,
            "command": judged.command,
        }
        for judged in claims
    ]
