"""The stability advisor: its coordinates, how it reads between the sweep's points, and what it advises."""

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import Any

import pytest

from antiphon.cli.main import run
from antiphon.core.errors import InputError, UsageError
from antiphon.sim.scenario import Metric
from antiphon.sim.scenarios import find_scenario
from antiphon.spark.sweep import blank_row, job, write_rows
from antiphon.studies.advice import tables
from antiphon.studies.advice.advising import (
    AS_FAST,
    Advice,
    Candidate,
    Setting,
    advise,
    candidates,
    choose,
)
from antiphon.studies.advice.learning import encode, main, read_means
from antiphon.studies.advice.plans import PLANS, STUDY, Plan, key_of
from antiphon.studies.advice.tables import METRICS, decode, learnt

TEXT = Setting(members=200, senders=50, bandwidth=30_000, rate=10, buffer=640)
"""The text's network, with chapter 6's buffer."""


def plan_of(name: str) -> Plan:
    return next(plan for plan in PLANS if plan.name == name)


# Coordinates


def test_a_place_s_parameters_have_its_share_of_transmission() -> None:
    for plan in PLANS:
        for place in list(plan.places())[::17]:
            parameters = plan.parameters(place)
            share = plan.share(parameters["members"], parameters["senders"], parameters["bandwidth"])
            assert share == pytest.approx(place["share"], rel=0.01), plan.name


def test_every_point_of_the_sweep_is_a_run_that_its_scenario_takes() -> None:
    for scenario, parameters in {(each.scenario, each.parameters) for each in STUDY.jobs("quick")}:
        find_scenario(scenario).configure(json.loads(parameters))


def test_repeats_grow_with_the_loss_and_the_group() -> None:
    for plan in (plan_of("coordp/dense"), plan_of("train/dense")):
        by_loss = [plan.repeats(100, loss) for loss in (0.0, 0.01, 0.05, 0.2, 0.9)]
        by_size = [plan.repeats(members, 0.05) for members in (5, 50, 500)]
        assert by_loss[0] == 0
        assert by_loss == sorted(set(by_loss))
        assert by_size == sorted(set(by_size))


# Between the points


def test_at_a_point_of_the_grid_the_prediction_is_the_mean_there() -> None:
    stored = json.loads(advice_file().read_text())
    for name, known in learnt().items():
        for part, places in (("base", known.plan.base_places()), ("lossy", known.plan.lossy_places())):
            for index, place in list(enumerate(places))[::23]:
                predicted = known.predict(place)
                for metric in METRICS:
                    mean = stored[name][part][metric][index]
                    # Without loss it is the point itself; what loss adds is never less than nothing.
                    slack = 1e-6 if part == "base" else 0.35
                    assert predicted[metric] == pytest.approx(mean, rel=slack, abs=0.3), (name, place, metric)


def advice_file() -> Path:
    return Path(tables.__file__).parent / tables.FILE


def test_what_ships_has_every_plan() -> None:
    assert set(learnt()) == {plan.name for plan in PLANS}


def test_results_of_another_grid_are_not_read() -> None:
    stored = json.loads(advice_file().read_text())
    stored["coordp/dense"]["axes"]["base"]["members"][0] = 6
    assert set(learnt()) - set(decode(stored)) == {"coordp/dense"}


def test_results_that_are_not_whole_are_told() -> None:
    stored = json.loads(advice_file().read_text())
    stored["coordp/dense"]["base"]["tpr_s"].pop()
    with pytest.raises(InputError):
        decode(stored)


# From runs to what ships


def fake_metrics(seed: int) -> list[tuple[str, float]]:
    return [(metric, 10.0 + seed) for metric in METRICS] + [("finished", 1.0)]


