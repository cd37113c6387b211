"""The swarm of meta-groups: overlapping groups whose sites come, go, crash and are cut off, on bad networks.

Each seed draws its parameters; the run's trace is audited with the pure checkers, and once the faults have
healed all sites must take part and finish. A seed that fails is printed with the command that replays it.
`ANTIPHON_SWARM_SEEDS` sets how many seeds are tried. Any number of sites crash in one run.
"""

import os
from random import Random
from typing import Any

import pytest

from antiphon.core.recording import Property
from antiphon.protocols.metagroups import AGREED_PROMISES, CAUSAL_PROMISES, PROMISES, view
from antiphon.sim.scenario import Metrics
from antiphon.sim.scenarios.metagroups import SCENARIO
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Run
from tests.promises import broken_promises

SEEDS = int(os.environ.get("ANTIPHON_SWARM_SEEDS", "80"))
KINDS = ("calm", "changes", "faults", "both")


def draw(kind: str, seed: int) -> dict[str, Any]:
    """Groups, a network, and by its kind joins and leaves, or crashes, absences and partitions."""
    random = Random(f"swarm/metagroups/{kind}/{seed}")
    members, groups = random.randint(2, 9), random.randint(1, 5)
    messages = random.choice([40, 80, 150])
    parameters = {
        "members": members,
        "groups": groups,
        "overlap": round(random.uniform(1.0, min(groups, 3.0)), 2),
        "messages": messages,
        "size": random.choice([10, 100]),
        "batch": random.choice([1, 1, 3]),
        "rate": messages / random.choice([0.3, 1.0, 2.0]),
        "outsiders": random.choice([0.0, 0.1, 0.5]),
        "delay_ms": random.choice([0.1, 1.0, 5.0]),
        "jitter_ms": random.choice([0.0, 0.5, 3.0]),
        "loss": random.choice([0.0, 0.01, 0.05, 0.1]),
        "duplication": random.choice([0.0, 0.0, 0.1, 0.3]),
        "reordering": random.choice([0.0, 0.0, 0.1, 0.3]),
        "window": random.choice([4, 8, 64]),
        "acknowledge_ms": random.choice([0.0, 1.0]),
        "bodies": random.choice(["tree", "tree", "direct"]),
        "causal": random.choice([False, False, True]),
        "shape": random.choice(["shallow", "shallow", "printed"]),
    }
    if kind in ("changes", "both"):
        parameters |= {"joins": random.choice([1, 5, 12]), "leaves": random.choice([1, 5, 12])}
    if kind in ("faults", "both"):
        parameters |= draw_faults(random, members)
    return parameters


def draw_faults(random: Random, members: int) -> dict[str, Any]:
    return {
        "churn": random.choice([0, 0, 1, 2]) if members > 2 else 0,
        "crashes": random.choice([0, 1, 1, 2, 3, 8]),
        "partitions": random.choice([0, 0, 0, 1, 2]),
        "detector_ms": random.choice([0.0, 0.0, 20.0]),
        "goodbye": random.choice([False, True]),
    }


def run_and_judge(
    parameters: dict[str, Any], seed: int, promises: tuple[Property, ...] = PROMISES
) -> tuple[Metrics, str | None]:
    """A run's metrics, and what is wrong with it, with the command that replays it as the last line."""
    configuration = SCENARIO.configure(parameters)
    command = SCENARIO.replay_command(configuration, seed)
    recorder = MemoryRecorder("r")
    try:
        metrics = SCENARIO.run(configuration, seed, recorder)
    except Exception as error:
        raise AssertionError(f"{error!r}\n{command}") from error
    run = Run(run="r", protocol=SCENARIO.name, promises=promises, seed=seed)
    broken = broken_promises(promises, recorder.events(), run)
    if broken:
        return metrics, f"{len(broken)} violations, first: {broken[0].explanation}\n{command}"
    if not metrics["finished"]:
        return metrics, f"The faults are over and the run does not finish: {metrics}\n{command}"
    return metrics, None


