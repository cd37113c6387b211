"""Guo, message stability detection: CoordP's part of the evaluation in chapter 5.

The model's readings are the simulator's defaults (`antiphon.sim.tree`). Where the text's result turns on
how the tree's last level is filled, both fillings are run and shown.
"""

from itertools import pairwise
from typing import Any, Final

from antiphon.studies.growth import best_law
from antiphon.studies.model import Claim, Curve, Figure, Finding, Grid, Results, Study

SIZES: Final = (50, 100, 200, 300, 400, 500)
DENSE: Final[dict[str, Any]] = {"scenario": "coordp", "density": "dense", "senders": 50, "fill": "even"}
DENSE_LEFT: Final = {**DENSE, "fill": "left"}
SPARSE: Final = {**DENSE, "density": "sparse"}
ONE_SENDER: Final = {**DENSE, "senders": 1}

GRIDS: Final = (
    Grid(
        scenario="coordp",
        axes={"members": SIZES, "senders": (50, 1), "fill": ("even", "left")},
        # Nothing in a dense round without loss is random: one run is the whole truth.
        seeds={"quick": 1, "full": 1},
    ),
    Grid(
        scenario="coordp",
        axes={"members": SIZES, "senders": (50, 1), "density": ("sparse",)},
        seeds={"quick": 5, "full": 20},
    ),
)

CURVES: Final = (
    Curve(name="dense", where=DENSE),
    Curve(name="dense, left fill", where=DENSE_LEFT),
    Curve(name="sparse", where=SPARSE),
    Curve(name="dense, one sender", where=ONE_SENDER),
)

FIGURES: Final = (
    Figure(
        id="5.12",
        title="Messages on all hops, CoordP",
        caption="Transmissions started on any link in one round (figures 5.12 and 5.22). How the tree's last "
        "level is filled makes no difference here.",
        x="members",
        x_label="group size n",
        y="hop_messages",
        y_label="hop messages",
        curves=CURVES,
    ),
    Figure(
        id="5.16",
        title="Mean queue length, CoordP",
        caption="Length of the output link's queue at each enqueue (figures 5.16 and 5.26).",
        x="members",
        x_label="group size n",
        y="queue_mean",
        y_label="messages waiting",
        curves=CURVES,
    ),
    Figure(
        id="5.17",
        title="Time per round, CoordP",
        caption="From the trigger to the first member that has the stability array (figures 5.17 and 5.30). "
        "Left fill: the tree's last level is filled from the left instead of evenly.",
        x="members",
        x_label="group size n",
        y="tpr_s",
        y_label="seconds",
        curves=CURVES,
    ),
)


def _curve(results: Results, metric: str) -> tuple[list[float], list[float]]:
    curve = results.curve(DENSE, "members", metric)
    return [float(x) for x, _ in curve], [summary.mean for _, summary in curve]


def _ends(x: list[float], y: list[float], unit: str = "") -> str:
    return f"{y[0]:.4g}{unit} at n={x[0]:.0f} to {y[-1]:.4g}{unit} at n={x[-1]:.0f}"


def _rises(values: list[float]) -> bool:
    return all(before < after for before, after in pairwise(values))


def hop_messages_grow_as_n_log_n(results: Results) -> Finding:
    x, y = _curve(results, "hop_messages")
    law, misfit = best_law(x, y)
    return Finding(
        ours=f"{_ends(x, y)}; the best of log n, n, n log n and n² is {law}",
        interval=f"off by {misfit:.1%}",
        holds=law == "n log n",
    )


def mean_queue_grows(results: Results) -> Finding:
    x, y = _curve(results, "queue_mean")
    return Finding(ours=f"mean queue {_ends(x, y)}", holds=_rises(y))


def time_per_round_grows(results: Results) -> Finding:
    x, y = _curve(results, "tpr_s")
    return Finding(ours=_ends(x, y, " s"), holds=_rises(y))


def compared_with_protocols_not_run(what: str) -> Finding:
    return Finding(
        ours="", holds=None, reason=f"The comparison needs {what}, which these runs do not include."
    )


def gain_of_a_structure(results: Results) -> Finding:
    even = results.one({**DENSE, "members": 500}, "tpr_s").mean
    left = results.one({**DENSE_LEFT, "members": 500}, "tpr_s").mean
    return Finding(
        ours=f"CoordP {even:.2f} s ({left:.2f} s with the last level filled from the left)",
        holds=None,
        reason="CoordP's side is measured; the ratio needs S_CoordP, which these runs do not include.",
    )


CLAIMS: Final = (
    Claim(
        id="G13",
        where="5.4.1, figures 5.12-5.15, table 5.2",
        statement="CoordP's messages on all hops grow as n log n in dense groups.",
        theirs="n log n",
        judge=hop_messages_grow_as_n_log_n,
    ),
    Claim(
        id="G14",
        where="5.4.2, figure 5.16",
        statement="CoordP's mean queue grows with the group size (dense, 50 senders).",
        theirs="growing",
        judge=mean_queue_grows,
    ),
    Claim(
        id="G15",
        where="5.4.3, figure 5.17",
        statement="CoordP's time per round grows with the group size (dense).",
        theirs="growing",
        judge=time_per_round_grows,
    ),
    Claim(
        id="G15b",
        where="5.4.3, figure 5.17",
        statement="CoordP's time per round is about FullDist's smallest.",
        theirs="almost identical",
        judge=lambda _: compared_with_protocols_not_run("FullDist"),
    ),
    Claim(
        id="G16",
        where="5.4.3, figure 5.18",
        statement="FullDist with scattered multicasts is worse than Gossip above n=200.",
        theirs="above n=200",
        judge=lambda _: compared_with_protocols_not_run("FullDist and Gossip"),
    ),
    Claim(
        id="G17",
        where="5.4.3, figures 5.19-5.21",
        statement="S_CoordP is 25 times better than CoordP (dense, n=500).",
        theirs="25 times",
        judge=gain_of_a_structure,
    ),
)

STUDY: Final = Study(
    name="guo",
    paper="Guo, Scalable message stability detection protocols",
    title="Message stability detection",
    grids=GRIDS,
    figures=FIGURES,
    claims=CLAIMS,
)
