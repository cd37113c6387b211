"""A study's page: its sections as the paper has them, whatever became of the runs."""

from antiphon.cli.pages import page_of
from antiphon.studies.guo import DENSE, STUDY
from antiphon.studies.reproduce import judge
from antiphon.studies.results import Results
from tests.studies.imagined import imagine


def test_a_page_has_the_studys_sections_with_claims_tables_and_figures() -> None:
    results = imagine(STUDY, "quick")
    page = page_of(STUDY, results, judge(STUDY, results, "quick"))
    assert (page.name, page.title) == ("guo", STUDY.title)
    assert [section.title for section in page.sections] == [section.title for section in STUDY.sections]
    for shown, section in zip(page.sections, STUDY.sections, strict=True):
        assert [claim.id for claim in shown.claims] == [claim.id for claim in section.claims]
        assert len(shown.tables) == len(section.tables)
        assert len(shown.figures) == len(section.figures)
    figures = {figure.id: figure for section in page.sections for figure in section.figures}
    both, one = figures["5.12"], figures["5.17"]
    assert [panel.title for panel in both.panels] == ["four basic protocols", "in detail"]
    (panel,) = one.panels
    assert [series.name for series in panel.series][:4] == ["CoordP", "FullDist", "Train", "Gossip"]


def test_a_page_without_runs_is_a_page_too() -> None:
    page = page_of(DENSE, Results([]), judge(DENSE, Results([]), "quick"))
    assert {claim.verdict for section in page.sections for claim in section.claims} == {"not measured"}
    figure = page.sections[0].figures[0]
    assert [list(panel.series) for panel in figure.panels] == [[], []]
