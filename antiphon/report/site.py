"""The report as self-contained HTML pages: no network, no fonts, no other file.

The first page has the summary, all claims and the audits; each study has its own page. The pages only link to
one another.

All text from a trace, a study or a user is escaped. A content security policy forbids the page to load
anything and to run any script but its own, whose hash it names: a name that slipped through the escaping
would still do nothing. The script only filters and copies; the page is complete without it.
"""

import base64
import hashlib
import math
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from string import ascii_uppercase
from typing import Final
from xml.etree import ElementTree

from antiphon.core.errors import OutputError, UsageError
from antiphon.core.recording import PROMISABLE, PROPERTIES
from antiphon.report.diagram import PROPERTY_TITLES
from antiphon.report.escape import argument_lines, clean_lines, escape
from antiphon.report.figures import draw
from antiphon.report.model import AuditReport, Page, Site, ViolationReport
from antiphon.studies.model import (
    CLAIM_VERDICTS,
    Claim,
    ClaimVerdict,
    Figure,
    Panel,
    Section,
    Series,
    Table,
)

SIGNS: Final[dict[str, str]] = {
    "reproduced": "✓",
    "not reproduced": "✗",
    "not measured": "–",
    "pass": "✓",
    "fail": "✗",
    "unknown": "?",
}

Part = tuple[str, str, str]
"""A section of a page: its anchor, its title and its body."""

PAGE_NAME: Final = re.compile("[a-z0-9][a-z0-9-]*")

VOICES: Final = """<svg class="voices" viewBox="0 0 420 190" role="img" aria-label="Many voices, one order">
<title>Many voices, one order</title>
<desc>Four lines that begin apart, each with one mark, come together into a single line that carries all
four marks in one order.</desc>
<path stroke="var(--series0)" d="M8,24 C120,24 150,95 230,95"/>
<path stroke="var(--series1)" d="M8,71 C110,71 150,95 230,95"/>
<path stroke="var(--series2)" d="M8,119 C110,119 150,95 230,95"/>
<path stroke="var(--series3)" d="M8,166 C120,166 150,95 230,95"/>
<path class="one" d="M230,95 H412"/>
<g fill="var(--series0)"><circle cx="52" cy="27.5" r="6.5"/><circle cx="326" cy="95" r="6.5"/></g>
<g fill="var(--series1)"><circle cx="24" cy="71.2" r="6.5"/><circle cx="262" cy="95" r="6.5"/></g>
<g fill="var(--series2)"><circle cx="80" cy="116" r="6.5"/><circle cx="294" cy="95" r="6.5"/></g>
<g fill="var(--series3)"><circle cx="36" cy="165" r="6.5"/><circle cx="358" cy="95" r="6.5"/></g>
</svg>"""

ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M1 3C6 3 6 8 9 8M1 13C6 13 6 8 9 8H15' fill='none' stroke='%230b62a8' stroke-width='2'/%3E"
    "%3C/svg%3E"
)


def write_site(site: Site, folder: Path) -> Path:
    """Write the report into `folder`, which is created if necessary, and return the first page's path.

    A page appears complete or not at all: an interrupt leaves the old page. The first page is written last.
    """
    documents = {f"{page.name}.html": render_page(site, page) for page in site.pages}
    documents["index.html"] = render(site)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, document in documents.items():
            _write(folder / name, document)
    except OSError as error:
        raise OutputError(
            f"The report cannot be written to {folder}: {error.strerror or error}.",
            "Choose a folder that you may write to.",
        ) from error
    return folder / "index.html"


def _write(target: Path, document: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}-", suffix=".html")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(document)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def render(site: Site) -> str:
    """The first page. Equal sites give equal pages."""
    return _document(site, site.title, site.subtitle, _parts(site), VOICES)


def render_page(site: Site, page: Page) -> str:
    """One of the other pages."""
    if not PAGE_NAME.fullmatch(page.name) or page.name == "index":
        raise UsageError(
            f"{page.name!r} is no name for a page.", "Take small letters, digits and dashes; not 'index'."
        )
    parts = [
        (f"section-{index}", section.title, _section(section, f"section-{index}"))
        for index, section in enumerate(page.sections)
    ]
    return _document(site, page.title, page.subtitle, parts, "")


def _document(site: Site, title: str, subtitle: str, parts: Sequence[Part], picture: str) -> str:
    style, script = _asset("site.css"), _asset("site.js")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    links = "".join(f'<li><a href="#{anchor}">{escape(name)}</a></li>' for anchor, name, _ in parts)
    sections = "\n".join(f'<section id="{anchor}">{body}</section>' for anchor, _, body in parts)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}: {escape(subtitle)}</title>
