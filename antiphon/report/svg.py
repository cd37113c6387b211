"""The space-time diagram as SVG, written by hand: no library, no script, nothing to load.

The drawing works as a file and inside a page. Its colours are custom properties scoped to `.spacetime`, with
a second set for dark schemes, and it paints its own background, so that it is legible on any page. It never
relies on colour alone: kinds differ in shape, messages are named at every mark, witness rows are bold and
ringed. Each mark has a `<title>` with its step, time and destinations.
"""

from collections.abc import Iterator
from typing import Final

from antiphon.core.ids import Site
from antiphon.report.diagram import Arrow, Diagram, Item, ItemKind, Span
from antiphon.report.escape import clean, clean_lines, escape, shorten
from antiphon.report.text import WORDS, hidden_rows, item_label

LEVEL_HEIGHT: Final = 32
HEAD_HEIGHT: Final = 46
FOOT_HEIGHT: Final = 44
MARGIN: Final = 20
LABEL_OFFSET: Final = 13
CHARACTER_WIDTH: Final = 7.0
"""Width of a character of the 11.5 px monospaced labels, rounded up, since fonts differ."""
LABEL_CHARACTERS: Final = 24
HUES: Final = 4
"""Messages beyond the fourth share the neutral colour: more hues would be hard to distinguish."""

STYLE: Final = """
.spacetime{--paper:#fdfcfa;--ink:#1d2430;--muted:#5b6472;--faint:#c3c7ce;--alarm:#b3261e;--glow:#f6dcd6;
--hue0:#0b62a8;--hue1:#a8480a;--hue2:#1a7050;--hue3:#86359a;
font:11.5px ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace}
@media (prefers-color-scheme:dark){.spacetime{--paper:#181b21;--ink:#e8e6e1;--muted:#a4abb6;--faint:#4b525e;
--alarm:#ff9d8a;--glow:#4a2620;--hue0:#7cc0ff;--hue1:#ffb27a;--hue2:#7fd6ab;--hue3:#dfa4ef}}
.spacetime .paper{fill:var(--paper)}
.spacetime text{fill:var(--ink);paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}
.spacetime .name{font-size:13px;font-weight:700}
.spacetime .lane{stroke:var(--faint);stroke-width:1.5}
.spacetime .lane.absence{stroke:var(--muted);stroke-dasharray:2 5}
.spacetime .highlight{stroke:var(--glow);stroke-width:13;stroke-linecap:round}
.spacetime .arrow{fill:none;stroke:var(--faint);stroke-width:1}
.spacetime .head{fill:var(--faint)}
.spacetime .mark{fill:var(--paper);stroke:var(--muted);stroke-width:1.5}
.spacetime .mark.solid{fill:var(--muted)}
.spacetime .dots{fill:var(--muted)}
.spacetime .context text,.spacetime .gap text,.spacetime .legend text{fill:var(--muted)}
.spacetime .ring{fill:none;stroke:var(--alarm);stroke-width:1.5}
.spacetime .witness text{font-weight:700}
.spacetime .missing text{fill:var(--alarm)}
.spacetime .missing .mark{fill:none;stroke:var(--alarm);stroke-width:2}
"""


