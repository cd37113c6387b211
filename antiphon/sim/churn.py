"""Schedules of faults: which sites are absent, down or cut off, and when; drawn from a seed, then applied.

A schedule is a list of spells. Each begins and ends, so that every run heals: after `healed_ns` all sites are
up, present and connected. Absences of one site never overlap each other or its crashes. Suspicion follows a
spell after a detection delay, as from a detector that is right but late.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.sim.layers import Partition
from antiphon.sim.world import World


@dataclass(frozen=True, kw_only=True)
class Spell:
    """A stretch of time, its end not included, in which something is wrong."""

    begin_ns: Nanoseconds
    end_ns: Nanoseconds

    def overlaps(self, other: "Spell", margin_ns: Nanoseconds = 0) -> bool:
        return self.begin_ns < other.end_ns + margin_ns and other.begin_ns < self.end_ns + margin_ns


@dataclass(frozen=True, kw_only=True)
class Absence(Spell):
    """A site is away and keeps its memory."""

    site: Site


@dataclass(frozen=True, kw_only=True)
class Crash(Spell):
    """A site is down and restarts without memory."""

    site: Site


@dataclass(frozen=True, kw_only=True)
class Split(Spell):
    """Some sites are cut off from the rest."""

    cell: tuple[Site, ...]


Fault = Absence | Crash | Split


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long spells last and how long it is calm between them, on average."""

    calm_ns: Nanoseconds
    trouble_ns: Nanoseconds


def _lasting(random: Random, mean_ns: Nanoseconds) -> Nanoseconds:
    """A time from half to one and a half of the mean: varied, but never so short that nothing happens."""
    return random.randint(mean_ns // 2, mean_ns + mean_ns // 2)


def draw_absences(
    random: Random, sites: Iterable[Site], horizon_ns: Nanoseconds, pace: Pace
) -> list[Absence]:
    """Each of the sites alternates presence and absence up to the horizon."""
    absences = []
    for site in sites:
        begin_ns = _lasting(random, pace.calm_ns)
        while begin_ns < horizon_ns:
            end_ns = begin_ns + _lasting(random, pace.trouble_ns)
            absences.append(Absence(site=site, begin_ns=begin_ns, end_ns=end_ns))
            begin_ns = end_ns + _lasting(random, pace.calm_ns)
    return absences


def draw_crashes(
    random: Random, sites: Sequence[Site], count: int, horizon_ns: Nanoseconds, pace: Pace
) -> list[Crash]:
    """That many crashes, each of a random site; a crash that finds its site down is left out."""
    crashes: list[Crash] = []
    for _ in range(count):
        begin_ns = random.randint(0, horizon_ns)
        end_ns = begin_ns + _lasting(random, pace.trouble_ns)
        crash = Crash(site=random.choice(sites), begin_ns=begin_ns, end_ns=end_ns)
        if not any(
            crash.site == other.site and crash.overlaps(other, pace.calm_ns // 2) for other in crashes
        ):
            crashes.append(crash)
    return crashes


def draw_splits(
    random: Random, sites: Sequence[Site], count: int, horizon_ns: Nanoseconds, pace: Pace
) -> list[Split]:
    """That many partitions, one after another, each of a random cell against the rest."""
    splits: list[Split] = []
    for _ in range(count):
        begin_ns = random.randint(0, horizon_ns)
        end_ns = begin_ns + _lasting(random, pace.trouble_ns)
        cell = tuple(sorted(random.sample(sites, random.randint(1, max(1, len(sites) - 1)))))
        split = Split(cell=cell, begin_ns=begin_ns, end_ns=end_ns)
        if not any(split.overlaps(other) for other in splits):
            splits.append(split)
    return splits


def without_meetings(faults: Iterable[Fault]) -> list[Fault]:
    """Leave out an absence that meets a crash of its own site: one site has one trouble at a time."""
    everything = list(faults)
    crashes = [fault for fault in everything if isinstance(fault, Crash)]
    return [
        fault
        for fault in everything
        if not isinstance(fault, Absence)
        or not any(crash.site == fault.site and crash.overlaps(fault, 1) for crash in crashes)
    ]


def alone(faults: Iterable[Fault], site: Site, margin_ns: Nanoseconds) -> list[Fault]:
    """Drop everything within the margin of a crash of this site; of two such crashes, the later."""
    everything = sorted(faults, key=lambda fault: fault.begin_ns)
    kept: list[Fault] = []
    for fault in everything:
        own = isinstance(fault, Crash) and fault.site == site
        if own and not any(fault.overlaps(other, margin_ns) for other in kept):
            kept.append(fault)
    others = [fault for fault in everything if not (isinstance(fault, Crash) and fault.site == site)]
    return kept + [fault for fault in others if not any(fault.overlaps(crash, margin_ns) for crash in kept)]


def healed_ns(faults: Iterable[Fault]) -> Nanoseconds:
    """When the last of them is over."""
    return max((fault.end_ns for fault in faults), default=0)


def troubled_sites(faults: Iterable[Fault]) -> set[Site]:
    """The sites that some fault touches; a partition touches everyone in its cell."""
    touched: set[Site] = set()
    for fault in faults:
        touched.update(fault.cell if isinstance(fault, Split) else (fault.site,))
    return touched


def schedule(
    world: World,
    faults: Iterable[Fault],
    partition: Partition | None = None,
    detection_ns: Nanoseconds | None = None,
) -> None:
    """Put the faults on a world that has not started; with a detection delay, suspicion follows them."""
    for fault in faults:
        if isinstance(fault, Split):
            assert partition is not None, "a split needs the partition layer that the world was given"
            _schedule_split(world, fault, partition)
            continue
        begin, end = (
            (world.crash, world.restart) if isinstance(fault, Crash) else (world.depart, world.come_back)
        )
        world.at(fault.begin_ns, lambda act=begin, site=fault.site: act(site))  # type: ignore[misc]
        world.at(fault.end_ns, lambda act=end, site=fault.site: act(site))  # type: ignore[misc]
        if detection_ns is not None and fault.begin_ns + detection_ns < fault.end_ns:
            _schedule_suspicion(world, fault, detection_ns)


def _schedule_split(world: World, split: Split, partition: Partition) -> None:
    cell = [world.host(site).index for site in split.cell]
    world.at(split.begin_ns, lambda: partition.split([cell]))
    world.at(split.end_ns, partition.heal)


def _schedule_suspicion(world: World, fault: Absence | Crash, detection_ns: Nanoseconds) -> None:
    world.at(fault.begin_ns + detection_ns, lambda: world.suspect(fault.site))
    world.at(fault.end_ns + detection_ns, lambda: world.restore(fault.site))
