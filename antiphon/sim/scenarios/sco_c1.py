"""`antiphon simulate sco-c1`: centralised control whose replies and confirmations ride on data."""

from dataclasses import dataclass
from typing import Annotated, Final

from antiphon.core.recording import Recorder
from antiphon.core.time import MILLISECOND_NS, from_seconds
from antiphon.protocols.rivals.controlled import PROMISES, ControlledConfiguration, Scheme
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.scenarios import sco_c0


@dataclass(frozen=True, kw_only=True)
class Configuration(sco_c0.Configuration):
    """The shared knobs and C1's own."""

    confirm_ms: Annotated[float, "how long replies and confirmations wait for data to ride on"] = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.protocol_configuration("C1")

    def protocol_configuration(self, scheme: Scheme) -> ControlledConfiguration:
        """An answer may be deferred on either side before it can have come."""
        confirm_ns = from_seconds(self.confirm_ms / 1000)
        return ControlledConfiguration(
            scheme=scheme,
            window=self.window,
            confirm_ns=confirm_ns,
            coordinator=self.coordinator,
            give_up_ns=from_seconds(self.give_up_ms / 1000),
            repeat_ns=max(
                10 * MILLISECOND_NS, (3 if self.coordinated else 2) * (self.round_trip_ns + confirm_ns)
            ),
        )


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    return sco_c0.run_under("C1", configuration, seed, recorder)


SCENARIO: Final = Scenario(
    name="sco-c1",
    summary="Selective causal order under centralised control, replies and confirmations riding on data.",
    example="antiphon simulate sco-c1 --members 10 --messages 500 --destinations 5 --confirm-ms 8 --seed 1",
    configuration=Configuration,
    run=run,
    promises=PROMISES,
    audited=True,
    cost_s=sco_c0.cost_s,
)
