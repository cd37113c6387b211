"""Beyond the paper: the schemes under loss and in larger groups, and the metadata of messages."""

from collections.abc import Callable
from typing import Any, Final

from antiphon.analysis import control_schemes as closed
from antiphon.analysis.control_schemes import SCHEMES, Scheme, Traffic
from antiphon.spark.statistics import Point
from antiphon.studies.formatting import number
from antiphon.studies.judging import judged_by, runs, total
from antiphon.studies.model import Figure, Finding, Panel, Section, Series, Table
from antiphon.studies.results import Results
from antiphon.studies.sco.judging import delay, messages, there, where
from antiphon.studies.sco.settings import (
    DEFERRAL,
    HEARTBEAT_UNITS,
    HUES,
    LEAST_UNITS,
    SCENARIOS,
    UNIT_MS,
    WINDOW,
    parameters,
    traffic,
)
from antiphon.studies.study import Effort, Grid, fixed

LOSSES: Final = (0.0, 0.05, 0.1, 0.2)
QUICK_LOSSES: Final = (0.0, 0.1)
SIZES: Final = (10, 30, 100)
QUICK_SIZES: Final = (10, 30)
SEEDS: Final[dict[Effort, int]] = {"quick": 1, "full": 3}


# Loss


def over_losses(scheme: Scheme) -> Grid:
    return Grid(
        scenario=SCENARIOS[scheme],
        axes={**fixed(parameters(scheme, traffic())), "loss": LOSSES},
        quick={"loss": QUICK_LOSSES},
        seeds=SEEDS,
    )


def loss_panel(measure: Callable[[Results, Scheme, Traffic, float], float], y_label: str) -> Panel:
    def lines(results: Results) -> list[Series]:
        made = []
        for scheme in SCHEMES:
            losses = [loss for loss in LOSSES if there(results, scheme, traffic(), loss)]
            values = [measure(results, scheme, traffic(), loss) for loss in losses]
            made += [Series(name=scheme, x=losses, y=values, hue=HUES[scheme])] if losses else []
        return made

    return Panel(x_label="share of arrivals lost", y_label=y_label, compute=lines)


LOSS_FIGURE: Final = Figure(
    id="S8",
    title="Messages and delay under loss",
    caption="n = 10, a = 1, k = 4, r = 4, d = 5. All that crosses the network for a message, with repeats, "
    "and units of time until a destination fully accepts it.",
    panels=[loss_panel(messages, "messages"), loss_panel(delay, "units of time")],
)


def nothing_is_violated(results: Results) -> Finding:
    """At every loss rate: no scheme may break its promises, and every run must finish."""
    points = [
        point
        for scheme in SCHEMES
        for loss in LOSSES
        for point in results.matching(where(scheme, traffic(), loss))
    ]
    if not points:
        raise LookupError("no run of any scheme is there")
    ended = total(points, "finished")
    violations = total(points, "violations")
    return Finding(
        ours=f"{violations:.0f} violations in {number(total(points, 'deliveries'))} deliveries; {ended:.0f} "
        f"of {runs(points)} runs ended",
        holds=not violations and ended == runs(points),
    )


# Larger groups


def in_group(scheme: Scheme, members: int) -> Grid:
    return Grid(
        scenario=SCENARIOS[scheme],
        axes=fixed(parameters(scheme, traffic(members=members))),
        seeds={"quick": SEEDS["quick"] if members in QUICK_SIZES else 0, "full": SEEDS["full"]},
    )


def size_rows(results: Results) -> list[list[str]]:
    rows = []
    for members in SIZES:
        group = traffic(members=members)
        if all(there(results, scheme, group) for scheme in SCHEMES):
            costs = [
                f"{messages(results, scheme, group):.2f} ({closed.messages(scheme, group):.2f})"
                for scheme in SCHEMES
            ]
            delays = [
                f"{delay(results, scheme, group):.1f} ({closed.delay(scheme, group):.1f})"
                for scheme in SCHEMES
            ]
            rows.append([str(members), *costs, *delays])
    return rows


# Metadata

FEW: Final = 3
"""Destinations of each message."""
METADATA_MESSAGES: Final = 600
"""Messages at least, and as many as are sent in the shortest time of a run."""
BROADCASTS: Final = 300
"""Fewer messages to all members: each is handled once per member."""
FORMS: Final[dict[str, dict[str, Any]]] = {
    "SCO, plain": {
        "scenario": "sco",
        "vectors": "plain",
        "control_ms": HEARTBEAT_UNITS * UNIT_MS,
        "confirm_ms": DEFERRAL * UNIT_MS,
    },
    "SCO, compressed": {
        "scenario": "sco",
        "vectors": "compressed",
        "control_ms": HEARTBEAT_UNITS * UNIT_MS,
        "confirm_ms": DEFERRAL * UNIT_MS,
    },
    "C1": {"scenario": "sco-c1", "confirm_ms": DEFERRAL * UNIT_MS},
    "CBCAST": {"scenario": "vector-clock", "confirm_ms": DEFERRAL * UNIT_MS},
    "CO": {
        "scenario": "co",
        "confirm_ms": DEFERRAL * UNIT_MS,
        "heartbeat_ms": HEARTBEAT_UNITS * UNIT_MS,
    },
}
"""The schemes compared; C1 with the matrix of counts that its order needs."""


