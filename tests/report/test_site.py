"""The page as text: everything shown, everything escaped, written whole or not at all."""

import os
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from antiphon.check.verdict import Verdict, Violation
from antiphon.core.errors import OutputError, UsageError
from antiphon.core.recording import PROPERTIES
from antiphon.report.model import AuditReport, Page, Site, ViolationReport
from antiphon.report.site import render, render_page, write_site
from antiphon.studies.model import Claim, Figure, Panel, Section, Series, Table
from tests.report.samples import sample_site

EVIL = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'&amp;"
VOID = {"meta", "link", "br", "img", "input"}


class Reader(HTMLParser):
    """Tags, attributes and words of a page; complains of elements that are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self.stack: list[str] = []
        self.feed(page)
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


EVIL_CLAIM = Claim(
    id=EVIL,
    paper=EVIL,
    where=EVIL,
    statement=EVIL,
    theirs=EVIL,
    ours=EVIL,
    interval=EVIL,
    verdict="not reproduced",
    condition=EVIL,
    reason=EVIL,
    command=EVIL,
)
EVIL_PANEL = Panel(
    title=EVIL, x_label=EVIL, y_label=EVIL, series=[Series(EVIL, [1], [1]), Series(EVIL, [1], [2])]
)
EVIL_TABLE = Table(title=EVIL, caption=EVIL, columns=[EVIL], rows=[[EVIL]])


def evil_site() -> Site:
    violation = Violation("total", EVIL, EVIL, EVIL, 0, EVIL)
    counts = dict.fromkeys(PROPERTIES, 1)
    shown = [ViolationReport(violation, "", EVIL)]
    return Site(
        EVIL,
        EVIL,
        EVIL,
        [EVIL_CLAIM],
        [Figure(id=EVIL, title=EVIL, caption=EVIL, panels=[EVIL_PANEL])],
        [AuditReport(EVIL, Verdict.FAIL, 1, 1, 1, 1, counts, {"total"}, EVIL, shown, EVIL)],
        [Section(title=EVIL, text=EVIL, tables=[EVIL_TABLE])],
    )


def test_everything_is_on_the_page() -> None:
    site = sample_site()
    reader = Reader(render(site))
    for claim in site.claims:
        for text in (claim.id, claim.statement, claim.theirs, claim.ours, claim.interval, claim.reason):
            assert text in reader.words
        assert claim.command in reader.words
    for audit in site.audits:
        assert audit.title in reader.words
        assert audit.command in reader.words
        for report in audit.violations:
            assert "But " in reader.words
            assert report.diagram_text in reader.words
    for figure in site.figures:
        assert figure.title in reader.words
        assert figure.caption in reader.words
    assert reader.tags.count("svg") == 1 + len(site.figures) + 2


def test_headings_go_down_by_one_and_ids_are_unique() -> None:
    reader = Reader(render(sample_site()))
    levels = [int(tag[1]) for tag in reader.tags if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit()]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = [value for name, value in reader.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    anchors = [value for name, value in reader.attributes if name == "href" and value and value[0] == "#"]
    assert {str(anchor)[1:] for anchor in anchors} <= set(ids)


def test_hostile_texts_are_words_and_nothing_else() -> None:
    reader = Reader(render(evil_site()))
    assert reader.tags.count("script") == 1
    assert "img" not in reader.tags
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    assert reader.words.count(EVIL) >= 20


def test_nothing_on_the_page_is_loaded_from_elsewhere() -> None:
    reader = Reader(render(sample_site()))
    loading = [value for name, value in reader.attributes if name in ("src", "href", "xlink:href", "action")]
    assert all(value is not None and value.startswith(("#", "data:")) for value in loading)


def test_counts_stand_above_the_scoreboard() -> None:
    words = Reader(render(sample_site())).words
    assert "1 reproduced, 1 not reproduced, 1 not measured" in words
    assert "350\u202f024" in words


def test_more_violations_than_are_shown_are_said() -> None:
    audit = sample_site().audits[0]
    busy = replace(audit, counts={**audit.counts, "total": 2000})
    assert "1 of 2\u202f000 violations are shown." in Reader(render(Site(audits=[busy]))).words


def test_an_empty_report_is_a_page_too() -> None:
    words = Reader(render(Site())).words
    assert "Nothing was measured yet." in words


def test_equal_sites_give_equal_pages() -> None:
    assert render(sample_site()) == render(sample_site())


@pytest.mark.parametrize("svg", ["<svg", "<p>no</p>", "<svg/><script/>"])
def test_a_diagram_that_is_no_svg_is_refused(svg: str) -> None:
    audit = sample_site().audits[0]
    shown = [replace(audit.violations[0], diagram_svg=svg)]
    with pytest.raises(UsageError, match="diagram"):
        render(Site(audits=[replace(audit, violations=shown)]))


def test_the_page_is_written_into_a_new_folder_and_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert write_site(Site(title="first"), folder) == folder / "index.html"
    write_site(Site(title="second"), folder)
    assert "second" in (folder / "index.html").read_text(encoding="utf-8")
    assert [path.name for path in folder.iterdir()] == ["index.html"]


def test_a_folder_that_cannot_be_written_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot be written") as caught:
        write_site(Site(), tmp_path / "file")
    assert caught.value.hint


def test_an_interrupt_leaves_the_former_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_site(Site(title="former"), tmp_path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_site(Site(title="latter"), tmp_path)
    assert "former" in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


TWO_PANELS = Figure(
    id="5.3",
    title="Queues",
    caption="over the step",
    panels=[
        Panel(
            title=name,
            x_label="step",
            y_label=unit,
            series=[Series("subset 1", [1, 2], [3, 4], dots=[(1, 2.5)])],
        )
        for name, unit in (("mean queue", "mean"), ("longest queue", "most"))
    ],
)
PAGE = Page(
    "guo",
    "Stability",
    "as published",
    [
        Section(
            title="5.3 Gossip",
            text="A text.\n\nAnother.",
            claims=[Claim(id="G6", paper="Guo", where="5.3", statement="Queues explode.")],
        ),
        Section(title="5.4 Dense", figures=[TWO_PANELS, TWO_PANELS]),
    ],
)


def test_a_page_of_its_own_has_its_sections_claims_and_panels() -> None:
    reader = Reader(render_page(Site(title="Report", pages=[PAGE]), PAGE))
    for text in ("Stability", "as published", "Another.", "G6", "Queues explode.", "(A) mean queue"):
        assert text in reader.words
    assert "(B) longest queue" in reader.words
    assert reader.tags.count("svg") == 4
    ids = [value for name, value in reader.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    anchors = [value for name, value in reader.attributes if name == "href" and value and value[0] == "#"]
    assert {str(anchor)[1:] for anchor in anchors} <= set(ids)


def test_pages_link_to_one_another_and_count(tmp_path: Path) -> None:
    other = Page("large", "Large groups")
    site = Site(title="Report", pages=[PAGE, other])
    write_site(site, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["guo.html", "index.html", "large.html"]
    for path in tmp_path.iterdir():
        reader = Reader(path.read_text(encoding="utf-8"))
        links = [value for name, value in reader.attributes if name == "href" and value and value[0] != "#"]
        assert [link for link in links if not link.startswith("data:")] == [
            "index.html",
            "guo.html",
            "large.html",
        ]
    assert "figures drawn" in Reader((tmp_path / "index.html").read_text(encoding="utf-8")).words


def test_hostile_texts_on_a_page_are_words_and_nothing_else() -> None:
    evil = evil_site()
    several = Figure(id=EVIL, title=EVIL, caption=EVIL, panels=[EVIL_PANEL, EVIL_PANEL])
    section = Section(
        title=EVIL, text=EVIL, tables=[EVIL_TABLE], claims=evil.claims, figures=[several, *evil.figures]
    )
    page = Page("evil", EVIL, EVIL, [section])
    reader = Reader(render_page(Site(title=EVIL, pages=[page]), page))
    assert reader.tags.count("script") == 1
    assert "img" not in reader.tags
    assert not [name for name, _ in reader.attributes if name.startswith("on")]


@pytest.mark.parametrize("name", ["index", "", "../guo", "Guo", "a b", 'x"'])
def test_a_page_needs_a_plain_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no name for a page"):
        write_site(Site(pages=[replace(PAGE, name=name)]), tmp_path)
    assert not list(tmp_path.iterdir())
