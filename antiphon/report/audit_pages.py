"""An audit's result as pages: `index.html` with the verdicts, and a page for each violation shown.

The page of a violation has its argument, its space-time diagram, the diagram as text, and an explorer of the
region around it. The explorer needs its script (`assets/explorer.js`); everything else is there without it.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from antiphon.check.verdict import RunSummary, RunVerdict, Verdict, Violation
from antiphon.core.ids import MessageId
from antiphon.core.recording import PROMISABLE, PROPERTIES, Property
from antiphon.report.call_diagram import calls_to_svg, calls_to_text
from antiphon.report.diagram import PROPERTY_TITLES, Diagram
from antiphon.report.escape import argument_lines, clean, escape, shorten
from antiphon.report.model import AuditPages, Case
from antiphon.report.region import explorer_data, kinds_in
from antiphon.report.shell import (
    SIGNS,
    Part,
    Shell,
    asset,
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
from antiphon.report.svg import style, to_svg
from antiphon.report.text import WORDS, to_text

PAGE: Final = re.compile(r"violation-\d+\.html")
CARD_CHARACTERS: Final = 220
REASON_CHARACTERS: Final = 400

OF_ROWS: Final = "The rows that the argument names, ringed, and what is near them."
OF_CALLS: Final = "The calls that the argument names, from their start to their answer."
KEYS: Final = (
    ("n, p", "the next, the previous row of the witness"),
    ("arrow keys", "the next row up or down at this member, or at the member beside it"),
    ("Enter, Space", "light up the causal past and future of the row's message"),
    ("Escape", "clear"),
    ("+, −, 0", "zoom in, zoom out, see the whole region"),
    ("Shift and arrow keys", "move the picture"),
)


STAGE: Final = (
    "Space-time diagram of the region. Arrow keys go from row to row, n and p along the witness; Enter "
    "lights up past and future."
)


def write_audit(pages: AuditPages, folder: Path) -> Path:
    """Write the pages into `folder` and return the first page's path. It is written last.

    Pages of violations that an earlier audit left there are removed.
    """
    names = [f"violation-{number}.html" for number in range(1, len(pages.cases) + 1)]
    documents = {name: render_case(pages, index) for index, name in enumerate(names)}
    first = write_pages({**documents, "index.html": render_index(pages)}, folder)
    for old in folder.iterdir():
        if PAGE.fullmatch(old.name) and old.name not in documents:
            old.unlink(missing_ok=True)
    return first


# The first page


def render_index(pages: AuditPages) -> str:
    """The page with the verdicts. Equal results give equal pages."""
    shell = Shell(
        "Audit",
        ", ".join(pages.traces),
        f"Judged {'in one process' if pages.engine == 'local' else 'on Spark'}.",
        scripts=("audit.js",),
        style=asset("audit.css"),
        kind="report-of-audit",
    )
    parts: list[Part] = [("verdict", "Verdict", _verdict(pages)), ("runs", "Runs", _runs(pages))]
    if pages.cases:
        parts.append(("violations", "Violations", _violations(pages)))
    return document(shell, parts)


def _verdict(pages: AuditPages) -> str:
    facts = [
        ("runs", counted(pages.runs), ""),
        ("sites", counted(pages.sites), ""),
        ("sends", counted(pages.sends), ""),
        ("deliveries", counted(pages.deliveries), ""),
    ]
    notes = "".join(f"<li>{escape(sentence)}</li>" for sentence in pages.reservations)
    noted = f'<h3>What could not be judged</h3><ul class="notes">{notes}</ul>' if notes else ""
    return (
        f'<h2>Verdict {badge(pages.verdict.value)}</h2><p class="lead">{_MEANINGS[pages.verdict]}</p>'
        f'{fact_list(facts)}<div class="properties">{_properties(pages)}</div>{noted}'
        f"<h3>To repeat it</h3>{command_line(pages.command)}"
    )


_MEANINGS: Final[dict[Verdict, str]] = {
    Verdict.PASS: "Everything that was promised holds.",
    Verdict.FAIL: "A promise is broken.",
    Verdict.UNKNOWN: "No promise is seen to be broken, but the evidence does not reach for all of them.",
}


def _properties(pages: AuditPages) -> str:
    rows = []
    for name in PROMISABLE:
        if name not in PROPERTIES and name not in pages.counts:
            continue
        broken, unknown = pages.broken.get(name, 0), pages.unknown.get(name, 0)
        not_judged = pages.not_judged.get(name, 0)
        alarm = "number broken" if broken else "number"
        rows.append(
            f'<tr><th scope="row">{PROPERTY_TITLES[name]}</th>'
            f'<td class="number">{counted(pages.counts.get(name, 0))}</td>'
            f'<td class="{alarm}">{counted(broken)}</td>'
            f"<td>{_in_runs('unknown', unknown, pages.runs)}</td>"
            f"<td>{_in_runs('not judged', not_judged, pages.runs)}</td></tr>"
        )
    head = (
        '<th scope="col">Property</th><th scope="col" class="number">Violations</th>'
        '<th scope="col" class="number">Broken promises</th>'
        '<th scope="col">Unknown</th><th scope="col">Not judged</th>'
    )
    return _scrolled("Properties", f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>")


def _in_runs(word: str, count: int, runs: int) -> str:
    if not count:
        return ""
    where = "everywhere" if count == runs else f"in {plural(count, 'run')}"
    return f'<span class="verdict {slug(word)}">{SIGNS[word]} {where}</span>'


def _scrolled(label: str, content: str, kind: str = "") -> str:
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{label}">'
        f'<table class="{kind}">{content}</table></div>'
    )


def _runs(pages: AuditPages) -> str:
    judged = [
        name
        for name in PROMISABLE
        if name in PROPERTIES
        or any(each.property == name for summary in pages.summaries for each in summary.verdicts)
    ]
    several = len({summary.trace for summary in pages.summaries}) > 1
    head = "".join(f'<th scope="col">{PROPERTY_TITLES[name]}</th>' for name in judged)
    rows = "".join(_run_row(summary, judged, several) for summary in pages.summaries)
    left = pages.runs - len(pages.summaries)
    more = f" The {plural(left, 'run')} beyond these break no more severely." if left > 0 else ""
    return f"""<h2>Runs</h2>
