"""Section 4.2.5: the Markov analysis of Gossip; figures 4.7 to 4.10, claims G1 and G2. Nothing here is
simulated.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Final

from antiphon.analysis.epidemic import Quality, qualities
from antiphon.studies.claims import Judge
from antiphon.studies.growth import best_fit_with_offset, best_law
from antiphon.studies.guo.judging import span
from antiphon.studies.guo.settings import SIZES
from antiphon.studies.judging import Way, is_near, judged_by, under, unless
from antiphon.studies.model import Figure, Finding, Panel, Section, Series
from antiphon.studies.results import Results

SUBSETS: Final = (1, 3)
BOUNDS: Final = tuple(10.0**-power for power in range(1, 11))
"""P_incomplete from 0.1 to 1e-10, for figures 4.9 and 4.10."""
SHOWN: Final = (1e-3, 1e-6, 1e-9)
FEW_STEPS: Final = 3.0
"""'A few' steps more, for a tenth of the probability."""
USUAL_BOUNDS: Final = (1e-3, 1e-6)
RATIO: Final = 1.55


@lru_cache(maxsize=1)
def computed() -> tuple[Quality, ...]:
    return tuple(qualities(SIZES, SUBSETS, BOUNDS))


def select(subset: int, *, members: int | None = None, incomplete: float | None = None) -> list[Quality]:
    return [
        one
        for one in computed()
        if one.subset == subset and members in (None, one.members) and incomplete in (None, one.incomplete)
    ]


def over_size(subset: int, value: Callable[[Quality], float]) -> Callable[[Results], list[Series]]:
    """Figures 4.7 and 4.8: a line for each bound."""

    def lines(_: Results) -> list[Series]:
        return [
            Series(
                name=f"P = {bound:.0e}",
                x=[one.members for one in select(subset, incomplete=bound)],
                y=[value(one) for one in select(subset, incomplete=bound)],
            )
            for bound in SHOWN
        ]

    return lines


def over_quality(subset: int, value: Callable[[Quality], float]) -> Callable[[Results], list[Series]]:
    """Figures 4.9 and 4.10: a line for each group size."""

    def lines(_: Results) -> list[Series]:
        return [
            Series(
                name=f"n = {size}",
                x=[one.incomplete for one in select(subset, members=size)],
                y=[value(one) for one in select(subset, members=size)],
            )
            for size in SIZES
        ]

    return lines


def micro_steps(one: Quality) -> float:
    return one.micro_steps


def steps(one: Quality) -> float:
    return one.steps


def by_size(id_: str, title: str, value: Callable[[Quality], float], unit: str, log_x: bool) -> Figure:
    return Figure(
        id=id_,
        title=title,
        caption="Needed so that the probability of an incomplete detection is at most P.",
        panels=[
            Panel(
                title=f"subset size {subset}",
                x_label="group size n",
                y_label=unit,
                compute=over_size(subset, value),
                log_x=log_x,
            )
            for subset in SUBSETS
        ],
    )


def by_quality(id_: str, title: str, value: Callable[[Quality], float], unit: str) -> Figure:
    return Figure(
        id=id_,
        title=title,
        caption="The cost of quality: a smaller probability of an incomplete detection is to the left.",
        panels=[
            Panel(
                title=f"subset size {subset}",
                x_label="P, probability of an incomplete detection",
                y_label=unit,
                compute=over_quality(subset, value),
                log_x=True,
            )
            for subset in SUBSETS
        ],
    )


FIGURES: Final = (
    by_size("4.7", "Micro-steps over the group size", micro_steps, "micro-steps", log_x=False),
    by_size("4.8", "Steps over the group size", steps, "steps", log_x=True),
    by_quality("4.9", "Micro-steps over the quality", micro_steps, "micro-steps"),
    by_quality("4.10", "Steps over the quality", steps, "steps"),
)


def micro_steps_grow_as_n_log_n(_: Results) -> Finding:
    found: dict[str, float] = {}
    for subset in SUBSETS:
        for bound in SHOWN:
            ones = select(subset, incomplete=bound)
            # The steps have a fixed part, so the law is sought in the steps and carries over to n times them.
            fit = best_fit_with_offset([one.members for one in ones], [one.steps for one in ones])
            found[f"{fit.law}"] = max(found.get(fit.law, 0.0), fit.misfit)
    proportional = {
        best_law([one.members for one in ones], [one.micro_steps for one in ones])[0]
        for ones in (select(subset, incomplete=bound) for subset in SUBSETS for bound in SHOWN)
    }
    return Finding(
        ours="micro-steps are n (a + b log n); without a, the best law is "
        f"{' or '.join(sorted(proportional))}",
        interval=f"off by at most {max(found.values()):.2%}",
        holds=set(found) == {"log n"},
        reason=unless(
            proportional == {"n log n"},
            "The fixed part a is large: of laws without one, a smaller power also fits in this range.",
        ),
    )


def steps_grow_as_log_n(_: Results) -> Finding:
    fits = [
        best_fit_with_offset([one.members for one in ones], [one.steps for one in ones])
        for ones in (select(subset, incomplete=bound) for subset in SUBSETS for bound in SHOWN)
    ]
    return Finding(
        ours=f"steps = a + b log n with b {span(fit.factor for fit in fits)}",
        interval=f"off by at most {max(fit.misfit for fit in fits):.2%}",
        holds={fit.law for fit in fits} == {"log n"},
    )


def pairs() -> list[tuple[Quality, Quality]]:
    """The same group and bound with subset size 1 and 3."""
    first, third = (
        [one for one in computed() if one.subset == subset and one.incomplete in SHOWN] for subset in SUBSETS
    )
    return list(zip(first, third, strict=True))


def subset_three_saves_55_percent(_: Results) -> Finding:
    cuts = [1 - third.steps / first.steps for first, third in pairs()]
    return Finding(
        ours=f"{min(cuts):.0%} to {max(cuts):.0%} fewer steps",
        holds=all(is_near(cut, 0.55) for cut in cuts),
    )


def subset_three_is_faster_by_55_percent(bounds: tuple[float, ...]) -> Judge:
    """The section goes on with 'gossip to one member 55% faster': a ratio of speeds."""

    def judge(_: Results) -> Finding:
        found = [(first, third) for first, third in pairs() if first.incomplete in bounds]
        factors = [first.steps / third.steps for first, third in found]
        return Finding(
            ours=f"{span(factors)} times as fast",
            holds=all(is_near(factor, RATIO) for factor in factors),
        )

    return judge


def quality_costs_few_steps(_: Results) -> Finding:
    extra = [
        after.steps - before.steps
        for subset in SUBSETS
        for size in SIZES
        for before, after in pairwise(select(subset, members=size))
    ]
    return Finding(
        ours=f"{span(extra)} more steps for a tenth of the probability",
        holds=max(extra) <= FEW_STEPS,
    )


SECTION: Final = Section(
    title="4.2.5 Analysis",
    text="The steps that gossip needs until the probability that any member lacks any other's counts falls "
    "below a bound, by iterating the Markov chain of the section. It is an upper bound: the protocol ends "
    "when the first member knows everything, not the last.",
    figures=FIGURES,
    claims=judged_by(
        "guo",
        G1a=micro_steps_grow_as_n_log_n,
        G1b=steps_grow_as_log_n,
        G2a=under(
            Way("a cut", "55% are a share of the steps", subset_three_saves_55_percent),
            Way("a ratio", "55% are a ratio", subset_three_is_faster_by_55_percent(SHOWN)),
            Way(
                "a ratio, P from 1e-6",
                "55% are a ratio, for probabilities of 1e-3 and 1e-6",
                subset_three_is_faster_by_55_percent(USUAL_BOUNDS),
            ),
        ),
        G2b=quality_costs_few_steps,
    ),
)
