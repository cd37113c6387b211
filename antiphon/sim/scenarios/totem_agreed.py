"""`antiphon simulate totem-agreed`: Totem that delivers as soon as nothing is missing before a message."""

import dataclasses
from typing import Final

from antiphon.core.recording import Recorder
from antiphon.protocols.rivals.totem import AGREED_PROMISES
from antiphon.sim.scenario import Metrics
from antiphon.sim.scenarios import totem


def run(configuration: totem.Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    return totem.run_delivering("agreed", configuration, seed, recorder)


SCENARIO: Final = dataclasses.replace(
    totem.SCENARIO,
    name="totem-agreed",
    summary="Totem with agreed delivery: sooner, but what one has delivered may be lost when members go.",
    example="antiphon simulate totem-agreed --members 7 --messages 1000 --seed 1",
    run=run,
    promises=AGREED_PROMISES,
)