@pytest.mark.parametrize("kind", KINDS)
def test_all_promises_hold_and_everyone_finishes(kind: str) -> None:
    drawn = [(seed, draw(kind, seed)) for seed in range(SEEDS // len(KINDS))]
    judged = [
        run_and_judge(parameters, seed, CAUSAL_PROMISES if parameters["causal"] else PROMISES)[1]
        for seed, parameters in drawn
    ]
    complaints = [complaint for complaint in judged if complaint is not None]
    if complaints:
        pytest.fail("\n\n".join(complaints), pytrace=False)


def test_agreed_delivery_keeps_all_promises_while_no_site_fails() -> None:
    for seed in range(max(1, SEEDS // 12)):
        parameters = draw("calm", seed) | {"delivery": "agreed"}
        metrics, complaint = run_and_judge(parameters, seed)
        if metrics["begun_anew"] == 0:
            assert complaint is None, complaint


def test_agreed_delivery_keeps_some_promises_even_then() -> None:
    for seed in range(max(1, SEEDS // 12)):
        parameters = draw("faults", seed) | {"delivery": "agreed"}
        configuration = SCENARIO.configure(parameters)
        recorder = MemoryRecorder("r")
        SCENARIO.run(configuration, seed, recorder)
        run = Run(run="r", protocol=SCENARIO.name, promises=AGREED_PROMISES, seed=seed)
        broken = broken_promises(AGREED_PROMISES, recorder.events(), run)
        assert not broken, f"{broken[0].explanation}\n{SCENARIO.replay_command(configuration, seed)}"


FOUND: dict[str, tuple[int, dict[str, Any]]] = {
    "a stable batch whose sender had not heard so held up a later one that was delivered": (
        180,
        {"members": 5, "messages": 150, "rate": 150.0, "delay_ms": 0.1, "jitter_ms": 3.0,
         "duplication": 0.3, "reordering": 0.1, "groups": 3, "overlap": 1.91, "outsiders": 0.0, "leaves": 5,
         "shape": "printed", "window": 2, "acknowledge_ms": 0.0},
    ),
    "a tree was kept although one of its sites had lost its memory": (
        47,
        {"members": 5, "messages": 80, "size": 10, "rate": 80.0, "jitter_ms": 0.5, "reordering": 0.3,
         "crashes": 2, "groups": 1, "overlap": 1.0, "outsiders": 0.1, "shape": "printed"},
    ),
    "a coordinator that had lost its memory was waited for, since it was heard": (
        54,
        {"members": 9, "messages": 40, "rate": 133.33333333333334, "delay_ms": 0.1, "jitter_ms": 0.5,
         "loss": 0.05, "reordering": 0.3, "churn": 1, "crashes": 3, "partitions": 1, "groups": 1,
         "overlap": 1.0, "outsiders": 0.5, "leaves": 5, "window": 2, "acknowledge_ms": 0.0},
    ),
    "a site bound to a cluster that was given up refused another's attempts": (
        94,
        {"members": 7, "messages": 40, "size": 10, "rate": 40.0, "delay_ms": 5.0, "jitter_ms": 0.5,
         "loss": 0.1, "churn": 2, "crashes": 3, "groups": 5, "overlap": 1.38, "outsiders": 0.5, "window": 2},
    ),
    "a tree handed over to one that is over by now": (
        535,
        {"members": 6, "messages": 40, "batch": 3, "rate": 20.0, "delay_ms": 0.1, "jitter_ms": 0.5,
         "loss": 0.05, "reordering": 0.1, "partitions": 1, "groups": 1, "overlap": 1.0, "outsiders": 0.1,
         "joins": 1, "leaves": 5, "bodies": "direct", "shape": "printed"},
    ),
    "of several streams whose turn came at once only the first was opened": (
        728,
        {"members": 7, "messages": 150, "size": 10, "rate": 75.0, "delay_ms": 0.1, "jitter_ms": 0.5,
         "loss": 0.01, "reordering": 0.3, "churn": 2, "crashes": 1, "partitions": 2, "groups": 1,
         "overlap": 1.0, "outsiders": 0.1, "joins": 12, "leaves": 5, "bodies": "direct", "window": 2,
         "acknowledge_ms": 0.0},
    ),
    "all were done with a tree in the moment in which this site was": (
        305437,
        {"members": 3, "messages": 21, "size": 0, "rate": 42.0, "delay_ms": 0.1, "loss": 0.02,
         "reordering": 0.1, "churn": 1, "calm_ms": 100.0, "away_ms": 20.0, "crashes": 2, "overlap": 2.48,
         "outsiders": 0.0, "leaves": 1, "window": 4, "heartbeat_ms": 20.0, "suspect_ms": 150.0},
    ),
    "a batch that waited for causal order was delivered when its tree ended": (
        22589,
        {"members": 3, "messages": 80, "size": 10, "rate": 80.0, "loss": 0.01, "duplication": 0.3,
         "churn": 1, "partitions": 1, "groups": 2, "overlap": 1.68, "outsiders": 0.5, "leaves": 12,
         "bodies": "direct", "causal": True, "acknowledge_ms": 0.0},
    ),
    "a member that had forgotten was bound to a version that all had forgotten, and all waited for it": (
        46855,
        {"members": 3, "messages": 58, "rate": 116.0, "jitter_ms": 0.5, "loss": 0.02, "reordering": 0.3,
         "churn": 2, "crashes": 1, "calm_ms": 30.0, "away_ms": 300.0, "detector_ms": 20.0, "groups": 2,
         "overlap": 1.24, "leaves": 1, "bodies": "direct", "window": 4, "heartbeat_ms": 20.0,
         "suspect_ms": 150.0},
    ),
    "the same with goodbyes and two sites": (
        70318,
        {"members": 3, "messages": 49, "size": 0, "batch": 3, "rate": 98.0, "delay_ms": 5.0, "jitter_ms": 0.5,
         "loss": 0.02, "reordering": 0.1, "churn": 2, "crashes": 1, "calm_ms": 100.0, "away_ms": 300.0,
         "detector_ms": 20.0, "groups": 2, "overlap": 1.6, "outsiders": 0.0, "goodbye": True, "window": 16,
         "heartbeat_ms": 20.0, "suspect_ms": 150.0},
    ),
    "the same with goodbyes and a detector of their own": (
        212433,
        {"members": 3, "messages": 38, "size": 0, "rate": 76.0, "delay_ms": 5.0, "duplication": 0.1,
         "reordering": 0.3, "churn": 2, "crashes": 1, "calm_ms": 100.0, "away_ms": 300.0, "groups": 2,
         "overlap": 1.2, "outsiders": 0.5, "leaves": 1, "goodbye": True, "bodies": "direct", "window": 16,
         "acknowledge_ms": 0.0, "heartbeat_ms": 20.0, "suspect_ms": 150.0},
    ),
    "the end of a stream that was not delivered was taken for its sender's first batch": (
        5000254,
        {"members": 4, "messages": 46, "batch": 3, "rate": 460.0, "delay_ms": 5.0, "loss": 0.1,
         "duplication": 0.1, "churn": 2, "calm_ms": 100.0, "away_ms": 100.0, "crashes": 2,
         "detector_ms": 20.0, "groups": 3, "overlap": 1.74, "joins": 1, "leaves": 4, "bodies": "direct",
         "window": 16, "heartbeat_ms": 20.0, "suspect_ms": 150.0},
    ),
    "applications forgot that their sites had restarted, and left their groups without members": (
        25873,
        {"members": 2, "messages": 41, "size": 0, "rate": 205.0, "delay_ms": 5.0, "loss": 0.02,
         "duplication": 0.3, "reordering": 0.3, "crashes": 2, "calm_ms": 100.0, "away_ms": 20.0,
         "detector_ms": 20.0, "groups": 2, "overlap": 1.07, "outsiders": 0.0, "joins": 4, "leaves": 4,
         "bodies": "direct", "window": 16, "acknowledge_ms": 0.0, "heartbeat_ms": 20.0, "suspect_ms": 150.0},
    ),
    "a site took its tree for finished before it had delivered what came before its move": (
        1157,
        {"members": 11, "messages": 80, "rate": 40.0, "jitter_ms": 3.0, "loss": 0.1, "groups": 2,
         "overlap": 1.19, "outsiders": 0.0, "joins": 12},
    ),
    "a site was cut off while it was told its turn, and its tree never drained": (
        50337,
        {"messages": 40, "size": 10, "rate": 20.0, "delay_ms": 0.1, "jitter_ms": 3.0, "loss": 0.1,
         "crashes": 2, "partitions": 2, "groups": 3, "overlap": 1.76, "outsiders": 0.0, "joins": 20,
         "leaves": 5, "window": 8},
    ),
}  # fmt: skip
"""Runs that once went wrong."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_stays_mended(name: str) -> None:
    seed, parameters = FOUND[name]
    promises = CAUSAL_PROMISES if parameters.get("causal") else PROMISES
    _, complaint = run_and_judge(parameters, seed, promises)
    assert complaint is None, complaint


def test_joins_and_leaves_stop_no_site() -> None:
    assert changes_of_membership()["stops"] == 0


def test_that_test_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no tree may retire, those that a change alters are stopped."""
    monkeypatch.setattr(view, "MOST_RETIRING", 0)
    assert changes_of_membership()["stops"] != 0


def test_joins_that_alter_no_tree_leave_the_view_alone() -> None:
    parameters = {"members": 14, "groups": 2, "overlap": 1.3, "joins": 10, "messages": 100}
    metrics, complaint = run_and_judge(parameters, 1)
    assert complaint is None, complaint
    assert metrics["moves"]


def changes_of_membership() -> Metrics:
    parameters = {"members": 24, "groups": 2, "overlap": 1.3, "joins": 6, "leaves": 6, "messages": 200}
    metrics, complaint = run_and_judge(parameters, 1)
    assert complaint is None, complaint
    assert metrics["joined"]
    assert metrics["left"]
    assert metrics["changes"]
    return metrics


def test_runs_are_repeatable() -> None:
    parameters = draw("both", 5)

    def trace() -> list[object]:
        recorder = MemoryRecorder("r")
        SCENARIO.run(SCENARIO.configure(parameters), 5, recorder)
        return list(recorder.events())

    assert trace() == trace()


def test_a_failing_seed_says_how_to_replay_it() -> None:
    parameters = draw("calm", 0) | {"sabotage": "swap", "members": 4, "groups": 1, "overlap": 1.0}
    _, complaint = run_and_judge(parameters, 3)
    assert complaint is not None
    last = complaint.splitlines()[-1]
    assert last.startswith("antiphon simulate metagroups --members 4")
    assert last.endswith("--seed 3")
