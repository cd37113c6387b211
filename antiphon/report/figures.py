"""Panels of figures, drawn by matplotlib as SVG that takes its colours from the page.

The drawing has no background. Axes and words are drawn in `currentColor` and the curves in the custom
properties `--series0` to `--series7`, which the page sets for light and dark schemes: Okabe and Ito's
palette for colour-blind readers, darkened or lightened to contrast with the page. Curves also differ in
their markers, and each is named at its right end; whiskers show intervals, pale dots single runs, dashed
lines calculated values.

Equal data give equal bytes: the ids are seeded by the panel's prefix, and no date is written.
"""

import io
import math
import re
from collections.abc import Sequence
from typing import Any, Final

from antiphon.core.errors import UsageError
from antiphon.core.extras import lacking
from antiphon.report.escape import clean, escape, shorten
from antiphon.studies.model import Panel, Series

WIDTH_INCHES: Final = 4.8
HEIGHT_INCHES: Final = 3.2
SERIES_COLOURS: Final = 8
MARKERS: Final = "os^DvPX*"
NAME_CHARACTERS: Final = 18
INK: Final = "#010203"
"""Placeholder of `currentColor` while matplotlib draws; the curves use #0102f0 to #0102f7."""

SETTINGS: Final[dict[str, Any]] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "text.parse_math": False,
    "text.usetex": False,
}


def draw(panel: Panel, title: str, caption: str, prefix: str = "figure") -> str:
    """A panel as one `<svg>` element, named by `title` and described by `caption` for screen readers.

    `prefix` keeps its ids apart from those of other panels in one page.
    """
    _require_equal_lengths(panel, title)
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise lacking("report", "Figures need") from None
    with mpl.rc_context({**SETTINGS, "svg.hashsalt": prefix}):
        canvas = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained")
        axes = canvas.add_subplot()
        _axes(axes, panel)
        for index, series in enumerate(panel.series):
            _curve(axes, series, index)
        _names(canvas, axes, panel.series)
        written = io.StringIO()
        canvas.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _page_coloured(written.getvalue(), title, caption, prefix)


def _require_equal_lengths(panel: Panel, title: str) -> None:
    for series in panel.series:
        lengths = {
            len(values) for values in (series.x, series.y, series.low, series.high) if values is not None
        }
        if len(lengths) > 1 or (series.low is None) != (series.high is None):
            raise UsageError(
                f"The series {clean(series.name)!r} of figure {clean(title)!r} is uneven.",
                "Give x, y, and low and high where there are any, one value for each point.",
            )


def _axes(axes: Any, panel: Panel) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    values_x = [value for series in panel.series for value in series.x]
    values_y = [value for series in panel.series for value in series.y]
    axes.set_xlabel(clean(panel.x_label))
    axes.set_ylabel(clean(panel.y_label))
    for axis, wanted, values in (("x", panel.log_x, values_x), ("y", panel.log_y, values_y)):
        if wanted and any(math.isfinite(value) and value > 0 for value in values):
            getattr(axes, f"set_{axis}scale")("log", nonpositive="mask")
            getattr(axes, f"{axis}axis").set_major_locator(_log_ticks(values))
            getattr(axes, f"{axis}axis").set_minor_formatter(NullFormatter())
        getattr(axes, f"{axis}axis").set_major_formatter(FuncFormatter(_tick))
    axes.grid(visible=True, which="major", color=INK, alpha=0.14, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(length=3, width=0.8)


def _log_ticks(values: Sequence[float]) -> Any:
    """Powers of ten, also times two and five where the data span less than two decades."""
    from matplotlib.ticker import LogLocator

    positive = [value for value in values if math.isfinite(value) and value > 0]
    decades = math.log10(max(positive)) - math.log10(min(positive))
    return LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2 else (1.0,))


def _tick(value: float, _position: int) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:,.6g}".replace(",", "\u202f").replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


