"""Figures: drawn alike every time, in the page's colours, whatever the data hold."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from antiphon.core.errors import UsageError
from antiphon.report.figures import INK, _spread
from antiphon.report.figures import draw as draw_panel
from antiphon.studies.model import Panel, Series
from tests.report.samples import sample_site

SVG = "{http://www.w3.org/2000/svg}"


def figure(*series: Series, log: bool = False) -> Panel:
    return Panel(x_label="x", y_label="y", series=series, log_x=log, log_y=log)


def sampled() -> Panel:
    return sample_site().figures[0].panels[0]


def draw(panel: Panel, prefix: str = "figure") -> str:
    return draw_panel(panel, "title", "caption", prefix)


def words(svg: str) -> str:
    return " ".join("".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text"))


def test_equal_data_give_equal_bytes_and_prefixes_keep_ids_apart() -> None:
    data = sampled()
    assert draw(data, "one") == draw(data, "one")
    ids = [set(re.findall(r'id="([^"]+)"', draw(data, prefix))) for prefix in ("one", "two")]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_references_lead_to_ids_of_the_same_figure() -> None:
    svg = draw(sampled(), "one")
    ids = set(re.findall(r'\bid="([^"]+)"', svg))
    references = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))
    assert references
    assert references <= ids


def test_colours_are_the_pages() -> None:
    svg = draw(sampled())
    assert INK not in svg
    assert not re.search(r"#0102f\d", svg)
    assert "currentColor" in svg
    assert {f"var(--series{index})" for index in range(4)} <= set(re.findall(r"var\(--series\d\)", svg))
    assert not re.search(r"(?:fill|stroke): #(?!none)", svg)


def test_axes_and_curves_are_named() -> None:
    said = words(draw(sampled()))
    for name in ("CoordP", "FullDist", "Train", "Gossip", "members", "time per round (s)"):
        assert name in said


def test_a_curve_may_have_a_colour_of_its_own() -> None:
    series = (Series("a", (1, 2), (3, 4), hue=6), Series("b", (1, 2), (3, 4)))
    assert set(re.findall(r"var\(--series\d\)", draw(figure(*series)))) == {
        "var(--series6)",
        "var(--series1)",
    }


def test_whiskers_are_drawn_where_there_are_intervals() -> None:
    bare = draw(figure(Series("a", (1, 2), (3, 4))))
    whiskers = draw(figure(Series("a", (1, 2), (3, 4), (2, 3), (4, 5))))
    assert "LineCollection" not in bare
    assert "LineCollection" in whiskers


def test_what_was_calculated_is_dashed_and_has_no_markers() -> None:
    measured = draw(figure(Series("a", (1, 2), (3, 4))))
    calculated = draw(figure(Series("a", (1, 2), (3, 4), is_calculated=True)))
    assert "stroke-dasharray" not in measured
    assert "stroke-dasharray" in calculated
    assert calculated.count("<use") < measured.count("<use")


def test_single_runs_are_dots_beside_the_curve() -> None:
    bare = draw(figure(Series("a", (1, 2), (3, 4))))
    dotted = draw(figure(Series("a", (1, 2), (3, 4), dots=((1, 2.5), (1, 3.5), (2, math.nan)))))
    assert dotted.count("<use") > bare.count("<use")


@pytest.mark.parametrize(
    "series",
    [
        (),
        (Series("empty", (), ()),),
        (Series("gaps", (1, 2, math.nan), (math.nan, math.inf, 1)), Series("b", (1,), (1,))),
        (Series("negative", (-1, 0), (-5, 0)), Series("b", (-1,), (-math.inf,))),
        (Series("one point", (3,), (1e300,), (0,), (math.inf,)),),
        tuple(Series(f"curve {index}", (1, 2), (index, index)) for index in range(30)),
    ],
    ids=lambda series: str(len(series)),
)
@pytest.mark.parametrize("log", [False, True])
def test_odd_data_are_drawn_all_the_same(series: Sequence[Series], log: bool) -> None:
    assert ElementTree.fromstring(draw(figure(*series, log=log))).tag == f"{SVG}svg"


@pytest.mark.parametrize("name", ["$x_{", "<b>&", "a\x00b", "$$", "\\frac", 'id="x" #010203', "-->"])
def test_hostile_names_are_words_and_nothing_else(name: str) -> None:
    series = (Series(name, (1,), (1,)), Series("b", (1,), (2,)))
    svg = draw_panel(Panel(x_label=name, y_label=name, series=series), name, name)
    assert words(svg).count(name.replace("\x00", "\\u0000")) == 3
    assert ElementTree.fromstring(svg).findtext(f"{SVG}title") == name.replace("\x00", "\\u0000")


@pytest.mark.parametrize(
    "series",
    [Series("a", (1, 2), (1,)), Series("a", (1,), (1,), (1,)), Series("a", (1,), (1,), (1,), (1, 2))],
)
def test_uneven_series_are_refused(series: Series) -> None:
    with pytest.raises(UsageError, match="uneven"):
        draw(figure(series))


def test_names_are_spread_apart_within_the_axes() -> None:
    spread = _spread([0.5, 0.5, 0.5, 0.99, 1.0], 0.1)
    assert all(upper - lower >= 0.0999 for lower, upper in pairwise(spread))
    assert 0 <= spread[0] <= spread[-1] <= 1
    assert _spread([0.2, 0.8]) == [0.2, 0.8]