def fake_sweep(folder: Path, plan: Plan) -> None:
    """Two runs of each point, one of which stands in two files, and one run that failed."""
    jobs = [job(plan.protocol, plan.parameters(place), seed) for place in plan.places() for seed in (0, 2)]
    rows = [{**blank_row(each), "metrics": fake_metrics(each.seed)} for each in jobs]
    failed = blank_row(job(plan.protocol, plan.parameters(next(plan.places())), 7)) | {"error": "No."}
    write_rows(folder / "runs-a.parquet", [*rows, failed])
    write_rows(folder / "runs-b.parquet", rows[:1])


def test_a_sweep_s_runs_become_means_by_plan(tmp_path: Path) -> None:
    plan = plan_of("train/dense")
    fake_sweep(tmp_path, plan)
    stored = encode(read_means(tmp_path))
    assert list(stored) == [plan.name]
    assert set(stored[plan.name]["base"]["tpr_s"]) == {11.0}
    assert len(stored[plan.name]["lossy"]["finished"]) == math.prod(map(len, plan.lossy.values()))
    known = decode(json.loads(json.dumps(stored)))[plan.name]
    assert known.predict(next(plan.base_places()))["tpr_s"] == pytest.approx(11)


def test_what_is_written_can_be_read_again(tmp_path: Path) -> None:
    fake_sweep(tmp_path, plan_of("train/dense"))
    main(tmp_path, tmp_path / "learnt.json")
    assert list(decode(json.loads((tmp_path / "learnt.json").read_text()))) == ["train/dense"]


def test_a_folder_without_runs_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_means(tmp_path)


def test_points_are_named_as_the_sweep_names_them() -> None:
    plan = plan_of("gossip/sparse")
    place = next(plan.places())
    named = job(plan.protocol, plan.parameters(place), 0)
    assert key_of(plan, place) == (named.scenario, named.parameters)


# The advice


def candidate(protocol: str, **values: Any) -> Candidate:
    usual: dict[str, Any] = {
        "tpr_s": 1.0,
        "tpr_last_s": 1.0,
        "hop_messages": 100.0,
        "queue_mean": 0.0,
        "queue_max": 0.0,
        "finished": 1.0,
        "threshold": 5,
        "buffer_needed": 1,
    }
    return Candidate(protocol=protocol, **{**usual, **values})


def test_of_those_about_as_fast_the_one_with_the_fewest_messages_is_taken() -> None:
    fast, light, slow = (
        candidate("fast"),
        candidate("light", tpr_s=1.05, hop_messages=50),
        candidate("slow", tpr_s=1.2, hop_messages=5),
    )
    assert choose([fast, slow, light]) is light


def reasons(advice: Advice) -> Mapping[str, str]:
    return {f"{other.protocol} {other.subset or ''}".strip(): other.reason for other in advice.rejected}


def test_the_text_s_group_is_advised_a_structured_protocol() -> None:
    """Section 5.4: a structure makes CoordP many times as fast, and Train is the slowest."""
    advice = advise(TEXT)
    assert advice.feasible
    assert advice.best.protocol == "s-coordp"
    assert advice.best.reason == ""
    assert "times as slow" in reasons(advice)["coordp"]
    assert advice.rejected[-1].protocol == "train"
    # Five protocols, and the two gossips with four subsets each, less what is advised.
    assert len(advice.rejected) == 5 + 2 * 4 - 1
    assert advice.best.threshold == math.floor(640 - 10 * advice.best.tpr_last_s)


def test_what_lets_the_buffer_overflow_is_rejected_for_that() -> None:
    advice = advise(Setting(members=200, senders=50, bandwidth=30_000, rate=40, buffer=400))
    assert advice.feasible
    assert "overflows" in reasons(advice)["train"]
    overflowing = next(other for other in advice.rejected if other.protocol == "train")
    assert overflowing.threshold is None
    assert overflowing.buffer_needed > 400


def test_where_nothing_keeps_up_the_advice_says_so() -> None:
    advice = advise(Setting(members=200, senders=50, bandwidth=30_000, rate=1000, buffer=10))
    assert not advice.feasible
    assert "No protocol keeps up" in advice.notes[-1]
    assert all(other.buffer_needed >= advice.best.buffer_needed for other in advice.rejected)


