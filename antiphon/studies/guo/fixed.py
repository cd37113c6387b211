"""Sections 5.3.1 and 5.3.2: Gossip in a group of 200 over the step; figures 5.2 to 5.9, appendices A and B,
claims G4 to G9.

'Simulation I' has no loss, II 64-message buffers and two lost gossips a step, III only the latter. Appendix
A repeats figures 5.3 to 5.6 and adds simulation III; appendix B has the same for sparse groups, of which
figure 5.7 shows the times. Each is drawn once here.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from antiphon.analysis.golden import find_window, golden_search
from antiphon.studies.claims import Judge
from antiphon.studies.guo.judging import by_queues, span
from antiphon.studies.guo.search import FLUCTUATION, LEAST, RANGE_S, STRIDE, TOLERANCE
from antiphon.studies.guo.search import NAME as SEARCH
from antiphon.studies.guo.settings import FIXED_SIZE, SUBSETS, fixed_gossip
from antiphon.studies.judging import NEAR, Way, is_near, judged_by, under, unless
from antiphon.studies.model import Curve, Figure, Finding, Panel, Section, Table
from antiphon.studies.results import Results

SIMULATIONS: Final = {
    "none": "I (no loss)",
    "buffers": "II (64-message buffers, 2 lost a step)",
    "random": "III (2 lost a step)",
}
STEP: Final[dict[str, Any]] = {"x": "step", "x_label": "step interval (s)"}
FLOOR: Final = 0.10
"""Steps within this share of their floor count as having reached it."""
UNFINISHED: Final = 0.0015
SURE: Final = 0.01
"""A share of unfinished rounds differs from the paper's if ours has at most this probability."""


def panel(density: str, loss: str, metric: str, title: str, unit: str) -> Panel:
    return Panel(
        title=title,
        y=metric,
        y_label=unit,
        curves=[
            Curve(name=f"subset {subset}", where=fixed_gossip(density, loss, subset)) for subset in SUBSETS
        ],
        **STEP,
    )


def queues(id_: str, density: str, loss: str) -> Figure:
    return Figure(
        id=id_,
        title=f"Gossip, simulation {SIMULATIONS[loss]}, {density} group of {FIXED_SIZE}: queues",
        caption="The output link's queue at each enqueue, over the step interval.",
        panels=[
            panel(density, loss, "queue_mean", "mean queue", "messages waiting, mean"),
            panel(density, loss, "queue_max", "longest queue", "messages waiting, most"),
        ],
    )


def times(id_: str, density: str, loss: str) -> Figure:
    return Figure(
        id=id_,
        title=f"Gossip, simulation {SIMULATIONS[loss]}, {density} group of {FIXED_SIZE}: steps and time",
        caption="A round's time is its steps times the step interval.",
        panels=[
            panel(density, loss, "steps", "steps in a round", "steps"),
            panel(density, loss, "tpr_s", "time per round", "time per round (s)"),
        ],
    )


def spread(metric: str, title: str, unit: str) -> Panel:
    where = fixed_gossip("dense", "none", 3)
    curves = [Curve(name="subset 3", where=where)]
    return Panel(title=title, y=metric, y_label=unit, curves=curves, spread="deviation", **STEP)


FIGURES: Final = (
    Figure(
        id="5.2",
        title=f"Spread over 20 seeds: Gossip, simulation I, dense group of {FIXED_SIZE}, subset size 3",
        caption="Mean, and one standard deviation above and below it.",
        panels=[
            spread("queue_mean", "mean queue", "messages waiting, mean"),
            spread("tpr_s", "time per round", "time per round (s)"),
        ],
    ),
    queues("5.3, A.1", "dense", "none"),
    times("5.4, A.2", "dense", "none"),
    queues("5.5, A.3", "dense", "buffers"),
    times("5.6, A.4", "dense", "buffers"),
    Figure(
        id="5.7",
        title=f"Gossip in sparse groups of {FIXED_SIZE}: time per round",
        caption="Simulations I and II; a group is drawn anew for each seed.",
        panels=[
            panel("sparse", "none", "tpr_s", "simulation I", "time per round (s)"),
            panel("sparse", "buffers", "tpr_s", "simulation II", "time per round (s)"),
        ],
    ),
    queues("A.5", "dense", "random"),
    times("A.6", "dense", "random"),
    queues("B.1", "sparse", "none"),
    times("B.2", "sparse", "none"),
    queues("B.3", "sparse", "buffers"),
    times("B.4", "sparse", "buffers"),
    queues("B.5", "sparse", "random"),
    times("B.6", "sparse", "random"),
)


