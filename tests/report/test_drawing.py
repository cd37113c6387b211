"""The two drawings of a diagram: plain text within its width, and SVG that is well-formed and can be read."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

from antiphon.check.checkers import check_trace
from antiphon.check.verdict import Violation, Witness
from antiphon.core.recording import Property
from antiphon.report.diagram import layout
from antiphon.report.escape import LONGEST_WORD, argument_lines, clean, escape, shorten
from antiphon.report.picture import picture
from antiphon.report.svg import to_svg
from antiphon.report.text import to_text
from antiphon.trace.schema import Event, Run
from tests.histories import history
from tests.report.samples import BROKEN_CHOIR, LOST_LINE
from tests.strategies import traces

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "<script>alert(1)</script>",
    "a\nb",
    "\x00\x1b[2J",
    "\ud800",
    "\u202eevil",
    "'\"&]]>",
    "-->",
    "",
    " ",
]

STORIES: dict[str, tuple[Property, str, int, int]] = {
    "choir": ("total", BROKEN_CHOIR, 110, 3),
    "choir-narrow": ("total", BROKEN_CHOIR, 38, 1),
    "lost-line": ("atomicity", LOST_LINE, 110, 3),
    "batch": ("fifo", "a: !a0..9 a0..9 !a10\nb: a10 a0..9", 110, 3),
    "stability": ("stability", "a: !a0 a0 =a0 !a1\nb: a1 !b0 a0\nc: a0", 110, 3),
}


def drawn(name: str) -> str:
    broken, text, width, context = STORIES[name]
    events, run, _ = history(text)
    return to_text(layout(events, check_trace(events, run, [broken])[0], context), width)


@pytest.mark.parametrize("name", STORIES)
def test_text_equals_the_golden_diagram(name: str) -> None:
    assert drawn(name) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@settings(max_examples=100)
@given(traces())
def test_text_keeps_its_width_and_svg_is_well_formed(trace: tuple[list[Event], Run]) -> None:
    events, run = trace
    for violation in check_trace(events, run)[:4]:
        diagram = layout(events, violation)
        for width in (20, 60, 110):
            assert max(map(len, to_text(diagram, width).splitlines())) <= width
        assert ElementTree.fromstring(to_svg(diagram)).tag == f"{SVG}svg"


def cycle(members: int, name: str = "s{}", number: int = 0) -> tuple[list[Event], Violation]:
    """A total-order violation that runs through any number of members."""
    sites = [name.format(index) for index in range(members)]
    events = []
    witness = []
    for index, site in enumerate(sites):
        pair = (site, sites[(index + 1) % members])
        events.append(Event("run", site, 0, "send", site, number))
        for step, sender in enumerate(pair, start=1):
            events.append(Event("run", site, step, "deliver", sender, number))
            witness.append(Witness(site, step, sender, number))
    return events, Violation("total", "run", None, sites[0], number, "A cycle.", tuple(witness))


@pytest.mark.parametrize("members", range(2, 13))
def test_two_to_twelve_members_have_columns_in_110(members: int) -> None:
    lines = to_text(layout(*cycle(members))).splitlines()
    assert lines[3].split() == [f"s{index}" for index in range(members)]
    assert max(map(len, lines)) <= 110
    assert sum("*" in line for line in lines[4:]) == 2 * members + 1


def test_long_names_become_letters_with_a_key() -> None:
    text = to_text(layout(*cycle(8, "node-{}.frankfurt.example.org")))
    assert "A is node-0.frankfurt.example.org" in text
    assert "*deliver A:0" in text


def test_more_members_than_columns_are_listed_with_their_names() -> None:
    text = to_text(layout(*cycle(40, number=1234567)), 60)
    assert "s39  *deliver s39:1234567" in text
    assert max(map(len, text.splitlines())) <= 60


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_inside_their_cells(name: str) -> None:
    events = [
        Event("r" + name, name, 0, "send", name, 0, group=name, destinations=(name, "b")),
        Event("r" + name, name, 1, "deliver", name, 0),
        Event("r" + name, name, 2, "deliver", name, 0),
    ]
    witness = (Witness(name, 1, name, 0), Witness(name, 2, name, 0))
    violation = Violation("duplicate", "r" + name, name, name, 0, f"Let {name} be.", witness)
    diagram = layout(events, violation)
    svg = to_svg(diagram)
    svg.encode("utf-8")
    tags = {element.tag for element in ElementTree.fromstring(svg).iter()}
    assert f"{SVG}script" not in tags
    lines = to_text(diagram).splitlines()
    assert all(line.isprintable() for line in lines)
    assert sum("*deliver" in line for line in lines) == 2


def test_svg_names_itself_and_each_mark() -> None:
    events, run, _ = history(BROKEN_CHOIR)
    violation = check_trace(events, run)[0]
    root = ElementTree.fromstring(to_svg(layout(events, violation)))
    assert root.findtext(f"{SVG}title") == "Total order violated in run run"
    assert root.findtext(f"{SVG}desc") == violation.explanation
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert "deliver tenor:0 at soprano, step 0" in titles
    rings = [element for element in root.iter() if element.get("class") == "ring"]
    assert len(rings) == len(violation.witness) + 1
    assert not [element for element in root.iter() if element.get("id")]


def test_the_readmes_picture_is_what_the_code_draws() -> None:
    assert (ROOT / "docs" / "picture.svg").read_text(encoding="utf-8") == picture()


def test_cleaning_spells_out_what_cannot_be_seen() -> None:
    assert clean("a\u00a0b\u202fc") == "a\u00a0b\u202fc"
    assert clean("a\u202eb\x00") == "a\\u202eb\\u0000"
    assert escape("<a href='x'>") == "&lt;a href=&#x27;x&#x27;&gt;"
    name = "m" * 1_000_000
    (line,) = argument_lines(f"Let {name}:0 be delivered to {'x' * LONGEST_WORD}.")
    assert line == f"Let {'m' * 128}…{'m' * 125}:0 be delivered to {'x' * 128}…{'x' * 126}."
    assert [shorten("abcdef", width) for width in (0, 1, 2, 4, 6)] == ["", "a", "a…", "ab…f", "abcdef"]
