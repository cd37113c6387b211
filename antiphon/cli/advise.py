"""`antiphon advise`: which stability protocol to use, and how."""

from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter

from antiphon.cli.console import data, print_json, say
from antiphon.live.orders import Fifo
from antiphon.studies.advice.advising import Advice, Candidate, Setting
from antiphon.studies.advice.advising import advise as find_advice

ORDER: Final = Fifo.name
"""The order whose groups choose their stability protocol."""
GROUP: Final = "orders"
"""The group of the example."""
COLUMNS = ("protocol", "step", "subset", "subgroup", "TPR s", "messages", "queue", "longest", "rejected: why")


def advise(
    *,
    members: Annotated[int, Parameter(help="members of the group")],
    senders: Annotated[int, Parameter(help="how many of them multicast messages")],
    bandwidth: Annotated[float, Parameter(help="bit/s that stability detection may use on a link")],
    rate: Annotated[float, Parameter(help="messages a second that each sender sends")],
    buffer: Annotated[float, Parameter(help="messages of its own that fit a sender's buffer")],
    loss: Annotated[float, Parameter(help="probability that a message is lost on its way")] = 0.0,
    density: Annotated[
        Literal["dense", "sparse"],
        Parameter(help="a member at every node of the network, or at some of a larger one"),
    ] = "dense",
    json: Annotated[bool, Parameter(help="print one JSON object", negative=())] = False,
) -> int:
    """Say which stability protocol, step, subset, sub-group and trigger to use, and why not the others.

    Predictions come from a sweep of all protocols that ships with Antiphon (docs/advisor.md): the time until
    the first member knows what is stable, messages on all links in a round, and the links' queues.

    Example: antiphon advise --members 200 --senders 50 --bandwidth 30000 --rate 10 --buffer 640 --loss 0.01
    """
    setting = Setting(
        members=members,
        senders=senders,
        bandwidth=bandwidth,
        rate=rate,
        buffer=buffer,
        loss=loss,
        density=density,
    )
    advice = find_advice(setting)
    if json:
        print_json(
            {
                "feasible": advice.feasible,
                "take": taken(advice.best),
                "advice": advice.best.shown(),
                "rejected": [candidate.shown() for candidate in advice.rejected],
                "notes": list(advice.notes),
            }
        )
        return 0
    print_advice(advice)
    return 0


def print_advice(advice: Advice) -> None:
    best = advice.best
    data.print(f"Use {in_words(best)}.", markup=False, style="bold")
    if best.threshold is not None:
        data.print(
            f"Begin a round when {best.threshold} of the {advice.setting.buffer:g} messages' room are taken.",
            markup=False,
        )
    data.print(f"For instance: {command(best)}", markup=False)
    data.print()
    rows = [COLUMNS, *(cells(candidate) for candidate in (best, *advice.rejected))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        data.print(line.rstrip(), markup=False)
    for note in advice.notes:
        say(note)


def taken(candidate: Candidate) -> dict[str, Any]:
    """The advice as `antiphon.join` and the command line take it."""
    return {"order": ORDER, "options": candidate.options, "command": command(candidate)}


def command(candidate: Candidate) -> str:
    """A member that takes the advice, from the shell."""
    flags = (f"--{name.replace('_', '-')} {value}" for name, value in candidate.options.items())
    return f"antiphon node {GROUP} --order {ORDER} {' '.join(flags)}"


def in_words(candidate: Candidate) -> str:
    knobs = []
    if candidate.step_s is not None:
        knobs.append(f"a step of {candidate.step_s:g} s")
    if candidate.subset is not None:
        knobs.append(f"a subset of {candidate.subset}")
    if candidate.subgroup is not None:
        knobs.append(f"sub-groups of {candidate.subgroup}")
    return candidate.protocol + (f" with {', '.join(knobs)}" if knobs else "")


def cells(candidate: Candidate) -> tuple[str, ...]:
    knobs = (candidate.step_s, candidate.subset, candidate.subgroup)
    return (
        candidate.protocol,
        *("" if knob is None else f"{knob:g}" for knob in knobs),
        f"{candidate.tpr_s:.3g}",
        f"{candidate.hop_messages:.0f}",
        f"{candidate.queue_mean:.2f}",
        f"{candidate.queue_max:.0f}",
        candidate.reason,
    )
