"""Sections 5.6 and 5.7: one sender instead of 50; figures 5.34 to 5.38, appendices C and D, claim G21."""

from typing import Any, Final

from antiphon.studies.claims import Judge
from antiphon.studies.guo.comparisons import HOPS, MEAN_QUEUE, MOST_QUEUE, TPR, Setting
from antiphon.studies.guo.judging import SLIGHTLY, by_size, ratios, span
from antiphon.studies.guo.settings import NAMES, SENDERS
from antiphon.studies.judging import MUCH, Way, judged_by, under
from antiphon.studies.model import Claim, Figure, Finding, Panel, Section
from antiphon.studies.results import Results

DENSE: Final = Setting("dense", 1)
SPARSE: Final = Setting("sparse", 1)
GOSSIPS: Final = ("gossip", "s-gossip")
QUEUEING: Final = ("gossip", "s-gossip", "coordp", "fulldist")
SAME: Final = 0.001
QUEUES_SHRINK: Final = (
    " A shorter message leaves its link sooner, and the queue before the link is what we record; the text "
    "argues with those that wait for the router."
)


def both_senders(id_: str, what: str, axes: dict[str, Any], protocols: tuple[str, ...]) -> Figure:
    """One panel with 50 senders, one with one (figures 5.34 to 5.38)."""
    titles = {50: "with 50 senders", 1: "with one sender"}
    return Figure(
        id=id_,
        title=f"{what}: 50 senders and one, dense groups",
        caption="The messages are 196 bytes shorter with one sender, and Gossip's step is that of table 5.1.",
        panels=[
            Panel(title=titles[senders], curves=Setting("dense", senders).curves(*protocols), **axes)
            for senders in SENDERS
        ],
    )


DENSE_FIGURES: Final = (
    both_senders("5.34", "Messages on all hops", HOPS, GOSSIPS),
    both_senders("5.35", "Mean queue", MEAN_QUEUE, tuple(NAMES)),
    both_senders("5.36", "Longest queue", MOST_QUEUE, tuple(NAMES)),
    both_senders("5.37", "Time per round, basic protocols", TPR, ("coordp", "fulldist", "train", "gossip")),
    both_senders("5.38", "Time per round, structured protocols", TPR, ("s-coordp", "s-train", "s-gossip")),
    DENSE.basic_messages("C.1"),
    Figure(
        id="C.2",
        title=f"Messages on all hops: structured protocols, {DENSE.name}",
        caption="Sub-groups of 4 are the network's own tree; those of 50, and S_Gossip's local groups, "
        "follow its depth-first walk.",
        panels=[
            Panel(title="sub-group size 4", curves=DENSE.curves("s-coordp", "s-train"), **HOPS),
            Panel(
                title="sub-group size 50",
                curves=[*DENSE.large_subgroups("s-coordp", "s-train"), *DENSE.curves("s-gossip")],
                **HOPS,
            ),
        ],
    ),
    *DENSE.pairs(("C.3", "C.4"), "Messages on all hops", HOPS),
    DENSE.dense_queues("C.5"),
    DENSE.both_times("C.6"),
    *DENSE.pairs(("C.7", "C.8"), "Time per round", TPR),
)

SPARSE_FIGURES: Final = (
    SPARSE.basic_messages("D.1"),
    SPARSE.structured_messages("D.2"),
    *SPARSE.pairs(("D.3", "D.4"), "Messages on all hops", HOPS),
    SPARSE.basic_queues("D.5", MOST_QUEUE),
    SPARSE.structured_queues("D.6", MOST_QUEUE),
    SPARSE.basic_queues("D.7", MEAN_QUEUE),
    SPARSE.structured_queues("D.8", MEAN_QUEUE),
    SPARSE.basic_times("D.9"),
    SPARSE.structured_times("D.10"),
    *SPARSE.pairs(("D.11", "D.12"), "Time per round", TPR),
)


