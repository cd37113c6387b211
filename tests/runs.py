"""A thousand runs over every scenario, and whether they are the same as before a change.

A change that must not alter behaviour is made between two calls:

    python -m tests.runs --keep /tmp/runs.json        # before
    python -m tests.runs --compare /tmp/runs.json     # after, as often as you like

Each run has its own seed and parameters, all drawn from its number. Its hash covers every row of the trace
and every metric. `--compare` draws nothing: it repeats the kept runs, names those that differ with the
command that replays each, and exits with 1 if there are any.
"""

import argparse
import dataclasses
import hashlib
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, get_type_hints

from antiphon.core.errors import UsageError
from antiphon.sim.scenario import Scenario, replay_command
from antiphon.sim.scenarios import find_scenario, scenario_names
from antiphon.trace.recorder import MemoryRecorder

RUNS: Final = 1000
MOST_COST_S: Final = 0.5
"""A draw that takes longer than about this is drawn again."""
DRAWS: Final = 50
"""Draws for one run; after that the scenario's defaults are taken."""
VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "loss": (0.0, 0.05, 0.2),
    "duplication": (0.0, 0.1, 0.3),
    "reordering": (0.0, 0.1, 0.3),
    "jitter_ms": (0.0, 0.5, 3.0),
    "churn": (0, 1, 2),
    "crashes": (0, 1, 2),
    "partitions": (0, 1, 2),
    "members": (3, 4, 5, 7),
    "messages": (20, 60, 120),
    "network": ("mesh", "medium"),
    "repair": ("hybrid", "acknowledge", "request", "request-all", "any"),
    "stability": ("coordp", "fulldist", "train", "gossip", "s-coordp", "s-train", "s-gossip"),
    "detector": ("heartbeat", "polling", "gossip"),
    "service": ("sequencer", "bounded-delay", "lan"),
    "density": ("sparse", "dense"),
}
"""Values for the parameters whose type does not say which make sense."""


class Drawn(NamedTuple):
    """One run, told so that it can be repeated."""

    scenario: str
    parameters: dict[str, Any]
    seed: int


def draw(number: int) -> Drawn:
    """The run with this number."""
    names = scenario_names()
    scenario = find_scenario(names[number % len(names)])
    random = Random(f"runs/{number}")
    for _ in range(DRAWS):
        parameters = dict(_changed(scenario, random))
        try:
            if scenario.cost_s(scenario.configure(parameters)) <= MOST_COST_S:
                return Drawn(scenario.name, parameters, number)
        except UsageError:
            continue
    return Drawn(scenario.name, {}, number)


def _changed(scenario: Scenario, random: Random) -> Iterator[tuple[str, Any]]:
    """About a third of the parameters, each with another value."""
    hints = get_type_hints(scenario.configuration)
    for field in dataclasses.fields(scenario.configuration):
        if field.name in VALUES:
            if random.random() < 0.5:
                yield field.name, random.choice(VALUES[field.name])
        elif random.random() < 0.3:
            if hints[field.name] is bool:
                yield field.name, random.random() < 0.5
            elif hints[field.name] in (int, float):
                usual: Any = field.default
                yield field.name, hints[field.name](usual * random.choice([0.5, 1, 2]))


def digest(drawn: Drawn) -> str:
    """The hash of a run's trace and metrics, or of the error that ends it."""
    scenario = find_scenario(drawn.scenario)
    recorder = MemoryRecorder("r")
    try:
        metrics = scenario.run(scenario.configure(drawn.parameters), drawn.seed, recorder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    rows = "\n".join(map(repr, recorder.events()))
    return hashlib.sha256(f"{rows}\n{metrics}".encode()).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.runs", description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--keep", type=Path, help="write the runs and their hashes to this file")
    what.add_argument("--compare", type=Path, help="repeat the runs of this file")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs to draw, or to repeat at most")
    parser.add_argument("--only", help="repeat only the runs of this scenario")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        if arguments.keep:
            drawn = list(map(draw, range(arguments.runs)))
            kept = [(*one, found) for one, found in zip(drawn, pool.map(digest, drawn), strict=True)]
            arguments.keep.write_text(json.dumps(kept))
            print(f"{len(kept)} runs kept in {arguments.keep}.")
            return 0
        kept = [row for row in json.loads(arguments.compare.read_text()) if arguments.only in (None, row[0])]
        kept = kept[: arguments.runs]
        drawn = [Drawn(*row[:3]) for row in kept]
        differing = [
            one
            for one, row, found in zip(drawn, kept, pool.map(digest, drawn), strict=True)
            if found != row[3]
        ]
    for one in differing:
        print(replay_command(one.scenario, one.parameters, one.seed))
    print(f"{len(differing)} of {len(drawn)} runs differ.", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
