"""Section 5.4: all protocols in dense groups with 50 senders; figures 5.12 to 5.21, table 5.2, claims G13 to
G17.
"""

from functools import partial
from typing import Any, Final

from antiphon.studies.claims import Judge
from antiphon.studies.formatting import number
from antiphon.studies.growth import best_law
from antiphon.studies.guo.comparisons import HOPS, TPR, Setting
from antiphon.studies.guo.judging import (
    NOTHING_WAITS,
    both,
    by_fills,
    by_queues,
    by_size,
    crossing,
    ends,
    falls_off,
    grows_as,
    ratios,
    span,
)
from antiphon.studies.guo.settings import (
    HUES,
    LOCAL_ENDS,
    LOCAL_GROUP,
    NAMES,
    NARROW_SPACING_S,
    STRUCTURED,
    points,
    table_step,
)
from antiphon.studies.judging import Way, is_near, judged_by, rises, under, unless
from antiphon.studies.model import Curve, Figure, Finding, Panel, Section, Table
from antiphon.studies.results import Results

HERE: Final = Setting("dense", 50)
STRUCTURES: Final = {"coordp": "s-coordp", "fulldist": "s-coordp", "train": "s-train", "gossip": "s-gossip"}
LAWS: Final = {
    "coordp": "n log n",
    "fulldist": "n^2",
    "train": "n",
    "gossip": "n log n",
    "s-coordp": "n",
    "s-train": "n",
    "s-gossip": "n",
}
"""Table 5.2; n log 50 is n."""
ALMOST_SIX: Final = (5.0, 6.3)

measured = partial(by_size, density="dense", senders=50)


def scattered(results: Results) -> dict[int, float]:
    return by_size(results, "fulldist", "dense", 50, scattered=True)


SCATTERED: Final = Figure(
    id="5.18",
    title="Time per round: Gossip and FullDist with scattered multicasts, dense groups with 50 senders",
    caption="Each member multicasts at a moment drawn from n times the mean spacing, 0.02 s at n = 50 and in "
    "proportion to n beyond.",
    panels=[
        Panel(
            curves=[
                *HERE.curves("gossip"),
                Curve(
                    name="scattered FullDist",
                    where=points("fulldist", "dense", 50, scattered=True),
                    hue=HUES["fulldist"],
                ),
            ],
            spread="interval",
            **TPR,
        )
    ],
)

FIGURES: Final = (
    HERE.basic_messages("5.12"),
    HERE.structured_messages("5.13"),
    *HERE.pairs(("5.14", "5.15"), "Messages on all hops", HOPS),
    HERE.dense_queues("5.16"),
    HERE.basic_times("5.17"),
    SCATTERED,
    HERE.structured_times("5.19"),
    *HERE.pairs(("5.20", "5.21"), "Time per round", TPR),
)


# Table 5.2 and the queues


def law_rows(results: Results) -> list[list[str]]:
    rows = []
    for protocol, theirs in LAWS.items():
        values = measured(results, protocol, metric="hop_messages")
        law, misfit = best_law(list(values), list(values.values()))
        text = "n log 50" if protocol == "s-gossip" else theirs
        rows.append([NAMES[protocol], text, law, f"{misfit:.1%}", *(number(values[size]) for size in values)])
    return rows


def queue_rows(results: Results) -> list[list[str]]:
    names = ("queue_mean", "queue_max", "queue_node_mean", "queue_node_max")
    rows = []
    for protocol in NAMES:
        for size in (100, 500):
            values = [measured(results, protocol, metric=name).get(size) for name in names]
            rows.append(
                [NAMES[protocol], str(size), *("–" if value is None else f"{value:.3g}" for value in values)]
            )
    return rows


# Judges


def gossip_is_a_multiple_of_coordp(results: Results) -> Finding:
    factors = ratios(
        measured(results, "gossip", metric="hop_messages"), measured(results, "coordp", metric="hop_messages")
    )
    return Finding(ours=f"k = {span(factors.values())}", holds=min(factors.values()) > 1)


