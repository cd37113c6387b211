"""Sections 2.3 and 4: the claims about the four control schemes. Claims S3 to S6."""

from collections.abc import Callable, Iterable
from typing import Final

from antiphon.analysis.control_schemes import SCHEMES, Scheme, Traffic
from antiphon.studies.judging import MUCH, falls, is_near, judged_by, rises, unless
from antiphon.studies.model import Finding, Section
from antiphon.studies.results import Results
from antiphon.studies.sco.judging import HALF, SMALL, controls, delay, messages
from antiphon.studies.sco.schemes import (
    CHOICE_GROUPS,
    CHOICES,
    DEFERRAL_GROUPS,
    FIGURES,
    TABLES,
    Measure,
    run_of,
)
from antiphon.studies.sco.settings import DEFERRED, ROUND, traffic

STATED_CHOICES: Final = range(3, 9)
"""Section 4 compares C1 with D1 for these."""


def some(results: Results, groups: dict[float, Traffic] | dict[int, Traffic]) -> dict[float, Traffic]:
    """The same, but with at least one."""
    chosen = run_of(results, groups)
    if not chosen:
        raise LookupError("no group has runs of all schemes")
    return chosen


# S3

CONFIRMATIONS_ALONE: Final = (
    "the formula counts the confirmations alone, to the sender and all other destinations; the d copies of "
    "the message itself, which the text's 3d for C0 counts, come on top of it"
)


def costs(results: Results, scheme: Scheme, stated: Callable[[int], int], reading: str = "") -> Finding:
    """Messages by the number of destinations, compared with the paper's formula.

    By a reading, if one is given, the formula counts the control messages alone.
    """
    ours = {
        round(place): messages(results, scheme, group)
        for place, group in some(results, CHOICE_GROUPS).items()
    }
    exact = [is_near(value, stated(choice)) for choice, value in ours.items()]
    confirmations = [
        is_near(controls(results, scheme, CHOICE_GROUPS[choice]), stated(choice)) for choice in ours
    ]
    return Finding(
        ours="; ".join(f"d={choice}: {value:.2f} of {stated(choice)}" for choice, value in ours.items()),
        holds=all(exact) or (bool(reading) and all(confirmations)),
        condition="" if all(exact) else reading,
    )


def takes_rounds(results: Results, scheme: Scheme, rounds: int) -> Finding:
    """Network crossings until a destination fully accepts a message."""
    ours = {
        round(place): delay(results, scheme, group) / ROUND
        for place, group in some(results, CHOICE_GROUPS).items()
        if place > 1
    }
    return Finding(
        ours=f"{min(ours.values()):.2f} to {max(ours.values()):.2f} rounds, d={min(ours)} to {max(ours)}",
        holds=all(is_near(value, rounds) for value in ours.values()),
    )


# S4


def follows(
    results: Results, measure: Measure, is_so: Callable[[Iterable[float]], bool], unit: str
) -> Finding:
    """Whether a trend over k holds for C1 and for D1."""
    chosen = some(results, DEFERRAL_GROUPS)
    curves = {scheme: [measure(results, scheme, group) for group in chosen.values()] for scheme in DEFERRED}
    first, last = min(chosen), max(chosen)
    return Finding(
        ours="; ".join(
            f"{scheme} {values[0]:.2f} to {values[-1]:.2f} {unit} from k={first:g} to k={last:g}"
            for scheme, values in curves.items()
        ),
        holds=all(is_so(values) for values in curves.values()),
    )


def compares(
    results: Results,
    groups: dict[float, Traffic],
    measure: Measure,
    pair: tuple[Scheme, Scheme],
    holds: Callable[[float], bool],
    *,
    name: str,
    reason: str = "",
) -> Finding:
    """The ratio of two schemes at every point; the reason is given only if the claim fails."""
    over, under = pair
    ratios = {
        place: measure(results, over, group) / measure(results, under, group)
        for place, group in groups.items()
    }
    so = all(holds(value) for value in ratios.values())
    low, high = min(ratios, key=lambda place: ratios[place]), max(ratios, key=lambda place: ratios[place])
    return Finding(
        ours=f"{over}/{under} is {ratios[low]:.2f} ({name}={low:g}) to {ratios[high]:.2f} ({name}={high:g})",
        holds=so,
        reason="" if so else reason,
    )


TWO_OF_THREE: Final = (
    "Two rounds against three: no delay of distributed control can be below 2/3 of C0's, whatever k is."
)


DEFERRED_LONGER: Final = (
    "D0 defers nothing and D1 up to k units: with k = 4 a confirmation waits for half a round on average. "
    "S6c says with which k it is within 20%."
)


def is_small(ratio: float) -> bool:
    """The text's own measure of a small difference, in its summary: 'smaller than 20%'."""
    return ratio < 1.0 + SMALL


