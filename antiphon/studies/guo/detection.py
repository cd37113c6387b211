"""Sections 3.1.2 and 4.2.4: gossip in the face of loss, crashes and joins; claim G23."""

from typing import Any, Final

from antiphon.analysis.epidemic import k_fail
from antiphon.studies.growth import best_fit_with_offset, best_law
from antiphon.studies.guo.fixed import unfinished
from antiphon.studies.guo.judging import span
from antiphon.studies.model import Claim, Curve, Figure, Finding, Line, Panel, Results, Section

MISTAKE: Final = 1e-6
GROUPS: Final = (8, 16, 32, 64, 128, 256)
ENTRY_BYTES: Final = 1
"""What a member takes in the text's 'Live' array."""
RUNS: Final[dict[str, Any]] = {"scenario": "failure-detection", "kind": "gossip"}


def thresholds(_: Results) -> list[Line]:
    return [
        Line(name=f"subset size {subset}", x=GROUPS, y=[k_fail(size, subset, MISTAKE) for size in GROUPS])
        for subset in (1, 2, 3)
    ]


def times(_: Results) -> list[Line]:
    """A message has a byte for each member, so a step takes n times as long at one byte rate."""
    return [
        Line(
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
        f"{fit.law}; "
        f"in time at constant bandwidth n times that",
        interval=f"off by {fit.misfit:.1%}; time alone: {law}, off by {misfit:.1%}",
        holds=fit.law == "log n",
    )


def detection_survives(results: Results) -> Finding:
    """Crashes and joins are known to everyone in every run, although a tenth of the messages is lost."""
    points = results.matching(RUNS)
    runs = sum(point.metrics["finished"].count for point in points)
    finished = sum(point.metrics["finished"].mean * point.metrics["finished"].count for point in points)
    mistakes = sum(point.metrics["mistakes"].mean * point.metrics["mistakes"].count for point in points)
    flaps = sum(point.metrics["flaps"].mean * point.metrics["flaps"].count for point in points)
    if not runs:
        return Finding(ours="", holds=None, reason="No run of failure detection is there.")
    return Finding(
        ours=f"{runs} runs with 10% loss, 2 crashes and 2 joins each: {finished:.0f} learned of all, "
        f"{mistakes:.0f} wrong suspicions, {flaps:.0f} times the dead came back",
        holds=finished == runs and mistakes == flaps == 0,
    )


def detection_time_grows(results: Results) -> Finding:
    means = results.means(RUNS, "members", "detection_last_s")
    sizes = sorted(means)
    law, misfit = best_law(sizes, [means[size] for size in sizes])
    return Finding(
        ours=f"{span(means.values())} s for n={sizes[0]} to {sizes[-1]}; best of the laws: {law}",
        interval=f"off by {misfit:.1%}",
        holds=law == "n log n",
        reason=""
        if law == "n log n"
        else "K_fail is a + b log n with a large fixed part, which hides the logarithm in groups this small.",
    )


def stability_survives(results: Results) -> Finding:
    lost, runs = unfinished(results, ("buffers", "random"))
    if not runs:
        return Finding(ours="", holds=None, reason="No run of Gossip with losses is there.")
    return Finding(
        ours=f"{runs - lost} of {runs} rounds with lost gossips end within ten minutes",
        holds=lost <= 0.005 * runs,
    )


SECTION: Final = Section(
    title="3.1.2 Gossip under faults",
    text="Gossip failure detection holds a member to have failed after K_fail steps without news of it. "
    "K_fail "
    "follows from the probability of a mistake that is allowed, by the same Markov chain as the stability "
    "detection's steps.",
    figures=(
        Figure(
            id="K_fail",
            title="K_fail over the group size",
            caption=f"Probability of a mistake {MISTAKE:g} a step. (B) in units of the time that one "
            "member's byte "
            "takes: at constant bandwidth a step is as long as its message.",
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
    claims=(
        Claim(
            id="G23a",
            where="3.1.2",
            statement="Gossip failure detection tolerates loss, crashes and joins.",
            theirs="stated",
            judge=detection_survives,
        ),
        Claim(
            id="G23b",
            where="3.1.2",
            statement="The steps that K_fail counts grow as log n, so at constant bandwidth its time as "
            "n log n.",
            theirs="n log n",
            judge=k_fail_grows,
        ),
        Claim(
            id="G23c",
            where="3.1.2",
            statement="Measured at a constant bandwidth, the time until all know of a crash grows as n "
            "log n.",
            theirs="n log n",
            judge=detection_time_grows,
        ),
        Claim(
            id="G23d",
            where="4.2.4, 5.3.1",
            statement="Gossip stability detection tolerates the loss of messages.",
            theirs="stated",
            judge=stability_survives,
        ),
    ),
)
