"""`antiphon simulate train`: one round of Train on the store-and-forward tree.

Source: K. Guo, Scalable Message Stability Detection Protocols, sections 5.2, 5.4 and 5.5. The frame is
`antiphon.sim.rounds`. The train goes in the order of the nodes' numbers; the first member to have the array
is member 0, when the ACK train is back. The INFO train then takes as long again.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from antiphon.core.ids import Site
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Recorder
from antiphon.core.time import from_seconds
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.base import Configuration
from antiphon.protocols.stability.round_trips import Repetition
from antiphon.protocols.stability.train import Receipt, Train
from antiphon.sim.rounds import HEADER_BYTES, Round, RoundStudy
from antiphon.sim.scenario import Metrics, Scenario


@dataclass(frozen=True, kw_only=True)
class TrainStudy(RoundStudy):
    """The scenario's parameters; `start`, `step`, `subset` and `subgroup` have no effect."""

    @property
    def lossy(self) -> bool:
        """There is one message at a time, which fills no buffer."""
        return self.loss_rate > 0

    def repetition(self) -> Repetition | None:
        """The longest pause lasts for both laps, so that no member asks for a result that is on its way."""
        usual = super().repetition()
        if usual is None:
            return None
        laps_ns = from_seconds(2 * self.members * self.longest_hop_s)
        return replace(usual, longest_ns=max(usual.longest_ns, laps_ns))


class TrainRound(Round):
    """One round of Train."""

    def prepare(self) -> None:
        self._configuration = Configuration(
            repetition=self.study.repetition(), objective=self.study.objective
        )

    def build(self, site: Site) -> Protocol:
        protocol = Train(site, self.sites, self.senders, self._configuration, self.repeating(site))
        protocol.hold_all(self.holding(site))
        return protocol

    def size_of(self) -> Callable[[Pdu], int]:
        """A receipt is a bare header; it is only sent where something may be lost."""
        array_bytes = self.study.array_bytes
        return lambda pdu: HEADER_BYTES if type(pdu) is Receipt else array_bytes

    def steps(self, tpr_s: float | None) -> float | None:  # noqa: ARG002
        """Each of the two trains visits everyone (table 4.1)."""
        return 2 * self.study.members


def simulate(study: TrainStudy, seed: int, recorder: Recorder | None) -> Metrics:
    """One round, and its INFO to the end."""
    simulated = TrainRound(study, seed, recorder)
    simulated.run()
    return simulated.metrics()


def _cost_s(study: TrainStudy) -> float:
    """Each member is visited twice, one after another, so that the network cannot run ahead."""
    return study.members * (1e-4 + 1e-6 * study.senders) * (3 if study.lossy else 1)


SCENARIO: Final = Scenario(
    name="train",
    summary="Train: an array goes round the members, first to gather and then to distribute (Guo, 4.2.3)",
    example="antiphon simulate train --members 200 --senders 50 --density dense --seed 1 --json",
    configuration=TrainStudy,
    run=simulate,
    promises=("stability",),
    cost_s=_cost_s,
)
