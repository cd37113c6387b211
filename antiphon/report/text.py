"""The plain-text space-time diagram: a column per member, a line per event, within a given width.

The explanation comes first. Where the columns are narrow, the first of several wordings that fits is used:
whole words, three letters, single signs; then the same with letters for the members' names, and a key. If
none fits, the events are listed one below the other, each with its member. Widths count characters, so names
in double-width scripts make ragged columns.
"""

import textwrap
from collections.abc import Mapping
from typing import Final

from antiphon.core.ids import Site
from antiphon.report.diagram import Diagram, Item, ItemKind, message_range
from antiphon.report.escape import argument_lines, clean, shorten

WORDS: Final[dict[ItemKind, str]] = {
    "present": "present",
    "absent": "absent",
    "send": "send ",
    "receive": "receive ",
    "deliver": "deliver ",
    "stable": "stable ",
    "discard": "discard ",
    "missing": "never delivers ",
}
SHORT: Final[dict[ItemKind, str]] = {
    "present": "pre",
    "absent": "abs",
    "send": "snd ",
    "receive": "rcv ",
    "deliver": "dlv ",
    "stable": "stb ",
    "discard": "dsc ",
    "missing": "no ",
}
SIGNS: Final[dict[ItemKind, str]] = {
    "present": "(",
    "absent": ")",
    "send": ">",
    "receive": "<",
    "deliver": "=",
    "stable": "#",
    "discard": "~",
    "missing": "?",
}
WITNESS_SIGN: Final = "*"
COLUMN_GAP: Final = 2


def to_text(diagram: Diagram, width: int = 110) -> str:
    """Draw the diagram in at most `width` columns (at least 20 are used)."""
    width = max(width, 20)
    lines = _wrapped(diagram.title, width) + [
        piece for line in argument_lines(diagram.explanation) for piece in _wrapped(line, width)
    ]
    lines.append("")
    lines += _body(diagram, width)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def item_label(item: Item, words: Mapping[ItemKind, str], names: Mapping[Site, str]) -> str:
    """An event's label: its verb and its messages, `a:3` or `a:3..9` for a batch."""
    if item.kind == "gap":
        return f"… {hidden_rows(item.hidden)}" if words is WORDS else f"…{item.hidden}"
    if item.message is not None:
        return f"{words[item.kind]}{_name(item.message.sender, names)}:{item.message.number}"
    covered = message_range(item.event) if item.event is not None else None
    if covered is None:
        return words[item.kind].rstrip()
    sender, first, last = covered
    numbers = str(first) if first == last else f"{first}..{last}"
    return f"{words[item.kind]}{_name(sender, names)}:{numbers}"


def hidden_rows(count: int) -> str:
    """How many rows are left out, in words."""
    return "1 row" if count == 1 else f"{count:,} rows"


def _name(site: Site, names: Mapping[Site, str]) -> str:
    return names.get(site) or clean(site)


def _wrapped(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, break_long_words=True) or [""]


def _body(diagram: Diagram, width: int) -> list[str]:
    if not diagram.items:
        return _wrapped("None of the rows concerned is in this trace.", width)
    plain: dict[Site, str] = {}
    letters = _letters(diagram)
    candidates: list[tuple[Mapping[ItemKind, str], Mapping[Site, str]]] = [
        (WORDS, plain),
        (SHORT, plain),
        (SIGNS, plain),
        (WORDS, letters),
        (SHORT, letters),
        (SIGNS, letters),
    ]
    for words, names in candidates:
        column_width = _column_width(diagram, words, names)
        if len(diagram.sites) * (column_width + COLUMN_GAP) - COLUMN_GAP <= width:
            return _columns(diagram, words, names, column_width) + _key(diagram, words, names, width)
    return _listing(diagram, width) + _key(diagram, WORDS, plain, width)


def _letters(diagram: Diagram) -> dict[Site, str]:
    """A, B, … AA, AB for the members shown and, after them, for senders without a column."""
    names = dict.fromkeys(diagram.sites)
    for item in diagram.items:
        if item.message is not None:
            names[item.message.sender] = None
        elif item.event is not None and (covered := message_range(item.event)) is not None:
            names[covered[0]] = None
    return {site: _letter(index) for index, site in enumerate(names)}


def _letter(index: int) -> str:
    return ("" if index < 26 else _letter(index // 26 - 1)) + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index % 26]


def _cell(item: Item, words: Mapping[ItemKind, str], names: Mapping[Site, str]) -> str:
    return (WITNESS_SIGN if item.emphasis == "witness" else "") + item_label(item, words, names)


def _column_width(diagram: Diagram, words: Mapping[ItemKind, str], names: Mapping[Site, str]) -> int:
    cells = [_cell(item, words, names) for item in diagram.items]
    return max(map(len, [*cells, *(_name(site, names) for site in diagram.sites)]))


def _columns(
    diagram: Diagram, words: Mapping[ItemKind, str], names: Mapping[Site, str], width: int
) -> list[str]:
    spacing = " " * COLUMN_GAP
    lines = [spacing.join(_name(site, names).ljust(width) for site in diagram.sites)]
    for shared in _shared_lines(diagram):
        cells = dict.fromkeys(range(len(diagram.sites)), ".")
        for item in shared:
            cells[item.column] = _cell(item, words, names)
        lines.append(spacing.join(cell.ljust(width) for cell in cells.values()))
    return lines


def _shared_lines(diagram: Diagram) -> list[list[Item]]:
    """One item per line, except that gaps at the same level share a line."""
    lines: list[list[Item]] = []
    for item in diagram.items:
        last = lines[-1][-1] if lines else None
        if (
            last is not None
            and item.kind == "gap"
            and (last.kind, last.level, last.column < item.column) == ("gap", item.level, True)
        ):
            lines[-1].append(item)
        else:
            lines.append([item])
    return lines


def _listing(diagram: Diagram, width: int) -> list[str]:
    margin = min(max(len(clean(site)) for site in diagram.sites), width // 3)
    lines = []
    for item in diagram.items:
        site = shorten(clean(diagram.sites[item.column]), margin).ljust(margin)
        lines.append(shorten(f"{site}  {_cell(item, WORDS, {})}", width))
    return lines


def _key(diagram: Diagram, words: Mapping[ItemKind, str], names: Mapping[Site, str], width: int) -> list[str]:
    """The meaning of the signs and letters that the diagram uses."""
    entries = []
    if any(item.emphasis == "witness" for item in diagram.items):
        entries.append(f"{WITNESS_SIGN} in the witness")
    if words is not WORDS:
        used = {item.kind for item in diagram.items}
        entries += [f"{words[kind].strip()} {WORDS[kind].strip()}" for kind in words if kind in used]
    lines = _wrapped(", ".join(entries), width) if entries else []
    lines += [shorten(f"{letter} is {clean(site)}", width) for site, letter in names.items()]
    return ["", *lines] if lines else []
