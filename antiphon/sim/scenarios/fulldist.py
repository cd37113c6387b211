"""`antiphon simulate fulldist`: one round of FullDist on the store-and-forward tree.

Source: K. Guo, Scalable Message Stability Detection Protocols, sections 5.2, 5.4 and 5.5. The frame is
`antiphon.sim.rounds`. Member 0 multicasts its row and the others theirs on their first reception; `tpr_s` is
the first member to have all rows, `tpr_last_s` the last.

In the scattered form (5.4.3) no member waits for another: after the trigger each member multicasts at a time
drawn uniformly from n x d seconds, d being the mean time between two rows. With `scattered` d grows with the
group as in the text's figure 5.18, 0.02 s for each 50 members.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, cast

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import RoundTriggered
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Recorder
from antiphon.core.time import from_seconds
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.fulldist import FullDist, FullDistConfiguration, Row
from antiphon.sim.rounds import Round, RoundStudy
from antiphon.sim.scenario import Metrics, Scenario

STEPS: Final = 2
"""The first row, and all the others (table 4.1)."""
SPACING_S: Final = 0.02
SPACING_MEMBERS: Final = 50
"""The text's mean time between two scattered rows is this long for each this many members."""


@dataclass(frozen=True, kw_only=True)
class FullDistStudy(RoundStudy):
    """The scenario's parameters; `start`, `step`, `subset` and `subgroup` have no effect."""

    scattered: Annotated[bool, "scatter the rows as figure 5.18 does: 0.02 s apart per 50 members"] = False
    scatter: Annotated[float, "mean seconds between two scattered rows; 0: not scattered"] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scatter < 0:
            raise UsageError(f"Rows cannot be {self.scatter} s apart.", hint="Take 0 or more for --scatter.")

    @property
    def spacing_s(self) -> float:
        """The mean time between two rows; 0 when they are not scattered."""
        text = SPACING_S * self.members / SPACING_MEMBERS if self.scattered else 0.0
        return self.scatter or text


class FullDistRound(Round):
    """One round of FullDist."""

    def prepare(self) -> None:
        study = cast(FullDistStudy, self.study)
        self._scatter_ns = from_seconds(study.members * study.spacing_s)
        self._configuration = FullDistConfiguration(
            repetition=study.repetition(), objective=study.objective, scatter_ns=self._scatter_ns
        )

    def build(self, site: Site) -> Protocol:
        random = self.seeds.stream(f"scatter/{site}") if self._scatter_ns else self.repeating(site)
        protocol = FullDist(site, self.sites, self.senders, self._configuration, random)
        protocol.hold_all(self.holding(site))
        return protocol

    def size_of(self) -> Callable[[Pdu], int]:
        """The least of several rows, sent only where something may be lost, says whose they are."""
        array_bytes = self.study.array_bytes
        return lambda pdu: array_bytes + len(pdu.heard) if type(pdu) is Row else array_bytes

    def trigger(self) -> None:
        """Scattered, each member goes by its own clock, and the clocks agree."""
        for host in self.world.hosts if self._scatter_ns else self.world.hosts[:1]:
            self.world.give(host, RoundTriggered())

    def steps(self, tpr_s: float | None) -> float | None:  # noqa: ARG002
        return STEPS


def simulate(study: FullDistStudy, seed: int, recorder: Recorder | None) -> Metrics:
    """One round, until the last member has all rows."""
    simulated = FullDistRound(study, seed, recorder)
    simulated.run()
    return simulated.metrics()


def _cost_s(study: FullDistStudy) -> float:
    """Every row comes to every member."""
    return study.members**2 * (2.5e-6 + 2e-8 * study.senders) * (3 if study.lossy else 1)


SCENARIO: Final = Scenario(
    name="fulldist",
    summary="FullDist: every member multicasts what it holds and finds the minimum itself (Guo, 4.2.2)",
    example="antiphon simulate fulldist --members 200 --senders 50 --density dense --seed 1 --json",
    configuration=FullDistStudy,
    run=simulate,
    promises=("stability",),
    cost_s=_cost_s,
)
