"""The pages that audit other systems: each command on the logs of its page gives the output shown there."""

import re
import shlex
from pathlib import Path

import pytest

from antiphon.cli.main import run

DOCS = Path(__file__).parent.parent / "docs"
PAGES = ("corosync", "kafka", "nats", "rabbitmq", "redis")
CODES = {"import": 0, "audit": 1}


def plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_what_its_commands_print(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (DOCS / f"audit-{name}.md").read_text()
    for file, content in re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", page, re.M | re.S):
        Path(file).write_text(content)
    shown = re.findall(r"^```console\n\$ antiphon (.*?)\n(.*?)^```$", page, re.M | re.S)
    assert len(shown) == 2
    for command, expected in shown:
        words = shlex.split(command)
        assert run(words) == CODES[words[0]]
        printed = plain(capsys.readouterr().out)
        assert printed.startswith(plain(expected).rstrip("…").strip())


@pytest.mark.parametrize("name", PAGES)
def test_the_page_of_anyones_logs_leads_to_each(name: str) -> None:
    assert f"(audit-{name}.md)" in (DOCS / "import.md").read_text()
