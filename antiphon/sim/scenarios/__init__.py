"""The scenarios, by name. Each lives in its own module, which is loaded on first use."""

import difflib
import importlib
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.sim.scenario import Scenario

MODULES: Final = {
    "co": "antiphon.sim.scenarios.co",
    "coordp": "antiphon.sim.scenarios.coordp",
    "dpg": "antiphon.sim.scenarios.dpg",
    "failure-detection": "antiphon.sim.scenarios.failure_detection",
    "fifo": "antiphon.sim.scenarios.fifo",
    "fulldist": "antiphon.sim.scenarios.fulldist",
    "global-sequencer": "antiphon.sim.scenarios.global_sequencer",
    "gossip": "antiphon.sim.scenarios.gossip",
    "group-sequencers": "antiphon.sim.scenarios.group_sequencers",
    "metagroups": "antiphon.sim.scenarios.metagroups",
    "piggyback": "antiphon.sim.scenarios.piggyback",
    "profile": "antiphon.sim.scenarios.profile",
    "propagation-tree": "antiphon.sim.scenarios.propagation_tree",
    "quorum": "antiphon.sim.scenarios.quorum",
    "resource-sharing": "antiphon.sim.scenarios.resource_sharing",
    "s-coordp": "antiphon.sim.scenarios.s_coordp",
    "s-gossip": "antiphon.sim.scenarios.s_gossip",
    "s-train": "antiphon.sim.scenarios.s_train",
    "sco": "antiphon.sim.scenarios.sco",
    "sco-c0": "antiphon.sim.scenarios.sco_c0",
    "sco-c1": "antiphon.sim.scenarios.sco_c1",
    "sco-d0": "antiphon.sim.scenarios.sco_d0",
    "sequencer": "antiphon.sim.scenarios.sequencer",
    "template": "antiphon.sim.scenarios.template",
    "token": "antiphon.sim.scenarios.token",
    "totem": "antiphon.sim.scenarios.totem",
    "totem-agreed": "antiphon.sim.scenarios.totem_agreed",
    "train": "antiphon.sim.scenarios.train",
    "two-phase": "antiphon.sim.scenarios.two_phase",
    "vector-clock": "antiphon.sim.scenarios.vector_clock",
}
"""Where each scenario's `SCENARIO` is."""


def scenario_names() -> list[str]:
    return sorted(MODULES)


def find_scenario(name: str) -> Scenario:
    """A scenario by its name, or one of your own as `package.module:ATTRIBUTE`."""
    module, _, attribute = name.partition(":")
    if not attribute:
        if name not in MODULES:
            raise _unknown(name)
        module, attribute = MODULES[name], "SCENARIO"
    try:
        scenario = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"The scenario '{name}' cannot be loaded: {error}.") from error
    if not isinstance(scenario, Scenario):
        raise UsageError(f"'{name}' is not a scenario.", hint="It must be an antiphon.sim.scenario.Scenario.")
    return scenario


def _unknown(name: str) -> UsageError:
    near = difflib.get_close_matches(name, MODULES, n=1)
    guess = f"Did you mean '{near[0]}'? " if near else ""
    return UsageError(
        f"There is no protocol '{name}' to simulate.",
        hint=f"{guess}There are: {', '.join(scenario_names())}.",
    )
