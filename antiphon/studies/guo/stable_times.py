"""Section 5.2: time to stability (TTS), the more important metric, which the text leaves to others.

It takes a reliable multicast, so the runs are of our own: a group in `fifo` whose members multicast 200
messages a second together, on a mesh. The time runs from the multicast of a message until a member knows
that it is stable. The text bounds it by D + F + TPR: the time to deliver, between rounds, and for a round.
"""

from typing import Any, Final

from antiphon.studies.guo.settings import HUES, NAMES
from antiphon.studies.model import Curve, Figure, Panel, Section, Table
from antiphon.studies.results import Results


def where(protocol: str) -> dict[str, Any]:
    return {"scenario": "fifo", "stability": protocol}


def panel(y: str, y_label: str) -> Panel:
    return Panel(
        x="members",
        x_label="group size n",
        y=y,
        y_label=y_label,
        curves=[Curve(name=NAMES[name], where=where(name), hue=HUES[name]) for name in NAMES],
        spread="interval",
    )


def rows(results: Results) -> list[list[str]]:
    found = []
    for name in NAMES:
        times = results.means(where(name), "members", "stability_s")
        control = results.means(where(name), "members", "control_bytes_s")
        most = max(times)
        cells = [f"{1000 * times[size]:.1f}" for size in (min(times), most)]
        found.append([NAMES[name], str(most), *cells, f"{control[most] / most / 1000:.1f}"])
    return found


SECTION: Final = Section(
    title="5.2 Time to stability",
    text="All seven protocols as the stability layer of reliable FIFO multicast. Members multicast 200 "
    "messages a second together; a round begins at the clock's pace, which falls with the group's size. "
    "Gossip's step is that pace, so its rounds take several of them.",
    figures=(
        Figure(
            id="TTS",
            title="Time to stability over the group size",
            caption="Means over all messages; a mesh with 1 ms a way, nothing lost.",
            panels=[
                panel("stability_s", "time to stability (s)"),
                panel("control_bytes_s", "control bytes a second, all members"),
            ],
        ),
    ),
    tables=(
        Table(
            title="Time to stability",
            caption="In milliseconds, in the smallest and in the largest group; kilobytes of control that a "
            "member sends in a second in the largest.",
            columns=("protocol", "largest n", "smallest group", "largest group", "kB a member and second"),
            compute=rows,
        ),
    ),
)