# G4, G5


def deviation(results: Results, metric: str, most: float) -> Finding:
    curve = results.curve(fixed_gossip("dense", "none", 3), "step", metric)
    shares = {step: summary.deviation / summary.mean for step, summary in curve}
    worst = max(shares, key=lambda step: shares[step])
    fewest = min(summary.count for _, summary in curve)
    above = [step for step, share in shares.items() if share > most]
    return Finding(
        ours=f"at most {shares[worst]:.1%}, at a step of {worst:g} s ({fewest} seeds)",
        holds=not above,
        reason=f"Above {most:.0%} at {len(above)} of {len(shares)} steps." if above else "",
    )


def unfinished(results: Results, losses: tuple[str, ...] = tuple(SIMULATIONS)) -> tuple[int, int]:
    """The runs of section 5.3.1 that did not end in ten minutes, and all of its runs."""
    lost, runs = 0.0, 0
    for density in ("dense", "sparse"):
        for loss in losses:
            for subset in SUBSETS:
                for point in results.matching(fixed_gossip(density, loss, subset)):
                    finished = point.metrics["finished"]
                    runs += finished.count
                    lost += finished.count * (1 - finished.mean)
    return round(lost), runs


def chance_of(lost: int, runs: int) -> float:
    """At the text's rate, the probability of a number of lost rounds as far from what is expected."""
    return _poisson_tail(lost, UNFINISHED * runs)


def some_never_finish(results: Results) -> Finding:
    lost, runs = unfinished(results)
    ours = f"{lost} of {runs} runs"
    if not runs:
        return Finding(ours="", holds=None, reason="No run of section 5.3.1 is there.")
    expected = UNFINISHED * runs
    chance = _poisson_tail(lost, expected)
    if chance < SURE:
        reason = f"At the text's rate {expected:.0f} would be expected; {lost} has a chance of {chance:.1g}."
        return Finding(ours=ours, holds=False, reason=reason)
    if expected < 5:
        reason = (
            f"At the text's rate only {expected:.1f} would be expected: too few runs to decide; --full "
            "decides."
        )
        return Finding(ours=ours, holds=None, reason=reason)
    return Finding(ours=ours, holds=True)


def _poisson_tail(count: int, mean: float) -> float:
    """The probability of a count at least as far from the mean on its side."""
    below = sum(math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(count + 1))
    at = math.exp(-mean + count * math.log(mean) - math.lgamma(count + 1))
    return min(below, 1 - below + at)


# G6


def queues_explode(results: Results) -> Finding:
    factors = {}
    for subset in SUBSETS:
        curve = results.means(fixed_gossip("dense", "none", subset), "step", "queue_mean")
        factors[subset] = curve[min(curve)] / curve[max(curve)]
    return Finding(
        ours=f"mean queue at the shortest step {span(factors.values())} times that at the longest",
        holds=all(factor >= 5 for factor in factors.values()),
        reason=unless(min(factors.values()) >= 5, "Not five times as long with every subset size."),
    )


def critical_step(results: Results, density: str, loss: str, subset: int) -> float:
    """The step from which the steps of a round stay near their floor (the least mean)."""
    curve = results.means(fixed_gossip(density, loss, subset), "step", "steps")
    floor = min(curve.values())
    critical: float = max(curve)
    for step in sorted(curve, reverse=True):
        if curve[step] > floor * (1 + FLOOR):
            break
        critical = step
    return critical


def steps_reach_a_floor(results: Results) -> Finding:
    found = {subset: critical_step(results, "dense", "none", subset) for subset in SUBSETS}
    longest = max(results.means(fixed_gossip("dense", "none", 1), "step", "steps"))
    shortest = min(results.means(fixed_gossip("dense", "none", 1), "step", "steps"))
    words = ", ".join(f"subset {subset}: {step:g} s" for subset, step in found.items())
    return Finding(
        ours=f"critical step {words}",
        holds=all(shortest < step < longest for step in found.values()),
        reason="The floor is the least mean; the critical step is where the steps come within 10% of it for "
        "good.",
    )


