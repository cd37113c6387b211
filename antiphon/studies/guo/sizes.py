"""Section 5.3.3: Gossip over the group size at near-optimal steps; figures 5.10 and 5.11, table 5.1, claims
G10 to G12.
"""

from typing import Any, Final

from antiphon.core.errors import UsageError
from antiphon.studies.growth import best_law, exponent, fit_with_offset
from antiphon.studies.guo.judging import by_size, ends, ratios, span
from antiphon.studies.guo.search import NAME as SEARCH
from antiphon.studies.guo.settings import (
    FAST_BANDWIDTH,
    SENDERS,
    SIZES,
    TEXT_STEPS,
    points,
)
from antiphon.studies.judging import MUCH, NEAR, is_near, judged_by, unless
from antiphon.studies.model import Curve, Figure, Finding, Panel, Section, Series, Table
from antiphon.studies.results import Results

STRAIGHT: Final = 0.10
"""A curve counts as straight, over n or over log n, if a line is off by at most this share on average."""


def best_found(results: Results, senders: int, members: int, metric: str) -> float:
    """A metric at the best step that our search found."""
    where = {
        "scenario": SEARCH,
        "density": "sparse",
        "loss": "buffers",
        "senders": senders,
        "members": members,
        "subset": 1,
    }
    return results.one(where, metric).mean


def figure(id_: str, senders: int) -> Figure:
    curve = Curve(name="table 5.1's step", where=points("gossip", "sparse", senders))

    def ours(results: Results) -> list[Series]:
        sizes = [size for size in SIZES if has_search(results, senders, size)]
        best = [best_found(results, senders, size, "tpr_s") for size in sizes]
        return [Series(name="our best step", x=sizes, y=best)] if sizes else []

    axes: dict[str, Any] = {"x": "members", "x_label": "group size n", "curves": [curve]}
    words = "50 senders" if senders == 50 else "one sender"
    return Figure(
        id=id_,
        title=f"Gossip at near-optimal steps, sparse groups, {words}",
        caption="Subset size 1, buffers of 64 messages, two lost gossips a step. Dots are runs, the line "
        "their mean.",
        panels=[
            Panel(
                title="near-minimum time",
                y="tpr_s",
                y_label="time per round (s)",
                dots=True,
                compute=ours,
                **axes,
            ),
            Panel(title="steps needed", y="steps", y_label="steps", dots=True, **axes),
        ],
    )


def has_search(results: Results, senders: int, members: int) -> bool:
    try:
        best_found(results, senders, members, "tpr_s")
    except UsageError:
        return False
    return True


def table_rows(results: Results) -> list[list[str]]:
    rows = []
    for size in SIZES:
        cells = [str(size)]
        for senders in SENDERS:
            theirs = by_size(results, "gossip", "sparse", senders)
            cells += [f"{TEXT_STEPS[senders][size]:g}", f"{theirs[size]:.3g}" if size in theirs else "–"]
            if has_search(results, senders, size):
                cells += [f"{best_found(results, senders, size, name):.3g}" for name in ("step", "tpr_s")]
            else:
                cells += ["–", "–"]
        rows.append(cells)
    return rows


def time_grows_linearly(results: Results, senders: int) -> Finding:
    values = by_size(results, "gossip", "sparse", senders)
    sizes = list(values)
    straight = fit_with_offset("n", sizes, list(values.values()))
    law, misfit = best_law(sizes, list(values.values()))
    return Finding(
        ours=f"{ends(values, ' s')}; a straight line is off by {straight.misfit:.0%} on the average; power "
        f"of n {exponent(sizes, list(values.values())):.2f}",
        interval=f"best of the laws: {law}, off by {misfit:.0%}",
        holds=straight.misfit <= STRAIGHT,
    )


def time_at_500(results: Results) -> Finding:
    summary = results.one({**points("gossip", "sparse", 50), "members": 500}, "tpr_s")
    return Finding(
        ours=f"{summary.mean:.1f} s",
        interval=f"{summary.low:.1f} to {summary.high:.1f} s (95%)",
        holds=is_near(summary.mean, 71.0),
    )


def steps_grow_as_log_n(results: Results, senders: int) -> Finding:
    values = by_size(results, "gossip", "sparse", senders, "steps")
    fit = fit_with_offset("log n", list(values), list(values.values()))
    holds = fit.misfit <= STRAIGHT and fit.factor > 0
    return Finding(
        ours=f"{ends(values)} steps; a + b log n is off by {fit.misfit:.0%} on the average, b = "
        f"{fit.factor:.1f}",
        holds=holds,
        interval=", ".join(f"n={size}: {value:.1f}" for size, value in values.items()),
        reason=unless(
            holds, "Table 5.1 has one step for n=50 and 100 and four times that for n=200; the steps follow."
        ),
    )


def text_steps_are_near_optimal(results: Results, senders: int) -> Finding:
    """Near-optimal means: the time at the paper's step is within 10% of the time at our best step."""
    times = by_size(results, "gossip", "sparse", senders)
    worse = {size: times[size] / best_found(results, senders, size, "tpr_s") for size in times}
    steps = ", ".join(f"{best_found(results, senders, size, 'step'):.2g}" for size in sorted(times))
    above = [size for size, factor in worse.items() if factor > 1 + NEAR]
    return Finding(
        ours=f"at the text's steps {span(worse.values())} times our least time; our best steps {steps} s",
        holds=not above,
        reason=f"Longer by more than 10% at n={', '.join(map(str, above))}." if above else "",
    )


def one_sender_is_much_faster(results: Results) -> Finding:
    gains = ratios(by_size(results, "gossip", "sparse", 50), by_size(results, "gossip", "sparse", 1))
    return Finding(ours=f"{span(gains.values())} times as fast", holds=min(gains.values()) >= MUCH)


def ten_times_the_bandwidth(results: Results) -> Finding:
    slow = by_size(results, "gossip", "sparse", 50)
    fast = by_size(results, "gossip", "sparse", 50, bandwidth=FAST_BANDWIDTH)
    gains = ratios(slow, fast)
    return Finding(
        ours=f"{span(gains.values())} times smaller, with a tenth of the step",
        holds=all(is_near(gain, 10.0) for gain in gains.values()),
        reason=unless(
            all(is_near(gain, 10.0) for gain in gains.values()),
            "Propagation, routers and hosts do not become faster with the links.",
        ),
    )


SECTION: Final = Section(
    title="5.3.3 Gossip by group size",
    text="Sparse groups in a tree of 1000 nodes, subset size 1, the steps of table 5.1. Also shown is the "
    "least time that our own golden-ratio search finds for each group.",
    figures=(figure("5.10", 50), figure("5.11", 1)),
    tables=(
        Table(
            title="Table 5.1, and our own search",
            caption="Steps and times per round in seconds; the search's times are means of 5 runs.",
            columns=(
                "n",
                "50 senders: text's step",
                "time",
                "our best step",
                "time",
                "1 sender: text's step",
                "time",
                "our best step",
                "time",
            ),
            compute=table_rows,
        ),
    ),
    claims=judged_by(
        "guo",
        G10a=lambda results: time_grows_linearly(results, 50),
        G10b=time_at_500,
        G10c=lambda results: steps_grow_as_log_n(results, 50),
        G10d=lambda results: text_steps_are_near_optimal(results, 50),
        G11a=one_sender_is_much_faster,
        G11b=lambda results: text_steps_are_near_optimal(results, 1),
        G12=ten_times_the_bandwidth,
    ),
)