def test_far_outside_the_sweep_the_advice_says_that_it_extrapolates() -> None:
    assert not advise(TEXT).notes
    larger = Setting(members=20_000, senders=50, bandwidth=30_000, rate=0.01, buffer=640, loss=0.5)
    notes = advise(larger).notes
    assert any("20000 members extrapolates" in note for note in notes)
    assert any("loss of 0.5 extrapolates" in note for note in notes)


def test_more_bandwidth_is_faster_and_more_senders_are_slower() -> None:
    usual, fast, many = (
        advise(TEXT),
        advise(Setting(members=200, senders=50, bandwidth=300_000, rate=10, buffer=640)),
        advise(Setting(members=200, senders=400, bandwidth=30_000, rate=10, buffer=640)),
    )
    assert fast.best.tpr_s < usual.best.tpr_s < many.best.tpr_s


@pytest.mark.parametrize(
    "wrong",
    [
        {"members": 1},
        {"senders": 0},
        {"bandwidth": 0},
        {"bandwidth": math.nan},
        {"rate": -1},
        {"buffer": 0},
        {"loss": 1.0},
        {"density": "thick"},
        {"density": "sparse", "members": 1001},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_told(wrong: dict[str, Any]) -> None:
    usual = {"members": 10, "senders": 5, "bandwidth": 30_000, "rate": 1, "buffer": 100}
    with pytest.raises(UsageError):
        Setting(**{**usual, **wrong})


CHOICES = 10
"""Drawn settings for which the choice is tried."""


# The command

COMMAND = shlex.split("advise --members 200 --senders 50 --bandwidth 30000 --rate 10 --buffer 640")


def test_the_command_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*COMMAND, "--loss", "0.01", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["feasible"]
    assert {"protocol", "tpr_s", "hop_messages", "queue_mean", "queue_max", "trigger"} <= set(
        answer["advice"]
    )
    shown = [answer["advice"], *answer["rejected"]]
    assert {other["protocol"] for other in shown} == {plan.protocol for plan in PLANS}
    assert all(other["reason"] for other in answer["rejected"])
    gossip = next(other for other in answer["rejected"] if other["protocol"] == "gossip")
    assert gossip["step_s"] > 0
    assert gossip["subset"] in (1, 2, 3, 4)


def test_the_command_tells_people_what_to_use_and_why_not_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(COMMAND) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Use s-coordp")
    assert "Begin a round when" in shown
    assert "times as slow" in shown


def test_the_command_refuses_nonsense_in_one_sentence_with_a_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([*COMMAND[:-2], "--buffer", "0"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: A buffer holds at least one message.",
        "hint: Take 1 or more.",
    ]


# Held-out settings


def draw(plan: Plan, random: Random, *, loss: bool) -> Setting:
    """A setting that is not on the grid; the sizes are such that a run is short."""

    def between(low: float, high: float) -> float:
        return math.exp(random.uniform(math.log(low), math.log(high)))

    return Setting(
        members=round(between(20, 90 if plan.protocol == "fulldist" else 300)),
        senders=round(between(2, 200)),
        bandwidth=round(between(20_000, 1_000_000)),
        rate=1,
        buffer=100,
        loss=round(between(0.01, 0.15), 3) if loss else 0.0,
        density=plan.density,
    )


def simulated(setting: Setting, advised: Candidate, runs: int) -> dict[str, list[float]]:
    """Rounds of what was predicted, exactly as the command line would run them."""
    knobs = {"step": advised.step_s, "subset": advised.subset, "subgroup": advised.subgroup}
    parameters: dict[str, Any] = {
        "members": setting.members,
        "senders": setting.senders,
        "bandwidth": int(setting.bandwidth),
        "density": setting.density,
        "loss_rate": setting.loss,
        "until": "first",
        **{name: value for name, value in knobs.items() if value is not None},
    }
    scenario = find_scenario(advised.protocol)
    configuration = scenario.configure(parameters)
    found = [scenario.run(configuration, 9000 + seed, None) for seed in range(runs)]
    wanted = ("tpr_s", "hop_messages", "queue_mean")
    return {metric: [number(each[metric]) for each in found] for metric in wanted}


def number(value: Metric) -> float:
    assert isinstance(value, (int, float)), "a round that never ends has no time"
    return float(value)


def doubt(values: list[float]) -> float:
    """How far the mean of a few runs may be from the truth, with 95% confidence."""
    return 2 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_held_out_settings_are_predicted_within_15_percent(plan: Plan) -> None:
    random = Random(f"held out/{plan.name}")
    runs = 1 if plan.density == "dense" and not plan.gossips else 8
    for _ in range(6):
        setting = draw(plan, random, loss=False)
        advised = random.choice(list(candidates(learnt()[plan.name], setting)))
        found = simulated(setting, advised, runs)
        means = {metric: fmean(values) for metric, values in found.items()}
        assert advised.tpr_s == pytest.approx(means["tpr_s"], rel=0.15), (setting, advised)
        assert advised.hop_messages == pytest.approx(means["hop_messages"], rel=0.15), (setting, advised)
        assert advised.queue_mean == pytest.approx(means["queue_mean"], rel=0.15, abs=1), (setting, advised)


BEFORE_MEASURED_WAITS = "of direct protocols only S_CoordP in dense groups was swept with measured waits"


@pytest.mark.slow
@pytest.mark.xfail(reason=BEFORE_MEASURED_WAITS, strict=False)
def test_held_out_settings_with_loss_are_predicted_nearly_as_well() -> None:
    """A lost message may make a round several times as long: the mean of some runs is itself uncertain."""
    errors = []
    for plan in PLANS:
        random = Random(f"lossy/{plan.name}")
        runs = 8 if plan.gossips or plan.protocol == "fulldist" else 40
        setting = draw(plan, random, loss=True)
        advised = random.choice(list(candidates(learnt()[plan.name], setting)))
        found = simulated(setting, advised, runs)
        for metric in ("tpr_s", "hop_messages"):
            mean = fmean(found[metric])
            error = max(0.0, abs(getattr(advised, metric) - mean) - doubt(found[metric])) / mean
            errors.append((error, metric, setting, advised))
    errors.sort(key=lambda row: -row[0])
    assert sum(error > 0.15 for error, *_ in errors) <= 0.05 * len(errors), errors[:5]
    assert errors[0][0] < 0.3, errors[0]


# The choice


def drawn_under_loss(random: Random) -> Setting:
    """A setting that was not swept, in which messages are lost; the groups are such that runs are short."""
    usual = draw(next(plan for plan in PLANS if plan.name == "s-coordp/dense"), random, loss=True)
    return replace(usual, members=min(usual.members, 120), buffer=10_000)


def best_of_each(advice: Advice) -> list[Candidate]:
    """The advised protocol, and of every other one that is fit what is predicted to be its best form."""
    others: dict[str, Candidate] = {}
    for other in sorted(advice.rejected, key=lambda candidate: candidate.tpr_s):
        if other.fit and other.protocol != advice.best.protocol:
            others.setdefault(other.protocol, other)
    return [advice.best, *others.values()]


@pytest.mark.slow
@pytest.mark.xfail(reason=BEFORE_MEASURED_WAITS, strict=False)
def test_under_loss_the_choice_wins_at_settings_that_were_not_swept() -> None:
    """The advised protocol is the fastest of all seven when they are run, or nearly so."""
    random, behind = Random("choice"), []
    for _ in range(CHOICES):
        setting = drawn_under_loss(random)
        advised, *others = (
            fmean(simulated(setting, candidate, runs=6)["tpr_s"])
            for candidate in best_of_each(advise(setting))
        )
        assert len(others) >= 4, setting
        behind.append(advised / min(others))
    assert sum(factor <= AS_FAST for factor in behind) >= 0.8 * CHOICES, behind
    assert max(behind) < 1.5, behind
