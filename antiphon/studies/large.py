"""Beyond the papers: Guo's protocols in groups of up to 100,000 members.

Dense groups, 50 senders, hosts and routers as in the paper, but faster links. With 300 Mbit/s a link is
never the bottleneck: a router takes 1 ms per message, and the root's router passes on most messages between
parts of the tree. With 1 Mbit/s a message of 232 bytes takes twice as long on a link as in a router, so that
queues form before links, as in the paper.

Gossip's step grows with the group, so that the root can pass on what all members send in a step: 1 ms for
each member, or half of a message's time on a link if that is longer. S_Gossip keeps its 1.5 s. Gossip is run
up to the size where its rounds take ten minutes. Train and FullDist are left out: Train's round takes hours
with 100,000 members, and FullDist's messages grow as the square of the group.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

from antiphon.studies.formatting import number
from antiphon.studies.growth import LAWS, best_fit_with_offset, exponent, misfit
from antiphon.studies.guo.settings import HUES, NAMES, gossip_bytes
from antiphon.studies.model import Curve, Figure, Panel, Section, Table
from antiphon.studies.results import Results, Where
from antiphon.studies.study import Effort, Grid, Study

SIZES: Final = (1000, 3162, 10_000, 31_623, 100_000)
QUICK_SIZES: Final = SIZES[:3]
LINKS: Final = {1_000_000: "1 Mbit/s", 300_000_000: "300 Mbit/s"}
SLOW, FAST = LINKS
SENDERS: Final = 50
PROTOCOLS: Final = ("coordp", "s-coordp", "s-train", "s-gossip", "gossip")
GOSSIP_SIZES: Final = {SLOW: SIZES[:2], FAST: SIZES[:3]}
LOCAL_STEP_S: Final = 1.5
ROUTER_S: Final = 0.001
BUSIEST_SHARE: Final = 0.5
METRICS: Final = {
    "tpr_s": "time per round (s)",
    "hop_messages": "hop messages",
    "queue_mean": "mean queue",
    "queue_max": "longest queue",
}
CANDIDATES: Final = {**LAWS, "n log² n": lambda n: n * math.log(n) ** 2}
"""Both a gossip's way through the tree and the steps of a round grow with log n."""
WORTH_A_LAW: Final = 10
"""Queues that never reach this length are left out of the table."""
GOOD_FIT: Final = 0.1
"""A law that is off by less needs no offset."""

ONCE: Final[dict[Effort, int]] = {"quick": 1, "full": 1}
THRICE: Final[dict[Effort, int]] = {"quick": 1, "full": 3}


def gossip_step(point: Where) -> float:
    """Long enough for the root to pass on one gossip of each member."""
    message_s: float = gossip_bytes(point["members"], SENDERS) * 8 / point["bandwidth"]
    share_s = max(ROUTER_S, BUSIEST_SHARE * message_s)
    return round(float(share_s * point["members"]), 3)


def grid(scenario: str, bandwidths: Sequence[int], sizes: Sequence[int], **rest: Any) -> Grid:
    return Grid(
        scenario=scenario,
        axes={
            "members": sizes,
            "bandwidth": bandwidths,
            "senders": (SENDERS,),
            "until": ("first",),
        },
        quick={"members": [size for size in sizes if size in QUICK_SIZES]},
        **rest,
    )


GRIDS: Final = (
    *(grid(name, tuple(LINKS), SIZES, seeds=ONCE) for name in ("coordp", "s-coordp", "s-train")),
    grid("s-gossip", tuple(LINKS), SIZES, derived={"step": lambda _: LOCAL_STEP_S}, seeds=THRICE),
    *(
        grid("gossip", (bandwidth,), sizes, derived={"step": gossip_step}, seeds=THRICE)
        for bandwidth, sizes in GOSSIP_SIZES.items()
    ),
)


def where(protocol: str, bandwidth: int) -> dict[str, Any]:
    return {"scenario": protocol, "bandwidth": bandwidth, "senders": SENDERS, "until": "first"}