<link rel="icon" href="{ICON}">
<style>{style}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header class="masthead"><div class="wide"><div>
<h1>{escape(title)}</h1>
<p class="subtitle">{escape(subtitle)}</p>
<p class="generated">{escape(site.generated)}</p>
{_pages(site)}
</div>{picture}</div></header>
<nav aria-label="Contents"><div class="wide"><ul>{links}</ul></div></nav>
<main id="content" class="wide">
{sections}
</main>
<footer><div class="wide">This page stands alone: it loads nothing and sends nothing.</div></footer>
<script>{script}</script>
</body>
</html>
"""


def _pages(site: Site) -> str:
    """Links to all pages of the report, if it has several."""
    if not site.pages:
        return ""
    names = [("index", site.title), *((page.name, page.title) for page in site.pages)]
    links = "".join(f'<li><a href="{name}.html">{escape(title)}</a></li>' for name, title in names)
    return f'<ul class="pages" aria-label="Pages">{links}</ul>'


def _asset(name: str) -> str:
    return files("antiphon.report").joinpath("assets", name).read_text(encoding="utf-8")


def _parts(site: Site) -> list[Part]:
    """The first page's sections, without empty ones."""
    parts = [("summary", "Summary", _summary(site))]
    if site.claims:
        parts.append(("claims", "Claims", _scoreboard(site.claims)))
    if site.figures:
        parts.append(("figures", "Figures", _figures(site.figures)))
    if site.audits:
        parts.append(("audits", "Audits", _audits(site.audits)))
    for index, section in enumerate(site.sections):
        parts.append((f"section-{index}", section.title, _section(section, f"section-{index}")))
    return parts


def _count(number: int) -> str:
    """A whole number with thin no-break spaces between thousands."""
    return f"{number:,}".replace(",", "\u202f")


def _slug(verdict: str) -> str:
    return verdict.replace(" ", "-")


def _badge(verdict: str) -> str:
    return f'<span class="verdict {_slug(verdict)}">{SIGNS[verdict]} {verdict}</span>'


def _command(command: str) -> str:
    return f'<div class="command"><code>{escape(command)}</code></div>' if command else ""


def _facts(facts: Iterable[tuple[str, str, str]], style: str = "facts") -> str:
    """Large numbers with their names; the third text is small, beside the number."""
    entries = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)} <small>{escape(small)}</small></dd></div>"
        for name, value, small in facts
    )
    return f'<dl class="{style}">{entries}</dl>'


def _summary(site: Site) -> str:
    facts: list[tuple[str, str, str]] = []
    if site.claims:
        reproduced = sum(claim.verdict == "reproduced" for claim in site.claims)
        measured = sum(claim.verdict != "not measured" for claim in site.claims)
        facts.append(("claims reproduced", _count(reproduced), f"of {_count(measured)} measured"))
        facts.append(("claims in the papers", _count(len(site.claims)), ""))
    if site.audits:
        deliveries = sum(audit.deliveries for audit in site.audits)
        broken = sum(sum(audit.counts.values()) for audit in site.audits)
        facts.append(("deliveries audited", _count(deliveries), f"in {_plural(len(site.audits), 'trace')}"))
        facts.append(("violations caught and explained", _count(broken), ""))
    drawn = len(site.figures) + sum(len(section.figures) for page in site.pages for section in page.sections)
    if drawn:
        facts.append(("figures drawn", _count(drawn), ""))
    return f"<h2>Summary</h2>{_facts(facts)}" if facts else "<h2>Summary</h2><p>Nothing was measured yet.</p>"


def _plural(number: int, noun: str) -> str:
    return f"{_count(number)} {noun}{'' if number == 1 else 's'}"


def _scoreboard(claims: Sequence[Claim]) -> str:
    papers = list(dict.fromkeys(claim.paper for claim in claims))
    return f"""<h2>Claims</h2>
<p class="lead">What the papers state, beside what we measured. Nothing is tuned to a claim: the model comes
from the text, the verdict from the run, and each row has the command behind it.</p>
<ul class="tally">{"".join(_tally(paper, claims) for paper in papers)}</ul>
<form class="filters" hidden aria-label="Filter the claims">
<label>Paper<select name="paper">{_options("all papers", papers)}</select></label>
<label>Verdict<select name="verdict">{_options("all verdicts", CLAIM_VERDICTS)}</select></label>
<output aria-live="polite"></output>
</form>
{_claims_table(claims)}"""


