"""Section 5.5: all protocols in sparse groups with 50 senders; figures 5.22 to 5.33, claims G18 to G20."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from antiphon.studies.claims import Judge
from antiphon.studies.guo.comparisons import HOPS, MEAN_QUEUE, MOST_QUEUE, TPR, Setting
from antiphon.studies.guo.dense import gossip_gains_6
from antiphon.studies.guo.judging import (
    NOTHING_WAITS,
    both,
    by_queues,
    by_size,
    crossing,
    ends,
    falls_off,
    ratios,
    span,
)
from antiphon.studies.guo.settings import NAMES, SUBGROUPS
from antiphon.studies.judging import MUCH, Way, judged_by, rises, under, unless
from antiphon.studies.model import Finding, Section
from antiphon.studies.results import Results

HERE: Final = Setting("sparse", 50)
SLOWLY: Final = 2.0
"""A queue grows slowly if it does not double from n=50, where the others grow manyfold."""
THRESHOLD: Final = 150

measured = partial(by_size, density="sparse", senders=50)

FIGURES: Final = (
    HERE.basic_messages("5.22"),
    HERE.structured_messages("5.23"),
    *HERE.pairs(("5.24", "5.25"), "Messages on all hops", HOPS),
    HERE.basic_queues("5.26", MEAN_QUEUE),
    HERE.structured_queues("5.27", MEAN_QUEUE),
    HERE.basic_queues("5.28", MOST_QUEUE),
    HERE.structured_queues("5.29", MOST_QUEUE),
    HERE.basic_times("5.30"),
    HERE.structured_times("5.31"),
    *HERE.pairs(("5.32", "5.33"), "Time per round", TPR),
)


# G18: messages


def s_coordp_uses_more(results: Results) -> Finding:
    basic = measured(results, "coordp", metric="hop_messages")
    return both(
        *(
            (
                f"sub-groups of {size}",
                falls_off(
                    ("S_CoordP", "CoordP"),
                    [measured(results, "s-coordp", metric="hop_messages", subgroup=size), basic],
                    # A group that is one sub-group has no structure: it is CoordP.
                    above=size,
                ),
            )
            for size in SUBGROUPS
        )
    )


def by_orders(judge: Callable[[Results, str], Finding]) -> Judge:
    """A claim about logical trees: over a random order of the members, and along the network."""
    return under(
        Way("random trees", "logical trees are random", lambda results: judge(results, "random")),
        Way(
            "depth-first trees",
            "logical trees follow a depth-first walk of the network",
            lambda results: judge(results, "depth-first"),
        ),
    )


def one_uses_more(results: Results, order: str, more: str, less: str, subgroup: int) -> Finding:
    curves = [
        measured(results, name, metric="hop_messages", subgroup=subgroup, order=order)
        for name in (more, less)
    ]
    return falls_off((NAMES[more], NAMES[less]), curves)


def train_uses_most(results: Results, order: str) -> Finding:
    curves = [
        measured(results, "train", metric="hop_messages"),
        *(
            measured(results, "s-train", metric="hop_messages", subgroup=size, order=order)
            for size in (50, 4)
        ),
    ]
    found = falls_off(("Train", "S_Train with 50", "S_Train with 4"), curves)
    why = " Train goes from neighbour to neighbour, S_Train through trees drawn at random."
    return replace(found, reason=f"{found.reason}{why}" if found.reason else "")


# G19: queues


def basic_queues(results: Results, metric: str) -> Finding:
    fulldist, coordp = (
        measured(results, "fulldist", metric=metric),
        measured(results, "coordp", metric=metric),
    )
    train = measured(results, "train", metric=metric)
    others = measured(results, "gossip", metric=metric)
    order = falls_off(("FullDist", "CoordP"), [fulldist, coordp])
    most_train = max(train.values())
    growing = rises(fulldist.values()) and rises(coordp.values())
    return Finding(
        ours=f"{order.ours}, Gossip {others[max(others)]:.3g}; Train at most {most_train:.2g}",
        holds=bool(order.holds) and growing and most_train <= NOTHING_WAITS,
        reason=order.reason or ("" if growing else "Not growing throughout."),
    )


def small_subgroups_queue_more(results: Results) -> Finding:
    curves = {
        name: measured(results, name, metric="queue_mean", subgroup=4) for name in ("s-coordp", "s-train")
    }
    return both(
        *((NAMES[name], Finding(ends(curve), rises(curve.values()))) for name, curve in curves.items())
    )


def large_subgroups_queue(results: Results) -> Finding:
    """Significantly and very slowly: S_CoordP's queue grows at least twice as much as S_Train's."""
    curves = {
        name: measured(results, name, metric="queue_mean", subgroup=50) for name in ("s-coordp", "s-train")
    }
    growth = {name: curve[max(curve)] - curve[min(curve)] for name, curve in curves.items()}
    return Finding(
        ours="; ".join(f"{NAMES[name]} {ends(curve)}" for name, curve in curves.items()),
        holds=growth["s-coordp"] > 0 and growth["s-coordp"] >= MUCH * growth["s-train"],
    )


def gossip_queues_grow_slowly(results: Results) -> Finding:
    curves = {name: measured(results, name, metric="queue_mean") for name in ("gossip", "s-gossip")}
    factors = {name: curve[max(curve)] / curve[min(curve)] for name, curve in curves.items()}
    return Finding(
        ours="; ".join(f"{NAMES[name]} {ends(curve)}" for name, curve in curves.items()),
        holds=all(factor <= SLOWLY for factor in factors.values()),
        reason=unless(
            max(factors.values()) <= SLOWLY, "More than doubles from the smallest group to the largest."
        ),
    )


# G20: times


def order_of_times(results: Results) -> Finding:
    names = ("train", "gossip", "fulldist", "coordp")
    return falls_off([NAMES[name] for name in names], [measured(results, name) for name in names])


def better_subgroup(results: Results, order: str, protocol: str, worse: int, better: int) -> Finding:
    curves = [measured(results, protocol, subgroup=size, order=order) for size in (worse, better)]
    return falls_off((f"sub-groups of {worse}", f"sub-groups of {better}"), curves)


def coordp_wins_in_small_groups(results: Results) -> Finding:
    """CoordP is the fastest exactly below n=150; the curves cross between two sizes.

    A tie counts for CoordP: a group of 50 with sub-groups of 50 is CoordP.
    """
    basic = measured(results, "coordp")
    best = {
        size: min(measured(results, "s-coordp", subgroup=group)[size] for group in SUBGROUPS)
        for size in basic
    }
    wins = {size: basic[size] <= best[size] for size in sorted(basic)}
    last = max((size for size, is_won in wins.items() if is_won), default=0)
    where = crossing(basic, best)
    words = f"CoordP faster up to n={last}" if last else "CoordP never faster"
    return Finding(
        ours=f"{words}; the curves cross near n={where:.0f}" if where else words,
        holds=all(is_won == (size < THRESHOLD) for size, is_won in wins.items()),
    )


def times_with_large_subgroups(results: Results) -> Finding:
    train = measured(results, "s-train", subgroup=50)
    gossip, coordp = measured(results, "s-gossip"), measured(results, "s-coordp", subgroup=50)
    order = falls_off(("S_Train", "S_Gossip", "S_CoordP"), [train, gossip, coordp])
    much = ratios(train, gossip)
    return Finding(
        ours=f"{order.ours}; S_Train {span(much.values())} times S_Gossip",
        holds=bool(order.holds) and min(much.values()) >= MUCH,
        reason=order.reason,
    )


SECTION: Final = Section(
    title="5.5 Sparse groups, 50 senders",
    text="Members at some of a thousand nodes, the others routers. The logical trees are drawn at random: "
    "sub-groups of 4 are a tree in which every member has three children, sub-groups of 50 have 49 under "
    "each head.",
    figures=FIGURES,
    claims=judged_by(
        "guo",
        G18a=s_coordp_uses_more,
        G18b=by_orders(partial(one_uses_more, more="s-coordp", less="s-train", subgroup=4)),
        G18c=by_orders(partial(one_uses_more, more="s-train", less="s-coordp", subgroup=50)),
        G18d=by_orders(train_uses_most),
        G19a=by_queues(basic_queues),
        G19b=small_subgroups_queue_more,
        G19c=large_subgroups_queue,
        G19d=gossip_queues_grow_slowly,
        G19e=lambda results: basic_queues(results, "queue_max"),
        G20a=order_of_times,
        G20b=by_orders(partial(better_subgroup, protocol="s-coordp", worse=4, better=50)),
        G20c=by_orders(partial(better_subgroup, protocol="s-train", worse=50, better=4)),
        G20d=coordp_wins_in_small_groups,
        G20e=gossip_gains_6("sparse"),
        G20f=times_with_large_subgroups,
        G20g=lambda results: falls_off(
            ("S_Train", "S_CoordP"),
            [measured(results, name, subgroup=4) for name in ("s-train", "s-coordp")],
        ),
    ),
)
