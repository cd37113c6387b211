"""`antiphon simulate failure-detection`: how soon, how surely and at what cost members detect failures.

Source: K. Guo, Scalable Message Stability Detection Protocols, chapter 3. A group on the mesh settles, then
members crash and others join at random moments; the run ends when everyone knows of all of it and as much
time again has passed in which a member might bring back a crashed one.

How often a detector may err is chosen by `--mistake`, per step; each kind sets its own threshold by that and
by the loss: gossip its K_fail, the heartbeat how many may be missing, polling how often it asks again.
`--bandwidth` makes gossip's step as long as its PDUs need at that many bytes a second, so that it grows with
the group: what the text has in mind when it says that K_fail grows as n log n.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Annotated, Final

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site, site_names
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import Nanoseconds, from_seconds, to_seconds
from antiphon.core.wire import Codec, Pdu
from antiphon.protocols.detection import (
    DETECTORS,
    PDUS,
    Detector,
    GossipConfiguration,
    GossipDetection,
    Heartbeat,
    HeartbeatConfiguration,
    Polling,
    PollingConfiguration,
)
from antiphon.protocols.detection.gossip import LEAST_ARRIVAL, Gossip, Life
from antiphon.protocols.detection.heartbeat import missing_for
from antiphon.protocols.detection.polling import retries_for
from antiphon.sim.layers import Loss
from antiphon.sim.mesh import Mesh
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.world import Host, World

SECONDS_PER_MERGE: Final = 5e-7
PATIENCE: Final = 20
"""A run in which a member still does not know is given up after this many thresholds."""
TYPICAL_COUNTER: Final = 100
"""A counter that takes as many bytes as most do."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One group, one detector, some crashes and joins."""

    members: Annotated[int, "members at the beginning"] = 50
    kind: Annotated[str, "heartbeat, polling or gossip"] = "gossip"
    step: Annotated[float, "seconds of a gossip step, of a heartbeat's or a poll's period"] = 1.0
    subset: Annotated[int, "to how many each gossips in a step"] = 1
    loss: Annotated[float, "probability that an arrival is lost"] = 0.0
    crashes: Annotated[int, "members that crash for good"] = 1
    joins: Annotated[int, "members that join"] = 0
    mistake: Annotated[float, "probability of a mistake per step that sets the threshold"] = 1e-6
    k_fail: Annotated[int, "the threshold itself; 0 means by the mistake"] = 0
    bandwidth: Annotated[float, "bytes a second of each member's gossip, which set the step; 0: --step"] = 0.0
    delay_ms: Annotated[float, "one-way delay in milliseconds"] = 10.0

    def __post_init__(self) -> None:
        if self.kind not in DETECTORS:
            raise UsageError(
                f"There is no detector '{self.kind}'.", hint=f"Choose from: {', '.join(DETECTORS)}."
            )
        if self.members < 2 or not 1 <= self.subset < self.members or self.k_fail < 0:
            raise UsageError("A group has two members or more, and gossips to 1 to all others.")
        if not 0 <= self.crashes < self.members or self.joins < 0:
            raise UsageError("At least one member stays, and no count is negative.")
        if not 0 < self.mistake < 1 or not 0 <= self.loss <= 1 - LEAST_ARRIVAL:
            raise UsageError("A mistake's probability lies between 0 and 1, and some PDUs arrive.")
        if min(self.step, self.delay_ms) <= 0 or self.bandwidth < 0:
            raise UsageError("Times are positive, and a bandwidth is not negative.")
        if self.bandwidth and self.kind != "gossip":
            raise UsageError("Only gossip's step follows from a bandwidth.", hint="Give --step instead.")
        self.knobs()

    @property
    def step_ns(self) -> Nanoseconds:
        if not self.bandwidth:
            return from_seconds(self.step)
        lives = tuple(Life(site, 0, TYPICAL_COUNTER) for site in site_names(self.members))
        return from_seconds(self.subset * wire_size(Gossip(lives)) / self.bandwidth)

    @property
    def threshold(self) -> int:
        """Gossip's K_fail; heartbeats that are missing; requests without an answer."""
        arrival = 1 - self.loss
        if self.k_fail:
            return self.k_fail
        if self.kind == "heartbeat":
            return missing_for(self.members, self.mistake, arrival)
        if self.kind == "polling":
            return 1 + retries_for(self.members, self.mistake, arrival)
        return GossipConfiguration(
            subset=self.subset, mistake=self.mistake, arrival=arrival
        ).steps_to_fail(self.members)  # fmt: skip

    @property
    def patience_steps(self) -> int:
        """Within how many steps a crash ought to be known to all: a poll has its requests in one period."""
        return 3 if self.kind == "polling" else 2 * (self.threshold + 1)

    def knobs(self) -> GossipConfiguration | HeartbeatConfiguration | PollingConfiguration:
        largest_group = 2 * (self.members + self.joins)
        if self.kind == "heartbeat":
            return HeartbeatConfiguration(
                period_ns=self.step_ns, missing=self.threshold, largest_group=largest_group
            )
        if self.kind == "polling":
            timeout_ns = self.step_ns // (self.threshold + 1)
            if timeout_ns <= from_seconds(2 * self.delay_ms / 1000):
                raise UsageError(
                    f"{self.threshold} requests and their answers do not fit a period.",
                    hint="Lengthen --step, or allow more mistakes.",
                )
            return PollingConfiguration(
                period_ns=self.step_ns, timeout_ns=timeout_ns, retries=self.threshold - 1,
                largest_group=largest_group,
            )  # fmt: skip
        return GossipConfiguration(
            step_ns=self.step_ns, subset=self.subset, mistake=self.mistake, arrival=1 - self.loss,
            k_fail=self.k_fail or None, largest_group=largest_group,
        )  # fmt: skip

    def build(self, site: Site, members: tuple[Site, ...], random: Random) -> Detector:
        knobs = self.knobs()
        if isinstance(knobs, HeartbeatConfiguration):
            return Heartbeat(site, members, knobs, random)
        if isinstance(knobs, PollingConfiguration):
            return Polling(site, members, knobs, random)
        return GossipDetection(site, members, knobs, random)


