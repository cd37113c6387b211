"""Section 7: groups of 50 and more, which the text leaves to simulation; claim K9."""

from functools import partial
from typing import Any, Final

from antiphon.sim.medium import ETHERNET_BITS_PER_S
from antiphon.spark.statistics import Point
from antiphon.studies.formatting import number
from antiphon.studies.judging import judged_by, total
from antiphon.studies.konorski.judging import per_ten_thousand, unfinished
from antiphon.studies.model import Curve, Figure, Finding, Panel, Section, Table
from antiphon.studies.results import Results
from antiphon.studies.study import Grid, fixed

SIZES: Final = (50, 100, 200)
SERVICES: Final = ("lan", "sequencer", "bounded-delay")
LOSSES: Final = (0.0, 0.02)
FIXED: Final[dict[str, Any]] = {"messages": 200, "rate": 400.0, "size": 1000, "bandwidth": 100_000_000}
OF_WHAT_IS_OFFERED: Final = 0.9

GRID: Final = Grid(
    scenario="dpg",
    axes={**fixed(FIXED), "members": SIZES, "service": SERVICES, "loss": LOSSES},
    quick={"members": SIZES[:2]},
    seeds={"quick": 1, "full": 1},
)


PAPER: Final[dict[str, Any]] = {
    "rate": 500.0, "size": 1000, "bandwidth": ETHERNET_BITS_PER_S, "service": "lan", "loss": 0.02,
}  # fmt: skip
"""The paper's channel, of which messages take 40%."""
PAPER_SHARE: Final = 0.8
REPORT_SHARE: Final = 0.2
PAPER_GRID: Final = Grid(
    scenario="dpg",
    axes={**fixed(PAPER), "members": SIZES[:2], "messages": (500, 5000)},
    quick={"members": SIZES[:1], "messages": (500,)},
    seeds={"quick": 1, "full": 3},
)
GRIDS: Final = (GRID, PAPER_GRID)


def on_the_papers_channel(results: Results) -> Finding:
    points = results.found({"scenario": "dpg", **PAPER})
    least = min(point.metrics["busy_throughput"].mean for point in points)
    share = max(point.metrics["report_share"].mean for point in points)
    broken = total(points, "violated") + unfinished(points)
    return Finding(
        ours=f"at least {least:.0f} of {PAPER['rate']:g} messages a second, reports {share:.0%} of their "
        f"bytes, {total(points, 'violated'):.0f} violated in {total(points, 'deliveries'):.0f} deliveries",
        holds=least >= PAPER_SHARE * PAPER["rate"] and share <= REPORT_SHARE and not broken,
    )


def group(service: str, **more: Any) -> dict[str, Any]:
    return {"scenario": "dpg", **FIXED, "service": service, **more}


def works(results: Results, service: str) -> Finding:
    """It delivers all offered messages, in one order, at every size."""
    points = results.found(group(service))
    sizes = sorted({point.parameters["members"] for point in points})
    least = min(point.metrics["throughput"].mean for point in points)
    broken = total(points, "violated") + unfinished(points)
    return Finding(
        ours=f"{', '.join(map(str, sizes))} sites: at least {least:.0f} of {FIXED['rate']:g} messages a "
        f"second, {total(points, 'violated'):.0f} violated in {total(points, 'deliveries'):.0f} deliveries",
        holds=least >= OF_WHAT_IS_OFFERED * FIXED["rate"] and not broken,
    )


def rows(results: Results) -> list[list[str]]:
    points = [
        point
        for service in SERVICES
        for loss in LOSSES
        for members in SIZES
        for point in results.matching(group(service, loss=loss, members=members))
    ]
    return [_cells(point) for point in points]


def _cells(point: Point) -> list[str]:
    metrics, parameters = point.metrics, point.parameters
    return [
        parameters["service"],
        f"{parameters['loss']:.0%}",
        str(parameters["members"]),
        number(metrics["throughput"].mean),
        f"{1000 * metrics['latency_s'].mean:.1f}",
        f"{1000 * metrics['latency_p99_s'].mean:.0f}",
        f"{metrics['report_share'].mean:.0%}",
        f"{metrics['graph_mean'].mean:.1f}",
        f"{metrics['graph_max'].most:.0f}",
        f"{per_ten_thousand([point]):.2f}",
        f"{metrics['disagreements'].mean:.0f}",
    ]


def panel(metric: str, label: str) -> Panel:
    return Panel(
        x="members",
        x_label="sites",
        y=metric,
        y_label=label,
        curves=[
            Curve(name=f"{service}, {loss:.0%} missed", where=group(service, loss=loss))
            for service in SERVICES
            for loss in LOSSES
        ],
    )


SECTION: Final = Section(
    title="7 Larger groups",
    text=f"{FIXED['rate']:g} messages of 1000 bytes a second on a channel of 100 Mbit/s, with each service, "
    "without misses and with 2%; and 500 a second on the paper's 10 Mbit/s for ten seconds.",
    figures=(
        Figure(
            id="K9",
            title="Groups of 50 to 200 sites",
            caption="Mean latency from admission to delivery, and report traffic as a share of the "
            "messages'.",
            panels=[panel("latency_s", "latency (s)"), panel("report_share", "reports' share")],
        ),
    ),
    tables=(
        Table(
            title="Larger groups",
            caption="Latencies in milliseconds; violated messages in 10,000 deliveries.",
            columns=(
                "service",
                "missed",
                "sites",
                "throughput",
                "latency",
                "99%",
                "reports",
                "mean graph",
                "largest",
                "violated",
                "disagreements",
            ),
            compute=rows,
        ),
    ),
    claims=judged_by(
        "konorski",
        **{
            f"K9{letter}": partial(works, service=service)
            for letter, service in zip("abc", SERVICES, strict=True)
        },
        K9d=on_the_papers_channel,
    ),
)
