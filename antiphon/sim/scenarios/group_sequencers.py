"""`antiphon simulate group-sequencers`: a sequencer for each of the overlapping groups."""

from typing import Final

from antiphon.core.ids import Site
from antiphon.core.recording import Recorder
from antiphon.protocols.overlapping import Membership
from antiphon.protocols.rivals.group_sequencers import (
    EACH_PROMISES,
    PDUS,
    GroupSequencers,
    GroupSequencersConfiguration,
)
from antiphon.sim.group_rivals import RivalConfiguration, cost_s, simulate_rival
from antiphon.sim.scenario import Metrics, Scenario


def run(configuration: RivalConfiguration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs = GroupSequencersConfiguration(
        window=configuration.window, links=configuration.links(), sequencers="each"
    )

    def build(site: Site, membership: Membership, sites: tuple[Site, ...]) -> GroupSequencers:
        return GroupSequencers(site, membership, knobs, sites)

    return simulate_rival(
        configuration,
        build,
        PDUS,
        seed,
        recorder,
        lambda _: {"depth": 1, "extra_nodes": 0.0},
    )


SCENARIO: Final = Scenario(
    name="group-sequencers",
    summary="A sequencer for each group: one order within each, and none across groups that overlap.",
    example="antiphon simulate group-sequencers --members 7 --groups 4 --messages 1000 --seed 1",
    configuration=RivalConfiguration,
    run=run,
    promises=EACH_PROMISES,
    audited=True,
    cost_s=cost_s,
)
