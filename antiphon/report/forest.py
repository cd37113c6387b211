"""A forest drawn as SVG: boxes from left to right, elbows to the boxes below, and labels along them.

The drawing knows nothing of groups or protocols: a `Box` has a title, a list of names of which one may be
marked, notes, and a label for the line that leads to it. Long lists are cut with a count. Of a large forest
the upper levels and the first boxes below each are drawn, and a stub counts the rest. Like the space-time
diagram the drawing works as a file and inside a page, has colours for light and dark, paints its own
background, and never relies on colour alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from antiphon.report.escape import clean, escape, shorten

ROW_HEIGHT: Final = 62
BOX_HEIGHT: Final = 46
MARGIN: Final = 22
HEAD_HEIGHT: Final = 52
FOOT_HEIGHT: Final = 40
CHARACTER_WIDTH: Final = 7.1
"""Width of a character of the monospaced text, rounded up, since fonts differ."""
TITLE_CHARACTERS: Final = 30
NOTE_CHARACTERS: Final = 38
LINE_CHARACTERS: Final = 36
NAME_CHARACTERS: Final = 20
FLOW_CHARACTERS: Final = 30
TREE_GAP: Final = 0.35
"""Space between two trees, in rows."""

MOST_CHILDREN: Final = 24
MOST_LEVELS: Final = 12
MOST_BOXES: Final = 400
"""Boxes drawn in all, about, without the stubs; more would be unreadable."""
MOST_NAMES: Final = 60
"""Names in a tooltip."""

STYLE: Final = """
.forest{--paper:#fdfcfa;--ink:#1d2430;--muted:#5b6472;--faint:#c3c7ce;--box:#fff;--accent:#0b62a8;--fresh:#1a7050;
font:11.5px ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace}
@media (prefers-color-scheme:dark){.forest{--paper:#181b21;--ink:#e8e6e1;--muted:#a4abb6;--faint:#4b525e;
--box:#21262e;--accent:#7cc0ff;--fresh:#7fd6ab}}
.forest .paper{fill:var(--paper)}
.forest text{fill:var(--ink)}
.forest .heading{font-size:14px;font-weight:700}
.forest .legend{fill:var(--muted)}
.forest .box{fill:var(--box);stroke:var(--faint);stroke-width:1.2}
.forest .noted .box{stroke:var(--accent);stroke-width:1.8}
.forest .fresh .box{stroke:var(--fresh);stroke-width:2.2;stroke-dasharray:6 3}
.forest .title{font-size:13px;font-weight:700}
.forest .note{fill:var(--accent)}
.forest .fresh .note{fill:var(--fresh)}
.forest .line{fill:var(--muted)}
.forest .marked{fill:var(--ink);font-weight:700}
.forest .edge{fill:none;stroke:var(--faint);stroke-width:1.6}
.forest .flow{fill:var(--accent);paint-order:stroke;stroke:var(--paper);stroke-width:4px}
.forest .stub text{fill:var(--muted)}
.forest .stub .box{stroke-dasharray:2 4}
"""


@dataclass(frozen=True)
class Box:
    """One node. `parent` is the index of an earlier box in the list."""

    title: str
    names: tuple[str, ...]
    marked: str | None = None
    note: str = ""
    flow: str = ""
    """The label of the line from its parent."""
    details: str = ""
    """For the tooltip: the title, the note and the flow in full."""
    parent: int | None = None
    is_fresh: bool = False
    is_stub: bool = False


@dataclass(frozen=True)
class _Spot:
    """Where a box lies: its level counts to the right, its row downward."""

    box: Box
    level: int
    row: float


def forest_to_svg(boxes: Sequence[Box], heading: str, legend: str = "") -> str:
    """Draw the boxes as one `<svg>` element, well-formed for any names."""
    spots = _place(boxes)
    plan = _Plan(spots, heading, legend)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="forest" role="img" aria-label="{escape(heading)}" '
        f'viewBox="0 0 {plan.width} {plan.height}" width="{plan.width}" height="{plan.height}">',
        f"<title>{escape(heading)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{plan.width}" height="{plan.height}" rx="10"/>',
        f'<text class="heading" x="{MARGIN}" y="{MARGIN + 8}">{escape(heading)}</text>',
        *(_edge(plan, spots[spot.box.parent], spot) for spot in spots if spot.box.parent is not None),
        *(_box(plan, spot) for spot in spots),
        f'<text class="legend" x="{MARGIN}" y="{plan.height - 16}">{escape(legend)}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def fit(names: Sequence[str], width: int, least: int = 1) -> str:
    """As many of the names as fit about this width, `least` at least, and a count of the others.

    >>> fit(["alto", "bass", "tenor"], 12)
    'alto, bass, +1'
    """
    texts = [shorten(clean(name), NAME_CHARACTERS) for name in names[: max(width, least)]]
    length = fitting = 0
    for text in texts:
        length += len(text) + 2
        if length > width + 2 and fitting >= least:
            break
        fitting += 1
    return ", ".join(texts[:fitting] + ([f"+{len(names) - fitting:,}"] if fitting < len(names) else []))


class _Plan:
    """Where levels are, in pixels: each as wide as its widest box, with room for the lines' labels."""

    def __init__(self, spots: Sequence[_Spot], heading: str, legend: str) -> None:
        levels = 1 + max((spot.level for spot in spots), default=0)
        self.widths = [120] * levels
        gaps = [0] * (levels + 1)
        for spot in spots:
            first_line = len(_title(spot)) * 1.15 + len(_note(spot)) + 2
            longest = max(first_line, len("".join(_name_texts(spot.box))))
            self.widths[spot.level] = max(self.widths[spot.level], round(longest * CHARACTER_WIDTH) + 26)
            gaps[spot.level] = max(gaps[spot.level], round(len(_flow(spot)) * CHARACTER_WIDTH) + 52)
        self.lefts = [MARGIN]
        for level in range(1, levels):
            self.lefts.append(self.lefts[-1] + self.widths[level - 1] + gaps[level])
        words = max(len(heading) * 1.25, len(legend)) * CHARACTER_WIDTH
        self.width = max(self.lefts[-1] + self.widths[-1], round(words) + MARGIN, 280) + MARGIN
        rows = max((spot.row for spot in spots), default=-1.0)
        self.height = HEAD_HEIGHT + round((rows + 1) * ROW_HEIGHT) + FOOT_HEIGHT

    def top(self, spot: _Spot) -> float:
        return HEAD_HEIGHT + spot.row * ROW_HEIGHT + (ROW_HEIGHT - BOX_HEIGHT) / 2


Children = dict[int | None, list[int]]
"""The boxes below each box, and the roots below None, as places in a list of boxes."""


def _place(boxes: Sequence[Box]) -> list[_Spot]:
    """Leaves take the next row; other boxes are half-way between the first and the last below them."""
    shown = _shown(boxes)
    children = _children(shown)
    levels: list[int] = []
    for box in shown:
        levels.append(0 if box.parent is None else levels[box.parent] + 1)
    rows = [0.0] * len(shown)
    following = 0.0
    for place in _walk(children):
        if shown[place].parent is None and following:
            following += TREE_GAP
        if place not in children:
            rows[place] = following
            following += 1
    for place in range(len(shown) - 1, -1, -1):
        if place in children:
            rows[place] = (rows[children[place][0]] + rows[children[place][-1]]) / 2
    return [_Spot(box, level, row) for box, level, row in zip(shown, levels, rows, strict=True)]


def _shown(boxes: Sequence[Box]) -> list[Box]:
    """The boxes that are drawn, level by level, with a stub wherever some are left out.

    Of many siblings those with the most below them are drawn, in their own order.
    """
    children = _children(boxes)
    beneath = _beneath(boxes)
    shown: list[Box] = []
    layer: list[tuple[int | None, int | None]] = [(None, None)]
    for level in range(MOST_LEVELS + 1):
        following: list[tuple[int | None, int | None]] = []
        for old, new in layer:
            below = children.get(old, [])
            room = MOST_CHILDREN if level < MOST_LEVELS and len(shown) < MOST_BOXES else 0
            kept = sorted(sorted(below, key=lambda place: (-beneath[place], place))[:room])
            for place in kept:
                following.append((place, len(shown)))
                shown.append(replace(boxes[place], parent=new))
            hidden = sum(1 + beneath[place] for place in set(below) - set(kept))
            if hidden:
                shown.append(Box(f"… {hidden:,} more", (), parent=new, is_stub=True))
        layer = following
    return shown


def _children(boxes: Sequence[Box]) -> Children:
    children: Children = {}
    for place, box in enumerate(boxes):
        children.setdefault(box.parent, []).append(place)
    return children


def _walk(children: Children) -> Iterator[int]:
    stack = list(reversed(children.get(None, [])))
    while stack:
        place = stack.pop()
        yield place
        stack.extend(reversed(children.get(place, [])))


def _beneath(boxes: Sequence[Box]) -> list[int]:
    """The number of boxes below each."""
    counts = [0] * len(boxes)
    for place in range(len(boxes) - 1, -1, -1):
        parent = boxes[place].parent
        if parent is not None:
            counts[parent] += counts[place] + 1
    return counts


def _edge(plan: _Plan, above: _Spot, spot: _Spot) -> str:
    """An elbow with round corners from the right of a box to the left of one below it."""
    left = plan.lefts[spot.level]
    right = plan.lefts[above.level] + plan.widths[above.level]
    y1, y2 = (plan.top(end) + BOX_HEIGHT / 2 for end in (above, spot))
    bend = min(10.0, abs(y2 - y1) / 2)
    turn = bend if y2 > y1 else -bend
    middle = right + 16
    path = (
        f"M{right},{y1:.1f} H{middle - bend:.1f} Q{middle},{y1:.1f} {middle},{y1 + turn:.1f} "
        f"V{y2 - turn:.1f} Q{middle},{y2:.1f} {middle + bend:.1f},{y2:.1f} H{left}"
    )
    words = f'<text class="flow" x="{middle + 12}" y="{y2 - 5:.1f}">{escape(_flow(spot))}</text>'
    return (
        f'<g><title>{escape(spot.box.details)}</title><path class="edge" d="{path}"/>'
        f"{words if spot.box.flow else ''}</g>"
    )


def _box(plan: _Plan, spot: _Spot) -> str:
    box = spot.box
    left, top = plan.lefts[spot.level], plan.top(spot)
    classes = "stub" if box.is_stub else "fresh" if box.is_fresh else "noted" if box.note else "plain"
    width = plan.widths[spot.level]
    title = f'<text class="title" x="{left + 12}" y="{top + 19:.1f}">{escape(_title(spot))}</text>'
    note = (
        f'<text class="note" x="{left + width - 10}" y="{top + 19:.1f}" text-anchor="end">'
        f"{escape(_note(spot))}</text>"
    )
    return (
        f'<g class="{classes}"><title>{escape(_details(box))}</title>'
        f'<rect class="box" x="{left}" y="{top:.1f}" width="{width}" height="{BOX_HEIGHT}" rx="7"/>'
        f"{title}{note if box.note else ''}{_names(box, left + 12, top + 36)}</g>"
    )


def _names(box: Box, x: float, y: float) -> str:
    """The names, the marked one first and bold with a dot before it."""
    marked, others = _name_texts(box)
    first = f'<tspan class="marked">{escape(marked)}</tspan>' if marked else ""
    return f'<text class="line" x="{x}" y="{y:.1f}">{first}{escape(others)}</text>' if box.names else ""


def _name_texts(box: Box) -> tuple[str, str]:
    """The marked name and the rest, cut to a line's length, with a count of what is not shown."""
    marked = "" if box.marked is None else f"● {shorten(clean(box.marked), NAME_CHARACTERS)}"
    others = fit([name for name in box.names if name != box.marked], LINE_CHARACTERS - len(marked), 0)
    return marked, (", " if marked and others else "") + others


def _title(spot: _Spot) -> str:
    return shorten(clean(spot.box.title), TITLE_CHARACTERS)


def _note(spot: _Spot) -> str:
    return shorten(clean(spot.box.note), NOTE_CHARACTERS)


def _flow(spot: _Spot) -> str:
    return shorten(clean(spot.box.flow), FLOW_CHARACTERS)


def _details(box: Box) -> str:
    """The tooltip: the box's texts in full."""
    names = ", ".join(box.names[:MOST_NAMES])
    more = f" and {len(box.names) - MOST_NAMES:,} more" if len(box.names) > MOST_NAMES else ""
    return "; ".join(filter(None, [box.details or box.title, names + more]))
