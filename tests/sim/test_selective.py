"""The workload that chooses destinations: which it draws, which it waits for, and what it counts."""

import hashlib
import os
import subprocess
import sys
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from antiphon.check.checkers import check_trace
from antiphon.core.errors import UsageError
from antiphon.sim.scenario import Scenario
from antiphon.sim.scenarios import co, sco, sco_c0, sco_c1, sco_d0, vector_clock
from antiphon.sim.selective import SelectiveConfiguration, draw_destinations
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Event, Run

SCENARIOS: dict[str, Scenario] = {
    scenario.SCENARIO.name: scenario.SCENARIO for scenario in (sco, vector_clock, co, sco_c0, sco_c1, sco_d0)
}
each_scenario = pytest.mark.parametrize("name", SCENARIOS)
FAULTS: dict[str, Any] = {
    "members": 5, "messages": 60, "rate": 60.0, "destinations": 3, "varied": True, "loss": 0.1,
    "duplication": 0.1, "reordering": 0.1, "jitter_ms": 1.0, "churn": 2,
}  # fmt: skip
OTHERS = ["b", "c", "d", "e"]


def run(name: str, seed: int = 1, **parameters: Any) -> tuple[dict[str, Any], list[Event]]:
    scenario, recorder = SCENARIOS[name], MemoryRecorder("r")
    metrics = scenario.run(scenario.configure(parameters), seed, recorder)
    return metrics, recorder.events()


def drawn(count: int, **parameters: Any) -> set[frozenset[str] | None]:
    configuration = SelectiveConfiguration(members=5, destinations=count, **parameters)
    random = Random(0)
    return {draw_destinations(random, "a", OTHERS, configuration) for _ in range(300)}


# Destinations that it draws


def test_no_number_means_everyone() -> None:
    assert drawn(0) == {None}


def test_so_many_others_are_drawn_and_each_at_times() -> None:
    found = drawn(2, own_share=0.0)
    assert {len(some or ()) for some in found} == {2}
    assert len(found) == 6
    assert not any("a" in (some or ()) for some in found)


def test_the_sender_is_one_of_them_at_times_or_always() -> None:
    assert {"a" in (some or ()) for some in drawn(2, own_share=0.3)} == {True, False}
    assert {len(some or ()) for some in drawn(2, own_share=0.3)} == {2}
    assert all("a" in (some or ()) for some in drawn(1, own_share=1.0))


def test_as_many_as_there_are_members_includes_the_sender() -> None:
    assert drawn(5, own_share=0.0) == {frozenset("abcde")}


def test_varied_means_from_one_to_that_many() -> None:
    assert {len(some or ()) for some in drawn(4, varied=True)} == {1, 2, 3, 4}


def test_whoever_knows_fewer_others_names_those() -> None:
    configuration = SelectiveConfiguration(members=5, destinations=3, own_share=0.0)
    assert draw_destinations(Random(0), "a", ["b"], configuration) == frozenset("ab")
    assert draw_destinations(Random(0), "a", [], configuration) == frozenset("a")


@pytest.mark.parametrize(
    "wrong", [{"destinations": 8}, {"destinations": -1}, {"own_share": 1.5}, {"sending": "odd"}]
)
def test_knobs_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        SelectiveConfiguration(**wrong)


@each_scenario
def test_only_sco_lets_members_crash(name: str) -> None:
    if name == "sco":
        SCENARIOS[name].configure({"crashes": 1})
        return
    with pytest.raises(UsageError, match="reliable"):
        SCENARIOS[name].configure({"crashes": 1})


# Destinations that it waits for


@each_scenario
def test_every_destination_and_nobody_else_delivers(name: str) -> None:
    metrics, events = run(name, members=6, messages=40, destinations=2, own_share=0.3, delay_ms=5.0, loss=0.5)
    assert metrics["finished"]
    meant = {
        (event.sender, event.number, site)
        for event in events
        if event.kind == "send"
        for site in event.destinations or ()
    }
    delivered = {(event.sender, event.number, event.site) for event in events if event.kind == "deliver"}
    assert len(meant) == 80
    assert delivered == meant


@each_scenario
def test_messages_of_one_batch_may_go_to_different_members(name: str) -> None:
    metrics, events = run(name, members=6, messages=60, batch=6, destinations=2, mixed=True, loss=0.1)
    assert metrics["finished"]
    assert metrics["deliveries"] == 2 * 60
    sent = [event for event in events if event.kind == "send"]
    assert sum(event.count or 1 for event in sent) == 60
    assert len(sent) > 10
    assert all(len(event.destinations or ()) == 2 for event in sent)


