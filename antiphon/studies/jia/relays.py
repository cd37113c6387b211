"""The paper's mechanism as published, running: messages go down the tree of meta-groups and are delivered.

There are no crashes, no changes of membership and no waiting: sections 3 to 5 and no more, over links that
keep the order. So both trees can be measured as the paper counts, and the ways of section 4.2 can be tried.
Our own protocol takes only those that are sound for two groups, if asked to (see
`antiphon.protocols.metagroups`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.protocols.links import Linked
from antiphon.protocols.metagroups.bypass import Shortcuts, bypassed, candidates
from antiphon.protocols.metagroups.formation import Label
from antiphon.protocols.metagroups.shapes import Shape
from antiphon.protocols.metagroups.tree import Forest, build_forest
from antiphon.protocols.overlapping import Batch, GroupsConfiguration
from antiphon.protocols.rivals.propagation_tree import PDUS, Propagation, PropagationTree, Tree
from antiphon.sim.group_rivals import RivalConfiguration, cost_s, simulate_rival
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.studies.jia.settings import KINDS, Membership, draw

NAME: Final = "antiphon.studies.jia.relays:SCENARIO"
WAYS: Final = {
    "tree": "along the tree",
    "section": "as section 4.2 has it",
    "pairwise": "where any two groups stay in order",
}
EXAMPLES: Final[Mapping[str, Membership]] = {
    "two groups": {"A": ("s0", "s1", "s2"), "B": ("s0", "s1"), "C": ("s0", "s2"), "D": ("s1", "s2")},
    "three groups": {"A": ("s0", "s2"), "B": ("s0", "s1"), "C": ("s1", "s2")},
}
"""<ABC>, <ABD>, <ACD> in a chain, where section 4.2 lets A and C differ; and <AB>, <BC>, <AC>, where it lets
three messages be in a cycle although no two sites differ."""
EXAMPLE_SITES: Final = 3
DRAWN: Final = "drawn"
"""The membership that the other protocols draw from the same seed."""


def shortcuts(forest: Forest, ways: str) -> Shortcuts:
    """A forest with the ways of the configuration."""
    if ways == "pairwise":
        return bypassed(forest)
    past: Mapping[Group, Collection[Label]] = candidates(forest) if ways == "section" else {}
    return Shortcuts(forest, past)


def require_ways(ways: str) -> None:
    if ways not in WAYS:
        raise UsageError(f"There are no ways '{ways}'.", hint=f"There are: {', '.join(WAYS)}.")


@dataclass(frozen=True, kw_only=True)
class Configuration(RivalConfiguration):
    """The knobs of all protocols for overlapping groups, the tree, and the ways through it."""

    shape: Annotated[Shape, "printed (the paper's tree) or shallow"] = "printed"
    ways: Annotated[str, "tree, section (4.2 as printed) or pairwise"] = "tree"
    example: Annotated[str, "'two groups', 'three groups', 'drawn' by the overlap, or a kind of it"] = DRAWN

    def __post_init__(self) -> None:
        super().__post_init__()
        require_ways(self.ways)
        if self.example not in (known := (DRAWN, *EXAMPLES, *KINDS)):
            raise UsageError(f"There is no example '{self.example}'.", hint=f"There are: {', '.join(known)}.")
        if self.example in EXAMPLES and self.members != EXAMPLE_SITES:
            raise UsageError(f"That example has {EXAMPLE_SITES} sites.")

    def membership(self, seed: int) -> Membership:
        if self.example in EXAMPLES:
            return EXAMPLES[self.example]
        if self.example == DRAWN:
            return super().membership(seed)
        return draw(self.example, Seeds(seed).stream("jia/relays"), self.members, self.groups)


class Relay(PropagationTree):
    """A site that forwards each message along its table, whatever its source."""

    def _take(self, sender: Site, pdu: Linked) -> None:
        if isinstance(pdu, Propagation):
            batch = Batch(pdu.sender, pdu.number, pdu.group, pdu.bodies)
            self._propagate(batch, self._finisher(sender, pdu))
        else:
            super()._take(sender, pdu)


def site_ways(chosen: Shortcuts) -> Tree:
    """The ways between meta-groups as ways between their sites."""
    forest = chosen.forest
    leads: dict[Site, dict[Group, tuple[Site, ...]]] = {site: {} for site in forest.label_of}
    for label, node in forest.nodes.items():
        below = chosen.leads(label)
        for group in {*label, *below}:
            others = [site for site in node.sites if site != node.primary] if group in label else []
            heads = [forest.nodes[child].primary for child in below.get(group, ())]
            leads[node.primary][group] = (*others, *heads)
    primary = {group: forest.nodes[label].primary for group, label in forest.primary_of.items()}
    return Tree(dict.fromkeys(leads), primary, leads, {})


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    forest = build_forest(configuration.membership(seed), shape=configuration.shape)
    ways = site_ways(shortcuts(forest, configuration.ways))
    knobs = GroupsConfiguration(window=configuration.window, links=configuration.links())

    def build(site: Site, membership: Mapping[Group, tuple[Site, ...]], sites: tuple[Site, ...]) -> Relay:
        return Relay(site, membership, knobs, sites, ways)

    routes = [forest.route(group) for group in forest.primary_of]
    shape: Metrics = {
        "depth": sum(route.depth for route in routes) / len(routes),
        "extra_nodes": sum(len(route.extra) for route in routes) / len(routes),
    }
    return simulate_rival(configuration, build, PDUS, seed, recorder, lambda _: shape)


SCENARIO: Final = Scenario(
    name=NAME,
    summary="The tree of meta-groups as the paper has it, without crashes or changes (Jia and So, 5)",
    example=f"antiphon simulate {NAME} --members 30 --groups 6 --messages 300 --seed 0 --json",
    configuration=Configuration,
    run=run,
    promises=("integrity", "duplicate", "atomicity", "total", "stability"),
    audited=True,
    cost_s=cost_s,
)
