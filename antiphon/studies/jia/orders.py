"""Whether common members of overlapping groups deliver in one order: every protocol, judged alike. Claim J1.

Every protocol is judged by total order, whether it promises it or not. Pairs of sites that delivered two
messages in different orders are counted too: an order can have a cycle over several sites although no two of
them differ.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Annotated, Any, Final

from antiphon.core.errors import UsageError
from antiphon.core.ids import MessageId, Site
from antiphon.core.recording import Property, Recorder
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.scenarios import find_scenario
from antiphon.simulation import SimulatedRun, simulate_and_judge
from antiphon.studies.jia.settings import OVERLAPS
from antiphon.studies.judging import total
from antiphon.studies.results import Results
from antiphon.studies.study import Grid, fixed

NAME: Final = "antiphon.studies.jia.orders:SCENARIO"
PROTOCOLS: Final = {
    "metagroups": "meta-groups",
    "global-sequencer": "one sequencer",
    "group-sequencers": "a sequencer for each group",
    "token": "token",
    "two-phase": "two-phase",
    "propagation-tree": "tree of sites",
}
JUDGED: Final[tuple[Property, ...]] = ("integrity", "duplicate", "atomicity", "total")


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A busy run over a network with random delays."""

    protocol: Annotated[str, "whose order is judged"] = "metagroups"
    members: Annotated[int, "sites"] = 12
    groups: Annotated[int, "groups"] = 5
    overlap: Annotated[float, "groups that a site is in on average"] = 2.0
    messages: Annotated[int, "multicasts"] = 150
    rate: Annotated[float, "multicasts a second"] = 3000.0
    jitter_ms: Annotated[float, "delays are from 1 ms to 1 ms plus this"] = 5.0
    loss: Annotated[float, "probability that an arrival is lost"] = 0.02

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise UsageError(
                f"There is no protocol '{self.protocol}' for overlapping groups.",
                hint=f"There are: {', '.join(PROTOCOLS)}.",
            )


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:  # noqa: ARG001
    parameters = dataclasses.asdict(configuration)
    scenario = find_scenario(parameters.pop("protocol"))
    return judged(scenario, scenario.configure({**parameters, "outsiders": 0.5}), seed)


def judged(scenario: Scenario, configuration: Any, seed: int) -> Metrics:
    """A run's metrics, with the violations of its order."""
    done = simulate_and_judge(
        dataclasses.replace(scenario, promises=JUDGED, promised=None), configuration, seed
    )
    disagreeing = sum(
        not agree(first, second) for first, second in combinations(deliveries(done).values(), 2)
    )
    cycles = sum(violation.property == "total" for violation in done.violations)
    return done.metrics | {
        "cycles": cycles,
        "broken_run": cycles > 0,
        "disagreeing_pairs": disagreeing,
        "disagreeing_run": disagreeing > 0,
        "other_violations": len(done.violations) - cycles,
    }


def deliveries(done: SimulatedRun) -> dict[Site, list[MessageId]]:
    """Each site's deliveries in order; a batch is named by its first message."""
    found: dict[Site, list[MessageId]] = {}
    for event in done.events():
        if event.kind == "deliver" and event.sender is not None and event.number is not None:
            found.setdefault(event.site, []).append(MessageId(event.sender, event.number))
    return found


def agree(first: Iterable[MessageId], second: Iterable[MessageId]) -> bool:
    """Whether two sites have delivered what they share in the same order."""
    places: Mapping[MessageId, int] = {message: place for place, message in enumerate(second)}
    shared = [places[message] for message in first if message in places]
    return all(before < after for before, after in pairwise(shared))


SCENARIO: Final = Scenario(
    name=NAME,
    summary="One order at common members, whatever a protocol promises (Jia and So, 3)",
    example=f"antiphon simulate {NAME} --protocol group-sequencers --seed 0 --json",
    configuration=Configuration,
    run=run,
    promises=(),
    cost_s=lambda knobs: 0.02 + 3e-4 * knobs.messages,
)
GRID: Final = Grid(
    scenario=NAME,
    axes={
        **fixed({"members": 12, "groups": 5}),
        "protocol": tuple(PROTOCOLS),
        "overlap": tuple(OVERLAPS.values()),
    },
    seeds={"quick": 5, "full": 40},
)


def where(protocol: str) -> dict[str, Any]:
    return {"scenario": NAME, "protocol": protocol}


def rows(results: Results) -> list[list[str]]:
    made = []
    for protocol, words in PROTOCOLS.items():
        points = results.matching(where(protocol))
        if points:
            runs = sum(point.metrics["cycles"].count for point in points)
            made.append(
                [
                    words,
                    str(runs),
                    f"{total(points, 'deliveries'):.0f}",
                    f"{total(points, 'broken_run'):.0f}",
                    f"{total(points, 'disagreeing_run'):.0f}",
                    f"{total(points, 'other_violations'):.0f}",
                ]
            )
    return made


def broken(results: Results, protocol: str) -> tuple[float, int]:
    """Runs with a broken order, and all runs."""
    points = results.found(where(protocol))
    return total(points, "broken_run"), sum(point.metrics["cycles"].count for point in points)
