"""`antiphon simulate sco-c0`: SCO's service under centralised control, C0, under loss and absence."""

from dataclasses import dataclass
from typing import Annotated, Final

from antiphon.core.ids import Site, site_names
from antiphon.core.recording import Recorder
from antiphon.core.time import MILLISECOND_NS, from_seconds
from antiphon.protocols.rivals.controlled import (
    DATA_KINDS,
    PDUS,
    PROMISES,
    Controlled,
    ControlledConfiguration,
    Coordinated,
    Scheme,
)
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.selective import FixedConfiguration, SelectiveSubject, simulate_selective

SECONDS_PER_COPY: Final = 1e-4


@dataclass(frozen=True, kw_only=True)
class Configuration(FixedConfiguration):
    """The shared knobs."""

    coordinated: Annotated[bool, "one member, the first, coordinates the messages of all"] = False
    give_up_ms: Annotated[float, "time without all replies until a sender gives a message up; 0: never"] = 0.0

    @property
    def coordinator(self) -> Site:
        return site_names(self.members)[0] if self.coordinated else ""

    def protocol_configuration(self, scheme: Scheme) -> ControlledConfiguration:
        """Nothing is repeated before the answer can have come: three rounds, with some time to spare."""
        return ControlledConfiguration(
            scheme=scheme,
            window=self.window,
            coordinator=self.coordinator,
            give_up_ns=from_seconds(self.give_up_ms / 1000),
            repeat_ns=max(10 * MILLISECOND_NS, (3 if self.coordinated else 2) * self.round_trip_ns),
        )


def run_under(scheme: Scheme, configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs = configuration.protocol_configuration(scheme)
    kind = Coordinated if knobs.coordinator else Controlled
    subject = SelectiveSubject(
        build=lambda site, members: kind(site, members, knobs),
        settle_ns=4 * knobs.repeat_ns,
        pdus=PDUS,
        data_kinds=DATA_KINDS,
    )
    return simulate_selective(configuration, subject, seed, recorder)


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    return run_under("C0", configuration, seed, recorder)


def cost_s(knobs: Configuration) -> float:
    copies = (knobs.destinations or knobs.members) * knobs.messages / knobs.batch
    return 0.02 + SECONDS_PER_COPY * copies


SCENARIO: Final = Scenario(
    name="sco-c0",
    summary="Selective causal order under centralised control: destinations reply, the sender confirms.",
    example="antiphon simulate sco-c0 --members 10 --messages 500 --destinations 5 --loss 0.1 --seed 1",
    configuration=Configuration,
    run=run,
    promises=PROMISES,
    audited=True,
    cost_s=cost_s,
)
