"""Section 2: the resource-sharing application when messages come out of the agreed order; claim K7."""

from statistics import median
from typing import Any, Final

from antiphon.studies.konorski.judging import is_about
from antiphon.studies.konorski.settings import fixed
from antiphon.studies.model import Claim, Curve, Figure, Finding, Grid, Panel, Results, Section, Table

SCENARIO: Final = "resource-sharing"
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "ample time-out": {"units": 10, "need": 4, "timeout_ms": 3000.0},
    "short time-out": {"units": 10, "need": 4, "timeout_ms": 800.0},
    "scarce units": {"units": 5, "need": 3, "timeout_ms": 1500.0},
}
SHIFTS: Final = (1, 20)
"""By how many places a message comes too late."""
DISORDERS: Final = (0.0, 0.02, 0.05, 0.1)
STATED: Final = 0.05
COST: Final = 0.10

FIXED: Final[dict[str, Any]] = {"members": 20, "over": "ideal", "disorder_sites": 10}
GRIDS: Final = tuple(
    Grid(
        scenario=SCENARIO,
        axes={
            **fixed({**FIXED, **setting}),
            "disorder": DISORDERS,
            "disorder_shift": SHIFTS,
            "seconds": (30.0,),
        },
        quick={"disorder": (0.0, STATED), "disorder_shift": (SHIFTS[-1],)},
        seeds={"quick": 1, "full": 4},
    )
    for setting in SETTINGS.values()
)


def where(setting: str, shift: int, **more: Any) -> dict[str, Any]:
    return {"scenario": SCENARIO, **FIXED, **SETTINGS[setting], "disorder_shift": shift, **more}


def cost(results: Results, setting: str, shift: int, disorder: float) -> float:
    """What share of the operations it takes."""
    with_, without = (
        results.one(where(setting, shift, disorder=share), "operations_per_s").mean
        for share in (disorder, 0.0)
    )
    return 1.0 - with_ / without


def shifts_run(results: Results) -> list[int]:
    return [shift for shift in SHIFTS if results.matching({"scenario": SCENARIO, "disorder_shift": shift})]


def five_percent_cost_ten(results: Results) -> Finding:
    """'Typically' is the median over the settings."""
    costs = [cost(results, name, shift, STATED) for name in SETTINGS for shift in shifts_run(results)]
    usual = median(costs)
    holds = is_about(usual, COST)
    return Finding(
        ours=f"{usual:.1%} fewer operations in the median setting, {min(costs):.1%} to {max(costs):.1%}",
        holds=holds,
        reason=""
        if holds
        else "Our application passes a unit on only once whatever the others believe, and a wrong view of "
        "the queue lasts until the next release: what is lost is a message's time, seldom a time-out.",
    )


def rows(results: Results) -> list[list[str]]:
    found = []
    for name in SETTINGS:
        for shift in shifts_run(results):
            base = results.one(where(name, shift, disorder=0.0), "operations_per_s").mean
            points = [results.matching(where(name, shift, disorder=disorder)) for disorder in DISORDERS[1:]]
            cells = [
                f"{cost(results, name, shift, disorder):.1%}" if point else "–"
                for disorder, point in zip(DISORDERS[1:], points, strict=True)
            ]
            found.append([name, str(shift), f"{base:.1f}", *cells])
    return found


SECTION: Final = Section(
    title="2 Resource sharing",
    text="Twenty sites share units of a resource by request, allocation and release messages, over delays of "
    "40 to 60 ms. Some messages come late at half of the sites, after others that follow them.",
    figures=(
        Figure(
            id="K7",
            title="Operations a second when messages are out of order",
            caption=f"Such a message comes {SHIFTS[-1]} places too late at 10 of 20 sites.",
            panels=[
                Panel(
                    x="disorder",
                    x_label="share of messages out of order",
                    y="operations_per_s",
                    y_label="operations a second",
                    curves=[Curve(name=name, where=where(name, SHIFTS[-1])) for name in SETTINGS],
                )
            ],
        ),
    ),
    tables=(
        Table(
            title="What disorder costs",
            caption="Operations a second without disorder, and the share lost with it.",
            columns=("setting", "places late", "operations", *(f"{share:.0%}" for share in DISORDERS[1:])),
            rows=rows,
        ),
    ),
    claims=(
        Claim(
            id="K7",
            where="2",
            statement="5% of messages out of order cost about 10% of the operation throughput.",
            theirs="10%",
            judge=five_percent_cost_ten,
        ),
    ),
)
