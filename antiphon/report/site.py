"""The report as self-contained HTML pages: no network, no fonts, no other file.

The first page has the summary, all claims and the audits; each study has its own page. The pages only link to
one another.

All text from a trace, a study or a user is escaped. A content security policy forbids the page to load
anything and to run any script but its own, whose hash it names: a name that slipped through the escaping
would still do nothing. The script only filters and copies; the page is complete without it.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.core.recording import PROMISABLE, PROPERTIES
from antiphon.report.diagram import PROPERTY_TITLES
from antiphon.report.escape import argument_lines, clean_lines, escape
from antiphon.report.figures import draw
from antiphon.report.model import AuditReport, Page, Site, ViolationReport
from antiphon.report.shell import (
    Part,
    Shell,
    badge,
    command_line,
    counted,
    document,
    fact_list,
    own_svg,
    plural,
    preformatted,
    slug,
    write_pages,
)
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


def write_site(site: Site, folder: Path) -> Path:
    """Write the report into `folder`, which is created if necessary, and return the first page's path.

    A page appears complete or not at all: an interrupt leaves the old page. The first page is written last.
    """
    documents = {f"{page.name}.html": render_page(site, page) for page in site.pages}
    return write_pages({**documents, "index.html": render(site)}, folder)


def render(site: Site) -> str:
    """The first page. Equal sites give equal pages."""
    return document(_shell(site, site.title, site.subtitle), _parts(site), VOICES)


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
    return document(_shell(site, page.title, page.subtitle), parts)


def _shell(site: Site, title: str, subtitle: str) -> Shell:
    """The head of a page, with links to all pages of the report if it has several."""
    names = [("index", site.title), *((page.name, page.title) for page in site.pages)]
    links = [(f"{name}.html", text) for name, text in names] if site.pages else []
    return Shell(title, subtitle, site.generated, links)


def _parts(site: Site) -> list[Part]:
    """The first page's sections, without empty ones."""
    measured = site.claims or site.figures or site.audits or site.pages or not site.sections
    parts = [("summary", "Summary", _summary(site))] if measured else []
    if site.claims:
        parts.append(("claims", "Claims", _scoreboard(site.claims)))
    if site.figures:
        parts.append(("figures", "Figures", _figures(site.figures)))
    if site.audits:
        parts.append(("audits", "Audits", _audits(site.audits)))
    for index, section in enumerate(site.sections):
        parts.append((f"section-{index}", section.title, _section(section, f"section-{index}")))
    return parts


def _summary(site: Site) -> str:
    facts: list[tuple[str, str, str]] = []
    if site.claims:
        reproduced = sum(claim.verdict.startswith("reproduced") for claim in site.claims)
        measured = sum(claim.verdict != "not measured" for claim in site.claims)
        facts.append(("claims reproduced", counted(reproduced), f"of {counted(measured)} measured"))
        facts.append(("claims in the papers", counted(len(site.claims)), ""))
    if site.audits:
        deliveries = sum(audit.deliveries for audit in site.audits)
        broken = sum(sum(audit.counts.values()) for audit in site.audits)
        facts.append(("deliveries audited", counted(deliveries), f"in {plural(len(site.audits), 'trace')}"))
        facts.append(("violations caught and explained", counted(broken), ""))
    drawn = len(site.figures) + sum(len(section.figures) for page in site.pages for section in page.sections)
    if drawn:
        facts.append(("figures drawn", counted(drawn), ""))
    return (
        f"<h2>Summary</h2>{fact_list(facts)}" if facts else "<h2>Summary</h2><p>Nothing was measured yet.</p>"
    )


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
    bar = "".join(f'<i class="{slug(verdict)}" style="flex:{counts[verdict]}"></i>' for verdict in found)
    words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in found)
    return (
        f'<li><strong>{escape(paper)}</strong><span class="bar" aria-hidden="true">{bar}</span>'
        f'<span class="numbers">{words}</span></li>'
    )


def _claim_row(claim: Claim) -> str:
    interval = f'<span class="interval">{escape(claim.interval)}</span>' if claim.interval else ""
    reasons = filter(None, [claim.condition and f"Holds if {claim.condition}.", claim.reason])
    reason = "".join(f'<span class="reason">{escape(each)}</span>' for each in reasons)
    where = ", ".join(filter(None, [claim.paper, claim.where]))
    cells = [
        f'<th scope="row">{escape(claim.id)}</th>',
        f'<td class="statement">{escape(claim.statement)}<span class="where">{escape(where)}</span>',
        f"{command_line(claim.command)}</td>",
        _labelled_cell("Theirs", escape(claim.theirs)),
        _labelled_cell("Ours", escape(claim.ours) + interval),
        f"<td>{badge(claim.verdict)}{reason}</td>",
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
        return counted(int(value)).replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def _audits(audits: Sequence[AuditReport]) -> str:
    lead = "Every delivery of a trace, held against what its protocol promised."
    articles = "\n".join(_audit(audit) for audit in audits)
    return f'<h2>Audits</h2><p class="lead">{lead}</p>{articles}'


def _audit(audit: AuditReport) -> str:
    facts = [
        ("runs", counted(audit.runs), ""),
        ("sites", counted(audit.sites), ""),
        ("sends", counted(audit.sends), ""),
        ("deliveries", counted(audit.deliveries), ""),
    ]
    found = sum(audit.counts.values())
    shown = len(audit.violations)
    more = f"<p>{counted(shown)} of {counted(found)} violations are shown.</p>" if 0 < shown < found else ""
    note = f"<p>{escape(audit.note)}</p>" if audit.note else ""
    return (
        f'<article class="audit"><header><h3>{escape(audit.title)}</h3>{badge(audit.verdict.value)}</header>'
        f'<div class="overview">{_properties(audit)}'
        f"<div>{fact_list(facts, 'facts small')}{note}{command_line(audit.command)}</div></div>{more}"
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
            f'<td class="{style}">{counted(count)}</td></tr>'
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
        f"{own_svg(report.diagram_svg)}</div></figure>"
        f"<details><summary>As plain text</summary><pre>{preformatted(report.diagram_text)}</pre></details>"
        "</section>"
    )


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