def factors(results: Results, protocol: str, density: str, metric: str) -> dict[int, float]:
    """The ratio of a metric with one sender to that with 50."""
    many = by_size(results, protocol, density, 50, metric)
    return ratios(
        by_size(results, protocol, density, 1, metric), {n: value or 1e-9 for n, value in many.items()}
    )


def in_words(found: dict[str, dict[int, float]]) -> str:
    return ", ".join(f"{NAMES[name]} {span(values.values())}" for name, values in found.items())


def slightly_more(
    results: Results, protocols: tuple[str, ...], density: str, metric: str, why: str = ""
) -> Finding:
    """Slightly more with one sender at every size: more, and less than half more."""
    found = {name: factors(results, name, density, metric) for name in protocols}
    outside = [
        f"{NAMES[name]} {factor:.2f} at n={size}"
        for name, values in found.items()
        for size, factor in values.items()
        if not 1 < factor < SLIGHTLY
    ]
    shown = "; ".join(outside[:4]) + (f" and {len(outside) - 4} more" if len(outside) > 4 else "")
    return Finding(
        ours=f"times as much with one sender: {in_words(found)}",
        holds=not outside,
        reason=f"Not slightly more: {shown}.{why}" if outside else "",
    )


def same_messages(results: Results, density: str, metric: str) -> Finding:
    protocols = [name for name in NAMES if name not in GOSSIPS]
    found = {name: factors(results, name, density, metric) for name in protocols}
    different = [
        NAMES[name]
        for name, values in found.items()
        if any(abs(factor - 1) > SAME for factor in values.values())
    ]
    return Finding(
        ours=in_words(found),
        holds=not different,
        reason=f"Not the same: {', '.join(different)}." if different else "",
    )


def much_faster(results: Results, density: str) -> Finding:
    found = {name: factors(results, name, density, "tpr_s") for name in NAMES}
    slow = [NAMES[name] for name, values in found.items() if max(values.values()) > 1 / MUCH]
    return Finding(
        ours=f"of the time with 50 senders: {in_words(found)}",
        holds=not slow,
        reason=f"Not twice as fast everywhere: {', '.join(slow)}." if slow else "",
    )


def same_orderings(results: Results, density: str) -> Finding:
    """At n=500 the protocols' order by time per round is the same with one sender as with 50."""
    orders = {}
    for senders in SENDERS:
        times = {name: by_size(results, name, density, senders)[500] for name in NAMES}
        orders[senders] = sorted(NAMES, key=lambda name: -times[name])
    words = " > ".join(NAMES[name] for name in orders[1])
    many = " > ".join(NAMES[name] for name in orders[50])
    return Finding(
        ours=words, holds=orders[1] == orders[50], reason="" if words == many else f"With 50: {many}."
    )


def _claims(density: str, letters: str) -> list[Claim]:
    judges: tuple[Judge, ...] = (
        lambda results: slightly_more(results, GOSSIPS, density, "hop_messages"),
        under(
            Way(
                "until the first",
                "messages count until the first member has the array",
                lambda results: same_messages(results, density, "hop_messages"),
            ),
            Way(
                "whole round",
                "messages count over the whole round",
                lambda results: same_messages(results, density, "hop_messages_last"),
            ),
        ),
        lambda results: slightly_more(results, QUEUEING, density, "queue_mean", QUEUES_SHRINK),
        lambda results: much_faster(results, density),
        lambda results: same_orderings(results, density),
    )
    return judged_by("guo", **{f"G21{letter}": judge for letter, judge in zip(letters, judges, strict=True)})


DENSE_SECTION: Final = Section(
    title="5.6 Dense groups, one sender",
    text="The same with one sender: messages of 36 bytes instead of 232 (Gossip's 40 and a bit for each "
    "member).",
    figures=DENSE_FIGURES,
    claims=_claims("dense", "abcde"),
)

SPARSE_SECTION: Final = Section(
    title="5.7 Sparse groups, one sender",
    text="Sparse groups with one sender, as in 5.5.",
    figures=SPARSE_FIGURES,
    claims=_claims("sparse", "fghij"),
)
