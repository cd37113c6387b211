"""`antiphon simulate sco-d0`: SCO's service under plain distributed control, D0, under loss and absence."""

from typing import Final

from antiphon.core.recording import Recorder
from antiphon.protocols.rivals.controlled import PROMISES
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.scenarios.sco_c0 import Configuration, cost_s, run_under


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    return run_under("D0", configuration, seed, recorder)


SCENARIO: Final = Scenario(
    name="sco-d0",
    summary="Selective causal order under distributed control: every destination answers all others.",
    example="antiphon simulate sco-d0 --members 10 --messages 500 --destinations 5 --loss 0.1 --seed 1",
    configuration=Configuration,
    run=run,
    promises=PROMISES,
    audited=True,
    cost_s=cost_s,
)
