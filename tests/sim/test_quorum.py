"""Replicated maps under random faults: every history is linearizable, and broken protocols are caught."""

from random import Random
from typing import Any

import pytest

from antiphon.check.linearizable import check_calls
from antiphon.check.verdict import Verdict
from antiphon.protocols.quorum import Quorum
from antiphon.protocols.quorum.election import Election
from antiphon.protocols.quorum.leader import Leader
from antiphon.protocols.quorum.pdus import BATCH, ENTER, Entry
from antiphon.protocols.quorum.ports import SessionState
from antiphon.protocols.quorum.sessions import Sessions
from antiphon.protocols.quorum.state import State
from antiphon.sim.quorum.run import QuorumRunConfiguration, Run
from antiphon.sim.scenarios.quorum import as_call


def drawn(seed: int) -> dict[str, Any]:
    """Parameters of a run."""
    random = Random(seed)
    members = random.choice([1, 2, 3, 3, 5, 5, 7])
    disk = random.random() < 0.5
    return {
        "members": members,
        "messages": random.choice([60, 120]),
        "loss": random.choice([0, 0.02, 0.1]),
        "duplication": random.choice([0, 0.1]),
        "reordering": random.choice([0, 0.2]),
        "crashes": random.choice([0, 2, 6]) if disk or members > 2 else 0,
        "partitions": random.choice([0, 2, 4]),
        "pauses": min(members, random.choice([0, 0, 1, 2])),
        "changes": random.choice([0, 0, 1, 2]) if members > 2 else 0,
        "disk": disk,
        "snapshot_bytes": random.choice([1000, 4000, 1 << 20]),
    }


def faults_of(seed: int, **fixed: Any) -> list[str]:
    """What is wrong with a run; nothing, if all is well."""
    parameters = drawn(seed) | fixed
    print(f"seed {seed}: {parameters}")
    outcome = Run(QuorumRunConfiguration(**parameters), seed).go()
    judged = check_calls(map(as_call, outcome.calls))
    wrong = [*outcome.disagreements, *(each.explanation for each in judged.contradictions)]
    wrong += [name for name in ("equal", "live") if not outcome.metrics[name]]
    return wrong if judged.verdict is not Verdict.UNKNOWN or wrong else []


@pytest.mark.parametrize("seed", range(14))
def test_every_history_is_linearizable_and_every_member_comes_back(seed: int) -> None:
    assert faults_of(seed) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_histories_are_linearizable(seed: int) -> None:
    assert faults_of(seed) == []


def test_equal_seeds_give_equal_runs() -> None:
    first, second = (Run(QuorumRunConfiguration(**drawn(3)), 3).go() for _ in range(2))
    assert first.metrics == second.metrics
    assert first.calls == second.calls


def commit_by_minority(self: Leader, now: int) -> None:
    """A leader that counts itself alone."""
    self._state.commit_to(now, self._state.durable_index)


def vote_twice(self: Election, _sender: str, pdu: Any) -> bool:
    """A voter that forgets its vote."""
    return bool(pdu.term > self._state.term if pdu.trial else pdu.term == self._state.term)


def caught(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, broken: Any, **knobs: Any) -> bool:
    monkeypatch.setattr(kind, name, broken)
    return is_caught(**knobs)


def is_caught(seeds: int = 24, **knobs: Any) -> bool:
    """Whether a run does something wrong, beyond standing still."""
    return any(set(faults_of(seed, **knobs)) - {"equal", "live"} for seed in range(seeds))


TROUBLE: dict[str, Any] = {
    "members": 5, "messages": 120, "partitions": 4, "crashes": 4, "pauses": 2, "changes": 0, "disk": True,
    "duplication": 0.1, "reordering": 0.2, "loss": 0.1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "broken"),
    [
        (Leader, "_advance", commit_by_minority),
        (Election, "_grants", vote_twice),
    ],
    ids=["commit by a minority", "vote twice"],
)
def test_a_broken_protocol_is_caught(
    monkeypatch: pytest.MonkeyPatch, kind: type, name: str, broken: Any
) -> None:
    assert caught(monkeypatch, kind, name, broken, **TROUBLE)


def test_a_vote_with_a_forgotten_past_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members without a disk that lose their memory and go on as if they had it."""

    def forgetful(self: Quorum, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self._state.identity = 1

    original = Quorum.__init__
    monkeypatch.setattr(Quorum, "__init__", forgetful)
    monkeypatch.setattr(State, "is_voter", property(lambda self: bool(self.group)))
    knobs = TROUBLE | {"members": 3, "disk": False, "crashes": 6, "loss": 0.1}
    assert is_caught(60, **knobs)


def test_a_batch_that_is_applied_as_often_as_it_is_handed_in_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def take(self: Leader, now: int, site: str, life: int, number: int, body: bytes) -> None:
        self.append(now, Entry(self._state.term, BATCH if number else ENTER, site, life, number, body))

    def take_batch(self: Sessions, entry: Entry) -> bool:
        found = self._known.get(entry.sender)
        if found is None or found.life != entry.life:
            return False
        self._known[entry.sender] = SessionState(entry.life, max(found.next, entry.number + 1), True)
        return True

    monkeypatch.setattr(Leader, "take", take)
    monkeypatch.setattr(Sessions, "_take_batch", take_batch)
    assert is_caught(**TROUBLE)
