"""The settings of Guo's evaluation (chapter 5): names, sizes, steps, and which runs a curve is about.

Source: K. Guo, Scalable Message Stability Detection Protocols, sections 5.1 to 5.7. The model's readings are
the simulator's defaults (`antiphon.sim.rounds`, `antiphon.sim.tree`). Where a result
depends on a reading, both are run: how the tree's last level is filled, and whether the time to spread START
counts.

In the comparisons (sections 5.4 to 5.7) Gossip and S_Gossip run with 64-message buffers and two lost gossips
a step, as 5.4 and 5.4.2 say, and the other protocols without loss. Gossip has subset size 1 and the step of
table 5.1 for its group size. The paper does not give S_Gossip's step: it is 1.5 s with 50 senders and, with
one sender, shorter in proportion to its message. That step, and the end of its local rounds, were fitted to
the text's 'almost 6 times better than Gossip' (G17c, G20e): these claims are judged by the step of table 5.1
for a group of 50, and by all ends.
"""

from collections.abc import Mapping
from typing import Any, Final

from antiphon.studies.model import Curve
from antiphon.studies.results import Where

SIZES: Final = (50, 100, 200, 300, 400, 500)
SENDERS: Final = (50, 1)
DENSITIES: Final = ("dense", "sparse")
LOSSES: Final = ("none", "buffers", "random")
SUBSETS: Final = (1, 2, 3, 4, 5)
STEPS: Final = tuple(float(step) for step in range(1, 21))
QUICK_STEPS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 9.0, 10.0, 12.0, 15.0, 17.0, 20.0)
FIXED_SIZE: Final = 200
"""The group of section 5.3.1."""
SUBGROUPS: Final = (4, 50)
BANDWIDTH: Final = 30_000
FAST_BANDWIDTH: Final = 300_000
LOCAL_ENDS: Final = (("first", "free"), ("first", "counted"), ("controller", "counted"), ("own", "counted"))
"""How S_Gossip's local rounds may end, and whether to say so costs anything."""
SMALL_SIZES: Final = (50, 100, 200)
SHAPES: Final = ("star", "chain")
NARROW_SPACING_S: Final = 0.0004
"""Between two scattered rows if all come within figure 5.18's d: 25 in 10 ms."""
LOCAL_STEP_S: Final = 1.5
"""S_Gossip's, fitted to 'almost 6'."""
LOCAL_GROUP: Final = 50

NAMES: Final[Mapping[str, str]] = {
    "coordp": "CoordP",
    "fulldist": "FullDist",
    "train": "Train",
    "gossip": "Gossip",
    "s-coordp": "S_CoordP",
    "s-train": "S_Train",
    "s-gossip": "S_Gossip",
}
HUES: Final = {protocol: hue for hue, protocol in enumerate(NAMES)}
"""The colour of each protocol, the same in all figures."""
OTHER_HUE: Final = len(NAMES)
"""The colour of a protocol's second curve."""
BASIC: Final = ("coordp", "fulldist", "train", "gossip")
STRUCTURED: Final = ("s-coordp", "s-train", "s-gossip")

TEXT_STEPS: Final[Mapping[int, Mapping[int, float]]] = {
    50: dict(zip(SIZES, (0.7, 0.7, 3.0, 3.0, 4.0, 5.0), strict=True)),
    1: dict(zip(SIZES, (0.1, 0.2, 0.5, 0.6, 0.9, 1.0), strict=True)),
}
"""Table 5.1: by senders and group size, the near-optimal step in seconds."""


def gossip_bytes(members: int, senders: int) -> int:
    """A gossip message: header, counts, round number and a bit for each member (section 5.2)."""
    return 36 + 4 * senders + -(-members // 8)


def text_step(point: Where) -> float:
    """Table 5.1's step for a group, in inverse proportion to the bandwidth (section 5.3.3)."""
    step = TEXT_STEPS[point["senders"]].get(point["members"], 0.0)
    bandwidth: int = point["bandwidth"]
    return round(step * BANDWIDTH / bandwidth, 3)


def local_step(point: Where) -> float:
    """S_Gossip's step in seconds."""
    share = gossip_bytes(LOCAL_GROUP, point["senders"]) / gossip_bytes(LOCAL_GROUP, 50)
    return round(LOCAL_STEP_S * share, 2)


def table_step(point: Where) -> float:
    """S_Gossip's step in seconds without fitting: table 5.1's for a group of a local group's size."""
    return TEXT_STEPS[point["senders"]][LOCAL_GROUP]


# Selections of the grids' points for curves and claims: each names every parameter that any grid varies.


def points(protocol: str, density: str, senders: int, **changes: Any) -> dict[str, Any]:
    """The points of a protocol in the comparisons of sections 5.4 to 5.7, over the group size."""
    where: dict[str, Any] = {"scenario": protocol, "density": density, "senders": senders, "shape": "tree"}
    if protocol in ("gossip", "s-gossip"):
        step = text_step if protocol == "gossip" else local_step
        where |= {"loss": "buffers", "subset": 1, "until": "first", "bandwidth": BANDWIDTH, "step": step}
        return {**where, **changes}
    where |= {"loss": "none", "fill": "even"}
    if protocol == "fulldist":
        where |= {"scattered": False, "scatter": 0.0}
    if protocol in ("s-coordp", "s-train"):
        where |= {"subgroup": 4, "order": "random", "tree": "network"}
    if protocol in ("coordp", "s-coordp", "s-train"):
        where["start"] = "counted"
    return {**where, **changes}


def fixed_gossip(density: str, loss: str, subset: int) -> dict[str, Any]:
    """The points of Gossip in the group of 200, over the step."""
    where = {"scenario": "gossip", "density": density, "senders": 50, "loss": loss, "subset": subset}
    return {**where, "until": "first", "bandwidth": BANDWIDTH, "members": FIXED_SIZE, "shape": "tree"}


def curves(protocols: tuple[str, ...], density: str, senders: int) -> list[Curve]:
    """A curve for each protocol."""
    return [
        Curve(name=NAMES[name], where=points(name, density, senders), hue=HUES[name]) for name in protocols
    ]
