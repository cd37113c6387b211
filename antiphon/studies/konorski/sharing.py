"""Section 2: the resource-sharing application when messages come out of the agreed order; claim K7."""

from statistics import median
from typing import Any, Final

from antiphon.studies.judging import judged_by, unless
from antiphon.studies.konorski.judging import is_about
from antiphon.studies.model import Figure, Finding, Panel, Section, Series, Table
from antiphon.studies.results import Results
from antiphon.studies.study import Effort, Grid, fixed

SCENARIO: Final = "resource-sharing"
UNITS: Final = 10
NEEDS: Final = (2, 4, 6, 8, 10)
"""Units that an operation needs at most: from little to all that there is. The paper does not give it."""
USUAL_NEED: Final = 4
"""The need where only one is tried."""
TIMEOUTS_MS: Final = {"ample": 3000.0, "short": 800.0}
SHIFTS: Final = (2, 10)
"""Places by which a message is late. With 100 messages a second it is about 2 if another overtakes it within
the jitter of 20 ms, and about 10 if it is lost and sent again a round trip later."""
DISORDERS: Final = (0.02, 0.05, 0.1)
STATED: Final = 0.05
COST: Final = 0.10

FIXED: Final[dict[str, Any]] = {
    "members": 20, "over": "ideal", "disorder_sites": 10, "seconds": 30.0, "units": UNITS,
}  # fmt: skip
TIMEOUT_AXIS: Final = tuple(TIMEOUTS_MS.values())
SEEDS: Final[dict[Effort, int]] = {"quick": 1, "full": 4}
GRIDS: Final = (
    Grid(
        scenario=SCENARIO,
        axes={**fixed(FIXED), "need": NEEDS, "timeout_ms": TIMEOUT_AXIS, "disorder": (0.0,)},
        quick={"need": NEEDS[1::2]},
        seeds=SEEDS,
    ),
    Grid(
        scenario=SCENARIO,
        axes={
            **fixed(FIXED),
            "need": NEEDS,
            "timeout_ms": TIMEOUT_AXIS,
            "disorder": (STATED,),
            "disorder_shift": SHIFTS,
        },
        quick={"need": NEEDS[1::2]},
        seeds=SEEDS,
    ),
    Grid(
        scenario=SCENARIO,
        axes={
            **fixed(FIXED),
            "need": (USUAL_NEED,),
            "timeout_ms": TIMEOUT_AXIS,
            "disorder": tuple(share for share in DISORDERS if share != STATED),
            "disorder_shift": SHIFTS,
        },
        seeds={**SEEDS, "quick": 0},
    ),
)


def where(need: int, timeout_ms: float, **more: Any) -> dict[str, Any]:
    return {"scenario": SCENARIO, **FIXED, "need": need, "timeout_ms": timeout_ms, **more}


def undisturbed(results: Results, need: int, timeout_ms: float) -> float:
    return results.one(where(need, timeout_ms, disorder=0.0), "operations_per_s").mean


def cost(results: Results, need: int, timeout_ms: float, shift: int, disorder: float = STATED) -> float:
    """The share of operations lost."""
    disturbed = where(need, timeout_ms, disorder=disorder, disorder_shift=shift)
    lost = results.one(disturbed, "operations_per_s").mean / undisturbed(results, need, timeout_ms)
    return 1.0 - lost


def needs(results: Results) -> list[int]:
    """The needs that were run."""
    there = results.matching({"scenario": SCENARIO, **FIXED, "disorder": STATED})
    return sorted({point.parameters["need"] for point in there})


def five_percent_cost_ten(results: Results) -> Finding:
    """'Typically' is the median over all needs, time-outs and delays."""
    results.found({"scenario": SCENARIO, **FIXED, "disorder": STATED})
    settings = [(timeout_ms, shift) for timeout_ms in TIMEOUT_AXIS for shift in SHIFTS]
    costs = {need: [cost(results, need, *setting) for setting in settings] for need in needs(results)}
    every = [each for of_need in costs.values() for each in of_need]
    usual = median(every)
    holds = is_about(usual, COST)
    each_need = ", ".join(f"{median(of_need):.1%} with up to {need}" for need, of_need in costs.items())
    return Finding(
        ours=f"{usual:.1%} fewer operations in the median setting, {min(every):.1%} to {max(every):.1%}; by "
        f"the units of {UNITS} that an operation needs: {each_need}",
        holds=holds,
        reason=unless(
            holds,
            "Our application passes a unit on only once whatever the others believe, and a wrong view of "
            "the queue lasts until the next release: what is lost is a message's time, seldom a time-out.",
        ),
    )


def rows(results: Results) -> list[list[str]]:
    made = []
    for need in needs(results):
        for name, timeout_ms in TIMEOUTS_MS.items():
            for shift in SHIFTS:
                cells = []
                for disorder in DISORDERS:
                    of_share = where(need, timeout_ms, disorder=disorder, disorder_shift=shift)
                    there = results.matching(of_share)
                    share = cost(results, need, timeout_ms, shift, disorder) if there else None
                    cells.append("–" if share is None else f"{share:.1%}")
                operations = f"{undisturbed(results, need, timeout_ms):.1f}"
                made.append([str(need), name, str(shift), operations, *cells])
    return made


def lines(results: Results) -> list[Series]:
    """The cost over the need, for each time-out and delay."""
    xs = needs(results)
    return [
        Series(
            name=f"{name} time-out, {shift} places late",
            x=[float(need) for need in xs],
            y=[cost(results, need, timeout_ms, shift) for need in xs],
        )
        for name, timeout_ms in TIMEOUTS_MS.items()
        for shift in SHIFTS
        if xs
    ]


SECTION: Final = Section(
    title="2 Resource sharing",
    text="Twenty sites share units of a resource by request, allocation and release messages, over delays of "
    "40 to 60 ms. Some messages arrive late at half of the sites, after later ones.",
    figures=(
        Figure(
            id="K7",
            title=f"What {STATED:.0%} of messages out of order cost",
            caption=f"At most that many of {UNITS} units are needed. Such a message arrives too late at "
            "10 of 20 sites.",
            panels=[Panel(x_label="units needed at most", y_label="share of operations lost", compute=lines)],
        ),
    ),
    tables=(
        Table(
            title="What disorder costs",
            caption="Operations a second without disorder, and the share lost with it.",
            columns=(
                "units needed",
                "time-out",
                "places late",
                "operations",
                *(f"{share:.0%}" for share in DISORDERS),
            ),
            compute=rows,
        ),
    ),
    claims=judged_by(
        "konorski",
        K7=five_percent_cost_ten,
    ),
)
