"""Every run of Guo's evaluation, as grids.

The 12,000 runs of section 5.3.1 are `FIXED`; a quick study does three seeds of two thirds of the steps. A
dense round of CoordP, Train, S_CoordP, S_Train or FullDist without loss is deterministic, so one run is
enough.
"""

from typing import Any, Final

from antiphon.studies.guo.search import NAME as SEARCH
from antiphon.studies.guo.settings import (
    BANDWIDTH,
    DENSITIES,
    FAST_BANDWIDTH,
    FIXED_SIZE,
    LOCAL_ENDS,
    LOCAL_GROUP,
    LOSSES,
    NAMES,
    NARROW_SPACING_S,
    QUICK_STEPS,
    SENDERS,
    SHAPES,
    SIZES,
    SMALL_SIZES,
    STEPS,
    SUBGROUPS,
    SUBSETS,
    local_step,
    table_step,
    text_step,
)
from antiphon.studies.study import Effort, Grid

ONCE: Final[dict[Effort, int]] = {"quick": 1, "full": 1}
FEW: Final[dict[Effort, int]] = {"quick": 3, "full": 20}
SOME: Final[dict[Effort, int]] = {"quick": 5, "full": 20}
ALWAYS_20: Final[dict[Effort, int]] = {"quick": 20, "full": 20}


def dense(scenario: str, senders: tuple[int, ...], **axes: tuple[Any, ...]) -> Grid:
    """Dense rounds in which nothing is random."""
    return Grid(
        scenario=scenario,
        axes={"members": SIZES, "senders": senders, "fill": ("even", "left"), **axes},
        seeds=ONCE,
    )


def all_dense(senders: tuple[int, ...]) -> tuple[Grid, ...]:
    """The five protocols that are not gossip."""
    starts = ("counted", "free")
    return (
        dense("coordp", senders, start=starts),
        dense("train", senders),
        dense("fulldist", senders),
        dense("s-coordp", senders, start=starts),
        dense("s-train", senders, start=starts),
    )


def sparse(scenario: str, seeds: dict[Effort, int], **axes: tuple[Any, ...]) -> Grid:
    return Grid(
        scenario=scenario,
        axes={"members": SIZES, "senders": SENDERS, "density": ("sparse",), **axes},
        seeds=seeds,
    )


DENSE: Final = all_dense(SENDERS)

SPARSE: Final = (
    sparse("coordp", SOME),
    sparse("train", SOME),
    sparse("fulldist", FEW),
    sparse("s-coordp", SOME, subgroup=SUBGROUPS),
    sparse("s-train", SOME, subgroup=SUBGROUPS),
)

SCATTERED: Final = Grid(
    scenario="fulldist", axes={"members": SIZES, "senders": (50,), "scattered": (True,)}, seeds=SOME
)


WALKED: Final = tuple(
    sparse(scenario, SOME, senders=(50,), subgroup=SUBGROUPS, order=("depth-first",))
    for scenario in ("s-coordp", "s-train")
)
"""Logical trees along a depth-first walk of the network."""

LARGE_SUBGROUPS: Final = tuple(
    Grid(
        scenario=scenario,
        axes={"members": SIZES, "senders": (1,), "tree": ("subgroups",), "subgroup": (LOCAL_GROUP,)},
        seeds=ONCE,
    )
    for scenario in ("s-coordp", "s-train")
)
"""Dense groups whose logical trees have sub-groups of 50 (figure C.2)."""

CLOSE_TOGETHER: Final = Grid(
    scenario="fulldist", axes={"members": SIZES, "senders": (50,), "scatter": (NARROW_SPACING_S,)}, seeds=SOME
)
"""The other window of figure 5.18."""


def gossip(axes: dict[str, Any], **rest: Any) -> Grid:
    """Gossip, until the first member has the result; every grid names the same parameters."""
    fixed = {"subset": (1,), "until": ("first",), "bandwidth": (BANDWIDTH,), "loss": ("buffers",)}
    return Grid(scenario="gossip", axes={**fixed, **axes}, **rest)


