"""The pages of an audit in a real browser: they filter, zoom, walk along the witness and show causality."""

import re
from pathlib import Path
from typing import get_args

import pytest
from playwright.sync_api import Page, expect

from tests.report.conftest import Scheme, Visitor
from tests.report.test_audit_pages import pages, report, write_choirs, write_evil
from tests.report.test_page import LOW_CONTRAST, SIDEWAYS_EXCESS, STICKING_OUT

pytestmark = pytest.mark.browser

VIEW_WIDTH = "Number(document.querySelector('.stage svg').getAttribute('viewBox').split(' ')[2])"
ROWS = ".stage [data-item]:not(.gap)"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    return report(write_choirs(folder / "t"), folder / "r")


@pytest.fixture(scope="module")
def violations(index: Path) -> dict[str, Path]:
    """The pages of violations by the property that they break."""
    titles = {path: re.search("<h1>(.+?) violated</h1>", path.read_text()) for path in pages(index)}
    return {found[1]: path for path, found in titles.items() if found is not None}


def view_box(page: Page) -> list[float]:
    return [float(word) for word in (page.locator(".stage svg").get_attribute("viewBox") or "").split()]


def lit(page: Page, kin: str) -> set[str]:
    """The labels of the rows that stand in a relation to the chosen message."""
    return {text[2:] for text in page.locator(f".stage [data-item].{kin} text").all_text_contents()}


@pytest.mark.parametrize("scheme", get_args(Scheme))
@pytest.mark.parametrize("width", [320, 1280])
def test_the_pages_fit_and_can_be_read(
    visitor: Visitor, index: Path, violations: dict[str, Path], scheme: Scheme, width: int
) -> None:
    for path in (index, violations["Causal order"]):
        page = visitor.open(path, width, 740, scheme)
        page.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
        assert visitor.console == []
        assert visitor.requests == [path.as_uri()]
        assert page.evaluate(SIDEWAYS_EXCESS) == 0
        assert page.evaluate(STICKING_OUT) == []
        assert page.evaluate(LOW_CONTRAST) == []


def test_a_click_lights_up_the_causal_past_and_future(visitor: Visitor, violations: dict[str, Path]) -> None:
    page = visitor.open(violations["Causal order"])
    page.locator(".stage [data-item]", has_text="send b:0").click()
    assert lit(page, "self") == {"send b:0", "deliver b:0"}
    assert lit(page, "past") == {"send a:0", "deliver a:0"}
    assert lit(page, "future") == {"send c:0", "deliver c:0"}
    assert lit(page, "apart") == {"nd a:1"}, "a1 is concurrent, and has no sign before its label"
    expect(page.locator(".said")).to_contain_text(
        "1 precede it, 1 follow it, 1 are concurrent, of the messages shown here."
    )
    expect(page.locator(".kin .past")).to_have_text("a:0")
    expect(page.locator(".kin .future")).to_have_text("c:0")
    page.click("button[data-do=clear]")
    expect(page.locator(".kin")).to_be_hidden()
    assert lit(page, "past") == set()
    assert visitor.console == []


def test_the_witness_is_walked_with_buttons_and_keys(visitor: Visitor, violations: dict[str, Path]) -> None:
    page = visitor.open(violations["Total order"])
    steps = page.locator(".steps button")
    count = steps.count()
    assert count == 4
    seen = []
    for _ in range(count):
        page.click("button[data-do=next]")
        seen.append(page.locator(".steps [aria-current=step]").inner_text())
        expect(page.locator(".stage .current")).to_have_count(1)
    assert seen == steps.all_inner_texts()
    page.locator(".stage svg").press("p")
    expect(steps.nth(count - 2)).to_have_attribute("aria-current", "step")
    page.locator(".stage svg").press("n")
    page.locator(".stage svg").press("n")
    expect(steps.nth(0)).to_have_attribute("aria-current", "step")
    steps.nth(2).click()
    site, label = steps.nth(2).inner_text().split(": ", 1)
    expect(page.locator(".said")).to_contain_text(f"{label} at {site}, step")


