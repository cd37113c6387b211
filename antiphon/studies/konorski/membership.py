"""Sections 2 and 5: returning sites, and Totem under the same toggling; claims K2 and K8."""

from typing import Any, Final

from antiphon.studies.judging import judged_by, runs, total, unless
from antiphon.studies.konorski.judging import is_about, unfinished
from antiphon.studies.model import Curve, Figure, Finding, Panel, Section
from antiphon.studies.results import Results
from antiphon.studies.study import Grid, fixed

SPELLS: Final[dict[str, Any]] = {
    "members": 7,
    "messages": 2000,
    "rate": 500.0,
    "calm_ms": 600.0,
    "away_ms": 400.0,
}
TOGGLING: Final[dict[str, Any]] = {
    "members": 20,
    "rate": 200.0,
    "size": 200,
    "churn": 1,
    "network": "medium",
    "delay_ms": 1.0,
}
PERIODS_MS: Final = (2000.0, 5000.0, 10_000.0)
"""Mean times of presence and absence; the paper does not give them."""
SPELLS_SEEN: Final = 4
HALTED: Final = 0.2
SLOWED: Final = 0.2
CALM: Final = 0.01

SPELL_GRID: Final = Grid(
    scenario="dpg",
    axes={**fixed(SPELLS), "churn": (1, 3, 5), "loss": (0.0, 0.02)},
    quick={"churn": (1, 3)},
    seeds={"quick": 1, "full": 15},
)
TOGGLING_GRIDS: Final = tuple(
    Grid(
        scenario=scenario,
        axes={**fixed(TOGGLING), "calm_ms": PERIODS_MS},
        quick={"calm_ms": PERIODS_MS[:2]},
        derived={
            "away_ms": lambda point: point["calm_ms"],
            "messages": lambda point: round(SPELLS_SEEN * point["calm_ms"] / 1000 * point["rate"]),
        },
        seeds={"quick": 1, "full": 2},
    )
    for scenario in ("totem", "dpg")
)
GRIDS: Final = (SPELL_GRID, *TOGGLING_GRIDS)


def spells_are_continuous(results: Results) -> Finding:
    points = results.found({"scenario": "dpg", **SPELLS})
    broken, hanging = total(points, "violations"), unfinished(points)
    return Finding(
        ours=f"{total(points, 'spells'):.0f} presence spells in {runs(points)} runs: {broken:.0f} "
        f"violations, {hanging} runs in which not all returned",
        holds=not broken and not hanging,
    )


def toggling(scenario: str, period_ms: float) -> dict[str, Any]:
    return {"scenario": scenario, **TOGGLING, "calm_ms": period_ms}


def shares(results: Results, scenario: str, period_ms: float) -> tuple[float, float]:
    where = toggling(scenario, period_ms)
    return results.one(where, "halted_share").mean, results.one(where, "slowed_share").mean


def measured_periods(results: Results) -> list[float]:
    there = {point.parameters["calm_ms"] for point in results.found({"scenario": "totem", **TOGGLING})}
    return sorted(there)


def totem_halts(results: Results) -> Finding:
    """The paper gives no period: the claim holds if it holds for one of those tried."""
    seen = {period: shares(results, "totem", period)[0] for period in measured_periods(results)}
    each = ", ".join(
        f"{share:.0%} when it toggles every {period / 1000:g} s" for period, share in seen.items()
    )
    return Finding(
        ours=f"halted {each}",
        holds=any(is_about(share, HALTED) for share in seen.values()),
        reason="Corosync's time-outs: 1 s without the token, 1.2 s to agree. The share goes with the period.",
    )


def totem_slows(results: Results) -> Finding:
    seen = {period: shares(results, "totem", period)[1] for period in measured_periods(results)}
    each = ", ".join(
        f"{share:.0%} when it toggles every {period / 1000:g} s" for period, share in seen.items()
    )
    holds = any(is_about(share, SLOWED) for share in seen.values())
    return Finding(
        ours=f"between a tenth and 60% of its throughput: {each}",
        holds=holds,
        reason=unless(holds, "It halts, or it does not: what waited is sent at once when the ring is whole."),
    )


def dpg_does_not_halt(results: Results) -> Finding:
    seen = {period: shares(results, "dpg", period) for period in measured_periods(results)}
    each = "; ".join(
        f"every {period / 1000:g} s: halted {halted:.1%}, slowed {slowed:.1%}"
        for period, (halted, slowed) in seen.items()
    )
    return Finding(ours=each, holds=all(halted <= CALM for halted, _ in seen.values()))


def panel(metric: str, label: str) -> Panel:
    return Panel(
        x="calm_ms",
        x_label="mean time present, and absent (ms)",
        y=metric,
        y_label=label,
        curves=[
            Curve(name="Totem", where={"scenario": "totem", **TOGGLING}),
            Curve(name="DPG", where={"scenario": "dpg", **TOGGLING}),
        ],
    )


SECTION: Final = Section(
    title="2 and 5 Presence and absence",
    text="Sites come and go. The protocol is compared with Totem's single ring, which must agree on its "
    "members before it continues; one of 20 sites toggles.",
    figures=(
        Figure(
            id="K8",
            title="One of 20 sites toggles",
            caption="Shares of the time, in tenths of a second at sites that stay, below a tenth (halted) "
            "and between that and 60% (slowed) of the usual throughput.",
            panels=[panel("halted_share", "share halted"), panel("slowed_share", "share slowed")],
        ),
    ),
    claims=judged_by(
        "konorski",
        K2=spells_are_continuous,
        K8a=totem_halts,
        K8b=totem_slows,
        K8c=dpg_does_not_halt,
    ),
)
