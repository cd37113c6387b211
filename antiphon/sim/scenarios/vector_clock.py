"""`antiphon simulate vector-clock`: CBCAST, which sends everything to everyone, under loss and absence."""

from dataclasses import dataclass
from typing import Annotated, Final

from antiphon.core.recording import Recorder
from antiphon.core.time import MILLISECOND_NS, from_seconds
from antiphon.protocols.rivals.vector_clock import (
    DATA_KINDS,
    PDUS,
    PROMISES,
    VectorClock,
    VectorClockConfiguration,
)
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.selective import FixedConfiguration, SelectiveSubject, simulate_selective

SECONDS_PER_COPY: Final = 6e-5


@dataclass(frozen=True, kw_only=True)
class Configuration(FixedConfiguration):
    """The shared knobs and CBCAST's own."""

    confirm_ms: Annotated[float, "how long news of deliveries waits for a message to ride on"] = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.protocol_configuration()

    def protocol_configuration(self) -> VectorClockConfiguration:
        """Links of its own are used only where the network is not what the protocol assumes."""
        acknowledge_ns = max(2 * MILLISECOND_NS, self.round_trip_ns // 2)
        if self.network == "medium":
            # One channel carries the acknowledgements and repetitions of all links.
            acknowledge_ns *= self.members
        return VectorClockConfiguration(
            window=self.window,
            confirm_ns=from_seconds(self.confirm_ms / 1000),
            reliable_network=self.is_reliable,
            acknowledge_ns=acknowledge_ns,
            repeat_ns=2 * (acknowledge_ns + self.round_trip_ns),
        )


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs = configuration.protocol_configuration()
    subject = SelectiveSubject(
        build=lambda site, members: VectorClock(site, members, knobs),
        settle_ns=4 * knobs.repeat_ns,
        pdus=PDUS,
        data_kinds=DATA_KINDS,
    )
    return simulate_selective(configuration, subject, seed, recorder)


SCENARIO: Final = Scenario(
    name="vector-clock",
    summary="Causal order by CBCAST's vector clocks: every message goes to every member.",
    example="antiphon simulate vector-clock --members 10 --messages 500 --destinations 5 --loss 0.1 --seed 1",
    configuration=Configuration,
    run=run,
    promises=PROMISES,
    audited=True,
    cost_s=lambda knobs: 0.02 + SECONDS_PER_COPY * knobs.members * knobs.messages / knobs.batch,
)
