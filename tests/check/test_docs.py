"""The examples in docs/audit.md and docs/trace.md are true."""

import re
from pathlib import Path

import pytest

from antiphon.check.checkers import check_all, check_trace
from antiphon.core.recording import OF_EVENTS, Property
from antiphon.trace.files import read_trace, write_trace
from antiphon.trace.schema import Run
from tests.histories import history

DOCS = Path(__file__).parents[2] / "docs"
SECTIONS = dict(re.findall(r"^## ([\w-]+)\n(.*?)(?=^## |\Z)", (DOCS / "audit.md").read_text(), re.M | re.S))


@pytest.mark.parametrize("name", OF_EVENTS)
def test_the_example_of_each_property_has_as_many_violations_as_it_says(name: Property) -> None:
    blocks = re.findall(r"^```text\n(.*?)^```", SECTIONS[name], re.M | re.S)
    assert blocks
    for block in blocks:
        (said,) = re.findall(r"# (\d+) violation", block)
        events, run, _ = history(block)
        assert len(check_trace(events, run, [name])) == int(said)


def test_the_quoted_explanation_is_what_is_printed() -> None:
    (quoted,) = re.findall(r"^> (Let .*)$", (DOCS / "audit.md").read_text(), re.M)
    (block,) = re.findall(r"^```text\n(.*?)^```", SECTIONS["causal"], re.M | re.S)
    events, run, _ = history(block)
    assert [violation.explanation for violation in check_trace(events, run, ["causal"])] == [quoted]


def python_block(page: str, having: str = "") -> str:
    found = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)
    (block,) = (block for block in found if having in block)
    assert isinstance(block, str)
    return block


def test_the_adapter_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.log").write_text("MCAST a 1 1.0\nDELIVER a 1 1.5\nDELIVER b 1 2.5\n")
    (tmp_path / "b.log").write_text("MCAST b 1 1.0\nRECV a 1 1.2\nDELIVER b 1 1.5\nDELIVER a 1 2.5\n")
    (tmp_path / "c.log").write_text("")
    exec(python_block("trace.md", "MemoryRecorder"), {})
    trace = read_trace(tmp_path / "tuesday-trace")
    assert trace.runs == [Run("tuesday", promises=("integrity", "fifo", "total"))]
    assert [violation.property for violation in check_all(trace)["tuesday"]] == ["total"]


def test_the_check_from_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    events, run, _ = history("a: b0 !a0")
    write_trace("my-trace", [events], [run])
    exec(python_block("audit.md"), {})
    assert "integrity Let a deliver b:0 (step 0)." in capsys.readouterr().out
