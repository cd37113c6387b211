"""Plain words: what is written for people has none of the words that make a reader stop."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FORBIDDEN = re.compile(
    r"\b(whoever|whomever|whom|somebody|anybody|everybody|nobody|of late(?!-)|lately|as it were|"
    r"so many (?!that)|so much longer|so long(?! as)|he|his|him)\b",
    re.IGNORECASE,
)
"""A member is 'it'. A process, a member or a receiver has a name; a number says what it counts."""
QUOTED = re.compile(r"`[^`]*`|\('?Guo, 'Whom-I've-heard-from'\)|\(Guo, 'Whom.*?'\)")
"""Names in code, and the terms of a paper."""
ROOMS = ("antiphon", "docs", "bench", "examples", "tests")
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")


def files() -> Iterator[Path]:
    for room in ROOMS:
        for suffix in ("py", "md"):
            yield from sorted((ROOT / room).rglob(f"*.{suffix}"))
    yield from (ROOT / page for page in PAGES)


def prose(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """The lines of a page, or of a module's comments and sentences: a string of one word is data."""
    if path.suffix == ".md":
        yield from enumerate(text.splitlines(), start=1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_sentence = token.type == tokenize.STRING and " " in token.string
        if is_sentence or token.type == tokenize.COMMENT:
            yield from enumerate(token.string.splitlines(), start=token.start[0])


def found(path: Path, text: str) -> list[str]:
    return [
        f"{path}:{number}: '{match[0]}' in: {line.strip()}"
        for number, line in prose(path, text)
        for match in FORBIDDEN.finditer(QUOTED.sub("", line))
    ]


def test_no_sentence_has_a_forbidden_word() -> None:
    lines = [
        line
        for path in files()
        if path != Path(__file__)
        for line in found(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
    ]
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('"""Whoever was heard lately."""', 2),
        ("x = 1  # nobody waits for so long", 2),
        ('f("He has left.")', 1),
        ('site = "nobody"', 0),
        ("lately = heard(nobody)", 0),
        ('"""The peers of `lately`, for as long as they last."""', 0),
    ],
)
def test_words_are_looked_for_in_sentences_alone(text: str, count: int) -> None:
    assert len(found(Path("x.py"), text)) == count
