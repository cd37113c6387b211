"""`antiphon stats` as a user sees it: the slow member on the screen, as JSON and on a page."""

import json
from pathlib import Path

import pytest

from antiphon.cli.main import run
from antiphon.trace.files import write_trace
from antiphon.trace.schema import Run
from tests.timing.simulated import SLOW, slow_run

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("stats") / "trace"
    write_trace(folder, [slow_run()], [Run("slow")])
    return str(folder)


def test_the_slow_member_is_named(capsys: Capture, trace: str, tmp_path: Path) -> None:
    assert run(["stats", trace, "--report", str(tmp_path / "page")]) == 0
    out, err = capsys.readouterr()
    assert f"{SLOW} is slow from 1.03 s to the end" in out
    assert "clocks ahead of s0" in out
    assert "retransmissions cannot be told" in err
    page = (tmp_path / "page" / "index.html").read_text()
    for text in ("Who is slow, and since when", f"{SLOW} is slow from", "Latency over time", "messages kept"):
        assert text in page
    assert "Nothing was measured" not in page


def test_machines_get_json(capsys: Capture, trace: str) -> None:
    assert run(["stats", trace, "--json", "--run", "slow", "--clocks", "trust"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["runs"]
    assert told["clocks"] == []
    assert {member["site"] for member in told["members"]} == {"s0", "s1", "s2", "s3", "s4"}
    assert len(told["over_time"]["seconds"]) == len(told["over_time"]["latency_ms"][SLOW])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [(["/no/trace"], "There is no trace at"), (["TRACE", "--run", "nothing"], "has no run 'nothing'")],
)
def test_a_senseless_call_gets_a_sentence(
    capsys: Capture, trace: str, options: list[str], sentence: str
) -> None:
    assert run(["stats", *(trace if word == "TRACE" else word for word in options)]) == 2
    assert sentence in capsys.readouterr().err
