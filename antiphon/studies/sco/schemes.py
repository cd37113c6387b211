"""Section 4: four control schemes over k and over d. The runs, figures 5 to 8, and their numbers."""

from collections.abc import Callable
from typing import Final

from antiphon.analysis import control_schemes as closed
from antiphon.analysis.control_schemes import SCHEMES, Scheme, Traffic
from antiphon.studies.model import Figure, Panel, Series, Table
from antiphon.studies.results import Results
from antiphon.studies.sco.judging import delay, messages, there
from antiphon.studies.sco.settings import CENTRAL, DEFERRED, HUES, SCENARIOS, UNIT_MS, parameters, traffic
from antiphon.studies.study import Effort, Grid, fixed

DEFERRALS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
QUICK_DEFERRALS: Final = (1.0, 2.0, 4.0, 8.0)
CHOICES: Final = tuple(range(1, 10))
QUICK_CHOICES: Final = (1, 3, 5, 8)
SEEDS: Final[dict[Effort, int]] = {"quick": 1, "full": 5}

TO_C0: Final = "ratio to C0"
Measure = Callable[[Results, Scheme, Traffic], float]


def over_deferrals(scheme: Scheme) -> Grid:
    return Grid(
        scenario=SCENARIOS[scheme],
        axes={
            **fixed(parameters(scheme, traffic())),
            "confirm_ms": tuple(units * UNIT_MS for units in DEFERRALS),
        },
        quick={"confirm_ms": tuple(units * UNIT_MS for units in QUICK_DEFERRALS)},
        seeds=SEEDS,
    )


def over_choices(scheme: Scheme) -> Grid:
    return Grid(
        scenario=SCENARIOS[scheme],
        axes={**fixed(parameters(scheme, traffic())), "destinations": CHOICES},
        quick={"destinations": QUICK_CHOICES},
        seeds=SEEDS,
    )


def with_a_coordinator(scheme: Scheme) -> Grid:
    """One member coordinates the messages of all."""
    return Grid(
        scenario=SCENARIOS[scheme],
        axes={
            **fixed(parameters(scheme, traffic())),
            "coordinated": (True,),
            "destinations": CHOICES,
        },
        quick={"destinations": QUICK_CHOICES},
        seeds=SEEDS,
    )


GRIDS: Final = (
    *map(over_deferrals, DEFERRED),
    *map(over_choices, SCHEMES),
    *map(with_a_coordinator, CENTRAL),
)

DEFERRAL_GROUPS: Final = {units: traffic(deferral=units) for units in DEFERRALS}
CHOICE_GROUPS: Final = {choice: traffic(destinations=choice) for choice in CHOICES}


def run_of(results: Results, groups: dict[float, Traffic] | dict[int, Traffic]) -> dict[float, Traffic]:
    """The groups with runs of all schemes."""
    return {
        float(place): group
        for place, group in groups.items()
        if all(there(results, scheme, group) for scheme in SCHEMES)
    }


# Figures


def panel(
    measure: Measure,
    closed_form: Callable[[Scheme, Traffic], float],
    groups: dict[float, Traffic] | dict[int, Traffic],
    *,
    x_label: str,
    log_y: bool = False,
) -> Panel:
    """The ratios to C0, measured and in closed form."""

    def lines(results: Results) -> list[Series]:
        chosen = run_of(results, groups)
        made = []
        for scheme in ("C1", "D0", "D1") if chosen else ():
            ours = [ratio(results, measure, scheme, group) for group in chosen.values()]
            theirs = [closed_form(scheme, group) / closed_form("C0", group) for group in groups.values()]
            made += [
                Series(name=scheme, x=list(chosen), y=ours, hue=HUES[scheme]),
                Series(
                    name=f"{scheme}, closed form",
                    x=[float(place) for place in groups],
                    y=theirs,
                    hue=HUES[scheme],
                    is_calculated=True,
                ),
            ]
        return made

    return Panel(x_label=x_label, y_label=TO_C0, compute=lines, log_y=log_y)