GROUP_OF_200: Final[dict[str, Any]] = {"members": (FIXED_SIZE,), "senders": (50,)}
FIXED: Final = gossip(
    {**GROUP_OF_200, "density": DENSITIES, "loss": LOSSES, "subset": SUBSETS, "step": STEPS},
    quick={"step": QUICK_STEPS},
    seeds=FEW,
)
SPREAD: Final = gossip(
    {**GROUP_OF_200, "density": ("dense",), "loss": ("none",), "subset": (3,), "step": STEPS},
    seeds=ALWAYS_20,
)
BY_SIZE: Final = gossip(
    {"members": SIZES, "senders": SENDERS, "density": DENSITIES}, derived={"step": text_step}, seeds=SOME
)
FAST_LINKS: Final = gossip(
    {"members": SIZES, "senders": (50,), "density": ("sparse",), "bandwidth": (FAST_BANDWIDTH,)},
    derived={"step": text_step},
    seeds=SOME,
)
LOCAL: Final = Grid(
    scenario="s-gossip",
    axes={"members": SIZES, "senders": SENDERS, "density": DENSITIES, "loss": ("buffers",), "subset": (1,)},
    derived={"step": local_step, "until": lambda _: "first", "bandwidth": lambda _: BANDWIDTH},
    seeds=SOME,
)

UNFITTED: Final = tuple(
    Grid(
        scenario="s-gossip",
        axes={
            "members": (SIZES[-1],),
            "senders": (50,),
            "density": DENSITIES,
            "loss": ("buffers",),
            "subset": (1,),
            "local": (local,),
            "local_result": (local_result,),
        },
        derived={"step": table_step, "until": lambda _: "first", "bandwidth": lambda _: BANDWIDTH},
        seeds=SOME,
    )
    for local, local_result in LOCAL_ENDS
)
"""S_Gossip with a step that was not fitted, with each way to end a local round."""

IN_SHAPES: Final = (
    *(
        Grid(scenario=name, axes={"members": SMALL_SIZES, "senders": (50,), "shape": SHAPES}, seeds=ONCE)
        for name in ("coordp", "fulldist", "train", "s-coordp", "s-train")
    ),
    gossip({"members": SMALL_SIZES, "senders": (50,), "shape": SHAPES, "step": (9.0,)}, seeds=FEW),
    Grid(
        scenario="s-gossip",
        axes={"members": SMALL_SIZES, "senders": (50,), "shape": SHAPES, "loss": ("buffers",)},
        seeds=FEW,
    ),
)
"""Figure 5.1's star and chain."""

UNTIL_STABLE: Final = Grid(
    scenario="fifo",
    axes={"stability": tuple(NAMES), "members": (5, 10, 20, 40), "messages": (200,), "rate": (200.0,)},
    quick={"members": (5, 10, 20)},
    seeds=FEW,
)
"""Time to stability in groups that multicast."""

SEARCHES: Final = (
    Grid(
        scenario=SEARCH,
        axes={"members": (FIXED_SIZE,), "subset": SUBSETS, "density": ("dense",), "loss": ("none",)},
        derived={"seeds": lambda _: 20},
        quick={"subset": (1, 3)},
        seeds=ONCE,
    ),
    Grid(
        scenario=SEARCH,
        axes={"members": SIZES, "senders": SENDERS, "density": ("sparse",), "loss": ("buffers",)},
        # Subset size 1 needs much shorter steps than subset size 3, for which the paper chose its range.
        derived={"seeds": lambda _: 5, "longest": lambda _: 8.0},
        seeds=ONCE,
    ),
)

DETECTION: Final = Grid(
    scenario="failure-detection",
    axes={
        "members": (8, 16, 32, 64, 128),
        "kind": ("gossip",),
        "loss": (0.1,),
        "crashes": (2,),
        "joins": (2,),
        "bandwidth": (1000.0,),
    },
    quick={"members": (8, 16, 32, 64)},
    seeds=SOME,
)

GRIDS: Final = (
    *DENSE,
    *SPARSE,
    SCATTERED,
    FIXED,
    SPREAD,
    BY_SIZE,
    FAST_LINKS,
    LOCAL,
    *WALKED,
    *LARGE_SUBGROUPS,
    CLOSE_TOGETHER,
    *UNFITTED,
    *IN_SHAPES,
    UNTIL_STABLE,
    *SEARCHES,
    DETECTION,
)