def panel(metric: str, bandwidth: int, title: str, log_y: bool = True) -> Panel:
    return Panel(
        title=title,
        x="members",
        x_label="group size n",
        y=metric,
        y_label=METRICS[metric],
        curves=[Curve(name=NAMES[name], where=where(name, bandwidth), hue=HUES[name]) for name in PROTOCOLS],
        log_x=True,
        log_y=log_y,
    )


def by_link(metric: str) -> Figure:
    return Figure(
        id={"tpr_s": "L1", "hop_messages": "L2"}[metric],
        title=f"{METRICS[metric].capitalize()} in large groups",
        caption="Dense groups, 50 senders. Both axes are logarithmic.",
        panels=[panel(metric, bandwidth, f"links of {name}") for bandwidth, name in LINKS.items()],
    )


QUEUES: Final = Figure(
    id="L3",
    title=f"Queues in large groups, links of {LINKS[SLOW]}",
    caption="The output link's queue at each enqueue. With 300 Mbit/s nothing waits for a link.",
    panels=[
        panel("queue_mean", SLOW, "mean queue", log_y=False),
        panel("queue_max", SLOW, "longest queue", log_y=False),
    ],
)


def law_of(values: dict[int, float]) -> tuple[str, str]:
    """The law and its misfit: proportional, or with an offset where that fits much better."""
    sizes, means = list(values), list(values.values())
    if len(sizes) < 3 or min(means) <= 0:
        return "–", "–"
    misfits = {name: misfit(law, sizes, means) for name, law in CANDIDATES.items()}
    best = min(misfits, key=lambda name: misfits[name])
    offset = best_fit_with_offset(sizes, means)
    if misfits[best] > GOOD_FIT and offset.misfit < misfits[best] / 2:
        return f"{offset.offset:.3g} + {offset.factor:.3g} {offset.law}", f"{offset.misfit:.1%}"
    return best, f"{misfits[best]:.1%}"


def law_rows(results: Results) -> list[list[str]]:
    """A law for each metric, except for queues too short to have one."""
    rows = []
    for bandwidth, link in LINKS.items():
        for protocol in PROTOCOLS:
            for metric, label in METRICS.items():
                values = results.means(where(protocol, bandwidth), "members", metric)
                if metric.startswith("queue") and max(values.values()) < WORTH_A_LAW:
                    continue
                rows.append([link, NAMES[protocol], label, *law_cells(values)])
    return rows


def law_cells(values: dict[int, float]) -> list[str]:
    law, off = law_of(values)
    power = f"{exponent(list(values), list(values.values())):.2f}" if min(values.values()) > 0 else "–"
    return [law, off, power, *(number(values[size]) if size in values else "–" for size in SIZES)]


STUDY: Final = Study(
    name="large",
    paper="Guo's protocols, past the paper",
    title="Groups of up to 100,000",
    grids=GRIDS,
    sections=(
        Section(
            title="Up to 100,000 members",
            text="How a round's time, messages and queues grow where the text does not go, with links of 1 "
            "and of 300 Mbit/s instead of 30 kbit/s; hosts and routers are as slow as in the text. With the "
            "faster ones the routers are what limits: each takes 1 ms for a message.\n\n"
            "The structured protocols' rounds grow as the tree's height does, with log n; CoordP's as n, "
            "since every ACK passes the root; Gossip's faster than n, since its step must grow with the "
            "group and its messages do too.",
            figures=(by_link("tpr_s"), by_link("hop_messages"), QUEUES),
            tables=(
                Table(
                    title="Growth laws",
                    caption="The law that fits best, how far it is off on the average, the power of n that "
                    "fits best, and the means by group size.",
                    columns=("links", "protocol", "metric", "law", "off by", "power", *map(str, SIZES)),
                    compute=law_rows,
                ),
            ),
        ),
    ),
)