def to_svg(diagram: Diagram) -> str:
    """Draw the diagram as one `<svg>` element, well-formed for any names in the trace."""
    plan = _Plan(diagram)
    explanation = " ".join(clean_lines(diagram.explanation))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="spacetime" role="img" '
        f'aria-label="{escape(diagram.title)}" viewBox="0 0 {plan.width} {plan.height}" '
        f'width="{plan.width}" height="{plan.height}">',
        f"<title>{escape(diagram.title)}</title>",
        f"<desc>{escape(explanation)}</desc>",
        f"<style>{style()}</style>",
        f'<rect class="paper" width="{plan.width}" height="{plan.height}" rx="10"/>',
        *(_highlight(plan, span) for span in diagram.highlights),
        *(_lane(plan, column) for column in range(len(diagram.sites))),
        *(_arrow(plan, arrow) for arrow in sorted(diagram.arrows, key=lambda arrow: arrow.hue is not None)),
        *(_head(plan, column, site) for column, site in enumerate(diagram.sites)),
        *(_mark(plan, item) for item in diagram.items),
        *_legend(plan),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Plan:
    """Where columns and levels are, in pixels."""

    def __init__(self, diagram: Diagram) -> None:
        self.diagram = diagram
        labels = [len(label(item)) for item in diagram.items]
        names = [min(len(clean(site)), LABEL_CHARACTERS) for site in diagram.sites]
        widest = max([*labels, *names, 10])
        self.column_width = round(widest * CHARACTER_WIDTH) + LABEL_OFFSET + 22
        self.width = max(2 * MARGIN + self.column_width * max(len(diagram.sites), 1), 300)
        self.foot = HEAD_HEIGHT + diagram.levels * LEVEL_HEIGHT
        self.height = self.foot + FOOT_HEIGHT

        ends = [(diagram.items[arrow.source], diagram.items[arrow.target]) for arrow in diagram.arrows]
        self.departing = {source for source, target in ends if source.column < target.column}
        self.arriving = {target for source, target in ends if source.column > target.column}

    def label_drop(self, item: Item) -> int:
        """Labels are to the right of their marks. They avoid arrows on that side, which leave downward and
        arrive from above."""
        if item in self.departing:
            return -3
        return 12 if item in self.arriving else 4

    def x(self, column: int) -> int:
        return MARGIN + 10 + column * self.column_width

    def y(self, level: int) -> int:
        return HEAD_HEIGHT + level * LEVEL_HEIGHT + LEVEL_HEIGHT // 2


def label(item: Item) -> str:
    """An item's label, no longer than a column holds."""
    if item.kind == "gap":
        return hidden_rows(item.hidden)
    return shorten(item_label(item, WORDS, {}), LABEL_CHARACTERS)


def style() -> str:
    """The style of every space-time diagram."""
    return STYLE + _hue_rules()


def _hue_rules() -> str:
    rules = []
    for hue in range(HUES):
        colour = f"var(--hue{hue})"
        rules.append(
            f".spacetime .hue{hue} .mark,.spacetime .arrow.hue{hue}{{stroke:{colour}}}"
            f".spacetime .hue{hue} .mark.solid,.spacetime .head.hue{hue}{{fill:{colour}}}"
            f".spacetime .arrow.hue{hue}{{stroke-width:1.8}}"
            f".spacetime .hue{hue} text{{fill:{colour}}}"
        )
    return "\n".join(rules) + "\n"


def _hue_class(hue: int | None) -> str:
    return f"hue{hue}" if hue is not None and hue < HUES else ""


def _lane(plan: _Plan, column: int) -> str:
    """A member's line, dashed where the member is absent."""
    pieces = []
    top = HEAD_HEIGHT - 8
    for absence in plan.diagram.absences:
        if absence.column == column:
            pieces.append(_line("lane", plan.x(column), top, plan.y(absence.top)))
            top = plan.y(absence.bottom)
            pieces.append(_line("lane absence", plan.x(column), plan.y(absence.top), top))
    pieces.append(_line("lane", plan.x(column), top, plan.foot))
    return "".join(pieces)


def _highlight(plan: _Plan, span: Span) -> str:
    return _line("highlight", plan.x(span.column), plan.y(span.top), plan.y(span.bottom))


def _line(kind: str, x: int, top: int, bottom: int) -> str:
    return f'<line class="{kind}" x1="{x}" y1="{top}" x2="{x}" y2="{bottom}"/>'