def _claims_table(claims: Sequence[Claim]) -> str:
    rows = "\n".join(_claim_row(claim) for claim in claims)
    return f"""<table class="claims">
<thead><tr><th scope="col">Claim</th><th scope="col">Statement</th><th scope="col">Theirs</th>
<th scope="col">Ours</th><th scope="col">Verdict</th></tr></thead>
<tbody>{rows}</tbody>
</table>"""


def _options(everything: str, values: Iterable[str]) -> str:
    options = "".join(f'<option value="{escape(value)}">{escape(value)}</option>' for value in values)
    return f'<option value="">{everything}</option>{options}'


def _tally(paper: str, claims: Sequence[Claim]) -> str:
    """One paper's verdicts as a bar and in words."""
    counts: Counter[ClaimVerdict] = Counter(claim.verdict for claim in claims if claim.paper == paper)
    found = [verdict for verdict in CLAIM_VERDICTS if counts[verdict]]
    bar = "".join(f'<i class="{_slug(verdict)}" style="flex:{counts[verdict]}"></i>' for verdict in found)
    words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in found)
    return (
        f'<li><strong>{escape(paper)}</strong><span class="bar" aria-hidden="true">{bar}</span>'
        f'<span class="numbers">{words}</span></li>'
    )


def _claim_row(claim: Claim) -> str:
    interval = f'<span class="interval">{escape(claim.interval)}</span>' if claim.interval else ""
    reason = f'<span class="reason">{escape(claim.reason)}</span>' if claim.reason else ""
    where = ", ".join(filter(None, [claim.paper, claim.where]))
    cells = [
        f'<th scope="row">{escape(claim.id)}</th>',
        f'<td class="statement">{escape(claim.statement)}<span class="where">{escape(where)}</span>',
        f"{_command(claim.command)}</td>",
        _labelled_cell("Theirs", escape(claim.theirs)),
        _labelled_cell("Ours", escape(claim.ours) + interval),
        f"<td>{_badge(claim.verdict)}{reason}</td>",
    ]
    opening = f'<tr data-paper="{escape(claim.paper)}" data-verdict="{escape(claim.verdict)}">'
    return f"{opening}{''.join(cells)}</tr>"


def _labelled_cell(label: str, content: str) -> str:
    """A cell labelled with its column's name, for narrow pages that show rows as cards."""
    return f'<td data-label="{label}">{content}</td>' if content else "<td></td>"


def _figures(figures: Sequence[Figure]) -> str:
    lead = (
        "Each curve is named at its right end; whiskers, where there are any, are intervals over the seeds."
    )
    return f'<h2>Figures</h2><p class="lead">{lead}</p>{_plots(figures, "plot")}'


def _plots(figures: Sequence[Figure], prefix: str) -> str:
    drawn = "\n".join(_figure(figure, f"{prefix}{index}") for index, figure in enumerate(figures))
    return f'<div class="plots">{drawn}</div>'


def _figure(figure: Figure, prefix: str) -> str:
    title = f"{figure.id}: {figure.title}"
    caption = f"<figcaption>{escape(figure.caption)}</figcaption>"
    if len(figure.panels) > 1:
        return (
            f'<figure id="{prefix}" class="plate"><h3>{escape(title)}</h3>'
            f'<div class="panels">{_panels(figure, prefix)}</div>{caption}</figure>'
        )
    (panel,) = figure.panels
    drawn = draw(panel, title, figure.caption, prefix)
    return f'<figure id="{prefix}"><h3>{escape(title)}</h3>{drawn}{caption}{_numbers(panel)}</figure>'


def _panels(figure: Figure, prefix: str) -> str:
    return "".join(
        f"<div><h4>({letter}) {escape(panel.title)}</h4>"
        f"{draw(panel, panel.title, figure.caption, f'{prefix}-{letter}')}{_numbers(panel)}</div>"
        for letter, panel in zip(ascii_uppercase, figure.panels, strict=False)
    )


def _numbers(panel: Panel) -> str:
    rows = [row for series in panel.series for row in _points(series)]
    bounded = any(series.low is not None for series in panel.series)
    columns = ["Series", panel.x_label, panel.y_label] + (["from", "to"] if bounded else [])
    table = Table(columns=columns, rows=[row[: len(columns)] for row in rows])
    return f"<details><summary>The numbers</summary>{_table(table)}</details>"


def _points(series: Series) -> list[list[str]]:
    nothing = [math.nan] * len(series.x)
    columns = (series.x, series.y, series.low or nothing, series.high or nothing)
    return [[series.name, *map(_number, point)] for point in zip(*columns, strict=True)]


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "–"
    if value == int(value) and abs(value) < 1e15:
        return _count(int(value)).replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def _audits(audits: Sequence[AuditReport]) -> str:
    lead = "Every delivery of a trace, held against what its protocol promised."
    articles = "\n".join(_audit(audit) for audit in audits)
    return f'<h2>Audits</h2><p class="lead">{lead}</p>{articles}'