<p class="lead">Each run by each property. A promise is marked ●; the rest was not promised. Unknown (?) means
that rows which could show a violation are missing; – means that the property was not judged.{more}</p>
<form class="filters run-filters" hidden aria-label="Filter the runs">
<label>Run<input type="search" name="run" placeholder="part of its name" autocomplete="off"></label>
<label>Verdict<select name="verdict"><option value="">all verdicts</option>
<option>fail</option><option>unknown</option><option>pass</option></select></label>
<output aria-live="polite"></output>
</form>
{
        _scrolled(
            "Verdicts of the runs",
            f'<thead><tr><th scope="col">Run</th><th scope="col">Verdict</th>{head}'
            f'<th scope="col">Why</th></tr></thead><tbody>{rows}</tbody>',
            "runs",
        )
    }"""


def _run_row(summary: RunSummary, judged: Sequence[Property], several: bool) -> str:
    found = {each.property: each for each in summary.verdicts}
    verdict = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.PASS, Verdict.PASS)[summary.severity].value
    cells = "".join(_run_cell(found.get(name)) for name in judged)
    trace = f'<span class="where">{escape(summary.trace)}</span>' if several else ""
    return (
        f'<tr data-run="{escape(summary.run)}" data-verdict="{verdict}">'
        f'<th scope="row">{escape(summary.run)}{trace}</th><td>{badge(verdict)}</td>{cells}'
        f'<td class="why">{escape(_why(summary))}</td></tr>'
    )


def _run_cell(verdict: RunVerdict | None) -> str:
    if verdict is None:
        return '<td><span class="cell not-judged" title="not judged">– <small>not judged</small></span></td>'
    word = verdict.verdict.value
    promise = '<b title="promised">●</b> ' if verdict.promised else ""
    number = f" {counted(verdict.violations)}" if verdict.violations else ""
    quiet = "" if verdict.promised or verdict.verdict is Verdict.PASS else " quiet"
    return (
        f'<td>{promise}<span class="cell {word}{quiet}">{SIGNS[word]}{number}'
        f'<span class="spoken"> {word}{", promised" if verdict.promised else ""}</span></span></td>'
    )


def _why(summary: RunSummary) -> str:
    if not any(each.promised for each in summary.verdicts) and not any(
        each.reason for each in summary.verdicts
    ):
        return "The run has no recorded promises."
    reasons = dict.fromkeys(each.reason for each in summary.verdicts if each.reason)
    return shorten(clean("; ".join(reasons)), REASON_CHARACTERS)


def _violations(pages: AuditPages) -> str:
    found = sum(pages.counts.values())
    shown = len(pages.cases)
    more = f"{counted(shown)} of {counted(found)} are shown" if shown < found else "All are shown"
    cards = "".join(_card(case, number) for number, case in enumerate(pages.cases, 1))
    return (
        f'<h2>Violations</h2><p class="lead">{more}, each with its argument, its diagram and an explorer of '
        f'the rows around it.</p><ol class="cards">{cards}</ol>'
    )


def _card(case: Case, number: int) -> str:
    violation = case.violation
    word = "broken promise" if case.promised else "not promised"
    argument = " ".join(argument_lines(violation.explanation)[:2])
    return (
        f'<li class="card"><a href="violation-{number}.html"><strong>{PROPERTY_TITLES[violation.property]}'
        f'</strong> <span class="verdict {"fail" if case.promised else "not-judged"}">{word}</span>'
        f'<span class="place">{escape(_place(violation))}</span>'
        f"<span>{escape(shorten(argument, CARD_CHARACTERS))}</span></a></li>"
    )


def _place(violation: Violation) -> str:
    at = f" at {violation.site}" if violation.site is not None else ""
    return f"run {violation.run}{at}, message {violation.sender}:{violation.number}"


# The page of a violation


def render_case(pages: AuditPages, index: int) -> str:
    """The page of one violation."""
    case = pages.cases[index]
    title = f"{PROPERTY_TITLES[case.violation.property]} violated"
    links = [("index.html", "All verdicts")]
    if index > 0:
        links.append((f"violation-{index}.html", "Previous violation"))
    if index + 1 < len(pages.cases):
        links.append((f"violation-{index + 2}.html", "Next violation"))
    shell = Shell(
        title,
        _place(case.violation),
        f"Violation {index + 1} of the {len(pages.cases)} shown. "
        + ("The run promised this property." if case.promised else "The run did not promise this property."),
        links,
        style=asset("audit.css") + style(),
        scripts=("explorer.js",) if case.region is not None else (),
        kind="report-of-audit",
    )
    parts: list[Part] = [("argument", "Argument", _argument(case))]
    if case.diagram is not None:
        parts.append(("diagram", "Diagram", _diagram(to_svg(case.diagram), to_text(case.diagram), OF_ROWS)))
    if case.calls is not None:
        drawn = calls_to_svg(case.calls), calls_to_text(case.calls)
        parts.append(("diagram", "Diagram", _diagram(*drawn, OF_CALLS)))
    if case.region is not None:
        parts.append(("explore", "Explore", _explorer(case, case.region)))
    return document(shell, parts)


def _argument(case: Case) -> str:
    lines = "".join(f"<li>{escape(line)}</li>" for line in argument_lines(case.violation.explanation))
    return f'<h2>Argument</h2><ol class="steps-of-argument">{lines}</ol>{_names(case.names)}'


def _names(names: Mapping[MessageId, str]) -> str:
    if not names:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(str(message))}</th><td>{escape(name)}</td></tr>'
        for message, name in names.items()
    )
    head = '<tr><th scope="col">Message</th><th scope="col">Its name in its own system</th></tr>'
    return f'<table class="names"><thead>{head}</thead><tbody>{rows}</tbody></table>'


def _diagram(svg: str, text: str, lead: str) -> str:
    return (
        f'<h2>Diagram</h2><p class="lead">{lead} Time runs downward; heights are no clock readings.</p>'
        '<figure class="violation-figure"><div class="scroll" tabindex="0" role="group" '
        f'aria-label="Space-time diagram">{own_svg(svg)}</div></figure>'
        f"<details><summary>As plain text</summary><pre>{preformatted(text)}</pre></details>"
    )


def _explorer(case: Case, region: Diagram) -> str:
    left = f" {plural(case.omitted, 'further member')} with rows here are left out." if case.omitted else ""
    data = explorer_data(region, case.violation, case.omitted)
    keys = "".join(f"<tr><th scope='row'>{key}</th><td>{what}</td></tr>" for key, what in KEYS)
    return f"""<h2>Explore</h2>
