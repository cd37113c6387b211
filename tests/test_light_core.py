"""The core without its extras: what it can do, and what it says where a package is missing."""

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from antiphon.cli.main import EXTRAS, VERBS
from antiphon.core.extras import PACKAGES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
BLOCKED = sorted({package for packages in PACKAGES.values() for package in packages})
BESIDE_CLI = [package for package in BLOCKED if package not in PACKAGES["cli"]]


def run(program: str, *arguments: str, blocked: Sequence[str] = BLOCKED) -> subprocess.CompletedProcess[str]:
    """Run a program where these modules are None, so that they cannot be imported."""
    block = f"import sys\nsys.modules.update(dict.fromkeys({blocked}))\n"
    command = [sys.executable, "-c", block + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def output_of(program: str) -> str:
    done = run(program)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_extra_is_known_with_its_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {extra: " ".join(needed) for extra, needed in project["optional-dependencies"].items()}
    named["sim"] += named["trace"]
    named["spark"] += named["sim"]
    for extra, packages in PACKAGES.items():
        assert all(package in named[extra] for package in packages), extra
    assert not any(package in " ".join(project["dependencies"]) for package in BLOCKED)


def test_a_live_group_needs_no_extra() -> None:
    program = """
import asyncio, os
import antiphon

async def member(name):
    async with antiphon.join(f"light-{os.getpid()}", name=name, order="total") as group:
        await group.wait_for_members(2)
        sent = await group.send(name.encode())
        await sent.stable()
        return sorted([(await anext(aiter(group))).body for _ in range(2)])

async def main():
    print(*await asyncio.gather(member("alice"), member("bob")))

asyncio.run(main())
"""
    assert output_of(program) == "[b'alice', b'bob'] [b'alice', b'bob']"


def test_a_trace_of_json_lines_can_be_checked_without_any_extra(tmp_path: Path) -> None:
    lines = tmp_path / "events.jsonl"
    rows = [("a", 0, "send", 0), ("a", 1, "send", 1), ("b", 0, "deliver", 1), ("b", 1, "deliver", 0)]
    lines.write_text(
        "".join(
            f'{{"run":"r","site":"{site}","step":{step},"kind":"{kind}","sender":"a","number":{number}}}\n'
            for site, step, kind, number in rows
        )
    )
    program = f"""
from pathlib import Path
import msgspec
from antiphon.check.checkers import check_trace
from antiphon.trace.schema import Event, Run

events = msgspec.json.Decoder(Event).decode_lines(Path({str(lines)!r}).read_bytes())
print(*(violation.property for violation in check_trace(events, Run("r"), ["fifo", "duplicate"])))
"""
    assert output_of(program) == "fifo"


def test_ordering_protocols_are_simulated_without_any_extra() -> None:
    program = "import antiphon; print(antiphon.simulate('sequencer', members=3, messages=30).violations)"
    assert output_of(program) == "[]"


@pytest.mark.parametrize(
    ("call", "extra"),
    [
        ("antiphon.join('g', trace='trace')", "trace"),
        ("antiphon.join('g', detector='gossip')", "sim"),
        ("antiphon.simulate('coordp')", "sim"),
        ("__import__('antiphon.spark.audit')", "sim"),
        ("__import__('antiphon.trace.files')", "trace"),
        ("__import__('antiphon.live.metrics').live.metrics.registry([])", "metrics"),
        ("next(__import__('antiphon.spark.session').spark.session.spark_session().gen)", "spark"),
    ],
)
def test_what_needs_an_extra_says_which(call: str, extra: str) -> None:
    program = f"""
import antiphon
try:
    {call}
except antiphon.MissingRequirementError as error:
    assert error.__cause__ is None
    print(error)
"""
    assert output_of(program).endswith(f"which is not installed. Hint: pip install 'antiphon[{extra}]'")


def test_every_module_can_be_imported_or_says_what_it_needs() -> None:
    program = """
import importlib
from pathlib import Path
import antiphon

for path in sorted(Path("antiphon").rglob("*.py")):
    module = ".".join(path.with_suffix("").parts)
    try:
        importlib.import_module(module)
    except antiphon.MissingRequirementError:
        assert not module.startswith(("antiphon.live", "antiphon.check", "antiphon.protocols")), module
"""
    output_of(program)


@pytest.mark.parametrize("verb", VERBS)
def test_a_command_that_needs_an_extra_says_which_and_the_others_go_on(verb: str) -> None:
    done = run("from antiphon.__main__ import main; main()", verb, "--help", blocked=BESIDE_CLI)
    assert "Traceback" not in done.stderr
    if verb in EXTRAS:
        assert done.returncode == 2
        assert done.stderr.count("error:") == 1
        assert done.stderr.endswith(f"hint: pip install 'antiphon[{EXTRAS[verb][0]}]'\n")
    else:
        assert (done.returncode, done.stderr) == (0, "")


def test_without_its_packages_the_command_line_says_so() -> None:
    done = run("from antiphon.__main__ import main; main()", "--help")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "error: The command line needs the package cyclopts, which is not installed.\n"
        "hint: pip install 'antiphon[cli]'\n"
    )
