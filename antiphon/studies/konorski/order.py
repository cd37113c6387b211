"""How often the agreed order breaks, and whether the members notice: a target of ours beside the paper's."""

from typing import Any, Final

from antiphon.spark.statistics import Point
from antiphon.studies.formatting import number
from antiphon.studies.judging import judged_by, runs, total
from antiphon.studies.konorski.judging import per_ten_thousand, unfinished
from antiphon.studies.model import Finding, Section, Table
from antiphon.studies.results import Results
from antiphon.studies.study import Grid, fixed

MISSES: Final = (0.0, 0.01, 0.02, 0.05, 0.1)
STATED: Final = 0.05
"""Up to this miss rate the target holds."""
SERVICES: Final = ("lan", "sequencer", "bounded-delay")
BANDWIDTHS: Final = {10_000_000: "10 Mbit/s", 100_000_000: "100 Mbit/s"}
FIXED: Final[dict[str, Any]] = {"members": 7, "messages": 2000, "rate": 1000.0, "size": 100, "churn": 0}

GRID: Final = Grid(
    scenario="dpg",
    axes={**fixed(FIXED), "service": SERVICES, "bandwidth": tuple(BANDWIDTHS), "loss": MISSES},
    quick={"loss": (0.0, 0.02, STATED), "bandwidth": (10_000_000,)},
    seeds={"quick": 1, "full": 6},
)


SPLIT: Final[dict[str, Any]] = {
    "members": 5, "messages": 600, "rate": 300.0, "size": 100, "partitions": 1, "calm_ms": 300.0,
    "loss": 0.01,
}  # fmt: skip
"""Five sites whose channel is split once, for a random side."""
LASTING_MS: Final = (400.0, 1500.0)
"""How long the channel is split: less, and more, than it takes until silent members count as gone."""
QUORUMS: Final = (0, 3)
PARTITION_GRID: Final = Grid(
    scenario="dpg",
    axes={**fixed(SPLIT), "service": SERVICES, "away_ms": LASTING_MS, "quorum": QUORUMS},
    quick={"away_ms": LASTING_MS[1:]},
    seeds={"quick": 1, "full": 10},
)
GRIDS: Final = (GRID, PARTITION_GRID)


def split(**more: Any) -> dict[str, Any]:
    return {"scenario": "dpg", **SPLIT, **more}


def group(**more: Any) -> dict[str, Any]:
    return {"scenario": "dpg", **FIXED, **more}


def within(results: Results, service: str) -> list[Point]:
    """The runs that the target is for, with default settings."""
    points = results.found(group(service=service, bandwidth=10_000_000))
    return [point for point in points if point.parameters["loss"] <= STATED]


def order_is_kept(results: Results, service: str) -> Finding:
    points = within(results, service)
    worst = max(per_ten_thousand([point]) for point in points)
    return Finding(
        ours=f"{total(points, 'violated'):.0f} violated in {number(total(points, 'deliveries'))} deliveries, "
        f"at most {worst:.2f} in 10,000 at one miss rate; {unfinished(points)} of {runs(points)} runs did "
        "not end",
        holds=worst <= 1 and not unfinished(points),
    )


def violations_are_noticed(results: Results) -> Finding:
    """At every miss rate, channel and service, and after partitions: members notice every violation."""
    calm, parted = results.found(group()), results.found(split())
    points = [*calm, *parted]
    unnoticed, violated = total(points, "unnoticed"), total(points, "violated")
    return Finding(
        ours=f"{violated:.0f} messages violated in {runs(points)} runs, {total(parted, 'violated'):.0f} of "
        f"them after partitions; {unnoticed:.0f} that no member reported",
        holds=not unnoticed,
        reason="There was nothing to notice." if not violated else "",
    )


def rows(results: Results) -> list[list[str]]:
    made = []
    for service in SERVICES:
        for bandwidth, words in BANDWIDTHS.items():
            for loss in MISSES:
                points = results.matching(group(service=service, bandwidth=bandwidth, loss=loss))
                if points:
                    made.append([service, words, f"{loss:.0%}", *_cells(points)])
    return made


def partition_rows(results: Results) -> list[list[str]]:
    made = []
    for service in SERVICES:
        for lasting_ms in LASTING_MS:
            for quorum in QUORUMS:
                points = results.matching(split(service=service, away_ms=lasting_ms, quorum=quorum))
                if points:
                    told = ("violated", "forks", "forked_places", "disagreements", "unavailable", "unnoticed")
                    cells = [f"{total(points, name):.0f}" for name in told]
                    made.append([service, f"{lasting_ms:g}", str(quorum or "none"), *cells])
    return made


def _cells(points: list[Point]) -> list[str]:
    metrics = points[0].metrics
    return [
        number(total(points, "deliveries")),
        f"{total(points, 'violated'):.0f}",
        f"{per_ten_thousand(points):.2f}",
        f"{total(points, 'disagreements'):.0f}",
        f"{total(points, 'unavailable'):.0f}",
        f"{total(points, 'unnoticed'):.0f}",
        f"{metrics['graph_mean'].mean:.1f}",
        number(metrics["throughput"].mean),
        f"{unfinished(points)} of {runs(points)}",
    ]


SECTION: Final = Section(
    title="How often the order breaks",
    text="Quasi-agreed order can break. Seven sites, 1000 messages of 100 bytes a second, default settings, "
    "each adapter missing a share of all messages. The members compare digests of their agreed order; the "
    "table has what they notice beside what was violated.",
    tables=(
        Table(
            title="Violated messages by miss rate",
            caption="Violated: out of order or missing somewhere. Disagreements and unavailable messages "
            "were reported by members to their applications; unnoticed are violated messages that no report "
            "covers.",
            columns=(
                "service",
                "channel",
                "missed",
                "deliveries",
                "violated",
                "in 10,000",
                "disagreements",
                "unavailable",
                "unnoticed",
                "mean graph",
                "throughput",
                "runs without end",
            ),
            compute=rows,
        ),
        Table(
            title="Partitions",
            caption="Five sites, split once. Forks: members that gave up their order and told which places "
            "they delivered alone. A quorum of 3 keeps a minority from delivering.",
            columns=(
                "service",
                "milliseconds",
                "quorum",
                "violated",
                "forks",
                "places alone",
                "disagreements",
                "unavailable",
                "unnoticed",
            ),
            compute=partition_rows,
        ),
    ),
    claims=judged_by(
        "konorski",
        K10a=lambda results: order_is_kept(results, "lan"),
        K10b=lambda results: order_is_kept(results, "sequencer"),
        K10c=violations_are_noticed,
        K10d=lambda results: order_is_kept(results, "bounded-delay"),
    ),
)
