"""Grids, results, panels and verdicts."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from antiphon.core.errors import UsageError
from antiphon.spark.statistics import Point, Summary
from antiphon.studies.claims import read_claims
from antiphon.studies.model import Claim, Curve, Finding, Panel, Section, Series
from antiphon.studies.reproduce import find_study, run_study
from antiphon.studies.results import Results, Where
from antiphon.studies.study import Grid, Study

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def point(mean: float, **parameters: Any) -> Point:
    summary = Summary(2, mean, 0.5, mean - 1, mean + 1, mean, mean, (mean, mean))
    return Point("coordp", parameters, {"tpr_s": summary})


RESULTS = Results(
    [point(2.0, members=100), point(1.0, members=50), point(9.0, members=50, fill="left")],
    defaults={"coordp": {"members": 50, "fill": "even", "density": "dense"}},
)
EVEN = {"scenario": "coordp", "fill": "even"}


def halved(point: Where) -> float:
    return float(point["members"]) / 2


def test_a_grid_is_every_combination_with_its_seeds() -> None:
    grid = Grid(
        scenario="coordp", axes={"members": (50, 100), "senders": (1, 50)}, seeds={"quick": 2, "full": 3}
    )
    assert len(grid.jobs("quick")) == 8
    assert len({job.key for job in grid.jobs("full")}) == 12


def test_a_quick_grid_may_have_shorter_axes() -> None:
    grid = Grid(
        scenario="coordp",
        axes={"members": (50, 100), "senders": (1, 50)},
        quick={"members": (50,)},
        seeds={"quick": 1, "full": 1},
    )
    assert (len(grid.jobs("quick")), len(grid.jobs("full"))) == (2, 4)
    assert set(grid.jobs("quick")) < set(grid.jobs("full"))


def test_parameters_may_follow_from_others() -> None:
    grid = Grid(
        scenario="gossip",
        axes={"members": (50, 100)},
        derived={"step": halved},
        seeds={"quick": 1, "full": 1},
    )
    assert [job.parameters for job in grid.jobs("quick")] == [
        '{"members": 50, "step": 25.0}',
        '{"members": 100, "step": 50.0}',
    ]


def test_a_run_that_two_grids_share_is_made_once() -> None:
    grid = Grid(scenario="coordp", axes={"members": (50,)}, seeds={"quick": 2, "full": 5})
    more = Grid(scenario="coordp", axes={"members": (50,)}, seeds={"quick": 3, "full": 3})
    study = Study(name="s", paper="", title="", grids=(grid, more))
    assert [len(study.jobs(effort)) for effort in ("quick", "full")] == [3, 5]


def test_results_know_the_values_that_a_grid_leaves_alone() -> None:
    assert RESULTS.one({"members": 50, "fill": "even"}, "tpr_s").mean == 1.0
    assert RESULTS.one({"fill": "left"}, "tpr_s").mean == 9.0


def test_a_value_may_be_a_function_of_the_others() -> None:
    results = Results([point(1.0, members=50, step=25.0), point(2.0, members=50, step=3.0)])
    assert results.one({"step": halved}, "tpr_s").mean == 1.0


def test_a_curve_is_in_order_of_its_parameter() -> None:
    curve = RESULTS.curve({"fill": "even", "density": "dense"}, "members", "tpr_s")
    assert [(x, summary.mean) for x, summary in curve] == [(50, 1.0), (100, 2.0)]
    assert RESULTS.means(EVEN, "members", "tpr_s") == {50: 1.0, 100: 2.0}


def test_asking_for_one_of_many_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="2 points"):
        RESULTS.one({"fill": "even"}, "tpr_s")


def test_a_curve_that_is_two_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="same members"):
        RESULTS.curve({"scenario": "coordp"}, "members", "tpr_s")


def test_what_was_not_measured_is_told_with_the_functions_names() -> None:
    with pytest.raises(UsageError, match="step=halved"):
        RESULTS.curve({"step": halved}, "members", "tpr_s")
    with pytest.raises(UsageError, match="No run of the study has steps"):
        RESULTS.one({"fill": "left"}, "steps")


@pytest.mark.parametrize(
    ("spread", "low", "high"),
    [("none", None, None), ("interval", [0.0, 1.0], [2.0, 3.0]), ("deviation", [0.5, 1.5], [1.5, 2.5])],
)
def test_a_panel_draws_its_curves_with_the_spread_it_asks_for(spread: Any, low: Any, high: Any) -> None:
    panel = Panel(
        x="members",
        x_label="n",
        y="tpr_s",
        y_label="s",
        curves=[Curve(name="even", where=EVEN), Curve(name="failed", where={"scenario": "train"})],
        spread=spread,
    )
    assert panel.drawn(RESULTS).series == [
        Series(name="even", x=[50.0, 100.0], y=[1.0, 2.0], low=low, high=high)
    ]


def test_a_panel_shows_single_runs_as_dots() -> None:
    curves = [Curve(name="even", where=EVEN)]
    panel = Panel(x="members", x_label="n", y="tpr_s", y_label="s", curves=curves, dots=True)
    assert panel.drawn(RESULTS).series[0].dots == [(50.0, 1.0), (50.0, 1.0), (100.0, 2.0), (100.0, 2.0)]


def test_lines_may_be_computed() -> None:
    line = Series(name="law", x=[1], y=[2])
    panel = Panel(x_label="n", y_label="s", compute=lambda _: [line])
    assert panel.drawn(Results([])).series == [line]


@pytest.mark.parametrize(
    ("holds", "expected"), [(True, "reproduced"), (False, "not reproduced"), (None, "not measured")]
)
def test_a_verdict_follows_the_finding(holds: bool | None, expected: str) -> None:
    assert Finding(ours="", holds=holds).verdict == expected


def test_a_claim_that_turns_on_a_reading_says_which() -> None:
    assert Finding(ours="", holds=True, condition="clocks agree").verdict == "reproduced, if"
    assert Finding(ours="", holds=False, condition="clocks agree").verdict == "not reproduced"
    claim = Claim(
        id="X", where="", statement="", judge=lambda _: Finding(ours="", holds=True, condition="clocks agree")
    )
    assert claim.judged(Results([])).to_json()["condition"] == "clocks agree"


def test_a_claim_whose_runs_failed_is_not_measured_and_says_so() -> None:
    claim = Claim(
        id="X",
        where="",
        statement="",
        theirs="",
        judge=lambda results: Finding(str(results.one(EVEN, "tpr_s").mean), True),
    )
    judged = claim.judged(Results([]))
    assert judged.verdict == "not measured"
    assert "The runs that it needs are not there." in judged.reason


def test_a_study_has_what_its_sections_have() -> None:
    claim = Claim(id="X", where="", statement="", theirs="", judge=lambda _: Finding("", True))
    section = Section(title="one", claims=(claim,))
    study = Study(name="s", paper="", title="", grids=(), sections=(section, section))
    assert study.claims == [claim, claim]
    assert study.figures == []


@pytest.mark.parametrize("paper", ["guo", "jia", "konorski", "sco"])
def test_every_claim_of_a_papers_table_is_judged_once_in_its_order(paper: str) -> None:
    claims = find_study(paper).claims
    assert [claim.id for claim in claims] == list(read_claims(paper))
    assert all(claim.judge is not None and claim.statement for claim in claims)


def test_an_unknown_study_is_told_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        find_study("gou")
    assert caught.value.hint is not None
    assert "guo, guo-dense, jia, konorski, large" in caught.value.hint


@pytest.mark.parametrize("trouble", [KeyError(500), ZeroDivisionError(), ValueError("empty")])
def test_a_claim_that_cannot_be_judged_is_not_the_end(trouble: Exception) -> None:
    def judge(_: Results) -> Finding:
        raise trouble

    judged = Claim(id="X", where="", statement="", theirs="", judge=judge).judged(Results([]))
    assert judged.verdict == "not measured"
    assert type(trouble).__name__ in judged.reason


@pytest.mark.spark
def test_what_an_earlier_study_left_in_the_folder_is_not_this_ones(
    spark: "SparkSession", tmp_path: Path
) -> None:
    def study(*sizes: int) -> Study:
        grid = Grid(scenario="coordp", axes={"members": sizes}, seeds={"quick": 1, "full": 1})
        return Study(name="s", paper="", title="", grids=(grid,))

    run_study(spark, study(10, 20), "quick", tmp_path, lambda _done, _share: None)
    outcome, results = run_study(spark, study(10), "quick", tmp_path, lambda _done, _share: None)
    assert (outcome.jobs, outcome.resumed) == (1, 1)
    assert [point.parameters for point in results.points] == [{"members": 10}]
    assert results.one({"density": "dense"}, "finished").values == (1.0,)
