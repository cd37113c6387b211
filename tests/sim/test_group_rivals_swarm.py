"""The swarm of meta-groups' rivals: random overlaps of groups under loss, duplication, reordering, absence.

Each seed draws its parameters, which are printed; the run's trace is audited with the pure checkers, and
everything must be delivered in the end. When a seed fails, the last line is the command that replays it.
`ANTIPHON_SWARM_SEEDS` sets how many seeds are tried. The sites never crash: these protocols do not claim to
survive that.
"""

import os
from random import Random
from typing import Any

import pytest

from antiphon.check.checkers import check_trace
from antiphon.check.verdict import Violation
from antiphon.core.errors import UsageError
from antiphon.core.recording import PROPERTIES
from antiphon.sim.scenarios import find_scenario
from tests.sim import swarming
from tests.sim.swarming import Outcome, demand

SEEDS = int(os.environ.get("ANTIPHON_SWARM_SEEDS", "240"))
RIVALS = ("global-sequencer", "group-sequencers", "propagation-tree", "token", "two-phase")
HOPS = {"global-sequencer": 2.0, "group-sequencers": 2.0, "token": 4.0, "two-phase": 3.0}
"""Jia and So, section 6, in transmissions one after the other; the token with three holders."""


def draw(name: str, seed: int) -> dict[str, Any]:
    """Sites, groups and some faults; about half of the options keep their defaults."""
    random = Random(f"swarm/{name}/{seed}")
    members = random.randint(2, 9)
    groups = random.randint(1, 6)
    messages = random.randint(20, 60)
    parameters = {
        "members": members,
        "groups": groups,
        "overlap": round(random.uniform(1.0, groups), 1),
        "outsiders": random.choice([0.0, 0.2, 1.0]),
        "messages": messages,
        "size": 10,
        "batch": random.choice([1, 1, 3]),
        "rate": messages / random.choice([0.05, 0.2, 1.0]),
        "network": random.choice(["mesh", "mesh", "mesh", "medium"]),
        **swarming.draw_weather(random),
        "churn": random.choice([0, 0, 0, 1, members]),
        "partitions": random.choice([0, 0, 0, 1]),
        "calm_ms": 100.0,
        "away_ms": 100.0,
        "window": random.choice([2, 8, 64]),
    }
    return parameters | ({"resilience": random.randint(1, members)} if name == "token" else {})


def simulate(name: str, parameters: dict[str, Any], seed: int) -> tuple[Outcome, list[Violation]]:
    """What a run came to, and all that any checker finds in it."""
    outcome = swarming.simulate(find_scenario(name), parameters, seed)
    return outcome, check_trace(outcome.events, outcome.run, PROPERTIES)


def judge(name: str, parameters: dict[str, Any], seed: int) -> None:
    print(f"seed {seed}: {parameters}")
    outcome, found = simulate(name, parameters, seed)
    promises = find_scenario(name).promises
    demand(outcome, [violation for violation in found if violation.property in promises])


@pytest.mark.parametrize("name", RIVALS)
def test_each_keeps_its_promises_and_delivers_everything(name: str) -> None:
    for seed in range(SEEDS // len(RIVALS)):
        judge(name, draw(name, seed), seed)


def test_a_sequencer_for_each_group_breaks_the_order_across_groups() -> None:
    """A seed kept: without any fault, common members of two groups deliver in different orders."""
    parameters = {"members": 5, "groups": 2, "overlap": 1.8, "messages": 100, "jitter_ms": 1.0}
    outcome, found = simulate("group-sequencers", parameters, 4)
    assert {violation.property for violation in found} == {"fifo", "causal", "total"}, outcome.command
    for name in ("global-sequencer", "propagation-tree", "token", "two-phase"):
        outcome, found = simulate(name, parameters, 4)
        assert not [violation for violation in found if violation.property == "total"], outcome.command


def test_a_propagation_tree_breaks_a_senders_order_across_groups() -> None:
    """A seed kept: it promises one order of all messages, and not their senders'."""
    parameters = {"members": 6, "groups": 4, "messages": 200, "jitter_ms": 2.0}
    outcome, found = simulate("propagation-tree", parameters, 1)
    assert {violation.property for violation in found} == {"fifo", "causal"}, outcome.command


@pytest.mark.parametrize("name", HOPS)
def test_alone_a_multicast_takes_the_hops_that_the_paper_counts(name: str) -> None:
    """One multicast at a time; members that send or order may be sooner, and two may meet."""
    parameters = {"members": 12, "groups": 3, "messages": 40, "rate": 2.0, "outsiders": 1.0}
    outcome, _ = simulate(name, parameters, 7)
    assert outcome.metrics["repeated"] == 0, outcome.command
    assert isinstance(outcome.metrics["hops"], float)
    assert HOPS[name] - 1 < outcome.metrics["hops"] <= 1.01 * HOPS[name], outcome.command


def test_a_tree_takes_as_many_hops_as_it_has_levels() -> None:
    parameters = {"members": 12, "groups": 5, "messages": 100, "rate": 20.0, "outsiders": 1.0}
    outcome, _ = simulate("propagation-tree", parameters, 7)
    assert isinstance(outcome.metrics["hops"], float)
    assert isinstance(outcome.metrics["depth"], float)
    assert abs(outcome.metrics["hops"] - outcome.metrics["depth"] - 1) < 0.5, outcome.command


def test_the_same_seed_gives_the_same_run() -> None:
    for name in RIVALS:
        parameters = draw(name, 0) | {"loss": 0.1}
        assert simulate(name, parameters, 5) == simulate(name, parameters, 5)


@pytest.mark.parametrize("name", RIVALS)
def test_crashes_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        find_scenario(name).configure({"crashes": 1})


@pytest.mark.parametrize(("name", "parameters"), [("token", {"resilience": 0}), ("token", {"resilience": 8})])
def test_options_that_make_no_sense_are_refused(name: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        find_scenario(name).configure(parameters)


def test_a_failing_seed_says_how_to_replay_it() -> None:
    parameters = draw("two-phase", 0) | {"sabotage": "swap", "members": 4, "groups": 1, "overlap": 1.0}
    with pytest.raises(pytest.fail.Exception) as caught:
        judge("two-phase", parameters | {"messages": 60, "churn": 0}, 3)
    last = str(caught.value).splitlines()[-1]
    assert last.startswith("antiphon simulate two-phase --members 4")
    assert last.endswith("--seed 3")
