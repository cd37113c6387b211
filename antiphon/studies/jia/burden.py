"""Beyond the paper: the busiest site's load, up to 1,000 sites."""

from typing import Final

from antiphon.studies.jia.settings import KIND_WORDS, KINDS, SIZES
from antiphon.studies.jia.structure import APPROACHES, HUES, where
from antiphon.studies.model import Curve, Figure, Panel, Section, Table
from antiphon.studies.results import Results

SHOWN: Final = ("separate", "moderate", "profiles", "neighbours")
SHORT: Final = {
    "printed": "paper's tree",
    "shallow": "shallow tree",
    "sites": "tree of sites",
    "central": "one sequencer",
    "each": "one a group",
    "token": "token",
    "two-phase": "two-phase",
}
"""Short names, to fit beside a curve."""


def panel(kind: str) -> Panel:
    return Panel(
        title=KIND_WORDS[kind],
        x="sites",
        x_label="sites",
        y="busiest_load",
        y_label="messages for a multicast",
        curves=[
            Curve(name=name, where=where(approach, kind), hue=HUES[approach])
            for approach, name in SHORT.items()
        ],
        log_x=True,
        log_y=True,
    )


def rows(results: Results) -> list[list[str]]:
    made = []
    for kind in KINDS:
        for sites in SIZES:
            loads = [results.matching(where(approach, kind, sites=sites)) for approach in APPROACHES]
            if any(loads):
                cells = [
                    f"{points[0].metrics['busiest_load'].mean:.2f}" if points else "–" for points in loads
                ]
                made.append([kind, str(sites), *cells])
    return made


SECTION: Final = Section(
    title="Beyond the paper: who carries the load",
    text="Messages that the busiest site sends and receives for each multicast, with equally many multicasts "
    "to all groups. With one sequencer it is a whole group's size, for any number of groups. Trees spread it "
    "as far as groups are separate; where all are connected, their roots carry more than a sequencer of each "
    "group would. Token and two-phase spread it best, and pay in messages and delays.",
    figures=(
        Figure(
            id="J8",
            title="The busiest site's load (worked out)",
            caption="Messages that the busiest site sends and receives. Both axes are logarithmic.",
            panels=[panel(kind) for kind in SHOWN],
        ),
    ),
    tables=(
        Table(
            title="The busiest site's load (worked out)",
            caption="Messages sent and received for one multicast; token with L = 3, going round.",
            columns=("overlap", "sites", *APPROACHES.values()),
            compute=rows,
        ),
    ),
)
