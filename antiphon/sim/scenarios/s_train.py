"""`antiphon simulate s-train`: one round of S_Train on the store-and-forward tree.

Source: K. Guo, Scalable Message Stability Detection Protocols, sections 5.4 and 5.5. The frame is
`antiphon.sim.rounds`, the logical trees are `antiphon.sim.climbing`'s. The first member to have the array is
the root, when it has received the ACK2 of its last child.
"""

from dataclasses import dataclass
from typing import Final

from antiphon.core.recording import Recorder
from antiphon.protocols.stability.s_train import STrain
from antiphon.sim.climbing import ClimbingRound, ClimbingStudy
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.tree import CHILDREN_PER_NODE


@dataclass(frozen=True, kw_only=True)
class STrainStudy(ClimbingStudy):
    """The scenario's parameters; `step` and `subset` have no effect."""

    @property
    def longest_chain(self) -> int:
        """The siblings on each level, or those under a head and the heads."""
        return CHILDREN_PER_NODE * self.levels if self.ternary else self.subgroup + self.heads_below


class STrainRound(ClimbingRound):
    """One round of S_Train."""

    def protocol(self) -> type[STrain]:
        return STrain

    def steps(self, tpr_s: float | None) -> float | None:  # noqa: ARG002
        """START, one for each sibling on each level, and INFO (table 4.1: bp+2)."""
        if self.study.ternary:
            return CHILDREN_PER_NODE * self.hierarchy.height + 2
        return self.study.subgroup - 1 + self.study.heads_below + 2


def simulate(study: STrainStudy, seed: int, recorder: Recorder | None) -> Metrics:
    """One round, and its INFO to the end."""
    simulated = STrainRound(study, seed, recorder)
    simulated.run()
    return simulated.metrics()


def _cost_s(study: STrainStudy) -> float:
    """Each member's share is about constant; its array of counts is what grows with the senders."""
    return study.members * (5e-5 + 1e-6 * study.senders) * (3 if study.lossy else 1)


SCENARIO: Final = Scenario(
    name="s-train",
    summary="S_Train: in each sub-group a train goes along the siblings and up to their parent (Guo, 4.3.2)",
    example="antiphon simulate s-train --members 500 --senders 50 --density dense --seed 1 --json",
    configuration=STrainStudy,
    run=simulate,
    promises=("stability",),
    cost_s=_cost_s,
)
