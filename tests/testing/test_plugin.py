"""The pytest plugin and the examples of docs/testing-applications.md, as an application's tests use them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TEST = """
import asyncio

async def test_passes(antiphon_cluster, tmp_path):
    async with antiphon_cluster(2, seed=1) as cluster:
        await cluster["m0"].send(b"x")
        assert (await anext(aiter(cluster["m1"]))).body == b"x"
        await asyncio.sleep(10)

async def test_fails(antiphon_cluster):
    async with antiphon_cluster(2) as cluster:
        assert cluster["m0"].members == {"m0"}

def test_is_plain():
    pass
"""


def run_pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_async_tests_with_the_fixture_run_on_simulated_time(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["antiphon.testing.plugin"]\n')
    (tmp_path / "test_application.py").write_text(TEST)
    done = run_pytest(tmp_path)
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "test_fails" in done.stdout


def test_the_examples_of_the_page_pass(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing-applications.md").read_text()
    first, configuration, second = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "conftest.py").write_text(configuration)
    (tmp_path / "test_page.py").write_text(first + second)
    done = run_pytest(tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
