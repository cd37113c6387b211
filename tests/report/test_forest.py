"""A forest as SVG: well-formed whatever the names hold, readable, and bounded however large the forest is."""

from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pytest

from antiphon.report.forest import MOST_BOXES, MOST_CHILDREN, MOST_LEVELS, Box, fit, forest_to_svg
from tests.report.conftest import Visitor
from tests.report.test_drawing import HOSTILE

SVG = "{http://www.w3.org/2000/svg}"


def boxes_of(parents: list[int | None]) -> list[Box]:
    return [
        Box(f"<{place}>", (f"s{place}", f"t{place}"), marked=f"s{place}", flow="A, (B)", parent=parent)
        for place, parent in enumerate(parents)
    ]


def rectangles(svg: str) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of every box."""
    found = []
    for node in ElementTree.fromstring(svg).iter(f"{SVG}rect"):
        if node.get("class") == "box":
            left, top, width, height = (float(node.get(name, "")) for name in ("x", "y", "width", "height"))
            found.append((left, top, left + width, top + height))
    return found


def test_every_box_is_drawn_with_its_title_its_names_and_what_flows_there() -> None:
    boxes = boxes_of([None, 0, 0, 1])
    texts = [
        " ".join("".join(text.itertext()).split())
        for text in ElementTree.fromstring(forest_to_svg(boxes, "Four")).iter(f"{SVG}text")
    ]
    for box in boxes:
        assert box.title in texts
        assert f"● {box.names[0]}, {box.names[1]}" in texts
    assert texts.count("A, (B)") == 3
    assert texts[0] == "Four"


def test_boxes_never_overlap_and_stay_within_the_picture() -> None:
    random = Random(5)
    for size in (1, 2, 5, 20, 60):
        parents = [None if place < 2 else random.choice([None, *range(place)]) for place in range(size)]
        svg = forest_to_svg(boxes_of(parents), "Random")
        width, height = (float(ElementTree.fromstring(svg).get(side, "")) for side in ("width", "height"))
        drawn = rectangles(svg)
        assert len(drawn) >= min(size, MOST_CHILDREN)
        for place, (left, top, right, bottom) in enumerate(drawn):
            assert 0 <= left < right <= width
            assert 0 <= top < bottom <= height
            for other in drawn[:place]:
                assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top


def test_a_large_forest_is_cut_and_says_by_how_much() -> None:
    wide = forest_to_svg(boxes_of([None, *[0] * 500]), "Wide")
    assert len(rectangles(wide)) == 1 + MOST_CHILDREN + 1
    assert f"… {500 - MOST_CHILDREN} more" in wide
    deep = forest_to_svg(boxes_of([None, *range(2_000)]), "Deep")
    assert len(rectangles(deep)) == MOST_LEVELS + 1
    assert f"… {2_001 - MOST_LEVELS:,} more" in deep
    random = Random(6)
    large = forest_to_svg(boxes_of([None, *(random.randrange(place) for place in range(1, 5_000))]), "Large")
    assert len(rectangles(large)) < 2 * (MOST_BOXES + MOST_CHILDREN)


def test_of_many_siblings_those_with_the_most_below_them_are_drawn() -> None:
    svg = forest_to_svg(boxes_of([None, *[0] * 100, 100, 101]), "Busy at the end")
    assert ">&lt;100&gt;<" in svg
    assert ">&lt;99&gt;<" not in svg


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name: str) -> None:
    box = Box(name, (name, "other"), marked=name, note=name, flow=name, details=name)
    root = ElementTree.fromstring(forest_to_svg([box, Box(name, (), parent=0, flow=name)], name, name))
    assert root.get("class") == "forest"
    assert not list(root.iter(f"{SVG}script"))


def test_an_empty_forest_is_a_picture_too() -> None:
    assert rectangles(forest_to_svg([], "Nothing")) == []


def test_lists_are_cut_with_a_count() -> None:
    assert fit(["alto", "bass", "tenor"], 40) == "alto, bass, tenor"
    assert fit(["alto", "bass", "tenor"], 10) == "alto, bass, +1"
    assert fit(["a-name-far-beyond-any-width", "bass"], 5) == "a-name-far…any-width, +1"
    assert fit(["alto", "bass"], -3, least=0) == "+2"
    assert fit([], 10) == ""


@pytest.mark.browser
def test_text_fits_its_box_in_a_browser(tmp_path: Path, visitor: Visitor) -> None:
    boxes = [
        Box(
            "<" + "W" * 40 + ">",
            ("host-with-a-long-name.example", "b", "c"),
            marked="b",
            note="primary of " + "M" * 60,
        ),
        Box("<A>", tuple(f"s{place}" for place in range(40)), marked="s1", parent=0, flow="G" * 50),
    ]
    picture = tmp_path / "forest.svg"
    picture.write_text(forest_to_svg(boxes, "Long names", "A legend"), encoding="utf-8")
    page = visitor.open(picture)
    assert visitor.console == []
    overflow = page.evaluate(
        "[...document.querySelectorAll('g')].filter(g => g.querySelector('.box')).map(g => {"
        " const box = g.querySelector('.box').getBBox();"
        " return [...g.querySelectorAll('text')].some(t => { const b = t.getBBox();"
        " return b.x < box.x || b.x + b.width > box.x + box.width + 0.5; }); })"
    )
    assert overflow == [False, False]
