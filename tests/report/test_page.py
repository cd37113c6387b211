"""The report in a real browser: it renders, filters, fits a phone and can be read in the dark."""

from pathlib import Path
from typing import get_args

import pytest
from playwright.sync_api import expect

from antiphon.report.model import Site
from antiphon.report.picture import picture
from antiphon.report.site import write_site
from tests.report.conftest import Scheme, Visitor
from tests.report.samples import sample_site
from tests.report.test_site import PAGE, evil_site

pytestmark = pytest.mark.browser

# Every element with words of its own against the nearest opaque ground behind it, as WCAG computes it.
LOW_CONTRAST = """
(() => {
  const brush = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const channels = (colour) => {
    brush.clearRect(0, 0, 1, 1);
    brush.fillStyle = colour;
    brush.fillRect(0, 0, 1, 1);
    return [...brush.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (colour) => {
    const [r, g, b] = channels(colour).slice(0, 3).map((c) => {
      const share = c / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let node = element; node; node = node.parentElement) {
      const paper = node.querySelector(":scope > rect.paper");
      if (paper) return getComputedStyle(paper).fill;
      const colour = getComputedStyle(node).backgroundColor;
      if (channels(colour)[3] === 255) return colour;
    }
    return "white";
  };
  const low = [];
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || element.closest("script, style, title, desc, [hidden], .skip")) continue;
    if (!element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const ink = element instanceof SVGElement ? style.fill : style.color;
    const pair = [luminance(ink), luminance(ground(element))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    const words = element.textContent.trim().slice(0, 40);
    if (ratio < 4.5) low.push(`${element.tagName} ${words} ${ratio.toFixed(2)}`);
  }
  return low;
})()
"""

SIDEWAYS_EXCESS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
STICKING_OUT = """
[...document.querySelectorAll("main *")]
  .filter((element) => !element.closest(".scroll, pre, svg"))
  .filter((element) => element.getBoundingClientRect().right > innerWidth + 0.5)
  .map((element) => element.outerHTML.slice(0, 80))
"""
RESTING_MS = 1600
"""How long a copy button keeps its answer (page.js)."""
VISIBLE_ROWS = "[...document.querySelectorAll('.claims tbody tr')].filter((row) => row.offsetHeight > 0)"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_site(sample_site(), tmp_path_factory.mktemp("report"))


def test_the_page_says_nothing_on_the_console_and_asks_for_nothing(visitor: Visitor, report: Path) -> None:
    page = visitor.open(report)
    assert page.evaluate("document.title") == "Antiphon: Many voices, one order"
    assert visitor.console == []
    assert visitor.requests == [report.as_uri()]


@pytest.mark.parametrize("width", [320, 360, 768, 820, 960, 1280])
def test_nothing_sticks_out_sideways(visitor: Visitor, report: Path, width: int) -> None:
    page = visitor.open(report, width, 740)
    page.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    assert page.evaluate(SIDEWAYS_EXCESS) == 0
    assert page.evaluate(STICKING_OUT) == []


@pytest.mark.parametrize("scheme", get_args(Scheme))
@pytest.mark.parametrize("width", [360, 1280])
def test_every_word_can_be_read(visitor: Visitor, report: Path, scheme: Scheme, width: int) -> None:
    page = visitor.open(report, width, 740, scheme)
    page.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    assert page.evaluate(LOW_CONTRAST) == []


def test_the_schemes_differ(visitor: Visitor, report: Path) -> None:
    grounds = []
    for scheme in get_args(Scheme):
        page = visitor.open(report, scheme=scheme)
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(250, 248, 244)", "rgb(18, 21, 26)"]


def test_the_scoreboard_filters_by_paper_and_verdict(visitor: Visitor, report: Path) -> None:
    page = visitor.open(report)
    assert page.evaluate(f"{VISIBLE_ROWS}.length") == 5
    page.select_option("select[name=paper]", "Guo")
    assert page.evaluate(f"{VISIBLE_ROWS}.map((row) => row.cells[0].textContent)") == ["G13", "G14", "G17"]
    page.select_option("select[name=verdict]", "not reproduced")
    assert page.evaluate(f"{VISIBLE_ROWS}.map((row) => row.cells[0].textContent)") == ["G14"]
    assert page.evaluate("document.querySelector('.filters output').textContent") == "1 of 5 claims shown"
    page.select_option("select[name=paper]", "")
    page.select_option("select[name=verdict]", "")
    assert page.evaluate(f"{VISIBLE_ROWS}.length") == 5


def test_a_filtered_row_stays_hidden_on_a_phone(visitor: Visitor, report: Path) -> None:
    page = visitor.open(report, 360, 740)
    page.select_option("select[name=paper]", "Konorski")
    assert page.evaluate(f"{VISIBLE_ROWS}.map((row) => row.cells[0].textContent)") == ["K1"]