@each_scenario
def test_closing_messages_go_to_everyone(name: str) -> None:
    metrics, events = run(name, **FAULTS)
    assert metrics["finished"]
    last = {event.site: event for event in events if event.kind == "send"}
    everyone = {event.site for event in events}
    assert all(event.destinations is None or set(event.destinations) == everyone for event in last.values())


# What it counts


def test_even_sending_is_even() -> None:
    _, events = run("sco-c0", members=4, messages=40, rate=400.0, sending="even", destinations=2)
    for site in ("s0", "s1", "s2", "s3"):
        times = sorted(event.time_ns or 0 for event in events if event.kind == "send" and event.site == site)
        assert len(times) == 10
        assert {later - before for before, later in pairwise(times)} == {10_000_000}


def test_even_sending_is_over_in_time() -> None:
    """Six batches of seven members: the last would come after the time in which messages are offered."""
    _, events = run("sco-c0", members=7, messages=33, batch=6, rate=33.0, sending="even", destinations=2)
    sent = [event for event in events if event.kind == "send"]
    assert sum(event.count or 1 for event in sent) == 33
    assert max(event.time_ns or 0 for event in sent) <= 1_000_000_000


def test_c0_and_d0_cost_what_section_2_3_says() -> None:
    calm: dict[str, Any] = {"members": 10, "messages": 60, "destinations": 5, "own_share": 0.0}
    centralised, _ = run("sco-c0", **calm)
    assert (centralised["data_messages"], centralised["control_messages"]) == (5 * 60, 2 * 5 * 60)
    assert centralised["acceptance_s"] == centralised["atomic_s"] == pytest.approx(3e-3)
    distributed, _ = run("sco-d0", **calm)
    assert (distributed["data_messages"], distributed["control_messages"]) == (5 * 60, 5 * 5 * 60)
    assert distributed["acceptance_s"] == pytest.approx(2e-3)
    assert distributed["transmissions_per_message"] == 30.0


@each_scenario
def test_what_is_counted_is_what_the_network_carried(name: str) -> None:
    metrics, _ = run(name, members=6, messages=50, destinations=2)
    assert metrics["data_messages"] + metrics["control_messages"] == metrics["network_messages"]
    assert metrics["accepted"] == metrics["deliveries"] == 100
    assert metrics["latency_s"] <= metrics["acceptance_s"]
    assert metrics["atomic_s"] <= metrics["acceptance_s"]


def test_broadcast_pays_for_everyone_and_selection_for_the_chosen() -> None:
    calm: dict[str, Any] = {"members": 8, "messages": 50, "destinations": 2, "own_share": 0.0}
    assert run("co", **calm)[0]["data_messages"] == 7 * 50
    assert run("vector-clock", **calm)[0]["data_messages"] == 7 * 50
    assert run("sco", **calm)[0]["data_messages"] == 2 * 50


# Determinism


def fingerprint() -> str:
    """Of every row and every metric of a run of each."""
    digest = hashlib.sha256()
    for name in SCENARIOS:
        faults = FAULTS | ({"crashes": 2} if name == "sco" else {})
        digest.update(repr(run(name, 7, **faults)).encode())
    return digest.hexdigest()


def test_another_process_under_another_hash_seed_gives_the_same_traces() -> None:
    program = "from tests.sim.test_selective import fingerprint; print(fingerprint())"
    environment = os.environ | {"PYTHONHASHSEED": "4242", "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == fingerprint()


# What it weighs


@pytest.mark.parametrize("slow", [{"mbps": 1.0}, {"network": "medium"}])
def test_vectors_that_weigh_more_take_longer(slow: dict[str, Any]) -> None:
    calm = {"members": 20, "messages": 60, "rate": 60.0, "destinations": 3} | slow
    plain, _ = run("sco", vectors="plain", **calm)
    compressed, _ = run("sco", vectors="compressed", **calm)
    assert plain["metadata_bytes"] > 2 * compressed["metadata_bytes"]
    assert plain["latency_s"] > 1.05 * compressed["latency_s"]


@pytest.mark.parametrize("name", ["sco-c0", "sco-c1"])
def test_messages_given_up_hold_nothing_up_and_break_nothing(name: str) -> None:
    """One member is absent now and then; without failures every message would wait for it."""
    churn: dict[str, Any] = {"members": 4, "messages": 80, "rate": 100.0, "destinations": 3, "churn": 1}
    waiting, _ = run(name, **churn)
    going_on, events = run(name, **churn, give_up_ms=60.0)
    assert waiting["finished"]
    assert going_on["finished"]
    assert waiting["given_up"] == 0 < going_on["given_up"]
    assert going_on["latency_p99_s"] < waiting["latency_p99_s"]
    assert check_trace(events, Run("r"), SCENARIOS[name].promises) == []
