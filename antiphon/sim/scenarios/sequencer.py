"""`antiphon simulate sequencer`: the fixed sequencer on a mesh or a medium, under every fault."""

from dataclasses import dataclass
from typing import Annotated, Final

from antiphon.core.recording import Recorder
from antiphon.core.time import MILLISECOND_NS
from antiphon.protocols.sequencer import PDUS, PROMISES, Sequencer, SequencerConfiguration
from antiphon.sim.delivery import DeliveryConfiguration, promised
from antiphon.sim.ordering import Subject, simulate
from antiphon.sim.scenario import Metrics, Scenario

SECONDS_PER_DELIVERY: Final = 4e-5


@dataclass(frozen=True, kw_only=True)
class Configuration(DeliveryConfiguration):
    """The shared knobs and the sequencer's own."""

    window: Annotated[int, "requests that a member may have under way"] = 64
    order_window: Annotated[int, "positions that the order may run ahead of the slowest member"] = 256

    receipts: Annotated[bool, "members acknowledge each entry, instead of asking for what they miss"] = False

    def protocol_configuration(self) -> SequencerConfiguration:
        """Timers that suit the network: a pause is at least the round trip that it waits for."""
        round_trip_ns = self.round_trip_ns
        return SequencerConfiguration(
            window=self.window,
            order_window=self.order_window,
            receipts=self.receipts,
            repeat_ns=max(20 * MILLISECOND_NS, 4 * round_trip_ns),
            heartbeat_ns=max(10 * MILLISECOND_NS, 2 * round_trip_ns),
            acknowledge_ns=max(5 * MILLISECOND_NS, round_trip_ns),
            gap_ns=round_trip_ns,
            suspect_after_ns=max(200 * MILLISECOND_NS, 40 * round_trip_ns),
            recovery_ns=max(300 * MILLISECOND_NS, 60 * round_trip_ns),
        )


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs = configuration.protocol_configuration()
    subject = Subject(
        build=lambda site, members: configuration.delivering(Sequencer(site, members, knobs), one_order=True),
        repairs=True,
        settle_ns=2 * knobs.suspect_after_ns + knobs.recovery_ns,
        leader_crashes_alone=True,
        pdus=PDUS,
    )
    return simulate(configuration, subject, seed, recorder)


SCENARIO: Final = Scenario(
    name="sequencer",
    summary="Total order by a fixed sequencer: requests to one member, which gives every message its place.",
    example="antiphon simulate sequencer --members 7 --messages 1000 --loss 0.05 --churn 2 --seed 1",
    configuration=Configuration,
    run=run,
    promises=PROMISES,
    promised=promised(PROMISES),
    audited=True,
    cost_s=lambda knobs: 0.02 + SECONDS_PER_DELIVERY * knobs.members * knobs.messages / knobs.batch,
)
