"""`antiphon simulate totem`: Totem's single ring on a mesh or a medium, under every fault."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import from_seconds
from antiphon.protocols.rivals.totem import PDUS, PROMISES, Totem, TotemConfiguration
from antiphon.sim.ordering import OrderingConfiguration, Subject, simulate
from antiphon.sim.scenario import Metrics, Scenario

SECONDS_PER_DELIVERY: Final = 4e-5


@dataclass(frozen=True, kw_only=True)
class Configuration(OrderingConfiguration):
    """The shared knobs and Totem's own, with Corosync's defaults."""

    token_ms: Annotated[float, "how long the token may be missing, in milliseconds"] = 1000.0
    join_ms: Annotated[float, "pause between join messages in milliseconds"] = 50.0
    consensus_ms: Annotated[float, "how long members may take to agree on the membership"] = 1200.0
    window: Annotated[int, "multicasts in one rotation of the token"] = 50
    max_messages: Annotated[int, "multicasts in one visit of the token"] = 17
    carries: Annotated[bool, "messages travel on the token, as on a train, instead of being multicast"] = (
        False
    )
    goodbye: Annotated[bool, "members that go absent say so, as a Corosync that is shut down does"] = False

    def protocol_configuration(self, delivery: Literal["safe", "agreed"]) -> TotemConfiguration:
        return TotemConfiguration(
            delivery=delivery,
            token_ns=from_seconds(self.token_ms / 1000),
            join_ns=from_seconds(self.join_ms / 1000),
            consensus_ns=from_seconds(self.consensus_ms / 1000),
            window=self.window,
            max_messages=self.max_messages,
            carries=self.carries,
            says_goodbye=self.goodbye,
        )


def run_delivering(
    delivery: Literal["safe", "agreed"], configuration: Configuration, seed: int, recorder: Recorder | None
) -> Metrics:
    knobs = configuration.protocol_configuration(delivery)
    seeds = Seeds(seed)
    subject = Subject(
        build=lambda site, members: Totem(site, members, knobs, seeds.stream(f"totem/{site}")),
        repairs=True,
        settle_ns=2 * (knobs.token_ns + knobs.consensus_ns) + knobs.announce_ns,
        leader_crashes_alone=False,
        pdus=PDUS,
    )
    return simulate(configuration, subject, seed, recorder)


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    return run_delivering("safe", configuration, seed, recorder)


SCENARIO: Final = Scenario(
    name="totem",
    summary="Total order by Totem's single ring: a token numbers messages; members agree on the membership.",
    example="antiphon simulate totem --members 7 --messages 1000 --loss 0.05 --churn 1 --seed 1",
    configuration=Configuration,
    run=run,
    promises=PROMISES,
    audited=True,
    cost_s=lambda knobs: 0.1 + SECONDS_PER_DELIVERY * knobs.members * knobs.messages / knobs.batch,
)
