"""`antiphon simulate coordp`: one round of CoordP on the store-and-forward tree.

Source: K. Guo, Scalable Message Stability Detection Protocols, sections 5.2, 5.4 and 5.5. The frame is
`antiphon.sim.rounds`. The coordinator is at node 0; the first member to have the array is the coordinator,
when it has received the last ACK that it needs.
"""

from dataclasses import dataclass
from typing import Final

from antiphon.core.ids import Site
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Recorder
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.base import Configuration
from antiphon.protocols.stability.coordp import CoordP, StartRound
from antiphon.sim.rounds import Round, RoundStudy
from antiphon.sim.scenario import Metrics, Scenario

STEPS: Final = 3
"""START, ACK, INFO (table 4.1)."""


@dataclass(frozen=True, kw_only=True)
class CoordPStudy(RoundStudy):
    """The scenario's parameters; `step`, `subset` and `subgroup` have no effect."""


class CoordPRound(Round):
    """One round of CoordP; the bench drives it too."""

    def prepare(self) -> None:
        self._configuration = Configuration(
            repetition=self.study.repetition(), objective=self.study.objective
        )

    def build(self, site: Site) -> Protocol:
        protocol = CoordP(site, self.sites, self.senders, self._configuration, self.repeating(site))
        protocol.hold_all(self.holding(site))
        return protocol

    def start_kind(self) -> type[Pdu]:
        return StartRound

    def steps(self, tpr_s: float | None) -> float | None:  # noqa: ARG002
        return STEPS


def simulate(study: CoordPStudy, seed: int, recorder: Recorder | None) -> Metrics:
    """One round, and its INFO to the end."""
    simulated = CoordPRound(study, seed, recorder)
    simulated.run()
    return simulated.metrics()


def _cost_s(study: CoordPStudy) -> float:
    """Each member's share is about constant; its array of counts is what grows with the senders."""
    return study.members * (1e-5 + 1e-6 * study.senders) * (3 if study.lossy else 1)


SCENARIO: Final = Scenario(
    name="coordp",
    summary="CoordP: a coordinator collects what all hold and multicasts the minimum (Guo, 4.2.1)",
    example="antiphon simulate coordp --members 500 --senders 50 --density dense --seed 1 --json",
    configuration=CoordPStudy,
    run=simulate,
    promises=("stability",),
    cost_s=_cost_s,
)