def a_structure_saves_messages(results: Results) -> Finding:
    return both(
        *(
            (
                NAMES[basic],
                falls_off(
                    (NAMES[basic], NAMES[structured]),
                    [measured(results, one, metric="hop_messages") for one in (basic, structured)],
                ),
            )
            for basic, structured in STRUCTURES.items()
        )
    )


def longest_queues(results: Results, metric: str) -> Finding:
    curves = {name: measured(results, name, metric=metric) for name in ("fulldist", "coordp")}
    others = [name for name in NAMES if name not in curves]
    largest = {
        size: max(measured(results, name, metric=metric)[size] for name in others)
        for size in curves["coordp"]
    }
    growing = all(rises(curve.values()) for curve in curves.values())
    order = falls_off(("FullDist", "CoordP", "the others"), [*curves.values(), largest])
    return Finding(order.ours, bool(order.holds) and growing, reason=order.reason)


def gossip_queue(results: Results, metric: str) -> Finding:
    values = measured(results, "gossip", metric=metric)
    flat = [value for size, value in values.items() if size >= 100]
    return Finding(
        ours=", ".join(f"n={size}: {value:.2f}" for size, value in values.items()),
        holds=all(is_near(value, 4.0) for value in flat),
    )


def local_gossip_queue(results: Results, metric: str) -> Finding:
    values = measured(results, "s-gossip", metric=metric)
    return Finding(ours=span(values.values()), holds=all(is_near(value, 0.5) for value in values.values()))


def nothing_waits(results: Results, metric: str) -> Finding:
    values = {
        name: max(measured(results, name, metric=metric).values())
        for name in ("train", "s-coordp", "s-train")
    }
    words = ", ".join(f"{NAMES[name]} at most {value:.2g}" for name, value in values.items())
    return Finding(ours=words, holds=max(values.values()) <= NOTHING_WAITS)


def buffers_of_fulldist(metric: str, fill: str) -> Judge:
    def judge(results: Results) -> Finding:
        most = measured(results, "fulldist", metric=metric, fill=fill)[500]
        return Finding(ours=f"{most:.0f}", holds=is_near(most, 180))

    return judge


def train_is_slowest(results: Results) -> Finding:
    others = [measured(results, name) for name in ("coordp", "fulldist", "gossip")]
    train = measured(results, "train")
    most = {size: max(curve[size] for curve in others) for size in train}
    return falls_off(("Train", "the slowest other"), [train, most])


def coordp_is_like_fulldists_smallest(results: Results) -> Finding:
    factors = ratios(measured(results, "coordp"), measured(results, "fulldist"))
    return Finding(
        ours=f"CoordP takes {span(factors.values())} times FullDist's smallest",
        holds=all(is_near(factor, 1.0) for factor in factors.values()),
    )


def fulldists_largest(results: Results, fill: str) -> Finding:
    factors = ratios(
        measured(results, "fulldist", metric="tpr_last_s", fill=fill),
        measured(results, "fulldist", fill=fill),
    )
    return Finding(
        ours=f"{span(factors.values())} times",
        holds=all(is_near(factor, 2.0) for factor in factors.values()),
        reason=unless(
            is_near(factors[500], 2.0),
            "Nearest to twice where S_CoordP's gain is farthest from 25 (G17a): the table of trees.",
        ),
    )


def times_grow(results: Results) -> Finding:
    curves = {name: measured(results, name) for name in ("coordp", "fulldist")}
    return both(
        *((NAMES[name], Finding(ends(curve, " s"), rises(curve.values()))) for name, curve in curves.items())
    )


def scattered_is_worse(results: Results, other: dict[int, float]) -> Finding:
    gossip = measured(results, "gossip")
    worse = {size: other[size] > gossip[size] for size in sorted(gossip) if size in other}
    words = ", ".join(f"n={size}: {other[size]:.1f} against {gossip[size]:.1f} s" for size in worse)
    where = crossing(other, gossip)
    words += f"; the curves cross near n={where:.0f}" if where else "; the curves do not cross"
    return Finding(ours=words, holds=all(is_worse == (size > 200) for size, is_worse in worse.items()))