def _curve(axes: Any, series: Series, index: int) -> None:
    hue = _hue(series, index)
    colour = _stand_in(hue)
    if series.low is not None and series.high is not None:
        below = [_whisker(value, low) for value, low in zip(series.y, series.low, strict=True)]
        above = [_whisker(high, value) for value, high in zip(series.y, series.high, strict=True)]
        axes.errorbar(
            series.x,
            series.y,
            (below, above),
            fmt="none",
            color=colour,
            elinewidth=1.1,
            capsize=2.5,
            alpha=0.85,
        )
    if series.dots:
        places, values = zip(*series.dots, strict=True)
        axes.plot(places, values, color=colour, linestyle="none", marker=".", markersize=4, alpha=0.4)
    if series.is_calculated:
        axes.plot(series.x, series.y, color=colour, linewidth=1.2, linestyle="--")
        return
    marker = MARKERS[hue % len(MARKERS)]
    axes.plot(
        series.x, series.y, color=colour, linewidth=1.7, marker=marker, markersize=4.5, markeredgewidth=0
    )


def _whisker(upper: float, lower: float) -> float:
    length = upper - lower
    return length if math.isfinite(length) and length > 0 else 0.0


def _hue(series: Series, index: int) -> int:
    return index if series.hue is None else series.hue


def _stand_in(index: int) -> str:
    return f"#0102f{index % SERIES_COLOURS}"


def _names(canvas: Any, axes: Any, series: Sequence[Series]) -> None:
    """Each curve's name at its right end, pushed apart where they would overlap."""
    ends = []
    for index, one in enumerate(series):
        points = [(x, y) for x, y in zip(one.x, one.y, strict=True) if math.isfinite(x) and math.isfinite(y)]
        if points:
            ends.append((index, one.name, max(points)))
    if not ends or len(series) == 1:
        return
    canvas.draw_without_rendering()
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = {index: float(to_axes.transform(point)[1]) for index, _, point in ends}
    heights = {index: height if math.isfinite(height) else 0.0 for index, height in heights.items()}
    for (index, name, _), height in zip(
        sorted(ends, key=lambda end: heights[end[0]]), _spread(sorted(heights.values())), strict=True
    ):
        axes.annotate(
            f"{shorten(clean(name), NAME_CHARACTERS)}",
            xy=(1.0, height),
            xytext=(6, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            color=_stand_in(_hue(series[index], index)),
            va="center",
            fontweight="bold",
            fontsize=9,
        )


def _spread(heights: list[float], distance: float = 0.065) -> list[float]:
    """Ascending heights between 0 and 1, swept upward and back down until they stand `distance` apart."""
    distance = min(distance, 1.0 / max(len(heights) - 1, 1))
    spread: list[float] = []
    for height in heights:
        spread.append(max(min(max(height, 0.0), 1.0), spread[-1] + distance if spread else 0.0))
    ceiling = 1.0
    for place in range(len(spread) - 1, -1, -1):
        spread[place] = min(spread[place], ceiling)
        ceiling = spread[place] - distance
    return spread


def _page_coloured(drawn: str, title: str, caption: str, prefix: str) -> str:
    """Only the `<svg>` element, with title and description, the page's colours and its own ids."""
    body = drawn[drawn.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = body.replace("*{stroke-linejoin", ".plot *{stroke-linejoin")
    body = re.sub(r"<[^>]+>", lambda tag: _own_tag(tag.group(), prefix), body)
    words = f"<title>{escape(title)}</title><desc>{escape(caption)}</desc>"
    opening, rest = body.split(">", 1)
    opening = re.sub(r' (width|height)="[^"]*"', "", opening)
    return f'{opening} class="plot" role="img" aria-label="{escape(title)}">{words}{rest}'


def _own_tag(tag: str, prefix: str) -> str:
    tag = tag.replace(INK, "currentColor")
    for index in range(SERIES_COLOURS):
        tag = tag.replace(_stand_in(index), f"var(--series{index})")
    tag = re.sub(r'\bid="', f'id="{prefix}-', tag)
    tag = re.sub(r'href="#', f'href="#{prefix}-', tag)
    return re.sub(r"url\(#", f"url(#{prefix}-", tag)
