"""Chapter 3 of Guo's text: figure 3.2, and why its 'Live' array is not what we gossip."""

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

from antiphon.core.effects import Appeared
from antiphon.core.time import MILLISECOND_NS
from antiphon.protocols.detection.gossip import GossipConfiguration
from tests.protocols.harness.detection_group import Group

K_FAIL = 22
"""For eight members, subset 1 and a mistake of one in a million."""


class LiveArray:
    """Figure 3.1 to the letter: how many steps ago each was heard of, merged by the minimum."""

    def __init__(self, size: int, site: int) -> None:
        self.site = site
        self.live = [0] * size

    def step(self) -> None:
        self.live = [0 if place == self.site else age + 1 for place, age in enumerate(self.live)]

    def data_from(self, site: int) -> None:
        self.live[site] = 0

    def merge(self, other: list[int]) -> None:
        self.live = [min(pair) for pair in zip(self.live, other, strict=True)]

    def failed(self) -> set[int]:
        return {place for place, age in enumerate(self.live) if age >= K_FAIL}


def test_figure_3_2() -> None:
    member = LiveArray(4, 0)
    member.step()
    assert member.live == [0, 1, 1, 1]
    member.step()
    member.data_from(2)
    assert member.live == [0, 2, 0, 2]
    member.live = [0, 4, 3, 6]
    member.merge([2, 1, 2, 0])
    assert member.live == [0, 1, 2, 0]


def literal_group(
    random: Random, size: int, steps: int, each: Callable[[int, list[LiveArray]], None]
) -> None:
    """Members of the literal protocol gossip by steps, each to one other; the last place is a joiner's."""
    members = [LiveArray(size, site) for site in range(size)]
    for now in range(steps):
        each(now, members)
        for member in [one for one in members if one.site >= 0]:
            member.step()
            random.choice([other for other in members if other is not member]).merge(member.live)


def test_a_joiner_with_a_literal_array_brings_the_dead_back_for_everyone() -> None:
    """Erratum: the array of zeros reports that all members were heard just now, also dead ones."""
    known: list[int] = []

    def each(now: int, members: list[LiveArray]) -> None:
        if now == 0:
            members.pop()  # it is not there yet
        if now == 10:
            del members[0]  # it crashes
        if now == 10 + 2 * K_FAIL:
            assert all(member.failed() >= {0} for member in members)
            members.append(LiveArray(8, 7))
        if now > 10 + 2 * K_FAIL:
            known.append(sum(0 in member.failed() for member in members))

    literal_group(Random(1), 8, 10 + 3 * K_FAIL, each)
    assert min(known) == 0, "for a while every member took the dead one for alive"


def test_a_joiner_revives_no_dead_member_with_counters() -> None:
    """The same with ours, several times over; the joiner knows the names of the founders."""
    for seed in range(5):
        group = Group("gossip", 7, k_fail=K_FAIL)
        group.now += seed * MILLISECOND_NS
        group.pass_time(10 + seed)
        group.crash("a")
        group.pass_time(2 * K_FAIL)
        assert group.suspecting("a") == set("bcdefg")
        group.join("h")
        group.pass_time(6 * K_FAIL)
        assert not any("a" in group.told(site, Appeared) for site in "bcdefgh")
        assert group.suspecting("a") == set("bcdefgh")


def test_a_member_that_wakes_late_revives_no_dead_member() -> None:
    """Its array is as old as its sleep, and older than the crash of a forgotten member."""
    group = Group("gossip", 5, k_fail=K_FAIL)
    group.pass_time(20)
    asleep = {key: time for key, time in group.timers.items() if key[0] == "e"}
    group.crash("e")
    group.pass_time(3)
    group.crash("a")
    group.pass_time(8 * K_FAIL)
    group.cut.discard("e")
    group.timers |= dict.fromkeys(asleep, group.now)
    group.pass_time(3 * K_FAIL)
    assert not any("a" in group.told(site, Appeared) for site in "bcd")
    assert group.suspecting("e") == set()


def test_k_fail_grows_as_the_logarithm() -> None:
    """The text's n log n is K_fail's time when the step is proportional to n (claim G23)."""
    knobs: Any = GossipConfiguration(mistake=1e-6)
    steps = [knobs.steps_to_fail(members) for members in (8, 16, 32, 64, 128, 256)]
    assert steps == [22, 25, 27, 30, 32, 34]
    growth = [after - before for before, after in pairwise(steps)]
    assert max(growth) - min(growth) <= 1
