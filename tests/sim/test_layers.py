"""The fault layers, and the schedules that put crashes, absences and partitions on a world."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.effects import Effect
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Departed, Input, Restored, Returned, Start, Suspected
from antiphon.core.seeds import Seeds
from antiphon.sim import churn
from antiphon.sim.churn import Absence, Crash, Fault, Pace, Split
from antiphon.sim.layers import Delay, Duplication, Loss, Partition, Reordering
from antiphon.sim.mesh import Mesh
from antiphon.sim.network import Arrival, Layer
from antiphon.sim.world import World
from tests.sim.fakes import Note, Scripted

ARRIVALS = [Arrival(index * 10, 1, 0, Note(str(index)), index % 2 == 0) for index in range(400)]
PACE = Pace(calm_ns=100, trouble_ns=60)


def through(layer: Layer) -> list[Arrival]:
    return [outcome for arrival in ARRIVALS for outcome in layer.apply(arrival)]


def test_loss_drops_its_share_and_nothing_else_happens() -> None:
    outcomes = through(Loss(Seeds(1), 0.25))
    assert 60 < len(ARRIVALS) - len(outcomes) < 140
    assert set(outcomes) <= set(ARRIVALS)


def test_delay_holds_everything_up_within_its_span() -> None:
    outcomes = through(Delay(Seeds(1), 5, 9))
    late = [after.time_ns - before.time_ns for before, after in zip(ARRIVALS, outcomes, strict=True)]
    assert set(late) == {5, 6, 7, 8, 9}
    assert [outcome.delayed(-outcome.time_ns) for outcome in outcomes] == [
        arrival.delayed(-arrival.time_ns) for arrival in ARRIVALS
    ]


def test_duplication_lets_some_come_twice_the_copy_no_earlier() -> None:
    layer = Duplication(Seeds(1), 0.25, 30)
    pairs = [outcomes for outcomes in map(layer.apply, ARRIVALS) if len(outcomes) == 2]
    assert 60 < len(pairs) < 140
    assert all(0 <= copy.time_ns - original.time_ns <= 30 for original, copy in pairs)


def test_reordering_lets_later_arrivals_overtake() -> None:
    outcomes = through(Reordering(Seeds(1), 0.25, 100))
    held = sum(before != after for before, after in zip(ARRIVALS, outcomes, strict=True))
    assert 60 < held < 140
    times = [outcome.time_ns for outcome in outcomes]
    assert times != sorted(times)


def test_a_partition_separates_cells_until_it_is_healed() -> None:
    layer = Partition(4)

    def passes(source: int, target: int) -> bool:
        return bool(layer.apply(Arrival(0, target, source, Note(""))))

    layer.split([(0,), (1, 2)])
    assert passes(1, 2)
    assert not passes(0, 1)
    assert not passes(2, 3)
    layer.heal()
    assert all(passes(source, target) for source in range(4) for target in range(4))


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_certain_probabilities_are_certain(probability: float) -> None:
    assert len(through(Loss(Seeds(0), probability))) == len(ARRIVALS) * (1 - probability)
    assert len(through(Duplication(Seeds(0), probability, 0))) == len(ARRIVALS) * (1 + probability)


def test_each_layer_has_a_stream_of_its_own() -> None:
    alone = through(Loss(Seeds(7), 0.5))
    other = Duplication(Seeds(7), 0.5, 10)
    loss = Loss(Seeds(7), 0.5)
    beside: list[Arrival] = []
    for arrival in ARRIVALS:
        other.apply(arrival)
        beside += loss.apply(arrival)
    assert beside == alone
    assert through(Loss(Seeds(8), 0.5)) != alone
    first = ARRIVALS[0]
    lost = [not Loss(Seeds(seed), 0.5).apply(first) for seed in range(64)]
    doubled = [len(Duplication(Seeds(seed), 0.5, 10).apply(first)) == 2 for seed in range(64)]
    held = [Reordering(Seeds(seed), 0.5, 10**9).apply(first) != (first,) for seed in range(64)]
    assert len({tuple(lost), tuple(doubled), tuple(held)}) == 3


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError):
        Loss(Seeds(0), 1.1)
    with pytest.raises(UsageError):
        Delay(Seeds(0), 5, 4)
    with pytest.raises(UsageError):
        Duplication(Seeds(0), 0.5, -1)
    with pytest.raises(UsageError):
        Reordering(Seeds(0), -0.5, 1)
    with pytest.raises(UsageError):
        Partition(3).split([(0, 1), (1,)])


# Schedules


@given(st.integers(0, 10**6))
def test_absences_of_a_site_alternate_with_presence_and_begin_within_the_horizon(seed: int) -> None:
    absences = churn.draw_absences(Random(seed), ["a", "b"], 1000, PACE)
    assert {absence.site for absence in absences} == {"a", "b"}
    for site in "ab":
        own = [absence for absence in absences if absence.site == site]
        for before, after in pairwise(own):
            assert before.end_ns + PACE.calm_ns // 2 <= after.begin_ns
        assert all(absence.begin_ns < 1000 and absence.end_ns > absence.begin_ns for absence in own)


def draw(seed: int) -> list[Fault]:
    random = Random(seed)
    sites = ["a", "b", "c", "d"]
    return [
        *churn.draw_absences(random, ["b", "c"], 1000, PACE),
        *churn.draw_crashes(random, sites, 5, 1000, PACE),
        *churn.draw_splits(random, sites, 3, 1000, PACE),
    ]


@given(st.integers(0, 10**6))
def test_one_site_has_one_trouble_at_a_time(seed: int) -> None:
    faults = churn.without_meetings(draw(seed))
    own = [fault for fault in faults if isinstance(fault, Absence | Crash)]
    for index, fault in enumerate(own):
        for other in own[index + 1 :]:
            assert fault.site != other.site or not fault.overlaps(other)
    splits = [fault for fault in faults if isinstance(fault, Split)]
    assert all(not one.overlaps(other) for one in splits for other in splits if one is not other)


@given(st.integers(0, 10**6))
def test_a_crash_that_must_be_alone_is(seed: int) -> None:
    faults = churn.alone(draw(seed), "a", 50)
    crashes = [fault for fault in faults if isinstance(fault, Crash) and fault.site == "a"]
    for crash in crashes:
        for other in faults:
            assert (
                other is crash or other.begin_ns >= crash.end_ns + 50 or crash.begin_ns >= other.end_ns + 50
            )
    had = any(isinstance(fault, Crash) and fault.site == "a" for fault in draw(seed))
    assert bool(crashes) == had


def test_faults_heal_and_name_whom_they_touch() -> None:
    faults: list[Fault] = [
        Crash(site="a", begin_ns=5, end_ns=20),
        Split(cell=("b", "c"), begin_ns=0, end_ns=30),
    ]
    assert churn.healed_ns(faults) == 30
    assert churn.healed_ns([]) == 0
    assert churn.troubled_sites(faults) == {"a", "b", "c"}


def test_a_schedule_reaches_the_world_and_suspicion_follows_late() -> None:
    members = {name: [Scripted()] for name in "abc"}

    def build(site: str) -> Scripted:
        members[site].append(Scripted())
        return members[site][-1]

    world = World(sites="abc", build=build, network=Mesh(3, Seeds(0), delay_ns=1), size_of=lambda _: 1)
    faults: list[Fault] = [
        Absence(site="b", begin_ns=10, end_ns=50),
        Crash(site="c", begin_ns=100, end_ns=140),
    ]
    churn.schedule(world, faults, detection_ns=5)
    world.start()
    world.run()

    def seen(member: Scripted) -> list[tuple[int, Input]]:
        return member.seen

    assert seen(members["a"][-1]) == [
        (0, Start()),
        (15, Suspected("b")),
        (55, Restored("b")),
        (105, Suspected("c")),
        (145, Restored("c")),
    ]
    assert seen(members["b"][-1])[:3] == [(0, Start()), (10, Departed()), (50, Returned())]
    assert seen(members["c"][-1]) == [(140, Start(1, 0, returning=True))]


def test_a_split_is_put_on_and_taken_off() -> None:
    def answer(_: Input) -> list[Effect]:
        return []

    partition = Partition(2)
    network = Mesh(2, Seeds(0), delay_ns=1)
    world = World(
        sites="ab", build=lambda _: Scripted(answer), network=network, size_of=lambda _: 1, layers=[partition]
    )
    churn.schedule(world, [Split(cell=("b",), begin_ns=10, end_ns=20)], partition)
    probe = Arrival(0, 1, 0, Note(""))
    passed: list[bool] = []
    for moment in (5, 15, 25):
        world.at(moment, lambda: passed.append(bool(partition.apply(probe))))
    world.run()
    assert passed == [True, False, True]