@lru_cache(maxsize=1)
def _codec() -> Codec:
    return Codec(PDUS)


def wire_size(pdu: Pdu) -> int:
    """What a PDU takes as a datagram."""
    return len(_codec().encode(pdu, sender="s00"))


class Observation:
    """What each member knows about the others, and since when."""

    def __init__(self, world: World, everyone: tuple[Site, ...], joiners: tuple[Site, ...]) -> None:
        self._world = world
        self._everyone = everyone
        self.down_ns: dict[Site, Nanoseconds] = {}
        self.joined_ns: dict[Site, Nanoseconds] = {}
        self._joiners = set(joiners)
        self._waiting: dict[Site, set[Site]] = {}
        """The members about which others still have to learn something, and those others."""
        self._first_s: dict[Site, float] = {}
        self._last_s: dict[Site, float] = {}
        self.mistakes = 0
        self.flaps = 0
        world.on_presence = self._note

    def crash(self, site: Site) -> None:
        self.down_ns[site] = self._world.now
        self._waiting[site] = {other for other in self._everyone if self._is_there(other)} - {site}
        for waiting in self._waiting.values():
            waiting.discard(site)
        self._world.crash(site)

    def join(self, site: Site) -> None:
        self.joined_ns[site] = self._world.now
        self._waiting[site] = {other for other in self._everyone if self._is_there(other)} - {site}
        self._world.restart(site)

    def _is_there(self, site: Site) -> bool:
        return site not in self.down_ns and (site not in self._joiners or site in self.joined_ns)

    def _note(self, now: Nanoseconds, host: Host, effect: fx.Appeared | fx.Vanished) -> None:
        site = effect.site
        vanished = type(effect) is fx.Vanished
        if vanished == (site in self.down_ns):
            self._learn(now, host.site, site)
        elif vanished:
            self.mistakes += 1
        else:
            self.flaps += 1

    def _learn(self, now: Nanoseconds, who: Site, of: Site) -> None:
        """A crash or a join is known to one more; taking back a mistake teaches nothing new."""
        if who not in self._waiting.get(of, ()):
            return
        self._waiting[of].discard(who)
        took_s = to_seconds(now - (self.down_ns.get(of) or self.joined_ns[of]))
        self._first_s.setdefault(of, took_s)
        self._last_s[of] = took_s

    def complete(self) -> bool:
        return not any(self._waiting.values())

    def took_s(self, sites: dict[Site, Nanoseconds]) -> tuple[float | None, float | None]:
        """Time until the first and until the last member knew, averaged over the crashed or joined
        members."""
        known = [site for site in sites if site in self._last_s]
        if not known:
            return None, None
        first_s = sum(self._first_s[site] for site in known) / len(known)
        return first_s, sum(self._last_s[site] for site in known) / len(known)


