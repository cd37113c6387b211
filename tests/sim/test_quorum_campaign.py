"""A campaign of replicated maps: good ones pass, and broken machines and protocols are caught."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from antiphon.core.recording import Recorder
from antiphon.protocols.quorum.pdus import Config
from antiphon.sim.quorum.run import KeyedRegisters, QuorumRunConfiguration, Run
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.scenarios.quorum import SCENARIO, record
from antiphon.spark.connections import connection_row, judge_connection
from antiphon.studies.connections.drawings import draw

FAULTS: dict[str, Any] = {
    "members": 3,
    "messages": 120,
    "rate": 240.0,
    "keys": 1,
    "crashes": 3,
    "partitions": 2,
    "loss": 0.05,
    "calm_ms": 100.0,
    "away_ms": 200.0,
    "snapshot_bytes": 300,
}


class Stale(KeyedRegisters):
    """Now and then a read answers with the value before the last."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[str, Any] = {}
        self._reads = 0

    def apply(self, command: Any) -> Any:
        if command[0] == "get":
            self._reads += 1
            if self._reads % 5 == 0:
                return self._before.get(command[1])
        else:
            self._before[command[1]] = self._values.get(command[1])
        return super().apply(command)


class Forgetful(KeyedRegisters):
    """A restored copy lacks a key."""

    def restore(self, data: bytes) -> None:
        super().restore(data)
        self._values.pop("k0", None)


class Repeating(KeyedRegisters):
    """A compare-and-set succeeds whatever the value is."""

    def apply(self, command: Any) -> Any:
        if command[0] == "compare_and_set":
            super().apply(["set", command[1], command[3]])
            return True
        return super().apply(command)


def scenario_with(machine: Callable[[], Any]) -> Scenario:
    def run(knobs: QuorumRunConfiguration, seed: int, recorder: Recorder | None) -> Metrics:
        return record(Run(knobs, seed, recorder, machine=machine), recorder)

    return Scenario(
        name="broken",
        summary="",
        example="",
        configuration=QuorumRunConfiguration,
        run=run,
        promises=SCENARIO.promises,
        cost_s=SCENARIO.cost_s,
    )


def first_found(scenario: Scenario, parameters: Mapping[str, Any], seeds: int) -> str | None:
    """The explanation of the first history that is not linearizable."""
    for seed in range(seeds):
        _, judgement = judge_connection(scenario, scenario.configure(parameters), seed)
        for violation in judgement.violations:
            if violation.property == "linearizable":
                return violation.explanation
    return None


@pytest.mark.parametrize("machine", [Stale, Forgetful, Repeating], ids=lambda each: each.__name__)
def test_a_broken_machine_is_caught(machine: Callable[[], Any]) -> None:
    found = first_found(scenario_with(machine), FAULTS, 20)
    assert found is not None
    assert found.startswith("Let each call on map['k0'] take effect at one moment")
    assert "a contradiction." in found


def test_a_protocol_without_majorities_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Config, "majority", property(lambda _: 1))
    assert first_found(SCENARIO, FAULTS, 20) is not None


def test_drawn_connections_keep_their_promises() -> None:
    for seed in range(4):
        row = connection_row("quorum", lambda each: draw("quorum", each), seed)
        assert (row["error"], row["broken"], row["finished"]) == (None, [], True), row["replay"]


def test_the_drawings_make_sense_and_hold_every_fault() -> None:
    drawn = [draw("quorum", seed) for seed in range(300)]
    for parameters in drawn:
        SCENARIO.configure(parameters)
    for fault in ("crashes", "partitions", "pauses", "loss", "changes", "clock_jumps"):
        assert any(parameters[fault] for parameters in drawn), fault
    assert {parameters["disk"] for parameters in drawn} == {True, False}


def test_questions_for_votes_are_repeated_where_every_vote_counts() -> None:
    """Three of four voters are left, none of them may be missed, and every third datagram is lost."""
    parameters = {
        "members": 4, "messages": 50, "rate": 100.0, "keys": 1, "delay_ms": 5.0, "jitter_ms": 0.0,
        "loss": 0.3, "crashes": 1, "partitions": 2, "pauses": 1, "calm_ms": 50.0, "away_ms": 400.0,
        "disk": False, "snapshot_bytes": 200,
    }  # fmt: skip
    metrics, _ = judge_connection(SCENARIO, SCENARIO.configure(parameters), 401)
    assert metrics["finished"]