def times_in_the_window(results: Results) -> Finding:
    values = {
        (subset, step): mean
        for subset in SUBSETS[1:]
        for step, mean in results.means(fixed_gossip("dense", "none", subset), "step", "tpr_s").items()
        if 4 <= step <= 15
    }
    outside = {place: mean for place, mean in values.items() if not is_within(mean, 28, 40)}
    words = ", ".join(
        f"subset {subset} step {step:g} s ({mean:.0f} s)" for (subset, step), mean in outside.items()
    )
    return Finding(
        ours=f"{span(values.values())} s",
        holds=not outside,
        reason=f"Outside: {words}." if outside else "",
    )


def is_within(value: float, low: float, high: float) -> bool:
    return low * (1 - NEAR) <= value <= high * (1 + NEAR)


# G7


def searched(results: Results, subset: int, metric: str) -> float:
    where = {"scenario": SEARCH, "density": "dense", "loss": "none", "members": FIXED_SIZE, "subset": subset}
    return results.one(where, metric).mean


def over_whole_seconds(results: Results, subset: int, metric: str) -> float:
    """The same search, where a step has the mean of the nearest whole second that was run."""
    means = results.means(fixed_gossip("dense", "none", subset), "step", "tpr_s")

    def mean(step: float) -> float:
        value: float = means[min(means, key=lambda known: abs(known - step))]
        return value

    found = golden_search(mean, 0.0, RANGE_S, TOLERANCE * RANGE_S)
    if metric in ("step", "tpr_s", "iterations"):
        return {"step": found.step, "tpr_s": found.value, "iterations": float(found.iterations)}[metric]
    stride = STRIDE * RANGE_S
    window = find_window(
        mean, found.step, fluctuation=FLUCTUATION, stride=stride, least=LEAST * stride, most=RANGE_S
    )
    return {"window_low": window.low, "window_high": window.high}[metric]


Searched = Callable[[Results, int, str], float]


def by_searches(judge: Callable[[Results, Searched], Finding]) -> Judge:
    """A claim about the search: with new runs at each step, or over the means of whole seconds."""
    return under(
        Way("new runs", "each step that is tried is run anew", lambda results: judge(results, searched)),
        Way(
            "whole seconds",
            "the search goes over the means of whole seconds",
            lambda results: judge(results, over_whole_seconds),
        ),
    )


def search_ends(results: Results, find: Searched) -> Finding:
    """Five iterations follow from the range and g, whatever the times are: only the time can be judged.

    Within a tenth of it lies the whole window, so half of that is asked for.
    """
    tpr_s, iterations = find(results, 3, "tpr_s"), find(results, 3, "iterations")
    return Finding(
        ours=f"{iterations:.0f} iterations (as the range and g have it), {tpr_s:.1f} s",
        holds=iterations == 5 and is_near(tpr_s, 28.6, NEAR / 2),
    )


def search_finds(results: Results, find: Searched) -> Finding:
    """The paper's 9 s and ours count as equal within g, where the search stops."""
    step, tpr_s = find(results, 3, "step"), find(results, 3, "tpr_s")
    theirs = results.means(fixed_gossip("dense", "none", 3), "step", "tpr_s")[9.0]
    holds = abs(step - 9.0) <= 2.0
    return Finding(
        ours=f"{step:.2f} s, where a round takes {tpr_s:.1f} s; at 9 s it takes {theirs:.1f} s",
        holds=holds,
        reason=unless(
            holds,
            "Within the window the time has several shallow valleys; the search follows the one that its "
            "first comparisons favour.",
        ),
    )


def window(results: Results, find: Searched, subset: int, low: float, high: float) -> Finding:
    """The paper's ends are whole seconds, as its stride is; ours count as equal within one stride."""
    ours_low, ours_high = find(results, subset, "window_low"), find(results, subset, "window_high")
    return Finding(
        ours=f"{ours_low:.1f} to {ours_high:.1f} s around {find(results, subset, 'step'):.1f} s, at best "
        f"{find(results, subset, 'tpr_s'):.1f} s",
        holds=abs(ours_low - low) <= 1.0 and abs(ours_high - high) <= 1.0,
    )