def metadata_knobs(form: str, members: int) -> dict[str, Any]:
    """Each member sends one message a unit, as in the paper, until all are sent."""
    return {
        **FORMS[form],
        "members": members,
        "destinations": FEW,
        "own_share": 0.0,
        "sending": "even",
        "rate": members * 1000.0 / UNIT_MS,
        "messages": BROADCASTS if form in ("CBCAST", "CO") else max(METADATA_MESSAGES, members * LEAST_UNITS),
        "delay_ms": UNIT_MS,
        "window": WINDOW,
    }


def metadata_grid(form: str, members: int) -> Grid:
    knobs = metadata_knobs(form, members)
    return Grid(
        scenario=knobs.pop("scenario"),
        axes=fixed(knobs),
        seeds={"quick": 1 if members in QUICK_SIZES else 0, "full": 1},
    )


def overhead(point: Point) -> float:
    """Bytes beside bodies and headers for each message of an application, over all copies and controls."""
    metrics = point.metrics
    data = metrics["metadata_bytes"].mean * metrics["data_messages"].mean
    control = metrics["control_bytes"].mean * metrics["control_messages"].mean
    return (data + control) / metrics["admitted"].mean


def metadata_point(results: Results, form: str, members: int) -> Point | None:
    points = results.matching(metadata_knobs(form, members))
    return points[0] if points else None


def metadata_rows(results: Results) -> list[list[str]]:
    rows = []
    for members in SIZES:
        for form in FORMS:
            point = metadata_point(results, form, members)
            if point is not None:
                metrics = point.metrics
                rows.append(
                    [
                        str(members),
                        form,
                        f"{metrics['metadata_bytes'].mean:.1f}",
                        f"{metrics['control_bytes'].mean:.1f}",
                        f"{metrics['data_messages'].mean / metrics['admitted'].mean:.1f}",
                        f"{metrics['control_messages'].mean / metrics['admitted'].mean:.1f}",
                        number(overhead(point)),
                    ]
                )
    return rows


def compression_pays(results: Results) -> Finding:
    """Both forms at the same size: the metadata of one copy of a message."""
    carried = {}
    for members in SIZES:
        plain, compressed = (
            metadata_point(results, form, members) for form in ("SCO, plain", "SCO, compressed")
        )
        if plain is not None and compressed is not None:
            carried[members] = tuple(point.metrics["metadata_bytes"].mean for point in (plain, compressed))
    largest = max(carried)
    return Finding(
        ours="; ".join(
            f"n={members}: {plain:.0f} to {less:.0f} bytes" for members, (plain, less) in carried.items()
        ),
        holds=carried[largest][1] < largest * ENTRY_BYTES,
    )


ENTRY_BYTES: Final = 8
"""One number of the plain form."""

GRIDS: Final = (
    *map(over_losses, SCHEMES),
    *(in_group(scheme, members) for members in SIZES for scheme in SCHEMES),
    *(metadata_grid(form, members) for members in SIZES for form in FORMS),
)

SECTION: Final = Section(
    title="Past the paper",
    text="The same under loss; in groups where a message goes to few of many; and the metadata of messages. "
    "With five destinations in a group of 100, data rarely goes where a confirmation is due, so most "
    "confirmations are sent alone: the larger the group, the less deferral saves. Under loss SCO requests "
    "missing messages, while our C0, C1 and D0 repeat by time-out: their longer waits come from repair.",
    figures=(LOSS_FIGURE,),
    tables=(
        Table(
            title="Over the size of the group",
            caption="a = 1, k = 4, r = 4, d = 5. Messages for each message, and units of time until it is "
            "fully accepted; closed forms in brackets.",
            columns=(
                "n",
                *(f"{scheme} messages" for scheme in SCHEMES),
                *(f"{scheme} delay" for scheme in SCHEMES),
            ),
            compute=size_rows,
        ),
        Table(
            title="Bytes beside the bodies",
            caption="Three destinations a message, one message of everyone a unit, rounds of one unit, k = "
            "4. The PDU's header, the same for all, is left out. The last column sums over all copies and "
            "controls.",
            columns=(
                "n",
                "",
                "bytes a copy",
                "bytes a control",
                "copies a message",
                "controls a message",
                "bytes a message",
            ),
            compute=metadata_rows,
        ),
    ),
    claims=judged_by(
        "sco",
        S8=nothing_is_violated,
        S9=compression_pays,
    ),
)
