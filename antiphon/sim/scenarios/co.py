"""`antiphon simulate co`: causal broadcast by sequence numbers, under loss and absence."""

from dataclasses import dataclass
from typing import Annotated, Final

from antiphon.core.recording import Recorder
from antiphon.core.time import MILLISECOND_NS, from_seconds
from antiphon.protocols.rivals.co import DATA_KINDS, PDUS, PROMISES, Co, CoConfiguration
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.selective import FixedConfiguration, SelectiveSubject, simulate_selective

SECONDS_PER_COPY: Final = 8e-5


@dataclass(frozen=True, kw_only=True)
class Configuration(FixedConfiguration):
    """The shared knobs and CO's own."""

    confirm_ms: Annotated[float, "how long a confirmation waits for data to ride on"] = 5.0
    heartbeat_ms: Annotated[float, "after how long a silent member says how far it is"] = 20.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.protocol_configuration()

    def protocol_configuration(self) -> CoConfiguration:
        return CoConfiguration(
            window=self.window,
            confirm_ns=from_seconds(self.confirm_ms / 1000),
            heartbeat_ns=from_seconds(self.heartbeat_ms / 1000),
            repair_ns=max(2 * MILLISECOND_NS, self.round_trip_ns),
        )


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs = configuration.protocol_configuration()
    subject = SelectiveSubject(
        build=lambda site, members: Co(site, members, knobs),
        settle_ns=2 * knobs.heartbeat_ns + 4 * knobs.repair_ns,
        pdus=PDUS,
        data_kinds=DATA_KINDS,
    )
    return simulate_selective(configuration, subject, seed, recorder)


SCENARIO: Final = Scenario(
    name="co",
    summary="Causal broadcast by sequence numbers: everything goes to everyone and is confirmed by everyone.",
    example="antiphon simulate co --members 10 --messages 500 --destinations 5 --loss 0.1 --seed 1",
    configuration=Configuration,
    run=run,
    promises=PROMISES,
    audited=True,
    cost_s=lambda knobs: 0.02 + SECONDS_PER_COPY * knobs.members * knobs.messages / knobs.batch,
)