<p class="lead">The rows around the witness, at all members that had to do with its messages.{left} Choose a
mark to light up what precedes its message and what follows from it, as far as these rows show.</p>
<noscript><p>The explorer needs JavaScript. The argument and the diagram above do without.</p></noscript>
<div class="explorer" hidden>
<div class="tools" role="toolbar" aria-label="View">
<span class="group"><button type="button" data-do="previous">← Previous step</button>
<button type="button" data-do="next">Next step →</button></span>
<span class="group"><button type="button" data-do="in" aria-label="Zoom in">+</button>
<button type="button" data-do="out" aria-label="Zoom out">−</button>
<button type="button" data-do="whole">Whole region</button></span>
<span class="group"><button type="button" data-do="light">Past and future</button>
<button type="button" data-do="clear">Clear</button></span>
<span class="count muted"></span>
</div>
<div class="stage"><svg class="spacetime" tabindex="0" role="application" aria-label="{STAGE}"></svg></div>
<p class="said" role="status" aria-live="polite">Nothing is chosen.</p>
<div class="side">
<section><h3>The witness, step by step</h3><ol class="steps"></ol></section>
<section class="kin" hidden><h4>Around the message</h4><dl>
<dt><span class="swatch-past">↑</span> precede it</dt><dd class="past"></dd>
<dt><span class="swatch-future">↓</span> follow it</dt><dd class="future"></dd></dl></section>
<form aria-label="Filter the rows"><h3>Rows</h3>
<label class="show">Show <select name="show"><option value="all">all rows</option>
<option value="involved">rows about the messages involved</option>
<option value="witness">the witness alone</option></select></label>
<fieldset><legend>Kinds</legend>{_kinds(region)}</fieldset>
<fieldset><legend>Members</legend><div class="members">{_members(region)}</div>
<button type="button" data-all="yes">All</button> <button type="button" data-all="no">None</button></fieldset>
</form>
<details><summary>Keys</summary><table class="keys"><tbody>{keys}</tbody></table></details>
</div></div>
<script type="application/json" id="region">{data}</script>"""


def _kinds(region: Diagram) -> str:
    return "".join(
        f'<label><input type="checkbox" name="kind" value="{kind}" checked>'
        f'<svg class="spacetime swatch" viewBox="-8 -8 16 16" width="16" height="16" data-kind="{kind}" '
        f'aria-hidden="true"></svg>{"never delivered" if kind == "missing" else WORDS[kind].strip()}</label>'
        for kind in kinds_in(region)
    )


def _members(region: Diagram) -> str:
    return "".join(
        f'<label><input type="checkbox" name="member" value="{column}" checked>{escape(site)}</label>'
        for column, site in enumerate(region.sites)
    )
