"""The SCO study: complete, and judged by the runs and not by wishes."""

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from antiphon.analysis import control_schemes as closed
from antiphon.analysis.control_schemes import SCHEMES, Scheme, Traffic
from antiphon.core.errors import UsageError
from antiphon.core.ids import MessageId
from antiphon.sim.scenarios import find_scenario
from antiphon.simulation import measure
from antiphon.studies.reproduce import STUDIES, judge
from antiphon.studies.results import Results
from antiphon.studies.sco import STUDY, beyond, evaluation, example, levels, schemes, theorem
from antiphon.studies.sco.judging import delay, messages, where
from antiphon.studies.sco.precedence import Precedence
from antiphon.studies.sco.settings import SCENARIOS, UNIT_MS, parameters, traffic
from antiphon.studies.study import Effort
from tests.studies.imagined import Rule, imagine

EFFORTS: tuple[Effort, ...] = ("quick", "full")
DOCS = Path(__file__).parents[2] / "docs"
SCHEME_OF = {scenario: scheme for scheme, scenario in SCENARIOS.items()}


# The study as a whole


def test_every_claim_is_there() -> None:
    assert STUDIES["sco"] is STUDY
    ids = [claim.id for claim in STUDY.claims]
    assert len(set(ids)) == len(ids)
    assert {id_.rstrip("abcdef") for id_ in ids} == {f"S{number}" for number in range(1, 10)}
    assert {figure.id for figure in STUDY.figures} >= {"5", "6", "7", "8"}


def test_without_runs_nothing_is_measured_and_all_say_so() -> None:
    judged = judge(STUDY, Results([]), "quick")
    assert {one.verdict for one in judged} == {"not measured"}
    assert all(one.reason for one in judged)


def test_what_is_run_quickly_is_a_part_of_the_whole() -> None:
    assert set(STUDY.jobs("quick")) < set(STUDY.jobs("full"))


def test_the_figures_are_of_the_papers_group() -> None:
    knobs = parameters("D1", traffic())
    assert (knobs["members"], knobs["destinations"], knobs["own_share"]) == (10, 5, 0.0)
    assert knobs["rate"] * UNIT_MS / 1000 == 10  # one message of each of ten in a unit
    assert knobs["delay_ms"] == knobs["confirm_ms"] == 4 * UNIT_MS
    assert all(
        find_scenario(SCENARIOS[scheme]).configure(parameters(scheme, traffic())) for scheme in SCHEMES
    )


# What precedes what, from outside


def test_a_message_precedes_what_its_destinations_send_once_they_have_it() -> None:
    truth = Precedence()
    first, second, third = MessageId("a", 0), MessageId("a", 1), MessageId("b", 0)
    truth.sent(first, ["b", "c"])
    truth.sent(second, ["b"])
    truth.held("b", second)  # what was sent before it is missing, so that it is not accepted yet
    truth.sent(third, ["c"])
    assert truth.precedes(first, second)
    assert not truth.precedes(first, third)
    truth.held("b", first)
    fourth = MessageId("b", 1)
    truth.sent(fourth, ["c"])
    assert truth.precedes(first, fourth)
    assert truth.precedes(second, fourth)
    assert not truth.precedes(fourth, first)


def test_what_passes_by_a_site_precedes_all_the_same() -> None:
    truth = Precedence()
    direct, aside, last = MessageId("a", 0), MessageId("a", 1), MessageId("b", 0)
    truth.sent(direct, ["c"])
    truth.sent(aside, ["b"])
    truth.held("b", aside)
    truth.sent(last, ["c"])
    assert truth.precedes(direct, last)
    assert truth.out_of_order([direct, last]) == 0
    assert truth.out_of_order([last, direct]) == 1


# S1


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_theorem_2_holds_of_our_members(loss: float) -> None:
    knobs = theorem.Configuration(messages=120, loss=loss, reordering=0.1, duplication=0.05)
    told = theorem.SCENARIO.run(knobs, 5, None)
    assert told["finished"]
    assert told["preceding"]
    assert (told["missed"], told["invented"]) == (0, 0)
    assert theorem.SCENARIO.run(knobs, 5, None) == told


