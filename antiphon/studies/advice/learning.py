"""Writes the advisor's table from a sweep's results: `python -m antiphon.studies.advice.learning FOLDER`.

FOLDER holds the runs of `antiphon sweep advice --full`. Each point's means go to the file that the advisor
reads, or to the one named as a second argument.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from antiphon.core.errors import InputError
from antiphon.studies.advice.plans import PLANS, Place, Plan, key_of
from antiphon.studies.advice.tables import FILE, FINISHED, METRICS, axes_of
from antiphon.trace.arrow import pq

DIGITS: Final = 5

Means = Mapping[tuple[str, str], Mapping[str, float]]
"""By scenario and parameters, the mean of each metric."""


def read_means(folder: Path) -> dict[tuple[str, str], dict[str, float]]:
    """The means of a sweep's runs; a run that is in two files counts once."""
    sums: dict[tuple[str, str], dict[str, tuple[float, int]]] = {}
    for key, metrics in _runs(folder).values():
        point = sums.setdefault(key, {})
        for name, value in metrics:
            total, count = point.get(name, (0.0, 0))
            point[name] = total + value, count + 1
    return {
        key: {name: total / count for name, (total, count) in point.items()} for key, point in sums.items()
    }


def _runs(folder: Path) -> dict[str, tuple[tuple[str, str], list[tuple[str, float]]]]:
    found = {}
    columns = ["key", "scenario", "parameters", "metrics"]
    for path in sorted(folder.glob("runs-*.parquet")):
        for row in pq.read_table(path, columns=columns).to_pylist():
            if row["metrics"] is not None:
                found[row["key"]] = (row["scenario"], row["parameters"]), row["metrics"]
    if not found:
        raise InputError(f"{folder} has no runs of a sweep.", hint="antiphon sweep advice --full makes them.")
    return found


def encode(means: Means) -> dict[str, Any]:
    """The file's content: axes and means of each plan whose points were all run."""
    return {
        plan.name: {
            "axes": axes_of(plan),
            "base": _columns(plan, plan.base_places(), means),
            "lossy": _columns(plan, plan.lossy_places(), means),
        }
        for plan in PLANS
        if all(set(METRICS) <= means.get(key_of(plan, place), {}).keys() for place in plan.places())
    }


def _columns(plan: Plan, places: Iterator[Place], means: Means) -> dict[str, list[float]]:
    points = [means[key_of(plan, place)] for place in places]
    return {
        metric: [float(f"{point[metric]:.{DIGITS}g}") for point in points] for metric in (*METRICS, FINISHED)
    }


def main(folder: Path, file: Path) -> None:
    stored = encode(read_means(folder))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(plan)}" for name, plan in stored.items())
    file.write_text(f"{{\n{lines}\n}}\n")
    missing = [plan.name for plan in PLANS if plan.name not in stored]
    sys.stderr.write(f"{file} has {len(stored)} plans; without all of their runs: {missing or 'none'}.\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent / FILE)
