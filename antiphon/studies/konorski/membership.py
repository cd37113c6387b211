"""Sections 2 and 5: returning sites, and Totem under the same toggling; claims K2 and K8."""

from collections.abc import Callable
from typing import Any, Final

from antiphon.studies.formatting import number
from antiphon.studies.judging import judged_by, runs, total, unless
from antiphon.studies.konorski.judging import is_about, unfinished
from antiphon.studies.model import Curve, Figure, Finding, Panel, Section, Table
from antiphon.studies.results import Results, Where
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
STATED_MS: Final = 5000.0
"""The period at which the claims are judged, stated before the runs: a site comes or goes every five token
time-outs of a second, so that rings are formed neither always nor hardly ever."""
SATURATING: Final[dict[str, Any]] = {**TOGGLING, "rate": 1000.0, "size": 1000, "calm_ms": STATED_MS}
"""More than Totem delivers: with 20 sites it reaches about 750 of these messages a second on this channel."""
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
RIVALS: Final = ("totem", "dpg")
LASTING: Final[dict[str, Callable[[Where], Any]]] = {
    "away_ms": lambda point: point["calm_ms"],
    "messages": lambda point: round(SPELLS_SEEN * point["calm_ms"] / 1000 * point["rate"]),
}
TOGGLING_GRIDS: Final = tuple(
    Grid(
        scenario=scenario,
        axes={**fixed(TOGGLING), "calm_ms": PERIODS_MS},
        quick={"calm_ms": PERIODS_MS[:2]},
        derived=LASTING,
        seeds={"quick": 1, "full": 2},
    )
    for scenario in RIVALS
)
SATURATED_GRIDS: Final = tuple(
    Grid(
        scenario=scenario,
        axes={**fixed(SATURATING), "churn": (0, 1)},
        derived=LASTING,
        seeds={"quick": 1, "full": 2},
    )
    for scenario in RIVALS
)
GRIDS: Final = (SPELL_GRID, *TOGGLING_GRIDS, *SATURATED_GRIDS)


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


def shares(results: Results, where: dict[str, Any]) -> tuple[float, float]:
    """The shares of the time in which a group was halted, and slowed."""
    return results.one(where, "halted_share").mean, results.one(where, "slowed_share").mean


def saturated(results: Results, scenario: str, churn: int = 1) -> tuple[float, float]:
    return shares(results, {"scenario": scenario, **SATURATING, "churn": churn})


def measured_periods(results: Results) -> list[float]:
    there = {point.parameters["calm_ms"] for point in results.found({"scenario": "totem", **TOGGLING})}
    return sorted(there)


def by_period(results: Results, scenario: str, which: int) -> str:
    """A share of the time at each period, where less is offered than the group can deliver."""
    seen = {period: shares(results, toggling(scenario, period)) for period in measured_periods(results)}
    return ", ".join(f"{each[which]:.0%} every {period / 1000:g} s" for period, each in seen.items())


def totem_halts(results: Results) -> Finding:
    """At saturation and the stated period; the share goes with the period, which the paper does not give."""
    halted, _ = saturated(results, "totem")
    return Finding(
        ours=f"halted {halted:.0%} at saturation, toggling every {STATED_MS / 1000:g} s; with fewer messages "
        f"{by_period(results, 'totem', 0)}",
        holds=is_about(halted, HALTED),
        condition=f"it toggles every {STATED_MS / 1000:g} s",
        reason="Corosync's time-outs: 1 s without the token, 1.2 s to agree. The share goes with the period.",
    )


def totem_slows(results: Results) -> Finding:
    """What a full ring that no site leaves is slowed, in turns of the token, is not due to the toggling."""
    (_, slowed), (_, calm) = saturated(results, "totem"), saturated(results, "totem", 0)
    holds = is_about(slowed - calm, SLOWED)
    return Finding(
        ours=f"between a tenth and 60% of its throughput: {slowed:.0%} at saturation, toggling every "
        f"{STATED_MS / 1000:g} s, and {calm:.0%} if no site toggles; with fewer messages "
        f"{by_period(results, 'totem', 1)}",
        holds=holds,
        condition=f"it toggles every {STATED_MS / 1000:g} s",
        reason=unless(holds, "It halts, or it does not: a ring that is whole again has its full throughput."),
    )


def dpg_does_not_halt(results: Results) -> Finding:
    seen = {period: shares(results, toggling("dpg", period)) for period in measured_periods(results)}
    halted, slowed = saturated(results, "dpg")
    each = "; ".join(
        f"every {period / 1000:g} s: halted {halted:.1%}, slowed {slowed:.1%}"
        for period, (halted, slowed) in seen.items()
    )
    return Finding(
        ours=f"{each}; with what saturates Totem: halted {halted:.1%}, slowed {slowed:.1%}",
        holds=all(share <= CALM for share in (halted, *(share for share, _ in seen.values()))),
    )


def saturated_rows(results: Results) -> list[list[str]]:
    made = []
    for scenario, name in zip(RIVALS, ("Totem", "DPG"), strict=True):
        for churn in (0, 1):
            where = {"scenario": scenario, **SATURATING, "churn": churn}
            halted, slowed = shares(results, where)
            throughput = results.one(where, "throughput").mean
            toggles = "one" if churn else "none"
            made.append([name, toggles, number(throughput), f"{halted:.1%}", f"{slowed:.1%}"])
    return made


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
    tables=(
        Table(
            title="At saturation",
            caption=f"{SATURATING['rate']:g} messages of {SATURATING['size']} bytes a second offered to 20 "
            f"sites, of which one toggles every {STATED_MS / 1000:g} s, or none. Throughput: messages a "
            "second until all are delivered.",
            columns=("protocol", "sites that toggle", "throughput", "halted", "slowed"),
            compute=saturated_rows,
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