def test_a_wrong_stamp_is_seen() -> None:
    truth = Precedence()
    first, second, third = MessageId("a", 0), MessageId("b", 0), MessageId("b", 1)
    truth.sent(first, ["b"])
    truth.sent(second, ["a"])
    truth.held("b", first)
    truth.sent(third, ["a"])
    right = {first: {"b": 0}, second: {"a": 0}, third: {"a": 1}}
    assert theorem.compare(truth, right) == {"pairs": 6, "preceding": 2, "missed": 0, "invented": 0}
    assert theorem.compare(truth, {**right, third: {"a": 0}})["missed"] == 1
    assert theorem.compare(truth, {**right, second: {"a": 1}})["invented"] == 1


# S2


@pytest.mark.parametrize("seed", range(10))
def test_figure_4_ends_in_one_of_the_four_orders(seed: int) -> None:
    told = example.run(example.Configuration(), seed, None)
    assert told["causal"]
    assert told["stated"]


@pytest.mark.parametrize("seed", range(10))
def test_figure_4_with_a1_lost(seed: int) -> None:
    order = example.play(Random(seed), lost=True)
    assert example.is_causal(order, lost=True), order
    assert order.index("a1") < order.index("c2")


@pytest.mark.parametrize(
    "wrong", ["a1 c1 d1 c2 a2", "c1 c2 a1 d1 a2 b2", "a1 d1 c1 c2 a2 b2", "a1 c1 d1 b2 c2 a2"]
)
def test_an_order_that_is_not_causal_is_seen(wrong: str) -> None:
    assert not example.is_causal(wrong.split(), lost=False)


# S3


@pytest.mark.parametrize("destinations", [1, 3])
@pytest.mark.parametrize("scheme", ["C0", "D0"])
def test_unmodified_schemes_cost_what_the_closed_form_says(scheme: Scheme, destinations: int) -> None:
    group = traffic(destinations=destinations)
    scenario = find_scenario(SCENARIOS[scheme])
    told = measure(scenario, scenario.configure({**parameters(scheme, group), "messages": 50}), 1)
    crossing = float(told["data_messages"] or 0) + float(told["control_messages"] or 0)
    assert crossing / 50 == closed.messages(scheme, group)
    assert 1000 * float(told["acceptance_s"] or 0) / UNIT_MS == pytest.approx(closed.delay(scheme, group))
    assert told["violations"] == 0


# S7


@pytest.mark.slow
@pytest.mark.parametrize("protocol", levels.PROTOCOLS)
@pytest.mark.parametrize("level", levels.LEVELS)
def test_a_level_stands_with_its_mechanism_and_falls_without(level: levels.Level, protocol: str) -> None:
    scenario = find_scenario(f"antiphon.studies.sco.levels:{level.upper()}")
    for kept in (True, False):
        knobs = {**levels.case(level, protocol, kept), "messages": 120}
        told = {
            name: float(value or 0) for name, value in measure(scenario, scenario.configure(knobs), 1).items()
        }
        disorder = told["violations" if protocol == "vector-clock" else "out_of_order"]
        whole = told["deliveries"] == told["meant"]
        assert {
            "continuous": whole,
            "causal": whole and not disorder,
            "atomic": told["accepted"] == told["meant"],
        }[level] is kept, told


def test_table_1_knows_its_protocols() -> None:
    with pytest.raises(UsageError):
        levels.Configuration(protocol="totem")


# Claims follow the runs: each world is imagined as the text has it and otherwise


def group_of(values: Mapping[str, Any]) -> Traffic:
    return traffic(
        members=values["members"],
        destinations=values["destinations"],
        deferral=values.get("confirm_ms", 4 * UNIT_MS) / UNIT_MS,
    )


def by_closed_form(**changes: Any) -> Rule:
    """Runs as the closed forms have them, with some of the schemes' messages or delays multiplied."""

    def rule(values: Mapping[str, Any]) -> Mapping[str, float]:
        scheme = SCHEME_OF.get(values["scenario"])
        if scheme is None or not 0 < values["destinations"] < values["members"]:
            return {}
        group = group_of(values)
        controls = closed.controls(scheme, group)
        return {
            "admitted": 1.0,
            "data_messages": group.destinations,
            "control_messages": controls * changes.get(f"{scheme}_controls", 1.0),
            "acceptance_s": closed.delay(scheme, group)
            * UNIT_MS
            / 1000
            * changes.get(f"{scheme}_delay", 1.0),
            "violations": changes.get("violations", 0.0),
        }

    return rule


