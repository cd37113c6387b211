"""`antiphon simulate sco`: selective causal order under distributed control, under every fault.

This is D1 of the schemes that its paper compares: C0, C1 and D0 are `sco-c0`, `sco-c1` and `sco-d0`.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Final, Literal, cast

from antiphon.core import effects as fx
from antiphon.core.ids import Site
from antiphon.core.inputs import Input
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, Nanoseconds, from_seconds, to_seconds
from antiphon.protocols.sco import LEVELS, PDUS, PROMISES, Sco, ScoConfiguration
from antiphon.protocols.sco.pdus import Copy, Data
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.selective import SelectiveConfiguration, SelectiveSubject, simulate_selective

SECONDS_PER_COPY: Final = 1.5e-4
REPORTED: Final = ("retransmissions", "relays", "suspected", "begun_anew", "holes", "overruns", "ignored")
"""The members' own figures that are reported, summed over all members."""


@dataclass(frozen=True, kw_only=True)
class Configuration(SelectiveConfiguration):
    """The shared knobs and SCO's own."""

    window: Annotated[int, "W: batches that a sender may be ahead of the oldest not confirmed"] = 64
    buffers: Annotated[int, "batches that a member holds at most before they are fully accepted"] = 4096
    confirm_ms: Annotated[float, "k: how long a confirmation waits for data to ride on"] = 5.0
    control_ms: Annotated[float, "after how long without data a member gets a control message"] = 20.0
    silence_ms: Annotated[float, "silence after which a member is left out"] = 200.0
    delivery: Annotated[str, "full (when all destinations have it) or causal (at once)"] = "full"
    acknowledge: Annotated[str, "what is confirmed: continuous or causal acceptance"] = "continuous"
    vectors: Annotated[str, "plain (eight bytes a member) or compressed"] = "compressed"
    gather_from: Annotated[int, "group size from which on destinations confirm to the sender alone"] = 16
    splits: Annotated[bool, "a minority that is cut off takes itself to be gone"] = True
    levels: Annotated[bool, "measure the time until messages reach each level of acceptance"] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.protocol_configuration()

    def protocol_configuration(self) -> ScoConfiguration:
        """Timers that suit the network: a pause is at least the round trip that it waits for."""
        round_trip_ns = self.round_trip_ns
        control_ns = from_seconds(self.control_ms / 1000)
        return ScoConfiguration(
            window=self.window,
            buffers=self.buffers,
            confirm_ns=from_seconds(self.confirm_ms / 1000),
            control_ns=control_ns,
            repair_ns=max(2 * MILLISECOND_NS, round_trip_ns),
            silence_ns=max(from_seconds(self.silence_ms / 1000), 10 * control_ns, 20 * round_trip_ns),
            settle_ns=max(60 * MILLISECOND_NS, 8 * round_trip_ns),
            announce_ns=max(50 * MILLISECOND_NS, 4 * round_trip_ns),
            delivery=cast(Literal["full", "causal"], self.delivery),
            acknowledge=cast(Literal["continuous", "causal"], self.acknowledge),
            vectors=cast(Literal["plain", "compressed"], self.vectors),
            gather_from=self.gather_from,
            splits=self.splits,
            observe=self.levels,
        )


class LevelMeter:
    """Times from the admission of messages until they reach each level, over all members."""

    def __init__(self) -> None:
        self._admitted_ns: dict[tuple[Site, int], Nanoseconds] = {}
        self._sums: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()

    def note(self, now: Nanoseconds, site: Site, effect: fx.Effect) -> None:
        if isinstance(effect, fx.Admitted):
            self._admitted_ns[site, effect.number] = now
        elif isinstance(effect, fx.Reached):
            since_ns = self._admitted_ns.get((effect.sender, effect.number))
            if since_ns is not None:
                self._sums[effect.level] += now - since_ns
                self._counts[effect.level] += 1

    def metrics(self) -> Metrics:
        """The mean time until each level, in seconds."""
        return {
            f"level_{level.label}_s": to_seconds(self._sums[level.label] // self._counts[level.label])
            for level in LEVELS
            if self._counts[level.label]
        }


class Watched:
    """A member whose levels are measured; implements `antiphon.core.protocol.Protocol`."""

    def __init__(self, protocol: Sco, site: Site, meter: LevelMeter) -> None:
        self._handle = protocol.handle
        self._site = site
        self._meter = meter

    def handle(self, now: Nanoseconds, event: Input) -> list[fx.Effect]:
        effects = self._handle(now, event)
        for effect in effects:
            self._meter.note(now, self._site, effect)
        return effects


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs = configuration.protocol_configuration()
    seeds = Seeds(seed)
    built: list[Sco] = []
    meter = LevelMeter()

    def build(site: Site, members: tuple[Site, ...]) -> Protocol:
        # A restarted member is another object, and draws from another stream.
        built.append(Sco(site, members, knobs, seeds.stream(f"sco/{site}/{len(built)}")))
        return Watched(built[-1], site, meter) if configuration.levels else built[-1]

    subject = SelectiveSubject(
        build=build,
        settle_ns=2 * knobs.silence_ns + 4 * knobs.settle_ns + 2 * knobs.announce_ns,
        pdus=PDUS,
        data_kinds=(Data, Copy),
        forgets=True,
    )
    metrics = simulate_selective(configuration, subject, seed, recorder)
    figures: Counter[str] = Counter()
    for member in built:
        figures.update(member.figures())
    return metrics | {name: figures[name] for name in REPORTED} | meter.metrics()


SCENARIO: Final = Scenario(
    name="sco",
    summary="Selective causal order: each message has destinations of its own; distributed control (D1).",
    example="antiphon simulate sco --members 10 --messages 500 --destinations 5 --crashes 1 --seed 1",
    configuration=Configuration,
    run=run,
    promises=PROMISES,
    audited=True,
    cost_s=lambda knobs: 0.03 + SECONDS_PER_COPY * knobs.members * knobs.messages / knobs.batch,
)
