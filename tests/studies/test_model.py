"""Grids, results and verdicts."""

from typing import Any

import pytest

from antiphon.core.errors import UsageError
from antiphon.sim.scenarios import find_scenario
from antiphon.spark.statistics import Point, Summary
from antiphon.studies.model import Effort, Finding, Grid, Results
from antiphon.studies.reproduce import STUDIES, defaults_of, find_study, judge, verdict


def point(mean: float, **parameters: Any) -> Point:
    return Point("coordp", parameters, {"tpr_s": Summary(1, mean, 0.0, mean, mean, mean, mean)})


RESULTS = Results(
    [point(2.0, members=100), point(1.0, members=50), point(9.0, members=50, fill="left")],
    defaults={"coordp": {"members": 50, "fill": "even", "density": "dense"}},
)


def test_a_grid_is_every_combination_with_its_seeds() -> None:
    grid = Grid(
        scenario="coordp", axes={"members": (50, 100), "senders": (1, 50)}, seeds={"quick": 2, "full": 3}
    )
    assert len(grid.jobs("quick")) == 8
    assert len({job.key for job in grid.jobs("full")}) == 12


def test_results_know_the_values_that_a_grid_leaves_alone() -> None:
    assert RESULTS.one({"members": 50, "fill": "even"}, "tpr_s").mean == 1.0
    assert RESULTS.one({"fill": "left"}, "tpr_s").mean == 9.0


def test_a_curve_is_in_order_of_its_parameter() -> None:
    curve = RESULTS.curve({"fill": "even", "density": "dense"}, "members", "tpr_s")
    assert [(x, summary.mean) for x, summary in curve] == [(50, 1.0), (100, 2.0)]


def test_asking_for_one_of_many_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="2 points"):
        RESULTS.one({"fill": "even"}, "tpr_s")


@pytest.mark.parametrize(
    ("holds", "expected"), [(True, "reproduced"), (False, "not reproduced"), (None, "not measured")]
)
def test_a_verdict_follows_the_finding(holds: bool | None, expected: str) -> None:
    assert verdict(Finding(ours="", holds=holds)) == expected


@pytest.mark.parametrize("study", STUDIES.values(), ids=lambda study: study.name)
@pytest.mark.parametrize("effort", ["quick", "full"])
def test_every_job_of_every_study_can_be_configured_and_stands_once(study: Any, effort: Effort) -> None:
    import json

    jobs = study.jobs(effort)
    assert len({job.key for job in jobs}) == len(jobs)
    for job in jobs:
        scenario = find_scenario(job.scenario)
        assert scenario.cost_s(scenario.configure(json.loads(job.parameters))) > 0


def test_an_unknown_study_is_told_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        find_study("gou")
    assert caught.value.hint == "There are: guo."


def growing(exponent: float) -> Results:
    """Results in which CoordP's metrics follow a law that we choose."""
    study = find_study("guo")
    points = []
    for n in (50, 100, 200, 300, 400, 500):
        for fill in ("even", "left"):
            value = n**exponent
            summary = Summary(1, value, 0.0, value, value, value, value)
            metrics = dict.fromkeys(("tpr_s", "hop_messages", "queue_mean"), summary)
            points.append(Point("coordp", {"members": n, "fill": fill}, metrics))
    return Results(points, defaults=defaults_of(study))


def test_guos_claims_are_judged_by_the_runs_and_not_by_wishes() -> None:
    study = find_study("guo")
    verdicts = {judged.claim.id: judged.verdict for judged in judge(study, growing(2.0), "quick")}
    assert verdicts["G13"] == "not reproduced"
    assert verdicts["G14"] == verdicts["G15"] == "reproduced"
    falling = {judged.claim.id: judged.verdict for judged in judge(study, growing(-1.0), "quick")}
    assert falling["G14"] == falling["G15"] == "not reproduced"


def test_what_is_not_measured_says_why() -> None:
    judged = judge(find_study("guo"), growing(1.0), "quick")
    missing = [one for one in judged if one.verdict == "not measured"]
    assert missing
    assert all(one.finding.reason for one in missing)


def test_claims_whose_runs_failed_are_not_measured() -> None:
    judged = judge(find_study("guo"), Results([]), "quick")
    assert {one.verdict for one in judged} == {"not measured"}
    assert any("No run of the study" in one.finding.reason for one in judged)
