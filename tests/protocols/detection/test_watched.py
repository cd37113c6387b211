"""A detector joined with a stability protocol: the dead block nothing; who is back is waited for again."""

import os
from random import Random
from typing import Any, cast

import pytest

from antiphon.core.effects import Appeared, Effect, SetTimer, Stable, Vanished
from antiphon.core.errors import UsageError
from antiphon.core.ids import site_names
from antiphon.core.inputs import Input, Received, RoundTriggered, TimerFired
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.protocols.detection import (
    DETECTORS,
    Detector,
    GossipConfiguration,
    GossipDetection,
    Heartbeat,
    HeartbeatConfiguration,
    Polling,
    PollingConfiguration,
)
from antiphon.protocols.detection.heartbeat import Alive
from antiphon.protocols.stability import PROTOCOLS, Setting
from antiphon.protocols.stability.base import Objective
from antiphon.protocols.stability.coordp import Acknowledgement, CoordP
from antiphon.protocols.stability.watched import DETECTOR, Watched
from antiphon.sim import churn
from antiphon.sim.layers import Duplication, Loss, Partition, Reordering
from antiphon.sim.mesh import Mesh
from antiphon.sim.world import World

STEP_NS = 20 * MILLISECOND_NS
DELAY_NS = MILLISECOND_NS
SEEDS = max(1, int(os.environ.get("ANTIPHON_SWARM_SEEDS", "240")) // 240)
"""Of each pair of protocol and detector; there are many pairs."""
DETECTED_NS = SECOND_NS
"""By then every detector has noticed."""
PACE = churn.Pace(calm_ns=600 * MILLISECOND_NS, trouble_ns=900 * MILLISECOND_NS)

protocols = pytest.mark.parametrize("protocol", PROTOCOLS)
kinds = pytest.mark.parametrize("kind", DETECTORS)


def build_detector(kind: str, site: str, members: tuple[str, ...], random: Random) -> Detector:
    if kind == "heartbeat":
        return Heartbeat(site, members, HeartbeatConfiguration(period_ns=STEP_NS, missing=4), random)
    if kind == "polling":
        knobs = PollingConfiguration(period_ns=4 * STEP_NS, timeout_ns=STEP_NS - 1, retries=3)
        return Polling(site, members, knobs, random)
    return GossipDetection(site, members, GossipConfiguration(step_ns=STEP_NS, mistake=1e-2), random)


class Witness:
    """Stands around a member and checks whatever it declares."""

    def __init__(self, stage: "Stage", site: str) -> None:
        self.stage = stage
        self.site = site
        setting = Setting(
            site=site, members=stage.sites, view=0, objective=Objective.LEAST,
            repeat_ns=10 * DELAY_NS, round_ns=STEP_NS, random=stage.seeds.stream(f"stability/{site}"),
        )  # fmt: skip
        self.layer = cast(Any, PROTOCOLS[stage.protocol].make(setting))
        random = stage.seeds.stream(f"detector/{site}")
        self.detector = build_detector(stage.kind, site, stage.sites, random)
        self.watched = Watched(self.layer, self.detector)

    def handle(self, now: int, event: Input) -> list[Effect]:
        before, rounds = self.layer.stable, self.layer.rounds_finished
        effects = self.watched.handle(now, event)
        for effect in effects:
            if isinstance(effect, Vanished):
                self.stage.ever_suspected.add(effect.site)
            elif isinstance(effect, Stable):
                self.check(effect)
        if self.layer.rounds_finished > rounds and self.stage.protocol == "coordp":
            self.check_result(before)
        assert all(now >= then for now, then in zip(self.layer.stable, before, strict=True))
        return effects

    def check(self, news: Stable) -> None:
        """This member holds it, and so do all members that were never suspected."""
        place = self.stage.sites.index(news.sender)
        assert news.number + news.count <= self.layer.held[place]
        for site, held in self.stage.held.items():
            if site not in self.stage.ever_suspected and site not in self.stage.late:
                assert news.number + news.count <= held[place], (self.site, site, news)

    def check_result(self, before: tuple[int, ...]) -> None:
        """Members that the computing one does not suspect have held, in some life, what is new."""
        for site, held in self.stage.most_held.items():
            if site != self.site and not self.detector.suspects(site):
                for then, now, has in zip(before, self.layer.stable, held, strict=True):
                    assert now == then or now <= has, (self.site, site)


class Stage:
    """A world of watched members, and an application that sends, receives and wants rounds."""

    def __init__(self, protocol: str, kind: str, *, size: int = 5, seed: int = 0, late: int = 0) -> None:
        self.protocol, self.kind = protocol, kind
        self.seeds = Seeds(seed)
        self.random = self.seeds.stream("stage")
        self.sites = tuple(site_names(size))
        self.late = set(self.sites[size - late :])
        self.partition = Partition(size)
        self.ever_suspected: set[str] = set()
        self.sent = dict.fromkeys(self.sites, 0)
        self.held = {site: [0] * size for site in self.sites}
        self.most_held = {site: [0] * size for site in self.sites}
        self.members: dict[str, Witness] = {}
        self.greedy: set[str] = set(self.sites)
        """Who takes everything at once."""
        self.fasting: set[str] = set()
        """Who takes nothing."""
        self.layers: list[Any] = [self.partition]
        self.world: Any = None

    def open(self) -> None:
        self.world = World(
            sites=self.sites,
            build=self.build,
            network=Mesh(len(self.sites), self.seeds, delay_ns=DELAY_NS, jitter_ns=DELAY_NS),
            size_of=lambda _: 0,
            layers=self.layers,
        )
        for site in self.late:
            self.world.crash(site)
        self.world.start()
        self.world.at(STEP_NS, self.work)

    def build(self, site: str) -> Witness:
        """A member that begins, or begins anew with nothing."""
        self.held[site] = [0] * len(self.sites)
        self.members[site] = Witness(self, site)
        return self.members[site]

    def work(self) -> None:
        """A moment of the application's: something is sent, something received, a round wanted."""
        self.sent[self.random.choice(self.sites)] += self.random.randint(0, 2)
        for site in self.sites:
            takes = site in self.greedy or (site not in self.fasting and self.random.random() < 0.5)
            if takes and self.world.host(site).present:
                self.take(site)
        self.trigger()
        self.world.at(self.world.now + STEP_NS, self.work)

    def take(self, site: str) -> None:
        self.held[site] = [self.sent[sender] for sender in self.sites]
        self.most_held[site] = self.held[site]
        self.members[site].layer.hold_all(self.held[site])

    def trigger(self) -> None:
        for site, member in self.members.items():
            host = self.world.host(site)
            if host.present and member.layer.coordinator == site and not member.layer.under_way:
                self.world.give(host, RoundTriggered())

    def run(self, span_ns: int) -> None:
        self.world.run(self.world.now + span_ns)

    def stable_at(self, *sites: str) -> bool:
        """Whether everything that was sent some time ago is stable there now."""
        wanted = [self.sent[sender] for sender in self.sites]
        self.run(DETECTED_NS)
        return all(
            has >= count
            for site in sites
            for has, count in zip(self.members[site].layer.stable, wanted, strict=True)
        )


@protocols
@kinds
def test_a_dead_member_blocks_nothing(protocol: str, kind: str) -> None:
    stage = Stage(protocol, kind)
    stage.open()
    stage.run(DETECTED_NS)
    assert stage.ever_suspected == set()
    for victim in ("s3", "s0"):
        stage.world.crash(victim)
        stage.run(DETECTED_NS)
    assert stage.stable_at("s1", "s2", "s4")


@protocols
@kinds
def test_who_was_suspected_wrongly_is_waited_for_again(protocol: str, kind: str) -> None:
    stage = Stage(protocol, kind)
    stage.open()
    stage.run(DETECTED_NS)
    stage.partition.split([[4]])
    stage.greedy.discard("s4")
    stage.run(DETECTED_NS)
    assert stage.ever_suspected == set(stage.sites)
    assert stage.stable_at("s0", "s1", "s2", "s3"), "they went on without it"
    stage.partition.heal()
    stage.run(2 * DETECTED_NS)
    assert not any(member.detector.suspects("s4") for member in stage.members.values())
    stage.take("s4")
    last = list(stage.held["s4"])
    stage.fasting.add("s4")
    stage.run(2 * DETECTED_NS)
    assert sum(stage.sent.values()) > sum(last)
    for member in stage.members.values():
        assert all(has <= limit for has, limit in zip(member.layer.stable, last, strict=True))
    stage.fasting.clear()
    assert stage.stable_at(*stage.sites)


@protocols
@kinds
def test_a_member_that_joins_is_waited_for_from_then_on(protocol: str, kind: str) -> None:
    stage = Stage(protocol, kind, late=1)
    stage.open()
    stage.run(DETECTED_NS)
    assert stage.stable_at("s0", "s1", "s2", "s3")
    stage.world.restart("s4")
    stage.run(2 * DETECTED_NS)
    assert not any(member.detector.suspects("s4") for member in stage.members.values())
    assert stage.stable_at(*stage.sites)


@protocols
@kinds
def test_swarm(protocol: str, kind: str) -> None:
    for seed in range(SEEDS):
        print(f"Stage({protocol!r}, {kind!r}, seed={seed}): rough_weather")
        rough_weather(protocol, kind, seed)


def rough_weather(protocol: str, kind: str, seed: int) -> None:
    """Every fault at once, under safety; then all is healed, and everything becomes stable everywhere."""
    random = Random(f"watched/{protocol}/{kind}/{seed}")
    stage = Stage(protocol, kind, size=random.randint(3, 6), seed=seed, late=random.randint(0, 1))
    stage.greedy.clear()
    loss = Loss(stage.seeds, random.choice([0.0, 0.1, 0.3]))
    stage.layers += [
        loss,
        Duplication(stage.seeds, random.choice([0.0, 0.3]), 5 * DELAY_NS),
        Reordering(stage.seeds, random.choice([0.0, 0.3]), 5 * DELAY_NS),
    ]
    stage.open()
    here = [site for site in stage.sites if site not in stage.late]
    horizon_ns = 3 * SECOND_NS
    faults = churn.without_meetings(
        [
            *churn.draw_absences(random, here[-1:], horizon_ns, PACE),
            *churn.draw_crashes(random, here, 3, horizon_ns, PACE),
            *churn.draw_splits(random, here, 2, horizon_ns, PACE),
        ]
    )
    churn.schedule(stage.world, faults, stage.partition)
    for site in stage.late:
        stage.world.at(horizon_ns // 2, lambda site=site: stage.world.restart(site))
    stage.run(max(horizon_ns, churn.healed_ns(faults)))
    loss._probability = 0.0
    stage.greedy = set(stage.sites)
    stage.run(3 * SECOND_NS)
    suspicions = [
        (site, other)
        for site, member in stage.members.items()
        for other in stage.sites
        if member.detector.suspects(other)
    ]
    assert suspicions == []
    assert stage.stable_at(*stage.sites)


# The seam itself


def a_pair(kind: str = "heartbeat") -> Watched:
    random = Random(0)
    return Watched(
        CoordP("a", ("a", "b"), ("a", "b"), None, random), build_detector(kind, "a", ("a", "b"), random)
    )


def test_timers_of_both_are_kept_apart() -> None:
    watched = a_pair()
    assert watched.detector.handle(0, TimerFired("tick"))
    effects = watched.handle(0, TimerFired(DETECTOR + "tick"))
    assert [effect for effect in effects if isinstance(effect, SetTimer)] == [
        SetTimer(DETECTOR + "tick", STEP_NS)
    ]
    assert watched.handle(0, TimerFired("tick")) == [], "not a timer of the stability protocol"


def test_a_member_that_the_detector_misses_is_suspected_and_restored() -> None:
    watched = a_pair()
    watched.handle(0, RoundTriggered())
    assert watched.stability.under_way
    effects = [effect for _ in range(6) for effect in watched.handle(0, TimerFired(DETECTOR + "tick"))]
    assert [effect.site for effect in effects if isinstance(effect, Vanished)] == ["b"]
    assert not watched.stability.under_way
    effects = watched.handle(0, Received("b", Alive(0, 1)))
    assert effects == [Appeared("b")]
    watched.handle(0, RoundTriggered())
    assert watched.stability.under_way


def test_a_pdu_of_the_stability_protocol_is_a_sign_of_life() -> None:
    watched = a_pair()
    for _ in range(6):
        watched.handle(0, TimerFired(DETECTOR + "tick"))
    assert watched.detector.suspects("b")
    effects = watched.handle(0, Received("b", Acknowledgement(0, bytes(16))))
    assert Appeared("b") in effects
    assert watched.stability.coordinator == "a"


def test_one_member_has_one_name() -> None:
    random = Random(0)
    with pytest.raises(UsageError):
        Watched(CoordP("a", ("a", "b"), ("a",), None, random), build_detector("polling", "b", ("b",), random))
