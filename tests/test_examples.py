"""Every example runs as its reader would run it, and the README's is one of them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
DEADLINE_S = 600.0
"""After this an example is stuck, however busy the machine is."""
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def output_of(example: Path, *arguments: str) -> str:
    command = [sys.executable, str(example), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=DEADLINE_S)
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_says_something(example: Path) -> None:
    assert output_of(example).strip()


def test_simulate_and_check_tells_the_good_group_from_the_broken_one() -> None:
    text = output_of(ROOT / "examples" / "simulate_and_check.py")
    assert " deliveries, 0 violations" in text
    assert "contradiction" in text


def test_audit_other_logs_finds_what_is_wrong_and_writes_a_trace(tmp_path: Path) -> None:
    text = output_of(ROOT / "examples" / "audit_other_logs.py", str(tmp_path / "trace"))
    assert re.findall(r"^(\w+): ", text, re.MULTILINE) == ["causal", "total"]
    assert (tmp_path / "trace" / "runs").is_dir()


def test_a_killed_consumer_of_rabbitmq_loses_what_it_acknowledged_too_early() -> None:
    text = output_of(ROOT / "examples" / "audit_rabbitmq.py")
    if "There is no rabbitmq-server" in text:
        pytest.skip(text)
    assert text.startswith(
        "40 sends and 120 deliveries at 4 sites.\nintegrity: kept\natomicity: 1\nfifo: kept"
    )
    assert "duplicate: 1 " in text
    assert re.search(r"shop:12 \(.*\) is addressed to mail too", text)


def test_a_member_of_corosync_that_was_killed_misses_nothing_while_it_is_present() -> None:
    text = output_of(ROOT / "examples" / "audit_corosync.py")
    if "There is no corosync" in text:
        pytest.skip(text)
    assert text.count("kept") == 5
    assert re.search(r"^[1-9]\d* messages were sent while c was absent: no loss.$", text, re.M)


def test_the_notebook_leads_from_a_log_to_a_verdict_and_statistics(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its code cells run one after the other, as a notebook server runs them."""
    notebook = json.loads((ROOT / "examples" / "audit.ipynb").read_text())
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec(compile("".join(cell["source"]), "audit.ipynb", "exec"), names)
    told = capsys.readouterr().out
    assert "verdict: fail" in told
    assert "'duplicate': 1, 'atomicity': 1, 'fifo': 1" in told
    assert "ORDERS:21 (ORDERS@21) is addressed to mail too" in told
    assert "mail is slow from 2." in told


def test_the_readmes_examples_are_among_those_that_are_run() -> None:
    shown = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    texts = [example.read_text() for example in EXAMPLES]
    assert shown
    for block in shown:
        assert any(block.strip() in text for text in texts), block
