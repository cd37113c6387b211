"""`antiphon simulate fifo`: reliable FIFO multicast on a mesh or a medium, under every fault.

The members begin together and know each other, unless `--apart-ms` lets them begin as live members do: each
at its own time, without known peers, in a group that may be running already.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from antiphon.core.effects import Effect, Rejected, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit, Input, Returned, Start, TimerFired
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds, from_seconds
from antiphon.protocols.fifo import PDUS, PROMISES, REPAIRS, Fifo, FifoConfiguration
from antiphon.protocols.fifo.conduct import Conduct
from antiphon.protocols.stability.tuning import Tuning
from antiphon.sim.delivery import DeliveryConfiguration, promised
from antiphon.sim.history import Archive
from antiphon.sim.ordering import Subject, simulate
from antiphon.sim.sabotage import NONE
from antiphon.sim.scenario import Metrics, Scenario

SECONDS_PER_DELIVERY: Final = 4e-5


@dataclass(frozen=True, kw_only=True)
class Configuration(DeliveryConfiguration, Tuning, Conduct):
    """The shared knobs and those of reliable FIFO multicast."""

    repair: Annotated[str, f"{', '.join(REPAIRS[:-1])} or {REPAIRS[-1]}"] = "hybrid"
    stability: Annotated[
        str, "how what all hold is found: coordp, fulldist, train, gossip, s-coordp, ..."
    ] = "coordp"
    rows: Annotated[str, "with fulldist, how rows travel: whole, changed, or riding on messages"] = "whole"
    errors: Annotated[str, "a stability protocol by which members find what they have missed, or none"] = NONE
    trigger: Annotated[str, "when a round begins: timer, or adaptive by how full the buffers are"] = "timer"
    detector: Annotated[str, "how failures are detected: heartbeat, polling or gossip"] = "heartbeat"
    neighbours: Annotated[int, "members that watch each other directly; larger groups speak less often"] = 6
    window: Annotated[int, "messages that a sender may be ahead of the slowest member"] = 64
    retain: Annotated[int, "messages of its own that a sender may have admitted and not stable"] = 256
    apart_ms: Annotated[float, "if positive, members begin apart within this time, without known peers"] = 0.0
    handlers: Annotated[int, "members that log deliveries, for members that begin later"] = 0
    log: Annotated[int, "messages that each such log holds"] = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window < 1 or self.retain < 1:
            raise UsageError("A window holds at least one message.")
        if self.apart_ms < 0:
            raise UsageError("A delay cannot be negative.")
        if not 0 <= self.handlers <= self.members or self.log < 1:
            raise UsageError("Members of the group keep the logs, and a log holds something.")
        if self.handlers and self.deliver == "stable":
            raise UsageError(
                "Messages that are delivered when they are stable cannot be logged for late joiners.",
                hint="Leave out --handlers, or --deliver stable.",
            )
        self.protocol_configuration()

    def protocol_configuration(self) -> FifoConfiguration:
        """Timers that suit the network: a pause is at least the round trip that it waits for."""
        round_trip_ns = self.round_trip_ns
        acknowledge_ns = max(2 * MILLISECOND_NS, round_trip_ns // 2)
        return FifoConfiguration(
            repair=self.repair,
            stability=self.stability,
            tuning=self.tuning,
            conduct=self.conduct,
            rows=self.rows,
            errors=None if self.errors == NONE else self.errors,
            trigger=self.trigger,
            detector=self.detector,
            neighbours=self.neighbours,
            window_bytes=max(1, self.window * self.size),
            retain_bytes=max(1, self.retain * self.size),
            round_bytes=max(1, self.retain * self.size // 2),
            acknowledge_ns=acknowledge_ns,
            gap_ns=max(1, round_trip_ns // 2),
            repair_ns=acknowledge_ns + 2 * round_trip_ns,
            answer_ns=max(1, round_trip_ns // 2),
            announce_ns=max(10 * MILLISECOND_NS, 2 * round_trip_ns),
            heartbeat_ns=max(20 * MILLISECOND_NS, 4 * round_trip_ns),
            settle_ns=max(60 * MILLISECOND_NS, 8 * round_trip_ns),
            suspect_after_ns=max(250 * MILLISECOND_NS, 50 * round_trip_ns),
            lag_ns=max(2 * SECOND_NS, 100 * round_trip_ns),
            round_ns=max(10 * MILLISECOND_NS, 2 * round_trip_ns),
            quiet_round_ns=max(200 * MILLISECOND_NS, 20 * round_trip_ns),
            stability_repeat_ns=max(10 * MILLISECOND_NS, 2 * round_trip_ns),
            history_ns=max(500 * MILLISECOND_NS, 20 * round_trip_ns),
            history_bytes=max(1, self.retain * self.size),
        )


class Latecomer:
    """A member that begins later than its world, as a later incarnation, without known peers."""

    def __init__(self, protocol: Protocol, after_ns: Nanoseconds) -> None:
        self._protocol = protocol
        self._after_ns = after_ns
        self._start: Start | None = None
        self._begun = False

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        if self._begun:
            return self._protocol.handle(now, event)
        if isinstance(event, Start):
            self._start = Start(event.incarnation + 1, event.next_number, event.returning)
            return [SetTimer("begin", 0 if event.incarnation else self._after_ns)]
        if isinstance(event, TimerFired | Returned) and self._start is not None:
            self._begun = True
            return self._protocol.handle(now, self._start)
        return [Rejected("This member has not begun yet.")] if isinstance(event, Admit) else []


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs = configuration.protocol_configuration()
    seeds = Seeds(seed)
    apart_ns = from_seconds(configuration.apart_ms / 1000)

    built: list[Fifo] = []
    archive = Archive(configuration.handlers, configuration.log, configuration.round_trip_ns // 2)

    def build(site: Site, members: tuple[Site, ...]) -> Protocol:
        random = seeds.stream(f"fifo/{site}")
        known = (site,) if apart_ns else members
        role = archive.role(site, members)
        built.append(Fifo(site, known, knobs, random, history=role))
        protocol = archive.keep(site, role, configuration.delivering(built[-1], one_order=False))
        if not apart_ns:
            return protocol
        return Latecomer(protocol, seeds.stream(f"fifo/begin/{site}").randrange(apart_ns))

    subject = Subject(
        build=build,
        repairs=True,
        settle_ns=2 * knobs.suspect_after_ns + 4 * knobs.settle_ns,
        leader_crashes_alone=False,
        pdus=PDUS,
    )
    metrics = simulate(configuration, subject, seed, recorder)
    figures = [member.figures() for member in built]
    rounds = sum(figure["rounds"] for figure in figures)
    return metrics | {"rounds": rounds, "refused": sum(figure["refused"] for figure in figures)}


SCENARIO: Final = Scenario(
    name="fifo",
    summary="Reliable multicast, first in first out per sender, with nine ways to make up for losses.",
    example="antiphon simulate fifo --members 7 --messages 1000 --loss 0.1 --repair any --churn 2 --seed 1",
    configuration=Configuration,
    run=run,
    promises=PROMISES,
    promised=promised(PROMISES),
    audited=True,
    cost_s=lambda knobs: 0.02 + SECONDS_PER_DELIVERY * knobs.members * knobs.messages / knobs.batch,
)
