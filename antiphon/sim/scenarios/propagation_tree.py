"""`antiphon simulate propagation-tree`: Garcia-Molina and Spauster's tree of sites."""

from typing import Final

from antiphon.core.ids import Site
from antiphon.core.recording import Recorder
from antiphon.protocols.overlapping import GroupsConfiguration, Membership
from antiphon.protocols.rivals.propagation_tree import (
    PDUS,
    PROMISES,
    PropagationTree,
    Tree,
    build_tree,
)
from antiphon.sim.group_rivals import RivalConfiguration, cost_s, simulate_rival
from antiphon.sim.scenario import Metrics, Scenario


def run(configuration: RivalConfiguration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs = GroupsConfiguration(window=configuration.window, links=configuration.links())
    trees: list[Tree] = []

    def build(site: Site, membership: Membership, sites: tuple[Site, ...]) -> PropagationTree:
        return PropagationTree(site, membership, knobs, sites, trees[0])

    def shape(membership: Membership) -> Metrics:
        trees.append(build_tree(membership))
        routes = trees[0].routes.values()
        return {
            "depth": sum(route.depth for route in routes) / len(routes),
            "extra_nodes": sum(len(route.extra) for route in routes) / len(routes),
        }

    return simulate_rival(configuration, build, PDUS, seed, recorder, shape)


SCENARIO: Final = Scenario(
    name="propagation-tree",
    summary="Total order across overlapping groups by a tree of sites, intersections of groups first.",
    example="antiphon simulate propagation-tree --members 7 --groups 4 --messages 1000 --loss 0.05 --seed 1",
    configuration=RivalConfiguration,
    run=run,
    promises=PROMISES,
    audited=True,
    cost_s=cost_s,
)