def ratio(results: Results, measure: Measure, scheme: Scheme, group: Traffic) -> float:
    return measure(results, scheme, group) / measure(results, "C0", group)


OVER_K: Final = "units of deferral k"
OVER_D: Final = "destinations d"
FIGURES: Final = (
    Figure(
        id="5",
        title="Number of messages over k",
        caption="n = 10, a = 1, r = 4, d = 5. All that crosses the network for a message, over that of C0; "
        "dashed: closed forms.",
        panels=[panel(messages, closed.messages, DEFERRAL_GROUPS, x_label=OVER_K, log_y=True)],
    ),
    Figure(
        id="6",
        title="Delay over k",
        caption="n = 10, a = 1, r = 4, d = 5. From sending until full acceptance, over that of C0; dashed: "
        "closed forms, which are of atomic acceptance.",
        panels=[panel(delay, closed.delay, DEFERRAL_GROUPS, x_label=OVER_K)],
    ),
    Figure(
        id="7",
        title="Number of messages over d",
        caption="n = 10, a = 1, k = 4, r = 4. All that crosses the network for a message, over that of C0; "
        "dashed: closed forms.",
        panels=[panel(messages, closed.messages, CHOICE_GROUPS, x_label=OVER_D, log_y=True)],
    ),
    Figure(
        id="8",
        title="Delay over d",
        caption="n = 10, a = 1, k = 4, r = 4. From sending until full acceptance, over that of C0; dashed: "
        "closed forms, which are of atomic acceptance.",
        panels=[panel(delay, closed.delay, CHOICE_GROUPS, x_label=OVER_D)],
    ),
)


# Tables


def rows_over(groups: dict[float, Traffic] | dict[int, Traffic]) -> Callable[[Results], list[list[str]]]:
    """A row for each group: messages and delay of each scheme, each with its closed form behind it."""

    def rows(results: Results) -> list[list[str]]:
        return [
            [
                f"{place:g}",
                *(
                    f"{messages(results, scheme, group):.2f} ({closed.messages(scheme, group):.2f})"
                    for scheme in SCHEMES
                ),
                *(
                    f"{delay(results, scheme, group):.1f} ({closed.delay(scheme, group):.1f})"
                    for scheme in SCHEMES
                ),
            ]
            for place, group in run_of(results, groups).items()
        ]

    return rows


def coordinated_rows(results: Results) -> list[list[str]]:
    """C0 and C1 where one member coordinates, and D1's delay over that of C1."""
    made = []
    for choice, group in CHOICE_GROUPS.items():
        if all(there(results, scheme, group, coordinated=True) for scheme in CENTRAL):
            cells = [
                f"{measure(results, scheme, group, coordinated=True):.{digits}f}"
                for measure, digits in ((messages, 2), (delay, 1))
                for scheme in CENTRAL
            ]
            ratio_to_d1 = delay(results, "D1", group) / delay(results, "C1", group, coordinated=True)
            made.append([str(choice), *cells, f"{ratio_to_d1:.2f}"])
    return made


CAPTION: Final = (
    "Messages for each message, and units of time until it is fully accepted; in brackets the closed forms, "
    "which are of atomic acceptance."
)
COLUMNS: Final = (*(f"{scheme} messages" for scheme in SCHEMES), *(f"{scheme} delay" for scheme in SCHEMES))
TABLES: Final = (
    Table(
        title="Over k",
        caption=CAPTION,
        columns=("k", *COLUMNS),
        compute=rows_over(DEFERRAL_GROUPS),
    ),
    Table(
        title="Over d",
        caption=CAPTION,
        columns=("d", *COLUMNS),
        compute=rows_over(CHOICE_GROUPS),
    ),
    Table(
        title="With one fixed coordinator",
        caption="k = 4. Section 4 has one coordinator send all messages. Its senders submit them first: that "
        "is a message more, and a round; another message tells a sender that all destinations have it.",
        columns=("d", "C0 messages", "C1 messages", "C0 delay", "C1 delay", "delay of D1 over C1"),
        compute=coordinated_rows,
    ),
)
