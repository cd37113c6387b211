"""What a stage waits for, and what it excuses."""

from pathlib import Path

import pytest

from antiphon.core.time import MILLISECOND_NS
from tests.live.simulated_stage import SimulatedStage


@pytest.fixture
def cut(tmp_path: Path) -> SimulatedStage:
    """A group whose last member is cut off from the others."""
    stage = SimulatedStage(3, "fifo", tmp_path / "trace", 1)
    stage.partition(["s0", "s1"], ["s2"])
    return stage


def test_a_member_that_is_excluded_meanwhile_is_not_waited_for(cut: SimulatedStage) -> None:
    """So is one that a busy machine gives no time; it says so, and its trace is judged by that."""
    world = cut._world
    world.at(world.now + 50 * MILLISECOND_NS, lambda: cut.missed.add("s2"))
    cut.until_delivered(cut.send("s0"), ["s1", "s2"])
    assert world.now >= 50 * MILLISECOND_NS


def test_what_a_member_sends_that_is_excluded_meanwhile_is_not_waited_for(cut: SimulatedStage) -> None:
    world = cut._world
    world.at(world.now + 50 * MILLISECOND_NS, lambda: cut.missed.add("s2"))
    labels = cut.send("s0") + cut.send("s2")
    cut.until_delivered(labels, ["s0", "s1"])
    assert world.now >= 50 * MILLISECOND_NS
    assert cut.has("s1", labels[:1])


def test_a_member_that_missed_something_before_is_waited_for(
    cut: SimulatedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut, "wait", lambda condition, _: condition())
    cut.missed.add("s2")
    with pytest.raises(AssertionError, match="in vain"):
        cut.until_delivered(cut.send("s0"), ["s2"])
