"""`antiphon simulate two-phase`: ABCAST by proposed and fixed timestamps, across overlapping groups."""

from typing import Final

from antiphon.core.ids import Site
from antiphon.core.recording import Recorder
from antiphon.protocols.overlapping import GroupsConfiguration, Membership
from antiphon.protocols.rivals.two_phase import PDUS, PROMISES, TwoPhase
from antiphon.sim.group_rivals import RivalConfiguration, cost_s, simulate_rival
from antiphon.sim.scenario import Metrics, Scenario


def run(configuration: RivalConfiguration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs = GroupsConfiguration(window=configuration.window, links=configuration.links())

    def build(site: Site, membership: Membership, sites: tuple[Site, ...]) -> TwoPhase:
        return TwoPhase(site, membership, knobs, sites)

    return simulate_rival(
        configuration,
        build,
        PDUS,
        seed,
        recorder,
        lambda _: {"depth": 2, "extra_nodes": 0.0},
    )


SCENARIO: Final = Scenario(
    name="two-phase",
    summary="Total order across overlapping groups by two-phase ABCAST: members propose, the sender decides.",
    example="antiphon simulate two-phase --members 7 --groups 4 --messages 1000 --loss 0.05 --seed 1",
    configuration=RivalConfiguration,
    run=run,
    promises=PROMISES,
    audited=True,
    cost_s=lambda knobs: 3 * cost_s(knobs),
)
