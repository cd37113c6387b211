"""What a group does when things go wrong: each body is played on the simulated and on the real stage.

On each the network or a member has some trouble while messages flow. Afterwards everyone who takes part
delivers a closing message of everyone, memory is back at its level, and the trace holds no broken promise.
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.ids import Site
from antiphon.live.orders import REPAIRS
from antiphon.protocols.stability import PROTOCOLS, WITHOUT_ROUNDS
from tests.live.hosts import skip_unless_allowed
from tests.live.live_stage import ANTIPHON, LiveStage
from tests.live.simulated_stage import SimulatedStage
from tests.live.stage import Stage, conclude

pytestmark = pytest.mark.slow

MEMBERS = 3
ORDERS = ("fifo", "sequencer", "total")
SIMULATED_SEEDS = (1, 2, 3)
LARGE_FRAMES = 9000
"""Of what is sent in bulk the switch, which is Python, then handles a sixth of the frames."""

OpenStage = Callable[..., Stage]


def arms(orders: tuple[str, ...] = ORDERS) -> list[Any]:
    """Every order, simulated under some seeds and for real."""
    simulated = [
        pytest.param("simulated", order, seed, id=f"simulated-{order}-{seed}")
        for order in orders
        for seed in SIMULATED_SEEDS
    ]
    live = [pytest.param("live", order, 0, id=f"live-{order}", marks=pytest.mark.live) for order in orders]
    return simulated + live


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("key") / "group.key"
    subprocess.run([str(ANTIPHON), "keygen", str(file)], check=True, capture_output=True)
    return file


@pytest.fixture
def open_stage(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[OpenStage]:
    """Opens the stage that a test's parameters ask for, and takes it down after the test."""
    with ExitStack() as stack:

        def open_one(kind: str, order: str, seed: int, **options: Any) -> Stage:
            if kind == "simulated":
                known = {name: options[name] for name in ("options",) if name in options}
                return SimulatedStage(MEMBERS, order, tmp_path / "trace", seed, **known)
            skip_unless_allowed()
            key = request.getfixturevalue("key")
            return stack.enter_context(LiveStage(MEMBERS, order, tmp_path / "trace", key=key, **options))

        yield open_one


every_arm = pytest.mark.parametrize(("kind", "order", "seed"), arms())

TROUBLES = {
    "loss of 5%": {"loss": 0.05},
    "loss of 20%": {"loss": 0.2},
    "delay and jitter": {"delay_ms": 10.0, "jitter_ms": 10.0},
    "duplication": {"duplication": 0.3},
    "reordering": {"reordering": 0.3},
    "all together": {
        "loss": 0.1,
        "delay_ms": 2.0,
        "jitter_ms": 4.0,
        "duplication": 0.1,
        "reordering": 0.1,
    },
}


@every_arm
def test_a_bad_network(open_stage: OpenStage, kind: str, order: str, seed: int) -> None:
    """One trouble after another: to start real members takes longer than any of them."""
    stage = open_stage(kind, order, seed)
    before = stage.memory()
    for name, trouble in TROUBLES.items():
        print(name)
        meddled = stage.weather.meddled
        stage.trouble(**trouble)
        for _ in range(4):
            stage.until_delivered(stage.send_all(10))
        assert stage.weather.meddled > meddled
    conclude(stage, before)


@pytest.mark.parametrize("kind", ["simulated", pytest.param("live", marks=pytest.mark.live)])
@pytest.mark.parametrize("repair", [way for way in REPAIRS if way != "hybrid"])
def test_every_way_of_repair_makes_up_for_losses(open_stage: OpenStage, kind: str, repair: str) -> None:
    stage = open_stage(kind, "fifo", 1, options={"repair": repair})
    before = stage.memory()
    stage.trouble(loss=0.1)
    for _ in range(3):
        stage.until_delivered(stage.send_all(10))
    # The last message of a burst has none behind it that would show the gap.
    stage.until_delivered(stage.send_all(1))
    assert stage.weather.meddled
    conclude(stage, before)


FORMS = [name for name in (*PROTOCOLS, *WITHOUT_ROUNDS) if name != "coordp"]
WAYS: dict[str, dict[str, Any]] = {name: {"stability": name} for name in FORMS} | {
    "piggyback": {"piggyback": True},
    "adaptive": {"trigger": "adaptive"},
    "errors": {"errors": "coordp"},
}
"""Other ways to find out what all hold."""


