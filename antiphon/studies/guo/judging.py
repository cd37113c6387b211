"""How Guo's claims are judged, the same way throughout.

- A quoted number holds if ours is within 10% of it: the paper rounds, and reads some numbers off figures.
- 'Over' and 'at least' hold if ours is above; 'much' means at least twice; 'slightly' means more, by less
  than half.
- An order or a trend holds if it holds at every group size that was run.
- A growth law holds if it fits best among the candidates (`antiphon.studies.growth`).

Where a verdict turns on how the text is read, each reading is judged, and `readings` has a table of all.
Queues are an output link's, or the sum over a node's links. No claim is judged by what was fitted to it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from antiphon.studies.claims import Judge
from antiphon.studies.formatting import number
from antiphon.studies.growth import best_law
from antiphon.studies.guo.settings import points
from antiphon.studies.judging import Way, under, unless
from antiphon.studies.model import Finding
from antiphon.studies.results import Results

SLIGHTLY: Final = 1.5
NOTHING_WAITS: Final = 0.05
"""A mean queue below this counts as 0: the paper's figures show no smaller ones."""


def by_size(
    results: Results, protocol: str, density: str, senders: int, metric: str = "tpr_s", **changes: Any
) -> dict[int, float]:
    """A metric's means over the group size in the comparisons."""
    return results.means(points(protocol, density, senders, **changes), "members", metric)


def ends(values: Mapping[Any, float], unit: str = "") -> str:
    """The first and the last value of a curve, in words."""
    places = sorted(values)
    first, last = places[0], places[-1]
    return f"{number(values[first])}{unit} at n={first:g} to {number(values[last])}{unit} at n={last:g}"


def shared(*curves_: Mapping[int, float]) -> list[int]:
    """The group sizes that all curves have."""
    return sorted(set.intersection(*(set(curve) for curve in curves_)))


def falls_off(names: Sequence[str], curves_: Sequence[Mapping[int, float]], above: int = 0) -> Finding:
    """Whether the curves are in falling order at every size above a given one; the reason says where not."""
    sizes = [size for size in shared(*curves_) if size > above]
    broken = [
        f"{first} not above {second} at n={size}"
        for size in sizes
        for (first, upper), (second, lower) in pairwise(zip(names, curves_, strict=True))
        if upper[size] <= lower[size]
    ]
    last = sizes[-1]
    values = ", ".join(f"{name} {number(curve[last])}" for name, curve in zip(names, curves_, strict=True))
    return Finding(ours=f"n={last}: {values}", holds=not broken, reason=_several(broken))


def _several(parts: Sequence[str], most: int = 4) -> str:
    if not parts:
        return ""
    more = f" and {len(parts) - most} more" if len(parts) > most else ""
    return "; ".join(parts[:most]) + more + "."


def grows_as(
    results: Results,
    law: str,
    protocol: str,
    density: str = "dense",
    metric: str = "hop_messages",
    above: int = 0,
) -> Finding:
    """Whether a metric over the group size follows a law best."""
    found_at = by_size(results, protocol, density, 50, metric)
    values = {size: value for size, value in found_at.items() if size > above}
    found, misfit = best_law(list(values), list(values.values()))
    each = {size: value / size for size, value in values.items()}
    return Finding(
        ours=f"{ends(values)}; best of the laws: {found}",
        interval=f"off by {misfit:.1%}",
        holds=found == law,
        reason=unless(found == law, f"For each member: {ends(each)}."),
    )


def ratios(upper: Mapping[int, float], lower: Mapping[int, float]) -> dict[int, float]:
    return {size: upper[size] / lower[size] for size in shared(upper, lower)}


def span(values: Iterable[float], unit: str = "") -> str:
    numbers = list(values)
    return f"{_short(min(numbers))} to {_short(max(numbers))}{unit}"


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else number(value)


def both(*findings: tuple[str, Finding]) -> Finding:
    """Several named findings as one, which holds if all do."""
    holds = None if any(one.holds is None for _, one in findings) else all(one.holds for _, one in findings)
    broken = [f"{name}: {one.reason}" for name, one in findings if one.reason]
    return Finding(
        ours="; ".join(f"{name}: {one.ours}" for name, one in findings),
        interval="; ".join(f"{name} {one.interval}" for name, one in findings if one.interval),
        holds=holds,
        reason=" ".join(broken),
    )


def by_queues(judge: Callable[[Results, str], Finding]) -> Judge:
    """A claim about mean queues, judged by both kinds of queue."""
    return under(
        Way("a link's queue", "a queue is an output link's", lambda results: judge(results, "queue_mean")),
        Way(
            "a node's sum",
            "a queue is the sum over a node's links",
            lambda results: judge(results, "queue_node_mean"),
        ),
    )


def by_fills(judge: Callable[[Results, str], Finding]) -> Judge:
    """A claim about dense groups, judged with both ways to fill the tree's last level."""
    return under(
        Way("even", "the tree's last level is spread evenly", lambda results: judge(results, "even")),
        Way("from the left", "it is filled from the left", lambda results: judge(results, "left")),
    )


def crossing(upper: Mapping[int, float], lower: Mapping[int, float]) -> float | None:
    """Where the first curve begins to exceed the second, interpolated between the sizes."""
    for before, after in pairwise(shared(upper, lower)):
        below, above = upper[before] - lower[before], upper[after] - lower[after]
        if below < 0 <= above:
            return before + (after - before) * below / (below - above)
    return None