def verdicts(rule: Rule, effort: Effort = "quick") -> dict[str, str]:
    return {one.id: one.verdict for one in judge(STUDY, imagine(STUDY, effort, rule), effort)}


NOT_BY_CLOSED_FORM = {"S4c", "S4d", "S4e", "S5b", "S5d", "S5e", "S5f", "S6b"}
"""What the text says and its own assumptions do not give."""


@pytest.mark.parametrize("effort", EFFORTS)
def test_by_the_closed_forms(effort: Effort) -> None:
    told = verdicts(by_closed_form(), effort)
    about_schemes = {claim.id for claim in (*evaluation.ROUNDS_SECTION.claims, *evaluation.SECTION.claims)}
    not_reproduced = {id_ for id_ in about_schemes if told[id_] == "not reproduced"}
    assert not_reproduced == NOT_BY_CLOSED_FORM
    assert told["S3c"] == "reproduced, if"
    assert {told[id_] for id_ in about_schemes - NOT_BY_CLOSED_FORM - {"S3c"}} == {"reproduced"}


def test_what_holds_by_a_reading_could_fail() -> None:
    """The d copies of a message beside its d² confirmations are a reading; other confirmations are not."""
    assert verdicts(by_closed_form(D0_controls=1.3))["S3c"] == "not reproduced"


@pytest.mark.parametrize(
    ("claim", "changes"),
    [
        ("S3a", {"C0_controls": 1.5}),
        ("S3b", {"C0_delay": 1.2}),
        ("S3d", {"D0_delay": 0.8}),
        ("S4f", {"C1_controls": 5.0}),
        ("S5a", {"D1_controls": 40.0}),
        ("S5c", {"C1_controls": 5.0}),
        ("S6a", {"D1_controls": 40.0}),
        ("S6c", {"D1_delay": 1.3}),
        ("S8", {"violations": 1.0}),
    ],
)
def test_what_could_have_failed(claim: str, changes: dict[str, float]) -> None:
    assert verdicts(by_closed_form())[claim] == "reproduced"
    assert verdicts(by_closed_form(**changes))[claim] == "not reproduced"


@pytest.mark.parametrize(
    ("claim", "changes"),
    [
        ("S4c", {"D1_delay": 0.75}),
        ("S5f", {"D1_delay": 0.75}),
        ("S4d", {"D1_delay": 0.5}),
        ("S5d", {"D1_delay": 0.5}),
        ("S5e", {"D1_delay": 0.7}),
        ("S4e", {"D1_delay": 0.77}),
        ("S6b", {"D1_delay": 0.9}),
        ("S5b", {"D1_controls": 0.5}),
    ],
)
def test_what_could_have_held(claim: str, changes: dict[str, float]) -> None:
    assert verdicts(by_closed_form(**changes))[claim] == "reproduced"


def test_a_trend_over_k_must_be_one() -> None:
    def rule(values: Mapping[str, Any]) -> Mapping[str, float]:
        return {**by_closed_form()(values), "control_messages": 1.0, "acceptance_s": 0.1}

    told = verdicts(rule)
    assert (told["S4a"], told["S4b"]) == ("not reproduced", "not reproduced")


@pytest.mark.parametrize("metric", ["missed", "invented"])
def test_one_wrong_precedence_is_enough(metric: str) -> None:
    right = {"missed": 0.0, "invented": 0.0}
    assert verdicts(lambda _: right)["S1"] == "reproduced"
    assert verdicts(lambda _: {**right, metric: 0.05})["S1"] == "not reproduced"


@pytest.mark.parametrize(("lost", "claim"), [(False, "S2a"), (True, "S2b")])
def test_one_wrong_order_is_enough(lost: bool, claim: str) -> None:
    def rule(values: Mapping[str, Any]) -> Mapping[str, float]:
        return {"causal": 0.95} if values.get("lost") is lost else {}

    assert verdicts(lambda _: {})[claim] == "reproduced"
    assert verdicts(rule)[claim] == "not reproduced"


