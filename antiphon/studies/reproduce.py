"""Run studies and judge their claims."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from antiphon.core.errors import UsageError
from antiphon.sim.scenarios import find_scenario
from antiphon.spark.statistics import summarise
from antiphon.spark.sweep import SweepResult, sweep
from antiphon.spark.tasks import Progress
from antiphon.studies import guo, jia, konorski, large, profiles, sco
from antiphon.studies.advice import plans as advice
from antiphon.studies.model import Claim
from antiphon.studies.results import Results
from antiphon.studies.study import Effort, Study

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPRODUCED: Final = (guo.STUDY, large.STUDY, profiles.STUDY, konorski.STUDY, sco.STUDY, jia.STUDY)
"""The studies that `antiphon reproduce` runs."""
STUDIES: Final[dict[str, Study]] = {study.name: study for study in (*REPRODUCED, guo.DENSE, advice.STUDY)}
"""All studies by name, for `antiphon sweep`."""


def find_study(name: str) -> Study:
    if name not in STUDIES:
        raise UsageError(f"There is no study '{name}'.", hint=f"There are: {', '.join(sorted(STUDIES))}.")
    return STUDIES[name]


def run_study(
    spark: "SparkSession", study: Study, effort: Effort, folder: Path, progress: Progress
) -> tuple[SweepResult, Results]:
    """Do the remaining runs of a study and summarise all of them."""
    jobs = study.jobs(effort)
    outcome = sweep(spark, jobs, folder, progress)
    # The folder may also hold points of an older or a fuller version of the study.
    wanted = {(job.scenario, job.parameters) for job in jobs}
    points = [
        point
        for point in summarise(spark, folder)
        if (point.scenario, json.dumps(dict(point.parameters), sort_keys=True)) in wanted
    ]
    return outcome, Results(points, defaults_of(study))


def defaults_of(study: Study) -> dict[str, dict[str, Any]]:
    """The defaults of all parameters of the study's scenarios."""
    names = {grid.scenario for grid in study.grids}
    return {name: dataclasses.asdict(find_scenario(name).configure({})) for name in names}


def judge(study: Study, results: Results, effort: Effort) -> list[Claim]:
    """The study's claims with their verdicts."""
    command = f"antiphon sweep {study.name} --{effort}"
    return [claim.judged(results, study.paper, command) for claim in study.claims]