def test_filters_take_rows_and_columns_away(visitor: Visitor, violations: dict[str, Path]) -> None:
    page = visitor.open(violations["Total order"])
    before = page.locator(ROWS).count()
    page.uncheck("input[name=kind][value=send]")
    expect(page.locator(".stage .send")).to_have_count(0)
    assert page.locator(ROWS).count() == before - 4
    names = page.locator(".stage .name")
    heads = names.count()
    page.locator(".members label", has_text="bass").locator("input").uncheck()
    expect(names).to_have_count(heads - 1)
    page.select_option("select[name=show]", "witness")
    assert page.locator(ROWS).count() <= 4
    page.click("button[data-all=no]")
    expect(page.locator(ROWS)).to_have_count(0)
    expect(page.locator(".count")).to_have_text(f"0 of {before} rows shown")
    page.click("button[data-do=next]")
    expect(page.locator(".stage .current")).to_have_count(1)  # a step brings its row back
    page.click("button[data-all=yes]")
    page.select_option("select[name=show]", "all")
    page.check("input[name=kind][value=send]")
    expect(page.locator(ROWS)).to_have_count(before)


def test_the_picture_zooms_and_moves(visitor: Visitor, violations: dict[str, Path]) -> None:
    page = visitor.open(violations["Total order"], 900, 700)
    stage = page.locator(".stage svg")
    stage.press("0")
    whole = view_box(page)
    for _ in range(4):
        page.click("button[data-do=in]")
    near = view_box(page)
    assert near[2] < whole[2]
    assert near[3] < whole[3]
    stage.press("Shift+ArrowRight")
    assert view_box(page)[0] > near[0]
    stage.press("-")
    assert view_box(page)[2] > near[2]
    for _ in range(4):
        stage.press("+")
    stage.scroll_into_view_if_needed()
    box = stage.bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    before = view_box(page)
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] - 80, middle[1] - 50, steps=4)
    page.mouse.up()
    after = view_box(page)
    assert after[0] > before[0]
    assert after[1] > before[1]
    expect(page.locator(".kin")).to_be_hidden()  # a drag is no click
    page.keyboard.down("Control")
    page.mouse.wheel(0, 300)
    page.keyboard.up("Control")
    page.wait_for_function(f"{VIEW_WIDTH} > {after[2]}")


def test_rows_are_reached_by_arrow_keys(visitor: Visitor, violations: dict[str, Path]) -> None:
    page = visitor.open(violations["Causal order"])
    stage, said = page.locator(".stage svg"), page.locator(".said")
    stage.press("ArrowDown")
    first = said.inner_text()
    assert "at " in first
    assert "step" in first
    site = first.split(" at ")[1].split(",")[0]
    stage.press("ArrowDown")
    expect(said).not_to_have_text(first)
    expect(said).to_contain_text(f" at {site},")
    stage.press("ArrowLeft")
    expect(said).not_to_contain_text(f" at {site},")
    stage.press("Enter")
    expect(page.locator(".kin")).to_be_visible()
    stage.press("Escape")
    expect(page.locator(".kin")).to_be_hidden()
    unreachable = "[...document.querySelectorAll('a, button, select, summary, input, .scroll')]"
    assert page.evaluate(f"{unreachable}.filter((e) => e.tabIndex < 0).length") == 0


def test_runs_are_filtered_and_violations_are_reached(visitor: Visitor, index: Path) -> None:
    page = visitor.open(index)
    rows = "[...document.querySelectorAll('.runs tbody tr')]"
    shown = f"{rows}.filter((row) => row.offsetHeight).map((row) => row.dataset.run)"
    page.select_option("select[name=verdict]", "unknown")
    assert page.evaluate(shown) == ["unsent"]
    page.select_option("select[name=verdict]", "")
    page.fill("input[name=run]", "CH")
    assert page.evaluate(shown) == ["chain", "choir"]
    expect(page.locator(".run-filters output")).to_have_text("2 of 5 runs shown")
    page.locator(".card a").first.click()
    page.wait_for_url("**/violation-1.html")
    page.locator(".pages a", has_text="Next violation").click()
    page.wait_for_url("**/violation-2.html")
    page.locator(".pages a", has_text="All verdicts").click()
    page.wait_for_url(index.as_uri())


def test_hostile_names_do_nothing(visitor: Visitor, tmp_path: Path) -> None:
    index = report(write_evil(tmp_path / "t"), tmp_path / "r")
    for path in (index, *pages(index)):
        page = visitor.open(path, 360, 740)
        if path != index:
            page.click("button[data-do=next]")
            page.locator(".stage svg").press("Enter")
            expect(page.locator(".said")).to_contain_text("<script>alert(1)</script>")
        assert visitor.console == []
        assert visitor.requests == [path.as_uri()]
        assert page.evaluate("document.querySelectorAll('img').length") == 0
        assert page.evaluate(SIDEWAYS_EXCESS) == 0
