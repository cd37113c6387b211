"""`antiphon simulate token`: token passing with a resilience, across overlapping groups."""

from dataclasses import dataclass
from typing import Annotated, Final

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.recording import Recorder
from antiphon.core.time import MILLISECOND_NS
from antiphon.protocols.links import Held
from antiphon.protocols.overlapping import Membership
from antiphon.protocols.rivals.token import PDUS, PROMISES, Moved, TokenConfiguration, TokenPassing
from antiphon.sim.group_rivals import RivalConfiguration, cost_s, simulate_rival, total
from antiphon.sim.scenario import Metrics, Scenario


@dataclass(frozen=True, kw_only=True)
class Configuration(RivalConfiguration):
    """The knobs of all rivals and the token's own."""

    resilience: Annotated[int, "sites that hold a message before it is delivered"] = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.resilience <= self.members:
            raise UsageError("From one to all sites hold a message before it is delivered.")

    def protocol_configuration(self) -> TokenConfiguration:
        rotation_ns = self.members * self.round_trip_ns
        return TokenConfiguration(
            window=self.window,
            links=self.links(),
            resilience=self.resilience,
            patience_ns=max(100 * MILLISECOND_NS, rotation_ns),
        )


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs = configuration.protocol_configuration()
    built: list[TokenPassing] = []

    def build(site: Site, membership: Membership, sites: tuple[Site, ...]) -> TokenPassing:
        built.append(TokenPassing(site, membership, knobs, sites))
        return built[-1]

    metrics = simulate_rival(
        configuration,
        build,
        PDUS,
        seed,
        recorder,
        lambda _: {"depth": knobs.resilience, "extra_nodes": None},
        controls=(Held, Moved),
    )
    return metrics | {"forwarded": total(built, "forwarded")}


SCENARIO: Final = Scenario(
    name="token",
    summary="Total order across overlapping groups by a token that moves on before anything is delivered.",
    example="antiphon simulate token --members 7 --groups 4 --messages 1000 --resilience 3 --seed 1",
    configuration=Configuration,
    run=run,
    promises=PROMISES,
    audited=True,
    cost_s=lambda knobs: 2 * cost_s(knobs),
)
