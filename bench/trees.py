"""How long propagation trees take to build: 1,000 groups over 10,000 sites, in both shapes.

Run it with `python bench/trees.py [--json]`. Each case draws who is in which group from a seed: every site is
in 1 to `most` groups, chosen alike or with popularity falling as 1/rank. A figure is the median of five
measurements of wall time: forming meta-groups and building the forest; one join that alters a tree; the route
of each of 50 groups, whose mean depth and extra nodes are shown too.

What it depends on: nothing but Python and the machine. Where few sites share a label almost every site is a
meta-group of its own, which is the hard case; the printed shape's routes run along chains of thousands of
nodes, so that routes, which sending does not need, take longer than the trees.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeVar

from antiphon.core.ids import Group, Site, site_names
from antiphon.protocols.metagroups.changes import change
from antiphon.protocols.metagroups.shapes import SHAPES, Shape
from antiphon.protocols.metagroups.tree import Forest, broken_rules, build_forest

GROUPS: Final = 1_000
SITES: Final = 10_000
ROUTES: Final = 50
REPEATS: Final = 5
TARGET_S: Final = 10.0
CASES: Final = ((5, 0.0), (5, 1.0), (2, 1.0), (40, 1.0))
"""In how many groups a site is at most, and how steeply popularity falls."""

Result = TypeVar("Result")


def draw(most: int, steepness: float) -> dict[Group, set[Site]]:
    random = Random(f"{most} {steepness}")
    groups = [f"g{number:03d}" for number in range(GROUPS)]
    weights = [1 / (place + 1) ** steepness for place in range(GROUPS)]
    membership: dict[Group, set[Site]] = {group: set() for group in groups}
    for site in site_names(SITES):
        for group in random.choices(groups, weights, k=random.randint(1, most)):
            membership[group].add(site)
    return membership


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times), result


def measure(most: int, steepness: float, shape: Shape) -> dict[str, Any]:
    membership = draw(most, steepness)
    build_s, forest = timed(lambda: build_forest(membership, shape=shape))
    assert not broken_rules(forest)
    newcomer = [("newcomer", group) for group in sorted(forest.primary_of)[-6:]]
    join_s, changed = timed(lambda: change(forest, joins=newcomer))
    assert changed.alters_trees
    sample = Random(1).sample(sorted(forest.primary_of), ROUTES)
    routes_s, routes = timed(lambda: [forest.route(group) for group in sample])
    return {
        "most": most,
        "steepness": steepness,
        "shape": shape,
        "meta_groups": len(forest.nodes),
        "trees": len(forest.roots),
        "build_s": round(build_s, 3),
        "join_s": round(join_s, 3),
        "routes_s": round(routes_s, 3),
        "depth": round(statistics.mean(route.depth for route in routes), 1),
        "extra": round(statistics.mean(len(route.extra) for route in routes), 1),
        "levels": height(forest),
    }


def height(forest: Forest) -> int:
    """Levels of the deepest tree."""
    levels: dict[Any, int] = {None: 0}
    for root in forest.roots:
        for label in forest.tree(root):
            levels[label] = levels[forest.nodes[label].parent] + 1
    return max(levels.values())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per case")
    options = parser.parse_args()
    slowest = 0.0
    for most, steepness in CASES:
        for shape in SHAPES:
            row = measure(most, steepness, shape)
            slowest = max(slowest, row["build_s"])
            words = ", ".join(f"{name} {value}" for name, value in row.items())
            print(json.dumps(row) if options.json else words, flush=True)
    print(f"Slowest build {slowest:.2f} s; the target is {TARGET_S:g} s.", file=sys.stderr)
    return 0 if slowest < TARGET_S else 1


if __name__ == "__main__":
    sys.exit(main())
