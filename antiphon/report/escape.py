"""Text from a trace or a user, made safe to show.

Names come from other programs' logs. Control characters, lone surrogates and characters that reorder a line
are shown as their code point: XML forbids some of them, and all of them can falsify what a reader sees.
"""

import re
from html import escape as escape_markup
from typing import Final
from unicodedata import category

LONGEST_WORD: Final = 256
"""A longer word of an explanation, such as a name of a megabyte, loses its middle. Raising it costs lines."""
_ENDLESS: Final = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


def clean(text: str) -> str:
    """The text on one line, with unprintable characters as their code points.

    >>> clean("a\\nb")
    'a\\\\u000ab'
    """
    if text.isprintable():
        return text
    return "".join(character if _harmless(character) else _spelled(character) for character in text)


def clean_lines(text: str) -> list[str]:
    """The text's lines, each of them clean."""
    return [clean(line) for line in text.replace("\r\n", "\n").replace("\t", " ").split("\n")]


def argument_lines(explanation: str) -> list[str]:
    """An explanation with a line for each step of its argument: let this be so; because; but.

    >>> argument_lines("Let a be. Because of b, c. But d: a contradiction.")
    ['Let a be.', 'Because of b, c.', 'But d: a contradiction.']
    """
    shown = _ENDLESS.sub(lambda found: shorten(found[0], LONGEST_WORD), explanation)
    return [clean(line) for line in re.split(r"(?<=\.) (?=(?:Because|But) )", shown)]


def escape(text: str) -> str:
    """The text as the content of an element or of a quoted attribute, in HTML and in SVG."""
    return escape_markup(clean(text), quote=True)


def shorten(text: str, width: int) -> str:
    """The text within `width` characters; a longer one loses its middle, since both ends identify it.

    >>> shorten("frankfurt-17", 8)
    'fran…-17'
    """
    if len(text) <= width:
        return text
    if width <= 1:
        return text[: max(width, 0)]
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + "…" + (text[-tail:] if tail else "")


def _harmless(character: str) -> bool:
    return character.isprintable() or category(character) == "Zs"


def _spelled(character: str) -> str:
    return f"\\u{ord(character):04x}"
