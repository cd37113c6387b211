"""`antiphon simulate s-coordp`: one round of S_CoordP on the store-and-forward tree.

Source: K. Guo, Scalable Message Stability Detection Protocols, sections 5.4 and 5.5. The frame is
`antiphon.sim.rounds`, the logical trees are `antiphon.sim.climbing`'s. The first member to have the array is
the root, when it has received the last ACK that it needs.
"""

from dataclasses import dataclass
from typing import Final

from antiphon.core.recording import Recorder
from antiphon.protocols.stability.s_coordp import SCoordP
from antiphon.sim.climbing import ClimbingRound, ClimbingStudy
from antiphon.sim.scenario import Metrics, Scenario


@dataclass(frozen=True, kw_only=True)
class SCoordPStudy(ClimbingStudy):
    """The scenario's parameters; `step` and `subset` have no effect."""


class SCoordPRound(ClimbingRound):
    """One round of S_CoordP."""

    def protocol(self) -> type[SCoordP]:
        return SCoordP

    def steps(self, tpr_s: float | None) -> float | None:  # noqa: ARG002
        """START, one for each level, and INFO (table 4.1: p+2)."""
        return self.hierarchy.height + 2


def simulate(study: SCoordPStudy, seed: int, recorder: Recorder | None) -> Metrics:
    """One round, and its INFO to the end."""
    simulated = SCoordPRound(study, seed, recorder)
    simulated.run()
    return simulated.metrics()


def _cost_s(study: SCoordPStudy) -> float:
    """Each member's share is about constant; its array of counts is what grows with the senders."""
    return study.members * (5e-5 + 1e-6 * study.senders) * (3 if study.lossy else 1)


SCENARIO: Final = Scenario(
    name="s-coordp",
    summary="S_CoordP: parents fold what their children hold, the root multicasts the minimum (Guo, 4.3.1)",
    example="antiphon simulate s-coordp --members 500 --senders 50 --density dense --seed 1 --json",
    configuration=SCoordPStudy,
    run=simulate,
    promises=("stability",),
    cost_s=_cost_s,
)
