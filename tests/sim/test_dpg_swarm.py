"""The swarm of the Distributed Precedence Graph: each of its services under loss, churn and crashes.

Each seed draws its parameters; the run's trace is audited with the pure checkers, and once the faults have
healed everyone must take part and finish. The order is agreed only almost always: a promise may be broken if
the members themselves found out, and rarely enough, one message in ten thousand deliveries over the swarm.
When a seed fails, the command that replays it stands beside it. `ANTIPHON_SWARM_SEEDS` sets how many seeds
are tried.

At least one member stays through each of these runs, because the members present hold the order. If all of
them are gone at once, the order starts again from what returning members remember, and a member that was away
may have delivered more. Then less is demanded, see `test_the_group_survives_that_everyone_is_away`. A member
that crashes may have known better without reporting it: no member can find such a violation. It has no memory
afterwards, so it may deliver again what it alone had delivered. Cycles are counted in messages
only where messages are many: where they are few, so are reports and requests.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from antiphon.check.verdict import Violation
from antiphon.core.recording import Property
from antiphon.core.time import MILLISECOND_NS, from_seconds
from antiphon.protocols.dpg import PROMISES
from antiphon.sim.medium import ETHERNET_BITS_PER_S
from antiphon.sim.scenario import Metrics
from antiphon.sim.scenarios.dpg import SCENARIO
from antiphon.trace.schema import Event
from tests.promises import broken_promises
from tests.sim import swarming

SEEDS = int(os.environ.get("ANTIPHON_SWARM_SEEDS", "120"))
KINDS = ("lan/medium", "sequencer/mesh", "sequencer/medium", "bounded-delay/mesh", "bounded-delay/medium")
DELIVERIES_PER_VIOLATION = 10_000
DELIVERIES_PER_VIOLATION_AT_CRASHES = 1_000
"""Where members lose their memory: what only a crashed member had delivered is missing elsewhere."""
EASY_BYTES_PER_S = 300_000
"""What an Ethernet of 10 Mbit/s carries with ease, copies and reports of many members besides."""
MOMENT_NS = 500 * MILLISECOND_NS
NEVER_BROKEN: tuple[Property, ...] = ("integrity", "duplicate", "fifo", "stability")
"""Whatever becomes of the order, these hold where no member loses its memory."""


def draw(kind: str, seed: int) -> dict[str, Any]:
    """A group, its service and some faults; about every second knob stays calm."""
    service, network = kind.split("/")
    random = Random(f"swarm/dpg/{kind}/{seed}")
    members = random.randint(2, 9)
    messages = random.choice([60, 150, 300])
    size = random.choice([10, 100, 1000])
    rate = messages / random.choice([0.3, 1.0, 2.0, 4.0])
    churn = min(random.choice([0, 0, 1, 2, members]), members - 1)
    crashes = min(random.choice([0, 0, 1, 3]), members - 1 - churn)
    parameters = {
        "members": members,
        "messages": messages,
        "size": size,
        "batch": random.choice([1, 1, 3]),
        "rate": rate,
        "network": network,
        "service": service,
        "bandwidth": ETHERNET_BITS_PER_S if rate * size < EASY_BYTES_PER_S else 10 * ETHERNET_BITS_PER_S,
        "delay_ms": random.choice([0.1, 1.0, 5.0]),
        "loss": random.choice([0.0, 0.01, 0.03, 0.05]),
        "churn": churn,
        "crashes": crashes,
        "cycles": "count" if rate >= 150.0 and not crashes and random.random() < 0.3 else "clock",
    }
    parameters |= draw_channel(random) if service == "lan" else draw_network(random)
    return parameters | {"tell_ms": random.choice([0.0, 0.5, 2.0])}


def draw_channel(random: Random) -> dict[str, Any]:
    """A single-access LAN neither repeats nor reorders; its sites may be slow."""
    return {"buffers": random.choice([20, 20, 4]), "processing_us": random.choice([0.0, 0.0, 200.0])}


def draw_network(random: Random) -> dict[str, Any]:
    return {
        "jitter_ms": random.choice([0.0, 0.5, 3.0]),
        "duplication": random.choice([0.0, 0.0, 0.1, 0.3]),
        "reordering": random.choice([0.0, 0.0, 0.1, 0.3]),
    }


def end_of(event: Event) -> int:
    """The number behind those that a row covers."""
    return (event.number or 0) + (event.count or 1)


@dataclass
class Outcome:
    """What came of a run."""

    parameters: dict[str, Any]
    metrics: Metrics
    events: Sequence[Event]
    broken: list[Violation]
    command: str

    def judge(self) -> str | None:
        """Why it is not good enough, if it is not."""
        crashed = self.parameters.get("crashes", 0) > 0
        never: tuple[Property, ...] = ("integrity", "stability") if crashed else NEVER_BROKEN
        grave = [violation for violation in self.broken if violation.property in never]
        is_found = self.metrics["disagreements"] or self.metrics["unavailable"] or crashed
        unforgiven = grave or ([] if is_found else self.broken)
        if unforgiven:
            return f"{len(unforgiven)} violations that no member found, first: {unforgiven[0].explanation}"
        if not self.is_going_on() or not (self.metrics["finished"] or self.broken):
            return f"The faults are over and the run does not finish: {self.metrics}"
        return None

    def is_going_on(self) -> bool:
        """Whether the run has finished, or, where something is missing for good, would have but for that.

        Then closing messages are sent again and again, and everyone delivers them.
        """
        if self.metrics["finished"]:
            return True
        until_ns = from_seconds(float(self.metrics["simulated_s"] or 0.0)) - MOMENT_NS
        sent = [event for event in self.events if event.kind == "send" and (event.time_ns or 0) <= until_ns]
        last = {event.site: end_of(event) for event in sent}
        delivered = {
            (event.site, event.sender)
            for event in self.events
            if event.kind == "deliver" and end_of(event) == last.get(event.sender or "")
        }
        sites = {event.site for event in self.events}
        return all((site, sender) in delivered for site in sites for sender in last)

    def violated(self) -> int:
        """Messages missing somewhere or out of order, each counted at each site."""
        missing = sum(violation.property == "atomicity" for violation in self.broken)
        return missing + int(self.metrics["out_of_order"] or 0)


def simulate(parameters: dict[str, Any], seed: int, promises: Collection[Property] = PROMISES) -> Outcome:
    metrics, events, run, command = swarming.simulate(SCENARIO, parameters, seed)
    return Outcome(parameters, metrics, events, broken_promises(promises, events, run), command)


class Tally:
    """What a swarm came to."""

    def __init__(self) -> None:
        self.deliveries = {False: 0, True: 0}
        """In runs without and with crashes."""
        self.violated = {False: 0, True: 0}
        self.complaints: list[str] = []

    def add(self, outcome: Outcome) -> None:
        complaint = outcome.judge()
        if complaint is not None:
            self.complaints.append(f"{complaint}\n{outcome.command}")
        violated, crashed = outcome.violated(), outcome.parameters.get("crashes", 0) > 0
        self.deliveries[crashed] += int(outcome.metrics["deliveries"] or 0)
        self.violated[crashed] += violated
        if violated:
            print(f"{violated} messages out of order or missing: {outcome.command}")

    def conclude(self) -> None:
        if self.complaints:
            pytest.fail("\n\n".join(self.complaints), pytrace=False)
        for crashed, least in (
            (False, DELIVERIES_PER_VIOLATION),
            (True, DELIVERIES_PER_VIOLATION_AT_CRASHES),
        ):
            violated, deliveries = self.violated[crashed], self.deliveries[crashed]
            assert violated * least <= deliveries, f"{violated} messages violated in {deliveries} deliveries"


def sweep(drawn: Iterable[tuple[int, dict[str, Any]]]) -> None:
    tally = Tally()
    for seed, parameters in drawn:
        tally.add(simulate(parameters, seed))
    tally.conclude()


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_is_kept_almost_always_and_everyone_finishes(kind: str) -> None:
    sweep((seed, draw(kind, seed)) for seed in range(SEEDS // len(KINDS)))


def test_the_group_survives_that_everyone_is_away() -> None:
    """All members come and go, so that at times none is there, or none that knows."""
    for seed in range(max(1, SEEDS // 10)):
        kind = KINDS[seed % len(KINDS)]
        parameters = draw(kind, seed) | {"crashes": 0, "loss": 0.0, "cycles": "clock"}
        parameters |= {"churn": parameters["members"], "messages": 100, "rate": 40.0}
        outcome = simulate(parameters, seed, NEVER_BROKEN)
        assert not outcome.broken, f"{outcome.broken[0].explanation}\n{outcome.command}"
        assert outcome.is_going_on(), outcome.command


def draw_partitions(kind: str, seed: int) -> dict[str, Any]:
    """Short partitions, in which no member is missed, and long ones; sometimes members are also away."""
    random = Random(f"swarm/dpg/partitions/{kind}/{seed}")
    parameters = draw(kind, seed) | {"crashes": 0, "cycles": "clock", "rate": 200.0, "messages": 200}
    parameters |= {"members": random.randint(3, 6), "churn": random.choice([0, 0, 1]), "size": 10}
    return parameters | {
        "partitions": random.choice([1, 2]),
        "calm_ms": 300.0,
        "away_ms": random.choice([100.0, 400.0, 1500.0]),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_no_fork_is_silent(kind: str) -> None:
    """Whatever is missing or out of order after a partition, members have told it themselves."""
    for seed in range(max(1, SEEDS // 24)):
        parameters = draw_partitions(kind, seed)
        outcome = simulate(parameters, seed, ("integrity", "duplicate"))
        assert not outcome.broken, f"{outcome.broken[0].explanation}\n{outcome.command}"
        assert outcome.metrics["unnoticed"] == 0, outcome.command
        assert outcome.is_going_on(), outcome.command


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_quorum_forks_are_rarer_and_never_silent(kind: str) -> None:
    """Members may give up an order that they have told, so a quorum cannot rule forks out."""
    forked: Counter[str] = Counter()
    for seed in range(max(8, SEEDS // 40)):
        drawn = draw_partitions(kind, seed) | {"churn": 0, "partitions": 1}
        for name, quorum in (("without", 0), ("with", drawn["members"] // 2 + 1)):
            outcome = simulate(drawn | {"quorum": quorum}, seed, ["integrity", "duplicate"])
            assert not outcome.broken, f"{outcome.broken[0].explanation}\n{outcome.command}"
            assert outcome.metrics["unnoticed"] == 0, outcome.command
            assert outcome.is_going_on(), outcome.command
            forked[name] += bool(outcome.metrics["violated"])
    assert forked["with"] < forked["without"]


def test_members_that_were_all_away_tell_what_they_delivered_alone() -> None:
    """They return with their memory, and go on from what the first of them remembers."""
    parameters = {
        "members": 5,
        "messages": 200,
        "rate": 100.0,
        "churn": 5,
        "calm_ms": 300.0,
        "away_ms": 400.0,
    }
    outcome = simulate(parameters, 5)
    assert outcome.broken
    assert outcome.metrics["forks"], outcome.command
    assert outcome.metrics["unnoticed"] == 0


FOUND: dict[str, tuple[int, dict[str, Any]]] = {
    "the first message, and two in a row, that everyone missed": (
        4,
        {"members": 2, "messages": 300, "delay_ms": 5.0, "loss": 0.05, "churn": 1, "buffers": 2},
    ),
    "messages that no member heard, then others that were heard": (
        16,
        {"members": 2, "messages": 150, "size": 1000, "batch": 3, "rate": 500.0, "delay_ms": 5.0,
         "loss": 0.01, "crashes": 1},
    ),
    "the member that knew kept quiet while others reported": (
        90,
        {"members": 3, "messages": 60, "size": 1000, "batch": 3, "rate": 60.0, "delay_ms": 5.0,
         "loss": 0.05, "crashes": 1, "cycles": "count"},
    ),
    "placed own messages behind what came after them, when alone": (
        106,
        {"members": 3, "messages": 150, "size": 10, "rate": 75.0, "loss": 0.01, "churn": 2},
    ),
    "a channel full of reports and copies": (
        119,
        {"members": 9, "messages": 300, "size": 1000, "rate": 300.0, "loss": 0.03, "crashes": 3,
         "buffers": 2, "processing_us": 300.0},
    ),
    "reports of what the links tell anyway": (
        23,
        {"members": 8, "messages": 150, "size": 1000, "rate": 150.0, "delay_ms": 5.0, "loss": 0.03,
         "processing_us": 300.0},
    ),
    "kept quiet because reports had more than their share": (
        30,
        {"members": 3, "messages": 300, "size": 1000, "rate": 150.0, "delay_ms": 1.0, "loss": 0.03,
         "crashes": 1, "processing_us": 300.0},
    ),
    "kept quiet because it had been idle": (
        55,
        {"members": 3, "messages": 150, "size": 10, "batch": 3, "rate": 150.0, "delay_ms": 5.0,
         "loss": 0.05, "crashes": 2},
    ),
    "delivered its last after it had said that it is away": (
        53,
        {"members": 4, "messages": 300, "rate": 300.0, "network": "mesh", "loss": 0.05, "reordering": 0.3,
         "churn": 3, "service": "sequencer"},
    ),
    "lacked what one had who listened": (
        38,
        {"members": 2, "messages": 300, "size": 10, "batch": 3, "rate": 150.0, "delay_ms": 1.0,
         "jitter_ms": 3.0, "loss": 0.01, "duplication": 0.3, "churn": 1, "service": "sequencer"},
    ),
    "handed over again, behind its successors, what no member had heard": (
        615,
        {"members": 2, "messages": 48, "size": 0, "rate": 2400.0, "network": "mesh", "delay_ms": 5.0,
         "jitter_ms": 3.0, "loss": 0.05, "duplication": 0.3, "reordering": 0.1, "churn": 1, "calm_ms": 30.0,
         "away_ms": 20.0, "service": "bounded-delay"},
    ),
    "left without a word of what waited for its time": (
        1207,
        {"members": 2, "messages": 26, "size": 10, "rate": 52.0, "network": "mesh", "loss": 0.01,
         "duplication": 0.3, "churn": 1, "calm_ms": 100.0, "away_ms": 300.0, "service": "bounded-delay"},
    ),
    "did not ask the member that returned": (
        1157,
        {"members": 2, "messages": 22, "size": 0, "rate": 220.0, "network": "mesh", "jitter_ms": 0.5,
         "loss": 0.03, "reordering": 0.1, "churn": 1, "calm_ms": 100.0, "away_ms": 300.0,
         "service": "bounded-delay"},
    ),
    "said that it had seen only what it had received itself": (
        2269,
        {"members": 2, "messages": 15, "rate": 150.0, "delay_ms": 5.0, "loss": 0.03, "churn": 1,
         "calm_ms": 100.0, "away_ms": 100.0},
    ),
    "was taken for absent because it was idle": (
        4825,
        {"members": 3, "messages": 20, "size": 0, "rate": 40.0, "network": "mesh", "delay_ms": 1.0,
         "jitter_ms": 0.5, "loss": 0.01, "duplication": 0.1, "reordering": 0.3, "churn": 2, "calm_ms": 100.0,
         "away_ms": 100.0, "service": "bounded-delay"},
    ),
    "took up the order of one that had not delivered it yet": (
        4890,
        {"members": 6, "messages": 46, "size": 10, "rate": 460.0, "network": "mesh", "delay_ms": 5.0,
         "jitter_ms": 3.0, "loss": 0.01, "churn": 2, "calm_ms": 30.0, "away_ms": 100.0,
         "service": "sequencer"},
    ),
    "a farewell that overtook the last numbers": (
        5817,
        {"members": 3, "messages": 51, "size": 0, "rate": 510.0, "delay_ms": 1.0, "jitter_ms": 3.0,
         "loss": 0.01, "churn": 2, "calm_ms": 30.0, "away_ms": 20.0, "service": "sequencer"},
    ),
    "a message that died with its sender's absence, and its sender was told": (
        10898,
        {"members": 2, "messages": 39, "batch": 3, "rate": 390.0, "network": "mesh", "delay_ms": 1.0,
         "jitter_ms": 0.5, "loss": 0.05, "duplication": 0.3, "reordering": 0.1, "churn": 1, "calm_ms": 30.0,
         "away_ms": 300.0, "service": "bounded-delay"},
    ),
    "told what follows another's last place, but not that place": (
        16,
        {"members": 2, "messages": 150, "size": 1000, "rate": 500.0, "delay_ms": 1.0, "loss": 0.03,
         "churn": 1, "cycles": "count", "bandwidth": 100_000_000},
    ),
    "did not know yet who was there": (
        45,
        {"members": 3, "messages": 150, "size": 10, "rate": 500.0, "delay_ms": 1.0, "duplication": 0.3,
         "reordering": 0.3, "churn": 2, "service": "bounded-delay"},
    ),
}  # fmt: skip
"""Runs that once went wrong."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_stays_mended(name: str) -> None:
    seed, parameters = FOUND[name]
    outcome = simulate(parameters, seed)
    assert not outcome.broken, f"{outcome.broken[0].explanation}\n{outcome.command}"
    assert outcome.metrics["finished"], outcome.command
    if parameters.get("service") != "bounded-delay":
        # There, after absences of 20 ms, a member may vouch for what it missed. The false mark is refused.
        assert outcome.metrics["contradictions"] == 0, outcome.command


def test_all_that_may_die_with_a_return_is_handed_over_anew() -> None:
    """Everyone was away at once: what no member had delivered comes all the same."""
    parameters = {"members": 3, "messages": 150, "size": 1000, "rate": 150.0, "loss": 0.03, "churn": 3}
    outcome = simulate(parameters, 9, NEVER_BROKEN)
    assert not outcome.broken, f"{outcome.broken[0].explanation}\n{outcome.command}"
    assert outcome.metrics["finished"], outcome.command


def test_a_failing_seed_says_how_to_replay_it() -> None:
    parameters = draw("sequencer/mesh", 0) | {
        "sabotage": "swap", "members": 4, "churn": 0, "crashes": 0, "messages": 60,
    }  # fmt: skip
    tally = Tally()
    tally.add(simulate(parameters, 3))
    with pytest.raises(pytest.fail.Exception) as caught:
        tally.conclude()
    last = str(caught.value).splitlines()[-1]
    assert last.startswith("antiphon simulate dpg --members 4 --messages 60")
    assert last.endswith("--seed 3")
