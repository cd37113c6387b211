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
    LOSSES,
    QUICK_STEPS,
    SENDERS,
    SIZES,
    STEPS,
    SUBGROUPS,
    SUBSETS,
    local_step,
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
    quick={"step": QUICK_STEPS},
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
    *SEARCHES,
    DETECTION,
)