def gain(results: Results, basic: str, structured: str, start: str = "counted", fill: str = "even") -> float:
    """How many times as fast the structured protocol is at n=500."""
    starts = {} if basic == "train" else {"start": start}
    upper = by_size(results, basic, "dense", 50, fill=fill, **starts)
    return upper[500] / by_size(results, structured, "dense", 50, fill=fill, start=start)[500]


def coordp_gains_25(start: str, fill: str) -> Judge:
    def judge(results: Results) -> Finding:
        factor = gain(results, "coordp", "s-coordp", start, fill)
        return Finding(ours=f"{factor:.1f} times", holds=is_near(factor, 25.0))

    return judge


def train_gains_66(start: str) -> Judge:
    def judge(results: Results) -> Finding:
        factor = gain(results, "train", "s-train", start)
        return Finding(ours=f"{factor:.1f} times", holds=factor >= 66.0)

    return judge


STARTS: Final = (("counted", "START takes time"), ("free", "START takes no time"))


def gossip_gains_6(density: str) -> Judge:
    """With the step that was fitted to this claim, which does not count, and with table 5.1's for 50."""

    def way(words: str, is_fitted: bool, **changes: Any) -> Way:
        def judge(results: Results) -> Finding:
            upper = by_size(results, "gossip", density, 50)[500]
            factor = upper / by_size(results, "s-gossip", density, 50, **changes)[500]
            return Finding(ours=f"{factor:.2f} times", holds=ALMOST_SIX[0] <= factor <= ALMOST_SIX[1])

        return Way(words, f"local rounds end as '{words}' says", judge, is_fitted)

    return under(
        way("fitted step", True),
        *(
            way(f"{local}, {cost}", False, step=table_step, local=local, local_result=cost)
            for local, cost in LOCAL_ENDS
        ),
    )


def tree_rows(results: Results) -> list[list[str]]:
    """For each tree: what G15c and G17a say of it."""
    rows = []
    for fill, words in (("even", "spread evenly"), ("left", "from the left")):
        largest = fulldists_largest(results, fill)
        gains = [(gain(results, "coordp", "s-coordp", start, fill), start) for start, _ in STARTS]
        yes = {True: "yes", False: "no"}
        shown = [cell for factor, _ in gains for cell in (f"{factor:.1f}", yes[is_near(factor, 25.0)])]
        rows.append([words, largest.ours, yes[bool(largest.holds)], *shown])
    return rows