def _arrow(plan: _Plan, arrow: Arrow) -> str:
    """A straight line that ends before its target's mark, with its own head, so that no ids clash."""
    source, target = plan.diagram.items[arrow.source], plan.diagram.items[arrow.target]
    x1, y1 = plan.x(source.column), plan.y(source.level)
    x2, y2 = plan.x(target.column), plan.y(target.level)
    length = max(((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5, 1.0)
    along_x, along_y = (x2 - x1) / length, (y2 - y1) / length
    tip_x, tip_y = x2 - 9 * along_x, y2 - 9 * along_y
    back_x, back_y = tip_x - 8 * along_x, tip_y - 8 * along_y
    hue = _hue_class(arrow.hue)
    head = " ".join(
        f"{x:.1f},{y:.1f}"
        for x, y in (
            (tip_x, tip_y),
            (back_x - 3.5 * along_y, back_y + 3.5 * along_x),
            (back_x + 3.5 * along_y, back_y - 3.5 * along_x),
        )
    )
    return (
        f'<path class="arrow {hue}" d="M{x1},{y1} L{back_x:.1f},{back_y:.1f}"/>'
        f'<polygon class="head {hue}" points="{head}"/>'
    )


def _head(plan: _Plan, column: int, site: Site) -> str:
    name = shorten(clean(site), LABEL_CHARACTERS)
    return (
        f'<text class="name" x="{plan.x(column) - 5}" y="{HEAD_HEIGHT - 18}">'
        f"{escape(name)}<title>{escape(site)}</title></text>"
    )


def _mark(plan: _Plan, item: Item) -> str:
    x, y = plan.x(item.column), plan.y(item.level)
    hue = _hue_class(item.hue) if item.kind != "missing" else ""
    classes = " ".join(filter(None, [item.emphasis, item.kind, hue]))
    ring = f'<circle class="ring" cx="{x}" cy="{y}" r="9"/>' if item.emphasis == "witness" else ""
    return (
        f'<g class="{classes}"><title>{escape(details(item))}</title>{ring}{_shape(item.kind, x, y)}'
        f'<text x="{x + LABEL_OFFSET}" y="{y + plan.label_drop(item)}">{escape(label(item))}</text></g>'
    )


def _shape(kind: ItemKind, x: int, y: int) -> str:
    if kind == "send":
        return f'<circle class="mark" cx="{x}" cy="{y}" r="5"/>'
    if kind == "deliver":
        return f'<circle class="mark solid" cx="{x}" cy="{y}" r="5"/>'
    if kind == "receive":
        return f'<path class="mark" d="M{x - 5},{y - 4}h10l-5,9z"/>'
    if kind == "stable":
        return f'<rect class="mark solid" x="{x - 4.5}" y="{y - 4.5}" width="9" height="9"/>'
    if kind == "discard":
        return f'<rect class="mark" x="{x - 4.5}" y="{y - 4.5}" width="9" height="9"/>'
    if kind == "missing":
        return f'<path class="mark" d="M{x - 5},{y - 5}l10,10m0,-10l-10,10"/>'
    if kind == "gap":
        dots = "".join(f'<circle class="dots" cx="{x}" cy="{y + dy}" r="1.3"/>' for dy in (-5, 0, 5))
        return f'<rect class="paper" x="{x - 3}" y="{y - 10}" width="6" height="20"/>{dots}'
    return f'<path class="mark" d="M{x - 6},{y}h12"/>'


def details(item: Item) -> str:
    """The tooltip: the step, the message's own name, the destinations and the time."""
    words = item_label(item, WORDS, {})
    if item.kind == "gap":
        return f"{hidden_rows(item.hidden)} left out"
    if item.event is None:
        return words
    parts = [f"{words} at {item.event.site}", f"step {item.event.step}"]
    if item.event.message_id is not None:
        parts.append(f"message {item.event.message_id}")
    if item.event.destinations is not None:
        parts.append("to " + (", ".join(item.event.destinations) or "no member"))
    if item.event.group is not None:
        parts.append(f"group {item.event.group}")
    if item.event.domain is not None:
        parts.append(f"domain {item.event.domain}")
    if item.event.attempt is not None:
        parts.append(f"attempt {item.event.attempt}")
    if item.event.time_ns is not None:
        parts.append(f"{item.event.time_ns / 1e9:.6f} s on its clock")
    return ", ".join(parts)


def _legend(plan: _Plan) -> Iterator[str]:
    """The shapes that the diagram uses, in one line at its foot, as many as fit."""
    used = {item.kind for item in plan.diagram.items}
    y = plan.foot + 22
    x = MARGIN + 10
    yield '<g class="legend">'
    for kind in ("send", "receive", "deliver", "stable", "discard", "missing"):
        words = WORDS[kind].strip() if kind != "missing" else "never delivered"
        width = round(len(words) * CHARACTER_WIDTH) + LABEL_OFFSET + 18
        if kind not in used or x + width > plan.width:
            continue
        yield f'{_shape(kind, x, y)}<text x="{x + LABEL_OFFSET}" y="{y + 4}">{words}</text>'
        x += width
    if any(item.emphasis == "witness" and item.event is not None for item in plan.diagram.items) and (
        x + 120 <= plan.width
    ):
        yield f'<circle class="ring" cx="{x}" cy="{y}" r="7"/>'
        yield f'<text x="{x + LABEL_OFFSET}" y="{y + 4}">in the witness</text>'
    yield "</g>"
