"""Sections 3.1.2 and 4.2.4: gossip in the face of loss, crashes and joins; claim G23."""

from typing import Any, Final

from antiphon.analysis.epidemic import k_fail
from antiphon.studies.growth import best_fit_with_offset, best_law
from antiphon.studies.guo.fixed import SURE, UNFINISHED, chance_of, unfinished
from antiphon.studies.guo.judging import span
from antiphon.studies.judging import judged_by, runs, total, unless
from antiphon.studies.model import Curve, Figure, Finding, Panel, Section, Series
from antiphon.studies.results import Results

MISTAKE: Final = 1e-6
GROUPS: Final = (8, 16, 32, 64, 128, 256)
ENTRY_BYTES: Final = 1
"""Bytes per member in the paper's 'Live' array."""
RUNS: Final[dict[str, Any]] = {"scenario": "failure-detection", "kind": "gossip"}


def thresholds(_: Results) -> list[Series]:
    return [
        Series(name=f"subset size {subset}", x=GROUPS, y=[k_fail(size, subset, MISTAKE) for size in GROUPS])
        for subset in (1, 2, 3)
    ]


def times(_: Results) -> list[Series]:
    """A message has a byte for each member, so a step takes n times as long at one byte rate."""
    return [
        Series(
            name=f"subset size {subset}",
            x=GROUPS,
            y=[k_fail(size, subset, MISTAKE) * size * ENTRY_BYTES * subset for size in GROUPS],
        )
        for subset in (1, 2, 3)
    ]


def k_fail_grows(_: Results) -> Finding:
    steps = [float(k_fail(size, 1, MISTAKE)) for size in GROUPS]
    fit = best_fit_with_offset(GROUPS, steps)
    law, misfit = best_law(GROUPS, [value * size for value, size in zip(steps, GROUPS, strict=True)])
    return Finding(
        ours=f"K_fail {steps[0]:.0f} at n={GROUPS[0]} to {steps[-1]:.0f} at n={GROUPS[-1]} steps: a + b "
        f"{fit.law}; in time at constant bandwidth n times that",
        interval=f"off by {fit.misfit:.1%}; time alone: {law}, off by {misfit:.1%}",
        holds=fit.law == "log n",
    )


def detection_survives(results: Results) -> Finding:
    """Every member learns of all crashes and joins in every run, although 10% of the messages are lost."""
    points = results.matching(RUNS)
    if not points:
        return Finding(ours="", holds=None, reason="No run of failure detection is there.")
    finished, mistakes, flaps = (total(points, metric) for metric in ("finished", "mistakes", "flaps"))
    return Finding(
        ours=f"{runs(points)} runs with 10% loss, 2 crashes and 2 joins each: {finished:.0f} learned of all, "
        f"{mistakes:.0f} wrong suspicions, {flaps:.0f} times the dead came back",
        holds=finished == runs(points) and mistakes == flaps == 0,
    )


def detection_time_grows(results: Results) -> Finding:
    means = results.means(RUNS, "members", "detection_last_s")
    sizes = sorted(means)
    law, misfit = best_law(sizes, [means[size] for size in sizes])
    return Finding(
        ours=f"{span(means.values())} s for n={sizes[0]} to {sizes[-1]}; best of the laws: {law}",
        interval=f"off by {misfit:.1%}",
        holds=law == "n log n",
        reason=unless(
            law == "n log n",
            "K_fail is a + b log n with a large fixed part, which hides the logarithm in groups this small.",
        ),
    )


def stability_survives(results: Results) -> Finding:
    lost, runs = unfinished(results, ("buffers", "random"))
    if not runs:
        return Finding(ours="", holds=None, reason="No run of Gossip with losses is there.")
    more = lost > UNFINISHED * runs and chance_of(lost, runs) < SURE
    return Finding(
        ours=f"{runs - lost} of {runs} rounds with lost gossips end within ten minutes",
        holds=not more,
        reason=f"The text's rate is {UNFINISHED:.2%} of the rounds." if more else "",
    )


SECTION: Final = Section(
    title="3.1.2 Gossip under faults",
    text="Gossip failure detection declares a member failed after K_fail steps without news of it. K_fail "
    "follows from the allowed probability of a mistake, by the same Markov chain as the stability "
    "detection's steps.",
    figures=(
        Figure(
            id="K_fail",
            title="K_fail over the group size",
            caption=f"Probability of a mistake {MISTAKE:g} a step. (B) in units of the time that one "
            "member's byte takes: at constant bandwidth a step is as long as its message.",
            panels=[
                Panel(
                    title="in steps", x_label="group size n", y_label="steps", compute=thresholds, log_x=True
                ),
                Panel(title="in time", x_label="group size n", y_label="byte times", compute=times),
                Panel(
                    title="measured: the last member knows of a crash",
                    x="members",
                    x_label="group size n",
                    y="detection_last_s",
                    y_label="seconds at 1000 bytes/s",
                    curves=[Curve(name="10% loss", where=RUNS)],
                    spread="interval",
                ),
            ],
        ),
    ),
    claims=judged_by(
        "guo",
        G23a=detection_survives,
        G23b=k_fail_grows,
        G23c=detection_time_grows,
        G23d=stability_survives,
    ),
)