class Counting(Mesh):
    """A mesh that also counts the bytes it carries."""

    carried_bytes = 0

    def send(self, now: Nanoseconds, source: int, targets: Sequence[int] | None, pdu: Pdu, size: int) -> None:
        before = self.network_messages()
        super().send(now, source, targets, pdu, size)
        self.carried_bytes += size * (self.network_messages() - before)


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    """One run."""
    seeds, step_ns = Seeds(seed), configuration.step_ns
    everyone = tuple(site_names(configuration.members + configuration.joins))
    founders, joiners = everyone[: configuration.members], everyone[configuration.members :]
    network = Counting(len(everyone), seeds, delay_ns=from_seconds(configuration.delay_ms / 1000))
    world = World(
        sites=everyone,
        build=lambda site: configuration.build(site, founders, seeds.stream(f"detector/{site}")),
        network=network,
        size_of=wire_size,
        layers=[Loss(seeds, configuration.loss)] if configuration.loss else [],
        recorder=recorder,
    )
    observation = Observation(world, everyone, joiners)
    span_ns = configuration.patience_steps * step_ns
    _schedule(world, observation, seeds.stream("faults"), configuration, span_ns)
    world.start()
    while world.now < PATIENCE * span_ns and not (world.now >= 2 * span_ns and observation.complete()):
        world.run(world.now + step_ns)
    # As much time again, in which a member might bring back a crashed one.
    world.run(world.now + span_ns)
    return _metrics(configuration, world, network, observation)


def _schedule(
    world: World,
    observation: Observation,
    random: Random,
    configuration: Configuration,
    span_ns: Nanoseconds,
) -> None:
    """The group settles for one span; in the next one members crash and join."""
    everyone = [host.site for host in world.hosts]
    founders, joiners = everyone[: configuration.members], everyone[configuration.members :]
    for site in joiners:
        world.crash(site)
        world.at(random.randrange(span_ns, 2 * span_ns), lambda site=site: observation.join(site))  # type: ignore[misc]
    for site in random.sample(founders, configuration.crashes):
        world.at(random.randrange(span_ns, 2 * span_ns), lambda site=site: observation.crash(site))  # type: ignore[misc]


def _metrics(
    configuration: Configuration, world: World, network: Counting, observation: Observation
) -> Metrics:
    detection_first_s, detection_last_s = observation.took_s(observation.down_ns)
    _, join_last_s = observation.took_s(observation.joined_ns)
    simulated_s = to_seconds(world.now)
    return {
        "detection_first_s": detection_first_s,
        "detection_last_s": detection_last_s,
        "join_last_s": join_last_s,
        "mistakes": observation.mistakes,
        "flaps": observation.flaps,
        "k_fail": configuration.threshold,
        "step_s": to_seconds(configuration.step_ns),
        "messages": network.network_messages(),
        "bytes": network.carried_bytes,
        "member_bytes_per_s": network.carried_bytes / simulated_s / configuration.members,
        "finished": observation.complete(),
        "simulated_s": simulated_s,
    }


def _cost_s(configuration: Configuration) -> float:
    """What a run costs: mostly the merging of counters."""
    members = configuration.members + configuration.joins
    entries = members * configuration.subset if configuration.kind == "gossip" else members
    return 0.05 + SECONDS_PER_MERGE * 4 * configuration.patience_steps * members * entries


SCENARIO: Final = Scenario(
    name="failure-detection",
    summary="Failure detection by heartbeats, polling or gossip: time, mistakes and traffic.",
    example="antiphon simulate failure-detection --members 64 --kind gossip --loss 0.1 --crashes 2 --seed 1",
    configuration=Configuration,
    run=run,
    promises=(),
    cost_s=_cost_s,
)
