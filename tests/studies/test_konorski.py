"""Konorski's study: complete, and judged by the runs and not by wishes."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from antiphon.core.errors import UsageError
from antiphon.studies.konorski import STUDY, lan, large, membership, observations, order, sharing
from antiphon.studies.konorski.judging import best, is_about, per_ten_thousand
from antiphon.studies.konorski.lan import HIGHEST
from antiphon.studies.konorski.observations import Configuration, World, receive_next, united
from antiphon.studies.konorski.settings import COMERS_AND_GOERS, DELIV_MS, LAN, offered
from antiphon.studies.konorski.sharing import five_percent_cost_ten as judge_k7
from antiphon.studies.reproduce import STUDIES, judge
from antiphon.studies.results import Results
from antiphon.studies.study import Effort
from tests.studies.imagined import Rule, imagine

EFFORTS: tuple[Effort, ...] = ("quick", "full")
CALM = {"violated": 0.0, "violations": 0.0, "unnoticed": 0.0, "deliveries": 10_000.0, "finished": 1.0}
"""Runs in which nothing went wrong."""


def verdicts(rule: Rule) -> dict[str, str]:
    def calm(values: Mapping[str, Any]) -> Mapping[str, float]:
        return {**CALM, **rule(values)}

    return {one.id: one.verdict for one in judge(STUDY, imagine(STUDY, "quick", calm), "quick")}


def test_every_claim_is_there() -> None:
    assert STUDIES["konorski"] is STUDY
    ids = [claim.id for claim in STUDY.claims]
    assert len(set(ids)) == len(ids)
    assert {id_.rstrip("abcd") for id_ in ids} == {f"K{number}" for number in range(1, 11)}
    assert "3" in {figure.id for figure in STUDY.figures}


def test_without_runs_nothing_is_measured_and_all_say_so() -> None:
    judged = judge(STUDY, Results([]), "quick")
    assert {one.verdict for one in judged} == {"not measured"}
    assert all(one.reason for one in judged)


def test_figure_3_is_for_the_papers_group() -> None:
    assert (LAN["members"], LAN["size"], lan.SITE["buffers"]) == (7, 1000, 20)
    points = [grid.axes for grid in lan.FIGURE_GRIDS]
    assert {(axes["detector"], axes["suspended"]) for axes in points} == {
        ((True,), (True,)),
        ((True,), (False,)),
        ((False,), (True,)),
    }
    assert all(set(axes["churn"]) == {0, COMERS_AND_GOERS} for axes in points)
    assert offered({"rate": 250.0}) == 1000


def test_larger_groups_are_those_that_were_asked_for() -> None:
    assert large.GRID.axes["members"] == (50, 100, 200)
    assert large.GRID.axes["service"] == ("lan", "sequencer", "bounded-delay")
    assert order.GRID.axes["loss"] == (0.0, 0.01, 0.02, 0.05, 0.1)


# Observations


@pytest.mark.parametrize("heard", [0.4, 0.9])
def test_the_observations_hold_of_our_graph(heard: float) -> None:
    knobs = Configuration(graphs=60, heard=heard)
    measured = observations.SCENARIO.run(knobs, 3, None)
    assert measured["arcs"]
    for name in ("untrue", "contradictions", "order_dependent", "relations_undone"):
        assert measured[name] == 0, name
    assert observations.SCENARIO.run(knobs, 3, None) == measured


def test_an_untrue_arc_is_seen() -> None:
    world = World([5, 9, 2], [])
    assert world.allows((5, 2, False))
    assert world.allows((0, 5, True))
    assert not world.allows((2, 5, False))
    assert not world.allows((5, 2, True))


def test_an_arc_may_give_way_to_a_path_while_what_it_said_stays_known() -> None:
    random = Random(1)
    replaced = undone = 0
    for _ in range(300):
        world = World.draw(random, Configuration(heard=0.7, detected=0.5))
        _, gone, relations_gone = receive_next(world, random)
        replaced += gone
        undone += relations_gone
    assert replaced > 0
    assert undone == 0


def test_reports_unite_to_what_all_heard() -> None:
    graph = united([[(0, 5, True), (5, 2, False)], [(5, 9, True), (9, 2, True)]])
    assert graph.arcs() == [(0, 5, True), (5, 9, True), (9, 2, True)]


def test_a_graph_needs_messages() -> None:
    with pytest.raises(UsageError):
        Configuration(messages=1)


# Claims follow the runs: each world is imagined as the text has it and otherwise


def by_mode(full: float, less: float, variable: float = 1.0) -> Rule:
    def rule(values: Mapping[str, Any]) -> Mapping[str, float]:
        whole = bool(values.get("detector", True) and values.get("suspended", True))
        share = variable if values.get("churn") else 1.0
        return {
            "busy_throughput": share * (full if whole else less),
            "present_share": 0.9,
            "halted_share": 0.0,
        }

    return rule


@pytest.mark.parametrize(("less", "verdict"), [(250.0, "reproduced"), (300.0, "not reproduced")])
def test_a_third_is_a_third(less: float, verdict: str) -> None:
    told = verdicts(by_mode(780.0, less))
    assert (told["K6a"], told["K6b"], told["K4a"]) == (verdict, verdict, "reproduced, if")


def test_a_third_with_the_same_settings_alone_turns_on_that_reading() -> None:
    def tuned(values: Mapping[str, Any]) -> Mapping[str, float]:
        found = dict(by_mode(780.0, 400.0)(values))
        whole = values.get("detector", True) and values.get("suspended", True)
        if not whole and (values.get("deliv_ms"), values.get("rate")) == (DELIV_MS, HIGHEST):
            found["busy_throughput"] = 80.0
        return found

    told = verdicts(tuned)
    assert (told["K6a"], told["K6b"]) == ("reproduced, if", "reproduced, if")


@pytest.mark.parametrize(("share", "verdict"), [(0.85, "reproduced"), (0.7, "not reproduced")])
def test_throughput_may_fall_by_what_the_absent_would_have_sent(share: float, verdict: str) -> None:
    assert verdicts(by_mode(780.0, 100.0, share))["K5"] == verdict


def test_a_halt_is_no_graceful_drop() -> None:
    def rule(values: Mapping[str, Any]) -> Mapping[str, float]:
        return {**by_mode(780.0, 100.0)(values), "halted_share": 0.1 if values.get("churn") else 0.0}

    assert verdicts(rule)["K5"] == "not reproduced"


def test_the_best_flow_control_is_one_that_keeps_the_order() -> None:
    def rule(values: Mapping[str, Any]) -> Mapping[str, float]:
        reckless = values.get("window") == 5
        return {**CALM, "busy_throughput": float(values.get("window", 0)), "violated": 100.0 * reckless}

    results = imagine(STUDY, "full", rule)
    assert best(results, lan.runs_of(lan.FULL)).parameters["window"] == 4
    every = imagine(STUDY, "full", lambda values: {**rule(values), "violated": 100.0})
    assert best(every, lan.runs_of(lan.FULL)).parameters["window"] == 5


@pytest.mark.parametrize(("rate", "verdict"), [(0.004, "reproduced"), (0.006, "not reproduced")])
def test_well_below_a_percent_is_half_of_it(rate: float, verdict: str) -> None:
    assert verdicts(lambda _: {"miss_rate": rate})["K3a"] == verdict


@pytest.mark.parametrize(
    ("violated", "finished", "verdict"),
    [
        (0.0, 1.0, "reproduced"),
        (5.0, 1.0, "reproduced"),
        (6.0, 1.0, "not reproduced"),
        (0.0, 0.9, "not reproduced"),
    ],
)
def test_one_in_many_thousands(violated: float, finished: float, verdict: str) -> None:
    assert verdicts(lambda _: {"violated": violated, "finished": finished})["K3b"] == verdict


@pytest.mark.parametrize(
    ("size", "share", "verdict"), [(30.0, 0.2, "reproduced"), (31.0, 0.21, "not reproduced")]
)
def test_graphs_and_reports_have_their_limits(size: float, share: float, verdict: str) -> None:
    told = verdicts(lambda _: {"graph_p95": size, "report_share": share})
    assert (told["K4b"], told["K4c"]) == (verdict, verdict)


@pytest.mark.parametrize(("violations", "verdict"), [(0.0, "reproduced"), (1.0, "not reproduced")])
def test_a_broken_spell_is_one_too_many(violations: float, verdict: str) -> None:
    assert (
        verdicts(lambda values: {"violations": violations if values.get("churn") == 3 else 0.0})["K2"]
        == verdict
    )


@pytest.mark.parametrize(
    ("halted", "slowed", "expected"),
    [
        (0.22, 0.18, {"K8a": "reproduced, if", "K8b": "reproduced, if", "K8c": "not reproduced"}),
        (0.0, 0.02, {"K8a": "not reproduced", "K8b": "not reproduced", "K8c": "reproduced"}),
    ],
)
def test_halts_are_measured(halted: float, slowed: float, expected: dict[str, str]) -> None:
    told = verdicts(
        lambda values: {
            "halted_share": halted if values.get("churn") else 0.0,
            "slowed_share": slowed if values.get("churn") else 0.0,
        }
    )
    assert {id_: told[id_] for id_ in expected} == expected


def test_totem_halts_at_saturation_and_the_stated_period_or_not_at_all() -> None:
    def rule(values: Mapping[str, Any]) -> Mapping[str, float]:
        elsewhere = values.get("rate") == membership.TOGGLING["rate"]
        return {"halted_share": 0.2 if elsewhere else 0.02}

    assert verdicts(rule)["K8a"] == "not reproduced"
    assert membership.STATED_MS in membership.PERIODS_MS


def test_a_ring_that_is_slow_without_any_toggling_is_not_slowed_by_it() -> None:
    assert verdicts(lambda _: {"slowed_share": 0.2})["K8b"] == "not reproduced"


@pytest.mark.parametrize(("left", "verdict"), [(0.9, "reproduced"), (0.99, "not reproduced")])
def test_the_cost_of_disorder_is_that_of_the_median_setting(left: float, verdict: str) -> None:
    def rule(values: Mapping[str, Any]) -> Mapping[str, float]:
        return {"operations_per_s": 20.0 * (left if values.get("disorder") else 1.0)}

    assert verdicts(rule)["K7"] == verdict
    results = imagine(STUDY, "quick", rule)
    assert sharing.cost(results, 8, 800.0, 2) == pytest.approx(1 - left)


def test_the_cost_of_disorder_is_looked_at_from_few_units_needed_to_all() -> None:
    assert sharing.needs(imagine(STUDY, "full")) == [2, 4, 6, 8, sharing.UNITS]

    def rule(values: Mapping[str, Any]) -> Mapping[str, float]:
        dear = values.get("need") == sharing.UNITS and values.get("disorder")
        return {"operations_per_s": 10.0 if dear else 20.0}

    assert judge_k7(imagine(STUDY, "full", rule)).ours.startswith("0.0% fewer operations in the median")
    assert "50.0% with up to 10" in judge_k7(imagine(STUDY, "full", rule)).ours


def test_figure_3_has_one_window_and_deliv_cycle_for_all_modes() -> None:
    def rule(values: Mapping[str, Any]) -> Mapping[str, float]:
        same = values.get("window") == lan.WINDOW and values.get("deliv_ms") == DELIV_MS
        return {**CALM, "busy_throughput": 100.0 if same else 900.0}

    panels = lan.FIGURE.panels
    assert [panel.title for panel in panels] == ["constant membership", "variable membership"]
    for panel in panels:
        assert panel.compute is not None
        curves = panel.compute(imagine(STUDY, "full", rule))
        assert [curve.name for curve in curves] == list(lan.MODES)
        assert all(set(lan.RATES) <= set(curve.x) for curve in curves)
        assert all(set(curve.y) == {100.0} for curve in curves)


def test_a_large_group_delivers_what_is_offered_in_one_order() -> None:
    def rule(values: Mapping[str, Any]) -> Mapping[str, float]:
        slow = values.get("service") == "sequencer" and values.get("members") == 100
        return {"throughput": 300.0 if slow else 390.0}

    told = verdicts(rule)
    assert (told["K9a"], told["K9b"]) == ("reproduced", "not reproduced")
    assert verdicts(lambda _: {"throughput": 390.0, "violated": 1.0})["K9a"] == "not reproduced"


@pytest.mark.parametrize(
    ("violated", "unnoticed", "kept", "noticed"),
    [(1.0, 0.0, "reproduced", "reproduced"), (2.0, 2.0, "not reproduced", "not reproduced")],
)
def test_our_own_target(violated: float, unnoticed: float, kept: str, noticed: str) -> None:
    told = verdicts(lambda _: {"violated": violated, "unnoticed": unnoticed})
    assert (told["K10a"], told["K10b"], told["K10c"]) == (kept, kept, noticed)


def test_beyond_five_percent_the_target_says_nothing() -> None:
    def rule(values: Mapping[str, Any]) -> Mapping[str, float]:
        return {**CALM, "violated": 500.0 if values.get("loss", 0.0) > 0.05 else 0.0}

    assert order.order_is_kept(imagine(STUDY, "full", rule), "lan").holds is True


def test_violations_are_counted_over_all_runs() -> None:
    results = imagine(STUDY, "quick", lambda _: {**CALM, "violated": 2.0})
    assert per_ten_thousand(results.found(order.group())) == pytest.approx(2.0)
    assert is_about(0.1, 0.2)
    assert not is_about(0.09, 0.2)
    with pytest.raises(UsageError):
        results.found({"scenario": "template"})
