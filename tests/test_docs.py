"""Every block of code in the README and the documentation is run, or says that it is output.

A fence names its language. `python` runs on simulated time, as several members where it joins a group;
`pycon` is a doctest. In `console`, commands of ours go through the real parser, and what is quick is run with
small figures. `text` is output, and other languages are data.
"""

import argparse
import ast
import asyncio
import doctest
import inspect
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Collection, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import antiphon
from antiphon.cli.main import build, run
from antiphon.testing import cluster
from antiphon.testing import run as run_simulated
from antiphon.trace.files import write_trace
from tests.histories import history

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
DATA = {"text", "toml", "yaml", "{eval-rst}"}
SITE = runpy.run_path(str(ROOT / "scripts" / "docs_site.py"))
OTHERS = {"sysctl", "pip", "git"}
"""Programs of others that a page may name."""


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str


def blocks() -> Iterator[Block]:
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for fence in re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.M | re.S):
            line = text.count("\n", 0, fence.start()) + 1
            yield Block(str(path.relative_to(ROOT)), line, fence[1], fence[2])


ALL = list(blocks())


def chosen(language: str, but: Collection[str] = ()) -> list[Block]:
    return [block for block in ALL if block.language == language and block.page not in but]


def where(block: Block) -> str:
    return f"{block.page}:{block.line}"


def test_every_block_names_its_language() -> None:
    unknown = [block for block in ALL if block.language not in DATA | {"python", "pycon", "console"}]
    assert [where(block) for block in unknown] == []


# Python

LASTING_S = 5
"""Simulated seconds that an example which loops without end is given."""
NAMES = ("alice", "bob", "carol", "dave")
"""An example that joins a group runs as each of these members."""
ELSEWHERE = ("README.md", "docs/studies.md", "docs/testing-applications.md")
"""Pages whose Python has its own test: test_examples.py, studies/test_docs.py, testing/test_plugin.py."""


