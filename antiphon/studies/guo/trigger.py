"""Chapter 6: when to begin a round; figures 6.1 and 6.2, claim G22. Nothing here is simulated by the
network.
"""

from typing import Final

from antiphon.analysis.trigger import simulate_buffer, sound_threshold, text_threshold
from antiphon.studies.judging import judged_by
from antiphon.studies.model import Figure, Finding, Panel, Section, Series, Table
from antiphon.studies.results import Results

CAPACITY: Final = 640
DURATION_S: Final = 2.0
RATES: Final = tuple(range(10, 101, 10))
FULL_RELEASE: Final = 1.0
PARTIAL_RELEASE: Final = 0.2


def text_x(rate: float, share: float) -> float:
    return text_threshold(CAPACITY, rate, DURATION_S, share)


def sound_x(rate: float, share: float) -> float:
    """The X with which the buffer never overflows; NaN if there is none."""
    found = sound_threshold(CAPACITY, rate, DURATION_S, share)
    return float("nan") if found is None else found


def peak(rate: float, share: float) -> float:
    """The largest content of the buffer with the paper's X."""
    return simulate_buffer(text_x(rate, share), rate, DURATION_S, share).peak


def thresholds(share: float) -> Panel:
    def lines(_: Results) -> list[Series]:
        return [
            Series(name="the text's X", x=RATES, y=[text_x(rate, share) for rate in RATES]),
            Series(name="the sound X", x=RATES, y=[sound_x(rate, share) for rate in RATES]),
            Series(name="peak, text's X", x=RATES, y=[peak(rate, share) for rate in RATES]),
            Series(name="buffer", x=RATES, y=[CAPACITY] * len(RATES)),
        ]

    return Panel(x_label="messages sent per second, r", y_label="messages in the buffer", compute=lines)


def figure(id_: str, share: float) -> Figure:
    return Figure(
        id=id_,
        title=f"When to begin a round, alpha = {share:g}",
        caption=f"A buffer of {CAPACITY} messages, rounds of {DURATION_S:g} s that free the share {share:g} "
        "of what was there at their start. The peak is what the buffer comes to hold with the text's X.",
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
    """The paper's X is best if the buffer never overflows with it, but does with any larger X."""
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
        "rf/alpha. Without overflow exactly if rf(1 + 1/alpha) <= g, and then X = g - rf.",
    )


SECTION: Final = Section(
    title="6 Trigger",
    text="A sender admits r messages a second into a buffer of g; a round takes f seconds and frees the "
    "share alpha of the messages that it began with. Later rounds mean fewer rounds; if a round is too late, "
    "the buffer overflows.",
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
            compute=rows,
        ),
    ),
    claims=judged_by(
        "guo",
        G22a=lambda _: judge(FULL_RELEASE),
        G22b=lambda _: judge(PARTIAL_RELEASE),
    ),
)
