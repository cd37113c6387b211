"""Chapter 6: when to begin a round; figures 6.1 and 6.2, claim G22. Nothing here is simulated by the
network.
"""

from typing import Final

from antiphon.analysis.trigger import simulate_buffer, sound_threshold, text_threshold
from antiphon.studies.model import Claim, Figure, Finding, Line, Panel, Results, Section, Table

CAPACITY: Final = 640
DURATION_S: Final = 2.0
RATES: Final = tuple(range(10, 101, 10))
FULL_RELEASE: Final = 1.0
PARTIAL_RELEASE: Final = 0.2


def text_x(rate: float, share: float) -> float:
    return text_threshold(CAPACITY, rate, DURATION_S, share)


def sound_x(rate: float, share: float) -> float:
    """The X that never lets the buffer overflow; NaN where there is none."""
    found = sound_threshold(CAPACITY, rate, DURATION_S, share)
    return float("nan") if found is None else found


def peak(rate: float, share: float) -> float:
    """The most that the buffer would have to hold with the text's X."""
    return simulate_buffer(text_x(rate, share), rate, DURATION_S, share).peak


def thresholds(share: float) -> Panel:
    def lines(_: Results) -> list[Line]:
        return [
            Line(name="the text's X", x=RATES, y=[text_x(rate, share) for rate in RATES]),
            Line(name="the sound X", x=RATES, y=[sound_x(rate, share) for rate in RATES]),
            Line(name="peak, text's X", x=RATES, y=[peak(rate, share) for rate in RATES]),
            Line(name="buffer", x=RATES, y=[CAPACITY] * len(RATES)),
        ]

    return Panel(x_label="messages sent per second, r", y_label="messages in the buffer", compute=lines)


def figure(id_: str, share: float) -> Figure:
    return Figure(
        id=id_,
        title=f"When to begin a round, alpha = {share:g}",
        caption=f"A buffer of {CAPACITY} messages, rounds of {DURATION_S:g} s that free the share "
        f"{share:g} of what "
        "was there at their start. The peak is what the buffer comes to hold with the text's X.",
        panels=[thresholds(share)],
    )


def rows(_: Results) -> list[list[str]]:
    found = []
    for rate in RATES:
        cells = [str(rate)]
        for share in (FULL_RELEASE, PARTIAL_RELEASE):
            sound = sound_threshold(CAPACITY, rate, DURATION_S, share)
            cells += [
                f"{text_x(rate, share):.0f}",
                "–" if sound is None else f"{sound:.0f}",
                f"{peak(rate, share):.0f}",
            ]
        found.append(cells)
    return found


def judge(share: float) -> Finding:
    """The text's X is best if it never overflows and no larger one does not either."""
    overflows = [rate for rate in RATES if peak(rate, share) > CAPACITY]
    largest = all(
        text_x(rate, share) >= sound_x(rate, share)
        for rate in RATES
        if sound_x(rate, share) == sound_x(rate, share)
    )
    ours = (
        f"X {text_x(RATES[0], share):.0f} at r={RATES[0]} to {text_x(RATES[-1], share):.0f} at r={RATES[-1]}"
    )
    if not overflows:
        return Finding(ours=f"{ours}; never overflows", holds=largest)
    worst = max(peak(rate, share) for rate in overflows)
    return Finding(
        ours=f"{ours}; overflows from r={overflows[0]} on, with up to {worst:.0f} messages",
        holds=False,
        reason="The text looks at two rounds; the later ones begin with ever more in the buffer, up to "
        "rf/alpha. "
        "Without overflow exactly if rf(1 + 1/alpha) <= g, and then X = g - rf.",
    )


SECTION: Final = Section(
    title="6 Trigger",
    text="A sender admits r messages a second into a buffer of g; a round takes f seconds and frees the "
    "share alpha "
    "of what was there when it began. The later a round begins, the fewer are needed; too late, and the "
    "buffer "
    "overflows.",
    figures=(figure("6.1", FULL_RELEASE), figure("6.2", PARTIAL_RELEASE)),
    tables=(
        Table(
            title="The trigger, the text's and the sound one",
            caption=f"g = {CAPACITY}, f = {DURATION_S:g} s. A dash: no X keeps the buffer from overflowing.",
            columns=(
                "r",
                "alpha 1: text's X",
                "sound X",
                "peak with the text's",
                "alpha 0.2: text's X",
                "sound X",
                "peak with the text's",
            ),
            rows=rows,
        ),
    ),
    claims=(
        Claim(
            id="G22a",
            where="6, figure 6.1",
            statement="With alpha = 1 the best trigger is X = g - rf.",
            theirs="620 at r=10 to 440 at r=100",
            judge=lambda _: judge(FULL_RELEASE),
        ),
        Claim(
            id="G22b",
            where="6, figure 6.2",
            statement="With alpha = 0.2 the best trigger is X = min(g - rf, (g - 2rf)/(1 - alpha)).",
            theirs="620 at r=10 to 300 at r=100",
            judge=lambda _: judge(PARTIAL_RELEASE),
        ),
    ),
)
