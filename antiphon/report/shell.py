"""What all pages of a report share: the document around them, small pieces of HTML, and how they are written.

A page is one file. It loads nothing: styles and scripts are in it. A content security policy names the hashes
of its own scripts and forbids every other, and everything else that could be loaded.
"""

import base64
import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from antiphon.core.errors import OutputError, UsageError
from antiphon.report.escape import clean_lines, escape

SIGNS: Final[dict[str, str]] = {
    "reproduced": "✓",
    "reproduced, if": "✓",
    "not reproduced": "✗",
    "not measured": "–",
    "pass": "✓",
    "fail": "✗",
    "unknown": "?",
    "not judged": "–",
}

Part = tuple[str, str, str]
"""A section of a page: its anchor, its title and its body."""

ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M1 3C6 3 6 8 9 8M1 13C6 13 6 8 9 8H15' fill='none' stroke='%230b62a8' stroke-width='2'/%3E"
    "%3C/svg%3E"
)


@dataclass(frozen=True)
class Shell:
    """The head of a page: its title, the links under it, and the assets beyond those of every page."""

    title: str
    subtitle: str
    generated: str = ""
    links: Sequence[tuple[str, str]] = ()
    """Other pages, each by its address and its name."""
    style: str = ""
    scripts: Sequence[str] = ()
    """Further scripts, by the names of their assets."""
    kind: str = "site"
    """A class of the page's body, for its style."""


def document(shell: Shell, parts: Sequence[Part], picture: str = "") -> str:
    """A whole page. Equal arguments give equal pages."""
    scripts = [asset(name) for name in ("site.js", *shell.scripts)]
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; img-src data:"
    links = "".join(f'<li><a href="#{anchor}">{escape(name)}</a></li>' for anchor, name, _ in parts)
    sections = "\n".join(f'<section id="{anchor}">{body}</section>' for anchor, _, body in parts)
    run = "\n".join(f"<script>{script}</script>" for script in scripts)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(shell.title)}: {escape(shell.subtitle)}</title>
<link rel="icon" href="{ICON}">
<style>{asset("site.css")}{shell.style}</style>
</head>
<body class="{shell.kind}">
<a class="skip" href="#content">Skip to the content</a>
<header class="masthead"><div class="wide"><div>
<h1>{escape(shell.title)}</h1>
<p class="subtitle">{escape(shell.subtitle)}</p>
<p class="generated">{escape(shell.generated)}</p>
{_pages(shell.links)}
</div>{picture}</div></header>
<nav aria-label="Contents"><div class="wide"><ul>{links}</ul></div></nav>
<main id="content" class="wide">
{sections}
</main>
<footer><div class="wide">This page stands alone: it loads nothing and sends nothing.</div></footer>
{run}
</body>
</html>
"""


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _pages(links: Sequence[tuple[str, str]]) -> str:
    if not links:
        return ""
    entries = "".join(f'<li><a href="{escape(address)}">{escape(text)}</a></li>' for address, text in links)
    return f'<ul class="pages" aria-label="Pages">{entries}</ul>'


def asset(name: str) -> str:
    return files("antiphon.report").joinpath("assets", name).read_text(encoding="utf-8")


def prepare_folder(folder: Path) -> None:
    """Create a report's folder and check that it can take pages, before the work for them is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> OutputError:
    return OutputError(
        f"The report cannot be written to {folder}: {error.strerror or error}.",
        "Choose a folder that you may write to.",
    )


def write_pages(documents: Mapping[str, str], folder: Path) -> Path:
    """Write pages into `folder`, which is created if necessary, in their order; the last page's path.

    A page appears complete or not at all: an interrupt leaves the old page.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in documents.items():
            _write(folder / name, text)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return folder / name


def _write(target: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}-", suffix=".html")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


# Pieces of HTML


def counted(number: int) -> str:
    """A whole number with thin no-break spaces between thousands."""
    return f"{number:,}".replace(",", "\u202f")


def plural(number: int, noun: str) -> str:
    return f"{counted(number)} {noun}{'' if number == 1 else 's'}"


def slug(verdict: str) -> str:
    return verdict.replace(",", "").replace(" ", "-")


def badge(verdict: str) -> str:
    return f'<span class="verdict {slug(verdict)}">{SIGNS[verdict]} {verdict}</span>'


def command_line(command: str) -> str:
    return f'<div class="command"><code>{escape(command)}</code></div>' if command else ""


def fact_list(facts: Iterable[tuple[str, str, str]], style: str = "facts") -> str:
    """Large numbers with their names; the third text is small, beside the number."""
    entries = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)} <small>{escape(small)}</small></dd></div>"
        for name, value, small in facts
    )
    return f'<dl class="{style}">{entries}</dl>'


def preformatted(text: str) -> str:
    return "\n".join(escape(line) for line in clean_lines(text))


def own_svg(svg: str) -> str:
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