def over_k(
    measure: Measure, pair: tuple[Scheme, Scheme], holds: Callable[[float], bool], reason: str = ""
) -> Callable[[Results], Finding]:
    return lambda results: compares(
        results, some(results, DEFERRAL_GROUPS), measure, pair, holds, name="k", reason=reason
    )


def over_d(
    measure: Measure,
    pair: tuple[Scheme, Scheme],
    holds: Callable[[float], bool],
    reason: str = "",
    among: Iterable[int] = CHOICES,
) -> Callable[[Results], Finding]:
    wanted = {choice: CHOICE_GROUPS[choice] for choice in among}
    return lambda results: compares(
        results, some(results, wanted), measure, pair, holds, name="d", reason=reason
    )


# S6


def second_best(results: Results, measure: Measure, best: Scheme) -> Finding:
    """Second and close to the best, with the paper's k and d; and the k for which this holds."""
    values = {scheme: measure(results, scheme, traffic()) for scheme in SCHEMES}
    more = values["D1"] / values[best] - 1.0
    ranked = sorted(values, key=lambda scheme: values[scheme])
    close = [
        f"{place:g}"
        for place, group in some(results, DEFERRAL_GROUPS).items()
        if measure(results, "D1", group) < (1.0 + SMALL) * measure(results, best, group)
    ]
    holds = ranked[:2] == [best, "D1"] and more < SMALL
    return Finding(
        ours=f"{' < '.join(ranked)}; D1 is {more:.0%} above {best} with k=4",
        holds=holds,
        reason=unless(holds, f"It is within 20% with k = {', '.join(close) or 'none of those run'}."),
    )


def both_close(results: Results) -> Finding:
    """For which k both differences are below 20% at once."""
    chosen = some(results, DEFERRAL_GROUPS)
    both = [
        place
        for place, group in chosen.items()
        if messages(results, "D1", group) < (1.0 + SMALL) * messages(results, "C1", group)
        and delay(results, "D1", group) < (1.0 + SMALL) * delay(results, "D0", group)
    ]
    words = ", ".join(f"{place:g}" for place in both) or "none"
    return Finding(
        ours=f"both below 20% with k = {words}, of {', '.join(f'{place:g}' for place in chosen)}",
        holds=bool(both),
    )


ROUNDS_SECTION: Final = Section(
    title="2.3 Control schemes",
    text="The cost until all members know that all hold a message, without piggy-backing or deferral.",
    claims=judged_by(
        "sco",
        S3a=lambda results: costs(results, "C0", lambda choice: 3 * choice),
        S3b=lambda results: takes_rounds(results, "C0", 3),
        S3c=lambda results: costs(results, "D0", lambda choice: choice**2, CONFIRMATIONS_ALONE),
        S3d=lambda results: takes_rounds(results, "D0", 2),
    ),
)

SECTION: Final = Section(
    title="4 Evaluation",
    text="C0 and C1: the sender collects answers and announces. D0 and D1: every member reports to every "
    "other. C1 and D1 piggy-back confirmations on data, and send one alone only k units after it is due. D1 "
    "is SCO. All four are run and compared with closed forms derived from the paper's assumptions, since the "
    "paper has only curves.",
    figures=FIGURES,
    tables=TABLES,
    claims=judged_by(
        "sco",
        S4a=lambda results: follows(results, controls, falls, "a message"),
        S4b=lambda results: follows(results, delay, rises, "units"),
        S4c=over_k(delay, ("D1", "D0"), is_small, DEFERRED_LONGER),
        S4d=over_k(delay, ("C0", "D1"), lambda value: value >= MUCH, TWO_OF_THREE),
        S4e=over_k(
            delay,
            ("C1", "D1"),
            lambda value: is_near(value, MUCH),
            "C1 defers twice in three rounds, D1 once in two: a ratio of about one and a half.",
        ),
        S4f=over_k(messages, ("C1", "D1"), lambda value: value < 1.0),
        S5a=over_d(messages, ("D1", "C0"), lambda value: value < 1.0),
        S5b=over_d(
            messages,
            ("D1", "D0"),
            lambda value: value < 1.0,
            "With one destination D0 only informs the sender. SCO's members also inform all others that a "
            "message was not for them: otherwise none could know that nothing precedes its own.",
        ),
        S5c=over_d(
            messages,
            ("C1", "D1"),
            lambda value: 1.0 - SMALL < value < 1.0,
            among=STATED_CHOICES,
        ),
        S5d=over_d(delay, ("D1", "C0"), lambda value: value <= HALF, TWO_OF_THREE, CHOICES[1:]),
        S5e=over_d(
            delay,
            ("D1", "C1"),
            lambda value: value <= HALF,
            "C1 defers twice in three rounds, D1 once in two: a ratio of about two thirds.",
            CHOICES[1:],
        ),
        S5f=over_d(delay, ("D1", "D0"), is_small, DEFERRED_LONGER),
        S6a=lambda results: second_best(results, messages, "C1"),
        S6b=lambda results: second_best(results, delay, "D0"),
        S6c=both_close,
    ),
)
