"""The space-time diagram of calls that contradict one another: a column per client, calls as intervals.

Time runs downward. Levels are the order of starts and ends, not clock readings. Calls of one client that
overlap get columns of their own. By different clocks there is no common order: those calls are drawn clock by
clock.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from antiphon.check.linearizable import shown
from antiphon.check.verdict import Violation
from antiphon.core.calls import Call
from antiphon.report.escape import argument_lines, clean, escape, shorten

LEVEL_HEIGHT: Final = 30
COLUMN_WIDTH: Final = 220
HEAD_HEIGHT: Final = 46
LABEL_CHARACTERS: Final = 28
COLUMN_GAP: Final = 2

STYLE: Final = """
.calls{--paper:#fdfcfa;--ink:#1d2430;--muted:#5b6472;--faint:#c3c7ce;--bar:#0b62a8;--alarm:#b3261e;
font:11.5px ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace}
@media (prefers-color-scheme:dark){.calls{--paper:#181b21;--ink:#e8e6e1;--muted:#a4abb6;--faint:#4b525e;
--bar:#7cc0ff;--alarm:#ff9d8a}}
.calls .paper{fill:var(--paper)}
.calls text{fill:var(--ink)}
.calls .name{font-size:13px;font-weight:700}
.calls .lane{stroke:var(--faint);stroke-width:1.5}
.calls .bar{fill:var(--paper);stroke:var(--bar);stroke-width:2}
.calls .open .bar{stroke-dasharray:3 4}
.calls .last .bar{stroke:var(--alarm)}
"""


@dataclass(frozen=True)
class Interval:
    """A call in its column, from its start to its end; without an end it goes to the foot."""

    column: int
    top: int
    bottom: int
    call: Call
    is_last: bool
    """Whether this is the call that names the violation."""


@dataclass(frozen=True)
class CallDiagram:
    """What both renderers draw."""

    title: str
    explanation: str
    clients: tuple[str, ...]
    """The client of each column."""
    levels: int
    intervals: tuple[Interval, ...]


def layout_calls(calls: Sequence[Call], violation: Violation) -> CallDiagram:
    """Place the calls of a violation's witness; other calls are left out."""
    named = {(witness.site, witness.step) for witness in violation.witness}
    own = [call for call in calls if call.run == violation.run and (call.client, call.number) in named]
    own.sort(key=lambda call: (call.clock or "", call.start, call.client, call.number))
    moments = sorted(
        {
            (call.clock or "", moment)
            for call in own
            for moment in (call.start, call.end)
            if moment is not None
        }
    )
    level = {moment: place for place, moment in enumerate(moments)}
    foot = len(moments)
    columns: list[tuple[str, int]] = []
    intervals = []
    for call in own:
        top = level[call.clock or "", call.start]
        bottom = foot if call.end is None else level[call.clock or "", call.end]
        column = next(
            (i for i, (name, free) in enumerate(columns) if name == call.client and free < top), None
        )
        if column is None:
            column = len(columns)
            columns.append((call.client, bottom))
        columns[column] = (call.client, bottom)
        is_last = (call.client, call.number) == (violation.sender, violation.number)
        intervals.append(Interval(column, top, bottom, call, is_last))
    title = f"Linearizability violated in run {clean(violation.run)}"
    return CallDiagram(
        title, violation.explanation, tuple(name for name, _ in columns), foot + 1, tuple(intervals)
    )


def _question(call: Call) -> str:
    return clean(f"{call.operation}({', '.join(map(shown, call.arguments))})")


def _answer(call: Call) -> str:
    return clean(shown(call.result)) if call.answered else "no answer"


def calls_to_text(diagram: CallDiagram, width: int = 110) -> str:
    """Draw in plain text: a line per start and end."""
    width = max(width, 20)
    lines = textwrap.wrap(diagram.title, width)
    for sentence in argument_lines(diagram.explanation):
        lines += textwrap.wrap(sentence, width) or [""]
    if not diagram.intervals:
        return "\n".join(lines) + "\n"
    room = max((width + COLUMN_GAP) // len(diagram.clients) - COLUMN_GAP, 12)
    labels = [text for each in diagram.intervals for text in (_question(each.call), _answer(each.call))]
    cell = min(max(map(len, [*labels, *diagram.clients])) + len("*< "), room)
    lines += ["", _row(list(map(clean, diagram.clients)), cell)]
    for level in range(diagram.levels):
        cells = ["."] * len(diagram.clients)
        for each in diagram.intervals:
            if each.top == each.bottom == level:
                cells[each.column] = f"<> {_question(each.call)} = {_answer(each.call)}"
            elif each.top == level:
                cells[each.column] = f"> {_question(each.call)}"
            elif each.bottom == level:
                cells[each.column] = f"{'*' if each.is_last else ''}< {_answer(each.call)}"
            elif each.top < level < each.bottom:
                cells[each.column] = "|"
        if any(text not in (".", "|") for text in cells):
            lines.append(_row(cells, cell))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _row(cells: Sequence[str], width: int) -> str:
    return (" " * COLUMN_GAP).join(shorten(text, width).ljust(width) for text in cells)


def calls_to_svg(diagram: CallDiagram) -> str:
    """Draw as one `<svg>` element, well-formed for any values in the calls."""
    width = max(COLUMN_WIDTH * len(diagram.clients), COLUMN_WIDTH) + 20
    height = HEAD_HEIGHT + LEVEL_HEIGHT * diagram.levels + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="calls" role="img" '
        f'aria-label="{escape(diagram.title)}" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">',
        f"<title>{escape(diagram.title)}</title>",
        f"<desc>{escape(diagram.explanation)}</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{height}" rx="10"/>',
    ]
    for column, name in enumerate(diagram.clients):
        x = 30 + column * COLUMN_WIDTH
        parts += [
            f'<text class="name" x="{x - 6}" y="24">{escape(shorten(name, LABEL_CHARACTERS))}</text>',
            f'<line class="lane" x1="{x}" x2="{x}" y1="{HEAD_HEIGHT - 10}" y2="{height - 10}"/>',
        ]
    parts += [_bar(each) for each in diagram.intervals]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(each: Interval) -> str:
    x = 30 + each.column * COLUMN_WIDTH
    top = HEAD_HEIGHT + each.top * LEVEL_HEIGHT
    bottom = HEAD_HEIGHT + each.bottom * LEVEL_HEIGHT
    kinds = " ".join(["call", *(["last"] if each.is_last else []), *([] if each.call.answered else ["open"])])
    question = escape(shorten(_question(each.call), LABEL_CHARACTERS))
    answer = escape(shorten(_answer(each.call), LABEL_CHARACTERS))
    return (
        f'<g class="{kinds}"><title>call {each.call.number} of {escape(each.call.client)}</title>'
        f'<rect class="bar" x="{x - 6}" y="{top - 6}" width="12" height="{bottom - top + 12}" rx="5"/>'
        f'<text x="{x + 14}" y="{top + 4}">{question}</text>'
        f'<text x="{x + 14}" y="{bottom + (18 if bottom == top else 4)}">{answer}</text></g>'
    )
