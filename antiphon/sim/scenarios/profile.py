"""`antiphon simulate --profile NAME`: a system of Guo's chapters 2 and 4; all have the same knobs."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Final

from antiphon.core.recording import Property, Recorder
from antiphon.protocols.profiles import PROFILES, find_profile
from antiphon.sim.ordering import OrderingConfiguration
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.scenarios import find_scenario

SECONDS_PER_DELIVERY: Final = 4e-5


@dataclass(frozen=True, kw_only=True)
class Configuration(OrderingConfiguration):
    """The shared knobs and the profile."""

    profile: Annotated[str, f"one of {', '.join(PROFILES)} (docs/profiles.md)"] = "amoeba"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.composed()

    def composed(self) -> tuple[Scenario, Any]:
        """The scenario of the profile's order, and its configuration."""
        profile = find_profile(self.profile)
        scenario = find_scenario(profile.order)
        shared = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(OrderingConfiguration)
        }
        return scenario, scenario.configure({**shared, **profile.options})


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    scenario, composed = configuration.composed()
    return scenario.run(composed, seed, recorder)


def promised(configuration: Configuration) -> tuple[Property, ...]:
    scenario, composed = configuration.composed()
    return scenario.promises_for(composed)


SCENARIO: Final = Scenario(
    name="profile",
    summary="A system that Guo describes, composed of an order and its options.",
    example="antiphon simulate profile --profile amoeba --members 7 --loss 0.05 --seed 1",
    configuration=Configuration,
    run=run,
    promises=("integrity", "duplicate", "atomicity", "fifo", "stability"),
    promised=promised,
    audited=True,
    cost_s=lambda knobs: 0.02 + SECONDS_PER_DELIVERY * knobs.members * knobs.messages / knobs.batch,
)