@pytest.fixture
def props(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the examples find: a folder with logs and a trace, and names that stand for the reader's own."""
    monkeypatch.chdir(tmp_path)
    events, recorded, _ = history("a: b0")
    write_trace("my-trace", [events], [recorded])
    for site in "abc":
        Path(f"{site}.log").write_text(f"MCAST {site} 1 1.0\nDELIVER {site} 1 1.5\n")
    figures = ("capacity_bytes", "bytes_in_buffer", "bytes_released")
    functions = ("apply", "resynchronise", "forget_what_it_said")
    return {
        "antiphon": antiphon, "events": events, "run": recorded,
        "now": 0, "size": 100, **dict.fromkeys(figures, 1 << 20), **dict.fromkeys(functions, print),
    }  # fmt: skip


async def perform(text: str, props: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an example on a simulated network, as several members at once where it joins a group."""
    joins = 'name="alice"' in text
    started: list[Coroutine[Any, Any, Any]] = []
    async with cluster(0) as network:
        monkeypatch.setattr(antiphon, "join", network.join, raising=False)
        monkeypatch.setattr(antiphon, "node", network.node, raising=False)
        monkeypatch.setattr(antiphon, "replicate", network.replicate, raising=False)
        monkeypatch.setattr(asyncio, "run", started.append)
        if not joins:
            props["group"] = await network.join("orders", name="alice", order="total")
            await props["group"].send(b"hello")
        if "shop" in text and "antiphon.replicate(" not in text:
            alone = network.replicate("shop", antiphon.Objects(), name="alice", members={"alice"})
            props["shop"] = await alone
        # Members of a replicated group are named in full.
        named = [name for name in NAMES if "members=" not in text or f'"{name}"' in text]
        for name in named if joins else NAMES[:1]:
            told = text.replace('name="alice"', f'name="{name}"')
            code = compile(told, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            outcome = eval(code, dict(props))
            if inspect.iscoroutine(outcome):
                started.append(outcome)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*started), LASTING_S)


@pytest.mark.parametrize("block", chosen("python", but=ELSEWHERE), ids=where)
def test_python_runs(
    block: Block,
    props: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_simulated(perform(block.text, props, monkeypatch))
    if "async for message" in block.text and "print(" in block.text:
        assert capsys.readouterr().out


@pytest.mark.parametrize("block", chosen("pycon"), ids=where)
def test_a_session_answers_as_it_is_shown(block: Block) -> None:
    parsed = doctest.DocTestParser().get_doctest(block.text, {}, where(block), block.page, block.line)
    assert doctest.DocTestRunner().run(parsed).failed == 0


# Shell

SMALL = {"--members": 8, "--messages": 40, "--runs": 2, "--groups": 4, "--units": 3, "--need": 2}
"""Figures at which a simulated run takes an instant."""
RUN = ("simulate", "groups", "advise", "keygen")
"""Verbs that are run; the others take long, wait for input or need Spark, and are parsed."""


def commands(block: Block) -> Iterator[tuple[list[str], str]]:
    """The words of each command, and the output shown below it; `…` stands for the rest of it."""
    for command in re.split(r"^[$#] ", block.text, flags=re.M)[1:]:
        line, _, shown = command.partition("\n")
        yield shlex.split(line, comments=True), shown.strip()


def lighter(words: list[str]) -> list[str]:
    """The same command with small figures."""
    return [
        str(min(SMALL[before], int(word))) if before in SMALL and word.isdigit() else word
        for before, word in zip(["", *words], words, strict=False)
    ]


def check_antiphon(words: list[str], shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    build(words).parse_args(words, exit_on_error=False, print_error=False)
    if words[0] in RUN:
        assert run(lighter(words)) == 0
        said = capsys.readouterr()
        assert "error:" not in said.err
        told = said.out.strip()
        assert shown in ("", told) or (shown.endswith("…") and told.startswith(shown.rstrip("…")))


def check_make(words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for word in words:
        name, is_variable, _ = word.partition("=")
        assert f"$({name})" in makefile if is_variable else f"\n{name}:" in makefile, word


def check_python(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of ours exists and understands its arguments."""
    parse = argparse.ArgumentParser.parse_args

    class UnderstoodError(Exception): ...

    def only_parse(parser: argparse.ArgumentParser) -> None:
        parse(parser)
        raise UnderstoodError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", only_parse)
    is_module = words[0] == "-m"
    monkeypatch.setattr(sys, "argv", words[is_module:])
    with pytest.raises((UnderstoodError, antiphon.InputError)):
        (runpy.run_module if is_module else runpy.run_path)(words[is_module], run_name="__main__")


@pytest.mark.parametrize("block", chosen("console"), ids=where)
def test_commands_run_or_are_understood(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("examples", "bench"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    for (program, *words), shown in commands(block):
        match program:
            case "antiphon":
                check_antiphon(words, shown, capsys)
            case "make":
                check_make(words)
            case "python" | ".venv/bin/python":
                with monkeypatch.context() as patches:
                    check_python(words, patches)
            case _:
                assert program in OTHERS, program


# The site


def anchors(path: Path) -> set[str]:
    """The headings of a page as links name them."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_link_leads_somewhere() -> None:
    missing = []
    for page in SITE["pages"]():
        for link, anchor in SITE["LINK"].findall((ROOT / page).read_text(encoding="utf-8")):
            there = (ROOT / page).parent / link
            if not there.exists() or (anchor and anchor[1:] not in anchors(there)):
                missing.append(f"{page}: {link}{anchor}")
    assert missing == []


def test_the_contents_name_every_page_once() -> None:
    named = [f"{name}.md" for names in SITE["CONTENTS"].values() for name in names.split()]
    assert sorted([*named, "index.md"]) == sorted(str(SITE["place"](page)) for page in SITE["pages"]())


def test_the_reference_has_every_public_name() -> None:
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\.\. auto\w+:: antiphon\.([\w.]+)$", text, re.M)
    public = set(antiphon.__all__) - {"__version__", "audit", "sync", "testing"}
    public |= {"spark.frames.audit"}  # what the package antiphon.audit does when it is called
    public |= {f"testing.{name}" for name in antiphon.testing.__all__}
    public |= {f"sync.{name}" for name in antiphon.sync.__all__}
    assert sorted(listed) == sorted(public)


def test_every_public_name_says_what_it_is() -> None:
    undocumented = [
        name for name in antiphon.__all__ if name != "__version__" and not getattr(antiphon, name).__doc__
    ]
    assert undocumented == []


@pytest.mark.slow
def test_the_site_is_built_and_asks_the_network_for_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "scripts/docs_site.py", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    html = tmp_path / "html"
    assert "LeftError" in (html / "reference.html").read_text(encoding="utf-8")
    assert "lefterror" in (html / "searchindex.js").read_text(encoding="utf-8")
    for page in html.rglob("*.html"):
        assert not re.findall(r'(?:src="|<link[^>]* href=")https?:', page.read_text(encoding="utf-8")), page


def test_the_map_names_only_what_is_there() -> None:
    """Paths in ARCHITECTURE.md and CONTRIBUTING.md stand for files, in the repository or in the package."""
    for page in ("ARCHITECTURE.md", "CONTRIBUTING.md"):
        for path in re.findall(r"`([\w.]+/[\w./]*)`", (ROOT / page).read_text(encoding="utf-8")):
            assert (ROOT / path).exists() or (ROOT / "antiphon" / path).exists(), f"{page}: {path}"


def named_tests(text: str) -> Iterator[str]:
    """The files, folders and single tests that a page names; a bare file is one of tests/live."""
    for name in re.findall(r"`((?:tests|bench)/[\w*/.:]+|test_\w+\.py(?:::\w+)?)`", text):
        yield name if "/" in name else f"tests/live/{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_test_that_a_page_names_exists(page: Path) -> None:
    for name in named_tests(page.read_text(encoding="utf-8")):
        file, _, test = name.partition("::")
        found = list(ROOT.glob(file))
        assert found, f"{page.name} names {name}"
        assert not test or any(f"def {test}(" in each.read_text() for each in found), (
            f"{page.name} names {name}"
        )


def test_each_line_of_the_security_page_names_a_test() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|--")]
    held = [row for row in rows if not row.endswith("| tests |")]
    assert len(held) > 20
    assert [row for row in held if not list(named_tests(row))] == []