TEXT: Final = (
    "A member at every node of a balanced tree. Gossip and S_Gossip have 64-message buffers and lose two "
    "gossips a step; the others lose nothing. The logical trees of S_CoordP and S_Train match the network, "
    "S_Gossip has local groups of 50. Its step of 1.5 s was fitted to the text's 'almost 6 times better'."
)
TABLES: Final = (
    Table(
        title="Table 5.2: messages on all hops",
        caption="The paper's law, the law that fits best in proportion, its mean misfit, and the counts at n "
        "= 50, 100, 200, 300, 400 and 500.",
        columns=("protocol", "the text's", "ours", "off by", "50", "100", "200", "300", "400", "500"),
        compute=law_rows,
    ),
    Table(
        title="Queues: two readings",
        caption="The output link's queue, and the sum over a node's links, at each enqueue.",
        columns=("protocol", "n", "link: mean", "link: most", "node: mean", "node: most"),
        compute=queue_rows,
    ),
    Table(
        title="Trees: G15c and G17a",
        caption="How the tree's last level hangs; how many times FullDist's smallest time its largest is, "
        "which should be 2 at all sizes; how many times as fast as CoordP S_CoordP is at n=500, which should "
        "be 25. These are the most even and the least even of the text's trees. The less even, the nearer is "
        "the one to 2, and the farther the other from 25: none has both.",
        columns=("last level", "largest", "twice", "gain, START counted", "25", "START free", "25"),
        compute=tree_rows,
    ),
)
SECTION: Final = Section(
    title="5.4 Dense groups, 50 senders",
    text=TEXT,
    figures=FIGURES,
    tables=TABLES,
    claims=judged_by(
        "guo",
        **{
            f"G13{letter}": partial(grows_as, law=law, protocol=protocol)
            for letter, (protocol, law) in zip("abcdefg", LAWS.items(), strict=True)
            if letter != "g"
        },
        G13g=under(
            Way("all sizes", "all sizes count", partial(grows_as, law="n", protocol="s-gossip")),
            Way(
                "above n=50",
                "a group of 50, which has no controllers' gossip, does not count",
                partial(grows_as, law="n", protocol="s-gossip", above=LOCAL_GROUP),
            ),
        ),
        G13h=gossip_is_a_multiple_of_coordp,
        G13i=a_structure_saves_messages,
        G14a=by_queues(longest_queues),
        G14b=by_queues(gossip_queue),
        G14c=by_queues(local_gossip_queue),
        G14d=by_queues(nothing_waits),
        G14e=under(
            Way(
                "a link's queue",
                "a queue is an output link's and the tree's last level is spread evenly",
                buffers_of_fulldist("queue_max", "even"),
            ),
            Way(
                "from the left",
                "a queue is an output link's and the last level is filled from the left",
                buffers_of_fulldist("queue_max", "left"),
            ),
            Way(
                "a node's sum",
                "a queue is the sum over a node's links",
                buffers_of_fulldist("queue_node_max", "even"),
            ),
        ),
        G15a=train_is_slowest,
        G15b=coordp_is_like_fulldists_smallest,
        G15c=by_fills(fulldists_largest),
        G15d=times_grow,
        G16=under(
            Way(
                "within n d",
                "the rows are d apart, all within n times d",
                lambda results: scattered_is_worse(results, scattered(results)),
            ),
            Way(
                "within d",
                "25 rows leave in 10 ms, all within d",
                lambda results: scattered_is_worse(
                    results, measured(results, "fulldist", scatter=NARROW_SPACING_S)
                ),
            ),
        ),
        G17a=under(
            *(Way(words, words, coordp_gains_25(start, "even")) for start, words in STARTS),
            Way(
                "from the left",
                "START takes time and the tree's last level is filled from the left",
                coordp_gains_25("counted", "left"),
            ),
        ),
        G17b=under(*(Way(words, words, train_gains_66(start)) for start, words in STARTS)),
        G17c=gossip_gains_6("dense"),
        G17d=lambda results: falls_off(
            ("S_Train", "S_CoordP"), [measured(results, name) for name in ("s-train", "s-coordp")]
        ),
    ),
)


# The part of it that takes a second: what is not random, and not Gossip

DETERMINISTIC: Final = tuple(name for name in NAMES if name not in ("gossip", "s-gossip"))
SMALL_SECTION: Final = Section(
    title="5.4 Dense groups, 50 senders, without gossip",
    text="A member at every node of a balanced tree, nothing lost: five of the seven protocols.",
    figures=(
        Figure(
            id="5.12-5.13",
            title="Messages on all hops, dense groups with 50 senders",
            caption="Transmissions started on any link in one round.",
            panels=[
                Panel(title="all five", curves=HERE.curves(*DETERMINISTIC), **HOPS),
                Panel(title="structured", curves=HERE.curves(*STRUCTURED[:2]), **HOPS),
            ],
        ),
        Figure(
            id="5.17-5.19",
            title="Time per round, dense groups with 50 senders",
            caption="From the trigger to the first member that has the stability array.",
            panels=[
                Panel(title="all five", curves=HERE.curves(*DETERMINISTIC), **TPR),
                Panel(title="structured", curves=HERE.curves(*STRUCTURED[:2]), **TPR),
            ],
        ),
    ),
    claims=[
        claim
        for claim in SECTION.claims
        if claim.id
        in ("G13a", "G13b", "G13c", "G13e", "G13f", "G15b", "G15c", "G15d", "G17a", "G17b", "G17d")
    ],
)