@pytest.mark.parametrize("kind", ["simulated", pytest.param("live", marks=pytest.mark.live)])
@pytest.mark.parametrize("options", WAYS.values(), ids=list(WAYS))
def test_every_way_to_find_what_all_hold(open_stage: OpenStage, kind: str, options: dict[str, Any]) -> None:
    stage = open_stage(kind, "fifo", 1, options=options)
    before = stage.memory()
    stage.trouble(loss=0.05, reordering=0.1, duplication=0.1)
    stage.until_delivered(stage.send_all(10))
    first = stage.sites[0]
    stage.send_all(5)
    stage.kill(first)
    stage.until_delivered(stage.send_all(10), stage.present())
    stage.restart(first)
    # A sender that learns late that the newcomer is back may have sent before: that is not the newcomer's.
    stage.until_delivered(stage.send_all(5), [site for site in stage.sites if site != first])
    conclude(stage, before)


# In a total order no member waits for another: both sides continue, and have two orders.
@pytest.mark.parametrize(("kind", "order", "seed"), arms(("fifo", "sequencer")))
def test_a_partition_that_heals(open_stage: OpenStage, kind: str, order: str, seed: int) -> None:
    stage = open_stage(kind, order, seed)
    before = stage.memory()
    first, second, third = stage.sites
    stage.partition([first, second], [third])
    labels = stage.send_all(10, [first, second])
    stage.send(third, 5)
    stage.until_delivered(labels, [first, second])
    assert not set(labels) & set(stage.delivered[third])
    stage.heal()
    conclude(stage, before)


@every_arm
def test_members_are_killed_and_restarted(open_stage: OpenStage, kind: str, order: str, seed: int) -> None:
    """The first, and once all are together again the last."""
    stage = open_stage(kind, order, seed)
    before = stage.memory()
    for site in (stage.sites[0], stage.sites[-1]):
        stage.until_delivered(stage.send_all(10))
        stage.send_all(10)
        stage.kill(site)
        stage.send_all(10)
        stage.restart(site)
        stage.send_all(10)
        stage.close()
    conclude(stage, before)


@every_arm
def test_a_member_stands_still_for_seconds(open_stage: OpenStage, kind: str, order: str, seed: int) -> None:
    stage = open_stage(kind, order, seed, mtu=LARGE_FRAMES)
    before = stage.memory()
    *rest, last = stage.sites
    stage.send_all(10)
    stage.stop(last)
    # More than the windows, and than memory may grow by: the others go on without it and keep nothing for it.
    for _ in range(20):
        labels = [label for site in rest for label in stage.send(site, 10, size=100_000)]
        stage.until_delivered(labels, rest)
    assert not stage.wait(lambda: False, 2.0)
    stage.proceed(last)
    conclude(stage, before)


@every_arm
def test_a_member_leaves_and_returns(open_stage: OpenStage, kind: str, order: str, seed: int) -> None:
    stage = open_stage(kind, order, seed)
    before = stage.memory()
    *rest, last = stage.sites
    labels = stage.send_all(10)
    stage.until_delivered(labels)
    stage.leave(last)
    stage.until_delivered(stage.send_all(10), rest)
    stage.restart(last)
    stage.until_delivered(stage.send_all(10), stage.sites)
    conclude(stage, before)


@every_arm
def test_an_application_does_not_read(open_stage: OpenStage, kind: str, order: str, seed: int) -> None:
    stage = open_stage(kind, order, seed, queue_mb=1)
    before = stage.memory()
    *rest, last = stage.sites
    stage.stop_reading(last)
    labels = [label for site in rest for label in stage.send(site, 100, size=20_000)]
    stage.until_delivered(labels, rest)
    assert not stage.has(last, labels)
    stage.read_again(last)
    conclude(stage, before)


@pytest.mark.live
@pytest.mark.parametrize("order", ORDERS)
def test_a_disk_is_full(open_stage: OpenStage, order: str) -> None:
    """For real only: a simulated member's trace has no disk.

    The member whose trace cannot be written ends, saying why; the others go on.
    """
    last: Site = "s2"
    stage = open_stage("live", order, 0, disk_bytes={last: 32 << 10})
    assert isinstance(stage, LiveStage)
    before = stage.memory()
    stage.gone.add(last)
    while not stage.ended(last):
        stage.until_delivered(stage.send_all(2), stage.present())
    assert "No space left" in stage.errors(last)
    conclude(stage, before)


@pytest.mark.parametrize(
    ("order", "sabotage"),
    [("fifo", "duplicate"), ("fifo", "forge"), ("sequencer", "swap"), ("sequencer", "early-stable")],
)
def test_a_broken_promise_is_found(tmp_path: Path, order: str, sabotage: str) -> None:
    """What every test above ends with is able to fail."""
    stage = SimulatedStage(MEMBERS, order, tmp_path / "trace", 1, sabotage=sabotage)
    for _ in range(4):
        stage.until_delivered(stage.send_all(10))
    with pytest.raises(AssertionError, match="promises were broken"):
        conclude(stage, {})