def _audit(audit: AuditReport) -> str:
    facts = [
        ("runs", _count(audit.runs), ""),
        ("sites", _count(audit.sites), ""),
        ("sends", _count(audit.sends), ""),
        ("deliveries", _count(audit.deliveries), ""),
    ]
    found = sum(audit.counts.values())
    shown = len(audit.violations)
    more = f"<p>{_count(shown)} of {_count(found)} violations are shown.</p>" if 0 < shown < found else ""
    note = f"<p>{escape(audit.note)}</p>" if audit.note else ""
    return (
        f'<article class="audit"><header><h3>{escape(audit.title)}</h3>{_badge(audit.verdict.value)}</header>'
        f'<div class="overview">{_properties(audit)}'
        f"<div>{_facts(facts, 'facts small')}{note}{_command(audit.command)}</div></div>{more}"
        f"{''.join(_violation(violation) for violation in audit.violations)}</article>"
    )


def _properties(audit: AuditReport) -> str:
    rows = []
    for name in PROMISABLE:
        if name not in PROPERTIES and name not in audit.counts:
            continue
        count = audit.counts.get(name, 0)
        promised = name in audit.promised
        style = "number broken" if promised and count else "number"
        rows.append(
            f'<tr><th scope="row">{PROPERTY_TITLES[name]}</th><td>{"promised" if promised else "–"}</td>'
            f'<td class="{style}">{_count(count)}</td></tr>'
        )
    head = (
        '<tr><th scope="col">Property</th><th scope="col">Promise</th>'
        '<th scope="col" class="number">Violations</th></tr>'
    )
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def _violation(report: ViolationReport) -> str:
    violation = report.violation
    place = f" at {violation.site}" if violation.site is not None else ""
    title = f"{PROPERTY_TITLES[violation.property]} violated in run {violation.run}{place}"
    argument = "\n".join(map(escape, argument_lines(violation.explanation)))
    return (
        f'<section class="violation"><h4>{escape(title)}</h4><p class="argument">{argument}</p>'
        f'<figure><div class="scroll" tabindex="0" role="group" aria-label="Space-time diagram">'
        f"{_own_svg(report.diagram_svg)}</div></figure>"
        f"<details><summary>As plain text</summary><pre>{_preformatted(report.diagram_text)}</pre></details>"
        "</section>"
    )


def _preformatted(text: str) -> str:
    return "\n".join(escape(line) for line in clean_lines(text))


def _own_svg(svg: str) -> str:
    """A diagram goes into the page unchanged, so it must be one well-formed `<svg>` element, or empty."""
    if not svg:
        return ""
    try:
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        raise UsageError(f"A diagram is not well-formed SVG: {error}.") from error
    if root.tag != "{http://www.w3.org/2000/svg}svg":
        raise UsageError("A diagram is not an SVG element.")
    return svg


def _section(section: Section, prefix: str) -> str:
    paragraphs = [" ".join(clean_lines(part)).strip() for part in section.text.split("\n\n")]
    text = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs if paragraph)
    claims = _claims_table(section.claims) if section.claims else ""
    tables = "".join(
        (f"<h3>{escape(table.title)}</h3>" if table.title else "") + _table(table) for table in section.tables
    )
    plots = _plots(section.figures, f"{prefix}-plot") if section.figures else ""
    return f"<h2>{escape(section.title)}</h2>{text}{claims}{tables}{plots}"


def _table(table: Table) -> str:
    """A plain table; columns of numbers are aligned to the right."""
    numeric = [
        all(_is_number(row[column]) for row in table.rows if column < len(row))
        for column in range(len(table.columns))
    ]
    styles = [' class="number"' if right and table.rows else "" for right in numeric]
    head = "".join(
        f'<th scope="col"{style}>{escape(name)}</th>'
        for name, style in zip(table.columns, styles, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{style}>{escape(cell)}</td>" for cell, style in zip(row, styles, strict=False))
        + "</tr>"
        for row in table.rows
    )
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(table.title or "Table")}">'
        f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _is_number(cell: str) -> bool:
    plain = cell.replace("\u202f", "").replace(" ", "").replace("−", "-").replace(",", "").rstrip("%").strip()
    if plain in ("", "–"):
        return True
    try:
        float(plain)
    except ValueError:
        return False
    return True
