"""Section 2: the resource-sharing application when messages come out of the agreed order; claim K7."""

from statistics import median
from typing import Any, Final

from antiphon.studies.judging import judged_by, unless
from antiphon.studies.konorski.judging import is_about
from antiphon.studies.model import Figure, Finding, Panel, Section, Series, Table
from antiphon.studies.results import Results
from antiphon.studies.study import Effort, Grid, fixed

SCENARIO: Final = "resource-sharing"
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "ample time-out": {"units": 10, "need": 4, "timeout_ms": 3000.0},
    "short time-out": {"units": 10, "need": 4, "timeout_ms": 800.0},
    "scarce units": {"units": 5, "need": 3, "timeout_ms": 1500.0},
}
SHIFTS: Final = (2, 10)
"""Places by which a message is late. With 100 messages a second it is about 2 if another overtakes it within
the jitter of 20 ms, and about 10 if it is lost and sent again a round trip later."""
DISORDERS: Final = (0.02, 0.05, 0.1)
STATED: Final = 0.05
COST: Final = 0.10

FIXED: Final[dict[str, Any]] = {"members": 20, "over": "ideal", "disorder_sites": 10, "seconds": 30.0}
SEEDS: Final[dict[Effort, int]] = {"quick": 1, "full": 4}


def grids(setting: dict[str, Any]) -> tuple[Grid, Grid]:
    """A setting without and with disorder."""
    point = fixed({**FIXED, **setting})
    return (
        Grid(scenario=SCENARIO, axes={**point, "disorder": (0.0,)}, seeds=SEEDS),
        Grid(
            scenario=SCENARIO,
            axes={**point, "disorder": DISORDERS, "disorder_shift": SHIFTS},
            quick={"disorder": (STATED,)},
            seeds=SEEDS,
        ),
    )


GRIDS: Final = tuple(grid for setting in SETTINGS.values() for grid in grids(setting))


def where(setting: str, **more: Any) -> dict[str, Any]:
    return {"scenario": SCENARIO, **FIXED, **SETTINGS[setting], **more}


def undisturbed(results: Results, setting: str) -> float:
    return results.one(where(setting, disorder=0.0), "operations_per_s").mean


def cost(results: Results, setting: str, shift: int, disorder: float) -> float:
    """The share of operations lost."""
    disturbed = where(setting, disorder=disorder, disorder_shift=shift)
    return 1.0 - results.one(disturbed, "operations_per_s").mean / undisturbed(results, setting)


def five_percent_cost_ten(results: Results) -> Finding:
    """'Typically' is the median over the settings."""
    costs = [cost(results, name, shift, STATED) for name in SETTINGS for shift in SHIFTS]
    usual = median(costs)
    holds = is_about(usual, COST)
    return Finding(
        ours=f"{usual:.1%} fewer operations in the median setting, {min(costs):.1%} to {max(costs):.1%}",
        holds=holds,
        reason=unless(
            holds,
            "Our application passes a unit on only once whatever the others believe, and a wrong view of "
            "the queue lasts until the next release: what is lost is a message's time, seldom a time-out.",
        ),
    )


def rows(results: Results) -> list[list[str]]:
    made = []
    for name in SETTINGS:
        for shift in SHIFTS:
            cells = []
            for disorder in DISORDERS:
                there = results.matching(where(name, disorder=disorder, disorder_shift=shift))
                cells.append(f"{cost(results, name, shift, disorder):.1%}" if there else "–")
            made.append([name, str(shift), f"{undisturbed(results, name):.1f}", *cells])
    return made


def lines(results: Results) -> list[Series]:
    """Operations a second over the disorder, which begins with none."""
    made = []
    for name in SETTINGS:
        curve = results.curve(where(name, disorder_shift=SHIFTS[-1]), "disorder", "operations_per_s")
        values = [(0.0, undisturbed(results, name)), *((share, found.mean) for share, found in curve)]
        made.append(Series(name=name, x=[share for share, _ in values], y=[value for _, value in values]))
    return made


SECTION: Final = Section(
    title="2 Resource sharing",
    text="Twenty sites share units of a resource by request, allocation and release messages, over delays of "
    "40 to 60 ms. Some messages arrive late at half of the sites, after later ones.",
    figures=(
        Figure(
            id="K7",
            title="Operations a second when messages are out of order",
            caption=f"Such a message arrives {SHIFTS[-1]} places too late at 10 of 20 sites.",
            panels=[
                Panel(x_label="share of messages out of order", y_label="operations a second", compute=lines)
            ],
        ),
    ),
    tables=(
        Table(
            title="What disorder costs",
            caption="Operations a second without disorder, and the share lost with it.",
            columns=("setting", "places late", "operations", *(f"{share:.0%}" for share in DISORDERS)),
            compute=rows,
        ),
    ),
    claims=judged_by(
        "konorski",
        K7=five_percent_cost_ten,
    ),
)
