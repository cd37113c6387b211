"""Section 5.1: the other two networks of figure 5.1, a star and a chain, on which the text has no results."""

from typing import Any, Final

from antiphon.studies.formatting import number
from antiphon.studies.guo.settings import HUES, NAMES, SHAPES, SMALL_SIZES
from antiphon.studies.model import Curve, Figure, Panel, Section, Table
from antiphon.studies.results import Results


def where(protocol: str, shape: str) -> dict[str, Any]:
    found = {"scenario": protocol, "shape": shape, "density": "dense", "senders": 50}
    return found | ({"step": 9.0} if protocol == "gossip" else {})


def panel(shape: str, y: str, y_label: str) -> Panel:
    return Panel(
        title=f"{shape}: {y_label}",
        x="members",
        x_label="group size n",
        y=y,
        y_label=y_label,
        curves=[Curve(name=NAMES[name], where=where(name, shape), hue=HUES[name]) for name in NAMES],
        log_y=True,
    )


def rows(results: Results) -> list[list[str]]:
    largest = SMALL_SIZES[-1]
    found = []
    for name in NAMES:
        values = [
            results.means(where(name, shape), "members", metric)[largest]
            for shape in SHAPES
            for metric in ("tpr_s", "hop_messages")
        ]
        found.append([NAMES[name], *map(number, values)])
    return found


SECTION: Final = Section(
    title="5.1 Star and chain",
    text="The text simulates trees only. In a star all nodes but the root are its children; in a chain each "
    "node has one. The structured protocols follow the network, as in dense trees: on a star S_CoordP is "
    "CoordP, and on a chain it passes reports from neighbour to neighbour.",
    figures=tuple(
        Figure(
            id=f"5.1 {shape}",
            title=f"The seven protocols on a {shape}, dense groups with 50 senders",
            caption="Gossip with a step of 9 s, S_Gossip with 1.5 s; both lose gossips, as in section 5.4.",
            panels=[
                panel(shape, "tpr_s", "time per round (s)"),
                panel(shape, "hop_messages", "hop messages"),
            ],
        )
        for shape in SHAPES
    ),
    tables=(
        Table(
            title=f"Star and chain, {SMALL_SIZES[-1]} members",
            caption="Time per round in seconds, and messages on all hops.",
            columns=("protocol", "star: time", "messages", "chain: time", "messages"),
            compute=rows,
        ),
    ),
)
