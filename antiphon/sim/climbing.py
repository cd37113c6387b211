"""One round of a structured stability protocol: the logical trees of S_CoordP's and S_Train's scenarios.

Source: K. Guo, Scalable Message Stability Detection Protocols, sections 5.4 and 5.5.
Dense groups have the network's own tree, unless `tree` says that sub-groups count there too. Sparse ones
with sub-groups of 4 have a complete ternary tree over a random order of the members, with member 0 at its
root. With sub-groups of another size g each of the heads has g-1 members under it and the heads are under the
root, member 0: over the depth-first walk of the network where the group is dense, over a random order where
it is sparse. Whether the root is one of the heads, with g-1 members directly under it, the text does not say.
By default it is: so the text's groups of n members have n/g sub-groups of g, and at n = g S_CoordP is CoordP.
`heads` has the other reading as well; it makes rounds of sparse groups about a tenth longer. `order` has a
logical tree over the depth-first walk of a sparse group's network, too, whose neighbours are near each other.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.protocol import Protocol
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.coordp import StartRound
from antiphon.protocols.stability.hierarchy import Hierarchy
from antiphon.protocols.stability.structured import Structured, StructuredConfiguration
from antiphon.sim.rounds import Round, RoundStudy
from antiphon.sim.tree import CHILDREN_PER_NODE

Heads = Literal["with-root", "below-root"]
DenseTree = Literal["network", "subgroups"]
SparseOrder = Literal["random", "depth-first"]


@dataclass(frozen=True, kw_only=True)
class ClimbingStudy(RoundStudy):
    """The parameters of both scenarios; `step` and `subset` have no effect."""

    heads: Annotated[Heads, "whether the root is a head of a sub-group too, where they are not of 4"] = (
        "with-root"
    )
    tree: Annotated[DenseTree, "what a dense group's logical tree is: the network's, or `subgroup`s"] = (
        "network"
    )

    order: Annotated[SparseOrder, "the order of a scattered group's members in the logical tree"] = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subgroup < 2:
            raise UsageError(f"A sub-group of {self.subgroup} has no children.", hint="Take 2 or more.")

    @property
    def ternary(self) -> bool:
        """Whether sub-groups have the size of the network's."""
        matching = self.density == "dense" and self.tree == "network"
        return matching or self.subgroup == CHILDREN_PER_NODE + 1

    @property
    def levels(self) -> int:
        """Generations below the root."""
        return math.ceil(math.log(2 * self.members + 1, CHILDREN_PER_NODE)) - 1 if self.ternary else 2

    @property
    def longest_chain(self) -> int:
        return self.levels

    @property
    def heads_below(self) -> int:
        """How many heads stand under the root, if there are two levels."""
        if self.heads == "with-root":
            return math.ceil(self.members / self.subgroup) - 1
        return math.ceil((self.members - 1) / self.subgroup)


class ClimbingRound(Round):
    """One round on a logical tree."""

    study: ClimbingStudy

    @abstractmethod
    def protocol(self) -> type[Structured]:
        """Which of the protocols."""

    def prepare(self) -> None:
        self.hierarchy = self._make_hierarchy()
        self._protocol = self.protocol()
        self._configuration = StructuredConfiguration(
            repetition=self.study.repetition(), objective=self.study.objective, hierarchy=self.hierarchy
        )

    def build(self, site: Site) -> Protocol:
        protocol = self._protocol(site, self.sites, self.senders, self._configuration, self.repeating(site))
        protocol.hold_all(self.holding(site))
        return protocol

    def start_kind(self) -> type[Pdu]:
        return StartRound

    def _make_hierarchy(self) -> Hierarchy:
        study, tree = self.study, self.placement.tree
        if study.density == "dense" and study.ternary:
            return Hierarchy.from_parents(self.sites, tree.parent.tolist())
        if study.density == "dense" or study.order == "depth-first":
            members = np.argsort(tree.enter[np.asarray(self.placement.nodes)]).tolist()
        else:
            others = self.seeds.array_stream("hierarchy").permutation(study.members - 1)
            members = [0, *(1 + others).tolist()]
        order = [self.sites[member] for member in members]
        if study.ternary:
            return Hierarchy.complete(self._by_level(order), CHILDREN_PER_NODE)
        build = Hierarchy.two_level if study.heads == "with-root" else Hierarchy.two_level_below
        return build(order, study.subgroup)

    def _by_level(self, order: list[Site]) -> list[Site]:
        """The members level by level, so that a complete tree's own walk follows that of the network."""
        if self.study.order == "random":
            return order
        places = Hierarchy.complete(self.sites, CHILDREN_PER_NODE).walk
        by_level = dict(zip(places, order, strict=True))
        return [by_level[site] for site in self.sites]
