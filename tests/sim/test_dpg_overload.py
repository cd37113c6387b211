"""More messages than a shared channel takes: members fall behind, and what they lack must still be told.

On such a channel reports wait in the same queues as messages. A member that hears every message may then lack
the order of two of them until the others no longer report it. Each of these runs once halted for
good, or guessed that order when Deliv_Cycle was over, and most often wrongly.
"""

import os

import pytest

from antiphon.sim.scenario import Metrics
from antiphon.sim.scenarios import find_scenario
from antiphon.trace.recorder import MemoryRecorder

OVERLOADED = {
    9: {"members": 6, "rate": 3000.0},
    26: {"members": 5, "rate": 6000.0},
    27: {"members": 6, "rate": 12000.0, "churn": 1},
    44: {"members": 5, "rate": 1500.0},
    53: {"members": 8, "rate": 3000.0},
}
HUNDRED_SITES = [(300, 1)] if "ANTIPHON_SWARM_SEEDS" not in os.environ else [(1000, 1), (1000, 2)]
"""Messages and seed: half a minute of processor is for `make swarm`."""


def figure(metrics: Metrics, name: str) -> float:
    found = metrics[name]
    assert isinstance(found, int | float)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", OVERLOADED)
def test_an_overloaded_channel_neither_halts_the_group_nor_breaks_its_order(seed: int) -> None:
    scenario = find_scenario("dpg")
    configuration = scenario.configure({"messages": 1500, "size": 100, **OVERLOADED[seed]})
    metrics = scenario.run(configuration, seed, MemoryRecorder("overload"))
    assert metrics["finished"]
    assert metrics["violated"] == 0
    assert metrics["unnoticed"] == 0


def test_a_lost_message_is_not_placed_before_what_its_sender_sent_earlier() -> None:
    """Its sender is away, so no member has it; only the message after it shows that there was one.

    Placed by its tag alone it stood before two others of its sender, which were then taken for repetitions.
    """
    scenario = find_scenario("dpg")
    parameters = {
        "members": 2, "messages": 39, "size": 10, "rate": 78.0, "delay_ms": 5.0, "loss": 0.03, "churn": 1,
        "calm_ms": 100.0,
    }  # fmt: skip
    metrics = scenario.run(scenario.configure(parameters), 503591, MemoryRecorder("placed too early"))
    assert metrics["finished"]
    assert metrics["violated"] == 0


@pytest.mark.parametrize("members", [30, pytest.param(50, marks=pytest.mark.slow)])
def test_reports_stay_within_their_share_however_large_the_group_is(members: int) -> None:
    """40% of the paper's channel is offered, and 2% of the frames are missed: a storm of reports once."""
    scenario = find_scenario("dpg")
    parameters = {"members": members, "messages": 600, "rate": 500.0, "size": 1000, "loss": 0.02}
    metrics = scenario.run(scenario.configure(parameters), 1, None)
    assert metrics["finished"]
    assert (metrics["violated"], metrics["disagreements"]) == (0, 0)
    assert figure(metrics, "busy_throughput") > 0.8 * 500
    assert figure(metrics, "report_share") < 0.25


@pytest.mark.parametrize(("service", "seed"), [("bounded-delay", 2), ("sequencer", 4)])
def test_a_fork_older_than_the_windows_is_told(service: str, seed: int) -> None:
    """A partition heals after both sides went on for longer than reports reach back: once without a word."""
    scenario = find_scenario("dpg")
    parameters = {
        "members": 5, "messages": 600, "rate": 300.0, "partitions": 1, "calm_ms": 300.0, "away_ms": 900.0,
        "network": "mesh", "service": service,
    }  # fmt: skip
    metrics = scenario.run(scenario.configure(parameters), seed, None)
    assert figure(metrics, "forks") > 0
    assert figure(metrics, "violated") > 0
    assert figure(metrics, "unnoticed") == 0


def test_the_majority_does_not_take_up_the_minoritys_order() -> None:
    """A lone member is cut off from three; once the three took up its order, which was shorter."""
    scenario = find_scenario("dpg")
    parameters = {
        "members": 4, "messages": 3000, "rate": 3000.0, "partitions": 1, "calm_ms": 500.0, "away_ms": 800.0,
        "network": "mesh", "service": "sequencer", "history": 256,
    }  # fmt: skip
    metrics = scenario.run(scenario.configure(parameters), 3, None)
    assert (metrics["forks"], metrics["spells"]) == (1, 5), "only the lone member begins again"


@pytest.mark.slow
@pytest.mark.parametrize(("messages", "seed"), HUNDRED_SITES)
def test_a_hundred_sites_on_the_papers_channel(messages: int, seed: int) -> None:
    scenario = find_scenario("dpg")
    parameters = {"members": 100, "messages": messages, "rate": 500.0, "size": 1000, "loss": 0.02}
    metrics = scenario.run(scenario.configure(parameters), seed, None)
    assert metrics["finished"]
    assert (metrics["violated"], metrics["disagreements"]) == (0, 0)
    assert figure(metrics, "busy_throughput") > 0.8 * 500
    assert figure(metrics, "report_share") < 0.2


@pytest.mark.slow
def test_a_group_recovers_within_a_second_once_an_overload_ends() -> None:
    """Twice what the channel carries is offered for a moment."""
    scenario = find_scenario("dpg")
    parameters = {"members": 30, "messages": 500, "rate": 2500.0, "size": 1000, "loss": 0.02}
    metrics = scenario.run(scenario.configure(parameters), 1, None)
    assert metrics["finished"]
    assert metrics["violated"] == 0
    offered_s = 500 * 1000 * 8 * 1.9 / 10e6
    """What the channel needs at least, with a retransmission of nearly each message."""
    assert figure(metrics, "simulated_s") < offered_s + 1.0
