"""The golden-ratio search of section 5.3.2 as a scenario, so that a sweep can run many of them at once.

One run is one search: at each step tried, Gossip is simulated with some seeds, and the mean time per round
is minimised. For 200 members and 50 senders the values are the paper's: a range of 0 to 20 s, a final
interval of 2 s and a stride of 1 s for the window. For other groups all three scale with the group's and the
message's size, that is with the time in which the network carries one gossip of every member. A window has
no step shorter than a stride: the paper's has whole seconds, and much shorter steps only flood the network.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from antiphon.analysis.golden import Memo, find_window, golden_search
from antiphon.core.recording import Recorder
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.scenarios import find_scenario
from antiphon.studies.guo.settings import FIXED_SIZE, gossip_bytes

NAME: Final = "antiphon.studies.guo.search:SCENARIO"
RANGE_S: Final = 20.0
"""The range of steps for a group of 200 with 50 senders."""
TOLERANCE: Final = 0.1
"""The search stops when its interval is this share of the range (g = 2 s of 20)."""
STRIDE: Final = 0.05
"""The window's first stride as a share of the range (p = 1 s of 20)."""
FLUCTUATION: Final = 0.1
LEAST: Final = 0.99
"""Steps of a window are longer than this share of the stride."""
NEVER_S: Final = 600.0
"""The time that counts for a round that does not end."""


@dataclass(frozen=True, kw_only=True)
class SearchStudy:
    """One group and one subset size, for which the best step is searched."""

    members: Annotated[int, "members of the group"] = FIXED_SIZE
    senders: Annotated[int, "how many of them multicast messages"] = 50
    density: Annotated[str, "dense or sparse"] = "dense"
    loss: Annotated[str, "none, buffers or random"] = "none"
    subset: Annotated[int, "members that a gossip goes to"] = 1
    seeds: Annotated[int, "runs at each step that is tried"] = 5
    longest: Annotated[float, "seconds of the longest step, for 200 members and 50 senders"] = RANGE_S

    @property
    def range_s(self) -> float:
        share = gossip_bytes(self.members, self.senders) / gossip_bytes(FIXED_SIZE, 50)
        return self.longest * share * self.members / FIXED_SIZE


def search(study: SearchStudy, seed: int, _recorder: Recorder | None) -> Metrics:
    """Part I, then part II (figures 5.8 and 5.9)."""
    mean = Memo(lambda step: _mean_tpr_s(study, step, seed))
    found = golden_search(mean, 0.0, study.range_s, TOLERANCE * study.range_s)
    stride = STRIDE * study.range_s
    window = find_window(
        mean,
        found.step,
        fluctuation=FLUCTUATION,
        stride=stride,
        least=LEAST * stride,
        most=study.range_s,
    )
    return {
        "step": found.step,
        "tpr_s": found.value,
        "iterations": found.iterations,
        "evaluations": mean.evaluations,
        "window_low": window.low,
        "window_high": window.high,
    }


def _mean_tpr_s(study: SearchStudy, step: float, first_seed: int) -> float:
    scenario = find_scenario("gossip")
    configuration = scenario.configure(
        {
            "members": study.members,
            "senders": study.senders,
            "density": study.density,
            "loss": study.loss,
            "subset": study.subset,
            "step": step,
            "until": "first",
        }
    )
    total = 0.0
    for seed in range(first_seed, first_seed + study.seeds):
        tpr_s = scenario.run(configuration, seed, None)["tpr_s"]
        total += NEVER_S if tpr_s is None else float(tpr_s)
    return total / study.seeds


def _cost_s(study: SearchStudy) -> float:
    """About fifteen steps are tried; a step at a quarter of the range costs about the mean."""
    scenario = find_scenario("gossip")
    step = study.range_s / 4
    one = scenario.configure({"members": study.members, "subset": study.subset, "step": step})
    return 15 * study.seeds * scenario.cost_s(one)


SCENARIO: Final = Scenario(
    name=NAME,
    summary="The golden-ratio search for Gossip's best step (Guo, 5.3.2)",
    example=f"antiphon simulate {NAME} --members 200 --subset 3 --seed 0 --json",
    configuration=SearchStudy,
    run=search,
    promises=(),
    cost_s=_cost_s,
)
