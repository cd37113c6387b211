"""`antiphon simulate global-sequencer`: one sequencer for all overlapping groups."""

from typing import Final

from antiphon.core.ids import Site
from antiphon.core.recording import Recorder
from antiphon.protocols.overlapping import Membership, all_sites
from antiphon.protocols.rivals.group_sequencers import (
    PDUS,
    PROMISES,
    GroupSequencers,
    GroupSequencersConfiguration,
)
from antiphon.sim.group_rivals import RivalConfiguration, cost_s, mean_outsiders, simulate_rival
from antiphon.sim.scenario import Metrics, Scenario


def run(configuration: RivalConfiguration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs = GroupSequencersConfiguration(window=configuration.window, links=configuration.links())

    def build(site: Site, membership: Membership, sites: tuple[Site, ...]) -> GroupSequencers:
        return GroupSequencers(site, membership, knobs, sites)

    def shape(membership: Membership) -> Metrics:
        central = all_sites(membership)[:1]
        return {"depth": 1, "extra_nodes": mean_outsiders(membership, lambda _: central)}

    return simulate_rival(configuration, build, PDUS, seed, recorder, shape)


SCENARIO: Final = Scenario(
    name="global-sequencer",
    summary="Total order across overlapping groups by one sequencer that every message passes.",
    example="antiphon simulate global-sequencer --members 7 --groups 4 --messages 1000 --loss 0.05 --seed 1",
    configuration=RivalConfiguration,
    run=run,
    promises=PROMISES,
    audited=True,
    cost_s=cost_s,
)