# G8, G9


def loss_helps_below_the_critical_step(results: Results) -> Finding:
    gains: dict[tuple[int, float], float] = {}
    for subset in SUBSETS:
        free = results.means(fixed_gossip("dense", "none", subset), "step", "tpr_s")
        lossy = results.means(fixed_gossip("dense", "buffers", subset), "step", "tpr_s")
        critical = critical_step(results, "dense", "none", subset)
        gains |= {
            (subset, step): free[step] / lossy[step] for step in free if step < critical and step in lossy
        }
    if not gains:
        return Finding(ours="", holds=None, reason="No step that was run is below the critical one.")
    better = [gain for gain in gains.values() if gain > 1]
    worse = {place: gain for place, gain in gains.items() if gain <= 1}
    words = ", ".join(
        f"subset {subset} step {step:g} s ({gain:.2f})" for (subset, step), gain in worse.items()
    )
    return Finding(
        ours=f"without loss a round takes {span(gains.values())} times as long; longer at {len(better)} of "
        f"{len(gains)} points below the critical step",
        holds=not worse,
        reason=f"Not at {words}: there the buffers hardly fill, and the lost gossips only cost."
        if worse
        else "",
    )


def densities_are_alike(results: Results, metrics: dict[str, str]) -> Finding:
    words, holds = [], True
    for metric, name in metrics.items():
        shares = []
        for loss in SIMULATIONS:
            for subset in SUBSETS:
                dense = results.means(fixed_gossip("dense", loss, subset), "step", metric)
                sparse = results.means(fixed_gossip("sparse", loss, subset), "step", metric)
                shares += [abs(sparse[step] / dense[step] - 1) for step in dense if step in sparse]
        mean = sum(shares) / len(shares)
        words.append(f"{name} {mean:.0%} apart on the average, at most {max(shares):.0%}")
        holds = holds and mean <= NEAR
    return Finding(ours="; ".join(words), holds=holds)


def search_rows(results: Results) -> list[list[str]]:
    rows = []
    for subset in SUBSETS:
        where = {
            "scenario": SEARCH,
            "density": "dense",
            "loss": "none",
            "members": FIXED_SIZE,
            "subset": subset,
        }
        if results.matching(where):
            names = ("step", "tpr_s", "window_low", "window_high", "iterations", "evaluations")
            rows.append([str(subset), *(f"{searched(results, subset, name):.3g}" for name in names)])
    return rows


SECTION: Final = Section(
    title="5.3 Gossip, 200 members",
    text="Fifty senders; subset sizes 1 to 5, steps of 1 to 20 s, dense and sparse groups, and three models "
    "of loss. Too short a step floods the network; too long a one wastes time; between them is a window of "
    "steps that are all about as good.",
    figures=FIGURES,
    tables=(
        Table(
            title="The golden-ratio search (figures 5.8 and 5.9)",
            caption="Dense group of 200, no loss; range 0 to 20 s, g = 2 s, e = 10%, p = 1 s.",
            columns=(
                "subset",
                "best step (s)",
                "its time (s)",
                "window from",
                "to",
                "iterations",
                "steps tried",
            ),
            compute=search_rows,
        ),
    ),
    claims=judged_by(
        "guo",
        G4a=by_queues(lambda results, metric: deviation(results, metric, 0.07)),
        G4b=lambda results: deviation(results, "tpr_s", 0.05),
        G5=some_never_finish,
        G6a=queues_explode,
        G6b=steps_reach_a_floor,
        G6c=times_in_the_window,
        G7a=by_searches(search_ends),
        G7d=by_searches(search_finds),
        G7b=by_searches(partial(window, subset=3, low=4.0, high=10.0)),
        G7c=by_searches(partial(window, subset=1, low=2.0, high=4.0)),
        G8=loss_helps_below_the_critical_step,
        G9a=lambda results: densities_are_alike(results, {"tpr_s": "time", "steps": "steps"}),
        G9b=lambda results: densities_are_alike(
            results, {"queue_mean": "mean queue", "queue_max": "longest queue"}
        ),
    ),
)
