"""Builds the site: docs/, the pages beside the README, the source files they link to, and the reference.

Usage: python scripts/docs_site.py OUT. Nothing is fetched, neither here nor by a reader's browser. A broken
link, or a page that the contents lack, is an error.
"""

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FRONT = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
CONTENTS = {
    "Run it": "choosing live total causal total-across groups networks security stability failure-detection "
    "late-join objects replicated resource-sharing testing-applications benchmarks",
    "Prove it": "audit import audit-kafka audit-nats audit-rabbitmq audit-redis audit-corosync"
    " stats trace report",
    "Study it": "simulator studies profiles campaigns advisor analysis",
    "Protocols": "protocols/fifo protocols/dpg protocols/precedence-graph protocols/sco protocols/metagroups "
    "protocols/sequencer protocols/quorum protocols/coordp protocols/fulldist protocols/train "
    "protocols/gossip protocols/s-coordp protocols/s-train protocols/s-gossip protocols/totem "
    "protocols/causal-rivals protocols/group-rivals",
    "Reference": "reference cli glossary",
    "The project": "architecture contributing testing changelog",
}
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def place(path: Path) -> Path:
    """Where a file of the repository stands in the site."""
    if str(path) in FRONT:
        return Path(FRONT[str(path)])
    if path.parts[0] == "docs":
        return path.relative_to("docs")
    return Path("source", *path.parts[:-1], f"{path.name}.md")


def pages() -> list[Path]:
    """The pages' paths in the repository."""
    return [Path(name) for name in FRONT] + [
        path.relative_to(ROOT) for path in sorted((ROOT / "docs").rglob("*.md"))
    ]


def links(path: Path) -> list[Path]:
    """The files of the repository that a page links to."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return [Path(os.path.normpath(path.parent / link)) for link, _ in LINK.findall(text)]


def moved(path: Path) -> str:
    """A page whose links mean the site's pages."""

    def move(link: re.Match[str]) -> str:
        there = place(Path(os.path.normpath(path.parent / link[1])))
        return f"]({os.path.relpath(there, place(path).parent)}{link[2] or ''})"

    return LINK.sub(move, (ROOT / path).read_text(encoding="utf-8"))


def as_page(path: Path) -> str:
    """A source file as a page of the site."""
    code = (ROOT / path).read_text(encoding="utf-8")
    language = "json" if path.suffix == ".ipynb" else path.suffix[1:]
    return f"---\norphan: true\n---\n\n# {path}\n\n````{language}\n{code}````\n"


def contents() -> str:
    """The site's navigation, at the end of its first page."""
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names.split()) + "\n```\n"
        for caption, names in CONTENTS.items()
    )


def gather(folder: Path) -> None:
    """Write the sources of the site."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("__pycache__", "conf.py"))
    for path in pages():
        page = folder / place(path)
        page.write_text(moved(path) + (contents() if path.name == "README.md" else ""), encoding="utf-8")
        for linked in links(path):
            there = folder / place(linked)
            if not there.exists() and (ROOT / linked).is_file():
                there.parent.mkdir(parents=True, exist_ok=True)
                there.write_text(as_page(linked), encoding="utf-8")


def main(out: Path) -> int:
    from sphinx.cmd.build import build_main

    source, html, cache = (str(out / name) for name in ("source", "html", "cache"))
    gather(out / "source")
    return build_main(["-W", "--keep-going", "-q", "-c", str(ROOT / "docs"), "-d", cache, source, html])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