@pytest.mark.parametrize("works", [True, False])
def test_a_command_is_copied_or_at_least_selected(visitor: Visitor, report: Path, works: bool) -> None:
    page = visitor.open(report)
    page.clock.install()  # the answer stays until this clock moves on
    answer = "(window.copied = text, Promise.resolve())" if works else "Promise.reject()"
    page.evaluate(f"void (navigator.clipboard.writeText = (text) => {answer})")
    button = page.locator(".claims .copy").first
    button.click()
    expect(button).to_have_text("Copied" if works else "Selected")
    command = page.locator(".claims .command code").first.inner_text()
    assert page.evaluate("window.copied" if works else "getSelection().toString()") == command
    page.clock.run_for(RESTING_MS)
    expect(button).to_have_text("Copy")
    assert visitor.console == []


def test_figures_and_diagrams_are_visible(visitor: Visitor, report: Path) -> None:
    for width in (360, 1280):
        page = visitor.open(report, width, 740)
        sizes = page.evaluate(
            "[...document.querySelectorAll('svg')].map((svg) => svg.getBoundingClientRect())"
            ".map((box) => [box.width, box.height])"
        )
        assert len(sizes) == 5
        assert all(wide > 200 and high > 80 for wide, high in sizes)
        labels = page.evaluate(
            "[...document.querySelectorAll('.spacetime text')].map((text) => text.firstChild.textContent)"
        )
        assert "deliver tenor:0" in labels
        assert "never delivers alto:1" in labels


def test_a_diagrams_labels_do_not_cover_one_another(visitor: Visitor, report: Path) -> None:
    page = visitor.open(report)
    overlaps = page.evaluate("""
      [...document.querySelectorAll(".spacetime")].flatMap((svg) => {
        const boxes = [...svg.querySelectorAll("text")].map((text) => text.getBoundingClientRect());
        return boxes.flatMap((one, i) => boxes.slice(i + 1).filter((two) =>
          Math.min(one.right, two.right) - Math.max(one.left, two.left) > 1 &&
          Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top) > 3));
      }).length""")
    assert overlaps == 0


def test_plain_text_opens_on_demand(visitor: Visitor, report: Path) -> None:
    page = visitor.open(report)
    words = page.locator(".violation pre").first
    expect(words).to_be_hidden()
    page.click(".violation summary")
    expect(words).to_be_visible()


def test_everything_that_acts_can_be_reached_by_keyboard(visitor: Visitor, report: Path) -> None:
    page = visitor.open(report)
    unreachable = (
        "[...document.querySelectorAll('a, button, select, summary, .scroll')].filter((e) => e.tabIndex < 0)"
    )
    assert page.evaluate(f"{unreachable}.length") == 0


def test_hostile_texts_do_nothing(visitor: Visitor, tmp_path: Path) -> None:
    path = write_site(evil_site(), tmp_path)
    page = visitor.open(path, 360, 740)
    assert page.evaluate("document.querySelectorAll('script').length") == 1
    assert visitor.console == []
    assert visitor.requests == [path.as_uri()]
    assert page.evaluate(SIDEWAYS_EXCESS) == 0


def test_a_script_that_slipped_in_would_not_run(visitor: Visitor, tmp_path: Path, report: Path) -> None:
    planted = tmp_path / "planted.html"
    text = report.read_text(encoding="utf-8").replace("</main>", "<script>window.ran = true</script></main>")
    planted.write_text(text, encoding="utf-8")
    page = visitor.open(planted)
    with page.expect_console_message(lambda message: "Content Security Policy" in message.text):
        page.reload()
    assert page.evaluate("window.ran") is None


@pytest.mark.parametrize("scheme", get_args(Scheme))
def test_the_readmes_picture_can_be_read(visitor: Visitor, tmp_path: Path, scheme: Scheme) -> None:
    (tmp_path / "picture.html").write_text(f"<meta charset=utf-8><body>{picture()}", encoding="utf-8")
    page = visitor.open(tmp_path / "picture.html", 800, 400, scheme)
    assert page.evaluate(LOW_CONTRAST) == []
    assert page.evaluate("document.querySelectorAll('.ring').length") == 5


@pytest.fixture(scope="module")
def study_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_site(Site(pages=[PAGE]), tmp_path_factory.mktemp("pages")).with_name("guo.html")


@pytest.mark.parametrize("width", [360, 1280])
def test_a_studys_page_shows_its_panels_side_by_side_where_there_is_room(
    visitor: Visitor, study_page: Path, width: int
) -> None:
    page = visitor.open(study_page, width, 740)
    assert visitor.console == []
    assert visitor.requests == [study_page.as_uri()]
    assert page.evaluate(SIDEWAYS_EXCESS) == 0
    assert page.evaluate(STICKING_OUT) == []
    assert page.evaluate(LOW_CONTRAST) == []
    tops = page.evaluate(
        "[...document.querySelector('.plate').querySelectorAll('svg')]"
        ".map((svg) => svg.getBoundingClientRect().top)"
    )
    assert len(tops) == 2
    assert (tops[0] == tops[1]) is (width > 1000)


def test_one_gets_from_the_first_page_to_a_study_and_back(visitor: Visitor, study_page: Path) -> None:
    first = study_page.with_name("index.html")
    page = visitor.open(first)
    page.click(".pages a:text-is('Stability')")
    page.wait_for_url(study_page.as_uri())
    page.locator(".pages a").first.click()
    page.wait_for_url(first.as_uri())