def by_level(values: Mapping[str, Any], *, falls: bool) -> Mapping[str, float]:
    """Runs of table 1 in which a level falls without its mechanism, or does not."""
    if "kept" not in values:
        return {}
    whole = values["kept"] or not falls
    share = 1.0 if whole else 0.5
    return {
        "violations": 0.0 if whole else 3.0,
        "out_of_order": 0.0 if whole else 3.0,
        "deliveries": share,
        "accepted": share,
    }


@pytest.mark.parametrize(
    ("claim", "verdict"), [("S7a", "reproduced"), ("S7b", "reproduced"), ("S7c", "reproduced, if")]
)
def test_a_mechanism_that_changes_nothing_gives_nothing(claim: str, verdict: str) -> None:
    assert verdicts(lambda values: by_level(values, falls=True))[claim] == verdict
    assert verdicts(lambda values: by_level(values, falls=False))[claim] == "not reproduced"


@pytest.mark.parametrize(("carried", "verdict"), [(200.0, "reproduced"), (300.0, "not reproduced")])
def test_metadata_is_less_than_a_vector(carried: float, verdict: str) -> None:
    assert verdicts(lambda _: {"metadata_bytes": carried})["S9"] == verdict


def on_the_page() -> dict[int, list[int]]:
    """By members, the bytes of metadata in plain vectors and in differences."""
    page = (DOCS / "protocols" / "sco.md").read_text(encoding="utf-8")
    _, table = page.split("| members | plain | differences |\n|---|---|---|\n")
    rows = (
        [int(cell) for cell in line.strip("| ").split(" | ")] for line in table.split("\n\n")[0].splitlines()
    )
    return {members: figures for members, *figures in rows}


def test_all_pages_have_one_figure_for_the_metadata_of_a_large_group() -> None:
    plain, differences = on_the_page()[100]
    for page, told in (
        ("causal.md", f"takes {differences} bytes for them instead of {plain:,}"),
        ("studies.md", f"carries {differences} bytes instead of {plain:,}"),
        ("studies.md", f"| 100 | {plain:,} ("),
        ("protocols/causal-rivals.md", f"vectors take [{differences}]"),
    ):
        assert told in (DOCS / page).read_text(encoding="utf-8"), page


@pytest.mark.parametrize("members", [10, 30, pytest.param(100, marks=pytest.mark.slow)])
def test_the_metadata_of_the_page_is_that_of_the_runs(members: int) -> None:
    for form, told in zip(("SCO, plain", "SCO, compressed"), on_the_page()[members], strict=True):
        job = beyond.metadata_grid(form, members).jobs("full")[0]
        scenario = find_scenario(job.scenario)
        found = measure(scenario, scenario.configure(json.loads(job.parameters)), job.seed)["metadata_bytes"]
        assert isinstance(found, float)
        assert round(found) == told


# Figures and tables


@pytest.mark.parametrize("effort", EFFORTS)
def test_every_figure_and_table_can_be_drawn(effort: Effort) -> None:
    results = imagine(STUDY, effort, by_closed_form())
    for figure in STUDY.figures:
        for panel in figure.panels:
            assert panel.drawn(results).series
    for section in STUDY.sections:
        for table in section.tables:
            rows = table.filled(results).rows
            assert rows
            assert {len(row) for row in rows} == {len(table.columns)}


def test_figures_are_ratios_to_c0() -> None:
    results = imagine(STUDY, "full", by_closed_form())
    (panel,) = schemes.FIGURES[1].panels
    lines = {line.name: line for line in panel.drawn(results).series}
    assert list(lines["D0"].y) == pytest.approx([2 / 3] * len(schemes.DEFERRALS))
    assert list(lines["D1"].y) == pytest.approx(list(lines["D1, closed form"].y))


def test_a_measure_is_of_one_message() -> None:
    def rule(values: Mapping[str, Any]) -> Mapping[str, float]:
        told = {"admitted": 50.0, "data_messages": 250.0, "control_messages": 50.0, "acceptance_s": 0.1}
        return told if values["scenario"] == "sco" else {}

    results = imagine(STUDY, "quick", rule)
    assert messages(results, "D1", traffic()) == 6.0
    assert delay(results, "D1", traffic()) == pytest.approx(10.0)
    assert len(results.matching(where("D1", traffic()))) == 1
    (point,) = results.matching(beyond.metadata_knobs("CO", 10))
    assert beyond.overhead(point) == pytest.approx(2.0)
