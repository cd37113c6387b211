"""Sections 2.3 and 4: what is stated of the four control schemes. Claims S3 to S6."""

from collections.abc import Callable, Iterable
from typing import Final

from antiphon.analysis.control_schemes import SCHEMES, Scheme, Traffic
from antiphon.studies.model import Claim, Finding, Results, Section
from antiphon.studies.sco.judging import HALF, MUCH, SMALL, controls, delay, falls, is_near, messages, rises
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
    """The same where there must be any."""
    chosen = run_of(results, groups)
    if not chosen:
        raise LookupError("no group has runs of all schemes")
    return chosen


# S3


def costs(results: Results, scheme: Scheme, stated: Callable[[int], int]) -> Finding:
    """Messages by the number of destinations, against the text's formula."""
    ours = {
        round(place): messages(results, scheme, group)
        for place, group in some(results, CHOICE_GROUPS).items()
    }
    confirmations = [
        is_near(controls(results, scheme, CHOICE_GROUPS[choice]), stated(choice)) for choice in ours
    ]
    holds = all(is_near(value, stated(choice)) for choice, value in ours.items())
    return Finding(
        ours="; ".join(f"d={choice}: {value:.2f} of {stated(choice)}" for choice, value in ours.items()),
        holds=holds,
        reason="The formula counts the confirmations alone, to the sender and all other destinations; the d "
        "copies of the message come on top of it."
        if not holds and all(confirmations)
        else "",
    )


def takes_rounds(results: Results, scheme: Scheme, rounds: int) -> Finding:
    """How often across the network until a destination fully accepts it."""
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
    """Whether a trend over k holds of C1 and of D1."""
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
    """One scheme over another at every point; the reason stands only where it does not hold."""
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
    """Second and close to the best, with the text's k and d; and with which k it is."""
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
        reason="" if holds else f"It is within 20% with k = {', '.join(close) or 'none of those run'}.",
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
    text="What it takes until all know that all have a message, without piggy-backing or deferral.",
    claims=(
        Claim(
            id="S3a",
            where="2.3, 4, figure 3 (1)",
            statement="Non-distributed control transmits 3d messages for each message.",
            theirs="3d",
            judge=lambda results: costs(results, "C0", lambda choice: 3 * choice),
        ),
        Claim(
            id="S3b",
            where="2.3, 4, figure 3 (1)",
            statement="It takes three rounds.",
            theirs="3",
            judge=lambda results: takes_rounds(results, "C0", 3),
        ),
        Claim(
            id="S3c",
            where="2.3, 4, figure 3 (2)",
            statement="Distributed control transmits d² messages for each message.",
            theirs="d²",
            judge=lambda results: costs(results, "D0", lambda choice: choice**2),
        ),
        Claim(
            id="S3d",
            where="2.3, 4, figure 3 (2)",
            statement="It takes two rounds.",
            theirs="2",
            judge=lambda results: takes_rounds(results, "D0", 2),
        ),
    ),
)

SECTION: Final = Section(
    title="4 Evaluation",
    text="C0 and C1: the sender collects answers and announces. D0 and D1: everyone tells everyone. C1 and "
    "D1 let confirmations ride on data, and send one alone only k units after it came to be owed. D1 is SCO. "
    "All four are run; beside them stand closed forms derived from the text's assumptions, since the text "
    "has only curves.",
    figures=FIGURES,
    tables=TABLES,
    claims=(
        Claim(
            id="S4a",
            where="4, figure 5",
            statement="The longer k is, the fewer control messages are transmitted.",
            theirs="fewer",
            judge=lambda results: follows(results, controls, falls, "a message"),
        ),
        Claim(
            id="S4b",
            where="4, figure 6",
            statement="The longer k is, the longer the delay.",
            theirs="longer",
            judge=lambda results: follows(results, delay, rises, "units"),
        ),
        Claim(
            id="S4c",
            where="4, figure 6",
            statement="D1 does not take much longer than D0.",
            theirs="not much longer",
            judge=over_k(delay, ("D1", "D0"), lambda value: value < MUCH),
        ),
        Claim(
            id="S4d",
            where="4, figure 6",
            statement="D1's delay is much smaller than C0's.",
            theirs="much smaller",
            judge=over_k(delay, ("C0", "D1"), lambda value: value >= MUCH, TWO_OF_THREE),
        ),
        Claim(
            id="S4e",
            where="4, figure 6",
            statement="D1's delay is much smaller than C1's, which is about twice as long.",
            theirs="about 2",
            judge=over_k(
                delay,
                ("C1", "D1"),
                lambda value: is_near(value, MUCH),
                "C1 defers twice in three rounds, D1 once in two: a ratio of about one and a half.",
            ),
        ),
        Claim(
            id="S4f",
            where="4, figure 5",
            statement="C1 has the least messages.",
            theirs="minimum",
            judge=over_k(messages, ("C1", "D1"), lambda value: value < 1.0),
        ),
        Claim(
            id="S5a",
            where="4, figure 7",
            statement="D1 has fewer messages than C0, whatever d is.",
            theirs="fewer",
            judge=over_d(messages, ("D1", "C0"), lambda value: value < 1.0),
        ),
        Claim(
            id="S5b",
            where="4, figure 7",
            statement="D1 has fewer messages than D0, whatever d is.",
            theirs="fewer",
            judge=over_d(
                messages,
                ("D1", "D0"),
                lambda value: value < 1.0,
                "With one destination D0 has only the sender to tell. SCO's members also let everyone else "
                "know that a message was not for them: else nobody could tell that nothing precedes its own.",
            ),
        ),
        Claim(
            id="S5c",
            where="4, figure 7",
            statement="For d = 3 to 8 C1 has fewer messages than D1, by less than 20% of D1's.",
            theirs="less than 20%",
            judge=over_d(
                messages,
                ("C1", "D1"),
                lambda value: 1.0 - SMALL < value < 1.0,
                among=STATED_CHOICES,
            ),
        ),
        Claim(
            id="S5d",
            where="4, figure 8",
            statement="D1's delay is 50% smaller than C0's.",
            theirs="50%",
            judge=over_d(delay, ("D1", "C0"), lambda value: value <= HALF, TWO_OF_THREE, CHOICES[1:]),
        ),
        Claim(
            id="S5e",
            where="4, figure 8",
            statement="D1's delay is 50% smaller than C1's.",
            theirs="50%",
            judge=over_d(
                delay,
                ("D1", "C1"),
                lambda value: value <= HALF,
                "C1 defers twice in three rounds, D1 once in two: a ratio of about two thirds.",
                CHOICES[1:],
            ),
        ),
        Claim(
            id="S5f",
            where="4, figure 8",
            statement="D1's delay is not much greater than D0's.",
            theirs="not much greater",
            judge=over_d(delay, ("D1", "D0"), lambda value: value < MUCH),
        ),
        Claim(
            id="S6a",
            where="4",
            statement="SCO has the second least messages, less than 20% above the best.",
            theirs="less than 20%",
            judge=lambda results: second_best(results, messages, "C1"),
        ),
        Claim(
            id="S6b",
            where="4",
            statement="SCO has the second smallest delay, less than 20% above the best.",
            theirs="less than 20%",
            judge=lambda results: second_best(results, delay, "D0"),
        ),
        Claim(
            id="S6c",
            where="4",
            statement="There is a k with which SCO is within 20% of the best in both.",
            theirs="implied",
            judge=both_close,
        ),
    ),
)
