"""Groups that are founded while members crash, start late, and are cut off: never two, and always one."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from antiphon.check.linearizable import check_calls
from antiphon.core.ids import Site
from antiphon.protocols.quorum import Role
from antiphon.protocols.quorum.founding import Founding
from antiphon.protocols.quorum.membership import Membership
from antiphon.sim.quorum.run import QuorumRunConfiguration, Run
from antiphon.sim.scenarios.quorum import as_call


def drawn(seed: int) -> dict[str, Any]:
    random = Random(seed)
    members = random.choice([3, 4, 5, 5, 7])
    return {
        "members": members,
        "messages": 40,
        "rate": 100.0,
        "loss": random.choice([0.0, 0.05, 0.1]),
        "crashes": random.choice([0, 2, 5]),
        "partitions": random.choice([0, 2, 4]),
        "pauses": random.choice([0, 1]),
        "calm_ms": 100.0,
        "away_ms": random.choice([100.0, 400.0, 1000.0]),
        "disk_ms": random.choice([0.1, 2.0, 30.0]),
        "late": random.randint(0, (members - 1) // 2),
        "early": True,
    }


def faults_of(parameters: Mapping[str, Any], seed: int) -> list[str]:
    print(f"seed {seed}: {parameters}")
    outcome = Run(QuorumRunConfiguration(**parameters), seed).go()
    judged = check_calls(map(as_call, outcome.calls))
    wrong = [*outcome.disagreements, *(each.explanation for each in judged.contradictions)]
    return wrong + [name for name in ("equal", "live") if not outcome.metrics[name]]


@pytest.mark.parametrize("seed", range(30))
def test_a_majority_with_disks_founds_one_group(seed: int) -> None:
    assert faults_of(drawn(seed), seed) == []


@pytest.mark.parametrize("seed", range(6))
def test_as_many_as_are_expected_found_one_group(seed: int) -> None:
    calm = {"late": 0, "early": False, "expected": True}
    assert faults_of(drawn(seed) | calm, seed) == []


def is_caught(seeds: int = 60) -> bool:
    return any("second group" in wrong for seed in range(seeds) for wrong in faults_of(drawn(seed), seed))


def test_a_group_that_a_minority_founds_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(self: Founding, now: int) -> None:
        self._found(now, self._processes())

    monkeypatch.setattr(Founding, "_look_at_named", look)
    assert is_caught()


def test_a_voter_that_goes_to_another_group_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_found(self: Membership, now: int, _sender: Site, pdu: Any) -> None:
        is_named = pdu.base.voters.get(self._state.site) == self._state.identity
        if is_named and pdu.group != self._state.group and self._state.role is Role.FOLLOWER:
            self._state.term, self._state.vote = 0, ""
            self._adopt(now, pdu.group, pdu.base)

    def look(self: Founding, now: int) -> None:
        there = self._processes()
        if 2 * len(there) > len(self._members):
            self._found(now, {name: there.get(name, 0) for name in sorted(self._members)})

    monkeypatch.setattr(Membership, "on_found", on_found)
    monkeypatch.setattr(Founding, "_look_at_named", look)
    assert is_caught()
